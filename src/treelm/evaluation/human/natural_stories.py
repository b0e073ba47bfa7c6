"""The Natural Stories corpus (Futrell et al. 2021): ten stories in self-paced reading, with the times put right.

**Its table of mean times is one row off: row k has the times of word k + 1.** docs/natural-stories-alignment.md has the
evidence. What is read is a clone of the corpus as published, or the tables that were made of it (with more models).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from treelm.corpora.inputs import read_text
from treelm.errors import InputError, check_choice
from treelm.evaluation.human.corpora import (
    END,
    MARK,
    CorpusFile,
    ReadingCorpus,
    find_folder,
    published_table,
    rows_of,
)
from treelm.evaluation.human.material import Surprisals, number

NAME = "natural-stories"
Alignment = Literal["corrected", "published"]
_SOURCE = "git clone https://github.com/languageMIT/naturalstories (CC BY-NC-SA), then --data FOLDER"
_TABLES = (
    CorpusFile("reading-times.csv", "69d81a168a3862fc8a957cf995d42fb92e1aa79013c051824ccf8a2e8cf401b1"),
    CorpusFile("words.csv", "04610c36ee93ab3011628c608ca6e2805301ebee00ea540dd807f8637e84c410"),
    CorpusFile("surprisals.csv", "65e028e005a062ce4ed525cf81ef0b07d36b0c7047ddd989a6aaefb6dce52dec"),
    CorpusFile("trigram.csv", "4b33a5ee17931f12312c2a92a30fd6f93f43035ec05db84f74f6fcec323f0f30"),
    CorpusFile("all-parses-aligned.txt.penn", "2937f60e07b38eb8cf3f9cf7b8c66dd1bbd81d773e352f8202515cbcdf9ddb2e"),
)
_CLONE = (
    CorpusFile(
        "naturalstories_RTS/processed_wordinfo.tsv", "047d2a0b84eff99d90535d1517f7fa7d466b81fbd60e990f2f08caac04d8aa56"
    ),
    CorpusFile(
        "naturalstories_RTS/all_stories.tok", "0e4e9bd4708aaa01d8bea342696bb83cedff679c09184545483f6f3f4ba8aca3"
    ),
    CorpusFile("words.tsv", "0955415234babe7fe6890e447d96a2520175f5ea2b8eb130bd31e6aea94e4495"),
    CorpusFile("freqs/freqs-1.tsv", "dfe87aa455e43226eb7f79faa6e5d9926446c3d8346014dd75837f39c3f19add"),
    CorpusFile("probs/all_stories_gpt3.csv", "6ccee02c20a688d5f7e69a023025d725e8fb06d87e2c7f997b399384c200a0ad"),
    CorpusFile("parses/penn/all-parses-aligned.txt.penn", _TABLES[4].sha256),
)
_REFERENCES = ("5-gram", "gpt2", "gpt3", "trigram", "unigram")
"""Published models on whose words all are compared, if they are there."""
_PUBLISHED = {
    "5-gram": ("surprisals.csv", "ngram_surp"),
    "grnn": ("surprisals.csv", "grnn_surp"),
    "txl": ("surprisals.csv", "txl_surp"),
    "gpt2": ("surprisals.csv", "gpt_surp"),
    "trigram": ("trigram.csv", "trigram"),
    "unigram": ("trigram.csv", "unigram"),
}
_BY_SENTENCE = ("gpt2",)
"""Published models that began anew with each sentence and have too few bits, or none, for its first word."""
_END = re.compile(r"[.?!]['\"]*$")
_LEAF = re.compile(r"\(([^\s()]+) ([^\s()]+)/(\d+)\.(\d+)[^\s()]*\)")
_DOUBTFUL = {("3", position) for position in range(230, 233)}
"""Words beside a blank token of the third story, whose times may be those of a neighbour."""
_CLASSES = {
    "noun": ("NN",),
    "verb": ("VB", "MD"),
    "adjective": ("JJ",),
    "adverb": ("RB", "WRB"),
    "pronoun": ("PRP", "WP", "EX"),
    "determiner": ("DT", "PDT", "WDT"),
    "preposition": ("IN", "TO", "RP"),
    "conjunction": ("CC",),
    "number": ("CD",),
}


@dataclass(kw_only=True)
class _Word:
    """A word with the row of the published table that names it."""

    story: str
    position: int  # from 1
    word: str
    written: str = ""
    bare: str = ""
    count: float = math.nan
    mean_rt: float = math.nan
    gmean_rt: float = math.nan
    sentence: str = ""
    tag: str = ""
    bits: dict[str, float] = field(default_factory=dict)


def load(folder: str = "", *, alignment: Alignment = "corrected") -> ReadingCorpus:
    """Read the corpus from a folder; ``published`` leaves the times one row early, where the release has them.

    Predictors: length in letters, log2 of the count of Google Books, punctuation on the word, end of a sentence;
    place in the story without lags. Raises ``InputError`` where it is not there, or not the release that is known.
    """
    check_choice("alignment", alignment, get_args(Alignment))
    place, layout = find_folder(NAME, folder, {"tables": _TABLES, "clone": _CLONE}, remedy=_SOURCE)
    words = _from_tables(place) if layout == "tables" else _from_clone(place)
    published = _published(place, words)
    return _corpus(words, published, alignment)


def _corpus(words: Sequence[_Word], published: dict[str, Surprisals], alignment: Alignment) -> ReadingCorpus:
    times = np.array([word.mean_rt for word in words])
    log_times = np.array([1000 * math.log(word.gmean_rt) for word in words])
    is_first = np.array([word.position == 1 for word in words])
    corrected = _moved(times, is_first)
    is_doubtful = np.array([(word.story, word.position) in _DOUBTFUL for word in words])
    if alignment == "corrected":
        times, log_times = corrected, _moved(log_times, is_first)
        note = "times moved down by one row: row k of the published table has those of word k + 1"
    else:
        note = "times as published, one row early: word k has those of word k + 1"
    stories = tuple(word.story for word in words)
    marks = np.array([float(_joined(word.written) != _joined(word.bare)) for word in words])
    corpus = ReadingCorpus(
        name=NAME,
        key_names=("story", "position"),
        keys=tuple((word.story, str(word.position)) for word in words),
        words=tuple(word.word for word in words),
        sentences=tuple(word.sentence for word in words),
        documents=stories,
        responses={"mean_rt": times, "log_rt": log_times},
        predictors={
            "length": np.array([float(len(_joined(word.bare))) for word in words]),
            "freq": np.log2(np.array([word.count for word in words]) + 1),
            MARK: marks,
            END: np.array([float(_END.search(word.word) is not None) for word in words]),
        },
        baseline=("length", "freq", MARK, END),
        controls={"position": np.array([float(word.position) for word in words])},
        lag_groups=stories,
        num_lags=2,
        folds=stories,
        fold_kind="stories",
        usable=~np.isnan(corrected) & ~is_doubtful,
        classes=tuple(_class_of(word.tag) for word in words),
        published=published,
        references=tuple(name for name in _REFERENCES if name in published),
        notes=(note,),
    )
    return _with_filters(corpus)


def _with_filters(corpus: ReadingCorpus) -> ReadingCorpus:
    """The corpus with what its words may be restricted to."""
    sentences = np.array(corpus.sentences)
    edges = sentences[1:] != sentences[:-1]
    inner = ~(np.append(True, edges) | np.append(edges, True))
    near = [corpus.shifted(corpus.predictors[MARK], lag) for lag in range(3)]
    filters = {"inner": inner, "unmarked": sum(near) == 0}
    return ReadingCorpus(**{**vars(corpus), "filters": filters})


def _moved(values: np.ndarray, is_first: np.ndarray) -> np.ndarray:
    """Values of the row before, within a story."""
    return np.where(is_first, math.nan, np.append(math.nan, values[:-1]))


def _joined(text: str) -> str:
    return text.replace(" ", "")


def _class_of(tag: str) -> str:
    found = (name for name, begins in _CLASSES.items() if tag.startswith(begins))
    return next(found, "other")


def _from_tables(folder: Path) -> list[_Word]:
    words = {}
    for _, row in rows_of(folder / "words.csv"):
        key = row["story"], int(row["position"])
        words[key] = _Word(
            story=key[0],
            position=key[1],
            word=row["word"],
            written=row["written"],
            bare=row["bare"],
            sentence=f"{row['story']}-{row['sentence']}",
        )
    last: _Word | None = None
    for where, row in rows_of(folder / "reading-times.csv"):
        word = words[row["story"], int(row["position"])]
        word.count = number(row["count_1"], where)
        word.mean_rt = number(row["mean_rt_as_published"], where)
        word.bits["gpt3"] = number(row["gpt3_surprisal"], where)
        if last is not None and last.story == word.story:
            last.gmean_rt = number(row["gmean_rt"], where)  # the table has it moved down already
        last = word
    _add_tags(words, read_text(folder / "all-parses-aligned.txt.penn"))
    return list(words.values())


def _from_clone(folder: Path) -> list[_Word]:
    words = {
        (row["item"], int(row["zone"])): _Word(story=row["item"], position=int(row["zone"]), word=row["word"])
        for row in _unquoted(folder / "naturalstories_RTS/all_stories.tok")
    }
    words = dict(sorted(words.items(), key=lambda pair: (int(pair[0][0]), pair[0][1])))
    for row in _unquoted(folder / "naturalstories_RTS/processed_wordinfo.tsv"):
        word = words[row["item"], int(row["zone"])]
        word.mean_rt, word.gmean_rt = float(row["meanItemRT"]), float(row["gmeanItemRT"])
    for row in _unquoted(folder / "words.tsv", ("code", "token")):
        story, position, *field_name = row["code"].split(".")
        if field_name[:1] == ["whole"]:
            words[story, int(position)].written = row["token"]
        elif field_name[:1] == ["word"]:
            words[story, int(position)].bare = row["token"]
    for row in _unquoted(folder / "freqs/freqs-1.tsv", ("code", "n", "token", "count", "context")):
        story, position, *field_name = row["code"].split(".")
        if field_name == ["word"]:
            words[story, int(position)].count = number(row["count"], row["code"])
    _add_tags(words, read_text(folder / "parses/penn/all-parses-aligned.txt.penn"), with_sentences=True)
    _add_gpt3(list(words.values()), folder / "probs/all_stories_gpt3.csv")
    return list(words.values())


def _unquoted(path: Path, names: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Rows of a table whose quotation marks stand for themselves, by the names of its header or by those given."""
    lines = read_text(path).splitlines()
    heads = names or lines[0].split("\t")
    return (dict(zip(heads, line.split("\t"), strict=False)) for line in lines[0 if names else 1 :] if line)


