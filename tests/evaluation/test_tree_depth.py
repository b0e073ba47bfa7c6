"""Depth in slots is that of the static labels that a SOM is taught by."""

import numpy as np

from treelm.corpora.corpus import merge_labels
from treelm.corpora.data_config import DataConfig, locate_split, prepared_split
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.readers import read_sentences
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.evaluation.tree_depth import slots_needed
from treelm.models.layers.binary_structure import ANY_DEPTH, first_siblings, static_labels
from treelm.models.som.plan import pad
from treelm.trees.tree import Tree


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
    for format in ("conllu", "brackets"):
        config = DataConfig(corpus="gum-open", format=format, max_sentences=80)
        data = prepared_split(config, "dev")
        path, kind = locate_split(config, "dev")
        trees = [one.tree for one, _ in zip(read_sentences(path, format=kind), range(80), strict=False)]
        encoded = EncodedCorpus(data, WordVocabulary.build(data.form_counts()), merge_labels([data]))
        batch = encoded.batch(np.arange(len(encoded)))
        siblings = pad(first_siblings(batch, encoded.vocabulary.ends_word), batch.token_offsets, first=0, last=0)
        labels = static_labels(siblings, ANY_DEPTH)[0]
        lengths = np.diff(batch.token_offsets)
        wanted = [ANY_DEPTH - int(row[: length + 1].min()) for row, length in zip(labels, lengths, strict=True)]
        assert [slots_needed(tree) for tree in trees if tree is not None] == wanted
