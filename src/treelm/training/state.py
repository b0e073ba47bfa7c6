"""What training counts: steps, learning rates over time, early stopping. JSON values, so that it resumes exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from treelm.training.config import TrainingConfig
from treelm.training.metrics import LossSum

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


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

    def at(
        self, step: int, config: TrainingConfig, num_steps: int | None = None, *, peak: float | None = None
    ) -> float:
        """The learning rate of an update; the first one is step 1.

        ``num_steps`` is the length of the run, of which a schedule may be shares; ``peak`` replaces the peak learning
        rate of the config.
        """
        factors = {"plateau": self.factor, "warmup": warmup_factor(step, config, num_steps)}
        return (config.learning_rate if peak is None else peak) * factors.get(config.schedule, 1.0)

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


def warmup_factor(step: int, config: TrainingConfig, num_steps: int | None = None) -> float:
    """Linear rise to 1 over the warm-up; then constant, 1/sqrt(step), or linear or half a cosine to 0."""
    warmup, end = config.schedule_steps(num_steps)
    if step <= warmup:
        return step / warmup
    if config.decay == "inverse-sqrt":  # Vaswani et al. 2017, section 5.3, scaled to a peak of 1
        return math.sqrt(max(warmup, 1) / step)
    if end is not None:
        left = max(0.0, (end - step) / (end - warmup))
        return left if config.decay == "linear" else 0.5 * (1 - math.cos(math.pi * left))
    return 1.0


@dataclass
class Interval:
    """Sums over the steps that the next line of ``metrics.jsonl`` averages."""

    loss: LossSum = field(default_factory=LossSum)
    gradient_norm: Amount = 0.0  # sum over steps
    num_steps: Count = 0
    seconds: Amount = 0.0

    def add(self, loss: LossSum, gradient_norm: float, seconds: float) -> None:
        """Take in one more step."""
        self.loss.merge(loss)
        self.gradient_norm += gradient_norm
        self.num_steps += 1
        self.seconds += seconds


@dataclass
class TrainingState:
    """Counters, schedule, best score, position in the data and in the log."""

    step: Count = 0
    epoch: Count = 0  # complete ones
    step_in_epoch: Count = 0
    seconds: Amount = 0.0
    cpu_seconds: Amount = 0.0  # processor time of updates
    best_loss: float | None = None  # dev, nats a word
    best_f1: float | None = None  # dev, if models are selected by it
    learning_rate: LearningRate = field(default_factory=LearningRate)
    early_stopping: Patience = field(default_factory=Patience)
    averaging: AveragingStart = field(default_factory=AveragingStart)
    interval: Interval = field(default_factory=Interval)
    position: dict[str, Any] = field(default_factory=dict)
    metrics_bytes: Count = 0

    def num_steps(self, config: TrainingConfig, steps_of_epoch: int) -> int | None:
        """Steps of the whole run, if epochs that are left have as many as the present one; None without a limit."""
        if config.epochs is None:
            return config.max_steps
        by_epochs = self.step - self.step_in_epoch + (config.epochs - self.epoch) * steps_of_epoch
        return min(by_epochs, config.max_steps or by_epochs)

    def is_best(self, loss: float, f1: float | None) -> bool:
        """Tell whether this dev loss, or F1 if there is one, is the best so far; keeps the best of both."""
        better_loss = self.best_loss is None or loss < self.best_loss
        better_f1 = f1 is not None and (self.best_f1 is None or f1 > self.best_f1)
        if better_loss:
            self.best_loss = loss
        if better_f1:
            self.best_f1 = f1
        return better_loss if f1 is None else better_f1

    def reason_to_stop(self, config: TrainingConfig) -> str | None:
        """Reason why training is over, or None."""
        limits: dict[str, float] = {"epochs": self.epoch, "max_steps": self.step}
        if self.step:  # however short the time: without a step there would be no model
            limits |= {"max_minutes": self.seconds / 60, "max_cpu_minutes": self.cpu_seconds / 60}
        for name, done in limits.items():
            limit = getattr(config, name)
            if limit is not None and done >= limit:
                return f"{name} = {limit} are {'over' if name.endswith('minutes') else 'done'}"
        num_worse = self.early_stopping.num_worse
        if self.step and config.stop_after is not None and num_worse >= config.stop_after:
            return f"dev has not improved in {num_worse} evaluations"
        return None
