"""Metrics of runs: training times and sizes, speed of updates and of search, syntax tests, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from time import perf_counter, process_time

from treelm.corpora.data_config import locate_split
from treelm.errors import InputError, check_positive
from treelm.evaluation.minimal_pairs import first_of_groups, read_pairs, score_pairs
from treelm.evaluation.speed import BeamWidths, compare_batch_sizes, fitting_sentences, measure_search
from treelm.evaluation.syntaxgym.results import accuracies, circuit_accuracies, circuits, overall_score
from treelm.evaluation.syntaxgym.scoring import ScoreCache, score_suites
from treelm.evaluation.syntaxgym.suites import load_suites
from treelm.figures.structures import picture
from treelm.inference.loading import load
from treelm.io.atomic import write_atomically
from treelm.models.search.config import SearchOptions, SearchPrecision
from treelm.papers.metrics.base import Measure, Measured, OnTreebank, Subject
from treelm.training.metrics import FILE_NAME as LOG
from treelm.training.metrics import perplexity, read_metrics

_WIDTHS = ("action_beam", "word_beam", "fast_track")
_TRAINING = (
    *("cpu_seconds", "wall_seconds", "epochs", "updates", "parameters"),
    *("dev_loss_nats_per_word", "dev_perplexity"),
)


@dataclass(frozen=True, kw_only=True)
class Training(Measure):
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
class TrainingSpeed(Measure):
    """Speed of whole updates by the run's recipe, from a network as it is drawn; a seed is a repetition."""

    seconds: float = 20.0

    def __post_init__(self) -> None:
        """Check the time."""
        if not 0 < self.seconds < inf:
            raise InputError(f"seconds = {self.seconds}", remedy="give a number above 0")

    def metrics(self) -> Sequence[str]:
        """Sentences and words a second, of processor time and of the clock, and memory beside the model."""
        speeds = [f"{unit}_per_{clock}" for unit in ("sentences", "words") for clock in ("cpu_second", "second")]
        return [*speeds, "peak_memory_mb"]

    def of_run(self, subject: Subject) -> Measured:
        """Measure in a process of its own, whose memory is that of training alone."""
        config = subject.recipe.training
        sizes, precisions = [config.batch_size], [config.precision]
        (found,) = compare_batch_sizes(subject.recipe, sizes, precisions, seconds=self.seconds)
        return Measured(
            values={
                "sentences_per_second": found.sentences_per_second,
                "sentences_per_cpu_second": found.sentences_per_cpu_second,
                "words_per_second": found.words_per_second,
                "words_per_cpu_second": found.words_per_cpu_second,
                "peak_memory_mb": found.peak_memory_mb,
            }
        )


@dataclass(frozen=True, kw_only=True)
class SearchSpeed(OnTreebank):
    """Time of word-synchronous search on sentences of 13 to 17 words, side by side; on the GPU if there is one."""

    action_beam: int
    word_beam: int
    fast_track: int
    sentences_at_once: int = 10
    precision: SearchPrecision = "full"

    def __post_init__(self) -> None:
        """Check sizes."""
        super().__post_init__()
        check_positive(sentences_at_once=self.sentences_at_once)

    def metrics(self) -> Sequence[str]:
        """Seconds a sentence, of processor time and of the clock."""
        return ("cpu_seconds_per_sentence", "seconds_per_sentence")

    def of_run(self, subject: Subject) -> Measured:
        """Search the first fitting sentences."""
        config = self.config(subject.recipe.data, subject.root)
        read = [one.words for one in self.sentences(config)]
        chosen = fitting_sentences(read, self.sentences_at_once, where=", ".join(map(str, self.files(config))))
        widths = BeamWidths(**{name: getattr(self, name) for name in _WIDTHS})
        found = measure_search(str(subject.run), chosen, widths, device="auto", precision=self.precision)
        values = {"cpu_seconds_per_sentence": found.cpu_seconds_per_sentence}
        return Measured(values={**values, "seconds_per_sentence": found.seconds_per_sentence})


@dataclass(frozen=True, kw_only=True)
class ScoringSpeed(SearchOptions, OnTreebank):
    """Words scored a second, side by side, by the run's search or another; on one core in jobs."""

    def metrics(self) -> Sequence[str]:
        """Words a second of processor time, and of the clock."""
        return ("words_per_cpu_second", "words_per_second")

    def of_run(self, subject: Subject) -> Measured:
        """Score the sentences, the first of them once before, so that what is made once is there."""
        config = self.config(subject.recipe.data, subject.root)
        sentences = [one for one in self.sentences(config) if one.words]
        model = subject.model(self)
        model.score_given(sentences[:1])
        begin, cpu_begin = perf_counter(), process_time()
        model.score_given(sentences)
        seconds, cpu_seconds = perf_counter() - begin, process_time() - cpu_begin
        num_words = sum(len(one.words) for one in sentences)
        values = {"words_per_cpu_second": num_words / cpu_seconds, "words_per_second": num_words / seconds}
        return Measured(values=values)


@dataclass(frozen=True, kw_only=True)
class SyntaxGym(SearchOptions, Measure):
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
        lm = subject.model(self)
        cache = ScoreCache.of(lm, tokenisation="treebank")
        found = accuracies(score_suites(lm, load_suites(self._suites()), cache=cache))
        score = overall_score(found)
        values = {} if score is None else {"sg_score": 100 * score}
        values |= {f"circuit, {name}": 100 * value for name, value in circuit_accuracies(found).items()}
        return Measured(values=values | {f"suite, {name}": 100 * value for name, value in found.items()})


@dataclass(frozen=True, kw_only=True)
class MinimalPairs(SearchOptions, Measure):
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
        found = score_pairs(subject.model(self), pairs)
        notes = (f"{found.num_with_unknown} of {len(pairs)} pairs have a word that is unknown",)
        return Measured(values={"accuracy": 100 * found.overall.accuracy}, notes=notes)


PICTURE = "picture.svg"


@dataclass(frozen=True, kw_only=True)
class Picture(Measure):
    """The picture of what the tree of a sentence follows from, written beside the run."""

    sentence: str

    def of_run(self, subject: Subject) -> Measured:
        """Draw it."""
        lm = subject.model(SearchOptions())
        (tree,) = lm.parse([self.sentence.split()])
        write_atomically(subject.run / PICTURE, picture(lm, tree).encode())
        return Measured()
