"""The RNNG passes its own audit, without any tolerance for neighbours and later words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.models.rnng.search.test_beam import TINY
from tests.models.rnng.search.test_interface import VARIANTS
from tests.models.rnng.worlds import Tokens, build_model
from treelm.evaluation.audit import audit
from treelm.models.scores import NoLogProbability
from treelm.models.search.config import SearchConfig

SENTENCES = [["4", "0+5", "3"], ["2"], ["3", "1+2", "4", "4", "5"]]


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [(VARIANTS[0], torch.float64), (VARIANTS[-1], torch.float32)],
    ids=str,
)
def test_audit(variant: dict[str, Any], dtype: torch.dtype) -> None:
    """With tokens that end no word; ``test_conformance`` audits every composition with words."""
    sizes = {"embedding_size": 32, "hidden_size": 32}
    model = build_model(Tokens(6, num_unfinished=2), 2, seed=8, dtype=dtype, **TINY, **sizes, **variant)
    model.search = SearchConfig(action_beam=10, word_beam=4, threshold=10.0)
    report = audit(model, SENTENCES, enumerate_all=model.probability_mass)
    assert [check.outcome for check in report.checks] == ["passed"] * 6, report.as_text()
    assert {check.figure for check in report.checks if check.unit == "nats"} == {0.0}
    search = report.checks[-1]
    assert search.figure is not None
    assert search.figure > 0  # two searches
    assert "of 9 words have not converged" in search.explanation
    assert report.to_json()["checks"][-1]["tolerance"] is None


def test_weights_that_are_no_numbers_are_refused_by_all_that_searches() -> None:
    model = build_model(Tokens(6, num_unfinished=2), 2, seed=8, **TINY)
    with torch.no_grad():
        model.output.weight[0, 0] = torch.nan
    for use in (lambda: model.score(SENTENCES), lambda: model.parse(SENTENCES), model.start, model.probability_mass):
        with pytest.raises(NoLogProbability, match=r"^rnng: weight 'output.weight' is not a number, or infinite;"):
            use()
    report = audit(model, SENTENCES, enumerate_all=model.probability_mass)
    assert [check.outcome for check in report.checks] == ["failed"] * 5, report.as_text()
