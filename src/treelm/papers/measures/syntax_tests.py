"""Accuracies on test suites of syntactic generalisation, and on minimal pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treelm.corpora.data_config import locate_split
from treelm.errors import check_positive
from treelm.evaluation.minimal_pairs import first_of_groups, read_pairs, score_pairs
from treelm.evaluation.syntaxgym.results import accuracies, circuit_accuracies, circuits, overall_score
from treelm.evaluation.syntaxgym.scoring import ScoreCache, score_suites
from treelm.evaluation.syntaxgym.suites import load_suites
from treelm.models.search.settings import GivenSearch, given_search
from treelm.papers.measures.base import Measured, OfRuns, Subject


@dataclass(frozen=True, kw_only=True)
class SyntaxGym(GivenSearch, OfRuns):
    """Accuracies on test suites, in percent: by suite, by circuit, and their mean."""

    suites: tuple[str, ...] = ()
    """Names of packaged suites; without them, those of all circuits."""

    def _suites(self) -> tuple[str, ...]:
        return self.suites or tuple(suite for members in circuits().values() for suite in members)

    def metrics(self) -> Sequence[str]:
        """The SG score, circuits and suites."""
        chosen = dict.fromkeys(self._suites(), 0.0)
        score = ["sg_score"] if overall_score(chosen) is not None else []
        return [
            *score,
            *(f"circuit, {one}" for one in circuit_accuracies(chosen)),
            *(f"suite, {one}" for one in chosen),
        ]

    def of_run(self, subject: Subject) -> Measured:
        """Score the suites, but for sentences that any scoring of them has left in the cache."""
        given = given_search(self)
        lm = subject.model(given)
        cache = ScoreCache.of(lm, subject.search(given), tokenisation="treebank")
        found = accuracies(score_suites(lm, load_suites(self._suites()), cache=cache))
        score = overall_score(found)
        values = {} if score is None else {"sg_score": 100 * score}
        values |= {f"circuit, {name}": 100 * value for name, value in circuit_accuracies(found).items()}
        return Measured(values=values | {f"suite, {name}": 100 * value for name, value in found.items()})


@dataclass(frozen=True, kw_only=True)
class MinimalPairs(GivenSearch, OfRuns):
    """Accuracy on minimal pairs, in percent: the test file of ``data``, or the first pairs of each of its paradigms."""

    data: str
    max_pairs_per_group: int | None = None

    def __post_init__(self) -> None:
        """Check sizes."""
        check_positive(max_pairs_per_group=self.max_pairs_per_group)

    def data_names(self) -> Sequence[str]:
        """The pairs."""
        return (self.data,)

    def metrics(self) -> Sequence[str]:
        """How often the grammatical sentence is the more probable one."""
        return ("accuracy",)

    def of_run(self, subject: Subject) -> Measured:
        """Score both sentences of every pair."""
        pairs = list(read_pairs(locate_split(subject.root.found(self.data), "test")[0]))
        if self.max_pairs_per_group is not None:
            pairs = first_of_groups(pairs, self.max_pairs_per_group)
        found = score_pairs(subject.model(given_search(self)), pairs)
        notes = (f"{found.num_with_unknown} of {len(pairs)} pairs have a word that is unknown",)
        return Measured(values={"accuracy": 100 * found.overall.accuracy}, notes=notes)
