"""Left and right splits of gold trees, of trained runs, and of PaLM as it is drawn (Table 4, Peng et al. 2019).

python benchmarks/palm_splits.py
python benchmarks/palm_splits.py TREES --preprocess prpn --runs RUN --seeds 25 --set model.initialisation=uniform

TREES is a bracket or CoNLL-U file; by default the dev set of the packaged treebank. Sentences of 3 to 40 words, counted
as they are read: with punctuation, unless --preprocess prpn leaves it out. Each row has two countings: shares of all
splits, and of those of three words or more (note 19 of the paper). Bad input is one line and exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import one_line
import tyro

from treelm import load
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Preprocessing
from treelm.errors import InputError
from treelm.evaluation.split_shares import (
    Counting,
    SharesOverSeeds,
    random_shares,
    require_binary_trees,
    split_shares,
    untrained,
)
from treelm.training.recipe import load_recipe
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
    """prpn: lower case, digits as N, no punctuation; mikolov: as text of the Penn Treebank for language models is."""
    runs: tuple[str, ...] = ()
    """Folders of trained models with binary trees, or names of models of the package: their shares on all sentences."""
    sentences: int = 60
    """Of the file, the first so many, for random networks."""
    seeds: int = 25
    """Random networks: 2 or more, or 0 for none."""
    recipe: str = "palm-u-ptb"
    """The recipe that names the random networks' system, sizes and initial weights."""
    set: tuple[str, ...] = ()
    """Settings in place of the recipe's, such as model.initialisation=uniform."""


def main(options: Arguments) -> None:
    """Print the table."""
    _check(options)
    models = {run: require_binary_trees(load(run), where=run) for run in options.runs}
    model = load_recipe(options.recipe, options.set).model
    trees = _read(options)
    sentences = [tree.words() for tree in trees]
    build = untrained(model, sentences) if options.seeds else None
    print(f"{len(trees)} sentences of 3 to 40 words of {options.trees.name}, preprocess = {options.preprocess}")
    _print_shares("gold, right-binarised", (binarise_right(collapse_unaries(tree)) for tree in trees))
    _print_shares("gold, left-binarised", (binarise_left(collapse_unaries(tree)) for tree in trees))
    for run, trained in models.items():
        _print_shares(run, trained.parse(sentences))
    if build is not None:
        some = sentences[: options.sentences]
        shares = list(random_shares(build, some, num_seeds=options.seeds))
        print(f"random, {len(some)} sentences, {options.seeds} seeds:")
        for counting, of in _COUNTINGS.items():
            found = SharesOverSeeds.of(shares, counting)
            left, right = (f"{middle:.1f} +- {deviation:.1f}" for middle, deviation in (found.left, found.right))
            print(f"  left {left} / right {right} of {of}", flush=True)


_COUNTINGS: dict[Counting, str] = {"all": "all splits", "longer": "splits of three words or more"}


def _print_shares(name: str, trees: Iterable[Tree]) -> None:
    shares = split_shares(trees)
    print(f"{name}, {shares.num_splits} splits:")
    for counting, of in _COUNTINGS.items():
        left, right = shares.percentages(counting)
        print(f"  left {left:.1f} / right {right:.1f} of {of}", flush=True)


def _check(options: Arguments) -> None:
    for name, value, is_valid, remedy in (
        ("--seeds", options.seeds, options.seeds == 0 or options.seeds >= 2, "2 or more, or 0 for no random networks"),
        ("--sentences", options.sentences, options.sentences >= 1, "1 or more"),
    ):
        if not is_valid:
            raise InputError(f"{name} is {value}", remedy=f"give {remedy}")


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


if __name__ == "__main__":
    sys.exit(one_line.run(main, tyro.cli(Arguments, description=__doc__)))
