"""Users' own tables of reading times, and surprisals of other programs."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluation.human.worlds import made_up, surprisals
from tests.evaluation.toys import ToyLM
from treelm.errors import InputError
from treelm.evaluation.human import reading_tables
from treelm.evaluation.human.columns import TableColumns
from treelm.evaluation.human.material import read_surprisals, score_material
from treelm.evaluation.human.reading import Regression
from treelm.inference.loading import load

TIMES = """\
text,item,word,rt,freq,pos,gpt2
a,1,The,300,9.5,DT,NA
a,1,dog,310,5.5,NN,7.25
a,1,barks.,350,2.0,VB,11
a,2,"It's",290,9.0,PRP,2
b,1,late.,NA,6.5,RB,5
"""
COLUMNS = TableColumns(
    sentence_column=("item",),
    document_column="text",
    predictor_columns=("freq",),
    surprisal_columns=("gpt2",),
    class_column="pos",
)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_of_a_table_become_a_corpus(tmp_path: Path) -> None:
    corpus = reading_tables.load(write(tmp_path / "times.csv", TIMES), COLUMNS)
    assert corpus.words == ("The", "dog", "barks.", "It's", "late.")
    assert corpus.keys[3:] == (("a", "2", "1"), ("b", "1", "1"))
    assert corpus.classes == ("DT", "NN", "VB", "PRP", "RB")
    np.testing.assert_array_equal(corpus.responses["rt"], [300, 310, 350, 290, np.nan])
    np.testing.assert_array_equal(corpus.shifted(corpus.predictors["freq"], 1), [np.nan, 9.5, 5.5, 2.0, np.nan])
    assert corpus.controls["position_in_document"].tolist() == [1, 2, 3, 4, 1]
    assert np.isfinite(corpus.published["gpt2"].bits).tolist() == [False, True, True, True, True]
    assert corpus.fold_kind == "folds of sentences"


def test_lags_within_sentences_or_documents(tmp_path: Path) -> None:
    table = write(tmp_path / "times.csv", TIMES)
    for columns, within in (
        (TableColumns(sentence_column=("text", "item")), "sentence"),
        (TableColumns(sentence_column=("item",), document_column="text", lag_within="sentence"), "sentence"),
        (TableColumns(sentence_column=("item",), document_column="text"), "document"),
        (TableColumns(sentence_column=("text", "item"), lag_within="document"), "document"),
    ):
        corpus = reading_tables.load(table, columns)
        is_within = within == "sentence"
        before = corpus.shifted(corpus.predictors["length"], 1)
        np.testing.assert_array_equal(before[:4], [np.nan, 3, 3, np.nan if is_within else 5])
        places = corpus.controls[f"position_in_{within}"].tolist()
        assert places[:4] == [1, 2, 3, 1 if is_within else 4]


@pytest.mark.parametrize("columns", [{"document_column": "reader"}, {"sentence_column": ("item", "reader")}])
def test_sentences_of_several_readers_are_reported(columns: dict[str, Any], tmp_path: Path) -> None:
    rows = "".join(f"{reader},{item},{word},300\n" for reader in range(5) for item in "12" for word in (item, "x", "y"))
    table = write(tmp_path / "t.csv", f"reader,item,word,rt\n{rows}z,3,once,300\n")
    (found,) = reading_tables.load(table, TableColumns(**{"sentence_column": ("item",), **columns})).notes
    assert found.startswith("2 of 3 sentences occur several times, up to 5: if by several readers, give mean times")


@pytest.mark.parametrize(
    ("separator", "times", "expected"),
    [
        (";", "534 1.169 NA", "t.csv:3: '1.169' beside whole numbers in column 'rt'"),
        ("\t", "1.082 564 12.082", "t.csv:2: '1.082' beside whole numbers in column 'rt'"),
        (";", "1.169 1.218 1.022", [1.169, 1.218, 1.022]),
        (",", "534 301.125 301.5", [534, 301.125, 301.5]),
    ],
)
def test_marks_between_thousands_are_no_decimal_points(
    separator: str, times: str, expected: str | list[float], tmp_path: Path
) -> None:
    rows = "".join(separator.join(("1", f"w{n}", time)) + "\n" for n, time in enumerate(times.split()))
    table = write(tmp_path / "t.csv", separator.join(("sentence_id", "word", "rt")) + "\n" + rows)
    if isinstance(expected, list):
        assert reading_tables.load(table, TableColumns()).responses["rt"].tolist() == expected
    else:
        with pytest.raises(InputError, match=expected):
            reading_tables.load(table, TableColumns())


def test_sentence_key_of_several_columns(tmp_path: Path) -> None:
    text = "item,condition,word,rt\na b,c,x,1\na b,c,y,1\na,b c,x,1\na,b c,y,1\n"
    corpus = reading_tables.load(write(tmp_path / "t.csv", text), TableColumns(sentence_column=("item", "condition")))
    assert len(set(corpus.sentences)) == 2
    assert corpus.key_names == ("document", "item", "condition", "place")
    bits = "item;condition;document;place;surprisal_bits\na;b c;1;2;2,5\na b;c;1;2;3\n"
    found = read_surprisals(write(tmp_path / "bits.csv", bits), corpus).bits
    np.testing.assert_array_equal(found, [np.nan, 3, np.nan, 2.5])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TIMES.replace("item", "sent"), "times.csv:1: no column 'item'"),
        (TIMES.replace("310", "fast"), "times.csv:3: 'fast' is not a number; give a number, or NA"),
        (
            TIMES.replace(",", "\t").replace("310", "310,5"),
            "times.csv:3: '310,5' is not a number; write a decimal point",
        ),
        (
            TIMES.replace(",", ";").replace("300", "1,234").replace("310", "987.5"),
            "times.csv:3: '987.5' in a column with decimal commas (rt)",
        ),
        (
            TIMES + "a,1,again,300,1,NN,2\n",
            "times.csv:7: sentence 'a, 1' is not one sentence: rows of it come after sentence 'b, 1'",
        ),
        (
            TIMES.replace("b,1,late.", "a,1,late."),
            "times.csv:6: sentence 'a, 1' is not one sentence: rows of it come after sentence 'a, 2'",
        ),
    ],
)
def test_bad_tables_are_refused_with_their_place(text: str, found: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(found)):
        reading_tables.load(write(tmp_path / "times.csv", text), COLUMNS)


@pytest.mark.parametrize(("column", "name"), [("surprisal_bits", "bits"), ("surprisal_nats_a", "surprisal_nats_a")])
def test_surprisals_of_a_table_are_found_by_key_in_any_order(column: str, name: str, tmp_path: Path) -> None:
    corpus, unit = made_up(2, 3), 1.0 if column == "surprisal_bits" else math.log(2)
    rows = "".join(f"{story}\t{place}\t{story}.{place}\t0\n" for story in "10" for place in "210")
    table = write(tmp_path / "bits.tsv", f"story\tposition\t{column}\tis_unk{column[14:]}\n{rows}")
    found = read_surprisals(table, corpus, column=column)
    assert (found.name, found.kind, found.says_unknown) == (name, "table", True)
    assert (found.bits * unit).tolist() == pytest.approx([0.0, 0.1, 0.2, 1.0, 1.1, 1.2], abs=1e-12)


def bits_of_corpus(path: Path) -> None:
    columns = TableColumns(response_columns=("x",), surprisal_columns=("bits",))
    reading_tables.load(path, columns)


def bits_of_another_program(path: Path) -> None:
    read_surprisals(path, made_up(1, 5), column="bits")


@pytest.mark.parametrize("read", [bits_of_corpus, bits_of_another_program])
@pytest.mark.parametrize(
    ("bits", "told"),
    [
        ("NA -7.25 -11 2", "bits.csv:3: -7.25 in column 'bits': log probabilities, not surprisals; give surprisals"),
        ("0 0.25 0.5 0.0625", "bits.csv:3: all values of column 'bits' lie between 0 and 1: if they are probabilities"),
        ("NA 7.25 0.5 -0.001", ""),
    ],
)
def test_probabilities_are_no_surprisals(
    bits: str, told: str, read: Callable[[Path], None], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    rows = [f"0,0,{n},w{n},{n},{cell}" for n, cell in enumerate(bits.split())]
    table = write(tmp_path / "bits.csv", "\n".join(["sentence_id,story,position,word,x,bits", *rows]))
    try:
        read(table)
        found = caplog.text
    except InputError as error:
        found = str(error)
        assert told.startswith("bits.csv:3: -")
    assert told in found
    assert bool(told) == bool(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("story,position,bits\n0,1,2\n", "no column 'surprisal_bits'"),
        ("story,position,surprisal_bits\n0,1,2\n0,1,3\n", "a second row of the same word"),
        ("story,position,surprisal_bits\n0,1,2\n0,2,2\n0,3,2\n", r":4: .* position 3.*story 0, position 0 \(w0"),
        ("story,position,surprisal_bits\n1,0,2\n2,0,2\n", r":3: a row of story 2.*; story 0.* \(w0\) has none"),
        ("word,surprisal_bits\nw0,2\n", "1 rows without the columns story, position"),
    ],
)
def test_bad_tables_of_surprisals_are_refused(text: str, found: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=found):
        read_surprisals(write(tmp_path / "bits.csv", text), made_up(2, 3))


def test_a_model_scores_a_material_word_by_word_in_its_order(tmp_path: Path) -> None:
    lm = ToyLM()
    text = "text,item,word,rt\nx,1,a,1\nx,1,b c,1\nx,2,c,1\n"
    corpus = reading_tables.load(
        write(tmp_path / "t.csv", text), TableColumns(sentence_column=("item",), document_column="text")
    )
    found = score_material(lm, corpus, name="toy", punctuation="as-given")
    scores = [score.log_probs / -math.log(2) for score in lm.score([["a", "b", "c"], ["c"]])]
    expected = [scores[0][0], scores[0][1] + scores[0][2], scores[1][0]]
    assert found.bits == pytest.approx([float(value) for value in expected])


def test_the_table_of_a_regression_has_what_is_compared() -> None:
    corpus = made_up()
    bits = corpus.published["true"].bits.copy()
    bits[5] = np.nan
    world = Regression(corpus, [surprisals("5-gram", bits), corpus.published["noise"]])
    table = world.to_frame()
    assert len(table) == len(world.times) == int(world.kept.sum())
    head = ["story", "position", "word", "sentence", "fold", "class", "time", "length_0", "length_1", "position"]
    assert list(table) == [*head, "5-gram_0", "5-gram_1", "noise_0", "noise_1"]
    np.testing.assert_array_equal(table["time"], world.times)
    np.testing.assert_array_equal(table[["5-gram_0", "5-gram_1"]], world.bits("5-gram"))


def test_keys_and_words_of_a_table_have_to_agree(tmp_path: Path) -> None:
    corpus = made_up(2, 3)
    rows = "".join(f"{story},{place},W{story * 3 + place}.,1.5\n" for story in (0, 1) for place in range(3))
    table = write(tmp_path / "bits.csv", f"story,position,word,surprisal_bits\n{rows}")
    assert read_surprisals(table, corpus).bits.tolist() == [1.5] * 6  # marks and case are a program's own
    shifted = rows.replace("0,0,W0.", "0,0,W1.")
    with pytest.raises(InputError, match=r"bits.csv:2: the word 'W1.' where made-up has 'w0'; number them as it does"):
        read_surprisals(write(table, f"story,position,word,surprisal_bits\n{shifted}"), corpus)


def test_document_context_of_stream_model(tmp_path: Path) -> None:
    lm = load("lstm-gum-open")
    text = "text,item,word,rt\nx,1,The,1\nx,1,dog,1\nx,2,The,1\nx,2,dog,1\ny,1,The,1\ny,1,dog,1\n"
    corpus = reading_tables.load(
        write(tmp_path / "t.csv", text), TableColumns(sentence_column=("item",), document_column="text")
    )
    alone, together = (
        score_material(lm, corpus, name="lm", context=context).bits for context in ("sentence", "document")
    )
    assert alone[:2] == pytest.approx(alone[2:4])
    assert together[:2] == pytest.approx(alone[:2], abs=1e-6)
    assert together[4:] == pytest.approx(together[:2], abs=1e-6)
    assert abs(together[2:4] - alone[2:4]).max() > 0.01


def test_items_as_folds(tmp_path: Path) -> None:
    rows = "".join(f"{item},{condition},w,{item}\n" for item in range(6) for condition in "ab" for _ in range(3))
    table = write(tmp_path / "t.csv", f"item,condition,word,rt\n{rows}")
    columns = TableColumns(sentence_column=("item", "condition"), document_column="item", lag_within="sentence")
    corpus = reading_tables.load(table, columns)
    assert (corpus.fold_kind, len(set(corpus.folds)), len(set(corpus.sentences))) == ("documents", 6, 12)
    assert np.isnan(corpus.shifted(corpus.responses["rt"], 1)).sum() == 12


def test_decimal_commas_with_semicolons(tmp_path: Path) -> None:
    text = "sentence_id;word;rt\n1;The;301,5\n1;3,5;-,25e-1\n1;dogs;300\n"
    corpus = reading_tables.load(write(tmp_path / "t.csv", text), TableColumns())
    assert corpus.responses["rt"].tolist() == [301.5, -0.025, 300]
    assert corpus.words == ("The", "3,5", "dogs")


def test_rows_without_keys_must_be_the_words_in_order(tmp_path: Path) -> None:
    corpus = made_up(2, 2)
    rows = [f"w{row},{row}.5" for row in range(4)]
    table = write(tmp_path / "bits.csv", "\n".join(["word,surprisal_bits", *rows]) + "\n")
    assert read_surprisals(table, corpus).bits.tolist() == [0.5, 1.5, 2.5, 3.5]
    write(table, "\n".join(["word,surprisal_bits", *rows[:3], "other,3.5"]) + "\n")
    with pytest.raises(InputError, match=r"bits.csv:5: the word 'other' where made-up has 'w3'"):
        read_surprisals(table, corpus)
