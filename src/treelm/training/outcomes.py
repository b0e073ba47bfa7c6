"""Exceptions of training that does not end by itself, and the exit codes that the command line gives for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar


class TrainingInterrupted(Exception):
    """A signal asked for an end; the step was finished and a checkpoint written. Resuming continues bit for bit."""

    exit_code: ClassVar[int] = 75  # EX_TEMPFAIL of sysexits.h: try again

    def __init__(self, signal_name: str, step: int) -> None:
        """Name the signal and the last finished step."""
        super().__init__(f"{signal_name}: stopped after step {step} and saved; resume to continue")


class ProcessLost(Exception):
    """Another process of the run has ended or does not answer, so that this one cannot go on."""

    exit_code: ClassVar[int] = 71  # EX_OSERR

    def __init__(self, timeout_minutes: float) -> None:
        """Say how long was waited at most."""
        super().__init__(
            f"another process of the run has ended, or has not answered for {timeout_minutes:g} minutes; "
            "resume to continue from the last checkpoint"
        )


class NonFiniteError(Exception):
    """A loss, gradient or weight is infinite or not a number. The update was not made and nothing was saved."""

    exit_code: ClassVar[int] = 65  # EX_DATAERR

    def __init__(self, what: str, *, step: int, names: Sequence[str] = ()) -> None:
        """Say what is not finite, at which step, and in which sentences (``file:line``)."""
        self.what, self.step, self.names = what, step, tuple(names)
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        batch = f" in a batch of {len(names)} sentences ({shown})" if names else ""
        remedy = "start again with a lower learning_rate or gradient_clip, or in precision fp32"
        super().__init__(f"step {step}: {what}{batch}; no update was made, {remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes."""
        return partial(NonFiniteError, self.what, step=self.step, names=self.names), ()
