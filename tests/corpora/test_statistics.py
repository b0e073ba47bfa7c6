import numpy as np
import pytest

from tests.corpora.helpers import GUM_OPEN, corpus, text_corpus
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.readers import read_sentences
from treelm.corpora.statistics import Distribution, corpus_statistics
from treelm.corpora.vocabularies import VocabularyConfig, build_vocabulary


def read(split: str) -> PreparedCorpus:
    return PreparedCorpus.from_sentences(read_sentences(GUM_OPEN / f"{split}.ptb.gz"))


@pytest.fixture(scope="module")
def train() -> PreparedCorpus:
    return read("train")


def test_figures_of_a_small_corpus() -> None:
    found = corpus_statistics(corpus())
    assert [found[name] for name in ("sentences", "tokens", "types", "types seen twice or more")] == [5, 15, 11, 3]
    assert [found[name] for name in ("labels", "nonterminals")] == [4, 18]
    assert (found["depth"].mean, found["depth"].max) == (3.0, 4)  # type: ignore[union-attr]
    assert [found[name] for name in ("most open nonterminals", "most consecutive NTs")] == [(4, 3), (4, 3)]


def test_plain_text_has_no_figures_of_trees() -> None:
    found = corpus_statistics(text_corpus(["a b", "a"]))
    assert [found[name] for name in ("depth", "actions a sentence", "most open nonterminals")] == [None, None, (0, 0)]
    assert found["words a sentence"].mean == 1.5  # type: ignore[union-attr]


def test_the_95th_percentile_is_exceeded_by_at_most_one_in_twenty() -> None:
    values = np.arange(1, 101)
    assert Distribution.of(values).p95 == 96


# What the packaged treebank's documentation states: words, types, depth and actions (mean, 95 %, maximum).
FIGURES = {
    "train": (3624, 76304, (21.06, 46, 110), 11477, 5488, 7.85, (7.78, 16, 32), (54.5, 121, 288), 16.72),
    "dev": (474, 11482, (24.22, 53, 88), 2919, 1159, 17.04, (9.01, 18, 30), (63.5, 139, 236), 19.64),
    "test": (460, 9724, (21.14, 44, 84), 2823, 1082, 17.42, (7.94, 15, 22), (54.1, 112, 168), 16.47),
}


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_figures_of_gum_open_are_the_documented_ones(split: str, train: PreparedCorpus) -> None:
    vocabulary = build_vocabulary(VocabularyConfig(min_count=2), train.form_counts())
    of = train if split == "train" else read(split)
    found = corpus_statistics(of)
    sentences, tokens, words, types, twice, oov, depth, actions, nonterminals = FIGURES[split]
    names = ("sentences", "tokens", "types", "types seen twice or more")
    assert [found[name] for name in names] == [sentences, tokens, types, twice]
    unknown = [vocabulary.unknown_class(form) is not None for form in of.forms.to_list()]
    assert 100 * of.arrays["counts"][unknown].sum() / tokens == pytest.approx(oov, abs=0.006)
    assert found["nonterminals"] / sentences == pytest.approx(nonterminals, abs=0.006)  # type: ignore[operator]
    for name, (mean, p95, largest) in (("words a sentence", words), ("depth", depth), ("actions a sentence", actions)):
        distribution = found[name]
        assert isinstance(distribution, Distribution)
        assert distribution.mean == pytest.approx(mean, abs=0.06)
        assert (distribution.p95, distribution.max) == (p95, largest)


def test_gum_open_has_27_labels_without_function_tags_and_60_with(train: PreparedCorpus) -> None:
    assert len(train.labels) == 27  # with ROOT, which stays where it holds a single word
    kept = read_sentences(GUM_OPEN / "train.ptb.gz", strip_functions=False)
    assert len(PreparedCorpus.from_sentences(kept).labels) == 60
