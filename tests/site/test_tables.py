"""Reference pages of recipes, columns and metrics."""

import logging
import sys

import pytest

from tests.site.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts" / "site"))
import tables

from treelm.training.recipe import recipe_names


def test_every_recipe_column_and_metric_has_a_row(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        pages = {name: text for name, (_, text) in tables.pages().items()}
    assert caplog.records == []
    expected = {
        "recipes.md": set(recipe_names()),
        "columns.md": tables.column_names(),
        "metrics.md": tables.metric_names(),
    }
    for page, names in expected.items():
        assert names
        assert not [name for name in names if f"| `{name}` | " not in pages[page]]
