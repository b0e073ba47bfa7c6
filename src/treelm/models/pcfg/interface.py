"""The base class of language models that are grammars: all but where their rules come from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import IncrementalState, LanguageModel
from treelm.models.capabilities import Enumerable, Parser
from treelm.models.layers.precision import DECIMALS, UntilChanged, one_thread
from treelm.models.pcfg.prefixes import MixedPrefix
from treelm.models.pcfg.rules import Array, Rules
from treelm.models.scores import ProbabilityMass
from treelm.trees.tree import Tree

AnyRules = TypeVar("AnyRules", bound=Rules)
_MOST_STRINGS = 2000  # sentences that are enumerated


@dataclass(frozen=True, kw_only=True, eq=False)
class GrammarState(IncrementalState):
    """The states of sentences that are read side by side."""

    prefixes: tuple[MixedPrefix, ...]


class GrammarLM(LanguageModel, Parser, Enumerable, Generic[AnyRules]):
    """A language model whose words are the leaves of a grammar's trees: exact, and causal by construction.

    Scores are computed in float64 on one core, so that a sentence has the same scores in any batch.
    """

    def __init__(self, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Raise ``InputError`` for a vocabulary with parts of words."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        if not vocabulary.ends_word.all():
            found = "a vocabulary with parts of words, which would be leaves of the trees"
            raise InputError(found, where="[vocabulary]", remedy='take kind = "word"')
        self._kept = UntilChanged[tuple[tuple[AnyRules, float], ...]]()

    @abstractmethod
    def make_grammars(self) -> Sequence[AnyRules]:
        """The grammars that a sentence may be of, all equally probable, from the present weights."""

    @abstractmethod
    def decode(self, words: Sequence[str], expected: Array) -> Tree:
        """The tree that is chosen from the expected number of every symbol over every span (n + 1, n + 1, S)."""

    def grammars(self) -> tuple[AnyRules, ...]:
        """The grammars for reading, conditioned on finite trees; cached until the weights change."""
        return tuple(rules for rules, _ in self._consistent())

    def log_masses(self) -> list[float]:
        """For each grammar, the log of the probability that a tree is finite, on which scores are conditioned."""
        return [log_mass for _, log_mass in self._consistent()]

    def _consistent(self) -> tuple[tuple[AnyRules, float], ...]:
        with torch.no_grad():
            return self._kept.made_of(self, lambda: tuple(one.consistent() for one in self.make_grammars()))

    def probability_mass(self) -> ProbabilityMass | None:
        """The probability of all sentences up to some length, enumerated, and of longer ones; None for many words.

        Together they are 1 only if no tree is infinite, whereas next words and the end always sum to 1 after a prefix.
        """
        num_words = len(self.vocabulary)
        if num_words > _MOST_STRINGS:
            return None
        longest = max(n for n in range(1, 8) if sum(num_words**k for k in range(1, n + 1)) <= _MOST_STRINGS or n == 1)
        grammars, finished, count = self.grammars(), 0.0, 0
        for length in range(1, longest + 1):
            for words in product(range(num_words), repeat=length):
                finished += float(np.exp(read_tokens(grammars, words)[0].sum()))
                count += 1
        beyond = np.mean([one.root @ one.mass() - _mass_up_to(one, longest) for one in grammars])
        return ProbabilityMass(
            finished=finished,
            unfinished=float(beyond),
            num_pairs=count,
            description=f"sentences of up to {longest} words over {num_words}; then finite trees",
        )

    # Word by word.

    def _start(self, num_sentences: int) -> GrammarState:
        return GrammarState.begin(num_sentences, prefixes=(MixedPrefix.begin(self.grammars()),) * num_sentences)

    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> GrammarState:
        before = GrammarState.own(state)
        with one_thread():
            prefixes = tuple(
                prefix if token is None else prefix.extend(token)[0]
                for prefix, token in zip(before.prefixes, tokens, strict=True)
            )
        return before.after(tokens, self.vocabulary, prefixes=prefixes)

    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        found = np.stack([prefix.next_words() for prefix in GrammarState.own(state).prefixes])
        device = next(iter(self.state_dict().values())).device
        return torch.from_numpy(log(found)).to(device)

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """For each sentence, the tree of constituents that are probably closed, given the words read so far."""
        own = GrammarState.own(state)
        own.check_begun()
        return [
            self.decode(words, prefix.constituents(ended=False))
            for words, prefix in zip(own.words, own.prefixes, strict=True)
        ]


def read_tokens(grammars: Sequence[Rules], tokens: Sequence[int]) -> tuple[Array, MixedPrefix]:
    """log p of every word and of the end of a sentence, and the state at its end."""
    prefix, found = MixedPrefix.begin(grammars), []
    for token in tokens:
        prefix, probability = prefix.extend(token)
        found.append(probability)
    return log(np.array([*found, prefix.end])), prefix


def log(probabilities: Array) -> Array:
    """Logarithms of probabilities, rounded to ``DECIMALS``; -inf for 0."""
    with np.errstate(divide="ignore"):
        found: Array = np.log(probabilities).round(DECIMALS)
    return found


def _mass_up_to(rules: Rules, longest: int) -> float:
    """p(sentence has at most ``longest`` words), from cells summed over all words, which depend on the length alone."""
    cells = [rules.word_cell(np.ones(rules.words.shape[0]))]
    while len(cells) < longest:
        parts = [rules.left(one) * rules.right(other) for one, other in zip(cells, reversed(cells), strict=True)]
        cells.append(rules.head(np.sum(parts, 0)))
    return float(sum(rules.root @ cell for cell in cells))
