"""The n-gram model: estimation, scores and next words from the smoothed n-grams of ``kneser_ney.py``.

The plain forms are ``tests/models/ngram/plain.py`` and ``plain_pruning.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from treelm.configs import Number, configuration
from treelm.corpora.encoding import EncodedCorpus, SentenceBatch, encode_words, word_of_token
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import IncrementalState, LanguageModel
from treelm.models.capabilities import BackoffNGrams, Counted
from treelm.models.ngram.arpa import read_levels, write_levels
from treelm.models.ngram.kneser_ney import count_ngrams, prune, smooth, with_boundaries
from treelm.models.scores import Loss, Losses, SentenceScore

_SENTENCES = 1 << 16  # sentences that are encoded together


@configuration
class NGramConfig:
    """Interpolated modified Kneser-Ney smoothing (Chen & Goodman 1999, section 3).

    Raises ``InputError`` for values that make no sense.
    """

    order: Annotated[int, Field(ge=1, le=12)] = 5
    """Length of the longest n-grams (n): a token depends on the n - 1 tokens before it."""
    fallback_discounts: tuple[float, float, float] | None = None
    """Discounts of n-grams seen once, twice and more often, for the lengths whose counts of counts do not give any:
    small data, or few tokens, as characters. Without it such data are an error."""
    prune_threshold: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Entropy pruning (Stolcke 1998): leave out n-grams whose removal raises the perplexity by a share of less than
    this, such as 1e-8. 0: all stay."""
    num_ngrams: tuple[Number, ...] = ()
    """Distinct n-grams of every length; estimation sets it, recipes leave it out."""

    def __post_init__(self) -> None:
        """Check values."""
        given = self.fallback_discounts
        if given is not None:
            if not all(0 <= value <= count for count, value in enumerate(given, start=1)):
                found = f"fallback_discounts = {list(given)}"
                raise InputError(found, remedy="give numbers from 0 to 1, 2 and 3, such as 0.5, 1.0, 1.5")
            if any(later - before > 1 or later < before for before, later in pairwise(given)):
                found = f"fallback_discounts = {list(given)}"
                raise InputError(found, remedy="let them rise by at most 1 each, such as 0.5, 1.0, 1.5")
        if self.num_ngrams and len(self.num_ngrams) != self.order:
            found = f"num_ngrams = {list(self.num_ngrams)} with order = {self.order}"
            raise InputError(found, remedy="leave num_ngrams out of recipes: estimation sets it")


@dataclass(frozen=True, kw_only=True)
class NGramState(IncrementalState):
    """The numbers of the n-grams that end with the last token of each sentence, -1 for those that were never seen."""

    contexts: Tensor  # (sentences, order - 1), of lengths 1, 2, ...


