"""Training of systems that are estimated from counts: one look at the data, no steps, nothing to resume."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from time import perf_counter, process_time

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import EncodedCorpus
from treelm.errors import InputError
from treelm.models.base import EstimatedLM
from treelm.models.persistence.storage import save_model
from treelm.training.config import TrainingConfig
from treelm.training.metrics import FILE_NAME, LossSum, MetricsLog


def check_estimated(model: EstimatedLM, config: TrainingConfig, *, resume: bool) -> None:
    """Raise ``InputError`` for what has no meaning without steps."""
    if resume:
        remedy = "train it anew, in another run folder"
        raise InputError(f"{model.system} is estimated in one go: there is nothing to resume", remedy=remedy)
    for field in fields(config):
        value = getattr(config, field.name)
        if value != field.default and field.name not in ("devices", "num_nodes", "timeout_minutes"):
            found = f"{field.name} = {value!r} for {model.system}, which is estimated, not optimised"
            raise InputError(found, where="[training]", remedy="leave the section empty")


def estimate(
    model: EstimatedLM, corpus: EncodedCorpus, dev: Iterable[SentenceBatch] | None, run_directory: Path
) -> LossSum | None:
    """Estimate, save the model in the run folder, and log its loss on dev, which is returned.

    The caller holds the folder (``lock_folder``).
    """
    begin, cpu_begin = perf_counter(), process_time()
    model.estimate(corpus)
    seconds, cpu_seconds = perf_counter() - begin, process_time() - cpu_begin
    log = MetricsLog(run_directory / FILE_NAME)
    where = {"step": 0, "epoch": 1, "elapsed_seconds": seconds, "cpu_seconds": cpu_seconds}
    log.write({"kind": "estimate", **where, "num_sentences": len(corpus), "num_words": int(corpus.num_words.sum())})
    loss = None if dev is None else _sum_losses(model, dev)
    if loss is not None:
        log.write({"kind": "dev", **where, **loss.named()})
    save_model(model, run_directory)
    return loss


def _sum_losses(model: EstimatedLM, batches: Iterable[SentenceBatch]) -> LossSum:
    loss = LossSum()
    for batch in batches:
        loss.add(model.losses(batch))
    return loss
