"""A system small enough to train in milliseconds: a bigram model with dropout, and its batches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from treelm.corpora.encoding import SentenceBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.models.base import IncrementalState, LanguageModel, Loss, Losses, SentenceScore
from treelm.models.capabilities import Parser
from treelm.trees.tree import Tree

FORMS = [f"w{index}" for index in range(10)]


@dataclass(frozen=True, kw_only=True)
class ToyConfig:
    size: int = 8
    dropout: float = 0.3

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout = {self.dropout}", remedy="give a number from 0 and below 1")


class ToyLM(LanguageModel, Parser):
    """p(token | token before it)."""

    system: ClassVar[str] = "toy"
    config: ToyConfig

    def __init__(self, *, config: ToyConfig, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        self.embedding = nn.Embedding(len(vocabulary) + 1, config.size)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.size, len(vocabulary) + 1)
        self.poison: str | None = None  # name of a sentence whose loss is not a number

    def losses(self, batch: SentenceBatch) -> Losses:
        end = len(self.vocabulary)
        before, after = [], []
        for start, stop in zip(batch.token_offsets[:-1], batch.token_offsets[1:], strict=True):
            sentence = batch.tokens[start:stop].tolist()
            before += [end, *sentence]
            after += [*sentence, end]
        logits = self.output(self.dropout(self.embedding(torch.tensor(before))))
        total = nn.functional.cross_entropy(logits, torch.tensor(after), reduction="sum")
        if self.poison in batch.names:
            total = total * float("nan")
        loss = Loss(sum=total, count=len(after))
        return Losses(terms={"word": loss}, total=total, num_words=int(batch.num_words.sum()), num_sentences=len(batch))

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        raise NotImplementedError

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        raise NotImplementedError

    def _start(self, num_sentences: int) -> IncrementalState:
        raise NotImplementedError

    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> IncrementalState:
        raise NotImplementedError

    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        raise NotImplementedError


def toy_model(*, seed: int = 0, of: type[ToyLM] = ToyLM, **config: Any) -> ToyLM:
    torch.manual_seed(seed)
    return of(config=ToyConfig(**config), vocabulary=WordVocabulary(FORMS), labels=["S", "NP"])


def toy_batch(sentences: Sequence[Sequence[int]], names: Sequence[str]) -> SentenceBatch:
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    return SentenceBatch(
        tokens=np.concatenate([np.array(sentence, dtype=np.int64) for sentence in sentences]),
        token_offsets=np.concatenate([[0], lengths.cumsum()]),
        num_words=lengths,
        names=tuple(names),
    )


class ToyBatches:
    """Batches in another order each epoch, from a toy language in which w(i) is followed by w(i) to w(i + 3)."""

    def __init__(self, *, num_sentences: int = 20, batch_size: int = 4, seed: int = 0, shuffle: bool = True) -> None:
        source = random.Random(seed)
        self.sentences = [_sentence(source) for _ in range(num_sentences)]
        self.batch_size, self.shuffle = batch_size, shuffle
        self.epoch = self.given = 0

    def __len__(self) -> int:
        return -(-len(self.sentences) // self.batch_size)

    def __iter__(self) -> Iterator[SentenceBatch]:
        order = list(range(len(self.sentences)))
        if self.shuffle:
            random.Random(self.epoch).shuffle(order)
        while (first := self.given * self.batch_size) < len(order):
            self.given += 1
            chosen = order[first : first + self.batch_size]
            yield toy_batch([self.sentences[i] for i in chosen], [f"toy:{i}" for i in chosen])
        self.epoch, self.given = self.epoch + 1, 0

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "given": self.given}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.given = state["epoch"], state["given"]


def _sentence(source: random.Random) -> list[int]:
    words = [source.randrange(1, 11)]
    for _ in range(source.randrange(1, 6)):
        words.append((words[-1] + source.randrange(4)) % 10 + 1)
    return words
