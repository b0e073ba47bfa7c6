"""Pages of the command line, from what the subcommands' own ``--help`` says."""

from __future__ import annotations

import html
import os
import re
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest.mock import patch

from treelm.cli import NESTED, SUBCOMMANDS, run

DOCS = Path(__file__).parent.parent.parent / "docs"
_WIDE = "4000"
"""Columns of a terminal in which nothing has to be broken."""


def pages() -> dict[str, tuple[str, str]]:
    """Title and Markdown of the page of each subcommand, by file name, and of the list of all."""
    names = [name for one in SUBCOMMANDS for name in (one, *(nested for nested in NESTED if nested.split()[0] == one))]
    rows = "".join(f"| [`treelm {one}`]({one}.md) | {_cell(what)} |\n" for one, what in SUBCOMMANDS.items())
    head = "# Command line\n\nWhat `treelm SUBCOMMAND --help` says.\n\n| subcommand | what it does |\n| --- | --- |\n"
    made = {"README.md": ("All subcommands", head + rows)}
    return made | {f"{name.replace(' ', '-')}.md": (f"treelm {name}", page(name, help_of(name))) for name in names}


def help_of(name: str) -> str:
    """What a subcommand prints when it is asked for help."""
    out = TextIOWrapper(BytesIO(), encoding="utf-8")
    terminal = {"COLUMNS": _WIDE, "TERM": "dumb", "NO_COLOR": "1"}
    with patch.dict(os.environ, terminal), redirect_stdout(out):
        try:
            code = run([*name.split(), "--help"])
        except SystemExit as end:
            code = end.code
    if code:
        raise ValueError(f"treelm {name} --help ended with {code}")
    out.flush()
    return out.buffer.getvalue().decode()  # type: ignore[attr-defined]


def page(name: str, text: str) -> str:
    """Markdown of the help of a subcommand: usage, description, examples, and a table for each group of arguments."""
    before, *groups = re.split(r"^(?=(?:positional arguments|options):$)", text, flags=re.MULTILINE)
    usage, *paragraphs = filter(None, (part.strip() for part in before.split("\n\n")))
    examples = [part.removeprefix("Example: ") for part in paragraphs if part.startswith("Example: ")]
    said = [_text(part) for part in paragraphs if not part.startswith("Example: ")]
    shown = [f"```text\n{usage.removeprefix('usage: ')}\n```", *said]
    if examples:
        shown.append("```sh\n" + "\n".join(examples) + "\n```")
    for group in groups:
        title, *lines = group.splitlines()
        rows = [f"| <code>{_cell(flag)}</code> | {_text(what)} |" for flag, what in _entries(lines)]
        head = [f"## {title.removesuffix(':').capitalize()}", "", "| argument | what it is |", "| --- | --- |"]
        shown.append("\n".join([*head, *rows]))
    return "\n\n".join([f"# `treelm {name}`", *shown]) + "\n"


def _entries(lines: list[str]) -> list[tuple[str, str]]:
    """Arguments of a group with their descriptions; what is further in belongs to the argument above."""
    found: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith("   "):
            flag, what = found[-1]
            found[-1] = flag, f"{what} {line.strip()}".strip()
        elif line:
            flag, _, what = line.strip().partition("  ")
            found.append((flag, what.strip()))
    return [(flag, re.sub(r" *\(default: (None|'')?\)$", "", what)) for flag, what in found]


def _cell(text: str) -> str:
    """Text that Markdown shows as it stands, also in a table."""
    return re.sub(r"[\\`*_\[\]|{}]", lambda sign: f"&#{ord(sign[0])};", html.escape(text, quote=False))


def _text(text: str) -> str:
    """The same, with links to the pages that it names."""
    return re.sub(r"\bdocs/([\w/-]+\.md)", _link, _cell(text).replace("&#95;", "_"))


def _link(page: re.Match[str]) -> str:
    title = (DOCS / page[1]).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    return f"[{title}](../../{page[1]})"
