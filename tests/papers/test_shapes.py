"""Shapes of trees: shares of left and right splits, and depth in slots."""

from __future__ import annotations

import numpy as np

from treelm.corpora.data_config import DataConfig, locate_split, prepared_split
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.readers import read_sentences
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models.layers.binary_structure import ANY_DEPTH, first_siblings, static_labels
from treelm.models.som.plan import pad
from treelm.papers.metrics.shapes import slots_needed, split_shares
from treelm.trees.tree import Tree


def test_left_and_right_splits() -> None:
    trees = [
        "(X a (X b (X c d)))",  # right, right, two words
        "(X (X a b) c)",  # left, two words
        "(X (X a b) (X c d))",  # neither, two words, two words
        "(X a)",
    ]
    shares = split_shares(map(Tree.parse, trees))  # 8 splits, 4 of them of two words
    assert shares == {"left, all": 12.5, "right, all": 25, "left, longer": 25, "right, longer": 50}
    assert not any(split_shares([Tree.parse("(X a)")]).values())


def test_small_trees_by_hand() -> None:
    right = Tree("S", ("a", Tree("X", ("b", Tree("X", ("c", "d"))))))
    left = Tree("S", (Tree("X", ("a", "b")), "c"))
    assert [slots_needed(tree) for tree in (right, left, Tree("S", ("a", "b", "c")), Tree("S", (left,)))] == [
        3,
        2,
        1,
        2,
    ]


def test_gold_trees_need_the_slots_of_their_labels() -> None:
    """Those of the static labels that a SOM is taught by."""
    for format in ("conllu", "brackets"):
        config = DataConfig(corpus="gum-open", format=format, max_sentences=80)
        data = prepared_split(config, "dev")
        path, options = locate_split(config, "dev")
        trees = [one.tree for one, _ in zip(read_sentences(path, options), range(80), strict=False)]
        encoded = EncodedCorpus(data, WordVocabulary.build(data.form_counts()), data.labels)
        batch = encoded.batch(np.arange(len(encoded)))
        siblings = pad(first_siblings(batch, encoded.vocabulary.ends_word), batch.token_offsets, first=0, last=0)
        labels = static_labels(siblings, ANY_DEPTH)[0]
        lengths = np.diff(batch.token_offsets)
        wanted = [ANY_DEPTH - int(row[: length + 1].min()) for row, length in zip(labels, lengths, strict=True)]
        assert [slots_needed(tree) for tree in trees if tree is not None] == wanted
