"""``python -m tests.papers.pages`` writes what pages say of the papers, from the declarations and the results kept.

It stands between two comments in the ``PAGES`` below; the rest of a page is by hand.
"""

from collections.abc import Iterator
from pathlib import Path

from treelm.evaluation.tables import Row, Table
from treelm.papers.data import paper_values
from treelm.papers.declaration import Column, load_paper
from treelm.papers.results import load_kept

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- by tests/papers/pages.py -->\n", "<!-- end -->\n"
PAPERS = ("rnng", "som", "prpn", "palm")


def contents() -> str:
    """The papers with their tables and figures."""
    rows: list[Row] = [
        [
            ("paper", f"`{paper}`: {paper_values(paper)['paper']}"),
            ("in its order", ", ".join(one.name for one in load_paper(paper))),
        ]
        for paper in PAPERS
    ]
    return Table.of(rows).to_markdown()


def results() -> str:
    """What stand-ins gave, beside what is printed."""
    return "\n".join(part for paper in PAPERS for part in _of_paper(paper))


def heading(column: Column) -> str:
    """The name of a column, marked where the paper has none."""
    return f"{column.name}, not in the paper" if column.added else column.name


def _of_paper(paper: str) -> Iterator[str]:
    yield f"## `{paper}`: {paper_values(paper)['paper']}\n"
    kept = load_kept(paper)
    for table in load_paper(paper):
        if table.name not in kept:
            continue
        found = kept[table.name]
        rows: list[Row] = []
        for row in table.rows:
            texts, printed = table.texts(found.rows.get(row.name, "")), table.printed(row)
            if texts:
                shown = {name: f"{text} ({printed[name]})" if name in printed else text for name, text in texts.items()}
                label = f"{row.name}, not in the paper" if row.added else row.name
                rows.append([("", label), *((heading(one), shown.get(one.name, "")) for one in table.columns)])
        columns = [n for n, (name, _) in enumerate(rows[0]) if not name or any(row[n][1] for row in rows)]
        text = Table.of([[row[n] for n in columns] for row in rows]).to_markdown()
        yield f"**{table.name}: {table.title}** ({found.setting}; {found.made})\n\n{text}"


PAGES = {"reproduce.md": contents, "research/reproduced-small.md": results}


def page(name: str) -> str:
    """A page as it should be."""
    before, _, rest = (DOCS / name).read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{PAGES[name]()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(page(name), encoding="utf-8")
