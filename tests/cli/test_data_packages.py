"""Corpora and models of a distribution beside treelm's: found where it is installed; else what to install is said."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Treelm
from treelm import LanguageModel, load
from treelm.corpora import data_packages
from treelm.corpora.catalog import corpus_entry, corpus_names, is_corpus_name, show
from treelm.errors import InputError
from treelm.models.persistence.shipped import find_run, shipped_folder
from treelm.training.recipe import load_recipe

ROOT = Path(__file__).parents[2]
ENGLISH = ROOT / "packages" / "treelm-english"
MODULE = ENGLISH / "src" / "treelm_english"
COLUMNS = ("split", "source", "licence", "sentences", "tokens")
ROWS = [("train", "blog", "CC0", "2", "5"), ("train", "blog", "CC0", "1", "2"), ("dev", "talk", "CC BY", "1", "3")]
TABLE = "".join("\t".join(row) + "\n" for row in [COLUMNS, *ROWS])


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_packages, "find_spec", lambda name: None)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of that name with a tiny corpus and a model."""
    module = tmp_path / "site" / "treelm_english"
    corpus = module / "open-english"
    corpus.mkdir(parents=True)
    (module / "__init__.py").write_text("")
    (corpus / "train.txt").write_text("a b c\na\n\nb a\n")
    (corpus / "dev.txt").write_text("a b c\n")
    (corpus / "NOTICE").write_text("small talk\nby document\n\nwho said it\n")
    (corpus / "documents.tsv.gz").write_bytes(gzip.compress(TABLE.encode()))
    shutil.copytree(ROOT / "src/treelm/pretrained/ngram-gum-open", module / "pretrained" / "ngram-open-english")
    monkeypatch.syspath_prepend(str(module.parent))
    monkeypatch.delitem(sys.modules, "treelm_english", raising=False)
    return module


def test_without_it_what_is_missing_says_what_to_install(absent: None, treelm: Treelm) -> None:
    assert "open-english" not in corpus_names()
    assert is_corpus_name("open-english")
    for python in (corpus_entry, find_run, shipped_folder, load, LanguageModel.from_pretrained):
        with pytest.raises(InputError, match=r"pip install treelm-english$"):
            python("open-english" if python is corpus_entry else "chart-gum-open")
    for command in (
        ("data", "show", "open-english"),
        ("models", "chart-gum-open"),
        ("train", "lstm-open-english", "--output", "run"),
        ("train", "lstm-gum-open", "--output", "run", "--set", "training.start_from=chart-gum-open"),
        *(("parse", "chart-gum-open", "-"), ("surprisal", "chart-gum-open", "-"), ("evaluate", "chart-gum-open")),
        *(("compare", "chart-gum-open"), ("gardenpath", "chart-gum-open"), ("explore", "chart-gum-open")),
    ):
        outcome = treelm(*command)
        assert outcome.code == 2, command
        assert outcome.err.count("\n") == 1
        assert outcome.err.endswith("pip install treelm-english\n"), outcome.err


def test_without_it_its_models_are_listed_as_missing(absent: None, treelm: Treelm) -> None:
    outcome = treelm("models")
    assert [line.split("\t")[0] for line in outcome.out.splitlines()] == [
        "lstm-gum-open",
        "ngram-gum-open",
        "rnng-gum-open",
    ]
    (line,) = outcome.err.splitlines()
    assert line.startswith(
        "not installed: chart-gum-open, lstm-open-english, lstm-open-english-2, ngram-pruned-open-english-2"
    )
    assert line.endswith("pip install treelm-english")


def test_its_corpus_is_in_the_catalogue(installed: Path) -> None:
    assert corpus_names()[:2] == ["gum-open", "open-english"]
    assert corpus_entry("open-english").locate("train") == (installed / "open-english/train.txt", "text")
    text = show("open-english")
    for part in ("small talk", "licence: by document"):
        assert part in text
    assert "who said it" in text
    assert str(installed / "open-english/documents.tsv.gz") in text


def test_a_corpus_that_is_made_of_its_text_keeps_its_name_and_is_asked_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, treelm: Treelm
) -> None:
    assert load_recipe("rnng-open-english").data.corpus == "open-english-silver"
    monkeypatch.setenv("TREELM_CATALOG", str(tmp_path / "catalog.toml"))
    outcome = treelm("train", "rnng-open-english", "--output", tmp_path / "run")
    assert outcome.code == 2
    assert "corpus open-english-silver has no train split; make it as the README" in outcome.err
    (tmp_path / "train.ptb").write_text("(S (X a))\n")
    entry = '[open-english-silver]\nlicence = "mine"\ntrain.brackets = {path = "train.ptb"}\n'
    (tmp_path / "catalog.toml").write_text(entry)
    assert corpus_entry("open-english-silver").locate("train") == (tmp_path / "train.ptb", "brackets")


def test_f1_against_its_trees_says_that_a_parser_made_them(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    trees, run = tmp_path / "silver.ptb", project / "run"
    trees.write_text("(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))\n")
    command = ("compare", run, "--data", trees, "--max-sentences", 1, "--report", tmp_path / "page.html")
    said = "the trees of {} are the output of the parser chart-gum-open, not annotated by hand: F1 is against those"
    plain = treelm("evaluate", run, "--data", trees, "--json")
    (tmp_path / "silver.ptb.json").write_text('{"parser": "chart-gum-open"}')
    told = treelm("evaluate", run, "--data", trees, "--json")
    assert [said.format(trees) in json.loads(one.out)[0]["notes"] for one in (plain, told)] == [False, True]
    shown = "".join(treelm(*command).out.split())  # however lines are broken
    assert "".join(said.format(trees).split()) in shown
    assert said.format(trees) in (tmp_path / "page.html").read_text(encoding="utf-8")
    packaged = MODULE / "open-english-silver" / "dev.ptb.gz"
    silver = treelm("evaluate", run, "--data", packaged, "--json", "--max-sentences", 2)
    assert "parser chart-gum-open" in silver.out


@pytest.mark.parametrize("corpus", ["open-english-2", "open-english", "modern-english"])
def test_files_are_those_whose_hash_is_told(corpus: str) -> None:
    told = (ENGLISH / "README.md").read_text(encoding="utf-8")
    for path in (MODULE / corpus).iterdir():
        if path.name != "NOTICE":
            assert f"| `{corpus}/{path.name}` | `{hashlib.sha256(path.read_bytes()).hexdigest()}` |" in told


def test_a_corpus_without_its_training_text_says_where_it_is_described(treelm: Treelm, tmp_path: Path) -> None:
    outcome = treelm("train", "som-open-english", "--output", tmp_path / "run", "--set", "data.corpus=open-english")
    assert outcome.code == 2
    assert (
        "corpus open-english has no train split; make it as the README of packages/treelm-english says" in outcome.err
    )
