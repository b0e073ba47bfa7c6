"""The corpora that may not be shipped: from ../shared/data beside the repository, or skipped."""

from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.human.published import NATURAL_STORIES, UCL, Table
from tests.trees.shared_data import FOLDER
from treelm.errors import InputError
from treelm.evaluation.human import natural_stories, ucl
from treelm.evaluation.human.columns import Design
from treelm.evaluation.human.corpora import ReadingCorpus
from treelm.evaluation.human.natural_stories import _corpus, _from_clone, _published
from treelm.evaluation.human.reading import Regression
from treelm.evaluation.human.regression import held_out_log_likelihood, slopes
from treelm.evaluation.human.ucl import reading_score

PLAIN = ("length", "freq")
DESIGNS = {  # as the tables say what is in the baseline, what is predicted, and which words are compared
    "A": Design(baseline=PLAIN),
    "B": Design(baseline=PLAIN, only=("inner",)),
    "C": Design(baseline=PLAIN, response="log_rt"),
    "D": Design(baseline=PLAIN),
    "E": Design(baseline=PLAIN),
    "G": Design(),
    "H": Design(baseline=PLAIN, only=("unmarked",)),
    "I": Design(),
}


def folder(name: str) -> str:
    path = FOLDER / "human" / name
    if not path.is_dir():
        pytest.skip(f"{path} is absent")
    return str(path)


@pytest.fixture(scope="module")
def stories() -> ReadingCorpus:
    return natural_stories.load(folder(natural_stories.NAME))


@pytest.fixture(scope="module")
def sentences() -> ReadingCorpus:
    return ucl.load(folder(ucl.NAME))


def check(corpus: ReadingCorpus, design: Design, expected: Table) -> None:
    """The published numbers, to the last digit that was given."""
    world = Regression(corpus, [corpus.published[name] for name in expected.rows], design)
    base = world.likelihood()
    assert len(world.times) == expected.num_words
    assert base.mean() == pytest.approx(expected.baseline, abs=6e-6)
    constant = held_out_log_likelihood(world.times, np.zeros((len(world.times), 0)), world.folds)
    assert constant.mean() == pytest.approx(expected.constant, abs=6e-6)
    folds = np.array(world.folds)
    for name, row in expected.rows.items():
        gains = world.likelihood(world.bits(name)) - base
        assert 1000 * gains.mean() == pytest.approx(row.delta, abs=0.0051), name
        assert sum(gains[folds == fold].mean() > 0 for fold in set(world.folds)) == row.num_above, name
        found = slopes(world.times, world.base, world.bits(name))
        assert [slope.ms_per_bit for slope in found] == pytest.approx(row.ms_per_bit, abs=0.0051), name
        assert [slope.t for slope in found] == pytest.approx(row.t, abs=0.051), name


@pytest.mark.parametrize("table", NATURAL_STORIES)
def test_published_models_predict_natural_stories_as_known(stories: ReadingCorpus, table: str) -> None:
    check(stories, DESIGNS[table], NATURAL_STORIES[table])


def test_first_words_of_stories_have_no_times(stories: ReadingCorpus) -> None:
    is_first = np.array([position == "1" for _, position in stories.keys])
    assert np.isnan(stories.responses["mean_rt"][is_first]).all()
    assert np.isfinite(stories.responses["mean_rt"][~is_first]).mean() > 0.99


@pytest.mark.parametrize("response", UCL)
def test_published_models_predict_ucl_as_known(sentences: ReadingCorpus, response: str) -> None:
    assert sentences.references == tuple(UCL[response].rows)
    check(sentences, Design(response=response), UCL[response])


def test_babylm_scores_are_those_of_its_formula(sentences: ReadingCorpus) -> None:
    """Values of statsmodels' formulas as in the challenge's pipeline, GPT-2's surprisals of the corpus in its place."""
    score = reading_score(sentences, sentences.published["s_GPT2"])
    assert score.eye_tracking == pytest.approx(9.767489940801875, abs=1e-6)
    assert score.self_paced_reading == pytest.approx(2.1819152124985, abs=1e-6)
    assert score.num_words == (1696, 1497)


