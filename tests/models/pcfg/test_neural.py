"""Induced grammars: their networks against the equations, their losses, their trees, and how they begin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from tests.models.pcfg.induced import plain_of
from tests.models.weights import stirred
from treelm.corpora.encoding import encode_words
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models.pcfg.config import NeuralPCFGConfig
from treelm.models.pcfg.kernels import log_probs
from treelm.models.pcfg.network import NeuralPCFG, padded
from treelm.models.pcfg.products import Grammar, grammar_of

SIZES: dict[str, Any] = {"num_nonterminals": 3, "num_preterminals": 4, "size": 6}
LATENT: dict[str, Any] = {"latent_size": 3, "encoder_embedding_size": 4, "encoder_hidden_size": 4, "num_draws": 3}
VARIANTS: dict[str, dict[str, Any]] = {
    "dense": {},
    "low-rank": {"rules": "low-rank", "rank": 5},
    "simple": {"rules": "simple"},
    "compound": LATENT,
    "low-rank compound": {"rules": "low-rank", "rank": 5, **LATENT},
    "simple compound": {"rules": "simple", **LATENT},
}
WORDS = WordVocabulary(["cat", "dog", "sees", "the"])
SENTENCES = [["the", "cat", "sees", "the", "dog"], ["cat"], ["the", "dog", "sees"], ["the", "unseen"]]

every_variant = pytest.mark.parametrize("variant", VARIANTS)


def drawn(variant: str, seed: int = 0, kind: type[NeuralPCFG] = NeuralPCFG, **sizes: Any) -> NeuralPCFG:
    torch.manual_seed(seed)
    model = kind(NeuralPCFGConfig(**{**SIZES, **VARIANTS[variant], **sizes}), vocabulary=WORDS)
    return stirred(model, 0.3).eval()


def latent_of(model: NeuralPCFG) -> Tensor | None:
    return model.latents()[0]


def linear(layer: Any, inputs: Tensor) -> Tensor:
    return layer.weight @ inputs + layer.bias


def plain_deep(layers: Any, inputs: Tensor) -> Tensor:
    hidden = linear(layers[0], inputs)
    for block in (layers[1], layers[2]):
        hidden = torch.relu(linear(block.second, torch.relu(linear(block.first, hidden)))) + hidden
    return linear(layers[3], hidden)


def plain_grammar(model: NeuralPCFG, latent: Tensor | None) -> Grammar:
    """Symbol by symbol, from the equations of the papers."""
    network, num = model.network, model.config.num_nonterminals
    extra = torch.zeros(0) if latent is None else latent
    vectors = [torch.cat([own, extra]) for own in network.symbols]
    root = plain_deep(network.root, torch.cat([network.top[0], extra])).softmax(-1)
    words = torch.stack([plain_deep(network.words, own).log_softmax(-1) for own in vectors[num:]])
    rules: Any = network.rules
    if model.config.rules == "dense":
        size = len(vectors)
        table = [linear(rules.rules, own).softmax(-1).view(size, size) for own in vectors[:num]]
        return Grammar(root, words, (torch.stack(table),))
    if model.config.rules == "low-rank":
        scores = {
            name: torch.stack([linear(layers[2], torch.relu(linear(layers[0], own))) for own in vectors])
            for name, layers in (("head", rules.head), ("left", rules.left), ("right", rules.right))
        }
        head = scores["head"][:num].softmax(1)
        return Grammar(root, words, (head, scores["left"].softmax(0).T, scores["right"].softmax(0).T))
    of = {
        name: [torch.relu(linear(layer, own)) + symbol for own, symbol in zip(vectors, network.symbols, strict=True)]
        for name, layer in (("parent", rules.parent), ("left", rules.left), ("right", rules.right))
    }
    sides = [
        torch.stack([torch.stack([parent @ child for child in of[side]]).softmax(0) for parent in of["parent"][:num]])
        for side in ("left", "right")
    ]
    return Grammar(root, words, tuple(sides))


@every_variant
def test_probabilities_are_those_of_the_equations(variant: str) -> None:
    model = drawn(variant).double()
    latent = latent_of(model)
    found = model.network(latent, torch.float64)
    found = found if latent is None else found.of(0)
    expected = plain_grammar(model, None if latent is None else latent[0])
    for one, other in zip((*found[:2], *found.rules), (*expected[:2], *expected.rules), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
        assert one.shape == other.shape


@every_variant
def test_loss_and_gradients_of_one_grammar_are_those_of_the_plain_form(variant: str) -> None:
    """Of a compound one, of the grammars that its latent vectors have, each sentence with its own."""
    model = drawn(variant, 1).double()
    tokens, lengths = padded(encode_words(SENTENCES, WORDS))
    latent = None if latent_of(model) is None else torch.randn(len(tokens), 3, dtype=torch.float64)
    ours = log_probs(model.network(latent, torch.float64), tokens, lengths)
    plain = []
    for row, length in enumerate(lengths.tolist()):
        own = plain_grammar(model, None if latent is None else latent[row])
        # The oracle of three nonterminals and four preterminals is that of the drawn grammars.
        plain.append(plain_of(own).probability(tokens[row, :length].tolist()).log())
    parameters = list(model.network.parameters())
    found, expected = (torch.autograd.grad(sum(one), parameters) for one in (list(ours), plain))
    torch.testing.assert_close(ours, torch.stack(plain), atol=1e-10, rtol=0)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def test_the_bound_is_reconstruction_and_divergence_and_below_the_evidence() -> None:
    model = drawn("compound", 2).double()
    batch = encode_words(SENTENCES, WORDS)
    tokens, lengths = padded(batch)
    assert model.encoder is not None
    mean, log_variance = model.encoder(tokens, lengths)
    prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
    expected = kl_divergence(Normal(mean, (log_variance / 2).exp()), prior).sum()
    model.train()
    torch.manual_seed(5)
    losses = model.losses(batch)
    assert set(losses.terms) == {"reconstruction", "divergence"}  # neither is -log p of the words
    torch.testing.assert_close(losses.terms["divergence"].sum, expected)
    torch.manual_seed(5)
    latent = mean + (log_variance / 2).exp() * torch.randn_like(mean)
    nats = -log_probs(model.network(latent, torch.float64), tokens, lengths).sum()
    torch.testing.assert_close(losses.terms["reconstruction"].sum, nats, rtol=1e-5, atol=0)
    torch.testing.assert_close(losses.total, nats + expected, rtol=1e-5, atol=0)
    with torch.no_grad():  # the evidence by many draws of the prior, the bound by as many of the encoder
        draws = torch.randn(4000, 3, dtype=torch.float64)
        of_draws = log_probs(model.network(draws, torch.float64), tokens[:1].expand(4000, -1), lengths[:1].expand(4000))
        evidence = of_draws.logsumexp(0) - math.log(4000)
        own = mean[0] + (log_variance[0] / 2).exp() * draws
        of_own = log_probs(model.network(own, torch.float64), tokens[:1].expand(4000, -1), lengths[:1].expand(4000))
        divergence = kl_divergence(Normal(mean[0], (log_variance[0] / 2).exp()), Normal(0.0, 1.0)).sum()
        assert of_own.mean() - divergence < evidence


def test_a_top_that_float32_has_no_number_for_is_learned_all_the_same() -> None:
    """Where one-word sentences are rare, preterminals at the top soon are less probable than 1e-38."""
    model, tops = drawn("dense", 9).train(), 3
    with torch.no_grad():
        model.network.root[3].bias[tops:] -= 200
    losses = model.losses(encode_words(SENTENCES, WORDS))
    losses.total.backward()
    gradient = model.network.root[3].bias.grad
    assert losses.total.isfinite()
    assert losses.total.item() > 190
    assert gradient is not None
    assert gradient[tops:].sum().item() == pytest.approx(-1, abs=1e-4)  # one of the sentences has one word
    assert all(one.grad is not None and one.grad.isfinite().all() for one in model.parameters())


@every_variant
def test_a_compound_grammar_is_the_mean_of_its_draws_word_by_word(variant: str) -> None:
    model = drawn(variant, 4)
    grammars = model.grammars()
    assert len(grammars) == (3 if model.encoder is not None else 1)
    for words, score in zip(SENTENCES, model.score(SENTENCES), strict=True):
        tokens = encode_words([words], WORDS).tokens.tolist()
        plain = [plain_of(grammar_of(one)) for one in grammars]
        prefixes = [
            torch.stack([one.prefix(tokens[:length]) for one in plain]).mean() for length in range(len(tokens) + 1)
        ]
        whole = torch.stack([one.probability(tokens) for one in plain]).mean()
        expected = torch.stack([*prefixes, whole]).log().diff()
        np.testing.assert_allclose(score.log_probs, expected.numpy(), atol=2e-9)
