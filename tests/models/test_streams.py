"""What every stream model gets from ``init_state`` and ``forward``: here an LSTM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from tests.models.lstm.test_network import SENTENCES, SIZES, lstm
from tests.models.rnng.worlds import Tokens
from tests.models.stream_toys import stream_batch
from tests.models.weights import stirred
from treelm.evaluation.audit import audit
from treelm.models.lstm.network import LSTM, LSTMConfig


def test_a_segment_that_begins_forgets_what_is_carried() -> None:
    model = lstm()
    begins = stream_batch(np.random.default_rng(0).integers(0, 9, (5, 20)), start=0, stop=20)
    _, carried = model.stream_losses(begins, None)
    assert model.stream_losses(begins, carried)[0].total == model.stream_losses(begins, None)[0].total
    continued = model.stream_losses(replace(begins, continues=True), carried)[0]
    assert continued.total != model.stream_losses(begins, None)[0].total


class Single(LSTM):
    """Scores in float32."""

    scoring_dtype = torch.float32


def test_a_system_chooses_what_its_scores_are_computed_in() -> None:
    double, single = (kind(LSTMConfig(**SIZES), vocabulary=Tokens(8)) for kind in (LSTM, Single))
    stirred(double, 0.5)
    single.load_state_dict(double.state_dict())
    assert (double.exact().output_bias.dtype, single.exact().output_bias.dtype) == (torch.float64, torch.float32)
    differences = [
        np.abs(one.log_probs - other.log_probs).max()
        for one, other in zip(double.score(SENTENCES), single.score(SENTENCES), strict=True)
    ]
    assert 0 < max(differences) < 1e-5
    assert single.next_word_log_probs(single.start()).dtype == torch.float64
    report = audit(single, SENTENCES)
    assert report.passed, report.as_text()
    assert all(1e-5 < check.tolerance < 1e-3 for check in report.checks)
    assert not audit(single, SENTENCES, tolerances={"incremental": 0.0, "normalisation": 0.0}).passed
