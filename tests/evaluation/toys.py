"""A toy language model that keeps every contract, and one that breaks each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.encoding import SentenceBatch
from treelm.corpora.vocabulary import Pieces, Vocabulary
from treelm.errors import InputError
from treelm.inference.batching import Sentences, Task, in_process
from treelm.models.base import IncrementalState, LanguageModel, Losses, SentenceScore
from treelm.models.capabilities import Parser
from treelm.trees.tree import Tree

TOKENS = ("a", "b", "c", "+d")  # a word is one of them, or two: "x+d" is "x" and the piece "+d"
END = len(TOKENS)


class ToyVocabulary(Vocabulary):
    def __len__(self) -> int:
        return len(TOKENS)

    def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
        pieces = [[TOKENS.index(form[0])] + ([3] if form.endswith("+d") else []) for form in forms]
        offsets = np.cumsum([0, *map(len, pieces)])
        return Pieces(
            ids=np.array([one for word in pieces for one in word], dtype=np.int32), offsets=offsets.astype(np.int64)
        )

    def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
        return None

    def token(self, index: int) -> str:
        return TOKENS[index]

    @property
    def ends_word(self) -> NDArray[np.bool_]:
        return np.ones(len(TOKENS), dtype=np.bool_)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "toy"}


class ToyState(IncrementalState):
    pass


class ToyLM(LanguageModel, Parser):
    """p(token | tokens before) depends on the number of tokens and on the last one."""

    system = "toy"

    def __init__(self) -> None:
        super().__init__(vocabulary=ToyVocabulary())
        self.table = np.random.default_rng(3).normal(size=(END + 1, END + 1))

    @property
    def config(self) -> Any:
        return None

    def log_probs_after(self, prefix: Sequence[int]) -> NDArray[np.float64]:
        logits = self.table[prefix[-1] if prefix else END] + 0.1 * len(prefix) * self.table[0]
        return np.asarray(logits - np.logaddexp.reduce(logits))

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        return [self.score_one(words) for words in sentences]

    def score_one(self, words: Sequence[str]) -> SentenceScore:
        pieces = self.vocabulary.encode(words)
        ids = [*map(int, pieces.ids), END]
        log_probs = np.array([self.log_probs_after(ids[:i])[ids[i]] for i in range(len(ids))])
        owner = np.repeat(np.arange(len(words)), np.diff(pieces.offsets))
        return SentenceScore(log_probs=log_probs, word_of_token=owner.astype(np.int64), is_lower_bound=False)

    def _start(self, num_sentences: int) -> ToyState:
        return ToyState.begin(num_sentences)

    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> ToyState:
        assert isinstance(state, ToyState)
        new = ((one,) if one is not None else () for one in tokens)
        return replace(state, tokens=tuple(old + more for old, more in zip(state.tokens, new, strict=True)))

    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        assert isinstance(state, ToyState)
        return torch.from_numpy(np.stack([self.log_probs_after(tokens) for tokens in state.tokens]))

    def losses(self, batch: SentenceBatch) -> Losses:
        raise NotImplementedError

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        return [Tree("S", words) for words in sentences]


class Searches(ToyLM):
    """A search of which the first word alone has converged."""

    def score_one(self, words: Sequence[str]) -> SentenceScore:
        flags = np.array([1.0, *[0.0] * (len(words) - 1)])
        return replace(super().score_one(words), columns={"beam_converged": flags})


def changed(score: SentenceScore, position: int, amount: float, *, is_lower_bound: bool = False) -> SentenceScore:
    log_probs = score.log_probs.copy()
    log_probs[position] += amount
    return SentenceScore(log_probs=log_probs, word_of_token=score.word_of_token, is_lower_bound=is_lower_bound)


class Peeks(ToyLM):
    """The first token's probability knows what the last word is."""

    def score_one(self, words: Sequence[str]) -> SentenceScore:
        return changed(super().score_one(words), 0, 1e-12 * "abc".index(words[-1][0]))


class KnowsTheLength(ToyLM):
    """The first token's probability knows how many words follow, not which."""

    def score_one(self, words: Sequence[str]) -> SentenceScore:
        return changed(super().score_one(words), 0, 1e-12 * len(words))


class LosesMass(ToyLM):
    """Every distribution sums to 0.9."""

    def log_probs_after(self, prefix: Sequence[int]) -> NDArray[np.float64]:
        return super().log_probs_after(prefix) + np.log(0.9)


class LosesMassInItsSearch(LosesMass):
    """Sums to 0.9 and says that its scores are lower bounds."""

    factor = 1.0

    def score_one(self, words: Sequence[str]) -> SentenceScore:
        return changed(super().score_one(words), 0, 0.0, is_lower_bound=True)


class InventsMassInItsSearch(LosesMassInItsSearch):
    def log_probs_after(self, prefix: Sequence[int]) -> NDArray[np.float64]:
        return super().log_probs_after(prefix) + np.log(1.2)


class NotANumber(ToyLM):
    def log_probs_after(self, prefix: Sequence[int]) -> NDArray[np.float64]:
        return super().log_probs_after(prefix) * (np.nan if len(prefix) == 2 else 1.0)


class DependsOnTheBatch(ToyLM):
    """Scores depend on the longest sentence beside them."""

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        longest = max(map(len, sentences))
        return [
            changed(one, -1, 1e-12 * (longest - len(words)))
            for one, words in zip(super()._score(sentences), sentences, strict=True)
        ]


class ForgetsInStreams(ToyLM):
    """Word by word it forgets how many tokens it has read."""

    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        assert isinstance(state, ToyState)
        return torch.from_numpy(np.stack([self.log_probs_after(tokens[-1:]) for tokens in state.tokens]))


class ScoresOtherwise(ToyLM):
    """The words that it reads have other numbers than those of whole sentences."""

    def _extend_scored(
        self, state: IncrementalState, words: Sequence[str]
    ) -> tuple[IncrementalState, NDArray[np.float64]]:
        after, log_probs = super()._extend_scored(state, words)
        return after, log_probs + 1e-3


class MixesPiecesUp(ToyLM):
    """Word by word, after a b, what goes on with the word has the probability of another token."""

    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        assert isinstance(state, ToyState)
        found = super()._next_word_log_probs(state)
        for row, tokens in enumerate(state.tokens):
            if tokens[-1:] == (1,):
                found[row, [0, 3]] = found[row, [3, 0]]
        return found


def fails_at(word: str) -> Callable[..., Iterator[list]]:
    """Computing in this process, by which no batch with the word can be scored."""

    def compute(lm: LanguageModel, task: Task, batches: Iterable[Sentences]) -> Iterator[list]:
        def score(lm: LanguageModel, sentences: Sentences) -> Sequence:
            if any(word in words for words in sentences):
                raise InputError("too hard", remedy="give another")
            return task(lm, sentences)

        return in_process(lm, score, batches)

    return compute
