"""Every reader of files that others wrote. A new reader is one line in ``READERS``."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.evaluation.human.worlds import made_up
from tests.fuzz import seeds
from tests.fuzz.harness import Reader
from tests.legacy.make import HERE as RUNS
from treelm.corpora.catalog import corpus_entry, corpus_names
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.preparing import prepare, split_text8
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.tokenizer_vocabulary import TokenizerVocabulary
from treelm.corpora.vocabularies import load_vocabulary
from treelm.errors import InputError
from treelm.evaluation.evalb_files import read_bracketings
from treelm.evaluation.human import reading_tables
from treelm.evaluation.human.columns import TableColumns
from treelm.evaluation.human.material import read_surprisals as read_word_surprisals
from treelm.evaluation.minimal_pairs import read_pairs
from treelm.evaluation.syntaxgym.results import read_surprisals
from treelm.evaluation.syntaxgym.suites import load_suites
from treelm.inference.loading import load, run_search
from treelm.inference.sentence_rows import Columns
from treelm.inference.stimuli import read_table as read_stimuli
from treelm.models.persistence.storage import load_model
from treelm.training import checkpoint
from treelm.training.metrics import read_metrics
from treelm.training.recipe import load_recipe
from treelm.trees.brackets import format_tree, read_trees, unescape

_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
_EMPTY = re.compile(r"\(\s*-NONE-\s+[^\s()]+\s*\)", re.ASCII)
_BLANK = re.compile(r"\s", re.ASCII)


def _text_of(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8-sig")


def _read_all(path: Path, **options: Any) -> list[Sentence]:
    """All sentences; leaving bad ones out gives the same, and nothing is left out where nothing is bad."""
    try:
        sentences = list(read_sentences(path, **options))
    except InputError:
        skipped: list[InputError] = []
        try:
            for sentence in read_sentences(path, **options, skipped=skipped):
                _check_sentence(sentence)
        except InputError:
            raise
        assert skipped, "an error that skipping hides"
        raise
    for sentence in sentences:
        _check_sentence(sentence)
    return sentences


def _check_sentence(sentence: Sentence) -> None:
    assert not any(_BLANK.search(word) or not word for word in sentence.words), sentence.words
    assert sentence.tags is None or len(sentence.tags) == len(sentence.words)
    if sentence.tree is not None:
        assert tuple(sentence.tree.words()) == sentence.words
        (again,) = read_trees(format_tree(sentence.tree))
        assert not isinstance(again, InputError)
        assert again.tree.words() == [unescape(word) for word in sentence.words]  # CoNLL-U may hold -LRB- as a word


def read_brackets(path: Path) -> None:
    sentences = _read_all(path)
    text = _text_of(path)
    expected = _num_bare(text) - len(_EMPTY.findall(text))
    assert sum(len(sentence.words) for sentence in sentences) == expected


def read_tagless(path: Path) -> None:
    sentences = _read_all(path, tags="absent")
    assert sum(len(sentence.words) for sentence in sentences) == _num_bare(_text_of(path))


def _num_bare(text: str) -> int:
    """Tokens that are no label: they do not stand behind an opening bracket."""
    tokens = ["", *_TOKEN.findall(text)]
    return sum(token not in "()" and before != "(" for before, token in pairwise(tokens))


def read_conllu(path: Path) -> None:
    sentences = _read_all(path)
    lines = re.split(r"\r*\n", _text_of(path))
    expected = sum(bool(re.match(r"[0-9]+\t", line)) for line in lines)
    assert sum(len(sentence.words) for sentence in sentences) == expected


def read_text(path: Path) -> None:
    sentences = _read_all(path)
    assert [word for sentence in sentences for word in sentence.words] == [
        word.decode() for word in _text_of(path).encode().split()
    ]


def read_wikitext(path: Path) -> None:
    sentences = _read_all(path, empty_lines=True)
    text = _text_of(path)
    assert len(sentences) == text.count("\n") + (not text.endswith("\n"))


def cut_text8(path: Path) -> None:
    out = path.parent / "parts"
    shutil.rmtree(out, ignore_errors=True)
    counts = split_text8(path, out)
    content = path.read_bytes()
    text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).rstrip(b"\r\n")
    assert sum(counts.values()) == len(text)
    assert b"".join(b"".join((out / f"{name}.txt").read_bytes().split()) for name in counts) == text.replace(b" ", b"")


def prepare_text(path: Path) -> None:
    out = path.parent / "prepared"
    shutil.rmtree(out, ignore_errors=True)
    corpus = prepare([path], out)
    words = [word for sentence in read_sentences(path) for word in sentence.words]
    assert [word for sentence in corpus.sentences() for word in sentence.words] == words
    assert not list(path.parent.glob(".prepared*"))


def open_prepared(path: Path) -> None:
    corpus = PreparedCorpus.open(path.parent)
    assert sum(len(sentence.words) for sentence in corpus.sentences()) == corpus.num_tokens


def read_table(path: Path) -> None:
    tokens = read_surprisals(path)
    rows = [row for row in re.split(r"\r\n|\r|\n", _text_of(path)) if row]
    assert sum(map(len, tokens.values())) == len(rows) - 1
    for sentence, cells in tokens.items():
        assert all(0 <= one.start <= one.end <= len(sentence) and not math.isnan(one.surprisal_bits) for one in cells)


def read_arpa(path: Path) -> None:
    lm = load(path)
    for words in (["dog", "dog"], ["cat"], []):
        lm.score([words])


def read_stimulus_table(path: Path) -> None:
    stimuli = read_stimuli(str(path), Columns("form", ("item",)), "summed").stimuli
    rows = [row for row in re.split(r"\r\n|\r|\n", _text_of(path)) if row]
    assert sum(len(one.sentence.words) for one in stimuli) == len(rows) - 1
    for one in stimuli:
        assert len(one.tokens) == len(one.counts) == len(one.kept) == len(one.sentence.words)
        assert all(tokens and "" not in tokens for tokens in one.tokens)


def read_reading_times(path: Path) -> None:
    corpus = reading_tables.load(
        path, TableColumns(document_column="text", sentence_column=("item",), class_column="pos")
    )
    rows = [row for row in re.split(r"\r\n|\r|\n", _text_of(path)) if row]
    assert len(corpus) == len(corpus.responses["rt"]) == len(corpus.folds) == len(rows) - 1
    assert len(set(corpus.keys)) == len(corpus)


def read_word_bits(path: Path) -> None:
    found = read_word_surprisals(path, made_up(2, 3))
    assert len(found.bits) == len(found.is_unknown) == 6
    assert any(map(math.isfinite, found.bits))


def read_pair_table(path: Path) -> None:
    pairs = list(read_pairs(path))
    rows = [row for row in re.split(r"\r\n|\r|\n", _text_of(path)) if row]
    assert len(pairs) == len(rows) - 1
    assert all(pair.good.strip() and pair.bad.strip() for pair in pairs)


def read_blimp(path: Path) -> None:
    pairs = list(read_pairs(path))
    text = _text_of(path)
    if text.lstrip().startswith("{"):
        assert len(pairs) == sum(bool(line.strip()) for line in text.split("\n"))
    for pair in pairs:
        (pair.good + pair.bad).encode()


def read_suites(path: Path) -> None:
    suites = load_suites([str(path)])
    content = path.read_bytes()
    values = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    given = [values] if "items" in values else list(values.values())
    assert [len(suite.items) for suite in suites] == [len(suite["items"]) for suite in given]
    assert len({suite.name for suite in suites}) == len(suites)
    for suite in suites:
        for condition in suite.conditions():
            condition.text.encode()
            surprisals = {(condition.name, number): 1.0 for number in condition.spans}
            assert len(condition.spans) == len(condition.regions)
            assert surprisals
        for item in suite.items:
            values = {(one.name, number): 1.0 for one in item.conditions for number in one.spans}
            for formula in suite.predictions:
                formula.holds(values)


def read_recipe(path: Path) -> None:
    from treelm.training.recipe import save_recipe

    recipe = load_recipe(path)
    again = path.parent / "again.toml"
    save_recipe(recipe, again)
    assert load_recipe(again) == recipe


def read_beam(path: Path) -> None:
    run_search(path.parent)


def read_catalogue(path: Path) -> None:
    with patch.dict(os.environ, {"TREELM_CATALOG": str(path)}):
        for name in corpus_names()[1:]:
            corpus_entry(name)


def load_run(path: Path) -> None:
    """A run whose config differs from the one that was saved must not be taken for it."""
    load_model(path.parent)
    found, expected = json.loads(path.read_bytes()), json.loads(_sealed_config())
    for name in ("system", "config", "labels", "vocabulary"):
        assert found[name] == expected[name], name


def load_hostile_run(path: Path) -> None:
    """A run with weights that vouch for nothing: whatever the config says, it is refused or small."""
    lm = load_model(path.parent)
    assert sum(parameter.numel() for parameter in lm.parameters()) < 100_000


def load_weights(path: Path) -> None:
    lm = load(path.parent)
    expected = load(RUNS / "som")
    for name, tensor in lm.state_dict().items():
        assert tensor.equal(expected.state_dict()[name]), name


def read_vocabulary(path: Path) -> None:
    vocabulary = load_vocabulary(path)
    tokens = [vocabulary.token(index) for index in range(len(vocabulary))]
    for token in tokens:
        token.encode()
    assert len(vocabulary.ends_word) == len(vocabulary)
    pieces = vocabulary.encode(["dog", "1984", "é\U0001f600"], sentence_initial=True)
    assert len(pieces.offsets) == 4
    assert ((pieces.ids >= 0) & (pieces.ids < len(vocabulary))).all()
    vocabulary.fingerprint()


def read_tokenizer(path: Path) -> None:
    vocabulary = TokenizerVocabulary.read(path)
    assert len(vocabulary.ends_word) == len(vocabulary)
    pieces = vocabulary.encode(["dog", "1984", "é\U0001f600"])
    assert vocabulary.ends_word[pieces.ids[pieces.offsets[1:] - 1]].all()
    assert vocabulary.ends_word[pieces.ids].sum() == 3


def read_checkpoint(path: Path) -> None:
    checkpoint.read_checkpoint(path.parent)


def read_log(path: Path) -> None:
    found = read_metrics(path)
    content = path.read_bytes()  # not its text: an unfinished last line may end inside a character, and is left out
    lines = [line for line in content.split(b"\n") if line.strip()]
    assert len(found) in (len(lines), len(lines) - (not content.endswith(b"\n")))


def read_evalb(path: Path) -> None:
    found = read_bracketings(path)
    text = _text_of(path)
    if len(found) and text.split("\n")[0].count("(") <= text.split("\n")[0].count(")") and text.split("\n")[0].strip():
        assert len(found) == text.count("\n") + (not text.endswith("\n"))


def _run_files(name: str) -> Callable[[Path], None]:
    def copy(folder: Path) -> None:
        shutil.copytree(RUNS / name, folder, dirs_exist_ok=True)

    return copy


def _sealed_run(folder: Path) -> None:
    """A run of today: its weights know their config."""
    from treelm.models.persistence.storage import save_model

    save_model(load_model(RUNS / "som"), folder)


@cache
def _sealed_config() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _sealed_run(Path(folder))
        return Path(folder, "config.json").read_bytes()


def _checkpoint(folder: Path) -> None:
    shutil.copytree(RUNS / "lstm" / "checkpoints" / "step-00000020.0", folder / "step-00000020.0")


def _prepared(folder: Path) -> None:
    (folder / "in.ptb").write_bytes(seeds.BRACKETS[0])
    prepare([folder / "in.ptb"], folder / "made")
    for path in (folder / "made").iterdir():
        path.rename(folder / path.name)


def _of(*contents: bytes) -> Callable[[], Sequence[bytes]]:
    return lambda: contents


def _gzipped(*contents: bytes) -> Callable[[], Sequence[bytes]]:
    packed = [gzip.compress(content, mtime=0) for content in contents]
    return lambda: (*packed, packed[0] + packed[-1])


_CHECKPOINT = ("lstm/checkpoints/step-00000020.0",)
_TOKENIZERS = (
    (Reader(name="tokenizer", file="tokenizer.json", seeds=_of(seeds.TOKENIZER), read=read_tokenizer),)
    if find_spec("tokenizers")
    else ()
)

READERS: tuple[Reader, ...] = (
    Reader(name="brackets", file="file.ptb", seeds=_of(*seeds.BRACKETS), read=read_brackets),
    Reader(name="tagless brackets", file="file.ptb", seeds=_of(*seeds.TAGLESS), read=read_tagless),
    Reader(name="evalb", file="file.ptb", seeds=_of(*seeds.BRACKETS), read=read_evalb),
    Reader(name="conllu", file="file.conllu", seeds=_of(*seeds.CONLLU), read=read_conllu),
    Reader(name="text", file="file.txt", seeds=_of(*seeds.TEXT), read=read_text),
    Reader(name="text gzip", file="file.txt.gz", seeds=_gzipped(*seeds.TEXT), read=read_text, seal=gzip.compress),
    Reader(name="wikitext", file="wiki.train.tokens", seeds=_of(*seeds.TEXT), read=read_wikitext),
    Reader(name="text8", file="text8", seeds=_of(*seeds.TEXT8), read=cut_text8),
    Reader(name="prepare", file="file.txt", seeds=_of(*seeds.TEXT), read=prepare_text),
    Reader(
        name="prepared meta",
        file="meta.json",
        company=_prepared,
        read=open_prepared,
        seeds=lambda: (seeds.prepared_meta(),),
    ),
    Reader(name="surprisals", file="table.tsv", seeds=_of(*seeds.SURPRISALS), read=read_table),
    Reader(name="arpa", file="file.arpa", seeds=_of(seeds.ARPA), read=read_arpa),
    Reader(name="stimulus table", file="rt.csv", seeds=_of(*seeds.STIMULI), read=read_stimulus_table),
    Reader(name="reading times", file="times.csv", seeds=_of(*seeds.READING_TIMES), read=read_reading_times),
    Reader(name="surprisals of words", file="bits.csv", seeds=_of(*seeds.WORD_BITS), read=read_word_bits),
    Reader(name="pairs table", file="pairs.tsv", seeds=_of(*seeds.PAIRS), read=read_pair_table),
    Reader(
        name="blimp",
        file="pairs.jsonl",
        seeds=_of(*seeds.BLIMP, gzip.compress(seeds.BLIMP[0], mtime=0)),
        read=read_blimp,
    ),
    Reader(name="suites", file="suite.json", seeds=_of(*seeds.SUITES), read=read_suites),
    Reader(name="recipe", file="recipe.toml", seeds=seeds.recipes, read=read_recipe),
    Reader(name="beam of a run", file="recipe.toml", seeds=seeds.recipes, read=read_beam),
    Reader(name="catalogue", file="catalog.toml", seeds=_of(*seeds.CATALOGUE), read=read_catalogue),
    Reader(
        name="config",
        file="config.json",
        company=_sealed_run,
        read=load_run,
        seeds=lambda: [_sealed_config()],
    ),
    Reader(
        name="config of an old run",
        file="config.json",
        company=_run_files("palm"),
        read=load_hostile_run,
        seeds=lambda: seeds.of_runs("config.json", "palm", "som", "prpn"),
    ),
    Reader(
        name="word vocabulary",
        file="vocabulary.json",
        read=read_vocabulary,
        seal=seeds.seal_vocabulary,
        seeds=lambda: seeds.of_runs("vocabulary.json", "rnng"),
    ),
    Reader(
        name="character vocabulary",
        file="vocabulary.json",
        read=read_vocabulary,
        seal=seeds.seal_vocabulary,
        seeds=lambda: seeds.of_runs("vocabulary.json", "rnng-in-order-attention"),
    ),
    Reader(
        name="subword vocabulary",
        file="vocabulary.json",
        read=read_vocabulary,
        seal=seeds.seal_vocabulary,
        seeds=lambda: seeds.of_runs("vocabulary.json", "rnng-subword"),
    ),
    *_TOKENIZERS,
    Reader(
        name="weights",
        file="model.safetensors",
        company=_run_files("som"),
        read=load_weights,
        seeds=lambda: seeds.of_runs("model.safetensors", "som"),
        seal=seeds.seal_tensors,
    ),
    Reader(
        name="checkpoint state",
        file="step-00000020.0/state.json",
        company=_checkpoint,
        read=read_checkpoint,
        seeds=lambda: seeds.of_runs("state.json", *_CHECKPOINT),
        seal=seeds.seal_state,
    ),
    Reader(
        name="checkpoint tensors",
        file="step-00000020.0/optimizer.safetensors",
        company=_checkpoint,
        read=read_checkpoint,
        seeds=lambda: seeds.of_runs("optimizer.safetensors", *_CHECKPOINT),
        seal=seeds.seal_tensors,
    ),
    Reader(
        name="metrics", file="metrics.jsonl", read=read_log, seeds=lambda: seeds.of_runs("metrics.jsonl", "som", "lstm")
    ),
)
