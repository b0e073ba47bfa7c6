"""Data frames of words come back as they were, with surprisals beside them."""

import sys
import warnings
from typing import Any

import pandas
import polars
import pytest

import treelm
from tests.legacy.make import HERE as RUNS
from treelm.errors import InputError
from treelm.inference.predictors import Unigrams

WORDS = {
    "item": [1, 1, 1, 2, 2],
    "form": ["I", "think", ".", "The", "city"],
    "rt": [310.0, 295.0, None, 290.0, 310.0],
    "model": ["x", "y", "x", "y", "x"],
}


@pytest.fixture(scope="module")
def models() -> dict[str, treelm.LanguageModel]:
    return {name: treelm.load(RUNS / name) for name in ("lstm", "rnng")}


def bits(lm: treelm.LanguageModel) -> list[float]:
    found = lm.surprisal([["I", "think", "."], ["The", "city"]])
    return [word.surprisal_bits for one in found for word in one.words]


@pytest.fixture(autouse=True)
def _unknown_words_are_warned_of() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* are unknown to ")
        yield


def test_a_frame_of_pandas_keeps_its_index_and_columns(models: dict[str, treelm.LanguageModel]) -> None:
    frame = pandas.DataFrame(WORDS, index=[10, 9, 8, 7, 6])
    before = frame.copy()
    found = models["rnng"].surprisal_table(
        frame, word="form", sentence="item", columns=["open_nodes", "word_length"], lag=1, lag_columns=["rt"]
    )
    pandas.testing.assert_frame_equal(frame, before)
    pandas.testing.assert_frame_equal(found[["item", "form", "rt", "model"]], frame)
    assert found["surprisal_bits"].tolist() == pytest.approx(bits(models["rnng"]))
    assert found["word_length"].tolist() == [1, 5, 0, 3, 4]
    assert found["rt_lag1"].isna().tolist() == [True, False, False, True, False]
    assert found["rt_lag1"][9] == 310
    assert found["is_unk"].dtype == "int64"


def test_a_frame_of_polars_stays_one_and_has_several_models(models: dict[str, treelm.LanguageModel]) -> None:
    frame = polars.DataFrame(WORDS)
    wide = treelm.surprisal_table(models, frame, word="form", sentence=["item"])
    assert isinstance(wide, polars.DataFrame)
    assert wide.columns[:4] == frame.columns
    for name, lm in models.items():
        assert wide[f"surprisal_bits_{name}"].to_list() == pytest.approx(bits(lm))
    long = treelm.surprisal_table(models, frame, word="form", sentence="item", shape="long")
    assert long["model"].to_list() == ["lstm"] * 5 + ["rnng"] * 5
    assert long["own_model"].to_list() == WORDS["model"] * 2
    assert long["form"].to_list() == WORDS["form"] * 2
    assert long["surprisal_bits"].to_list() == pytest.approx(bits(models["lstm"]) + bits(models["rnng"]))
    assert long["beam_converged"].null_count() == 5


def test_what_is_unknown_or_written_together_is_warned_of(models: dict[str, treelm.LanguageModel]) -> None:
    frame = pandas.DataFrame({"sentence_id": [1, 1], "word": ["I", "The."]})
    warnings.resetwarnings()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        models["lstm"].surprisal_table(frame)
    said = [str(one.message) for one in caught]
    assert any("such as 'The.', are known without the marks" in line for line in said)
    assert {one.filename for one in caught} <= {__file__, sys.modules["treelm.models.base"].__file__}


def test_surprisals_of_texts_become_frames(models: dict[str, treelm.LanguageModel]) -> None:
    (found,) = models["rnng"].surprisal(["I think ."])
    frame = found.to_frame()
    assert frame["word"].tolist() == ["I", "think", "."]
    assert frame["surprisal_bits"].tolist() == [word.surprisal_bits for word in found.words]
    assert "open_nodes" in frame


@pytest.mark.parametrize(
    ("frame", "settings", "expected"),
    [
        ({"a": [1]}, {}, "dict where a data frame was expected"),
        (
            pandas.DataFrame(WORDS),
            {},
            r"data frame:1: no column 'word'; name the column by an option; choose from: item",
        ),
        (pandas.DataFrame({"word": ["a", None], "sentence_id": [1, 1]}), {}, "data frame:2: an empty word"),
        (pandas.DataFrame({"word": ["a"] * 3, "sentence_id": [1, 2, 1]}), {}, "data frame:3: more of sentence '1'"),
        (pandas.DataFrame(WORDS), {"punctuation": "apart"}, "makes more rows"),
        (pandas.DataFrame(WORDS), {"columns": ["unigram_surprisal_bits"]}, r"without counts; give unigrams"),
        (pandas.DataFrame(WORDS), {"columns": ["distance"]}, "no column 'distance' from lstm"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    models: dict[str, treelm.LanguageModel], frame: Any, settings: dict[str, Any], expected: str
) -> None:
    if "columns" in settings:
        settings = {**settings, "word": "form", "sentence": "item"}
    with pytest.raises(InputError, match=expected):
        models["lstm"].surprisal_table(frame, **settings)


def test_several_models_need_a_shape_and_unigrams_are_given(models: dict[str, treelm.LanguageModel]) -> None:
    frame = pandas.DataFrame(WORDS)
    with pytest.raises(InputError, match="several models in a plain table"):
        treelm.surprisal_table(models, frame, word="form", sentence="item", shape="plain")
    with pytest.raises(InputError, match="no model"):
        treelm.surprisal_table({}, frame)
    unigrams = Unigrams({"I": 1})
    found = models["lstm"].surprisal_table(
        frame, word="form", sentence="item", columns=["unigram_surprisal_bits"], unigrams=unigrams
    )
    assert found["unigram_surprisal_bits"][0] == unigrams.bits(["I"])


def test_without_narwhals_the_extra_is_named(
    models: dict[str, treelm.LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(InputError, match=r"treelm\[tables\]"):
        models["lstm"].surprisal_table(pandas.DataFrame(WORDS))