def _add_tags(words: dict[tuple[str, int], _Word], trees: str, *, with_sentences: bool = False) -> None:
    """Give words the part of speech of their first leaf that is no mark, and the number of their tree."""
    number_of_tree = 0
    for tree in trees.split("(ROOT")[1:]:
        number_of_tree += 1
        for tag, leaf, story, position in _LEAF.findall(tree):
            word = words.get((story, int(position)))
            if word is None:
                continue
            if with_sentences and not word.sentence:
                word.sentence = f"{story}-{number_of_tree}"
            if not word.tag and any(character.isalnum() for character in leaf):
                word.tag = tag


def _add_gpt3(words: Sequence[_Word], path: Path) -> None:
    """Add up GPT-3's tokens by their characters; stories count from 0 there, log probabilities are in nats."""
    tokens: dict[str, list[tuple[str, float]]] = {}
    for where, row in rows_of(path):
        nats = -number(row["logprob"], where)
        tokens.setdefault(str(int(row["story"]) + 1), []).append((_blankless(row["token"]), nats / math.log(2)))
    for story, own in tokens.items():
        targets = iter([word for word in words if word.story == story])
        word, left, bits = None, "", 0.0
        for token, value in own:
            if token or not math.isnan(value):
                bits += value
            while token:
                if not left:
                    word = next(targets, None)
                    if word is None:
                        break
                    left = _blankless(word.written)
                size = min(len(token), len(left))
                if token[:size] != left[:size]:
                    raise InputError(f"token {token!r} where the story has {left!r}", where=str(path), remedy=_SOURCE)
                token, left = token[size:], left[size:]
                if not left and word is not None:
                    word.bits["gpt3"], bits = bits, 0.0


def _blankless(text: str) -> str:
    return "".join(text.split())


def _published(folder: Path, words: Sequence[_Word]) -> dict[str, Surprisals]:
    """Surprisals of other models that lie in the folder, and GPT-3's, which the corpus has."""
    bits = {"gpt3": [word.bits.get("gpt3", math.nan) for word in words]}
    for file in dict.fromkeys(file for file, _ in _PUBLISHED.values()):
        if (folder / file).is_file():
            rows = {(row["story"], int(row["position"])): (where, row) for where, row in rows_of(folder / file)}
            for name, (source, column) in _PUBLISHED.items():
                if source == file:
                    found = [rows[word.story, word.position] for word in words]
                    bits[name] = [
                        math.nan if name in _BY_SENTENCE and _is_first(row) else number(row[column], where)
                        for where, row in found
                    ]
    return published_table({name: bits[name] for name in (*_PUBLISHED, "gpt3") if name in bits})


def _is_first(row: dict[str, str]) -> bool:
    """Tell whether a row of a table of surprisals begins a sentence."""
    return row["position_in_sentence"] == "0"
