"""The inside pass of a batch equals the plain recursion, with its gradient, and so do prefixes and the best tree."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.models.pcfg.induced import KINDS, NUM, NUM_WORDS, derivations, grammar_from, logits_of, plain_of
from treelm.models.pcfg.interface import read_tokens
from treelm.models.pcfg.kernels import cells_of, log_probs, prefix_log_probs
from treelm.models.pcfg.products import grammar_of, rules_of, viterbi

LENGTHS = torch.arange(1, 8)
TOKENS = torch.randint(NUM_WORDS, (len(LENGTHS), 7), generator=torch.Generator().manual_seed(1))
SENTENCES = [row[:length].tolist() for row, length in zip(TOKENS, LENGTHS.tolist(), strict=True)]

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("seed", [0, 1])
def test_log_probs_and_gradients_are_those_of_the_plain_recursion(kind: str, seed: int) -> None:
    leaves = [one.requires_grad_() for one in logits_of(kind, seed)]
    weights = torch.rand(len(LENGTHS), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ours = log_probs(grammar_from(leaves), TOKENS, LENGTHS)
    found = torch.autograd.grad(ours @ weights, leaves)
    plain = plain_of(grammar_from(leaves))
    theirs = torch.stack([plain.probability(words).log() for words in SENTENCES])
    expected = torch.autograd.grad(theirs @ weights, leaves)
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


@every_kind
def test_all_labelled_trees_of_four_words_sum_to_the_sentence(kind: str) -> None:
    grammar = grammar_from(logits_of(kind, 3))
    listed = list(derivations(plain_of(grammar), SENTENCES[3]))
    assert len(listed) > 1000
    ours = log_probs(grammar, TOKENS[3:4, :4], LENGTHS[3:4])
    assert ours.exp().item() == pytest.approx(math.fsum(p for p, _ in listed), abs=1e-12)


@every_kind
def test_marginals_are_the_derivative_of_the_plain_form(kind: str) -> None:
    grammar = grammar_from(logits_of(kind, 4))
    spans = cells_of(grammar, TOKENS, LENGTHS).down(torch.ones(len(LENGTHS), dtype=torch.float64), spans=True).spans
    assert spans is not None
    plain = plain_of(grammar)
    for own, words in zip(spans, SENTENCES, strict=True):
        n = len(words)
        expected = plain.constituents(words, ended=True)[..., :NUM]
        torch.testing.assert_close(own[: n + 1, : n + 1], expected, atol=1e-10, rtol=0)
        assert own.sum().item() == pytest.approx(n - 1, abs=1e-10)


@every_kind
def test_the_best_tree_is_the_best_of_all_and_has_the_probability_that_is_said(kind: str) -> None:
    for seed in range(2):
        grammar = grammar_from(logits_of(kind, seed))
        plain = plain_of(grammar)
        if kind == "low-rank":  # the factor is part of a derivation
            head, left, right = grammar.rules
            best = torch.einsum("ar,rb,rc->abcr", head, left, right).amax(-1)
            plain.binary[:NUM] = best
        for words in SENTENCES[:4]:
            value, spans = viterbi(rules_of(grammar), words)
            p, expected = max(derivations(plain, words))
            assert value == pytest.approx(math.log(p), abs=1e-10)
            assert sorted(spans) == sorted(expected)


@every_kind
@pytest.mark.parametrize("lean", [1.5, -1.5])
def test_prefixes_of_a_batch_are_those_of_the_textbook(kind: str, lean: float) -> None:
    """Of a tight grammar, and of a loose one that is conditioned on finite trees."""
    rules, log_mass = rules_of(grammar_from(logits_of(kind, 5, lean))).consistent()
    assert (log_mass < -0.1) == (lean < 0)
    prefixes, wholes = prefix_log_probs(rules, TOKENS, LENGTHS)
    plain = plain_of(grammar_of(rules))
    for row, words in enumerate(SENTENCES):
        expected = torch.stack([plain.prefix(words[:length]).log() for length in range(len(words) + 1)])
        torch.testing.assert_close(prefixes[row, : len(words) + 1], expected, atol=1e-9, rtol=0)
        assert wholes[row].item() == pytest.approx(plain.probability(words).log().item(), abs=1e-9)
        by_word = read_tokens([rules], words)[0]
        together = torch.cat([prefixes[row, : len(words) + 1], wholes[row : row + 1]]).diff()
        np.testing.assert_allclose(together.numpy(), by_word, atol=1e-8)


@every_kind
def test_a_hundred_words_in_float32_do_not_underflow(kind: str) -> None:
    leaves = [one.float().requires_grad_() for one in logits_of(kind, 7, num_words=2000)]
    tokens = torch.randint(2000, (2, 100), generator=torch.Generator().manual_seed(3))
    lengths = torch.tensor([100, 60])
    value = log_probs(grammar_from(leaves), tokens, lengths)
    assert (value < -300).all()  # far below what float32 can hold as a probability
    gradients = torch.autograd.grad(value.sum(), leaves)
    assert all(one.isfinite().all() and bool(one.any()) for one in gradients)
    exact = log_probs(grammar_from([one.detach().double() for one in leaves]), tokens, lengths)
    torch.testing.assert_close(value.detach().double(), exact, rtol=1e-5, atol=0)
