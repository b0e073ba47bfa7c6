"""Audit of a language model: checks of the contract that everything measured of it stands on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any, Literal, ParamSpec, cast

import numpy as np
import torch
from numpy.typing import NDArray

from treelm.errors import InputError
from treelm.inference.surprisal import CONVERGED
from treelm.io.json import finite
from treelm.models.base import IncrementalState, LanguageModel, ProbabilityMass, SentenceScore
from treelm.models.capabilities import Searching
from treelm.models.layers.dropout import evaluating
from treelm.models.scores import NoLogProbability

Arguments = ParamSpec("Arguments")

Sentences = Sequence[Sequence[str]]
Outcome = Literal["passed", "failed", "skipped"]
NUM_CHECKS = 6
"""Checks of ``audit``; the last one, of a search, is in no report of a model that scores without one."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check: the largest deviation that was seen, what was allowed, and what it means for users."""

    name: str
    outcome: Outcome
    figure: float | None  # None when skipped
    tolerance: float
    unit: str
    finding: str  # where the largest deviation was seen, or why the check was skipped
    explanation: str


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """All checks of one model."""

    system: str
    num_sentences: int
    seed: int
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Tell whether no check failed (a skipped one did not)."""
        return all(check.outcome != "failed" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values; ``figure`` is null when its check was skipped or it is infinite, a
        tolerance when anything is allowed.
        """
        values: dict[str, Any] = finite(asdict(self) | {"passed": self.passed})
        return values

    def as_text(self) -> str:
        """A short paragraph for each check."""
        lines = [f"audit of {self.system}: {self.num_sentences} sentences, seed {self.seed}"]
        for check in self.checks:
            allowed = f"allowed {check.tolerance:g}" if math.isfinite(check.tolerance) else "measured only"
            deviation = "" if check.figure is None else f"{check.figure:.3g} {check.unit} ({allowed}); "
            lines += [f"{check.outcome:7s} {check.name}: {deviation}{check.finding}", f"        {check.explanation}"]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """Largest deviations that pass. Invariance is exact by default: searches that prune can amplify any change."""

    causality_nats: float = 0.0
    batch_nats: float = 0.0
    incremental_nats: float = 1e-6
    probability: float = 1e-6

    @classmethod
    def of(cls, model: LanguageModel) -> Tolerances:
        """Tolerances for a model: exact, but for rounding where it scores in less than float64."""
        if model.scoring_dtype == torch.float64:
            return cls()
        rounding = 1000 * torch.finfo(model.scoring_dtype).eps
        return cls(causality_nats=rounding, batch_nats=rounding, incremental_nats=rounding, probability=rounding)


def audit(
    model: LanguageModel,
    sentences: Sentences,
    *,
    seed: int = 1,
    num_cuts: int = 3,
    tolerances: Tolerances | None = None,
    enumerate_all: Callable[[], ProbabilityMass | None] | None = None,
    on_check: Callable[[], None] = lambda: None,
) -> AuditReport:
    """Check causality, normalisation, batch invariance, and that word by word and all at once give the same numbers.

    Each sentence is scored about ``2 + 2 * num_cuts`` times, so a handful of sentences is enough. ``enumerate_all`` is
    what a system offers for tiny models: the total probability of everything, which must be 1. ``on_check`` is called
    after each of the ``NUM_CHECKS``.

    Raises ``InputError`` without sentences or with an empty one.
    """
    if not sentences or not all(sentences):
        raise InputError("no words to audit with", remedy="give at least one sentence, none of them empty")
    allowed = tolerances or Tolerances.of(model)

    def told(*checks: Check) -> tuple[Check, ...]:
        on_check()
        return checks

    with evaluating(model):
        checks = (
            *told(check_causality(model, sentences, seed=seed, num_cuts=num_cuts, tolerance=allowed.causality_nats)),
            *told(check_next_tokens(model, sentences, tolerance=allowed.probability)),
            *told(check_enumeration(enumerate_all, tolerance=allowed.probability)),
            *told(check_batches(model, sentences, seed=seed, tolerance=allowed.batch_nats)),
            *told(check_incremental(model, sentences, tolerance=allowed.incremental_nats)),
            *told(*check_search(model, sentences)),
        )
    return AuditReport(system=model.system, num_sentences=len(sentences), seed=seed, checks=checks)


