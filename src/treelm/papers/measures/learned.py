"""What trees that nobody has shown have in common with gold trees, and the trees of one run with those of another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean

from treelm.corpora.data_config import DataConfig
from treelm.corpora.sentence import Sentence
from treelm.evaluation.learned_trees import learned_trees
from treelm.evaluation.span_protocols import find_protocol
from treelm.evaluation.structure import (
    SENTENCE_LENGTHS,
    SPAN_LENGTHS,
    KeptSpans,
    Spread,
    TreeAnalysis,
    agreement,
    analyse_structure,
    class_names,
    kept_spans,
)
from treelm.evaluation.trivial_baselines import BUILDERS, TreeBuilder
from treelm.io.atomic import write_atomically
from treelm.io.json import json_hash
from treelm.papers.data import DataRoot
from treelm.papers.measures.base import Measured, OnTreebank, Subject
from treelm.papers.measures.evaluation import trivial_names

AGREEMENT = "seeds agree"


@dataclass(frozen=True, kw_only=True)
class Structure(OnTreebank):
    """What ``treelm structure`` tells of a run's trees under one protocol, and of trivial trees.

    Trees from distances are built by ``tree_builder``. Recall is of the gold labels in ``labels``. Random
    trees are drawn ``draws`` times each.
    """

    protocol: str = "wsj40"
    tree_builder: TreeBuilder = "biased"
    labels: tuple[str, ...] = ("NP", "VP", "PP", "S", "SBAR", "ADJP", "ADVP")
    draws: int = 5

    def __post_init__(self) -> None:
        """Check sizes and the protocol."""
        super().__post_init__()
        find_protocol(self.protocol)

    def metrics(self) -> Sequence[str]:
        """F1, what branches which way, agreement of seeds, recall by label, F1 by length."""
        return (
            *("sentence f1", "corpus f1", "against left-branching", "against right-branching", AGREEMENT),
            *("distances against heights", "many-to-one"),
            *(f"recall, {label}" for label in self.labels),
            *(f"f1, spans of {name}" for name in class_names(SPAN_LENGTHS)),
            *(f"f1, sentences of {name}" for name in class_names(SENTENCE_LENGTHS)),
        )

    def baselines(self) -> Sequence[str]:
        """Trivial trees and the binary upper bound."""
        return trivial_names()

    def of_run(self, subject: Subject) -> Measured:
        """Analyse the trees of the run, and keep their spans in its folder."""
        sentences, notes = self._treebank(subject.recipe.data, subject.root, subject.data)
        found = list(learned_trees(subject.model({}), [one.words for one in sentences]))
        trees = found[BUILDERS.index(self.tree_builder)] if len(found) > 1 else found[0]
        protocol = find_protocol(self.protocol)
        (analysis,) = analyse_structure(sentences, [trees], protocol, num_draws=0).rows
        (spans,) = kept_spans(sentences, trees, protocol)
        write_atomically(self._file(subject.run), json.dumps(spans).encode())
        return Measured(values=dict(self._values(analysis)), notes=notes)

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Analyse trivial trees."""
        config = replace(self, data=self.data or own).config(DataConfig(), root)
        sentences, notes = self._treebank(config, root, own)
        rows = analyse_structure(sentences, [], find_protocol(self.protocol), num_draws=self.draws).rows
        found: dict[str, dict[str, tuple[float, ...]]] = {
            row.name: {name: (value,) for name, value in self._values(row)} for row in rows
        }
        return Measured(baselines=found, notes=notes)

    def agreement(self, runs: Sequence[Path]) -> float | None:
        """Mean agreement of each pair of runs that were measured; None for fewer than two."""
        spans: list[KeptSpans] = [json.loads(self._file(run).read_text()) for run in runs]
        pairs = [agreement(*pair) for pair in combinations(spans, 2)]
        return fmean(pairs) if pairs else None

    def _treebank(self, own: DataConfig, root: DataRoot, name: str) -> tuple[list[Sentence], tuple[str, ...]]:
        config = self.config(own, root)
        return self.sentences(config), self.provenance(root, name, self.files(config))

    def _file(self, run: Path) -> Path:
        of = (self.protocol, self.tree_builder, self.data, self.split, self.format, self.preprocess, self.max_sentences)
        return run / f"spans-{json_hash(of)[:10]}.json"

    def _values(self, row: TreeAnalysis) -> Iterator[tuple[str, float]]:
        single: dict[str, Spread | None] = {
            "sentence f1": row.sentence_f1,
            "corpus f1": row.corpus_f1,
            "against left-branching": row.left_branching,
            "against right-branching": row.right_branching,
            AGREEMENT: row.agreement,
            "distances against heights": row.height_correlation,
            "many-to-one": row.many_to_one,
            **{f"recall, {label}": row.recall_by_label.get(label) for label in self.labels},
            **{f"f1, spans of {name}": spread for name, spread in row.f1_by_span_length.items()},
            **{f"f1, sentences of {name}": spread for name, spread in row.f1_by_sentence_length.items()},
        }
        yield from ((name, spread.mean) for name, spread in single.items() if spread is not None)
