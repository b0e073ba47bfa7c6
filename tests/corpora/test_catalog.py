from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.corpora.helpers import GUM_OPEN
from treelm.corpora import catalog
from treelm.corpora.building import corpus_of
from treelm.corpora.catalog import corpus_entry, corpus_names, show
from treelm.corpora.corpus import Distribution, PreparedCorpus, corpus_statistics
from treelm.corpora.data_config import DataConfig, locate_split, prepared_split, with_its_words
from treelm.corpora.readers import read_sentences
from treelm.corpora.vocabularies import VocabularyConfig, build_vocabulary
from treelm.errors import InputError


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TREELM_CATALOG", str(tmp_path / "catalog.toml"))
    monkeypatch.setattr(catalog, "DATA_PACKAGES", ())  # whatever is installed beside the package


def write_catalog(directory: Path, text: str) -> None:
    (directory / "catalog.toml").write_text(text, "utf-8")


@pytest.mark.parametrize(("split", "sentences"), [("dev", 474), ("test", 460)])
@pytest.mark.parametrize("format", ["auto", "conllu"])
def test_gum_open_offers_the_same_sentences_as_brackets_and_conllu(split: str, sentences: int, format: str) -> None:
    corpus = prepared_split(DataConfig(corpus="gum-open", format=format), split)  # type: ignore[arg-type]
    assert len(corpus) == sentences
    assert corpus.has_trees
    assert (len(corpus.labels) == 1) == (format == "conllu")


def test_a_directory_is_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "train.ptb").write_text("(S (N a))\n")
    (tmp_path / "train.txt").write_text("a\n")
    (tmp_path / "dev.txt").write_text("a\n")
    config = DataConfig(corpus=str(tmp_path))
    for split, path, format in (("train", "train.ptb", "brackets"), ("dev", "dev.txt", "text")):
        assert locate_split(config, split) == (tmp_path / path, replace(config, format=format))
    assert [config.has_split(split) for split in ("train", "dev", "test")] == [True, True, False]
    with pytest.raises(InputError, match="no test split"):
        locate_split(config, "test")
    with pytest.raises(InputError, match='give format = "brackets"'):
        locate_split(DataConfig(corpus=str(tmp_path), format="conllu"), "train")


def test_users_name_files(tmp_path: Path) -> None:
    write_catalog(
        tmp_path,
        '[mine]\nlicence = "CC0"\ndescription = "A few trees"\n'
        'train.brackets = {path = "a.ptb"}\ntrain.conllu = {path = "/b/a.conllu.gz"}\n',
    )
    assert corpus_names() == ["gum-open", "mine"]
    entry = corpus_entry("mine")
    assert entry.splits["train"] == {
        "brackets": tmp_path / "a.ptb",
        "conllu": Path("/b/a.conllu.gz"),
    }
    assert "A few trees" in show("mine")
    assert "/b/a.conllu.gz" in show("mine")


@pytest.mark.parametrize(
    ("train", "dev"),
    [("ptb.train.txt", "ptb.valid.txt"), ("wiki.train.tokens", "wiki.valid.tokens"), ("train.txt.xz", "valid.txt.gz")],
)
def test_a_directory_may_name_its_files_as_language_modelling_corpora_do(tmp_path: Path, train: str, dev: str) -> None:
    for name in (train, dev):
        (tmp_path / name).write_text("")
    entry = corpus_entry(str(tmp_path))
    assert entry.locate("train")[0].name == train
    assert entry.locate("dev")[0].name == dev
    (tmp_path / "dev.txt").write_text("")
    with pytest.raises(InputError, match="for the same split"):
        corpus_entry(str(tmp_path))


def test_words_of_a_corpus_that_users_make_are_at_hand_without_its_trees(tmp_path: Path) -> None:
    made = DataConfig(corpus="open-english-silver", max_sentences=5)
    assert with_its_words(made, "train") == DataConfig(corpus="open-english-2", max_sentences=5)
    write_catalog(tmp_path, '[open-english-silver]\nlicence = "mine"\ntrain.brackets = {path = "a.ptb"}\n')
    assert with_its_words(made, "train") is made
    for other in (DataConfig(corpus="gum-open"), DataConfig(train="a.txt")):
        assert with_its_words(other, "train") is other


def read(split: str) -> PreparedCorpus:
    return corpus_of(read_sentences(GUM_OPEN / f"{split}.ptb.gz"))


@pytest.fixture(scope="module")
def train() -> PreparedCorpus:
    return read("train")


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
