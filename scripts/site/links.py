"""Links between files of the repository, which hold on GitHub, as links of the site."""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

log = logging.getLogger("mkdocs.hooks.treelm.links")
OUTSIDE = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "tests/README.md": "project/tests.md",
}
"""Pages of the site that lie outside docs/, and where they stand in it."""
_START = "README.md"
"""The repository's first page, for which the site has one of its own by the same name."""
_CODE_OR_LINK = re.compile(
    r"^ *```.*?^ *```[^\n]*$|``[^`].*?``|`[^`\n]+`|(?<![!\\])\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)",
    re.MULTILINE | re.DOTALL,
)


def relink(markdown: str, uri: str, *, root: Path, repository: str | None) -> str:
    """Rewrite the links of a page of the site so that they lead where they lead in the repository.

    What is no page of the site becomes a link into the ``repository``, or mere text where there is none. Warns of a
    link that leads nowhere; mkdocs looks after those within docs/.
    """
    source = next((path for path, place in OUTSIDE.items() if place == uri), f"docs/{uri}")

    def moved(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        if target is None or target.startswith("#") or re.match(r"\w+:", target):
            return found[0]
        path, hash_, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if place == _START or place in OUTSIDE:
            there = OUTSIDE.get(place, _START)
        elif place.startswith("docs/"):
            there = place.removeprefix("docs/")
        elif (root / place).exists():
            return f"[{text}]({repository.rstrip('/')}/blob/main/{place})" if repository else text
        else:
            log.warning(f"{source}: no {target}: mend the link, or take it out")
            return text
        return f"[{text}]({posixpath.relpath(there, posixpath.dirname(uri) or '.')}{hash_}{anchor})"

    return _CODE_OR_LINK.sub(moved, markdown)