def fails_without_numbers(
    name: str, tolerance: float, unit: str
) -> Callable[[Callable[Arguments, Check]], Callable[Arguments, Check]]:
    """Let a check fail, instead of end, at a score that is no number: the audit has to say so, and to go on."""

    def wrapper(check: Callable[Arguments, Check]) -> Callable[Arguments, Check]:
        @wraps(check)
        def checked(*arguments: Arguments.args, **named: Arguments.kwargs) -> Check:
            try:
                return check(*arguments, **named)
            except NoLogProbability as error:
                change = Change(math.inf, error.found)
                allowed = cast(float, named.get("tolerance", tolerance))
                return check_changes(name, [change], allowed, unit, "such a model predicts nothing")

        return checked

    return wrapper


@fails_without_numbers("causality", 0.0, "nats")
def check_causality(
    model: LanguageModel, sentences: Sentences, *, seed: int = 1, num_cuts: int = 3, tolerance: float = 0.0
) -> Check:
    """Check that log p of a prefix stays the same, bit for bit, when words after it are changed, added or removed."""
    explanation = "a probability that depends on later words is not a prediction, and surprisals from it mean nothing"
    generator = random.Random(seed)
    pool = sorted({word for words in sentences for word in words})
    changes = []
    for number, words in enumerate(sentences, start=1):
        original = model.score([words])[0]
        cuts = sorted(generator.sample(range(1, len(words) + 1), min(num_cuts, len(words))))
        for cut in cuts:
            for suffix in _other_suffixes(words[cut:], pool, generator):
                changed = model.score([[*words[:cut], *suffix]])[0]
                label = f"sentence {number} with {' '.join(suffix)!r} after word {cut}"
                changes.append(compare_prefix(original, changed, num_words=cut, label=label))
    return check_changes("causality", changes, tolerance, "nats", explanation)


def _other_suffixes(suffix: Sequence[str], pool: Sequence[str], generator: random.Random) -> list[list[str]]:
    """Two suffixes unlike this one: other words in the same number, and another number of words."""
    others = [generator.choice([other for other in pool if other != word] or [word + "x"]) for word in suffix]
    longer = [generator.choice(pool) for _ in range(len(suffix) + generator.randint(1, 3))]
    return [others, longer] if others else [longer]


@fails_without_numbers("normalisation", 1e-6, "probability")
def check_next_tokens(model: LanguageModel, sentences: Sentences, *, tolerance: float = 1e-6) -> Check:
    """Check that the probabilities of all next tokens and of the end sum to 1 after every prefix.

    A search that prunes may lose probability, never invent it: for scores that are lower bounds, sums may be below 1.
    """
    explanation = "probabilities that do not sum to 1 make perplexities incomparable with other models'"
    pruned = model.score([sentences[0]])[0].is_lower_bound
    changes, smallest = [], 1.0
    for number, words in enumerate(sentences, start=1):
        state = model.start()
        for position in range(len(words) + 1):
            mass = float(model.next_word_log_probs(state).double().exp().sum(dim=-1)[0])
            smallest = min(smallest, mass)
            deviation = max(mass - 1, 0.0) if pruned and mass == mass else abs(mass - 1)
            changes.append(Change(deviation, f"the sum is {mass:.6g} after word {position} of sentence {number}"))
            state = model.extend(state, [words[position]]) if position < len(words) else state
    if pruned:
        explanation += f"; this model's scores are lower bounds, so sums below 1 pass (smallest {smallest:.6g})"
    return check_changes("normalisation", changes, tolerance, "probability", explanation)


