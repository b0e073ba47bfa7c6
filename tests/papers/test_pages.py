"""Pages say of the papers what is declared and kept."""

import pytest

from tests.papers.pages import DOCS, PAGES, PAPERS, page
from treelm.papers.declaration import load_paper
from treelm.papers.results import load_kept


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == page(name), "run python -m tests.papers.pages"


@pytest.mark.parametrize("paper", PAPERS)
def test_kept_results_are_of_rows_and_columns_that_are_declared(paper: str) -> None:
    tables = {table.name: table for table in load_paper(paper)}
    for name, kept in load_kept(paper).items():
        table = tables[name]
        assert set(kept.rows) <= {row.name for row in table.rows}, name
        assert {len(words.split()) for words in kept.rows.values()} == {len(table.columns)}, name
