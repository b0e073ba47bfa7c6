"""Tables of one model and several are the same figures, laid out otherwise; frames get them beside their words."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import treelm
from tests.corpora.helpers import text_sentence
from tests.evaluation.toys import fails_at
from tests.legacy.make import HERE as RUNS
from treelm.errors import InputError
from treelm.inference.loading import load
from treelm.inference.predictors import Frequencies, Unigrams
from treelm.inference.sentence_rows import Columns
from treelm.inference.settings import TableSettings
from treelm.inference.stimuli import Stimulus, check_documents, read_table, stimulus
from treelm.inference.surprisal_table import NamedModel, SurprisalTable
from treelm.models.measures import ENTROPY, value_at_start

TABLE = "story,item,rt,form\na,1,300,I\na,1,310,think\na,2,200,The\na,2,220,city\na,2,240,was\nb,1,99,Old\n"
COLUMNS = (ENTROPY, "word_length", "word_position", "document_position")
WORDS = {
    "item": [1, 1, 1, 2, 2],
    "form": ["I", "think", ".", "The", "city"],
    "rt": [310.0, 295.0, None, 290.0, 310.0],
    "model": ["x", "y", "x", "y", "x"],
}
pytestmark = pytest.mark.filterwarnings("ignore:.* are unknown to ")


@pytest.fixture(scope="module")
def models() -> list[NamedModel]:
    return [NamedModel(name=name, lm=load(RUNS / name)) for name in ("lstm", "rnng")]


def stimuli() -> list[Stimulus]:
    texts = ("I think", "The city was", "Old")
    sentences = [text_sentence(text, line, "in.txt") for line, text in enumerate(texts, start=1)]
    return [stimulus(one, "as-given", document="b" if one.line == 3 else "a") for one in sentences]


def made(models: Sequence[NamedModel], settings: TableSettings, skipped: list | None = None) -> pandas.DataFrame:
    table = SurprisalTable(models, settings)
    frame = pandas.concat(table.frames(stimuli(), skipped), ignore_index=True)
    assert tuple(frame) == table.names
    return frame


def values(cells: "pandas.Series[Any]") -> list[Any]:
    return [None if pandas.isna(cell) else cell for cell in cells]


def test_wide_and_long_tables_have_the_figures_of_each_model_alone(models: list[NamedModel]) -> None:
    alone = [made([one], TableSettings(columns=COLUMNS, lag=1, end=True)) for one in models]
    wide = made(models, TableSettings(columns=COLUMNS, lag=1, end=True, shape="wide"))
    for model, own in zip(models, alone, strict=True):
        for name in own:
            base, _, lag = name.partition("_lag")
            whose = f"{base}_{model.name}{_ and '_lag'}{lag}"
            assert values(wide[whose if whose in wide else name]) == values(own[name]), name
    long = made(models, TableSettings(columns=COLUMNS, lag=1, end=True, shape="long"))
    for model, own in zip(models, alone, strict=True):
        for name in own:
            assert values(long.loc[long["model"] == model.name, name]) == values(own[name]), name
    assert long.loc[long["model"] == "lstm", "beam_converged"].isna().all()


def test_predictors_are_those_of_the_words_as_they_were_shown(models: list[NamedModel]) -> None:
    frequencies = Frequencies.of_counts({"the": 9, "city": 1})
    unigrams = Unigrams({"I": 3, "think": 1})
    names = ("word_length", "zipf_frequency", "unigram_surprisal_bits", "word_position", "document_position")
    named = [NamedModel(name="lstm", lm=models[0].lm, unigrams=unigrams)]
    table = SurprisalTable(named, TableSettings(columns=names, end=True), frequencies=frequencies)
    found = pandas.concat(table.frames(stimuli()), ignore_index=True)
    assert values(found["word_length"]) == [1, 5, None, 3, 4, 3, None, 3, None]
    assert values(found["word_position"]) == [1, 2, None, 1, 2, 3, None, 1, None]
    assert values(found["document_position"]) == [1, 2, None, 3, 4, 5, None, 1, None]
    assert found["zipf_frequency"][3] == frequencies.of("the")
    assert found["unigram_surprisal_bits"][:2].tolist() == [unigrams.bits(["I"]), unigrams.bits(["think"])]


def test_the_probability_of_a_word_is_that_of_its_state(models: list[NamedModel]) -> None:
    lm = models[0].lm
    found = made(models[:1], TableSettings(columns=("word_probability",), lag=1))
    state = lm.start(1)
    for place, word in enumerate(("I", "think")):
        token = lm.vocabulary.encode([word], sentence_initial=place == 0).ids[0]
        expected = float(lm.next_word_log_probs(state)[0, token].exp())
        assert found["word_probability"][place] == pytest.approx(expected, rel=1e-7)
        assert lm.surprisal([["I", "think"]])[0].words[place].probability == pytest.approx(expected, rel=1e-7)
        state = lm.extend(state, [word])
    assert found["word_probability_lag1"][1] == found["word_probability"][0]


@pytest.mark.parametrize("chunk", [1, 2, 128])
@pytest.mark.parametrize(("within", "groups"), [("sentence", [1, 1, 2, 2, 2, 3]), ("document", [1, 1, 1, 1, 1, 2])])
def test_lags_end_with_the_sentence_or_the_document(
    models: list[NamedModel],
    within: Any,
    groups: list[int],
    chunk: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("treelm.inference.surprisal_table._CHUNK", chunk)
    (tmp_path / "rt.csv").write_text(TABLE)
    table = read_table(str(tmp_path / "rt.csv"), Columns("form", ("item",), "story"), "as-given")
    settings = TableSettings(lag=3, columns=("word_length",), lag_within=within)
    found = pandas.concat(SurprisalTable(models[:1], settings, table.columns).frames(table.stimuli), ignore_index=True)
    for name in ("word_length", "surprisal_bits"):
        for lag in (1, 2, 3):
            expected = [
                found[name][n - lag] if n >= lag and groups[n - lag] == group else None
                for n, group in enumerate(groups)
            ]
            assert values(found[f"{name}_lag{lag}"]) == expected
    assert found["story"].tolist() == ["a"] * 5 + ["b"]
    assert found["item"].tolist() == ["1", "1", "2", "2", "2", "1"]
    assert found["form"].tolist() == ["I", "think", "The", "city", "was", "Old"]


def test_reductions_of_entropy_add_up(models: list[NamedModel]) -> None:
    settings = TableSettings(columns=(ENTROPY, "next_entropy_reduction_bits", "entropy_bits", "entropy_reduction_bits"))
    found = made([models[1]], settings)[2:5]  # the second sentence
    total = value_at_start(models[1].lm, ENTROPY) - found[ENTROPY].iloc[-1]
    assert found["next_entropy_reduction_bits"].sum() == pytest.approx(total)
    assert found["entropy_reduction_bits"].sum() == pytest.approx(-found["entropy_bits"].iloc[-1])


def failing(lm: NamedModel) -> NamedModel:
    """The model, which cannot score the second sentence."""
    return NamedModel(name=lm.name, lm=lm.lm, compute=fails_at("city"))


def test_what_one_model_cannot_score_is_missing_beside_the_other_and_breaks_its_lags(models: list[NamedModel]) -> None:
    skipped: list[InputError] = []
    lstm, rnng = models
    settings = TableSettings(lag=1, lag_within="document", shape="wide")
    found = made([lstm, failing(rnng)], settings, skipped=skipped)
    assert found["surprisal_bits_rnng"].isna().tolist() == [False] * 2 + [True] * 3 + [False]
    assert found["surprisal_bits_lstm"].notna().all()
    assert [error.found for error in skipped] == ["too hard"]
    found = made([failing(lstm)], TableSettings(lag=1, lag_within="document"), skipped=[])
    assert found["word"].tolist() == ["I", "think", "Old"]
    found = made([failing(lstm), rnng], TableSettings(shape="long"), skipped=[])
    assert found["model"].tolist() == ["lstm"] * 2 + ["rnng"] * 2 + ["rnng"] * 3 + ["lstm", "rnng"]


def test_a_document_that_goes_on_after_another_is_refused_where_documents_count() -> None:
    shuffled = [replace(one, document="aba"[place]) for place, one in enumerate(stimuli())]
    with pytest.raises(InputError, match=r"in.txt:3: more of document 'a' after another one"):
        check_documents(shuffled)
    check_documents(stimuli())
    for settings in (
        {"context": "document"},
        {"lag": 1, "lag_within": "document"},
        {"columns": ("document_position",)},
    ):
        assert TableSettings(**settings).follows_documents
    assert not TableSettings(lag=1).follows_documents


def test_an_error_comes_after_all_rows_before_it(models: list[NamedModel]) -> None:
    def broken() -> Iterator[Stimulus]:
        yield from stimuli()
        raise InputError("a bad line", remedy="correct it")

    for shape in ("wide", "long"):
        table = SurprisalTable(models, TableSettings(shape=shape, batch_size=1))  # type: ignore[arg-type]
        frames: list[pandas.DataFrame] = []
        with pytest.raises(InputError, match="a bad line"):
            frames.extend(table.frames(broken()))
        assert sum(map(len, frames)) == 6 * (2 if shape == "long" else 1)


def test_input_is_read_as_it_is_needed(models: list[NamedModel]) -> None:
    num_read = 0

    def endless() -> Iterator[Stimulus]:
        nonlocal num_read
        while True:
            num_read += 1
            yield stimuli()[2]

    table = SurprisalTable(models[:1], TableSettings(lag=1, lag_within="document"))
    frames = table.frames(endless())
    for number, frame in enumerate(islice(frames, 8), start=1):
        assert num_read <= len(frame) * number + 2 * 256  # the batches that are sorted by length


def test_a_word_id_of_the_source_takes_the_place_of_ours_and_its_measures_step_aside(models: list[NamedModel]) -> None:
    table = SurprisalTable(models[:1], TableSettings(), Columns(kept=("word_id", "surprisal_bits", "rt")))
    assert table.names.count("word_id") == 1
    assert table.names[-3:] == ("word_id", "own_surprisal_bits", "rt")
    assert table.renamed == {"surprisal_bits": "own_surprisal_bits"}
    of_texts = SurprisalTable(models[:1], TableSettings(text_column="text"), Columns(kept=("word_id",)))
    assert of_texts.renamed == {"word_id": "own_word_id"}  # it numbers no words


# Data frames of words.


def bits(lm: treelm.LanguageModel) -> list[float]:
    found = lm.surprisal([["I", "think", "."], ["The", "city"]])
    return [word.surprisal_bits for one in found for word in one.words]


def test_a_frame_keeps_its_index_and_columns(models: list[NamedModel]) -> None:
    frame, lm = pandas.DataFrame(WORDS, index=[10, 9, 8, 7, 6]), models[1].lm
    before = frame.copy()
    found = treelm.surprisal_table(
        lm, frame, word="form", sentence="item", columns=["open_nodes", "word_length"], lag=1
    )
    pandas.testing.assert_frame_equal(frame, before)
    pandas.testing.assert_frame_equal(found[["item", "form", "rt", "model"]], frame)
    assert found["surprisal_bits"].tolist() == pytest.approx(bits(lm))
    assert found["word_length"].tolist() == [1, 5, 0, 3, 4]
    assert found["word_length_lag1"].isna().tolist() == [True, False, False, True, False]
    assert found["word_length_lag1"][9] == 1
    assert (found["is_unk"].dtype, found["word_length_lag1"].dtype) == ("int64", "float64")


def test_what_is_unknown_or_written_together_is_warned_of(models: list[NamedModel]) -> None:
    frame = pandas.DataFrame({"sentence_id": [1, 1], "word": ["I", "The."]})
    warnings.resetwarnings()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        treelm.surprisal_table(models[0].lm, frame)
    said = [str(one.message) for one in caught]
    assert any("such as 'The.', are written together with marks" in line for line in said)
    assert {one.filename for one in caught} <= {__file__, sys.modules["treelm.models.base"].__file__}


@pytest.mark.parametrize(
    ("frame", "settings", "expected"),
    [
        ({"a": [1]}, {}, "dict where a data frame of pandas was expected"),
        (
            WORDS,
            {},
            "data frame:1: no column 'word'; the first row: item 1, form 'I', .*by word = ...; choose from: item",
        ),
        ({"word": ["a", None], "sentence_id": [1, 1]}, {}, "data frame:2: a missing word.*keep_default_na=False"),
        ({"word": ["a", ["b"]], "sentence_id": [1, 1]}, {}, "data frame:2: list where a word was expected"),
        ({"word": ["a", "b"], "sentence_id": [1, None]}, {}, r"data frame:2: an empty sentence.*fill_down = True"),
        (
            {"word": [*"abcabd"], "sentence_id": 1, "k": [1, 2, 3] * 2, "c": [*"xxxyyy"]},
            {},
            r"k is 1 in 2.*: sentence = \['sentence_id', 'c'\]",
        ),
        (
            {"word": ["a"] * 3, "sentence_id": [1, 2, 1]},
            {},
            "data frame:3: sentence '1' is not .*: rows of it come after",
        ),
        (pandas.DataFrame([["a", "b"]], columns=["word", "word"]), {}, "two columns of the name 'word'"),
        (pandas.DataFrame([[1, "a"]]), {}, "a column of the name 0, which is no string"),
        (WORDS, {"target_column": "form"}, "target_column without text_column"),
        (WORDS, {"shape": "plain"}, "shape = 'plain'; give 'auto', 'wide' or 'long'"),
        (WORDS, {"columns": ["unigram_surprisal_bits"]}, r"without counts; give unigrams"),
    ],
)
def test_frames_that_cannot_be_read_are_one_line(
    models: list[NamedModel], frame: Any, settings: dict[str, Any], expected: str
) -> None:
    named = {"word": "form", "sentence": "item"} if "columns" in settings else {}
    with pytest.raises(InputError, match=expected):
        treelm.surprisal_table(models[0].lm, frame if "a" in frame else pandas.DataFrame(frame), **named, **settings)


def test_numbers_and_truth_values_are_words_as_workbooks_write_them(models: list[NamedModel]) -> None:
    words = [True, np.bool_(False), 1984, 1984.0, np.float32(0.5), np.int8(7), b"the", "NA", "nan", "null"]
    texts = ["TRUE", "FALSE", "1984", "1984", "0.5", "7", "the", "NA", "nan", "null"]
    found, expected = (
        treelm.surprisal_table(models[0].lm, pandas.DataFrame({"word": own, "sentence_id": 1}))["surprisal_bits"]
        for own in (words, texts)
    )
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("shape", ["wide", "long"])
def test_what_cannot_be_read_or_scored_is_missing_in_a_frame_and_named(models: list[NamedModel], shape: Any) -> None:
    words = {1: ["I", "think"], 2: ["The", None], 3: ["The", "city", "was"], 4: ["Old"]}
    rows = [(number, word) for number, own in words.items() for word in own]
    frame = pandas.DataFrame(rows, columns=["sentence_id", "word"], index=range(10, 10 + len(rows)))
    named = {one.name: one.lm for one in models}
    with pytest.warns(UserWarning, match=r"left out: data frame:4: a missing word") as caught:
        found = treelm.surprisal_table(named, frame, shape=shape, on_error="skip")
    assert sum("left out" in str(one.message) for one in caught) == 1
    whole = treelm.surprisal_table(named, frame[frame["sentence_id"] != 2], shape=shape)
    left_out = found["sentence_id"] == 2
    assert found.loc[left_out, found.columns.str.startswith(("surprisal_bits", "is_unk"))].isna().all(axis=None)
    pandas.testing.assert_frame_equal(found[~left_out], whole, check_dtype=False)
    assert list(found.index) == list(frame.index) * (2 if shape == "long" else 1)