@fails_without_numbers("enumeration", 1e-6, "probability")
def check_enumeration(enumerate_all: Callable[[], ProbabilityMass | None] | None, *, tolerance: float = 1e-6) -> Check:
    """Check that all (tree, sentence) pairs up to a length and the unfinished mass have probability 1 together."""
    explanation = "the model is a distribution over trees and sentences only if everything together has probability 1"
    mass = enumerate_all() if enumerate_all else None
    if mass is None:
        reason = "this model offers no enumeration (only tiny vocabularies can)"
        return _skipped("enumeration", reason, tolerance, "probability", explanation)
    deviation = abs(mass.finished + mass.unfinished - 1)
    finding = (
        f"{mass.num_pairs} pairs ({mass.description}) have {mass.finished:.9g}, unfinished ones {mass.unfinished:.9g}"
    )
    return check_changes("enumeration", [Change(deviation, finding)], tolerance, "probability", explanation)


@fails_without_numbers("batch invariance", 0.0, "nats")
def check_batches(model: LanguageModel, sentences: Sentences, *, seed: int = 1, tolerance: float = 0.0) -> Check:
    """Check that a sentence has the same scores alone as among others, in whatever order."""
    explanation = "scores that depend on what else is in the batch cannot be reproduced"
    if len(sentences) < 2:
        return _skipped("batch invariance", "one sentence makes no batch", tolerance, "nats", explanation)
    alone = [model.score([words])[0] for words in sentences]
    order = list(range(len(sentences)))
    shuffled = random.Random(seed).sample(order, len(order))
    changes = []
    for batch in (order, shuffled, shuffled[: (len(order) + 1) // 2]):
        for index, score in zip(batch, model.score([sentences[i] for i in batch]), strict=True):
            label = f"sentence {index + 1} in a batch of {len(batch)}"
            changes.append(compare_prefix(alone[index], score, num_words=None, label=label))
    return check_changes("batch invariance", changes, tolerance, "nats", explanation)


@fails_without_numbers("incremental", 1e-6, "nats")
def check_incremental(model: LanguageModel, sentences: Sentences, *, tolerance: float = 1e-6) -> Check:
    """Check that reading word by word gives the log probabilities that scoring whole sentences gives.

    Words are compared by ``extend_scored``, all their tokens together, and the end by ``next_word_log_probs``: not of a
    search, which looks at the word that it scores, so that ``check_search`` measures how far the two differ.
    """
    explanation = "generation and streaming use the model word by word; its reported figures come from whole sentences"
    changes = []
    for number, (words, score) in enumerate(zip(sentences, model.score(sentences), strict=True), start=1):
        changes += word_changes(model, words, score, f"sentence {number}")
    return check_changes("incremental", changes, tolerance, "nats", explanation)


def check_search(model: LanguageModel, sentences: Sentences) -> tuple[Check, ...]:
    """Measure, of a search that prunes, how far ``score`` and ``next_word_log_probs`` differ; count converged words.

    Both are lower bounds of the same probability by different searches, so no difference fails. Other systems
    have no such check: ``check_incremental`` holds them to equality.
    """
    try:
        scores = model.score(sentences)
    except NoLogProbability:  # the other checks say so
        return ()
    if not any(score.is_lower_bound for score in scores):
        return ()
    changes = []
    for number, (words, score) in enumerate(zip(sentences, scores, strict=True), start=1):
        changes += next_token_changes(model, words, score, f"sentence {number}")
    in_bits = [Change(change.size / math.log(2), change.where) for change in changes]
    explanation = "a search that looks at the next word and one that does not find different parts of its probability"
    flags = [flag for score in scores for flag in score.columns.get(CONVERGED, ()) if not math.isnan(flag)]
    if flags:
        explanation += f"; {flags.count(0.0)} of {len(flags)} words have not converged"
    return (check_changes("search", in_bits, math.inf, "bits", explanation),)


def check_changes(name: str, changes: Sequence[Change], tolerance: float, unit: str, explanation: str) -> Check:
    """Make the check whose outcome the largest change decides."""
    largest = max(changes, key=lambda change: change.size)
    return Check(
        name=name,
        outcome="passed" if largest.size <= tolerance else "failed",
        figure=largest.size,
        tolerance=tolerance,
        unit=unit,
        finding=f"largest of {len(changes)}: {largest.where}",
        explanation=explanation,
    )


def _skipped(name: str, reason: str, tolerance: float, unit: str, explanation: str) -> Check:
    return Check(
        name=name,
        outcome="skipped",
        figure=None,
        tolerance=tolerance,
        unit=unit,
        finding=reason,
        explanation=explanation,
    )


@dataclass(frozen=True)
class Change:
    """A deviation, never negative, infinite when it is no number, and where it was seen."""

    size: float
    where: str

    def __post_init__(self) -> None:
        """Take what is no number for an infinite deviation, so that it is the largest and fails."""
        if math.isnan(self.size):
            object.__setattr__(self, "size", math.inf)


def compare_prefix(one: SentenceScore, other: SentenceScore, *, num_words: int | None, label: str) -> Change:
    """Largest difference over the tokens of the first ``num_words`` words, or over everything and the end (None)."""
    if num_words is None:
        first, second = one.log_probs, other.log_probs
    else:
        first = one.log_probs[:-1][one.word_of_token < num_words]
        second = other.log_probs[:-1][other.word_of_token < num_words]
    if first.shape != second.shape:
        return Change(math.inf, f"{len(second)} tokens instead of {len(first)} in {label}")
    sizes = _distances(first, second)
    index = int(sizes.argmax())
    word = f"word {one.word_of_token[index] + 1}" if index < len(one.word_of_token) else "the end"
    return Change(float(sizes[index]), f"{word} of {label}")


def _distances(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Absolute differences; equal infinities are no difference, and what is no number is infinitely far."""
    with np.errstate(invalid="ignore"):
        sizes = np.where(first == second, 0.0, np.abs(first - second))
    return np.where(np.isnan(sizes), math.inf, sizes)


def word_changes(model: LanguageModel, words: Sequence[str], score: SentenceScore, label: str) -> list[Change]:
    """Differences of each word's log probability as ``extend_scored`` gives it, and without a search of the end."""
    state = model.start()
    changes = []
    for position, word in enumerate(words):
        whole = score.log_probs[:-1][score.word_of_token == position].sum()
        state, found = model.extend_scored(state, [word])
        changes.append(_change(whole, found[0], f"word {position + 1} of {label}"))
    if not isinstance(model, Searching):
        changes.append(_at(model, state, len(model.vocabulary), score.log_probs[-1], f"the end of {label}"))
    return changes


def next_token_changes(model: LanguageModel, words: Sequence[str], score: SentenceScore, label: str) -> list[Change]:
    """Differences of the log probability of each word's first token, and of the end."""
    state = model.start()
    changes = []
    for position, word in enumerate(words):
        token = int(model.vocabulary.encode([word], sentence_initial=position == 0).ids[0])
        whole = score.log_probs[int(np.searchsorted(score.word_of_token, position))]
        changes.append(_at(model, state, token, whole, f"word {position + 1} of {label}"))
        state = model.extend(state, [word])
    changes.append(_at(model, state, len(model.vocabulary), score.log_probs[-1], f"the end of {label}"))
    return changes


def _at(model: LanguageModel, state: IncrementalState, token: int, whole: np.float64, where: str) -> Change:
    return _change(whole, float(model.next_word_log_probs(state)[0, token]), where)


def _change(whole: float, found: float, where: str) -> Change:
    (size,) = _distances(np.array([whole]), np.array([found]))
    return Change(float(size), where)
