"""Recipes that come with the package: one TOML file each, loaded by ``treelm.training.recipe.load_recipe``."""