@pytest.mark.parametrize(
    ("load", "repository"), [(natural_stories.load, "naturalstories"), (ucl.load, "prediction-resource")]
)
def test_missing_corpus_names_source(load: object, repository: str, tmp_path: Path) -> None:
    assert callable(load)
    with pytest.raises(InputError, match="may not be shipped") as error:
        load(str(tmp_path))
    assert repository in str(error.value)
    assert "--data" in str(error.value)


CLONE = {
    "naturalstories_RTS/all_stories.tok": """\
word\tzone\titem
"If\t1\t1
ice-cream\t2\t1
melts.\t3\t1
So\t1\t2
""",
    "naturalstories_RTS/processed_wordinfo.tsv": """\
word\tzone\titem\tnItem\tmeanItemRT\tsdItemRT\tgmeanItemRT\tgsdItemRT
melts.\t3\t1\t80\t900\t9\t850\t1
So\t1\t2\t80\t333\t9\t320\t1
"If\t1\t1\t80\t300\t9\t290\t1
ice-cream\t2\t1\t80\t310\t9\t305\t1
""",
    "words.tsv": """\
1.1.whole\t"If
1.1.word\tIf
1.1.1\t"
1.2.whole\tice-cream
1.2.word\tice-cream
1.3.whole\tmelts.
1.3.word\tmelts
2.1.whole\tSo
2.1.word\tSo
""",
    "freqs/freqs-1.tsv": """\
1.1.whole\t1\tIf\t9\tNA
1.1.word\t1\tIf\t7\tNA
1.2.word\t1\tice\tNA\tNA
1.3.word\t1\tmelts\t1\tNA
2.1.word\t1\tSo\t3\tNA
""",
    "parses/penn/all-parses-aligned.txt.penn": """\
(ROOT (SBAR (`` "/1.1.1) (IN If/1.1.2)
 (NP (-NONE- *) (NN ice-cream/1.2.word))))
(ROOT (VBZ melts/1.3.1) (. ./1.3.2))
(ROOT (RB So/2.1))
""",
    "probs/all_stories_gpt3.csv": """\
token,logprob,story
\"\"\"\",,0
If,-0.6931471805599453,0
 ice,-1.3862943611198906,0
-cream,-0.6931471805599453,0
 melts,-2.772588722239781,0
.,-0.6931471805599453,0
So,,1
""",
}
"""Two stories in the files that the published corpus has; GPT-3 knows nothing of what a story begins with."""


def test_clone_of_natural_stories(tmp_path: Path) -> None:
    for name, text in CLONE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    words = _from_clone(tmp_path)
    corpus = _corpus(words, _published(tmp_path, words))
    assert corpus.words == ('"If', "ice-cream", "melts.", "So")
    assert corpus.keys == (("1", "1"), ("1", "2"), ("1", "3"), ("2", "1"))
    assert corpus.sentences == ("1-1", "1-1", "1-2", "2-3")
    assert corpus.classes == ("preposition", "noun", "verb", "adverb")
    np.testing.assert_array_equal(corpus.responses["mean_rt"], [np.nan, 300, 310, np.nan])
    np.testing.assert_allclose(corpus.responses["log_rt"][1:3], 1000 * np.log([290, 305]))
    np.testing.assert_array_equal(corpus.predictors["freq"], [3, np.nan, 1, 2])
    assert corpus.predictors["mark"].tolist() == [1, 0, 1, 0]
    assert corpus.predictors["end"].tolist() == [0, 0, 1, 0]
    np.testing.assert_allclose(corpus.published["gpt3"].bits, [np.nan, 3, 5, np.nan])
    assert corpus.references == ("gpt3",)
