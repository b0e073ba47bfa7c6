"""Left and right splits of gold trees, of trained runs, and of PaLM as it is drawn (Table 4, Peng et al. 2019).

python benchmarks/palm_splits.py
python benchmarks/palm_splits.py TREES --preprocess prpn --runs RUN --seeds 25 --embedding-deviation 1

TREES is a bracket or CoNLL-U file; by default the dev set of the packaged treebank. Sentences of 3 to 40 words, counted
as they are read: with punctuation, unless --preprocess prpn leaves it out. Bad input is one line and exit code 2.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import one_line
import torch
import tyro
from split_shares import random_shares, split_shares

from treelm import load
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Preprocessing
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.models.palm.config import PaLMConfig
from treelm.models.palm.network import PaLM
from treelm.models.streams import StreamLM
from treelm.trees.transforms import binarise_left, binarise_right, collapse_unaries
from treelm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to count splits of."""

    trees: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TREES")] = Path(
        str(files("treelm") / "data/gum-open/dev.ptb.gz")
    )
    """Brackets or CoNLL-U."""
    preprocess: Preprocessing = "none"
    """prpn: lower case, digits as N, no punctuation, as text of the Penn Treebank for language models is."""
    runs: tuple[str, ...] = ()
    """Folders of trained models with binary trees, or names of models of the package: their shares on all sentences."""
    sentences: int = 60
    """Of the file, the first so many, for random networks."""
    seeds: int = 25
    """Random networks: 2 or more, or 0 for none."""
    scale: float = 1.0
    """Factor of all weights of the random networks' attention."""
    embedding_deviation: float | None = None
    """Draw word vectors from N(0, this squared) instead of U(-0.1, 0.1)."""


def main(options: Arguments) -> None:
    """Print the table."""
    _check(options)
    models = {run: _with_binary_trees(run) for run in options.runs}
    trees = _read(options)
    sentences = [tree.words() for tree in trees]
    print(f"{len(trees)} sentences of 3 to 40 words of {options.trees.name}, preprocess = {options.preprocess}")
    _print_shares("gold, right-binarised", (binarise_right(collapse_unaries(tree)) for tree in trees))
    _print_shares("gold, left-binarised", (binarise_left(collapse_unaries(tree)) for tree in trees))
    for run, model in models.items():
        _print_shares(run, model.parse(sentences))
    if options.seeds:
        some = sentences[: options.sentences]
        print(f"random, {len(some)} sentences:", random_shares(_builder(trees, options), some, num_seeds=options.seeds))


def _print_shares(name: str, trees: Iterable[Tree]) -> None:
    shares = split_shares(trees)
    print(f"{name}: left {shares.left:.1f} / right {shares.right:.1f} of {shares.num_splits} splits", flush=True)


def _check(options: Arguments) -> None:
    deviation = options.embedding_deviation
    for name, value, is_valid, remedy in (
        ("--seeds", options.seeds, options.seeds == 0 or options.seeds >= 2, "2 or more, or 0 for no random networks"),
        ("--sentences", options.sentences, options.sentences >= 1, "1 or more"),
        ("--scale", options.scale, math.isfinite(options.scale), "a finite number"),
        ("--embedding-deviation", deviation, deviation is None or 0 <= deviation < math.inf, "0 or more"),
    ):
        if not is_valid:
            raise InputError(f"{name} is {value}", remedy=f"give {remedy}")


def _with_binary_trees(run: str) -> StreamLM:
    """The model of a run. Raises ``InputError`` for one whose trees are none of splits in two."""
    model = load(run)
    if not isinstance(model, StreamLM) or not model.parses:
        remedy = "give a run of palm whose attention is not given, of prpn or of on-lstm"
        raise InputError(f"this {model.system} has no binary trees of its own", where=run, remedy=remedy)
    return model


def _read(options: Arguments) -> list[Tree]:
    trees = []
    for sentence in read_sentences(options.trees, preprocess=options.preprocess):
        if sentence.tree is None:
            raise InputError("a sentence without a tree", where=sentence.where, remedy="give brackets or CoNLL-U")
        if 2 < len(sentence.words) <= 40:
            trees.append(sentence.tree)
    if not trees:
        raise InputError("no sentence of 3 to 40 words", where=str(options.trees), remedy="give another file")
    return trees


def _builder(trees: Sequence[Tree], options: Arguments) -> Callable[[int], PaLM]:
    vocabulary = WordVocabulary(sorted({word for tree in trees for word in tree.words()}))

    def build(seed: int) -> PaLM:
        torch.manual_seed(seed)
        network = PaLM(PaLMConfig(), vocabulary=vocabulary)
        with torch.no_grad():
            for parameter in network.attention.parameters():
                parameter.mul_(options.scale)
            if options.embedding_deviation is not None:
                network.embedding.normal_(std=options.embedding_deviation)
        return network

    return build


if __name__ == "__main__":
    sys.exit(one_line.run(main, tyro.cli(Arguments, description=__doc__)))
