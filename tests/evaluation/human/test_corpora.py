"""The corpora that may not be shipped: from ../shared/data beside the repository, or skipped."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.trees.shared_data import FOLDER
from treelm.errors import InputError
from treelm.evaluation.human import natural_stories, ucl
from treelm.evaluation.human.babylm import reading_score
from treelm.evaluation.human.corpora import ReadingCorpus
from treelm.evaluation.human.natural_stories import _corpus, _from_clone, _published, _Word
from treelm.evaluation.human.reading import Design, Regression
from treelm.evaluation.human.regression import held_out_log_likelihood, slopes

Rows = dict[str, tuple[float, int, tuple[float, ...]]]
"""By model: delta in 10^-3 nats a word, folds above 0, slopes in ms a bit."""

PUNCTUATION: Rows = {
    "5-gram": (4.54, 7, (0.25, 0.58, 0.51)),
    "gpt2": (18.14, 9, (0.50, 1.14, 0.66)),
    "gpt3": (13.09, 8, (0.34, 0.91, 0.83)),
    "trigram": (12.49, 9, (0.41, 0.80, 0.63)),
    "unigram": (9.65, 7, (1.28, 2.51, 1.29)),
}
SIMPLE: Rows = {
    "5-gram": (17.84, 8, (0.57, 1.08, 0.63)),
    "gpt2": (23.58, 9, (0.63, 1.28, 0.71)),
    "gpt3": (12.76, 9, (0.42, 0.91, 0.78)),
    "trigram": (20.80, 9, (0.60, 1.03, 0.68)),
    "unigram": (37.63, 10, (1.63, 3.01, 1.37)),
}
LOGARITHMS: Rows = {"gpt2": (22.84, 8, (1.08, 2.87, 1.97)), "5-gram": (18.30, 9, (0.76, 2.54, 1.86))}
AS_PUBLISHED: Rows = {"gpt2": (11.75, 9, (1.46, 0.66, 0.15)), "gpt3": (3.92, 8, (0.96, 0.54, 0.29))}
UNMARKED: Rows = {"gpt2": (22.70, 9, (0.55, 1.19, 0.62)), "unigram": (7.60, 8, (1.43, 2.59, 1.00))}
EVERY_WORD: Rows = {
    "gpt3": (14.22, 9, (0.43, 1.26, 0.95)),
    "trigram": (5.97, 9, (0.31, 0.66, 0.47)),
    "unigram": (-0.82, 4, (0.10, 0.22, 0.15)),
}
PLAIN = ("length", "freq")


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


def check(corpus: ReadingCorpus, names: Sequence[str], design: Design, expected: Rows) -> Regression:
    """The published numbers, to the last digit that was given."""
    world = Regression(corpus, design, [corpus.published[name] for name in names])
    base = world.likelihood()
    for name, (delta, num_above, ms_per_bit) in expected.items():
        gains = world.likelihood(world.bits(name)) - base
        assert 1000 * gains.mean() == pytest.approx(delta, abs=0.0051), name
        folds = np.array(world.folds)
        assert sum(gains[folds == fold].mean() > 0 for fold in set(world.folds)) == num_above, name
        found = [slope.ms_per_bit for slope in slopes(world.times, world.base, world.bits(name))]
        assert found == pytest.approx(ms_per_bit, abs=0.0051), name
    return world


@pytest.mark.parametrize(
    ("design", "expected", "num_words"),
    [
        (Design(), PUNCTUATION, 6960),
        (Design(baseline=PLAIN), SIMPLE, 6960),
        (Design(baseline=PLAIN, response="log_rt"), LOGARITHMS, 6960),
        (Design(baseline=PLAIN, only=("unmarked",)), UNMARKED, 5320),
    ],
    ids=["punctuation", "plain", "logarithms", "unmarked"],
)
def test_published_models_predict_natural_stories_as_known(
    stories: ReadingCorpus, design: Design, expected: Rows, num_words: int
) -> None:
    world = check(stories, stories.references, design, expected)
    assert len(world.times) == num_words


def test_models_with_every_word_are_compared_on_all_of_them(stories: ReadingCorpus) -> None:
    world = check(stories, tuple(EVERY_WORD), Design(), EVERY_WORD)
    assert len(world.times) == 10193
    assert world.likelihood().mean() == pytest.approx(-4.85294, abs=6e-6)
    constant = held_out_log_likelihood(world.times, np.zeros((len(world.times), 0)), world.folds)
    assert constant.mean() == pytest.approx(-5.14852, abs=6e-6)


def test_times_as_published_lie_one_row_early(stories: ReadingCorpus) -> None:
    early = natural_stories.load(folder(natural_stories.NAME), alignment="published")
    times = early.responses["mean_rt"]
    is_first = np.array([position == "1" for _, position in stories.keys])
    np.testing.assert_array_equal(stories.responses["mean_rt"][1:][~is_first[1:]], times[:-1][~is_first[1:]])
    assert np.isnan(stories.responses["mean_rt"][is_first]).all()
    check(early, early.references, Design(baseline=PLAIN), AS_PUBLISHED)
    assert "one row early" in early.notes[0]


UCL = {
    "self_paced_reading_time": {"tetragram": (17.70, 9, (0.29, 1.18)), "s_GPT2_xl": (10.61, 6, (0.31, 0.86))},
    "RTfirstpass": {"psg": (11.28, 8, (1.49, 1.72)), "s_GPT2": (15.13, 9, (0.47, 1.90))},
    "RTgopast": {"rnn": (13.84, 9, (4.82, 2.57)), "tetragram": (18.54, 9, (3.33, 2.89))},
}


@pytest.mark.parametrize("response", UCL)
def test_published_models_predict_ucl_as_known(sentences: ReadingCorpus, response: str) -> None:
    world = check(sentences, sentences.references, Design(response=response), UCL[response])
    assert len(world.times) == 1274


def test_babylm_scores_are_those_of_its_formula(sentences: ReadingCorpus) -> None:
    """Values of statsmodels' formulas as in the challenge's pipeline, GPT-2's surprisals of the corpus in its place."""
    score = reading_score(sentences, sentences.published["s_GPT2"])
    assert score.eye_tracking == pytest.approx(9.767489940801875, abs=1e-6)
    assert score.self_paced_reading == pytest.approx(2.1819152124985, abs=1e-6)
    assert score.num_words == (1696, 1497)


