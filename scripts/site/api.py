"""Pages of the API, from docstrings: the public modules, which the snapshots of the public surface name too."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parent.parent.parent
log = logging.getLogger("mkdocs.hooks.treelm.api")
_PACKAGE = "treelm"
_PROMPTS = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


def public_modules() -> tuple[str, ...]:
    """Names of the modules that others may rely on."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    from tests.surface.collect import MODULES

    return MODULES


def pages() -> dict[str, tuple[str, str]]:
    """Title and Markdown of the page of each public module, by file name."""
    return {f"{'README' if name == _PACKAGE else name}.md": (name, _page(name)) for name in public_modules()}


def _page(name: str) -> str:
    if name != _PACKAGE:
        hidden = "      show_root_heading: false\n      show_root_toc_entry: false\n"  # the title says it
        return f"# `{name}`\n\n::: {name}\n    options:\n{hidden}"
    import treelm

    parts = [f"{_place(one)}\n    options:\n      heading_level: 2\n" for one in treelm.__all__]
    return "\n\n".join([f"# `{name}`\n\n{treelm.__doc__}", *parts])


def _place(name: str) -> str:
    """Where a public name is documented: in its home, under an anchor, if a package has the same name."""
    import treelm

    if (Path(treelm.__file__).parent / name).is_dir():
        return f'<a id="{_PACKAGE}.{name}"></a>\n\n::: {treelm._HOMES[name]}.{name}'
    return f"::: {_PACKAGE}.{name}"


class Docstrings(griffe.Extension):
    """Shows examples of docstrings as code, and warns of public names without one, which a strict build refuses."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Put fences around what stands behind prompts: Markdown would take it for a quotation."""
        if obj.docstring is not None:
            obj.docstring.value = with_fences(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Look at the public names once all of the package has been read."""
        if pkg.path == _PACKAGE:
            for name in public_modules():
                module = pkg if name == _PACKAGE else pkg[name.removeprefix(f"{_PACKAGE}.")]
                for found in undocumented(module):
                    log.warning(f"{found.path} ({found.relative_filepath}:{found.lineno}) has no docstring: write one")


def with_fences(docstring: str) -> str:
    """Mark the examples of a docstring as Python.

    >>> with_fences("Add.\\n\\n>>> 1 + 1\\n2")
    'Add.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    return _PROMPTS.sub(lambda found: f"```pycon\n{found[0]}\n```", docstring)


def undocumented(module: griffe.Module | griffe.Class) -> list[griffe.Object]:
    """Classes, functions, methods and properties of a module that are its own and public, without a docstring.

    Fields stand in the docstring of their class.
    """
    own = [one for name, one in module.members.items() if not name.startswith("_") and not one.is_alias]
    bare = (one for one in own if not one.has_docstring)
    found = [one for one in bare if one.is_class or one.is_function or "property" in one.labels]
    inner = [deeper for one in own if one.is_class for deeper in undocumented(one)]
    return [*found, *inner]
