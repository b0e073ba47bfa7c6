"""How a row of ``gpu.py`` is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

WARM_UP_STEPS = 3
DIFFERENCE = "relative difference"  # a unit of rows that compare instead of measuring a speed


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where and how long everything is measured."""

    device: str
    small: bool
    seconds: float
    public: Path | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was found: ``speed`` in units a second, the median over steps of their own quotients."""

    name: str
    unit: str = ""
    speed: float = 0.0
    step: float = 0.0  # seconds, median
    num_steps: int = 0
    peak_mb: float = 0.0  # of the device
    error: str | None = None

    def line(self) -> str:
        """For the terminal."""
        if self.error is not None:
            return f"{self.name}: {self.error.splitlines()[-1] if self.error else 'failed'}"
        return f"{self.name}: {self.amount}, {1000 * self.step:.1f} ms a step, {self.peak_mb:,.0f} MB"

    @property
    def amount(self) -> str:
        """The speed, or the difference, with its unit."""
        return f"{self.speed:.0e} {self.unit}" if self.unit == DIFFERENCE else f"{self.speed:,.0f} {self.unit}/s"


@dataclass(frozen=True, kw_only=True)
class Work:
    """A step that can be repeated; it returns how many units it dealt with."""

    name: str
    unit: str
    step: Callable[[], int]
    warm_up: int = WARM_UP_STEPS

    def measure(self, settings: Settings) -> Row:
        """Repeat the step for the time of a row, at least once, and wait for the device after each."""
        on_gpu = settings.device == "cuda"
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        begin = perf_counter()
        for number in range(1 if settings.small else self.warm_up):
            if number and perf_counter() - begin > 2 * settings.seconds:
                break
            self.step()
        speeds, times = [], []
        begin = perf_counter()
        while not times or (perf_counter() - begin < settings.seconds and not settings.small):
            wait(settings.device)
            start = perf_counter()
            num_units = self.step()
            wait(settings.device)
            times.append(perf_counter() - start)
            speeds.append(num_units / times[-1])
        return Row(
            name=self.name,
            unit=self.unit,
            speed=median(speeds),
            step=median(times),
            num_steps=len(times),
            peak_mb=torch.cuda.max_memory_allocated() / 2**20 if on_gpu else 0.0,
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two computations of the same numbers. The row is their largest relative difference."""

    name: str
    compute: Callable[[], tuple[Sequence[float], Sequence[float]]]
    most: float
    """Above it the row fails."""

    def measure(self, settings: Settings) -> Row:
        """Compare once."""
        begin = perf_counter()
        found, expected = self.compute()
        largest = max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))
        if not largest <= self.most:
            raise ValueError(f"a relative difference of {largest:.1e}, more than {self.most:.0e}")
        return Row(name=self.name, unit=DIFFERENCE, speed=largest, step=perf_counter() - begin, num_steps=1)


def failed(name: str, error: Exception) -> Row:
    """The row of what could not be measured."""
    return Row(name=name, error=f"{type(error).__name__}: {str(error)[:600]}")


def wait(device: str) -> None:
    """Until the device has done everything."""
    if device == "cuda":
        torch.cuda.synchronize()


def device_name(device: str) -> str:
    """What the device is called."""
    if device == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return "no GPU" if device == "cuda" else "CPU"
