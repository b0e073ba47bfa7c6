"""The old name of ``treelm.evaluation.comparison.metrics``: deprecated, and gone with the release after the next."""

from __future__ import annotations

from typing import Any

from treelm.deprecation import warn_renamed
from treelm.evaluation.comparison import metrics

_RENAMED = {"F1Figure": "F1Metric", "training_figures": "training_metrics"} | {
    f"{kind}Figures": f"{kind}Metrics" for kind in ("SyntaxGym", "Pair", "Run")
}


def __getattr__(name: str) -> Any:
    """Give what has moved, with a ``DeprecationWarning``."""
    found = getattr(metrics, _RENAMED.get(name, name))
    warn_renamed(__name__, metrics.__name__)
    return found
