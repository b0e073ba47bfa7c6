"""Language models that know about syntax: train, parse, predict and compare them under the same conditions."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treelm.errors import InputError as InputError
    from treelm.inference.loading import load as load
    from treelm.inference.surprisal_table import surprisal_table as surprisal_table
    from treelm.models.base import LanguageModel as LanguageModel
    from treelm.models.search.config import SearchConfig as SearchConfig
    from treelm.trees.tree import Tree as Tree

__version__ = "0.1.0"

_HOMES = {
    "InputError": "treelm.errors",
    "LanguageModel": "treelm.models.base",
    "SearchConfig": "treelm.models.search.config",
    "Tree": "treelm.trees.tree",
    "load": "treelm.inference.loading",
    "surprisal_table": "treelm.inference.surprisal_table",
}
__all__ = ["InputError", "LanguageModel", "SearchConfig", "Tree", "load", "surprisal_table"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import treelm`` stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'treelm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