class NGram(LanguageModel, Counted, BackoffNGrams):
    """Interpolated modified Kneser-Ney smoothing (Chen & Goodman 1999) over tokens, sentence by sentence.

    Its buffers are the smoothed levels of ``kneser_ney``: ``keys_n``, ``log_probs_n`` and ``log_backoffs_n`` for every
    length n. Before ``estimate`` all tokens are equally probable.
    """

    system: ClassVar[str] = "ngram"
    config: NGramConfig

    def __init__(self, config: NGramConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Allocate buffers for as many n-grams as the config says."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        base = len(vocabulary) + 2
        sizes = config.num_ngrams or (base, *(0,) * (config.order - 1))
        if sizes[0] != base:
            raise InputError(f"{sizes[0]} unigrams, the vocabulary has {base}", remedy="take config of the same run")
        for length, size in enumerate(sizes, start=1):
            self._keep(length, torch.arange(size), torch.zeros(size).double(), torch.zeros(size).double())
        self.log_probs_1: Tensor = self.log_probs_1 - np.log(base - 1)

    def estimate(self, corpus: EncodedCorpus) -> None:
        """Count the corpus and smooth. Raises ``InputError`` if the counts give no discounts."""
        batches = [
            corpus.batch(np.arange(start, min(start + _SENTENCES, len(corpus))))
            for start in range(0, len(corpus), _SENTENCES)
        ]
        tokens = np.concatenate([batch.tokens for batch in batches])
        lengths = np.concatenate([np.diff(batch.token_offsets) for batch in batches])
        vocabulary_size = len(self.vocabulary)
        text, place = with_boundaries(tokens, np.concatenate(([0], np.cumsum(lengths))), vocabulary_size)
        levels = count_ngrams(text, place, vocabulary_size=vocabulary_size, order=self.config.order)
        found = smooth(levels, vocabulary_size=vocabulary_size, fallback=self.config.fallback_discounts)
        if self.config.prune_threshold:
            threshold = self.config.prune_threshold
            found = prune(levels, found, vocabulary_size=vocabulary_size, threshold=threshold)
        self.config = replace(self.config, num_ngrams=tuple(len(level.keys) for level in found))
        for length, level in enumerate(found, start=1):
            self._keep(length, *map(torch.from_numpy, (level.keys, level.log_probs, level.log_backoffs)))

    @classmethod
    def read_file(cls, path: Path) -> NGram:
        """The model of an ARPA file. Words that are not in the file are its ``<unk>``."""
        levels, vocabulary = read_levels(path)
        sizes = tuple(len(keys) for keys, _, _ in levels)
        model = cls(NGramConfig(order=len(levels), num_ngrams=sizes), vocabulary=vocabulary)
        for length, level in enumerate(levels, start=1):
            model._keep(length, *map(torch.from_numpy, level))
        return model.eval()

    def write_arpa(self, path: Path) -> None:
        """Write an ARPA file, which KenLM and others read."""
        levels = []
        for length in range(1, self.config.order + 1):
            keys = torch.arange(len(self.log_probs_1)) if length == 1 else self.get_buffer(f"keys_{length}")
            weights = self.get_buffer(f"log_backoffs_{length}") if length < self.config.order else keys.new_zeros(0)
            parts = (keys, self.get_buffer(f"log_probs_{length}"), weights.double())
            numbers, log_probs, log_backoffs = (part.cpu().numpy() for part in parts)
            levels.append((numbers, log_probs, log_backoffs))
        write_levels(path, levels, self.vocabulary)

    def _keep(self, length: int, keys: Tensor, log_probs: Tensor, log_backoffs: Tensor) -> None:
        self.register_buffer(f"log_probs_{length}", log_probs)
        if length > 1:  # tokens have their own ids
            self.register_buffer(f"keys_{length}", keys)
        if length < self.config.order:
            self.register_buffer(f"log_backoffs_{length}", log_backoffs)

    # Whole sentences.

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sum of -log p of every token and end, in nats. There is nothing to differentiate."""
        log_probs = self._log_probs(batch.tokens, batch.token_offsets)
        return Losses.of(batch, {"word": Loss(sum=-log_probs.sum(), count=len(log_probs))})

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        batch = encode_words(sentences, self.vocabulary)
        log_probs = self._log_probs(batch.tokens, batch.token_offsets).cpu().numpy()
        scores = []
        for row in range(len(batch)):
            start, stop = batch.token_offsets[row : row + 2].tolist()
            words = word_of_token(batch.tokens_of(row), self.vocabulary.ends_word)
            own = log_probs[start + row : stop + row + 1]
            scores.append(SentenceScore(log_probs=own, word_of_token=words, is_lower_bound=False))
        return scores

    def _log_probs(self, tokens: NDArray[np.int64], offsets: NDArray[np.int64]) -> Tensor:
        """log p of every token and end of flat sentences, in their order: (tokens + sentences,)."""
        device = self.log_probs_1.device
        text, place = (
            torch.from_numpy(values).to(device) for values in with_boundaries(tokens, offsets, len(self.vocabulary))
        )
        numbers = text
        log_probs = self.log_probs_1[text]
        for length in range(2, self.config.order + 1):
            contexts = torch.where(place > 0, numbers.roll(1), -1)
            numbers = self._find(length, contexts, text)
            log_probs = self._choose(length, log_probs, contexts, numbers)
        return log_probs[place > 0]

    def _find(self, length: int, contexts: Tensor, tokens: Tensor) -> Tensor:
        """The numbers of the n-grams of this length with these contexts and last tokens; -1 where there is none."""
        keys = self.get_buffer(f"keys_{length}")
        if not len(keys):
            return torch.full_like(contexts, -1)
        wanted = contexts * (len(self.vocabulary) + 2) + tokens
        numbers = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return torch.where((contexts >= 0) & (keys[numbers] == wanted), numbers, -1)

    def _choose(self, length: int, shorter: Tensor, contexts: Tensor, numbers: Tensor) -> Tensor:
        """log p by n-grams of this length: their own if they were seen, else that of ``shorter`` ones with back-off."""
        log_probs = self.get_buffer(f"log_probs_{length}")
        log_backoffs = self.get_buffer(f"log_backoffs_{length - 1}")
        if not len(log_backoffs):  # all were pruned
            return shorter
        backed_off = torch.where(contexts >= 0, log_backoffs[contexts.clamp(min=0)], 0.0) + shorter
        if not len(log_probs):
            return backed_off
        return torch.where(numbers >= 0, log_probs[numbers.clamp(min=0)], backed_off)

    # Word by word.

    def _start(self, num_sentences: int) -> NGramState:
        contexts = torch.full((num_sentences, max(self.config.order - 1, 1)), -1, device=self.log_probs_1.device)
        contexts[:, 0] = len(self.vocabulary) + 1
        return NGramState.begin(num_sentences, contexts=contexts)

    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> NGramState:
        state = NGramState.own(state)
        read = torch.tensor([-1 if one is None else one for one in tokens], device=state.contexts.device)
        contexts = state.contexts.clone()
        contexts[:, 0] = read
        for length in range(2, self.config.order):
            contexts[:, length - 1] = self._find(length, state.contexts[:, length - 2], read)
        return state.after(tokens, self.vocabulary, contexts=torch.where(read[:, None] < 0, state.contexts, contexts))

    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        rows = NGramState.own(state).contexts
        return torch.stack([self._distribution(row) for row in rows.tolist()])

    def _distribution(self, contexts: Sequence[int]) -> Tensor:
        """log p of every token and of the end (V + 1,) after the contexts of one sentence, by rising length."""
        base = len(self.vocabulary) + 2
        log_probs = self.log_probs_1[:-1].clone()
        for length, context in enumerate(contexts[: self.config.order - 1], start=2):
            if context < 0:
                continue
            keys = self.get_buffer(f"keys_{length}")
            log_probs += self.get_buffer(f"log_backoffs_{length - 1}")[context]
            bounds = torch.tensor([context * base, (context + 1) * base], device=keys.device)
            first, last = torch.searchsorted(keys, bounds).tolist()
            log_probs[keys[first:last] % base] = self.get_buffer(f"log_probs_{length}")[first:last]
        return log_probs
