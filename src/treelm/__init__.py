"""Language models that know about syntax: train, parse, predict and compare them under the same conditions."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treelm.errors import InputError as InputError
    from treelm.evaluation.frames import compare as compare
    from treelm.evaluation.frames import evaluate as evaluate
    from treelm.inference.loading import load as load
    from treelm.inference.surprisal_table import surprisal_table as surprisal_table
    from treelm.models.base import LanguageModel as LanguageModel
    from treelm.models.persistence.shipped import models as models
    from treelm.models.search.config import SearchConfig as SearchConfig
    from treelm.training.prepare import set_up as set_up
    from treelm.training.recipe import recipes as recipes
    from treelm.training.trainer import train as train
    from treelm.trees.tree import Tree as Tree

__version__ = "0.1.0"

_HOMES = {
    "InputError": "treelm.errors",
    "LanguageModel": "treelm.models.base",
    "SearchConfig": "treelm.models.search.config",
    "Tree": "treelm.trees.tree",
    "compare": "treelm.evaluation.frames",
    "evaluate": "treelm.evaluation.frames",
    "load": "treelm.inference.loading",
    "models": "treelm.models.persistence.shipped",
    "recipes": "treelm.training.recipe",
    "set_up": "treelm.training.prepare",
    "surprisal_table": "treelm.inference.surprisal_table",
    "train": "treelm.training.trainer",
}
__all__ = [
    "InputError",
    "LanguageModel",
    "SearchConfig",
    "Tree",
    "compare",
    "evaluate",
    "load",
    "models",
    "recipes",
    "set_up",
    "surprisal_table",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import treelm`` stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'treelm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, also those that have not been imported yet."""
    return [*__all__, "__version__"]


class ListedPackage(ModuleType):
    """A package of which there is a public function of the same name: ``treelm.models()`` works once it is imported."""

    def __call__(self) -> Any:
        """What the function gives."""
        return __getattr__(self.__name__.rpartition(".")[2])()
