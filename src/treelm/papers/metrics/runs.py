"""Metrics of runs: training times and sizes, syntax tests."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from treelm.corpora.data_config import locate_split
from treelm.errors import InputError, check_positive
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.minimal_pairs import first_of_groups, read_pairs, score_pairs
from treelm.evaluation.syntaxgym.results import accuracies, circuit_accuracies, circuits, overall_score
from treelm.evaluation.syntaxgym.scoring import score_suites
from treelm.evaluation.syntaxgym.suites import load_suites
from treelm.inference.loading import load, model_hash
from treelm.io.files import cache_directory
from treelm.models.search.options import SearchOptions
from treelm.papers.metrics.base import Measure, Measured, Subject
from treelm.training.metrics import FILE_NAME as LOG
from treelm.training.metrics import read_metrics
from treelm.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Training(Measure):
    """What the log of training says: times, epochs, the best loss on dev; and the number of parameters."""

    def of_run(self, subject: Subject) -> Measured:
        """Read the log; a system that is estimated in one go, or not trained, has none."""
        values = {"parameters": float(sum(one.numel() for one in load(subject.run).parameters()))}
        path = subject.run / LOG
        lines = read_metrics(path) if path.exists() else []
        dev = [line for line in lines if line["kind"] == "dev"]
        if lines:
            values |= {"cpu_seconds": lines[-1].get("cpu_seconds", 0.0), "wall_seconds": lines[-1]["elapsed_seconds"]}
            values |= {"epochs": float(lines[-1]["epoch"]), "updates": float(lines[-1]["step"])}
        if dev:
            values["dev_loss_nats_per_word"] = min(line["loss_nats_per_word"] for line in dev)
        return Measured(values=values)


@dataclass(frozen=True, kw_only=True)
class Setting(Measure):
    """What a recipe says, without a run; metrics are names of settings: ``model.dropout``."""

    @staticmethod
    def of_recipe(recipe: Recipe, metric: str) -> float:
        """Look the setting up. Raises ``InputError`` for one that is not there."""
        section, _, name = metric.partition(".")
        try:
            return float(getattr(recipe.model.config if section == "model" else getattr(recipe, section), name))
        except AttributeError:
            raise InputError(f"no setting {metric!r}", remedy="name one as --set does") from None


@dataclass(frozen=True, kw_only=True)
class SyntaxGym(SearchOptions, Measure):
    """Accuracies on test suites, in percent: by suite, by kind of suites, by circuit, and their mean."""

    suites: tuple[str, ...] = ()
    """Names of packaged suites; without them, those of all circuits."""

    def of_run(self, subject: Subject) -> Measured:
        """Score the suites."""
        lm = subject.model(self)
        suites = load_suites(self.suites or [suite for members in circuits().values() for suite in members])
        keep = (MetricCache(cache_directory() / "syntaxgym"), model_hash(subject.run))
        found = accuracies(score_suites(lm, suites, keep=keep))
        score = overall_score(found)
        values = {} if score is None else {"sg_score": 100 * score, "sg_accuracy": score}
        values |= {f"circuit, {name}": 100 * value for name, value in circuit_accuracies(found).items()}
        values |= {f"suite, {name}": 100 * value for name, value in found.items()}
        kinds: dict[str, list[float]] = {}  # such as fgd, of fgd_object, fgd_pp and others
        for name, value in found.items():
            kinds.setdefault(name.partition("_")[0], []).append(value)
        values |= {f"suites, {kind}": 100 * fmean(own) for kind, own in kinds.items()}
        return Measured(values=values)


@dataclass(frozen=True, kw_only=True)
class MinimalPairs(SearchOptions, Measure):
    """Accuracy on minimal pairs, in percent: the test file of ``data``, or the first pairs of each of its paradigms."""

    data: str
    max_pairs_per_group: int | None = None

    def __post_init__(self) -> None:
        """Check sizes."""
        check_positive(max_pairs_per_group=self.max_pairs_per_group)

    def of_run(self, subject: Subject) -> Measured:
        """Score both sentences of every pair."""
        pairs = list(read_pairs(locate_split(subject.root.locate(self.data), "test")[0]))
        if self.max_pairs_per_group is not None:
            pairs = first_of_groups(pairs, self.max_pairs_per_group)
        found = score_pairs(subject.model(self), pairs)
        notes = (f"{found.num_with_unknown} of {len(pairs)} pairs have a word that is unknown",)
        return Measured(values={"accuracy": 100 * found.overall.correct / found.overall.total}, notes=notes)
