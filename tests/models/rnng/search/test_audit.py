"""The RNNG passes its own audit, without any tolerance for neighbours and later words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.models.rnng.search.test_beam import TINY
from tests.models.rnng.search.test_interface import VARIANTS
from tests.models.rnng.worlds import Symbols, build_model
from treelm.evaluation.audit import audit

SENTENCES = [["4", "0+5", "3"], ["2"], ["3", "1+2", "4", "4", "5"]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_audit(variant: dict[str, Any], dtype: torch.dtype) -> None:
    sizes = {"embedding_size": 32, "hidden_size": 32}
    model = build_model(Symbols(6, num_unfinished=2), 2, seed=8, dtype=dtype, **TINY, **sizes, **variant)
    model.set_beam(action_beam=10, word_beam=4, fast_track=1)
    report = audit(model, SENTENCES, enumerate_all=model.probability_mass)
    assert [check.outcome for check in report.checks] == ["passed"] * 5, report.as_text()
    assert {check.figure for check in report.checks if check.unit == "nats"} == {0.0}


def test_large_models_cannot_be_enumerated() -> None:
    assert build_model(Symbols(500), 2, **TINY).probability_mass() is None
    assert build_model(Symbols(5), 40).probability_mass() is None
