"""A scorer with the method names of minicons (Misra 2022), for scripts that were written for it.

No other package is needed.

Models of treelm differ from those that minicons knows: the first word has a score, given the beginning of the sentence
(there it is 0 or left out); and the end of the sentence counts only if it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.tokens import Tokenisation, words_of
from treelm.errors import InputError, check_choice
from treelm.inference.adapters import Line, score_lines, token_ids
from treelm.models.base import LanguageModel

Unit = Literal["token", "word"]
Reduction = Callable[[Tensor], float]
END = "</s>"


def mean(scores: Tensor) -> float:
    """The mean: how minicons reduces by default."""
    return float(scores.mean(0).item())


class Scorer:
    """Scores of texts of one sentence each, by any system."""

    def __init__(
        self,
        lm: LanguageModel,
        *,
        unit: Unit = "token",
        tokenisation: Tokenisation = "whitespace",
        with_end: bool = False,
    ) -> None:
        """Wrap a model; a score is of a ``unit``: a token of the vocabulary or a word.

        ``with_end`` counts the end of the sentence as one more, under the name ``</s>``.
        """
        check_choice("unit", unit, ("token", "word"))
        self.lm, self._unit, self._tokenisation, self._with_end = lm, unit, tokenisation, with_end

    def sequence_score(
        self, batch: str | Sequence[str], reduction: Reduction = mean, base_two: bool = False
    ) -> list[float]:
        """Log probabilities (n,) of each sentence, reduced to one number: by default their mean, in nats."""
        lines = self._lines(_as_list(batch))
        return [reduction(_converted(self._tokens(line)[1], base_two=base_two)) for line in lines]

    def token_score(
        self,
        batch: str | Sequence[str],
        surprisal: bool = False,
        prob: bool = False,
        base_two: bool = False,
        rank: bool = False,
    ) -> list[list[tuple[str, float]]] | list[list[tuple[str, float, int]]]:
        """Tokens of every sentence, each with its log probability, surprisal or probability.

        ``rank`` adds the rank of the token (1 for the likeliest) among all that could have followed. Raises
        ``InputError`` for what contradicts itself, and for ranks of words.
        """
        if rank and self._unit == "word":
            raise InputError("ranks of words", remedy='use unit="token": words are spelled in tokens')
        rows, ranks = [], []
        for line in self._lines(_as_list(batch)):
            names, log_probs = self._tokens(line)
            rows.append(list(zip(names, _converted(log_probs, surprisal, prob, base_two).tolist(), strict=True)))
            ranks.append(self._ranks(line.words) if rank else [])
        if not rank:
            return rows
        return [
            [(*pair, place) for pair, place in zip(row, own, strict=True)] for row, own in zip(rows, ranks, strict=True)
        ]

    def conditional_score(
        self,
        prefix: str | Sequence[str],
        stimuli: str | Sequence[str],
        separator: str = " ",
        reduction: Reduction = mean,
        prob: bool = False,
        base_two: bool = False,
        surprisal: bool = False,
    ) -> list[float]:
        """The same as ``sequence_score`` of what stands after each prefix, given the prefix.

        A word that reaches over the end of the prefix (with an empty separator) belongs to the stimulus. Raises
        ``InputError`` for different numbers of prefixes and stimuli.
        """
        prefixes, rest = _as_list(prefix), _as_list(stimuli)
        if len(prefixes) != len(rest):
            found = f"{len(prefixes)} prefixes for {len(rest)} stimuli"
            raise InputError(found, remedy="give one prefix for every stimulus")
        texts = [before + separator + after for before, after in zip(prefixes, rest, strict=True)]
        reduced = []
        for text, before, line in zip(texts, prefixes, self._lines(texts), strict=True):
            _, log_probs = self._tokens(line, first_end=len(before) + 1)
            if len(log_probs) == 0:
                raise InputError(f"nothing to score in {text!r} after the prefix", remedy="give a stimulus with words")
            reduced.append(reduction(_converted(log_probs, surprisal, prob, base_two)))
        return reduced

    def word_score_tokenized(
        self,
        batch: str | Sequence[str],
        tokenize_function: Callable[[str], Sequence[str]],
        bow_correction: bool = True,
        surprisal: bool = False,
        prob: bool = False,
        base_two: bool = False,
    ) -> list[list[tuple[str, float]]]:
        """Words of every sentence, as ``tokenize_function`` splits it, each with the sum over the model words in it.

        The end of a word always counts where it should (``bow_correction``). Raises ``InputError`` for words that are
        not in the text, and for parts of one word of the model.
        """
        if not bow_correction:
            raise InputError("bow_correction = False", remedy="remove this argument: scores are of whole words")
        texts = _as_list(batch)
        rows = []
        for text, line in zip(texts, self._lines(texts), strict=True):
            words = tokenize_function(text)
            log_probs = _sums_between(text, words, line)
            if self._with_end:
                words, log_probs = [*words, END], np.append(log_probs, line.score.log_probs[-1])
            rows.append(list(zip(words, _converted(log_probs, surprisal, prob, base_two).tolist(), strict=True)))
        return rows

    def next_word_distribution(self, queries: str | Sequence[str], surprisal: bool = False) -> Tensor:
        """log p (or surprisal) in nats of what follows each text: (n, V + 1), tokens, and the end of the sentence.

        A text without words asks for the first one.
        """
        found = []
        for text in _as_list(queries):
            state = self.lm.start(1)
            for word in words_of(text, self._tokenisation):
                state = self.lm.extend(state, [word])
            found.append(self.lm.next_word_log_probs(state)[0])
        log_probs = torch.stack(found)
        return -log_probs if surprisal else log_probs

    def topk(self, distribution: Tensor, k: int = 1) -> tuple[list[Any], list[Any]]:
        """The k likeliest tokens of every row of log probabilities, and their probabilities; of k = 1 the only ones."""
        best = distribution.topk(k, dim=1)
        names = [self._names(row) for row in best.indices.tolist()]
        if k == 1:
            return [row[0] for row in names], best.values[:, 0].exp().tolist()
        return names, best.values.exp().tolist()

    def _lines(self, texts: Sequence[str]) -> list[Line]:
        """The scored sentence of each text."""
        found = []
        for lines, text in zip(score_lines(self.lm, texts, self._tokenisation), texts, strict=True):
            if len(lines) != 1:
                remedy = "give texts of one line with at least one word"
                raise InputError(f"{len(lines)} sentences in {text!r}", remedy=remedy)
            found += lines
        return found

    def _names(self, tokens: Sequence[int]) -> list[str]:
        vocabulary = self.lm.vocabulary
        return [END if index == len(vocabulary) else vocabulary.token(index) for index in tokens]

    def _tokens(self, line: Line, *, first_end: int = 0) -> tuple[list[str], NDArray[np.float64]]:
        """Names and log probabilities of tokens, or words, whose word ends at ``first_end`` or later."""
        names, values, ends = list(line.words), _of_words(line), line.ends
        if self._unit == "token":
            names, values = self._names(token_ids(self.lm, line.words)), line.score.log_probs[:-1]
            ends = line.token_ends
        chosen = np.flatnonzero(ends >= first_end)
        names, values = [names[number] for number in chosen], values[chosen]
        if self._with_end:
            return [*names, END], np.append(values, line.score.log_probs[-1])
        return names, values

    def _ranks(self, words: Sequence[str]) -> list[int]:
        tokens, state, found = token_ids(self.lm, words), self.lm.start(1), list[int]()
        for token in [*tokens, *([len(self.lm.vocabulary)] if self._with_end else [])]:
            log_probs = self.lm.next_word_log_probs(state)[0]
            found.append(int((log_probs > log_probs[token]).sum()) + 1)
            if token < len(self.lm.vocabulary):
                state = self.lm.extend_tokens(state, [token])
        return found


def _as_list(texts: str | Sequence[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _of_words(line: Line) -> NDArray[np.float64]:
    """(num_words,) log p of each word of the model."""
    return np.bincount(line.score.word_of_token, line.score.log_probs[:-1], len(line.words)).astype(np.float64)


def _sums_between(text: str, words: Sequence[str], line: Line) -> NDArray[np.float64]:
    """log p of each of the words of a text: the sum over the model's words that end in it."""
    ends, position = list[int](), 0
    for word in words:
        start = text.find(word, position)
        if start < 0:
            remedy = "let tokenize_function only split texts"
            raise InputError(f"a word {word!r} that is not in {text!r}", remedy=remedy)
        position = start + len(word)
        ends.append(position)
    owner = np.searchsorted(ends, line.ends)
    if set(owner.tolist()) != set(range(len(words))):
        remedy = 'let tokenize_function split as the scorer does (tokenisation="whitespace")'
        raise InputError(f"a part of a word of the model among {list(words)!r}", remedy=remedy)
    return np.bincount(owner, _of_words(line), len(words)).astype(np.float64)


def _converted(
    log_probs: NDArray[np.float64], surprisal: bool = False, prob: bool = False, base_two: bool = False
) -> Tensor:
    """Nats as what is asked for. Raises ``InputError`` for what contradicts itself."""
    if prob and (surprisal or base_two):
        other = "surprisal" if surprisal else "base_two"
        raise InputError(f"prob and {other} at once", remedy="choose one: a probability has no logarithm")
    values = torch.from_numpy(np.ascontiguousarray(log_probs))
    if prob:
        return values.exp()
    if base_two:
        values = values / math.log(2)
    return -values if surprisal else values
