"""Accuracy on test suites: of a model, or of surprisals from any other program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from treelm.corpora.tokens import Tokenisation
from treelm.errors import InputError
from treelm.evaluation.syntaxgym.formula import Formula, Region
from treelm.evaluation.syntaxgym.regions import RegionTokens, ScoredToken, align
from treelm.evaluation.syntaxgym.suites import Condition, Item, Suite
from treelm.evaluation.syntaxgym.texts import KeptScores, ScoredText, ScoreGroups, score_texts

if TYPE_CHECKING:
    from treelm.models.base import SyntacticLM

TokensOf = Mapping[str, Sequence[ScoredToken]]
"""Text of a sentence -> its tokens."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One prediction about one item."""

    suite: str
    item: int
    prediction: int  # number in the suite, from 0
    holds: bool
    has_unknown: bool  # whether a region that the formula names holds an unknown word, in any of its conditions


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """All outcomes of a suite.

    Its accuracy is that of its first prediction: so are the published figures (``fgd_hierarchy`` and ``nn-nv-rpl`` have
    a second one, which ``accuracy(1)`` gives).
    """

    suite: str
    formulas: tuple[str, ...]
    outcomes: tuple[Outcome, ...]

    def accuracy(self, prediction: int = 0) -> float:
        """Share of items of which a prediction holds."""
        return fmean(one.holds for one in self.outcomes if one.prediction == prediction)

    def accuracy_without_unknown(self, prediction: int = 0) -> float | None:
        """The same over items without unknown words in the regions that count; None if there is no such item."""
        known = [one.holds for one in self.outcomes if one.prediction == prediction and not one.has_unknown]
        return fmean(known) if known else None

    @property
    def num_items(self) -> int:
        """Items."""
        return sum(one.prediction == 0 for one in self.outcomes)

    @property
    def num_with_unknown(self) -> int:
        """Items with an unknown word in a region that the first prediction names."""
        return sum(one.has_unknown for one in self.outcomes if one.prediction == 0)


def evaluate_suite(suite: Suite, tokens: TokensOf) -> SuiteResult:
    """What holds of every item. Raises ``InputError`` for a sentence whose tokens do not fit it."""
    outcomes = [outcome for item in suite.items for outcome in _evaluate_item(suite, item, tokens)]
    return SuiteResult(suite=suite.name, formulas=suite.formulas, outcomes=tuple(outcomes))


def _evaluate_item(suite: Suite, item: Item, tokens: TokensOf) -> Iterable[Outcome]:
    regions = {
        (condition.name, number): region
        for condition in item.conditions
        for number, region in align(
            condition, tokens[condition.text], where=f"{suite.name}, item {item.number}, {condition.name}"
        ).items()
    }
    values = {place: region.value(suite.metric) for place, region in regions.items()}
    for number, formula in enumerate(suite.predictions):
        _check_values(formula, values, where=f"{suite.name}, item {item.number}", metric=suite.metric)
        yield Outcome(
            suite=suite.name,
            item=item.number,
            prediction=number,
            holds=bool(formula(values)),
            has_unknown=_has_unknown(formula, regions),
        )


def _check_values(formula: Formula, values: Mapping[tuple[str, int], float], *, where: str, metric: str) -> None:
    for region in formula.regions():
        if region.number is not None and math.isnan(values[region.condition, region.number]):
            found = f"region {region.number} of {region.condition!r} is empty: it has no {metric}"
            raise InputError(found, where=where, remedy='use metric "sum", by which an empty region is 0')


def _has_unknown(formula: Formula, regions: Mapping[tuple[str, int], RegionTokens]) -> bool:
    def concerned(region: Region) -> Iterable[RegionTokens]:
        if region.number is not None:
            return (regions[region.condition, region.number],)
        return (tokens for (condition, _), tokens in regions.items() if condition == region.condition)

    return any(tokens.has_unknown for region in formula.regions() for tokens in concerned(region))


def score_suites(
    lm: SyntacticLM,
    suites: Sequence[Suite],
    *,
    tokenisation: Tokenisation = "treebank",
    with_end: bool = False,
    batch_size: int = 16,
    on_sentence: Callable[[], None] = lambda: None,
    score_groups: ScoreGroups | None = None,
    kept: KeptScores | None = None,
) -> list[SuiteResult]:
    """Score every sentence once and evaluate the suites.

    ``with_end`` adds the surprisal of the sentence's end to its last token, as the released tool does for models that
    predict an end. ``score_groups`` scores in another way than ``lm.score``, such as by several processes
    (``inference.processes.in_groups``). What ``kept`` holds is not scored again, and what is scored is kept at once.
    """
    texts = list(dict.fromkeys(condition.text for suite in suites for condition in suite.conditions()))
    found: dict[str, ScoredText] = {}
    groups = score_texts(
        lm, texts, tokenisation=tokenisation, group_size=4 * batch_size, score_groups=score_groups, kept=kept
    )
    for scored in groups:
        found[scored.text] = scored
        on_sentence()
    tokens = {text: found[text].tokens(with_end=with_end) for text in texts}
    return [evaluate_suite(suite, tokens) for suite in suites]


def num_sentences(suites: Sequence[Suite]) -> int:
    """Different sentences of the suites: what ``score_suites`` scores."""
    conditions: Iterable[Condition] = (condition for suite in suites for condition in suite.conditions())
    return len({condition.text for condition in conditions})
