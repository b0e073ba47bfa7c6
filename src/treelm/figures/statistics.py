"""The statistics of corpora as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.table import Table

from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.statistics import CorpusStatistics, Distribution, corpus_statistics


def statistics_table(corpora: Mapping[str, PreparedCorpus]) -> Table:
    """One column a corpus, one row a figure."""
    table = Table(title="Corpora")
    table.add_column("figure")
    for name in corpora:
        table.add_column(name, justify="right")
    columns = [dict(_rows(corpus_statistics(corpus))) for corpus in corpora.values()]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    return table


def _rows(figures: CorpusStatistics) -> Iterator[tuple[str, str]]:
    yield "sentences", f"{figures.num_sentences:,}"
    yield "tokens", f"{figures.num_tokens:,}"
    yield "types", f"{figures.num_types:,}"
    yield "types seen twice or more", f"{figures.num_types_twice:,}"
    yield "words a sentence: mean, median, p95, max", _distribution(figures.words)
    yield "labels", f"{figures.num_labels:,}"
    yield "nonterminals", f"{figures.num_nonterminals:,}"
    yield "depth: mean, median, p95, max", _distribution(figures.depth)
    yield "actions a sentence: mean, median, p95, max", _distribution(figures.actions)
    yield "most open nonterminals, top-down / in-order", f"{figures.max_open_top_down} / {figures.max_open_in_order}"
    consecutive = f"{figures.max_consecutive_top_down} / {figures.max_consecutive_in_order}"
    yield "most consecutive NTs, top-down / in-order", consecutive


def _distribution(values: Distribution | None) -> str:
    if values is None:
        return "no trees"
    return f"{values.mean:.1f}, {values.median:.0f}, {values.p95:.0f}, {values.max}"
