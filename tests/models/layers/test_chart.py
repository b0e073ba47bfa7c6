"""The chart beside enumeration of all trees: totals, marginals, best trees, samples, entropy and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.models.layers.binary_trees import spans_of_trees
from treelm.models.layers import chart

LENGTHS = range(1, 8)


def draw_scores(num_sentences: int, num_words: int, *, seed: int = 0, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (num_sentences, num_words + 1, num_words + 1)
    return spread * torch.randn(shape, dtype=torch.float64, generator=generator)


def sentence(scores: Tensor) -> tuple[Tensor, Tensor]:
    """One sentence as a batch, and its length."""
    return scores[None], torch.tensor([len(scores) - 1])


@pytest.fixture(scope="module", params=["alone", "in one batch of all lengths"])
def found(request: pytest.FixtureRequest) -> dict[int, tuple[Tensor, dict[str, Tensor]]]:
    """By length: scores, and what the chart makes of them; numbers, weights of spans, and gradients."""
    scores = draw_scores(len(LENGTHS), max(LENGTHS))
    lengths = torch.tensor(LENGTHS)
    for row, length in enumerate(LENGTHS):  # whatever lies beyond a sentence must change nothing
        beyond = torch.full_like(scores[row], 1e4).uniform_(-1e4, 1e4)
        beyond[: length + 1, : length + 1] = scores[row, : length + 1, : length + 1]
        scores[row] = beyond
    together = computed(scores, lengths)
    by_length = {}
    for row, length in enumerate(LENGTHS):
        own = scores[row, : length + 1, : length + 1]
        if request.param == "alone":
            values = {name: value[0] for name, value in computed(*sentence(own)).items()}
        else:
            values = {name: value[row] for name, value in together.items()}
            outside = {name: value.clone() for name, value in values.items() if value.dim()}
            for name, value in outside.items():
                value[: length + 1, : length + 1] = 0
                assert not value.any(), name
            values |= {name: values[name][: length + 1, : length + 1] for name in outside}
        by_length[length] = own, values
    return by_length


def computed(scores: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    leaf = scores.clone().requires_grad_()
    log_z, entropy = chart.log_partition(leaf, lengths), chart.entropy(leaf, lengths)
    return {
        "log Z": log_z.detach(),
        "gradient of log Z": torch.autograd.grad(log_z.sum(), leaf)[0],
        "entropy": entropy.detach(),
        "gradient of entropy": torch.autograd.grad(entropy.sum(), leaf)[0],
        "total": chart.up(scores, chart.logsumexp).whole(lengths),
        "max": chart.up(scores, chart.max_of).whole(lengths),
        "marginals": chart.marginals(scores, lengths),
        "best tree": chart.best_trees(scores, lengths),
        "MBR tree": chart.best_trees(chart.marginals(scores, lengths), lengths),
    }


@pytest.mark.parametrize("length", LENGTHS)
def test_equals_enumeration_of_all_trees(found: dict[int, tuple[Tensor, dict[str, Tensor]]], length: int) -> None:
    own, values = found[length]
    leaf = own.clone().requires_grad_()
    trees = spans_of_trees(length)
    scores = (trees * leaf).sum((1, 2))
    log_z = scores.logsumexp(0)
    probabilities = (scores - log_z).exp()
    entropy = -(probabilities * (scores - log_z)).sum()
    gradient_of_log_z, gradient_of_entropy = (
        torch.autograd.grad(value, leaf, retain_graph=True)[0] for value in (log_z, entropy)
    )
    marginals = (probabilities.detach()[:, None, None] * trees).sum(0)
    plain = {
        "log Z": log_z.detach(),
        "total": log_z.detach(),
        "max": scores.detach().max(),
        "entropy": entropy.detach(),
        "gradient of log Z": gradient_of_log_z,
        "gradient of entropy": gradient_of_entropy,
        "marginals": marginals,
        "best tree": trees[scores.argmax()],
        "MBR tree": trees[(trees * marginals).sum((1, 2)).argmax()],
    }
    assert plain.keys() == values.keys()
    for name, value in plain.items():
        torch.testing.assert_close(values[name], value, rtol=0, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")


def test_spans_that_are_forbidden_get_no_weight_and_finite_gradients() -> None:
    scores = draw_scores(1, 5)
    scores[0, 1, 3] = scores[0, 2, 5] = chart.NEG
    leaf, lengths = scores.requires_grad_(), torch.tensor([5])
    value = chart.log_partition(leaf, lengths).sum() + chart.entropy(leaf, lengths).sum()
    gradient = torch.autograd.grad(value, leaf)[0]
    found = chart.marginals(scores.detach(), lengths)
    assert found[0, 1, 3] == found[0, 2, 5] == 0
    assert gradient.isfinite().all()


def test_samples_have_the_probabilities_of_trees() -> None:
    """Counts of 20,000 draws of the 14 trees of 5 words, by a chi-squared with 13 degrees of freedom."""
    scores, lengths = draw_scores(1, 5, spread=0.5), torch.tensor([5])
    trees = spans_of_trees(5)
    values = (trees * scores).sum((1, 2))
    num = 20_000
    drawn = chart.samples(scores, lengths, num, torch.Generator().manual_seed(3))
    assert drawn.shape == (num, 1, 6, 6)
    is_tree = (drawn == trees).all(-1).all(-1)  # (num, trees)
    assert is_tree.sum(1).eq(1).all()  # every draw is a tree
    expected = num * values.softmax(0)
    assert ((is_tree.sum(0) - expected) ** 2 / expected).sum() < 34.5  # one in a thousand is above
    log_p = (drawn[0, 0] * scores[0]).sum() - chart.up(scores, chart.logsumexp).whole(lengths)[0]
    torch.testing.assert_close(log_p, values.log_softmax(0)[is_tree[0]].squeeze())
