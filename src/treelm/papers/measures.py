"""Kinds of measures: each gives named values of a run (trained, or a network as it is drawn), or of the data alone.

Names of metrics are those of ``treelm evaluate --summary``, without the rows of a stream and how punctuation was
recognised, which are notes here. Accuracies on SyntaxGym are in percent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol, get_args

from treelm.corpora.catalog import SPLITS, Split
from treelm.corpora.data_config import DataConfig, locate_split
from treelm.corpora.lines import Format
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Preprocessing, Sentence
from treelm.errors import InputError
from treelm.evaluation.evalb_files import Bracketing, bracketing_of
from treelm.evaluation.evaluate import evaluate_run
from treelm.evaluation.report import EvaluationResult
from treelm.evaluation.span_protocols import PLAIN, find_protocol
from treelm.evaluation.speed import BeamWidths, measure_search, measure_training
from treelm.evaluation.split_shares import (
    Counting,
    SplitShares,
    random_shares,
    require_binary_trees,
    split_shares,
    untrained,
)
from treelm.evaluation.syntaxgym.results import accuracies, circuit_accuracies, circuits, overall_score
from treelm.evaluation.syntaxgym.scoring import score_suites
from treelm.evaluation.syntaxgym.suites import load_suites
from treelm.evaluation.tree_depth import slots_needed
from treelm.evaluation.trivial_baselines import trivial_baselines
from treelm.figures.pictures import picture
from treelm.inference.loading import load
from treelm.models import SYSTEMS, system_class
from treelm.models.base import SyntacticLM
from treelm.models.persistence.files import json_hash, write_atomically
from treelm.papers.data import DataRoot
from treelm.training.metrics import FILE_NAME as LOG
from treelm.training.metrics import perplexity, read_metrics
from treelm.training.recipe import EvaluationConfig, Recipe, load_recipe
from treelm.training.run import load_run_recipe
from treelm.trees.transforms import binarise_left, binarise_right, collapse_unaries
from treelm.trees.tree import Tree

WIDTHS = ("action_beam", "word_beam", "fast_track")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Values by metric, what must be known to read them, and, of data alone, values by baseline and metric: several
    where there is chance and each draw is known.
    """

    values: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    baselines: dict[str, dict[str, tuple[float, ...]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """A run to be measured."""

    run: Path
    root: DataRoot
    data: str
    """Name of the data that it was trained on."""

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe that is kept in the run."""
        return load_run_recipe(self.run)

    def model(self, widths: dict[str, int]) -> SyntacticLM:
        """Load the model, to search with the recipe's beam or with other widths."""
        lm = load(self.run, device="auto")
        config = self.recipe.evaluation
        lm.set_beam(**{**{name: getattr(config, name) for name in WIDTHS}, **widths})
        return lm


class Measure(Protocol):
    """A kind of measure with its options."""

    def metrics(self) -> Sequence[str]:
        """Names of the values of a run; a run may lack some of them."""

    def baselines(self) -> Sequence[str]:
        """Names of the baselines that it has without a run."""

    def data_names(self) -> Sequence[str]:
        """Names of the data that it needs besides those of the run."""

    def of_run(self, subject: Subject) -> Measured:
        """Measure a run."""

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Measure the baselines; ``own`` names the data that runs beside them are trained on."""


@dataclass(frozen=True, kw_only=True)
class _OfRuns:
    """A measure that has no baselines and needs no data of its own."""

    def baselines(self) -> Sequence[str]:
        """None."""
        return ()

    def data_names(self) -> Sequence[str]:
        """None."""
        return ()

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Nothing can be measured."""
        return Measured()


@dataclass(frozen=True, kw_only=True)
class _OnTreebank:
    """A measure on a split of the run's own data, or of data that it names."""

    data: str = ""
    split: Split | Literal["all"] = "test"
    format: Format | Literal["auto"] = "auto"
    preprocess: Preprocessing | None = None
    max_sentences: int | None = None

    def data_names(self) -> Sequence[str]:
        """The data that are named."""
        return (self.data,) if self.data else ()

    def config(self, own: DataConfig, root: DataRoot) -> DataConfig:
        """Source of the sentences, read as the run's own data unless options say otherwise."""
        if self.data:
            found = root.found(self.data)
            own = replace(own, **{name: getattr(found, name) for name in ("corpus", *SPLITS)}, format=self.format)
        return own if self.preprocess is None else replace(own, preprocess=self.preprocess)

    def files(self, config: DataConfig) -> list[Path]:
        """The files of the split; of all there are."""
        splits = [split for split in SPLITS if config.has_split(split)] if self.split == "all" else [self.split]
        return [locate_split(config, split)[0] for split in splits]

    def provenance(self, root: DataRoot, own: str, files: Sequence[Path]) -> tuple[str, ...]:
        """A note if the gold trees are a parser's; dependency trees are made by hand in all data that we name."""
        entry = root.sets[self.data or own]
        if not entry.is_parsed or any(".conllu" in file.suffixes for file in files):
            return ()
        return (f"the gold trees of {entry.name} are the output of a parser, not made by hand",)

    def sentences(self, config: DataConfig) -> list[Sentence]:
        """The sentences, in order."""
        options = vars(config.read_options(config.format))
        found = [sentence for path in self.files(config) for sentence in read_sentences(path, **options)]
        return found[: self.max_sentences]


@dataclass(frozen=True, kw_only=True)
class Evaluate(_OnTreebank):
    """What ``treelm evaluate`` measures, and trivial trees against the same gold trees."""

    protocols: tuple[str, ...] = ()
    tree_builder: Literal["unbiased", "biased"] | None = None
    stream: Literal["no", "beside", "only"] = "no"
    stream_rows: int = 10
    cache_weight: float = 0.0
    cache_theta: float = 1.0
    cache_window: int = 500
    action_beam: int | None = None
    word_beam: int | None = None
    fast_track: int | None = None

    def __post_init__(self) -> None:
        """Check protocols."""
        for name in self.protocols:
            find_protocol(name)

    def metrics(self) -> Sequence[str]:
        """Perplexities of sentences and streams, F1 by protocol, and metrics that only one system has."""
        contexts = {"no": ("",), "beside": ("", _STREAM), "only": (_STREAM,)}[self.stream]
        perplexities = [f"{name}{context}" for context in contexts for name in _LIKELIHOODS]
        if self.stream == "only":
            return perplexities
        spans = [f"unlabeled_f1_{level}, {name}" for name in self.protocols for level in ("corpus", "sentence")]
        own = [name for system in SYSTEMS for name in system_class(system).own_metric_names]
        return [*perplexities, "f1, evalb", *spans, *own]

    def baselines(self) -> Sequence[str]:
        """Trivial trees and the binary upper bound."""
        return _trivial_names() if self.protocols else ()

    def of_run(self, subject: Subject) -> Measured:
        """Evaluate the run on each file, and add the files up where there are several."""
        recipe = subject.recipe
        config = self.config(recipe.data, subject.root)
        given = {name: getattr(self, name) for name in _EVALUATION} | _given(self)
        evaluation: EvaluationConfig = replace(recipe.evaluation, splits=("test",), **given)
        path = _joined(self.files(config), subject.run.parent)
        (evaluated,) = evaluate_run(
            subject.run,
            replace(recipe, data=config, evaluation=evaluation),
            files=(str(path),),
            format=config.format,
            protocols=[find_protocol(name) for name in self.protocols],
            device="auto",
        )
        notes = (*_notes(evaluated.result), *self.provenance(subject.root, subject.data, [path]))
        return Measured(values=dict(_values(evaluated.result)), notes=notes)

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Score trivial trees."""
        config = replace(self, data=self.data or own).config(DataConfig(), root)
        gold = [_gold(one) for one in self.sentences(config)]
        notes = self.provenance(root, own, self.files(config))
        found: dict[str, dict[str, tuple[float, ...]]] = {}
        for protocol in self.protocols:
            for row in trivial_baselines(gold, find_protocol(protocol), random_distances=True):
                values = found.setdefault(row.name, {})
                values[f"unlabeled_f1_corpus, {protocol}"] = (row.corpus_f1,)
                values[f"unlabeled_f1_sentence, {protocol}"] = (row.sentence_f1,)
        return Measured(baselines=found, notes=notes)


@dataclass(frozen=True, kw_only=True)
class Splits(_OnTreebank):
    """Left and right splits of binary trees in percent of all splits, and of those of three words or more.

    Sentences have ``words`` words (fewest, most). Baselines are gold trees made binary, and the trees of a recipe's
    network as it is drawn, a value for each of ``seeds``.
    """

    words: tuple[int, int] = (3, 40)
    recipe: str = ""
    settings: tuple[str, ...] = ()
    seeds: int = 25

    def metrics(self) -> Sequence[str]:
        """Shares by side and counting."""
        return [f"{side}, {counting}" for counting in get_args(Counting) for side in ("left", "right")]

    def baselines(self) -> Sequence[str]:
        """Gold trees, and networks before training if a recipe is named."""
        return (*_BINARISED, *((_DRAWN,) if self.recipe else ()))

    def trees(self, config: DataConfig) -> list[Tree]:
        """The gold trees of sentences that are neither short nor long."""
        fewest, most = self.words
        unlimited = replace(self, max_sentences=None).sentences(config)
        fitting = [one for one in unlimited if fewest <= len(one.words) <= most]
        return [_tree(one) for one in fitting[: self.max_sentences]]

    def of_run(self, subject: Subject) -> Measured:
        """Count the splits of the run's trees."""
        lm = require_binary_trees(subject.model({}), where=str(subject.run))
        trees = self.trees(self.config(subject.recipe.data, subject.root))
        found = _shares([split_shares(lm.parse([tree.words() for tree in trees]))])
        return Measured(values={name: value for name, (value,) in found.items()})

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Count the splits of gold trees and of networks before training."""
        config = replace(self, data=self.data or own).config(DataConfig(), root)
        trees = self.trees(config)
        found = {
            name: _shares([split_shares(binarise(collapse_unaries(tree)) for tree in trees)])
            for name, binarise in _BINARISED.items()
        }
        if self.recipe:
            sentences = [tree.words() for tree in trees]
            build = untrained(load_recipe(self.recipe, self.settings).model, sentences)
            found[_DRAWN] = _shares(list(random_shares(build, sentences, num_seeds=self.seeds)))
        return Measured(baselines=found, notes=self.provenance(root, own, self.files(config)))


@dataclass(frozen=True, kw_only=True)
class Depth(_OnTreebank):
    """Slots that a memory needs for gold trees; of the data alone."""

    slots: int = 15

    def metrics(self) -> Sequence[str]:
        """Mean and largest number of slots a tree, and trees that need more than ``slots`` in percent."""
        return ("slots_mean", "slots_max", "percent_deeper", "sentences")

    def baselines(self) -> Sequence[str]:
        """Gold trees."""
        return ("gold trees",)

    def of_run(self, subject: Subject) -> Measured:
        """Nothing can be measured."""
        return Measured()

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Count the slots of all trees."""
        config = replace(self, data=self.data or own).config(DataConfig(), root)
        needed = [slots_needed(_tree(one)) for one in self.sentences(config)]
        found = {
            "slots_mean": fmean(needed),
            "slots_max": float(max(needed)),
            "percent_deeper": 100 * fmean(count > self.slots for count in needed),
            "sentences": float(len(needed)),
        }
        values: dict[str, tuple[float, ...]] = {name: (value,) for name, value in found.items()}
        return Measured(baselines={"gold trees": values}, notes=self.provenance(root, own, self.files(config)))


@dataclass(frozen=True, kw_only=True)
class SyntaxGym(_OfRuns):
    """Accuracies on test suites, in percent: by suite, by circuit, and their mean."""

    suites: tuple[str, ...] = ()
    """Names of packaged suites; without them, those of all circuits."""
    action_beam: int | None = None
    word_beam: int | None = None
    fast_track: int | None = None

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
        """Score the suites."""
        found = accuracies(score_suites(subject.model(_given(self)), load_suites(self._suites())))
        score = overall_score(found)
        values = {} if score is None else {"sg_score": 100 * score}
        values |= {f"circuit, {name}": 100 * value for name, value in circuit_accuracies(found).items()}
        return Measured(values=values | {f"suite, {name}": 100 * value for name, value in found.items()})


@dataclass(frozen=True, kw_only=True)
class Training(_OfRuns):
    """What the log of training says: times, epochs, the best loss on dev."""

    def metrics(self) -> Sequence[str]:
        """Seconds of processor and clock, epochs, updates, the lowest dev loss, and numbers of parameters."""
        return _TRAINING

    def of_run(self, subject: Subject) -> Measured:
        """Read the log; there is none of a system that is estimated in one go, or not trained."""
        values = {"parameters": float(sum(one.numel() for one in load(subject.run).parameters()))}
        path = subject.run / LOG
        lines = read_metrics(path) if path.exists() else []
        losses = [line["loss_nats_per_word"] for line in lines if line["kind"] == "dev"]
        words = [
            line["word_nats_per_decision"]
            for line in lines
            if line["kind"] == "dev" and "word_nats_per_decision" in line
        ]
        if lines:
            values |= {"cpu_seconds": lines[-1].get("cpu_seconds", 0.0), "wall_seconds": lines[-1]["elapsed_seconds"]}
            values |= {"epochs": float(lines[-1]["epoch"]), "updates": float(lines[-1]["step"])}
        values |= {"dev_loss_nats_per_word": min(losses)} if losses else {}
        return Measured(values=values | ({"dev_perplexity": perplexity(min(words))} if words else {}))


@dataclass(frozen=True, kw_only=True)
class TrainingSpeed(_OfRuns):
    """Speed of whole updates by the run's recipe, from a network as it is drawn; a seed is a repetition."""

    seconds: float = 20.0

    def metrics(self) -> Sequence[str]:
        """Sentences and words a second, of processor time and of the clock."""
        return [f"{unit}_per_{clock}" for unit in ("sentences", "words") for clock in ("cpu_second", "second")]

    def of_run(self, subject: Subject) -> Measured:
        """Measure in this process."""
        found = measure_training(subject.recipe, seconds=self.seconds)
        return Measured(
            values={
                "sentences_per_second": found.sentences_per_second,
                "sentences_per_cpu_second": found.sentences_per_cpu_second,
                "words_per_second": found.words_per_second,
                "words_per_cpu_second": found.words_per_cpu_second,
            }
        )


@dataclass(frozen=True, kw_only=True)
class SearchSpeed(_OnTreebank):
    """Time of word-synchronous search on sentences of 13 to 17 words, side by side."""

    action_beam: int
    word_beam: int
    fast_track: int
    sentences_at_once: int = 10

    def baselines(self) -> Sequence[str]:
        """None."""
        return ()

    def metrics(self) -> Sequence[str]:
        """Seconds a sentence, of processor time and of the clock."""
        return ("cpu_seconds_per_sentence", "seconds_per_sentence")

    def of_run(self, subject: Subject) -> Measured:
        """Search the first fitting sentences."""
        config = self.config(subject.recipe.data, subject.root)
        fitting = [one.words for one in self.sentences(config) if 13 <= len(one.words) <= 17]
        widths = BeamWidths(**{name: getattr(self, name) for name in WIDTHS})
        found = measure_search(str(subject.run), fitting[: self.sentences_at_once], widths)
        values = {"cpu_seconds_per_sentence": found.cpu_seconds_per_sentence}
        return Measured(values={**values, "seconds_per_sentence": found.seconds_per_sentence})

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Nothing can be measured."""
        return Measured()


@dataclass(frozen=True, kw_only=True)
class Picture(_OfRuns):
    """The picture of what the tree of a sentence follows from, written beside the run."""

    sentence: str

    def metrics(self) -> Sequence[str]:
        """None: it is a picture."""
        return ()

    def of_run(self, subject: Subject) -> Measured:
        """Draw it."""
        lm = subject.model({})
        (tree,) = lm.parse([self.sentence.split()])
        write_atomically(subject.run / PICTURE, picture(lm, tree).encode())
        return Measured()


PICTURE = "picture.svg"
KINDS: dict[str, Any] = {
    "evaluate": Evaluate,
    "splits": Splits,
    "depth": Depth,
    "syntaxgym": SyntaxGym,
    "training": Training,
    "training speed": TrainingSpeed,
    "search speed": SearchSpeed,
    "picture": Picture,
}
"""Classes of measures by the name in declarations."""

_BINARISED: dict[str, Callable[[Tree], Tree]] = {
    "gold trees, made binary from the right": binarise_right,
    "gold trees, made binary from the left": binarise_left,
}
_DRAWN = "networks before training"
_STREAM = ", in a stream"
_EVALUATION = ("stream", "stream_rows", "cache_weight", "cache_theta", "cache_window", "max_sentences", "tree_builder")
_LIKELIHOODS = (
    "perplexity_per_word_with_end",
    "perplexity_per_symbol_with_end",
    "perplexity_per_character_with_end",
    "bits_per_character_with_end",
)
_TRAINING = (
    *("cpu_seconds", "wall_seconds", "epochs", "updates", "parameters"),
    *("dev_loss_nats_per_word", "dev_perplexity"),
)


@cache
def _trivial_names() -> tuple[str, ...]:
    """Names of the trivial baselines, from those of one tree."""
    tree = bracketing_of(Tree("S", ("a", "b", "c")))
    return tuple(row.name for row in trivial_baselines([tree], PLAIN, num_seeds=1, random_distances=True))


def _given(measure: Any) -> dict[str, int]:
    """The widths of the search that were given."""
    return {name: value for name in WIDTHS if (value := getattr(measure, name)) is not None}


def _tree(sentence: Sentence) -> Tree:
    if sentence.tree is None:
        raise InputError("a sentence without a tree", where=sentence.where, remedy="name data with trees")
    return sentence.tree


def _gold(sentence: Sentence) -> Bracketing:
    return bracketing_of(_tree(sentence), tags=sentence.tags, where=sentence.where)


def _shares(found: Sequence[SplitShares]) -> dict[str, tuple[float, ...]]:
    """Shares by metric, a value for each set of trees."""
    shares: dict[str, tuple[float, ...]] = {}
    for counting in get_args(Counting):
        sides = zip(*(one.percentages(counting) for one in found), strict=True)
        shares |= {f"{side}, {counting}": values for side, values in zip(("left", "right"), sides, strict=True)}
    return shares


def _joined(files: Sequence[Path], folder: Path) -> Path:
    """One file of several: packed or not, they may stand one behind the other."""
    if len(files) == 1:
        return files[0]
    path = folder / f"{json_hash([str(file) for file in files])[:12]}{''.join(files[0].suffixes[-2:])}"
    if not path.exists():
        write_atomically(path, b"".join(file.read_bytes() for file in files))
    return path


def _values(result: EvaluationResult) -> Iterator[tuple[str, float]]:
    """All metrics of a result by name."""
    for one in result.perplexities:
        context = _STREAM if one.context else ""
        yield f"perplexity_per_{one.unit}_{one.policy}{context}", one.value
        if one.unit == "character":
            yield f"bits_per_character_{one.policy}{context}", one.bits_per_unit
    for bracketing in result.bracketing:
        yield "f1, evalb", bracketing.total.f1
    for spans in result.spans:
        yield f"unlabeled_f1_corpus, {spans.protocol.name}", spans.corpus_f1
        yield f"unlabeled_f1_sentence, {spans.protocol.name}", spans.sentence_f1
    yield from result.own.items()


def _notes(result: EvaluationResult) -> Iterator[str]:
    yield from result.notes
    if any(one.is_upper_bound for one in result.perplexities):
        yield "perplexities are upper bounds: the search finds part of the probability"
    for one in result.perplexities:
        if one.context:
            yield f"perplexity {one.context}"
    for spans in result.spans:
        if spans.removal == "words":
            yield f"{spans.protocol.name}: punctuation recognised by a list of words"
