"""Clones of public codes as modules, one beside another: several of them have modules of the same names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from torch import Tensor

_IMPORTED_FROM: set[str] = set()
"""Folders of clones of which modules may have been imported."""


def import_public(clones: Path, folder: str, module: str) -> Any:
    """A module of a clone, and not another's of the same name. Raises ``FileNotFoundError`` where there is none."""
    clones = clones.absolute()  # as files of modules are
    if not (clones / folder).is_dir():
        raise FileNotFoundError(f"no folder {folder} in {clones}")
    own = str(clones / folder)
    _IMPORTED_FROM.add(own)
    others = tuple(f"{one}/" for one in _IMPORTED_FROM - {own})  # not all of CODE: an environment may be there too
    for name, found in list(sys.modules.items()):
        if (getattr(found, "__file__", None) or "").startswith(others):
            del sys.modules[name]
    if own in sys.path:
        sys.path.remove(own)
    sys.path.insert(0, own)
    return importlib.import_module(module)


def stand_in(*modules: str) -> None:
    """Let nothing be found under these names but a stand-in: what is imported and not measured."""
    for module in modules:
        sys.modules[module] = MagicMock()


@dataclass(frozen=True, kw_only=True)
class Update:
    """A whole update of weights, with everything ready that is not measured."""

    words: int
    run: Callable[[], float]
    """Does it, and gives its loss."""
    filled: float = 1.0
    """Share of the positions of its tensors that are no padding."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A network with updates, one after another."""

    num_parameters: int
    updates: Iterator[Update]


def detached(state: Any) -> Any:
    """A state of theirs, of tensors in whatever holds them, without the graph that it came from."""
    if isinstance(state, Tensor):
        return state.detach()
    if isinstance(state, dict):
        return {name: detached(one) for name, one in state.items()}
    return type(state)(detached(one) for one in state) if isinstance(state, (list, tuple)) else state
