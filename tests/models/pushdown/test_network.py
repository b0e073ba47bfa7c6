"""The fast form against the plain one: loss, gradients, tiny worlds and search."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.pushdown.plain import PlainPushdown
from tests.models.pushdown.worlds import binary, build_pushdown, derivation
from tests.models.rnng.worlds import Node, Tokens, as_batch, random_tree, tokens_of
from tests.models.search.exhaustive import (
    EXHAUSTIVE,
    assert_all_derivations_are_found,
    assert_narrow_beam_is_that_of_the_definition,
    run,
)
from tests.models.transformer_grammar.worlds import trees_of
from treelm.errors import InputError
from treelm.models.pushdown.config import most_on_stack
from treelm.models.pushdown.network import Pushdown
from treelm.models.pushdown.plan import attachments_of
from treelm.models.search.config import SearchConfig


def actions_of(model: Pushdown, tree: Node) -> list[int]:
    vocabulary = model.vocabulary
    assert isinstance(vocabulary, Tokens)
    return derivation(binary(tree, vocabulary), model.config.num_actions - 1)


def plain_log_probs(model: Pushdown, tree: Node) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return PlainPushdown(model).log_probs(actions_of(model, tree), tokens_of(tree))


def test_tape_and_stack_are_those_of_a_walk() -> None:
    """Words in pieces and unary chains are among the trees."""
    vocabulary, rng = Tokens(9, 3), random.Random(3)
    model = build_pushdown(vocabulary, size=2, num_layers=1)
    trees = [random_tree(rng, vocabulary, 3, rng.choice([1, 3, 8, 20])) for _ in range(500)]
    found = attachments_of(as_batch(trees, vocabulary), vocabulary.ends_word, 100)
    last = found.valid.shape[2] - 1
    for row, tree in enumerate(trees):
        stack, tape = list[tuple[int, int]](), [0]
        steps = zip(actions_of(model, tree)[1:-1:2], tokens_of(tree), strict=True)
        for place, (action, token) in enumerate(steps, 1):
            new, targets = (place, place), [place]
            tape.append(0)
            for _ in range(action - 1):
                targets.append(stack[-1][1])
                new = stack.pop()[0], place
                for position in range(new[0], place + 1):
                    tape[position] += 1
            stack.append(new)
            assert found.target[row, place - 1] == (last if action == 1 else targets[-1])
            assert found.tape[row, place].tolist() == tape + [0] * (last - len(tape))
            assert found.closed[row, place] == action - 1
            assert found.may_end[row, place] == (len(stack) == 1 and token >= vocabulary.num_unfinished)


def test_the_bound_that_a_tree_needs_is_its_tallest_stack() -> None:
    """A bound that is one less is refused, and the sentence named."""
    vocabulary = Tokens(9)
    trees = trees_of(vocabulary, 40)
    batch = as_batch(trees, vocabulary)
    assert batch.actions is not None
    assert batch.action_offsets is not None
    most = most_on_stack(batch.actions, batch.action_offsets).tolist()
    assert max(most) > 2
    for tree, bound in zip(trees, most, strict=True):
        attachments_of(as_batch([tree], vocabulary), vocabulary.ends_word, bound)
        if bound > 1:
            with pytest.raises(InputError, match=rf"trees\.ptb:1: more than {bound - 1} constituents on the stack"):
                attachments_of(as_batch([tree], vocabulary), vocabulary.ends_word, bound - 1)
    assert most_on_stack(np.empty(0, np.int64), np.zeros(3, np.int64)).tolist() == [0, 0]


@pytest.mark.parametrize("count", [1, 7])
def test_loss_and_gradients_equal_the_plain_form(count: int) -> None:
    vocabulary = Tokens(9, 3)
    model, trees = build_pushdown(vocabulary), trees_of(vocabulary, count)
    losses = model.losses(as_batch(trees, vocabulary))
    expected = [-sum(parts) for parts in zip(*(plain_log_probs(model, tree) for tree in trees), strict=True)]
    for name, one in zip(("attachment", "finish", "word"), expected, strict=True):
        torch.testing.assert_close(losses.terms[name].sum, one, rtol=1e-10, atol=1e-12)
    assert_same_loss_and_gradients(model, losses.total, sum(expected))  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [2, 100])
def test_an_exhaustive_beam_equals_enumeration(bound: int) -> None:
    """Prefixes, sentences and trees of up to four words: binary trees are counted by Catalan numbers."""
    model = build_pushdown(Tokens(2), seed=1, num_layers=1, max_stack=bound)
    everything = assert_all_derivations_are_found(model, PlainPushdown(model), 4)
    counts = [len(everything.trees[tuple([0] * size)]) for size in (1, 2, 3, 4)]
    assert counts == ([1, 1, 2, 5] if bound == 100 else [1, 1, 2, 4])


def test_words_in_pieces_sum_to_one() -> None:
    """One of two tokens does not end a word: it attaches to what was read of its word, and nothing ends there."""
    model = build_pushdown(Tokens(2, 1), num_layers=1, max_stack=2)
    everything = assert_all_derivations_are_found(model, PlainPushdown(model), 4)
    assert all(tokens[-1] == 1 for tokens in everything.trees)


def test_a_narrow_beam_is_the_one_of_the_definition() -> None:
    model = build_pushdown(Tokens(12), seed=5, num_layers=1)
    sentences = [[3, 1, 4, 1, 5], [9, 2], [6]]
    assert_narrow_beam_is_that_of_the_definition(model, PlainPushdown(model), sentences, 4)


def test_particles_estimate_the_probability() -> None:
    """With many of them; to the end, every particle closes all and pays for it by its weight."""
    model = build_pushdown(Tokens(5), seed=2, num_layers=1)
    exact = run(model, [[1, 2, 3]], **EXHAUSTIVE)[0]
    found = run(model, [[1, 2, 3]], method="particles", num_particles=20_000)[0]
    assert found.log_masses == pytest.approx(exact.log_masses, abs=0.1)
    assert found.log_prob == pytest.approx(exact.log_prob, abs=0.1)


# Limits.


def test_a_long_sentence_keeps_a_linear_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are dropped only when half of them may be of no use, and paths are those of the beam alone."""
    monkeypatch.setattr("treelm.models.pushdown.machine._ROOM", 32)
    model = build_pushdown(Tokens(9), size=2, num_heads=1, num_layers=1, max_stack=20)
    machine, num_words = model.searchable().machine(), 250
    analyses, rng, moved, largest = machine.start(1), random.Random(1), 0, 0
    for _ in range(num_words):
        analyses = machine.shift(analyses, np.array([rng.randrange(9)]))
        best = np.array([1 + int(np.argmax(analyses.log_probs[0, 1:-1]))])
        analyses = machine.apply(analyses, np.array([0]), best, np.zeros(1))
        before = len(machine)
        analyses = analyses.renumbered(*machine.collect([analyses.top], [analyses.history]))
        moved += len(machine) if len(machine) < before else 0
        largest = max(largest, len(machine.rows._paths.in_use()))
        assert len(machine) <= 2 * (largest + 1) + 32
    assert largest == num_words + 1
    assert 0 < moved <= 2 * num_words
    model.search = SearchConfig(action_beam=4, word_beam=2, fast_track=1)
    (score,) = model.score([[str(rng.randrange(9)) for _ in range(100)]])
    assert np.isfinite(score.log_probs).all()


def test_what_a_single_analysis_closes_between_words_is_counted() -> None:
    model, closed = build_pushdown(Tokens(9), seed=2), list[float]()
    model.search = SearchConfig(action_beam=1, word_beam=1, fast_track=1)
    for words in (list("1234567"), list("765123"), list("3")):
        (searched,) = model._search([words])
        actions = searched.result.derivations[0].actions
        (score,) = model.score([words])
        closes = [0, *(action - 1 for action in actions[1:-2:2])]  # of the attachment before each SHIFT
        assert score.columns["num_actions"].tolist() == [0, *[1] * (len(words) - 1)]
        assert score.columns["num_reduces"].tolist() == closes
        closed += closes
    assert max(closed) > 0
