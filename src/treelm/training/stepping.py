"""What changes the weights: the optimiser of the present phase, the rate of each step, the averages of ASGD."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.optim import SGD

from treelm.corpora.stream_batches import StreamBatch
from treelm.training.checkpoints import Checkpoint
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch
from treelm.training.optimizers import WeightAverages, build_optimizer, uses_adam
from treelm.training.state import TrainingState, optimizer_tensors, restore_optimizer

_OPTIMIZER, _AVERAGES = "optimizer", "averages"


class Stepping:
    """Follows the counters of a ``TrainingState``, which it never changes but for the beginning of the averages."""

    def __init__(self, model: nn.Module, config: TrainingConfig, state: TrainingState) -> None:
        """The optimiser that the state's epoch calls for; raises ``InputError`` for patterns that fit no parameter."""
        self._model, self._config, self._state = model, config, state
        self.optimizer = build_optimizer(model, config, epoch=state.epoch)
        self.averages = WeightAverages()

    def begin(self) -> None:
        """A new run: ``asgd`` averages from the first step."""
        if self._config.optimizer == "asgd":
            self._state.averaging.begin(0)

    def before(self, batch: Batch) -> None:
        """Make ready for a step: go from Adam to ASGD where it is time, set the learning rate."""
        state, config = self._state, self._config
        is_late = config.optimizer == "adam-then-asgd" and not uses_adam(config, state.epoch)
        if is_late:
            if not isinstance(self.optimizer, SGD):
                self.optimizer = build_optimizer(self._model, config, epoch=state.epoch)
            state.averaging.begin(state.step)
        peak = config.asgd_learning_rate if is_late else config.learning_rate
        scale = batch.learning_rate_scale if isinstance(batch, StreamBatch) else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = state.learning_rate.at(state.step + 1, config, peak=peak) * scale

    def after(self) -> None:
        """Take the weights of a step that was made."""
        if self._state.averaging.after_step is not None:
            self.averages.add(self._model)

    @property
    def learning_rate(self) -> float:
        """Of the last step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """For a checkpoint."""
        tensors: dict[str, Mapping[str, Tensor]] = {_OPTIMIZER: optimizer_tensors(self._model, self.optimizer)}
        if self.averages.num_steps:
            tensors[_AVERAGES] = self.averages.means
        return tensors

    def restore(self, checkpoint: Checkpoint) -> None:
        """The inverse of ``tensors``, for the same counters."""
        where = checkpoint.where
        if not isinstance(self.optimizer, SGD):  # without momentum it has no state
            restore_optimizer(self._model, self.optimizer, checkpoint.file(_OPTIMIZER), where=where)
        begun = self._state.averaging.after_step
        if begun is not None and self._state.step > begun:
            self.averages.restore(self._model, checkpoint.file(_AVERAGES), self._state.step - begun, where=where)
