"""Models that read for the page what was typed."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from treelm.errors import InputError
from treelm.explorer.sentences import Words
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser, Searching, has, structure_of
from treelm.models.scores import PartialAnalysis
from treelm.models.states import IncrementalState
from treelm.models.structures import Structure
from treelm.trees.tree import Tree

Result = TypeVar("Result")

KEPT = 160
"""States that a model keeps, those asked for last: going back in time, or one word on, computes nothing twice."""
MOST_ANALYSES, MOST_CANDIDATES = 6, 8
END = "(end)"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A model after the words of a prefix. Without words, and of a bare parser, there is no surprisal."""

    state: IncrementalState
    surprisal_bits: float | None = None
    unknown_class: str | None = None  # what stood for the last word, if the vocabulary does not have it


class Candidate(NamedTuple):
    """What may come next: a token or the end of the sentence, and its probability."""

    token: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Look:
    """A model's analysis of the words so far."""

    tree: Tree | None
    has_labels: bool
    """Whether the model predicts labels of constituents."""
    analyses: Sequence[PartialAnalysis]
    """What a search has kept, the most probable first; none if it reads without one."""
    structure: Structure | None
    candidates: Sequence[Candidate]


class Reader:
    """One model, which remembers where it has been.

    It computes in a thread of its own, in small parts, in the order in which they were asked for.
    """

    def __init__(self, name: str, lm: LanguageModel, *, is_on: bool = True) -> None:
        """Begin before the first word; ``name`` is what the page calls the model, which reads at first if it is on."""
        self.name, self.lm, self.is_on = name, lm, is_on
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"explorer-{name}")
        self._steps = OrderedDict[Words, Step]()

    async def step(self, words: Words) -> Step:
        """Read the last of these words after the others. Raises ``InputError`` as the model does."""
        return await self._compute(lambda: self._step(words))

    async def look(self, words: Words) -> Look:
        """Its analysis of these words, at least one. Raises ``InputError`` as the model does."""
        return await self._compute(lambda: self._look(words))

    def warm_up(self) -> None:
        """Read a word, so that the first one that somebody types does not wait for what is done only once."""
        with suppress(InputError):  # reported when somebody types
            self._thread.submit(self._look, ("the",)).result()

    def close(self) -> None:
        """Compute nothing more, but for what is being computed now."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _compute(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _step(self, words: Words) -> Step:
        known = len(words)
        while known and words[:known] not in self._steps:
            known -= 1
        step = self._steps.get(words[:known]) or self._keep((), Step(state=self.lm.start()))
        for length in range(known, len(words)):
            step = self._keep(words[: length + 1], self._next(step.state, words[length]))
        self._steps.move_to_end(words)
        return step

    def _next(self, state: IncrementalState, word: str) -> Step:
        unknown = self.lm.vocabulary.unknown_class(word, sentence_initial=state.num_tokens_read[0] == 0)
        if not self.lm.predicts_words:
            return Step(state=self.lm.extend(state, [word]), unknown_class=unknown)
        after, log_probs = self.lm.extend_scored(state, [word])
        return Step(state=after, surprisal_bits=float(log_probs[0]) / -math.log(2), unknown_class=unknown)

    def _keep(self, words: Words, step: Step) -> Step:
        self._steps[words] = step
        while len(self._steps) > KEPT:
            self._steps.popitem(last=False)
        return step

    def _look(self, words: Words) -> Look:
        state = self._step(words).state
        return Look(
            tree=self.lm.partial_trees(state)[0] if has(self.lm, Parser) else None,
            has_labels=has(self.lm, Parser) and self.lm.predicts_labels,
            analyses=self.lm.partial_analyses(state, MOST_ANALYSES)[0] if isinstance(self.lm, Searching) else [],
            structure=structure_of(self.lm, words),
            candidates=self._candidates(state) if self.lm.predicts_words else (),
        )

    def _candidates(self, state: IncrementalState) -> list[Candidate]:
        vocabulary = self.lm.vocabulary
        log_probs, tokens = self.lm.next_word_log_probs(state)[0].topk(min(MOST_CANDIDATES, len(vocabulary) + 1))
        names = [END if token == len(vocabulary) else vocabulary.shown(token) for token in tokens.tolist()]
        return [Candidate(*one) for one in zip(names, log_probs.exp().tolist(), strict=True)]
