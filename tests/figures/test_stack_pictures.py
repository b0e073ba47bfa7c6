"""What positions of a derivation see, and stacks with their tapes: against batches, and as pictures."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch

from tests.models.pushdown.worlds import binary, build_pushdown, derivation
from tests.models.rnng.worlds import Tokens, as_batch
from tests.models.transformer_grammar.worlds import VARIANTS, build_grammar, trees_of
from treelm.corpora.encoding import encode_sentences
from treelm.corpora.sentence import Sentence
from treelm.figures.report.analyse import analyses_of
from treelm.figures.structures import figure_of, structure_figure, tape_drawing
from treelm.models.pushdown.network import spans_of, tape_of
from treelm.models.pushdown.plan import attachments_of
from treelm.models.search.config import SearchConfig
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.positions import attention_of_tree
from treelm.trees.tree import Tree

TOKENS = Tokens(9)
WORDS = ("1", "2", "3")
SENTENCE = Sentence(words=WORDS, tree=None, identifier="1", source="here", line=1)
FIGURE = Tree.parse("(S (NP the dog) (VP barks))")


def test_what_the_positions_of_a_tree_see() -> None:
    attention = attention_of_tree(FIGURE, TransformerGrammarConfig())
    assert attention.tokens == ("<s>", "(S", "(NP", "the", "dog", "NP)", "NP)", "(VP", "barks", "VP)", "VP)")
    assert attention.seen[5:8] == ((2, 3, 4, 5), (0, 1, 5, 6), (0, 1, 5, 7))
    assert attention.composes[5:8] == (True, False, False)


@pytest.mark.parametrize("token", [0, 1])
def test_the_tape_is_that_of_a_batch(token: int) -> None:
    trees = trees_of(TOKENS, 12, seed=token)
    tapes = attachments_of(as_batch(trees, TOKENS), TOKENS.ends_word, 99).tape
    for tree, tape in zip(trees, tapes, strict=True):
        actions = derivation(binary(tree, TOKENS), 99)
        length = actions.count(0)
        found = tape_of(spans_of(actions, 99), [str(number) for number in range(length)])
        assert list(found.depths) == [tuple(tape[last + 1, 1 : last + 2]) for last in range(length)]


def test_the_tape_of_the_documented_example() -> None:
    tape = tape_of([(0, 2), (2, 4), (0, 4)], "abcd")
    assert tape.stacks == (((0, 1),), ((0, 2),), ((0, 2), (2, 3)), ((0, 4),))
    root = ElementTree.fromstring(tape_drawing(tape).file())
    boxes = [one.get("class") for one in root.iter() if one.tag.endswith("rect")]
    assert [boxes.count(kind) for kind in ("cell", "read", "split")] == [1, 2, 2]
    assert [one.text for one in root.iter() if one.get("class") == "depth"] == [*"0111102222"]


def test_a_grammar_is_drawn_as_what_its_tree_sees() -> None:
    lm = build_grammar(TOKENS)
    lm.search = SearchConfig(action_beam=5, word_beam=3, fast_track=1)
    (tree,), found = lm.parse([WORDS]), lm.structure(WORDS)
    assert figure_of(lm, tree) == structure_figure(found, tree)
    assert analyses_of(lm, [SENTENCE])[0].structures == (found,)
    assert replace(found, weights=()) == attention_of_tree(tree, lm.config)


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_are_those_of_the_last_layer_and_sum_to_one(variant: str) -> None:
    """A word of two pieces is one position: what looks at it is the sum, how it looks is the last piece's."""
    vocabulary = Tokens(9, 3)
    lm = build_grammar(vocabulary, **VARIANTS[variant])
    tree = Tree.parse("(X0 (X1 0+5 4) 1+2+7)" if lm.config.binary else "(X0 (X1 0+5 4) (X2 1+2+7))")
    attention, found = attention_of_tree(tree, lm.config), lm._weights_on(tree)[-1].mean(0)
    for row, seen in enumerate(attention.seen):
        assert found[row, list(seen)].sum().item() == pytest.approx(1)
        assert found[row].sum().item() == pytest.approx(1)
    sentence = Sentence(words=tuple(tree.words()), tree=tree, identifier="1", source="here", line=1)
    plan = lm._plan(encode_sentences([sentence], vocabulary, lm.labels))
    with torch.no_grad():
        units, seen_by = lm._inputs(plan, lm.word_embedding.index_select(0, plan.types), None)
        units = lm.blocks.each[0](units, seen_by, plan.packing)
        query, key, _ = lm.blocks.each[-1].heads(units[None])
        heads = [lm.blocks.each[-1].logits(query, key, seen_by)[head, 0].softmax(-1) for head in (0, 1)]
    plain = torch.stack(heads).mean(0)
    word = attention.tokens.index("0+5")  # whose pieces are at this place and the next
    assert found[word, word].item() == pytest.approx(plain[word + 1, word : word + 2].sum().item())
    assert found[word, :word].tolist() == pytest.approx(plain[word + 1, :word].tolist())
    last = len(plain) - 1
    assert found[-1, word].item() == pytest.approx(plain[last, word : word + 2].sum().item())


def test_a_pushdown_model_is_drawn_as_its_stack() -> None:
    lm = build_pushdown(TOKENS)
    lm.search = SearchConfig(action_beam=5, word_beam=3, fast_track=1)
    (tree,), found = lm.parse([WORDS]), lm.structure(WORDS)
    assert figure_of(lm, tree) == structure_figure(found, tree)
    assert analyses_of(lm, [SENTENCE])[0].structures == (found,)
    assert found.stacks[-1] == ((0, len(WORDS)),)
