"""Recipes that come with the package: one TOML file each, loaded by ``treelm.training.recipe.load_recipe``."""

import sys

from treelm import ListedPackage

sys.modules[__name__].__class__ = ListedPackage
