"""Span representations against the definition and the paper's log space; the parser of their scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.palm.plain import log_space_states, score, span_representation
from tests.models.palm.worlds import END, palm
from treelm.models.palm import attention as module
from treelm.models.palm.attention import (
    RationalRNN,
)
from treelm.models.palm.network import PaLM
from treelm.trees.distances import tree_from_span_scores

MAX_SPAN, NUM_STEPS, NUM_ROWS, INPUT, SIZE = 5, 7, 3, 4, 3


def rational(scale: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[RationalRNN, Tensor]:
    torch.manual_seed(0)
    network = RationalRNN(INPUT, SIZE).to(dtype)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter) * scale)
    return network, torch.randn(MAX_SPAN + NUM_STEPS, NUM_ROWS, INPUT, dtype=dtype)


def definition(network: RationalRNN, hidden: Tensor) -> Tensor:
    parameters = {f"attention.rational.{name}": value for name, value in network.named_parameters()}
    spans = torch.stack(
        [
            span_representation(parameters, list(hidden[MAX_SPAN + step - length : MAX_SPAN + step, row]))
            for length in range(1, MAX_SPAN + 1)
            for step in range(NUM_STEPS)
            for row in range(NUM_ROWS)
        ]
    )
    return spans.view(MAX_SPAN, NUM_STEPS, NUM_ROWS, -1)


@pytest.mark.parametrize("scale", [1.0, 200.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_recursion_is_the_definition_with_its_gradients_also_where_gates_saturate(
    scale: float, dtype: torch.dtype
) -> None:
    network, hidden = rational(scale, dtype)
    leaves, tolerance = [hidden.requires_grad_(), *network.parameters()], 1e-5 if dtype.itemsize == 4 else 1e-11
    states, expected = network(hidden, MAX_SPAN), definition(network, hidden)
    torch.testing.assert_close(states, expected, rtol=0, atol=tolerance)
    found, wanted = (torch.autograd.grad(one.square().sum(), leaves) for one in (states, expected))
    for one, other in zip(found, wanted, strict=True):  # gradients are sums: an error is one of their largest terms
        largest = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one, other, rtol=0, atol=10 * tolerance * largest)


def log_space(network: RationalRNN, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Both directions' states of the span of the places MAX_SPAN + 1 and MAX_SPAN + 2, of the first row."""
    forget = torch.sigmoid(hidden[:, 0] @ network.forget_weight.T + network.forget_bias)
    update = (1 - forget) * torch.tanh(hidden[:, 0] @ network.update_weight.T)
    return log_space_states(forget, update, MAX_SPAN + 1, MAX_SPAN + 2)


def test_division_in_log_space_agrees_where_gates_are_gentle_fails_where_they_saturate_and_leaks() -> None:
    network, hidden = rational(0.3)
    found = torch.cat(log_space(network, hidden))
    torch.testing.assert_close(found, network(hidden, MAX_SPAN)[1, 3, 0], rtol=0, atol=1e-10)
    assert torch.cat(log_space(*rational(200.0, torch.float32))).isnan().any()
    network, hidden = rational(1.0, torch.float32)
    later = hidden.clone()
    later[MAX_SPAN + 3 :] += 1  # the backward states start at the end of the text: division leaves a trace of it
    assert (log_space(network, hidden)[1] - log_space(network, later)[1]).abs().max() > 0


SENTENCES = [list("1234567"), list("20"), list("7"), list("55512034")]


def plain_scores(network: PaLM, pieces: list[list[int]]) -> np.ndarray:
    """Each span by itself: the representation of its states, looked at from the step after it."""
    tokens = [token for word in pieces for token in word]
    hidden = states(network, [END, *tokens, END])
    parameters = dict(network.named_parameters())
    ends = np.cumsum([0, *map(len, pieces)])
    scores = np.full((len(pieces), len(pieces)), -np.inf)
    for i in range(len(pieces)):
        for j in range(i, len(pieces)):
            span = span_representation(parameters, hidden[1 + ends[i] : 1 + ends[j + 1]])
            scores[i, j] = score(parameters, hidden[1 + ends[j + 1]], span).item()
    return scores


def states(network: PaLM, tokens: list[int]) -> list[Tensor]:
    return list(network.states_before_attention(torch.tensor(tokens)[:, None])[:, 0])


@pytest.mark.parametrize("part", [1 << 22, 40])
def test_scores_are_those_of_each_span_by_itself_and_longer_than_in_training(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UNITS", part)
    network = palm(max_span=2).eval()
    for words, found in zip(SENTENCES, network.span_scores(SENTENCES), strict=True):
        expected = plain_scores(network, [[int(word)] for word in words])
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_spans_of_words_of_several_tokens_begin_and_end_with_words() -> None:
    network = palm(num_unfinished=2).eval()
    (found,) = network.span_scores([["0+1+5", "7", "1+6"]])
    np.testing.assert_allclose(found, plain_scores(network, [[0, 1, 5], [7], [1, 6]]), atol=1e-8)


def test_trees_are_those_of_the_greedy_parser_and_do_not_depend_on_other_sentences() -> None:
    network = palm()
    together = network.parse(SENTENCES)
    for words, tree in zip(SENTENCES, together, strict=True):
        assert network.parse([words]) == [tree]
        assert tree == tree_from_span_scores(words, network.span_scores([words])[0])
