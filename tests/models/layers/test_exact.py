import pytest
import torch
from torch import nn

from treelm.models.layers.precision import ExactCopy


class Scorer(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 1)
        self._exact: ExactCopy[Scorer] = ExactCopy()

    def score(self) -> float:
        return self._exact.of(self, Scorer)(torch.ones(2, dtype=torch.float64)).item()

    def expected(self) -> float:
        return (self.weight.double().sum() + self.bias.double().sum()).item()


def update(scorer: Scorer, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    scorer(torch.ones(2)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("fused", [True, False])
def test_scores_between_updates_are_those_of_the_weights_of_the_moment(fused: bool) -> None:
    scorer = Scorer()
    optimizer = torch.optim.Adam(scorer.parameters(), lr=0.1, fused=fused)
    for _ in range(3):
        scorer.train()
        update(scorer, optimizer)
        scorer.eval()
        assert scorer.score() == pytest.approx(scorer.expected(), abs=1e-12)


def test_scores_in_training_mode_are_those_of_the_weights_of_the_moment() -> None:
    scorer = Scorer()
    optimizer = torch.optim.Adam(scorer.parameters(), lr=0.1, fused=True)
    for _ in range(3):
        update(scorer, optimizer)
        assert scorer.score() == pytest.approx(scorer.expected(), abs=1e-12)


def test_weights_set_in_evaluation_mode_are_seen() -> None:
    scorer = Scorer().eval()
    scorer.score()
    with torch.no_grad():
        scorer.weight.add_(1.0)
    assert scorer.score() == pytest.approx(scorer.expected(), abs=1e-12)


def test_the_copy_is_kept_while_nothing_changes() -> None:
    scorer = Scorer().eval()
    first = scorer._exact.of(scorer, Scorer)
    assert scorer._exact.of(scorer, Scorer) is first


def test_the_copy_is_no_part_of_what_is_saved() -> None:
    scorer = Scorer().eval()
    scorer.score()
    assert set(scorer.state_dict()) == {"weight", "bias"}
    assert {name for name, _ in scorer.named_parameters()} == {"weight", "bias"}
