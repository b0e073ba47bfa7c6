"""Memory of the process: how much it has held, and keeping what it freed."""

from __future__ import annotations

import ctypes
import resource
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # mallopt(3)


def keep_freed_memory() -> bool:
    """Ask glibc to reuse freed memory instead of returning it to the system; returns whether it agreed.

    Every training step allocates the same large arrays. By default each is mapped afresh, and the first touch of every
    page costs a fault. The process then keeps its peak size. Elsewhere than on Linux with glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = {_MMAP_THRESHOLD: 2**30, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 2**26}
    return all(mallopt(option, value) == 1 for option, value in settings.items())


def process_peak_mb() -> float:
    """The most memory that this process has held so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, kibibytes elsewhere
