"""Names of models for people: the system, and the run only where several are of one system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def display_names(models: Sequence[tuple[str, str]]) -> list[str]:
    """What to call models that are given as (system, name of the run), the latter all different.

    >>> display_names([("rnng", "demo"), ("lstm", "big"), ("lstm", "small")])
    ['rnng', 'lstm (big)', 'lstm (small)']
    """
    counts = Counter(system for system, _ in models)
    return [system if counts[system] == 1 else f"{system} ({name})" for system, name in models]
