"""Clones of public codes as modules, one beside another: several of them have modules of the same names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from torch import Tensor


def import_public(clones: Path, folder: str, module: str) -> Any:
    """A module of a clone, and not another's of the same name. Raises ``FileNotFoundError`` where there is none."""
    clones = clones.absolute()  # as files of modules are
    if not (clones / folder).is_dir():
        raise FileNotFoundError(f"no folder {folder} in {clones}")
    own = str(clones / folder)
    for name, found in list(sys.modules.items()):
        file = getattr(found, "__file__", None) or ""
        if file.startswith(f"{clones}/") and not file.startswith(f"{own}/"):
            del sys.modules[name]
    if own in sys.path:
        sys.path.remove(own)
    sys.path.insert(0, own)
    return importlib.import_module(module)


def detached(state: Any) -> Any:
    """A state of theirs, of tensors in whatever holds them, without the graph that it came from."""
    if isinstance(state, Tensor):
        return state.detach()
    if isinstance(state, dict):
        return {name: detached(one) for name, one in state.items()}
    return type(state)(detached(one) for one in state) if isinstance(state, (list, tuple)) else state
