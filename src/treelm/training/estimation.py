"""Training of systems that are estimated from counts: one look at the data, no steps, nothing to resume."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from time import perf_counter, process_time

from treelm.corpora.batches import SentenceBatches
from treelm.errors import InputError
from treelm.models.capabilities import Counted
from treelm.models.persistence.storage import save_model
from treelm.training.config import TrainingConfig
from treelm.training.metrics import FILE_NAME, LossSum, MetricsLog
from treelm.training.prepare import Setup


def check_estimated(system: str, config: TrainingConfig, *, resume: bool) -> None:
    """Raise ``InputError`` for what has no meaning without steps."""
    if resume:
        remedy = "train it again, in another run folder"
        raise InputError(f"{system} is estimated in one go: there is nothing to resume", remedy=remedy)
    for field in fields(config):
        value = getattr(config, field.name)
        if value != field.default and field.name not in ("devices", "num_nodes", "timeout_minutes"):
            found = f"{field.name} = {value!r} for {system}, which is estimated, not optimised"
            raise InputError(found, where="[training]", remedy="remove it: [training] is of training step by step")


def estimate(setup: Setup, run: Path) -> None:
    """Train a system that is estimated from counts: one look at the data, no steps, nothing to resume."""
    model, dev = setup.model, setup.dev
    assert isinstance(model, Counted)
    begin, cpu_begin = perf_counter(), process_time()
    model.estimate(setup.encoded)
    log, size = MetricsLog(run / FILE_NAME), len(setup.encoded)
    times = {"elapsed_seconds": perf_counter() - begin, "cpu_seconds": process_time() - cpu_begin}
    where = {"step": 0, "epoch": 1, **times}
    log.write({"kind": "estimate", **where, "num_sentences": size, "num_words": int(setup.encoded.num_words.sum())})
    if isinstance(dev, SentenceBatches):
        loss = LossSum.sum(LossSum.read([model.losses(batch) for batch in dev])[0])
        log.write({"kind": "dev", **where, **loss.named()})
    save_model(model, run)
