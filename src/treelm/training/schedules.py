"""Learning rates over time, and early stopping. Small states of JSON values, so that they resume exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from treelm.training.config import TrainingConfig


@dataclass
class Patience:
    """Counts evaluations in a row that were not better than the best before them."""

    best: float | None = None
    num_worse: int = 0

    def observe(self, value: float) -> None:
        """Take in one more dev loss."""
        if self.best is None or value < self.best:
            self.best, self.num_worse = value, 0
        else:
            self.num_worse += 1


@dataclass
class LearningRate:
    """The learning rate as a function of the step and of the dev losses seen so far."""

    factor: float = 1.0  # of the plateau schedule
    plateau: Patience = field(default_factory=Patience)

    def at(self, step: int, config: TrainingConfig, *, peak: float | None = None) -> float:
        """The learning rate of an update; the first one is step 1. ``peak`` stands in for that of the config."""
        peak = config.learning_rate if peak is None else peak
        if config.schedule == "plateau":
            return peak * self.factor
        if config.schedule == "warmup":
            return peak * warmup_factor(step, config)
        return peak

    def observe(self, dev_loss: float, config: TrainingConfig) -> None:
        """Take in one more dev loss; the plateau schedule lowers the learning rate when patience is over."""
        self.plateau.observe(dev_loss)
        if config.schedule == "plateau" and self.plateau.num_worse > config.plateau_patience:
            self.factor *= config.plateau_factor
            self.plateau.num_worse = 0


@dataclass
class AveragingStart:
    """The step after which weights are averaged, for the optimisers with "asgd" in their names."""

    earlier: list[float] = field(default_factory=list)  # planned dev losses so far
    after_step: int | None = None  # the mean is over the weights of all steps behind this one

    def begin(self, step: int) -> None:
        """Average from the next step on, unless it has begun already."""
        if self.after_step is None:
            self.after_step = step

    def observe(self, dev_loss: float, step: int, config: TrainingConfig) -> None:
        """Take in one more planned dev loss (Merity et al. 2018, Algorithm 1)."""
        best_before = min(self.earlier[: -config.nonmonotone_interval], default=None)
        if config.optimizer == "nt-asgd" and best_before is not None and dev_loss > best_before:
            self.begin(step)
        self.earlier.append(dev_loss)


def warmup_factor(step: int, config: TrainingConfig) -> float:
    """Linear rise to 1 at ``warmup_steps``; then constant, 1/sqrt(step), or linear or half a cosine to 0."""
    warmup = config.warmup_steps
    if step <= warmup:
        return step / warmup
    if config.decay == "inverse-sqrt":  # Vaswani et al. 2017, section 5.3, scaled to a peak of 1
        return math.sqrt(max(warmup, 1) / step)
    if config.decay in ("linear", "cosine") and config.decay_steps is not None:
        left = max(0.0, (config.decay_steps - step) / (config.decay_steps - warmup))
        return left if config.decay == "linear" else 0.5 * (1 - math.cos(math.pi * left))
    return 1.0
