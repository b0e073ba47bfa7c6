"""Trees that become binary, and bottom-up: against the recursion, and the bounds that they need."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from tests.corpora.helpers import sentence
from tests.models.rnng.worlds import Tokens, as_batch
from tests.models.transformer_grammar.plain import binarised as plain_binarised
from tests.models.transformer_grammar.worlds import build_grammar, trees_of
from treelm.corpora.building import corpus_of
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.models.search.config import SearchConfig
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.trees import binarised_batch
from treelm.trees.tree import Tree

TOKENS = Tokens(9, 2)
BOTTOM_UP = {"order": "bottom-up", "positions": "height"}


def test_flat_actions_become_those_of_the_recursion() -> None:
    trees = trees_of(TOKENS, 100)
    expected = as_batch([plain_binarised(tree, TOKENS.ends_word) for tree in trees], TOKENS)
    found = binarised_batch(as_batch(trees, TOKENS), TOKENS.ends_word)
    for batch in (found, binarised_batch(found, TOKENS.ends_word)):
        assert np.array_equal(batch.actions, expected.actions)  # type: ignore[arg-type]
        assert np.array_equal(batch.action_offsets, expected.action_offsets)  # type: ignore[arg-type]
        assert np.array_equal(batch.tokens, expected.tokens)


def test_a_narrow_beam_never_runs_dry() -> None:
    """Whatever comes next, a word or the end: of every model, after every word, and with a tree at the end."""
    for seed in range(2):
        model = build_grammar(Tokens(5), 2, seed=seed, num_layers=1, binary=True, max_open=30)
        model.search = SearchConfig(action_beam=4, word_beam=1, fast_track=1)
        sentences = [["3"], ["1", "2", "3", "4"], ["0"] * 9]
        for words, tree in zip(sentences, model.parse(sentences), strict=True):
            assert np.isfinite(model.score([words])[0].log_probs).all()
            assert tree.words() == words
            check_binary(tree, is_alone=len(words) == 1)


def check_binary(tree: Tree, *, is_alone: bool = False) -> None:
    assert len(tree.children) == 2 - is_alone
    for child in tree.children:
        if isinstance(child, Tree):
            check_binary(child)


@pytest.mark.parametrize(
    ("changes", "needed", "message"),
    [
        ({"max_open": 6, "max_consecutive": 5}, [[6, 1], [5, 1]], None),
        ({"binary": True, "max_open": 4, "max_consecutive": 2}, [[4, 1], [2, 1]], None),
        ({"binary": True, "max_open": 3}, [[4, 1], [2, 1]], "max_open = 4, the model has 3"),
        ({**BOTTOM_UP, "max_stack": 4, "max_unary": 3}, [[4, 1], [3, 1]], None),
        ({**BOTTOM_UP, "max_stack": 3, "max_unary": 3}, [[4, 1], [3, 1]], "max_stack = 4, the model has 3"),
        ({**BOTTOM_UP, "max_stack": 4, "max_unary": 2}, [[4, 1], [3, 1]], "max_unary = 3, the model has 2"),
        ({**BOTTOM_UP, "binary": True, "max_stack": 4, "max_unary": 1}, [[4, 1], [0, 1]], None),
    ],
)
def test_bounds_are_those_of_the_order_and_kept_before_training(
    changes: dict[str, Any], needed: list[list[int]], message: str | None
) -> None:
    trees = ["(S (NP a b c d) (VP (X (Y (Z (NP e) f)))))", "(S a)"]
    corpus, config = corpus_of(map(sentence, trees)), TransformerGrammarConfig(**changes)
    assert [values.tolist() for values in config.needed_bounds(corpus).values()] == needed
    encoded = EncodedCorpus(corpus, WordVocabulary.build(corpus.form_counts()), corpus.labels)
    with pytest.raises(InputError, match=message) if message else nullcontext():
        config.check_trees(encoded)
