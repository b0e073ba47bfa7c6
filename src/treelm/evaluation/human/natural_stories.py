"""The Natural Stories corpus (Futrell et al. 2021): ten stories in self-paced reading, with the times put right.

**Its table of mean times is one row off: row k has the times of word k + 1.** The evidence stands in
docs/research/natural-stories-alignment.md. What is read is a clone of the corpus as published, or the tables that were
made of it (with more models).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from treelm.errors import InputError
from treelm.evaluation.human.corpora import END, MARK, ReadingCorpus, find_folder, published_surprisals, read_columns
from treelm.evaluation.human.material import Surprisals
from treelm.io.files import read_text

if TYPE_CHECKING:
    import pandas as pd

NAME = "natural-stories"
_SOURCE = "git clone https://github.com/languageMIT/naturalstories (CC BY-NC-SA), then --data FOLDER"
_TREES = "2937f60e07b38eb8cf3f9cf7b8c66dd1bbd81d773e352f8202515cbcdf9ddb2e"
_LAYOUTS = {
    "tables": {
        "reading-times.csv": "69d81a168a3862fc8a957cf995d42fb92e1aa79013c051824ccf8a2e8cf401b1",
        "words.csv": "04610c36ee93ab3011628c608ca6e2805301ebee00ea540dd807f8637e84c410",
        "all-parses-aligned.txt.penn": _TREES,
    },
    "clone": {
        "naturalstories_RTS/processed_wordinfo.tsv": "047d2a0b84eff99d90535d1517f7fa7d466b81fbd60e990f2f08caac04d8aa56",
        "naturalstories_RTS/all_stories.tok": "0e4e9bd4708aaa01d8bea342696bb83cedff679c09184545483f6f3f4ba8aca3",
        "words.tsv": "0955415234babe7fe6890e447d96a2520175f5ea2b8eb130bd31e6aea94e4495",
        "freqs/freqs-1.tsv": "dfe87aa455e43226eb7f79faa6e5d9926446c3d8346014dd75837f39c3f19add",
        "probs/all_stories_gpt3.csv": "6ccee02c20a688d5f7e69a023025d725e8fb06d87e2c7f997b399384c200a0ad",
        "parses/penn/all-parses-aligned.txt.penn": _TREES,
    },
}
_REFERENCES = ("5-gram", "gpt2", "gpt3", "trigram", "unigram")
"""Published models on whose words all are compared, if they are there."""
_PUBLISHED = {
    "surprisals.csv": {"5-gram": "ngram_surp", "grnn": "grnn_surp", "txl": "txl_surp", "gpt2": "gpt_surp"},
    "trigram.csv": {"trigram": "trigram", "unigram": "unigram"},
}
"""Columns of bits by the name of their model."""
_BY_SENTENCE = ("gpt2",)
"""Published models that began again with each sentence and have too few bits, or none, for its first word."""
_KEY = ["story", "position"]
_END = r"[.?!]['\"]*$"
_LEAF = re.compile(r"\(([^\s()]+) ([^\s()]+)/(\d+)\.(\d+)[^\s()]*\)")
_DOUBTFUL = ("3", ("230", "231", "232"))
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
"""Beginnings of the tags of each class of words; all others are ``other``."""


def load(folder: str = "") -> ReadingCorpus:
    """Read the corpus from a folder, and move its times to the words that they belong to.

    Predictors: length in letters, log2 of the count of Google Books, punctuation on the word, end of a sentence;
    place in the story without lags. Raises ``InputError`` where it is not there, or not the release that is known.
    """
    place, layout = find_folder(NAME, folder, _LAYOUTS, remedy=_SOURCE)
    words = _from_tables(place) if layout == "tables" else _from_clone(place)
    return _corpus(words, _published(place, words))


def _corpus(words: pd.DataFrame, published: dict[str, Surprisals]) -> ReadingCorpus:
    """Build the corpus from a table with a row a word, whose times are still those of the published row of the word."""
    times = words[["mean_rt", "gmean_rt"]].groupby(words["story"], sort=False).shift()
    stories, sentences = tuple(words["story"]), words["sentence"]
    bare = words["bare"].str.replace(" ", "")
    marks = (words["written"].str.replace(" ", "") != bare).astype(float)
    marks_nearby = sum(marks.groupby(words["story"]).shift(lag) for lag in range(3))
    story, positions = _DOUBTFUL
    is_doubtful = (words["story"] == story) & words["position"].isin(positions)
    return ReadingCorpus(
        name=NAME,
        key_names=tuple(_KEY),
        keys=tuple(words[_KEY].itertuples(index=False, name=None)),
        words=tuple(words["word"]),
        sentences=tuple(sentences),
        documents=stories,
        responses={"mean_rt": times["mean_rt"].to_numpy(), "log_rt": 1000 * np.log(times["gmean_rt"].to_numpy())},
        predictors={
            "length": bare.str.len().to_numpy(float),
            "freq": np.log2(words["count"].to_numpy() + 1),
            MARK: marks.to_numpy(),
            END: words["word"].str.contains(_END).to_numpy(float),
        },
        controls={"position": words["position"].to_numpy(float)},
        lag_groups=stories,
        num_lags=2,
        folds=stories,
        fold_kind="stories",
        filters={
            "inner": ((sentences == sentences.shift()) & (sentences == sentences.shift(-1))).to_numpy(),
            "unmarked": (marks_nearby == 0).to_numpy(),
        },
        usable=(times["mean_rt"].notna() & ~is_doubtful).to_numpy(),
        classes=tuple(
            next((name for name, begins in _CLASSES.items() if tag.startswith(begins)), "other") for tag in words["tag"]
        ),
        published=published,
        references=tuple(name for name in _REFERENCES if name in published),
        notes=("times moved down by one row: row k of the published table has those of word k + 1",),
    )


def _from_tables(folder: Path) -> pd.DataFrame:
    times = read_columns(
        folder / "reading-times.csv", ("count_1", "mean_rt_as_published", "gmean_rt", "gpt3_surprisal")
    )
    times["gmean_rt"] = times.groupby("story", sort=False)["gmean_rt"].shift(-1)  # the table has it moved down already
    times = times[[*_KEY, "count_1", "mean_rt_as_published", "gmean_rt", "gpt3_surprisal"]]
    words = read_columns(folder / "words.csv").merge(times, on=_KEY, how="left")
    words["sentence"] = words["story"] + "-" + words["sentence"]
    words["tag"] = _leaves(read_text(folder / "all-parses-aligned.txt.penn"), words)["tag"]
    return words.rename(columns={"count_1": "count", "mean_rt_as_published": "mean_rt", "gpt3_surprisal": "gpt3"})


def _from_clone(folder: Path) -> pd.DataFrame:
    words = _unquoted(folder / "naturalstories_RTS/all_stories.tok")
    words = words.sort_values(["item", "zone"], key=lambda column: column.astype(int))
    times = _unquoted(folder / "naturalstories_RTS/processed_wordinfo.tsv", numbers=("meanItemRT", "gmeanItemRT"))
    words = words.merge(times[["item", "zone", "meanItemRT", "gmeanItemRT"]], on=["item", "zone"], how="left")
    names = {"item": "story", "zone": "position", "meanItemRT": "mean_rt", "gmeanItemRT": "gmean_rt"}
    words = words.rename(columns=names)
    tokens = _coded(_unquoted(folder / "words.tsv", ("code", "token")))
    for name, field in (("written", "whole"), ("bare", "word")):
        own = tokens.loc[tokens["field"] == field, [*_KEY, "token"]].rename(columns={"token": name})
        words = words.merge(own, on=_KEY, how="left")
    counts = _coded(_unquoted(folder / "freqs/freqs-1.tsv", ("code", "n", "token", "count", "context"), ("count",)))
    words = words.merge(counts.loc[counts["field"] == "word", [*_KEY, "count"]], on=_KEY, how="left")
    leaves = _leaves(read_text(folder / "parses/penn/all-parses-aligned.txt.penn"), words)
    words["sentence"], words["tag"] = words["story"] + "-" + leaves["tree"], leaves["tag"]
    words["gpt3"] = _gpt3(words, folder / "probs/all_stories_gpt3.csv")
    return words


def _unquoted(path: Path, names: Iterable[str] | None = None, numbers: Iterable[str] = ()) -> pd.DataFrame:
    """Read a tab-separated table in which quotation marks are ordinary characters.

    Names of columns are those of the header, or ``names`` if there is none.
    """
    names = None if names is None else list(names)
    return read_columns(path, numbers, sep="\t", quoting=3, names=names, header=0 if names is None else None)


def _coded(table: pd.DataFrame) -> pd.DataFrame:
    """Add columns for story, position and field, which are the parts of codes such as ``1.12.word``."""
    table[[*_KEY, "field"]] = table["code"].str.split(".", n=2, expand=True)
    return table


def _leaves(trees: str, words: pd.DataFrame) -> pd.DataFrame:
    """For each word the number of its tree, and the tag of its first leaf that is not punctuation.

    Both are empty for a word that no tree has.
    """
    import pandas as pd

    found = [
        (story, position, str(number), tag, any(map(str.isalnum, leaf)))
        for number, tree in enumerate(trees.split("(ROOT")[1:], start=1)
        for tag, leaf, story, position in _LEAF.findall(tree)
    ]
    leaves = pd.DataFrame(found, columns=[*_KEY, "tree", "tag", "is_word"])
    first = pd.DataFrame(
        {
            "tree": leaves.groupby(_KEY)["tree"].first(),
            "tag": leaves[leaves["is_word"]].groupby(_KEY)["tag"].first(),
        }
    )
    return words[_KEY].merge(first, left_on=_KEY, right_index=True, how="left")[["tree", "tag"]].fillna("")


def _gpt3(words: pd.DataFrame, path: Path) -> np.ndarray:
    """The surprisal of each word by GPT-3 in bits, (N,): the sum over the tokens that begin in it.

    The file counts stories from 0, and has log probabilities in nats. Raises ``InputError`` if its text is another one.
    """
    tokens = read_columns(path, ("logprob",))
    stories = (tokens["story"].astype(int) + 1).astype(str)
    found = np.full(len(words), math.nan)
    for story, own in tokens.groupby(stories):
        places = np.flatnonzero(words["story"] == story)
        ends = np.cumsum([len(_blankless(word)) for word in words["written"].iloc[places]])
        texts = own["token"].map(_blankless)
        text, spoken = _blankless("".join(words["written"].iloc[places])), "".join(texts)
        if not text.startswith(spoken[: len(text)]):
            raise InputError(f"tokens of another text than story {story}", where=str(path), remedy=_SOURCE)
        begins = np.cumsum(texts.str.len()) - texts.str.len()
        bits = (-own["logprob"] / math.log(2)).to_numpy()
        counted = (begins < len(text)) & ((texts != "") | ~np.isnan(bits))
        of_word = np.searchsorted(ends, begins[counted], side="right")
        sums = np.bincount(of_word, weights=bits[counted], minlength=len(places))
        found[places] = np.where(ends <= len(spoken), sums, math.nan)
    return found


def _blankless(text: str) -> str:
    return "".join(text.split())


def _published(folder: Path, words: pd.DataFrame) -> dict[str, Surprisals]:
    """The surprisals of models whose files lie in the folder, and of GPT-3, which the corpus itself has."""
    bits: dict[str, pd.Series[float]] = {}
    for file, columns in _PUBLISHED.items():
        if (folder / file).is_file():
            table = words[_KEY].merge(read_columns(folder / file, columns.values()), on=_KEY, how="left")
            bits |= {name: table[column] for name, column in columns.items()}
            for name in set(columns) & set(_BY_SENTENCE):
                bits[name] = bits[name].mask(table["position_in_sentence"] == "0")
    return published_surprisals({**bits, "gpt3": words["gpt3"]})
