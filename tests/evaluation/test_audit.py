import itertools
import math

import pytest

from treelm.errors import InputError
from treelm.evaluation.audit import Check, ProbabilityMass, audit
from treelm.models.base import LanguageModel

from . import toys

SENTENCES = [["a", "b", "c+d"], ["b"], ["c", "c", "a", "b+d", "a"]]


def check(model: LanguageModel, name: str) -> Check:
    return {one.name: one for one in audit(model, SENTENCES).checks}[name]


def mass_of(model: toys.ToyLM, max_tokens: int) -> ProbabilityMass:
    """All strings of tokens up to a length, and what is longer."""
    finished, unfinished, num_pairs = 0.0, 0.0, 0
    for length in range(max_tokens + 1):
        for string in itertools.product(range(toys.END), repeat=length):
            prefix = sum(model.log_probs_after(string[:i])[string[i]] for i in range(length))
            finished += math.exp(prefix + model.log_probs_after(string)[toys.END])
            num_pairs += 1
            if length == max_tokens:
                unfinished += math.exp(prefix) * (1 - math.exp(model.log_probs_after(string)[toys.END]))
    description = f"up to {max_tokens} tokens over {toys.END}"
    return ProbabilityMass(finished=finished, unfinished=unfinished, num_pairs=num_pairs, description=description)


def test_a_tolerance_of_no_check_is_refused() -> None:
    with pytest.raises(InputError, match="unknown check 'causalty'"):
        audit(toys.ToyLM(), SENTENCES, tolerances={"causalty": 1.0})


def test_a_correct_model_passes_everything() -> None:
    model = toys.ToyLM()
    report = audit(model, SENTENCES, enumerate_all=lambda: mass_of(model, 3))
    assert report.passed
    assert [one.outcome for one in report.checks] == ["passed"] * 5
    assert {one.name: one.figure for one in report.checks}["causality"] == 0.0


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (toys.Peeks(), "causality"),
        (toys.KnowsTheLength(), "causality"),
        (toys.LosesMass(), "normalisation"),
        (toys.InventsMassInItsSearch(), "normalisation"),
        (toys.NotANumber(), "normalisation"),
        (toys.DependsOnTheBatch(), "batch invariance"),
        (toys.ForgetsInStreams(), "incremental"),
        (toys.ScoresOtherwise(), "incremental"),
        (toys.MixesPiecesUp(), "incremental"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_broken_model_fails(model: LanguageModel, name: str) -> None:
    assert check(model, name).outcome == "failed"
    assert not audit(model, SENTENCES).passed


@pytest.mark.parametrize(
    "model", [toys.Peeks(), toys.DependsOnTheBatch(), toys.ForgetsInStreams(), toys.MixesPiecesUp()]
)
def test_a_fault_is_found_by_its_own_check_only(model: LanguageModel) -> None:
    failed = [one.name for one in audit(model, SENTENCES).checks if one.outcome == "failed"]
    assert len(failed) == 1


def test_smallest_prefix_change_is_located() -> None:
    found = check(toys.Peeks(), "causality")
    assert found.figure == pytest.approx(2e-12, rel=1e-3)
    assert "word 1 of sentence" in found.finding
    assert found.tolerance == 0.0


def test_lower_bounds_may_lose_mass() -> None:
    found = check(toys.LosesMassInItsSearch(), "normalisation")
    assert found.outcome == "passed"
    assert "smallest 0.9" in found.explanation


def test_enumeration_is_skipped_or_fails() -> None:
    assert check(toys.ToyLM(), "enumeration").outcome == "skipped"
    model = toys.LosesMass()
    report = audit(model, SENTENCES, enumerate_all=lambda: mass_of(toys.ToyLM(), 2))
    assert report.checks[2].outcome == "passed"
    lost = ProbabilityMass(finished=0.5, unfinished=0.4, num_pairs=3, description="tiny")
    failed = audit(model, SENTENCES, enumerate_all=lambda: lost).checks[2]
    assert (failed.outcome, failed.figure) == ("failed", pytest.approx(0.1))
