"""The state of training as a checkpoint holds it, believed field by field only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from treelm.errors import InputError
from treelm.models.configs import from_plain
from treelm.training.checkpoints import REMEDY, Checkpoint
from treelm.training.state import TrainingState

_LATER = ("cpu_seconds", "best_f1", "averaging")  # fields that the first runs lack
_LOSSES = ("best", "best_loss", "earlier", "total", "terms")  # of any sign; all other numbers are amounts
_MOST = {"seconds": 1e10, "cpu_seconds": 1e13, "best_f1": 100, "factor": 1}


def read_state(checkpoint: Checkpoint) -> TrainingState:
    """The state of training in a checkpoint; raises ``InputError`` with file and field for what we never wrote."""
    where = f"{checkpoint.where} state"
    values = checkpoint.table("state")
    _check_complete(values, TrainingState().to_json(), where)
    try:
        state = from_plain(TrainingState, values, where=where)
    except InputError as error:  # what it advises is for files that people write
        raise InputError(error.found, where=error.where, remedy=REMEDY) from None
    _check_numbers({name: value for name, value in values.items() if name != "position"}, where)
    for found in _contradictions(state, checkpoint.step):
        raise InputError(found, where=where, remedy=REMEDY)
    return state


def _check_complete(values: Any, template: Mapping[str, Any], where: str) -> None:
    for name, content in template.items():
        if name in values:
            if content and isinstance(content, dict) and isinstance(values[name], dict):
                _check_complete(values[name], content, f"{where} {name}")
        elif name not in _LATER:
            raise InputError(f"field {name!r} is missing", where=where, remedy=REMEDY)


def _check_numbers(values: Mapping[str, Any], where: str, *, are_losses: bool = False) -> None:
    for name, value in values.items():
        is_loss = are_losses or name in _LOSSES
        if isinstance(value, dict):
            _check_numbers(value, f"{where} {name}", are_losses=is_loss)
            continue
        least, most = -math.inf if is_loss else 0, _MOST.get(name, math.inf)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and not (math.isfinite(number) and least <= number <= most):
                raise InputError(f"{name} = {number!r}", where=where, remedy=REMEDY)


def _contradictions(state: TrainingState, step: int | None) -> Iterator[str]:
    """What cannot be true together; ``step`` is that of the checkpoint's name."""
    if step not in (None, state.step):
        yield f"step = {state.step} in a checkpoint of step {step}"
    at_most_once_a_step = {
        "epoch": state.epoch,
        "step_in_epoch": state.step_in_epoch,
        "interval num_steps": state.interval.num_steps,
        "early_stopping num_worse": state.early_stopping.num_worse,
        "learning_rate plateau num_worse": state.learning_rate.plateau.num_worse,
        "averaging earlier": len(state.averaging.earlier),
        "averaging after_step": state.averaging.after_step or 0,
    }
    for name, number in at_most_once_a_step.items():
        if number > state.step:
            yield f"{name} = {number}, but step = {state.step}"
    if state.position.get("epoch", state.epoch) != state.epoch:
        yield f"position epoch = {state.position['epoch']!r}, but epoch = {state.epoch}"
    for name, term in state.interval.loss.terms.items():
        if len(term) != 2:
            yield f"interval loss terms {name} = {term}, not a sum and a count"
