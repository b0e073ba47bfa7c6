"""Accuracy on test suites: of a model, or of surprisals from any other program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from treelm import __version__
from treelm.corpora.tokens import Tokenisation, token_spans
from treelm.errors import InputError, without_errors
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.syntaxgym.suites import Condition, Metric, Suite
from treelm.inference.batching import Compute, batched, in_process
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Searching
from treelm.models.scores import sentence_surprisal

if TYPE_CHECKING:
    import pandas as pd

    from treelm.models.scores import SentenceScore


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredToken:
    """A token, such as a word or a piece of one, with its place in the text of the sentence.

    ``start`` and ``end`` count characters from 0; the end is exclusive.
    """

    start: int
    end: int
    surprisal_bits: float
    is_unk: bool = False


TokensOf = Mapping[str, Sequence[ScoredToken]]
"""Text of a sentence -> its tokens."""
_METRICS: dict[Metric, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "mean": mean,
    "median": median,
    "range": lambda bits: max(bits) - min(bits),
    "max": max,
    "min": min,
}


def align(condition: Condition, tokens: Sequence[ScoredToken], *, where: str) -> dict[int, list[ScoredToken]]:
    """Find the tokens of every region by their places in the text.

    Blanks at the beginning of a token belong to no region. Raises ``InputError`` for a token that reaches over the end
    of a region or lies outside the text, and for words that no token covers.
    """
    text, spans = condition.text, condition.spans
    found: dict[int, list[ScoredToken]] = {number: [] for number in spans}
    covered = 0

    def check_covered(until: int) -> None:
        if missing := text[covered:until].strip():
            raise InputError(f"no surprisal for {missing!r}", where=where, remedy="give a row for every token")

    for token in sorted(tokens, key=lambda token: token.start):
        if not 0 <= token.start < token.end <= len(text):
            reason = f"token at characters {token.start} to {token.end} of a text of {len(text)}"
            raise InputError(reason, where=where, remedy="count characters from 0, the end exclusive")
        check_covered(token.start)
        content = text[token.start : token.end]
        first = token.end - len(content.lstrip()) if content.strip() else token.start
        number = next(number for number, (_, end) in spans.items() if first < end)
        if token.end > spans[number][1]:
            reason = f"token {content!r} reaches from region {number} into the next"
            raise InputError(reason, where=where, remedy="give surprisals of finer tokens")
        found[number].append(token)
        covered = max(covered, token.end)
    check_covered(len(text))
    return found


def region_value(tokens: Sequence[ScoredToken], metric: Metric) -> float:
    """Value of a region by a metric. Without tokens the sum is 0, and any other metric is not a number."""
    bits = [token.surprisal_bits for token in tokens]
    return _METRICS[metric](bits) if bits or metric == "sum" else math.nan


REGION_COLUMNS = ("suite", "item", "condition", "region", "content", "surprisal_bits", "has_unk", "is_correct")
OUTCOME_COLUMNS = ("item", "prediction", "holds", "has_unk")


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """All outcomes of a suite. Its accuracy is that of its first prediction, as published scores are."""

    suite: str
    formulas: tuple[str, ...]
    outcomes: pd.DataFrame
    """A row (``OUTCOME_COLUMNS``) for each prediction, by its number from 0, about each item: whether it holds, and
    whether a region that its formula names holds an unknown word, in any of its conditions."""
    regions: pd.DataFrame
    """A row (``REGION_COLUMNS``) for each region of each condition of each item. ``surprisal_bits`` is its value by the
    suite's metric, of an empty region 0 or not a number; ``is_correct`` is of the item, by the first prediction."""
    converged: Sequence[bool] = ()  # ``SentenceScore.converged`` of its sentences

    def of(self, prediction: int) -> pd.DataFrame:
        """The outcomes of a prediction."""
        return self.outcomes[self.outcomes["prediction"] == prediction]

    def accuracy(self, prediction: int = 0) -> float:
        """Share of items of which a prediction holds."""
        return float(self.of(prediction)["holds"].mean())

    def accuracy_without_unknown(self, prediction: int = 0) -> float | None:
        """Share of items without unknown words in the regions that count; None if there is no such item."""
        of = self.of(prediction)
        known = of.loc[~of["has_unk"], "holds"]
        return float(known.mean()) if len(known) else None

    def num_with_unknown(self, prediction: int = 0) -> int:
        """Number of items with an unknown word in a region that a prediction names."""
        return int(self.of(prediction)["has_unk"].sum())

    @property
    def num_items(self) -> int:
        """Number of items."""
        return len(self.of(0))

    @property
    def num_impossible(self) -> int:
        """Number of items with a region of probability 0, by the model or because its search kept nothing."""
        return int(self.regions.loc[np.isinf(self.regions["surprisal_bits"]), "item"].nunique())


