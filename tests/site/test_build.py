"""``make docs``: the site is built strictly, from pages, the help of subcommands, docstrings and notebooks."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.site.conftest import ROOT, build
from treelm.cli import NESTED, SUBCOMMANDS

pytestmark = pytest.mark.skipif(
    find_spec("mkdocs") is None or find_spec("mkdocstrings") is None, reason="not installed: pip install 'treelm[docs]'"
)
NOTEBOOKS = ("reading-times", "garden-paths", "minimal-pairs", "own-items")
_SOURCE = re.compile(r'<(?:script|img|source|iframe)\b[^>]*\bsrc="([^"]+)"|<link\b[^>]*\bhref="([^"]+)"[^>]*>')


@pytest.mark.timeout(900)  # notebooks load models; minutes on a machine that has other work too
def test_a_reader_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        for found in _SOURCE.finditer(page.read_text(encoding="utf-8")):
            assert not re.match(r"(?:https?:)?//", found[1] or found[2]), f"{page}: {found[0]}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.timeout(900)
def test_each_subcommand_has_a_page_that_says_what_its_help_says(site: Path) -> None:
    for name in (*SUBCOMMANDS, *NESTED):
        assert (site / "reference" / "commands" / f"{name.replace(' ', '-')}.html").is_file(), name
    page = (site / "reference" / "commands" / "surprisal.html").read_text(encoding="utf-8")
    assert re.search(r"<code>--lag INT</code></td>\s*<td>Add columns NAME_lag1, NAME_lag2", page)
    assert "(default: sentence)" in page
    assert '<a href="../../surprisal.html">Surprisal for reading-time work</a>' in page


@pytest.mark.timeout(900)
def test_every_public_name_can_be_found(site: Path) -> None:
    names = (ROOT / "tests" / "surface" / "python.txt").read_text(encoding="utf-8").splitlines()
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (site / "reference" / "api").glob("*.html")}
    shown = {found for text in pages.values() for found in re.findall(r' id="([\w.]+)"', text)}
    for line in names:
        name, kind = re.split(r"[ (]", f"{line} ")[:2]
        if kind == "class" or "(" in line:
            assert name in shown, name


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_have_been_run(site: Path, name: str) -> None:
    notebook = json.loads((site / "tutorials" / f"{name}.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell["outputs"]) for cell in cells) >= 4
    page = (site / "tutorials" / f"{name}.html").read_text(encoding="utf-8")
    assert page.count('<div class="highlight">') + page.count("<table>") >= len(cells) + 4, "outputs stand in the page"
    assert f'<a href="{name}.ipynb" download>' in page


def test_a_page_without_a_place_and_a_dead_link_fail_in_one_line(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "README.md").write_text("# Start\n\n[code](../src/gone.py) [page](gone.md) [part](#nowhere)\n")
    (docs / "lost.md").write_text("# Lost\n")
    config = tmp_path / "mkdocs.yml"
    hooks = (ROOT / "scripts" / "site" / "hooks.py").as_posix()
    config.write_text(
        f"INHERIT: {(ROOT / 'mkdocs.yml').as_posix()}\nhooks: ['{hooks}']\ndocs_dir: docs\nnav: [README.md]\n"
        "plugins: []\nwatch: []\nextra_css: []\nextra_javascript: []\n"
    )
    done = build(config, tmp_path / "site")
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert done.returncode != 0
    assert len(warnings) == 4, done.stderr
    (lost,) = (line for line in warnings if "lost.md" in line)
    assert lost.endswith(f"docs/lost.md has no place in the site: add it to `nav` in {config}")
    for target in ("docs/README.md: no ../src/gone.py: mend the link, or take it out", "'gone.md'", "'#nowhere'"):
        assert any(target in line for line in warnings), target
