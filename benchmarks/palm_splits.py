"""Left and right splits of gold trees and of PaLM with random initialisations (Table 4, Peng et al. 2019).

    python benchmarks/palm_splits.py [TREES] [--runs RUN ...] [--sentences 60] [--seeds 25] [--embedding-deviation 1.0]

TREES is a bracket or CoNLL-U file; by default the dev set of the packaged treebank. Sentences of up to 40 words. RUNs
are folders of trained models with binary trees: their shares over all these sentences.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.resources import files
from itertools import islice
from pathlib import Path

import torch

from treelm import load
from treelm.corpora.readers import read_sentences
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.evaluation.split_shares import random_shares, split_shares
from treelm.models.palm.config import PaLMConfig
from treelm.models.palm.network import PaLM
from treelm.trees.transforms import binarise_left, binarise_right, collapse_unaries
from treelm.trees.tree import Tree


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="?", default=str(files("treelm") / "data/gum-open/dev.ptb.gz"))
    parser.add_argument("--runs", nargs="*", default=[], help="folders of trained models")
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all weights of the attention")
    parser.add_argument("--embedding-deviation", type=float, help="draw word vectors from N(0, this squared) instead")
    options = parser.parse_args()
    trees = [one.tree for one in read_sentences(Path(options.trees)) if one.tree and 2 < len(one.words) <= 40]
    for name, binarise in (("right", binarise_right), ("left", binarise_left)):
        shares = split_shares(binarise(collapse_unaries(tree)) for tree in trees)
        print(
            f"gold, {name}-binarised: left {shares.left:.1f} / right {shares.right:.1f} of {shares.num_splits} splits"
        )
    for run in options.runs:
        shares = split_shares(load(run).parse([tree.words() for tree in trees]))
        print(f"{run}: left {shares.left:.1f} / right {shares.right:.1f} of {shares.num_splits} splits")
    if not options.seeds:
        return
    sentences = [tree.words() for tree in islice(trees, options.sentences)]
    build = _builder(trees, options.scale, options.embedding_deviation)
    print("random:", random_shares(build, sentences, num_seeds=options.seeds))


def _builder(trees: Sequence[Tree], scale: float, embedding_deviation: float | None):  # noqa: ANN202
    vocabulary = WordVocabulary(sorted({word for tree in trees for word in tree.words()}))

    def build(seed: int) -> PaLM:
        torch.manual_seed(seed)
        network = PaLM(PaLMConfig(), vocabulary=vocabulary)
        with torch.no_grad():
            for parameter in network.attention.parameters():
                parameter.mul_(scale)
            if embedding_deviation is not None:
                network.embedding.normal_(std=embedding_deviation)
        return network

    return build


if __name__ == "__main__":
    main()