def evaluate_suite(suite: Suite, tokens: TokensOf) -> SuiteResult:
    """Evaluate each prediction of each item. Raises ``InputError`` for a sentence whose tokens do not fit it."""
    import pandas as pd

    outcomes, rows = [], []
    for item in suite.items:
        where = f"{suite.name}, item {item.number}"
        values: dict[tuple[str, int], float] = {}
        unknown: dict[tuple[str, int], bool] = {}
        for condition in item.conditions:
            aligned = align(condition, tokens[condition.text], where=f"{where}, {condition.name}")
            for number, own in aligned.items():
                values[condition.name, number] = region_value(own, suite.metric)
                unknown[condition.name, number] = any(token.is_unk for token in own)
        for prediction, formula in enumerate(suite.predictions):
            named = [
                place
                for region in formula.regions
                for place in values
                if place[0] == region.condition and region.number in (None, place[1])
            ]
            for place in named:
                if math.isnan(values[place]):
                    found = f"region {place[1]} of {place[0]!r} is empty: it has no {suite.metric}"
                    raise InputError(found, where=where, remedy='use metric "sum", by which an empty region is 0')
            has_unknown = any(unknown[place] for place in named)
            outcomes.append((item.number, prediction, formula.holds(values), has_unknown))
        is_correct = suite.predictions[0].holds(values)
        for condition in item.conditions:
            for number, content in condition.regions:
                place = (condition.name, number)
                about = (suite.name, item.number, condition.name, number, content)
                rows.append((*about, values[place], int(unknown[place]), int(is_correct)))
    return SuiteResult(
        suite=suite.name,
        formulas=suite.formulas,
        outcomes=pd.DataFrame(outcomes, columns=list(OUTCOME_COLUMNS)),
        regions=pd.DataFrame(rows, columns=list(REGION_COLUMNS)),
    )


def score_suites(
    lm: LanguageModel,
    suites: Sequence[Suite],
    *,
    tokenisation: Tokenisation = "treebank",
    with_end: bool = False,
    batch_size: int = 16,
    on_sentence: Callable[[], None] = lambda: None,
    compute: Compute = in_process,
    keep: tuple[MetricCache, str] | None = None,
) -> list[SuiteResult]:
    """Score every sentence of suites once, and evaluate their predictions.

    ``with_end`` adds the surprisal of the end of the sentence to the last token, as the released tool does.
    ``on_sentence`` is called for each sentence. ``compute`` scores groups of sentences in other processes. ``keep`` is
    a cache with the model's hash: scores are kept in it group by group, so that an interrupted call goes on where it
    was. Sentences are scored in alphabetical order, so that a search computes a common beginning once.
    """
    spans = {text: list(token_spans(text, tokenisation)) for text in write_sentences(suites)}
    words = {text: tuple(text[start:end] for start, end in spans[text]) for text in spans}
    found: dict[str, dict[str, Any]] = {}
    todo: list[tuple[Sequence[str], dict[str, Any]]] = []
    about: dict[str, Any] = {"treelm": __version__, "tokenisation": tokenisation, "weights": keep and keep[1]}
    about["search"] = lm.search.to_json() if isinstance(lm, Searching) else {}
    for group in batched(sorted(words, key=lambda text: words[text]), 4 * batch_size):
        origin = {**about, "sentences": list(group)}
        kept = keep and keep[0].get("sentences", origin)
        todo += [] if kept else [(group, origin)]
        found |= kept or {}
    for _ in found:
        on_sentence()
    scores = compute(lm, LanguageModel.score, ([words[text] for text in group] for group, _ in todo))
    for (texts, origin), scored in zip(todo, scores, strict=True):
        found_now = zip(texts, without_errors(scored, None), strict=True)
        own = {text: _plain(words[text], score, lm) for text, score in found_now}
        if keep is not None:
            keep[0].put("sentences", origin, own)
        found |= own
        for _ in texts:
            on_sentence()
    tokens = {text: _tokens(spans[text], found[text], with_end=with_end) for text in spans}
    flags = ([flag for text in write_sentences([suite]) for flag in found[text]["converged"]] for suite in suites)
    return [replace(evaluate_suite(suite, tokens), converged=own) for suite, own in zip(suites, flags, strict=True)]


def _plain(words: Sequence[str], score: SentenceScore, lm: LanguageModel) -> dict[str, Any]:
    """The bits of the words of a sentence and of its end as JSON values, exactly, infinite ones included."""
    found = sentence_surprisal(words, score, lm.vocabulary)
    bits = [*(word.surprisal_bits for word in found.words), found.end_surprisal_bits]
    is_unk = [word.is_unk for word in found.words]
    return {"bits": [*map(float.hex, bits)], "is_unk": is_unk, "converged": score.converged.tolist()}


def _tokens(spans: Sequence[tuple[int, int]], found: dict[str, Any], *, with_end: bool) -> list[ScoredToken]:
    """The tokens of a sentence; ``with_end`` adds the bits of the end to the last one."""
    *bits, end_bits = map(float.fromhex, found["bits"])
    bits[-1] += end_bits if with_end else 0
    return [
        ScoredToken(start=start, end=end, surprisal_bits=own, is_unk=is_unk)
        for (start, end), own, is_unk in zip(spans, bits, found["is_unk"], strict=True)
    ]


def write_sentences(suites: Sequence[Suite]) -> list[str]:
    """List the different sentences of suites, in order: what another program is to score."""
    return list(dict.fromkeys(condition.text for suite in suites for condition in suite.conditions()))
