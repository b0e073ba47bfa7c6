"""Exceptions of training that does not end by itself, and the exit codes that the command line gives for them."""

from __future__ import annotations

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


class NonFiniteError(Exception):
    """A loss, gradient or weight is infinite or not a number. The update was not made and nothing was saved."""

    exit_code: ClassVar[int] = 65  # EX_DATAERR

    def __init__(self, what: str, step: int, names: tuple[str, ...] = ()) -> None:
        """Say what is not finite, at which step, and in which sentences (``file:line``)."""
        super().__init__(what, step, names)  # which is how it travels between processes
        self.what, self.step, self.names = what, step, names

    def __str__(self) -> str:
        """One line with a remedy."""
        shown = ", ".join(self.names[:3]) + (f" and {len(self.names) - 3} more" if len(self.names) > 3 else "")
        batch = f" in a batch of {len(self.names)} sentences ({shown})" if self.names else ""
        remedy = "start again with a lower learning_rate or gradient_clip, or in precision fp32"
        return f"step {self.step}: {self.what}{batch}; no update was made, {remedy}"