@pytest.mark.parametrize(
    ("load", "repository"), [(natural_stories.load, "naturalstories"), (ucl.load, "prediction-resource")]
)
def test_a_corpus_that_is_not_here_says_where_it_is(load: object, repository: str, tmp_path: Path) -> None:
    assert callable(load)
    with pytest.raises(InputError, match="may not be shipped") as error:
        load(str(tmp_path))
    assert repository in str(error.value)
    assert "--data" in str(error.value)


def test_another_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / ucl.FILE.path).write_text("word\nThe\n")
    with pytest.raises(InputError, match=r"SHA-256 .*, expected"):
        ucl.load(str(tmp_path))


def words(times: Sequence[float]) -> list[_Word]:
    """Two stories of a word for each time, written as they are read but for a comma on every fourth."""
    return [
        _Word(
            story=story,
            position=place + 1,
            word=f"w{place},",
            written=f"w{place} ," if place % 4 == 0 else f"w{place}",
            bare=f"w{place}",
            count=7.0,
            mean_rt=time,
            gmean_rt=time,
            sentence=f"{story}-{place // 4}",
            tag="NNS" if place % 2 else "VBD",
        )
        for story in ("1", "2")
        for place, time in enumerate(times)
    ]


def test_the_time_of_a_row_goes_to_the_word_after_it_within_a_story() -> None:
    corpus = _corpus(words([300, 310, 320, 330]), {}, "corrected")
    np.testing.assert_array_equal(corpus.responses["mean_rt"], [np.nan, 300, 310, 320] * 2)
    np.testing.assert_array_equal(_corpus(words([300, 310]), {}, "published").responses["mean_rt"], [300, 310] * 2)
    assert corpus.usable is not None
    assert corpus.usable.tolist() == [False, True, True, True] * 2


def test_what_is_on_a_word_and_around_it() -> None:
    corpus = _corpus(words([1.0] * 8), {}, "corrected")
    assert corpus.predictors["mark"].tolist() == [1, 0, 0, 0] * 4
    assert corpus.predictors["freq"].tolist() == [3.0] * 16
    assert corpus.predictors["length"].tolist() == [2.0] * 16
    assert corpus.filters["inner"].tolist() == [False, True, True, False] * 4
    assert corpus.filters["unmarked"].tolist() == [False, False, False, True] * 4
    assert corpus.classes[:2] == ("verb", "noun")


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


def test_a_clone_is_read_in_the_order_of_its_stories(tmp_path: Path) -> None:
    for name, text in CLONE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    words = _from_clone(tmp_path)
    corpus = _corpus(words, _published(tmp_path, words), "corrected")
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
