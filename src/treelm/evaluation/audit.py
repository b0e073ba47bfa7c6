"""Audit of a language model: checks of the contract that everything measured of it stands on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from treelm.errors import InputError, choose_from
from treelm.io.json import finite
from treelm.models.base import LanguageModel, ProbabilityMass, SentenceScore
from treelm.models.capabilities import Searching
from treelm.models.layers.dropout import evaluating
from treelm.models.scores import NoLogProbability

Sentences = Sequence[Sequence[str]]
FloatArray = NDArray[np.float64]
Change = tuple[float, str]
"""A deviation, never negative, infinite when it is not a number, and where it was seen."""
Found = tuple[list[Change] | str, str]
"""What a check has seen, or why it is skipped (no changes at all: it is in no report), and what it means for users."""
NUM_CHECKS = 6
"""Checks of ``audit``, the last one of a search and in no report of a model that scores without one."""


Outcome = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Check:
    """The outcome of a check: the largest deviation, the tolerance, and what the check means for users."""

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
        """The report as JSON values; a figure is null where its check was skipped or where it is infinite."""
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


def audit(
    model: LanguageModel,
    sentences: Sentences,
    *,
    seed: int = 1,
    num_cuts: int = 3,
    tolerances: Mapping[str, float] | None = None,
    enumerate_all: Callable[[], ProbabilityMass | None] | None = None,
    on_check: Callable[[], None] = lambda: None,
) -> AuditReport:
    """Check the contract of a model: causality, normalisation, batch invariance, and equal numbers word by word.

    Each sentence is scored about ``2 + 2 * num_cuts`` times. ``enumerate_all`` returns the probability of all trees
    and sentences together, which only tiny models can compute. ``tolerances`` replace the usual ones, by the name of
    the check: without them, deviations must be 0 but for rounding below float64. ``on_check`` is called after each of
    the ``NUM_CHECKS``. Raises ``InputError`` if there are no sentences, if one is empty, and for a tolerance of an
    unknown check.
    """
    if not sentences or not all(sentences):
        raise InputError("no words to audit with", remedy="give at least one sentence, none of them empty")
    # Searches that prune can amplify any change, so invariance is exact, but for rounding below float64.
    rounding = 0.0 if model.scoring_dtype == torch.float64 else 1000 * torch.finfo(model.scoring_dtype).eps
    close = rounding or 1e-6
    finders: list[tuple[str, float, str, Callable[[], Found]]] = [
        ("causality", rounding, "nats", lambda: _causality(model, sentences, seed, num_cuts)),
        ("normalisation", close, "probability", lambda: _normalisation(model, sentences)),
        ("enumeration", close, "probability", lambda: _enumeration(enumerate_all)),
        ("batch invariance", rounding, "nats", lambda: _batch_invariance(model, sentences, seed)),
        ("incremental", close, "nats", lambda: _incremental(model, sentences)),
        ("search", math.inf, "bits", lambda: _search(model, sentences)),
    ]
    names = [name for name, *_ in finders]
    for name in tolerances or ():
        if name not in names:
            raise InputError(f"a tolerance for the unknown check {name!r}", remedy=choose_from(name, names))
    checks = []
    with evaluating(model):
        for name, usual, unit, find in finders:
            try:
                changes, explanation = find()
            except NoLogProbability as error:  # the audit has to say so, and to go on
                changes = [] if name == "search" else [(math.inf, error.found)]
                explanation = "such a model predicts nothing"
            if changes:
                tolerance = (tolerances or {}).get(name, usual)
                figure, finding = None, str(changes)
                if not isinstance(changes, str):
                    figure, where = max(changes, key=lambda change: change[0])
                    finding = f"largest of {len(changes)}: {where}"
                outcome: Outcome = "skipped" if figure is None else "passed" if figure <= tolerance else "failed"
                checks.append(Check(name, outcome, figure, tolerance, unit, finding, explanation))
            on_check()
    return AuditReport(system=model.system, num_sentences=len(sentences), seed=seed, checks=tuple(checks))


def _distances(first: FloatArray | float, second: FloatArray | float) -> FloatArray:
    """Absolute differences, (n,); equal infinities are no difference, and NaN is infinitely far."""
    one, other = np.atleast_1d(first), np.atleast_1d(second)
    with np.errstate(invalid="ignore"):
        sizes = np.where(one == other, 0.0, np.abs(one - other))
    return np.where(np.isnan(sizes), math.inf, sizes)


def _causality(model: LanguageModel, sentences: Sentences, seed: int, num_cuts: int) -> Found:
    """log p of a prefix stays the same, bit for bit, when words after it are changed, added or removed."""
    generator = random.Random(seed)
    pool = sorted({word for words in sentences for word in words})
    changes = []
    for number, words in enumerate(sentences, start=1):
        original = model.score([words])[0]
        for cut in sorted(generator.sample(range(1, len(words) + 1), min(num_cuts, len(words)))):
            for suffix in _other_suffixes(words[cut:], pool, generator):
                changed = model.score([[*words[:cut], *suffix]])[0]
                label = f"sentence {number} with {' '.join(suffix)!r} after word {cut}"
                changes.append(_compare_scores(original, changed, num_words=cut, label=label))
    return changes, "a probability that depends on later words is not a prediction, and surprisals from it mean nothing"


def _other_suffixes(suffix: Sequence[str], pool: Sequence[str], generator: random.Random) -> list[list[str]]:
    """Make two suffixes that differ from this one: one of other words in the same number, and one of more words."""
    others = [generator.choice([other for other in pool if other != word] or [word + "x"]) for word in suffix]
    longer = [generator.choice(pool) for _ in range(len(suffix) + generator.randint(1, 3))]
    return [others, longer] if others else [longer]


def _compare_scores(one: SentenceScore, other: SentenceScore, *, num_words: int | None, label: str) -> Change:
    """Largest difference over the tokens of the first ``num_words`` words, or over everything and the end (None)."""
    first, second = (
        score.log_probs if num_words is None else score.log_probs[:-1][score.word_of_token < num_words]
        for score in (one, other)
    )
    if first.shape != second.shape:
        return math.inf, f"{len(second)} tokens instead of {len(first)} in {label}"
    sizes = _distances(first, second)
    index = int(sizes.argmax())
    word = f"word {one.word_of_token[index] + 1}" if index < len(one.word_of_token) else "the end"
    return float(sizes[index]), f"{word} of {label}"


def _normalisation(model: LanguageModel, sentences: Sentences) -> Found:
    """After every prefix, the probabilities of all next tokens and of the end of the sentence sum to 1.

    Sums below 1 pass if the scores are lower bounds: a search that prunes loses some of the probability.
    """
    pruned = model.score([sentences[0]])[0].is_lower_bound
    changes, smallest = [], 1.0
    for number, words in enumerate(sentences, start=1):
        state = model.start()
        for position in range(len(words) + 1):
            mass = float(model.next_word_log_probs(state).double().exp().sum(dim=-1)[0])
            smallest = min(smallest, mass)
            deviation = max(mass - 1, 0.0) if pruned and mass == mass else float(_distances(mass, 1.0)[0])
            changes.append((deviation, f"the sum is {mass:.6g} after word {position} of sentence {number}"))
            state = model.extend(state, [words[position]]) if position < len(words) else state
    explanation = "probabilities that do not sum to 1 make perplexities incomparable with other models'"
    if pruned:
        explanation += f"; this model's scores are lower bounds, so sums below 1 pass (smallest {smallest:.6g})"
    return changes, explanation


def _enumeration(enumerate_all: Callable[[], ProbabilityMass | None] | None) -> Found:
    """The probabilities of all pairs of tree and sentence up to a length, and of unfinished ones, sum to 1."""
    explanation = "the model is a distribution over trees and sentences only if everything together has probability 1"
    mass = enumerate_all() if enumerate_all else None
    if mass is None:
        return "this model offers no enumeration (only tiny vocabularies can)", explanation
    pairs = f"{mass.num_pairs} pairs ({mass.description})"
    finding = f"{pairs} have {mass.finished:.9g}, unfinished ones {mass.unfinished:.9g}"
    return [(float(_distances(mass.finished + mass.unfinished, 1.0)[0]), finding)], explanation


def _batch_invariance(model: LanguageModel, sentences: Sentences, seed: int) -> Found:
    """A sentence has the same scores alone as among others, in whatever order."""
    explanation = "scores that depend on what else is in the batch cannot be reproduced"
    if len(sentences) < 2:
        return "one sentence makes no batch", explanation
    alone = [model.score([words])[0] for words in sentences]
    order = list(range(len(sentences)))
    shuffled = random.Random(seed).sample(order, len(order))
    changes = []
    for batch in (order, shuffled, shuffled[: (len(order) + 1) // 2]):
        for index, score in zip(batch, model.score([sentences[i] for i in batch]), strict=True):
            label = f"sentence {index + 1} in a batch of {len(batch)}"
            changes.append(_compare_scores(alone[index], score, num_words=None, label=label))
    return changes, explanation


def _incremental(model: LanguageModel, sentences: Sentences) -> Found:
    """Reading word by word gives the log probabilities that scoring whole sentences gives.

    The end of the sentence is compared for models without a search only.
    """
    changes = []
    for number, (words, score) in enumerate(zip(sentences, model.score(sentences), strict=True), start=1):
        state = model.start()
        for position, word in enumerate(words):
            whole = score.log_probs[:-1][score.word_of_token == position].sum()
            state, found = model.extend_scored(state, [word])
            changes.append((float(_distances(whole, found[0])[0]), f"word {position + 1} of sentence {number}"))
        if not isinstance(model, Searching):
            end = float(model.next_word_log_probs(state)[0, len(model.vocabulary)])
            changes.append((float(_distances(score.log_probs[-1], end)[0]), f"the end of sentence {number}"))
    return (
        changes,
        "generation and streaming use the model word by word; its reported figures come from whole sentences",
    )


def _search(model: LanguageModel, sentences: Sentences) -> Found:
    """Measure how far ``score`` and ``next_word_log_probs`` differ for a model that searches.

    Both are lower bounds, so no difference is an error, and the check cannot fail.
    """
    scores = model.score(sentences)
    explanation = "a search that looks at the next word and one that does not find different parts of its probability"
    if not any(score.is_lower_bound for score in scores):
        return [], explanation
    changes = []
    for number, (words, score) in enumerate(zip(sentences, scores, strict=True), start=1):
        state = model.start()
        for position in range(len(words) + 1):
            token, where = len(model.vocabulary), "the end"
            if position < len(words):
                encoded = model.vocabulary.encode([words[position]], sentence_initial=position == 0)
                token, where = int(encoded.ids[0]), f"word {position + 1}"
            whole = score.log_probs[int(np.searchsorted(score.word_of_token, position))]
            found = float(model.next_word_log_probs(state)[0, token])
            changes.append((float(_distances(whole, found)[0]) / math.log(2), f"{where} of sentence {number}"))
            state = model.extend(state, [words[position]]) if position < len(words) else state
    flags = [flag for score in scores for flag in score.converged.tolist()]
    if flags:
        explanation += f"; {flags.count(False)} of {len(flags)} words have not converged"
    return changes, explanation
