"""Notebooks: pages of docs/tutorials with code in Python, executed when the site is built; their source is Markdown."""

from __future__ import annotations

import base64
import html
import os
import re
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import jupytext
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = "tutorials/"
SECONDS_PER_CELL = 240
"""Only so that what hangs is ended."""
_FENCE = re.compile(r"^```python\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)


def is_notebook(uri: str, text: str) -> bool:
    """Whether a page is one that is executed."""
    return uri.startswith(FOLDER) and _FENCE.search(text) is not None


def file_name(uri: str) -> str:
    """The place of a page's notebook with its outputs in the site."""
    return uri.removesuffix(".md") + ".ipynb"


def execute(text: str, *, name: str) -> str:
    """Run a page's code from top to bottom in an empty folder; gives the notebook with its outputs as JSON.

    Raises ``nbclient.exceptions.CellExecutionError`` where a cell fails.
    """
    notebook = jupytext.reads(text, fmt="md")
    variables = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore::FutureWarning"}
    with TemporaryDirectory() as sockets, TemporaryDirectory() as folder, patch.dict(os.environ, variables):
        # Over sockets in a folder that others cannot read, so that no port is opened
        transport = {} if os.name == "nt" else {"transport": "ipc", "ip": f"{sockets}/kernel"}
        NotebookClient(
            notebook,
            timeout=SECONDS_PER_CELL,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            config=Config({"KernelManager": transport}),
        ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    return nbformat.writes(notebook)


def _joined(outputs: Sequence[Any]) -> list[Any]:
    """Outputs without what programs say of their progress; text that came in pieces is one."""
    joined: list[Any] = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        if joined and output.get("name") == joined[-1].get("name") == "stdout":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def with_outputs(markdown: str, executed: str, download: str) -> str:
    """The page with each cell's outputs below it, and a link to the notebook above."""
    cells = [cell for cell in nbformat.reads(executed, as_version=4).cells if cell.cell_type == "code"]
    shown = iter(cells)

    def below(fence: re.Match[str]) -> str:
        return "\n\n".join([fence[0].rstrip("\n"), *filter(None, map(_shown, next(shown).outputs))]) + "\n"

    title, _, rest = _FENCE.sub(below, markdown).partition("\n")
    note = f'<p class="notebook"><a href="{download}" download>This page as a Jupyter notebook</a></p>'
    return f"{title}\n\n{note}\n{rest}"


def _shown(output: Any) -> str:
    """An output as Markdown: a picture, a table, or text."""
    if output.output_type == "stream":
        return _as_text(output.text)
    data = output.get("data", {})
    if "image/svg+xml" in data:
        svg = data["image/svg+xml"]
        title = re.search("<title>(.*?)</title>", svg, re.DOTALL)
        source = base64.b64encode(svg.encode()).decode()
        alt = html.escape(html.unescape(title[1])) if title else "figure"
        return f'<p><img class="figure" alt="{alt}" src="data:image/svg+xml;base64,{source}"></p>'
    if "text/html" in data:
        table = re.sub(r"<style.*?</style>|^\s+|\n", "", data["text/html"], flags=re.DOTALL | re.MULTILINE)
        return re.sub(r' border="1" class="dataframe"| style="[^"]*"', "", table).replace("<th></th>", "<td></td>")
    return _as_text(data.get("text/plain", ""))


def _as_text(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""
