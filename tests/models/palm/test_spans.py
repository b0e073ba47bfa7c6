"""Span representations against the definition and the paper's log space; the parser of their scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.palm.plain import log_space_states, score, span_representation
from tests.models.palm.worlds import END, palm
from treelm.errors import InputError
from treelm.models.palm import attention as module
from treelm.models.palm.attention import (
    RationalRNN,
    SpanAttention,
    count_available,
    masked_log_softmax,
    span_states,
)
from treelm.models.palm.network import PaLM
from treelm.trees.distances import tree_from_span_scores
from treelm.trees.trivial import left_branching, right_branching

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


def test_the_recursion_is_the_definition() -> None:
    network, hidden = rational()
    torch.testing.assert_close(network(hidden, MAX_SPAN), definition(network, hidden), rtol=0, atol=1e-12)


def test_gradients_of_the_recursion_are_those_of_the_definition() -> None:
    network, hidden = rational()
    hidden.requires_grad_(True)
    leaves = [hidden, *network.parameters()]
    fast = torch.autograd.grad(network(hidden, MAX_SPAN).square().sum(), leaves)
    slow = torch.autograd.grad(definition(network, hidden).square().sum(), leaves)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def test_the_hand_written_gradient_is_that_of_finite_differences() -> None:
    torch.manual_seed(0)
    forget = torch.rand(6, 2, 4, dtype=torch.float64, requires_grad=True)
    update = torch.randn(6, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda f, u: span_states(f, u, 4), (forget, update))


@pytest.mark.parametrize("scale", [1.0, 200.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturated_gates_give_finite_states_and_gradients(scale: float, dtype: torch.dtype) -> None:
    network, hidden = rational(scale, dtype)
    states = network(hidden, MAX_SPAN)
    assert states.isfinite().all()
    torch.testing.assert_close(states, definition(network, hidden), rtol=0, atol=1e-5 if dtype.itemsize == 4 else 1e-12)
    for gradient in torch.autograd.grad(states.square().sum(), list(network.parameters())):
        assert gradient.isfinite().all()


def test_the_log_space_form_agrees_where_gates_are_gentle() -> None:
    network, hidden = rational(0.3)
    forget, update = gates_of(network, hidden[:, 0])
    states = network(hidden, MAX_SPAN)
    for length in range(1, MAX_SPAN + 1):
        last = MAX_SPAN + 2
        found = torch.cat(log_space_states(forget, update, last - length + 1, last))
        torch.testing.assert_close(found, states[length - 1, 3, 0], rtol=0, atol=1e-10)


def test_the_log_space_form_fails_where_gates_saturate_and_leaks_what_comes_later() -> None:
    network, hidden = rational(200.0, torch.float32)
    forget, update = gates_of(network, hidden[:, 0])
    assert (forget == 0).any()
    last = MAX_SPAN + 2
    assert torch.cat(log_space_states(forget, update, last - 1, last)).isnan().any()
    assert network(hidden, MAX_SPAN).isfinite().all()
    gentle, hidden = rational(1.0, torch.float32)
    leaks = []
    for later in (0.0, 1.0):  # the backward states start at the end of the text: division leaves a trace of it
        changed = hidden[:, 0].clone()
        changed[last + 1 :] += later
        leaks.append(log_space_states(*gates_of(gentle, changed), last - 1, last)[1])
    assert (leaks[0] - leaks[1]).abs().max() > 0


def gates_of(network: RationalRNN, hidden: Tensor) -> tuple[Tensor, Tensor]:
    forget = torch.sigmoid(hidden @ network.forget_weight.T + network.forget_bias)
    return forget, (1 - forget) * torch.tanh(hidden @ network.update_weight.T)


def test_weights_sum_to_one_over_the_spans_that_are_there() -> None:
    scores = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    available = torch.tensor([[0, 3], [1, 3], [2, 2], [3, 0]])
    weights = masked_log_softmax(scores, available).exp()
    torch.testing.assert_close(weights.sum(2), (available > 0).double())
    assert (weights[available[..., None] < torch.arange(1, 4)] == 0).all()
    (gradient,) = torch.autograd.grad(weights.square().sum(), scores)
    assert gradient.isfinite().all()


def test_spans_reach_back_to_the_start_or_to_the_last_stop() -> None:
    reach = torch.tensor([0, 2])
    available, after = count_available(reach, 5, 4)
    assert available.T.tolist() == [[0, 1, 2, 3, 4], [2, 3, 4, 4, 4]]
    assert after.tolist() == [4, 4]
    stops = torch.tensor([[True, False], [False, False], [False, True], [False, False], [False, True]])
    available, after = count_available(reach, 5, 4, stops)
    assert available.T.tolist() == [[0, 0, 1, 2, 3], [2, 3, 4, 0, 1]]
    assert after.tolist() == [4, 0]


def test_fixed_scores_prefer_the_longest_or_the_shortest_span() -> None:
    for branching, preferred in (("right", 3), ("left", 0)):
        attention = SpanAttention(4, rational_size=2, scorer_size=None, residual_size=3, branching=branching)  # type: ignore[arg-type]
        attended = attention(torch.randn(2, 1, 4), torch.randn(4, 1, 4), torch.full((2, 1), 4))
        expected = torch.tensor([1.0, 2, 3, 4] if branching == "right" else [4.0, 3, 2, 1]).softmax(0)
        torch.testing.assert_close(attended.weights, expected.expand(2, 1, 4))
        assert attended.weights[0, 0].argmax() == preferred


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


def test_fixed_attention_branches_to_one_side() -> None:
    for attention, tree in (("right", right_branching), ("left", left_branching)):
        network = palm(attention=attention)
        assert [str(one) for one in network.parse(SENTENCES)] == [str(tree(words)) for words in SENTENCES]


def test_a_sentence_without_words_is_a_user_error() -> None:
    with pytest.raises(InputError, match="without words"):
        palm().parse([["1"], []])
    assert palm().span_scores([[]])[0].shape == (0, 0)
