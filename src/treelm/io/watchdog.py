"""Processes that end with the one that started them, however that one ends: also by a signal that cannot be handled."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

_BETWEEN_LOOKS = 0.5  # seconds


def end_with(parent: int) -> None:
    """End this process at once when the process ``parent``, which started it, is gone."""
    _when_gone(parent, partial(os._exit, 1))


def save_and_end_with(parent: int) -> None:
    """Do as at SIGTERM when the process ``parent``, which started this one, is gone: training saves before it ends."""
    _when_gone(parent, partial(os.kill, os.getpid(), signal.SIGTERM))


def _when_gone(parent: int, end: Callable[[], object]) -> None:
    threading.Thread(target=_watch, args=(parent, end), daemon=True).start()


def _watch(parent: int, end: Callable[[], object]) -> None:
    if sys.platform == "win32":  # where the number of the parent stays when it is gone
        import psutil

        with suppress(psutil.NoSuchProcess):
            psutil.Process(parent).wait()
    else:
        while os.getppid() == parent:
            time.sleep(_BETWEEN_LOOKS)
    end()
