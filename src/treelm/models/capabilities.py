"""What systems can do besides giving words probabilities: small classes to inherit from, asked by ``isinstance``."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING

from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.models.base import LanguageModel
    from treelm.models.search.config import SearchConfig


class Searching(ABC):
    """Scores and parses by a search over partial analyses."""

    search: SearchConfig
    """The search from now on. Setting it raises ``InputError`` for a method that the system does not know."""


def set_search(lm: LanguageModel, config: SearchConfig) -> None:
    """Have a model search so, if it searches.

    Raises ``InputError`` for what no system without a search may be asked: another method than a beam, half precision.
    """
    if isinstance(lm, Searching):
        lm.search = config
    elif config.method != "beam" or config.precision != "full":
        asked = config.method if config.method != "beam" else config.precision
        raise InputError(f"search by {asked!r}, but {lm.system} scores without a search", remedy="remove this option")
