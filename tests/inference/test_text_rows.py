"""A sentence in each row: what is cut out of it, what is refused, and what comes back."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas
import pytest

import treelm
from tests.legacy.make import HERE as RUNS
from treelm.cli.arguments import as_typed, in_options, parse
from treelm.cli.surprisal import Arguments
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.sentence_rows import Columns
from treelm.inference.settings import RowSettings
from treelm.inference.stimuli import StimulusTable, from_sentences, read_table

pytestmark = pytest.mark.filterwarnings("ignore:.* unknown to ", "ignore:.*(cells that differ|written together)")


def read(folder: Path, *rows: str, header: str = "text", **how: Any) -> StimulusTable:
    """The stimuli of a table, whose options are ``columns`` among ``how``."""
    named = {"text_column": "text", **how.pop("columns", {})}
    of_table = {name: named.pop(name) for name in Columns._fields if name in named}
    columns = Columns(**of_table, rows=RowSettings(**named))
    (folder / "items.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return read_table(str(folder / "items.csv"), columns, how.pop("punctuation", "as-given"), **how)


@pytest.mark.parametrize(
    ("text", "regions", "target"),
    [
        ("the dog *fell* down", ["the", "dog", "fell", "down"], 2),
        ("the dog (*fell*).", ["the", "dog", "(fell)."], 2),
        ("* the dog * fell", ["the dog", "fell"], 0),
        ("did *n't*", ["did", "n't"], 1),
        ("the dog | fell  down|.", ["the dog", "fell  down", "."], None),
        ("it's 5 and/or 6 * 2", None, None),
    ],
)
def test_texts_are_cut_as_their_marks_say(
    text: str, regions: list[str] | None, target: int | None, tmp_path: Path
) -> None:
    if regions is None:
        with pytest.raises(InputError, match="no one target between asterisks"):
            read(tmp_path, text)
        return
    (found,) = read(tmp_path, text).stimuli
    assert [*found.sentence.words] == regions
    assert [*found.shown] == [] if target is None else [place == target for place in range(len(regions))]


@pytest.mark.parametrize(
    ("header", "row", "settings", "told"),
    [
        ("text", "un*believ*able cats", {}, r"no one target between asterisks in 'un\*believ\*able cats'"),
        ("text", "The dog | fell | ", {}, "an empty region in 'The dog | fell | '"),
        (
            "text",
            "The dog fell",
            {"beside": "the | dog"},
            r"no '\|' in 'The dog fell', as others have.*--on-error skip",
        ),
        ("text", "The | *dog*", {}, r"both '\|' and '\*' in the texts; .*--region-separator '' cuts none"),
        ("text", "The dog", {"region_separator": "/"}, "--region-separator /, which no text has"),
        ("text;verb", "the cat, the cat;cat", {"target_column": "verb"}, "'cat' is 2 times in .* mark it as \\*target"),
        ("text;verb", "the cat;mat", {"target_column": "verb"}, "the target 'mat' is not in 'the cat'; write it as"),
        ("text;verb", "a b c;3", {"target_column": "verb"}, "the target '3' is not in .*--target-from 0 or 1, that of"),
        ("text;verb", "the cat;", {"target_column": "verb"}, "an empty target"),
        (
            "text;verb",
            "the cat;cat",
            {"target_column": "noun"},
            r"no column 'noun'; the first row: text .*verb 'cat'.*--target-column \.\.\.",
        ),
        (
            "item;frase",
            "1;the cat sat",
            {},
            "no column 'text'; the first row: item '1', frase 'the cat sat'; name .*--text-column",
        ),
        (
            "item;frase",
            "1;the cat sat",
            {"text_column": ""},
            "no column 'word'.*give --text-column frase; else .*--word-column",
        ),
        (
            "item;frase",
            "1;the cat sat",
            {"text_column": "", "word": "frase"},
            "no column 'sentence_id'.*give --text-column frase; else",
        ),
        (
            "item;frase",
            "1;the cat sat there",
            {"text_column": "", "word": "frase", "sentence": ("item",), "beside": "1;the cat sat there"},
            "is not one sentence: .*; if each row is a sentence, give --text-column frase; else",
        ),
    ],
)
def test_what_cannot_be_cut_with_certainty_is_refused_by_the_option_that_helps(
    header: str, row: str, settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    parse(Arguments, "treelm surprisal", ["run", "items.csv"])
    rows = [row, *([settings["beside"]] if "beside" in settings else [])]
    columns = {name: value for name, value in settings.items() if name != "beside"}
    with pytest.raises(InputError) as error:
        read(tmp_path, *rows, header=header, columns=columns)
    assert re.search(told, str(in_options(error.value)))


def test_rows_that_cannot_be_read_are_left_out_on_demand(tmp_path: Path) -> None:
    skipped = list[InputError]()
    rows = ["1;the cat;cat", "2;the cat;dog", "3;the", "4;a dog;dog"]
    found = read(tmp_path, *rows, header="item;text;verb", columns={"target_column": "verb"}, skipped=skipped)
    assert [one.kept[0][0] for one in found.stimuli] == ["1", "4"]
    assert sorted(str(error.where).rpartition(":")[2] for error in skipped) == ["3", "4"]


def test_cells_of_a_row_come_back_with_each_region_and_name_the_sentence(tmp_path: Path) -> None:
    rows = ["1;x;a | b c;p", ";y;d | e;q"]
    columns = {"sentence": ("item", "cond")}
    found = read(tmp_path, *rows, header="item;cond;text;word", columns=columns, fill_down=True)
    assert found.columns.kept == ("text", "word")
    assert [one.keys for one in found.stimuli] == [("1", "x"), ("1", "y")]
    assert found.stimuli[0].kept == (("a | b c", "p"),) * 2
    assert [one.keys for one in read(tmp_path, "a", "b").stimuli] == [(1,), (2,)]


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (
            ["the/ dog", "a/ cat"],
            "every sentence has /, which is read as words or parts of them: to cut there, give --region-separator /",
        ),
        (["[the] [dog]", "a [cat] ran"], "every sentence has [ ], which is read as words or parts of them: to mark a"),
        (["the _dog_ ran_", "a cat_NN"], "to mark a target, write *target*"),
        (["the [dog] ran"], ""),
        (["the *dog*", "a *cat*"], ""),
        (["the / dog", "a cat"], ""),
        (["1. the dog", "2. a cat"], "every sentence begins with its number"),
    ],
)
def test_what_every_sentence_has_is_told(rows: list[str], note: str, tmp_path: Path) -> None:
    parse(Arguments, "treelm surprisal", ["run", "items.csv"])
    found = as_typed("".join(read(tmp_path, *rows).notes))
    assert bool(found) == bool(note)
    assert note in found
    assert "--text-column" not in found


@pytest.mark.parametrize("rows", [["the / dog / ran", "the / cat"], ["| / the dog", "the / cat"]])
def test_a_separator_that_is_not_named_is_refused(rows: list[str], tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=": every sentence has /, which would be read as words; cut there by region_sep"
    ):
        read(tmp_path, *rows, columns={"region_separator": ""}, skipped=[])
    with pytest.raises(
        InputError, match=": every sentence has /, which would be read as words; remove them: verb has the target"
    ):
        read(tmp_path, *(f"{one};the" for one in rows), header="text;verb", columns={"target_column": "verb"})


@pytest.mark.parametrize("mark", ["[]", "{}", "_", "/", "#"])
@pytest.mark.parametrize("target", [None, "ran into"])
def test_a_target_between_other_marks_is_refused_but_told_of_in_text(
    mark: str, target: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [f"the dog {mark[0]}ran into{mark[-1]} it.", f"({mark[0]}ran into{mark[-1]}) us"]
    rows, columns, remedy = texts, {}, r"mark the target as \*target\*"
    if target:
        rows, columns, remedy = [f"{one};{target}" for one in texts], {"target_column": "verb"}, "remove them: verb has"
    with pytest.raises(
        InputError,
        match=f": every sentence has a part between {re.escape(mark[0])} and {re.escape(mark[-1])}.*; {remedy}",
    ):
        read(tmp_path, *rows, header="text;verb" if target else "text", columns=columns, skipped=[])
    own = [Sentence(words=tuple(one.split()), identifier="1", source="items.txt", line=1) for one in texts]
    assert len([*from_sentences(own, "as-given")]) == 2
    assert re.search(r"every sentence has .*a table of sentences, text_column", caplog.text)


@pytest.mark.parametrize(
    ("rows", "regions", "notes"),
    [
        (["1;a;un", "1;a;kind", "1;b;to", "2;a;x"], [["un kind", "to"], ["x"]], 1),
        (["1;;un", "1;;kind", "1;b;to"], [["un", "kind", "to"]], 0),
        (["1;0;un", "1;0;kind", "1;1;to"], [["un kind", "to"]], 1),
    ],
)
def test_rows_of_one_value_are_one_region(
    rows: list[str], regions: list[list[str]], notes: int, tmp_path: Path
) -> None:
    columns = {"text_column": "", "sum_by": "part", "sentence": ("item",)}
    rows = [f"{row};{number}" for number, row in enumerate(rows)]
    found = read(tmp_path, *rows, header="item;part;word;rt", columns=columns)
    assert [[*one.sentence.words] for one in found.stimuli] == regions
    assert len(found.notes) == notes
    assert all("rt: cells that differ among the rows of a sum are missing" in note for note in found.notes)
    assert [cells[1] for one in found.stimuli for cells in one.kept].count(None) == notes


def test_pieces_of_words_are_summed_by_the_number_of_their_word(tmp_path: Path) -> None:
    rows, columns = ["1;1;un", "1;1;kind", "1;2;to", "2;1;a"], {"text_column": "", "sentence": ("item",)}
    with pytest.raises(
        InputError, match=r"word_id is 1 in 2 of its rows.*, or give sum_by = 'word_id' if words are cut"
    ):
        read(tmp_path, *rows, header="item;word_id;word", columns=columns)
    found = read(tmp_path, *rows, header="item;word_id;word", columns={**columns, "sum_by": "word_id"})
    assert ([one.sentence.words for one in found.stimuli], found.notes) == ([("un kind", "to"), ("a",)], ())
    with pytest.raises(InputError, match=r"word_id is 1 in 2 of its rows.* if it does not number words$"):
        read(tmp_path, "1;1;a", "1;2;b", "1;1;c", header="item;word_id;word", columns=columns)


def test_a_region_that_comes_again_is_refused_or_skipped(tmp_path: Path) -> None:
    rows, columns = ["1;a;x", "1;b;y", "1;a;z", "2;a;u"], {"text_column": "", "sum_by": "part", "sentence": ("item",)}
    with pytest.raises(InputError, match=r"items.csv:4: part 'a' again, after another one"):
        read(tmp_path, *rows, header="item;part;word", columns=columns)
    skipped = list[InputError]()
    found = read(tmp_path, *rows, header="item;part;word", columns=columns, skipped=skipped)
    assert ([one.keys for one in found.stimuli], len(skipped)) == ([("2",)], 1)
    with pytest.raises(InputError, match="part 'a' again"):  # nothing would be left
        read(tmp_path, *rows[:3], header="item;part;word", columns=columns, skipped=[])
    with pytest.raises(InputError, match="punctuation = apart with sum_by"):
        read(tmp_path, *rows[:2], header="item;part;word", columns=columns, punctuation="apart")


FRAME = pandas.DataFrame(
    {"text": ["The *city* was old .", "*One* of them", "no mark"], "bits": [3, 2, 1]}, index=[5, 3, 9]
)


def test_trials_of_a_frame_keep_their_rows_and_those_that_cannot_be_read_are_missing() -> None:
    lm = treelm.load(RUNS / "lstm")
    with pytest.warns(UserWarning, match="left out: data frame:3: no one target"):
        found = treelm.surprisal_table(lm, FRAME, text_column="text", on_error="skip", omit_first=True)
    assert (list(found.index), found["bits"].tolist(), list(found)[:2]) == ([5, 3, 9], [3, 2, 1], ["text", "bits"])
    (scored,) = lm.surprisal(["The city was old ."])
    assert found["surprisal_bits"].tolist() == [
        scored.words[1].surprisal_bits,
        pytest.approx(math.nan, nan_ok=True),
    ] * 1 + [pytest.approx(math.nan, nan_ok=True)]


def test_the_first_word_has_no_surprisal_and_no_part_of_it_on_demand() -> None:
    lm, frame = treelm.load(RUNS / "rnng"), pandas.DataFrame({"text": ["The city was"]})
    columns = ["lexical_bits", "next_rank", "word_probability", "open_nodes"]
    whole, found = (
        treelm.surprisal_table(lm, frame, text_column="text", columns=columns, omit_first=is_omitted)
        for is_omitted in (False, True)
    )
    lost = ["surprisal_bits", *columns[:-1]]
    assert found.loc[0, lost].isna().all()
    pandas.testing.assert_frame_equal(found[1:], whole[1:], check_dtype=False)
    assert found["open_nodes"].tolist() == whole["open_nodes"].tolist()


@pytest.mark.parametrize(("base", "unit"), [("2", "bits"), ("e", "nats"), (10, "hartleys")])
def test_figures_are_in_the_unit_that_is_asked_for(base: Any, unit: str) -> None:
    lm, frame = treelm.load(RUNS / "rnng"), pandas.DataFrame({"text": ["The city was old .", "One"], "n_bits": [1, 2]})
    settings: dict[str, Any] = {"text_column": "text", "columns": ["entropy_bits", "open_nodes"], "lag": 1}
    in_bits = treelm.surprisal_table({"a_bits": lm}, frame, **settings)
    found = treelm.surprisal_table({"a_bits": lm}, frame, log_base=base, **settings)
    one = {"2": 2, "e": math.e, 10: 10}[base]
    for name in ("surprisal_{}_a_bits", "entropy_{}_a_bits", "surprisal_{}_a_bits_lag1"):
        expected = in_bits[name.format("bits")] / math.log2(one)
        assert found[name.format(unit)].tolist() == pytest.approx(expected.tolist(), nan_ok=True)
        assert unit == "bits" or name.format("bits") not in found
    for name in ("open_nodes_a_bits", "n_bits", "is_unk_a_bits"):
        assert found[name].tolist() == in_bits[name].tolist()


@pytest.mark.parametrize("first", ["0", "1"])
def test_a_target_may_be_the_number_of_its_word(first: str, tmp_path: Path) -> None:
    rows = [f"the cat, the cat;{int(first) + 2}", f"a b;{first}"]
    columns = {"target_column": "nr", "target_from": first}
    found = read(tmp_path, *rows, header="text;nr", columns=columns).stimuli
    assert [one.shown.index(True) for one in found] == [2, 0]
    with pytest.raises(InputError, match=f"the target '{int(first) + 2}' is not in 'a b'"):
        read(tmp_path, f"a b;{int(first) + 2}", header="text;nr", columns=columns)


def test_two_sentences_in_a_row_are_told_or_split(tmp_path: Path) -> None:
    rows = ["The dog barked. It *slept*.", "The *cat* slept."]
    told = read(tmp_path, *rows).notes
    assert [note.partition(")")[0] for note in told] == [f"in 1 of 2 rows (first at {tmp_path / 'items.csv'}:2"]
    split = read(tmp_path, *rows, language="en")
    assert split.notes == ()
    assert [(one.keys, one.shown) for one in split.stimuli] == [
        ((1, 1), (False, False, False)),
        ((1, 2), (False, True)),
        ((2, 1), (False, True, False)),
    ]
