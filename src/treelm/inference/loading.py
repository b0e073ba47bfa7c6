"""Loading a trained model."""

from __future__ import annotations

from pathlib import Path

from treelm.models.base import SyntacticLM


def load(run: str | Path) -> SyntacticLM:
    """The model of a run folder (or of any folder that ``save_pretrained`` wrote), in evaluation mode.

    Raises ``InputError`` when the folder is missing, incomplete, damaged, or made by a newer version.
    """
    from treelm.models.storage import load_model

    return load_model(Path(run)).eval()
