"""Reference pages of tables: recipes, columns of surprisals, metrics.

Recipes are those of ``treelm recipes``. Columns and metrics are those of the snapshots of the public surface and of the
package; one without a description is warned of, which a strict build refuses.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from treelm.evaluation.span_protocols import PROTOCOLS
from treelm.inference.predictors import PREDICTORS
from treelm.models.measures import MEASURES
from treelm.training.recipe import packaged_recipes

log = logging.getLogger("mkdocs.hooks.treelm.tables")
HERE = Path(__file__).parent
SURFACE = HERE.parent.parent / "tests" / "surface" / "columns.txt"
_PROTOCOL = re.compile(rf", (?:{'|'.join(PROTOCOLS)})$|, in a stream.*$")


def pages() -> dict[str, tuple[str, str]]:
    """Title and Markdown of each page by file name."""
    described: dict[str, dict[str, str]] = tomllib.loads((HERE / "tables.toml").read_text(encoding="utf-8"))
    return {
        "recipes.md": ("Recipes", _recipes()),
        "columns.md": ("Columns of surprisals", _described("columns", column_names(), described)),
        "metrics.md": ("Metrics", _described("metrics", metric_names(), described)),
    }


def column_names() -> set[str]:
    """Columns of ``treelm surprisal``."""
    return {*_surface("surprisal"), *MEASURES, *PREDICTORS}


def metric_names() -> set[str]:
    """Metrics of ``treelm evaluate --summary``, without protocol or rows of a stream."""
    return {_PROTOCOL.sub("", name) for name in _surface("evaluate")}


def _surface(subcommand: str) -> set[str]:
    lines = SURFACE.read_text(encoding="utf-8").splitlines()
    return {found[1] for line in lines if (found := re.match(rf"{subcommand} \S+ (?:--\w+ )?(.+)", line))}


def _recipes() -> str:
    code = "```shell\ntreelm train rnng-gum-open --output runs/rnng\n```"
    head = f"# Recipes\n\n{code}\n\n`treelm recipes NAME` prints one. Settings: [Train a model](../../training.md).\n"
    rows = [[f"`{name}`", *others] for name, *others in packaged_recipes()]
    return f"{head}\n{_table(('recipe', 'system', 'corpus', 'time', 'purpose'), rows)}"


def _described(kind: str, names: set[str], described: dict[str, dict[str, str]]) -> str:
    """A page of names with what they mean, in the order of the descriptions."""
    rows = described[kind]
    for name in sorted(names - set(rows)):
        log.warning(f"scripts/site/tables.toml: no description of {name}, one of the {kind}: add it")
    cells = [[f"`{name}`", *rows[name].split(": ", 1)] for name in rows]
    return f"{described['pages'][kind]}\n{_table(('name', 'of', 'meaning'), cells)}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "| " + " | ".join("---" for _ in head) + " |", *lines[1:]]) + "\n"
