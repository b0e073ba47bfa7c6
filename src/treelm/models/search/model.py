"""Systems that give a machine and a word head; scores, trees and states come from the word-synchronous search."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from treelm.corpora.encoding import encode_words, word_of_token
from treelm.corpora.tokens import words_of_each
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import Analysis, IncrementalState, LanguageModel, ProbabilityMass, SentenceScore
from treelm.models.capabilities import Enumerable, Parser, Searching
from treelm.models.scores import NoLogProbability, PartialAnalysis, ScoredTree, SubwordAggregation
from treelm.models.search.config import SearchConfig, SearchMethod
from treelm.models.search.enumeration import enumerate_mass
from treelm.models.search.metrics import WORD_COLUMNS, converged
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.sentences import Searchable, SentenceResult, search_all
from treelm.models.search.state import (
    BeamState,
    next_log_probs,
    partial_analyses,
    partial_trees,
    read_tokens,
    start_state,
)
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, Order, finish_action, from_actions
from treelm.trees.tree import Tree


class GenerativeParser(LanguageModel, Parser, Searching, Enumerable):
    """A joint model of a sentence and its tree, built action by action, read by word-synchronous search."""

    runtime_settings: ClassVar[tuple[str, ...]] = ("search",)
    search_methods: ClassVar[tuple[SearchMethod, ...]] = ("beam", "particles")
    """Values of ``search.method`` that it knows; ``released`` is of the RNNG's public code."""

    def __init__(self, *, vocabulary: Vocabulary, labels: Sequence[str]) -> None:
        """Begin with the default search."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._search_config = SearchConfig()

    @property
    def order(self) -> Order:
        """The order of the actions of a derivation, which its config has."""
        found: Order = self.config.order
        return found

    def build_tree(self, actions: Sequence[int], ends_word: Bools, words: Sequence[str]) -> Tree:
        """The tree over words of a derivation over tokens; ``ends_word`` says for each SHIFT whether it ends a word."""
        coming = iter(ends_word.tolist())
        of_words = [action for action in actions if action != SHIFT or next(coming)]
        return from_actions(of_words, words, self.labels, self.order)

    def build_open_tree(self, actions: Sequence[int], ends_word: Bools, words: Sequence[str]) -> Tree:
        """The tree of a derivation that has just shifted a word, what is open closed."""
        num_open = sum(action >= FIRST_NT for action in actions) - sum(action == REDUCE for action in actions)
        if num_open == 0:  # in-order, a constituent opens after its first child: this word may become one
            return Tree("", words)
        last = [finish_action(len(self.labels))] if self.order == "in-order" else []
        return self.build_tree([*actions, *[REDUCE] * num_open, *last], ends_word, words)

    @abstractmethod
    def searchable(self) -> Searchable:
        """The parameters, laid out for search while they do not change."""

    @property
    def word_columns(self) -> dict[str, SubwordAggregation]:
        """Metrics of every word that the search gives."""
        return WORD_COLUMNS

    @property
    def search(self) -> SearchConfig:
        """The search by which it scores and parses; setting it raises ``InputError`` for a method that it lacks."""
        return self._search_config

    @search.setter
    def search(self, config: SearchConfig) -> None:
        """Raises ``InputError`` for a method that the system lacks."""
        if config.method not in self.search_methods:
            found = f"search by {config.method!r}, which is that of the RNNG's public code, but this is {self.system}"
            raise InputError(found, remedy="remove this option")
        self._search_config = config

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Log probability of every token given the tokens before it: lower bounds, by beam search."""
        return [one.score(self.search) for one in self._search(sentences)]

    def score_from(self, sentences: Sequence[Sequence[str]], starts: Tensor) -> list[SentenceScore]:
        """``score`` of sentences that begin from ``starts`` (n, E), of systems that read documents."""
        return [one.score(self.search) for one in self._search(sentences, starts)]

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The best tree of every sentence. Raises ``InputError`` when a search found none."""
        return [self._trees(one, 1)[0].tree for one in self._search(sentences)]

    def parse_nbest(self, sentences: Sequence[Sequence[str]], num_trees: int) -> list[list[ScoredTree]]:
        """At most ``num_trees`` trees of every sentence, best first; there are never more than ``word_beam``."""
        return [self._trees(one, num_trees) for one in self._search(words_of_each(sentences))]

    def _analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Scores and best trees, from one search."""
        searched = self._search(sentences)
        return [Analysis(score=one.score(self.search), tree=self._trees(one, 1)[0].tree) for one in searched]

    def _search(self, sentences: Sequence[Sequence[str]], starts: Tensor | None = None) -> list[_Searched]:
        batch, model = encode_words(sentences, self.vocabulary, needs_words=True), self._checked()
        tokens = [batch.tokens_of(number) for number in range(len(sentences))]
        of_words = [word_of_token(one, self.vocabulary.ends_word) for one in tokens]
        results = search_all(model, model.head(self.search.heavy_words), self.search, tokens, starts)
        return [_Searched(*parts) for parts in zip(sentences, tokens, of_words, results, strict=True)]

    def _checked(self) -> Searchable:
        """``searchable``, unless a weight is no number: a beam would find nothing, and hold every word impossible."""
        for name, parameter in self.named_parameters():
            if not (parameter < torch.inf).all():
                raise NoLogProbability(f"weight {name!r} is not a number, or infinite", where=self.system)
        return self._in_precision().searchable()

    def _in_precision(self) -> GenerativeParser:
        """The network with weights of the search's precision. Raises ``InputError`` for one that is too large."""
        precision = self.search.precision
        if precision == "full":
            return self
        rounded = self._copied().to(torch.float16 if precision == "fp16" else torch.bfloat16)
        for name, parameter in rounded.named_parameters():
            if not parameter.isfinite().all():
                remedy = "search with bf16, or in full precision"
                raise InputError(f"weight {name!r} is too large for {precision}", where=self.system, remedy=remedy)
        return rounded

    def _copied(self) -> GenerativeParser:
        return copy.deepcopy(self, {id(self.vocabulary): self.vocabulary})

    def _trees(self, searched: _Searched, num_trees: int) -> list[ScoredTree]:
        """The trees that search found, best first. Raises ``InputError`` when it found none."""
        result = searched.result
        if not result.derivations:
            found = f"the beam is empty after {int(np.isfinite(result.log_masses).sum())} tokens: no tree was found"
            raise InputError(found, remedy="raise action_beam, word_beam or fast_track")
        ends_word = self.vocabulary.ends_word[searched.tokens]
        return [
            ScoredTree(tree=self.build_tree(one.actions, ends_word, searched.words), log_prob=one.log_prob)
            for one in result.derivations[:num_trees]
        ]

    def probability_mass(self) -> ProbabilityMass | None:
        """The mass of all trees over up to two tokens and of all that needs more; None unless the model is tiny."""
        return enumerate_mass(self._checked())

    def _start(self, num_sentences: int) -> BeamState:
        """The state before the first word; it keeps the parameters and the settings of now."""
        return self._started(num_sentences, None)

    def start_from(self, starts: Tensor) -> BeamState:
        """``start`` of sentences that begin from ``starts`` (n, E), of systems that read documents."""
        return self._started(len(starts), starts)

    def _started(self, num_sentences: int, starts: Tensor | None) -> BeamState:
        own = self._copied() if self.search.precision == "full" else self  # search copies not all of them
        ends_word = np.asarray(self.vocabulary.ends_word)
        return start_state(own._checked(), self.search, ends_word, num_sentences, starts)

    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> BeamState:
        """The state after one more token in each sentence, by the search that ``score`` uses."""
        return read_tokens(BeamState.own(state), tokens, self.vocabulary)

    def _extend_scored(self, state: IncrementalState, words: Sequence[str]) -> tuple[BeamState, Floats]:
        """The state after one more word in each sentence, and log p of each by the same search: lower bounds."""
        after = BeamState.own(self._extend_words(state, words))
        return after, after.last_word_log_probs

    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """log p(next token), float64 (n, V + 1), by a search that does not look at the next word.

        So this is a distribution, up to what the beam loses. ``score`` gives log p of the word that came by another
        search from the same analyses: it looks at the word, and then keeps the best; this one sums over all that it
        finds. Both find part of one sum, so either may be larger, and they are equal where the beams lose nothing:
        ``treelm audit`` measures by how much they differ. What was lost before counts in neither; where it may matter,
        the state's ``beam_converged`` is 0.

        The lost mass is 1 - exp().sum(1). Where a beam is empty, all are -inf.
        """
        return next_log_probs(BeamState.own(state))

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The best tree over the words read so far, what is open closed."""
        return partial_trees(BeamState.own(state), self.build_tree)

    def partial_analyses(self, state: IncrementalState, most: int = 10) -> list[list[PartialAnalysis]]:
        """The beam of each sentence after the last word, the most probable analyses first."""
        return partial_analyses(BeamState.own(state), self.build_open_tree, most)


@dataclass(frozen=True)
class _Searched:
    """A sentence and its search."""

    words: Sequence[str]
    tokens: Ints  # (num_tokens,)
    word_of_token: Ints  # (num_tokens,)
    result: SentenceResult

    def score(self, settings: SearchConfig) -> SentenceScore:
        """Log probabilities and metrics as every system reports them. Beam search gives lower bounds."""
        log_probs = self.result.log_probs
        last = np.append(np.flatnonzero(np.diff(self.word_of_token)), len(self.tokens) - 1)  # of each word
        metrics = {name: np.array(values) for name, values in self.result.metrics.items()}
        bits, syntactic = -log_probs[:-1] / np.log(2), metrics["syntactic_bits"]
        finite = np.isfinite(bits)  # where all bits are infinite, so are those that are left
        metrics["lexical_bits"] = np.where(finite, np.where(finite, bits, 0.0) - np.where(finite, syntactic, 0.0), bits)
        columns = {"beam_converged": converged(self.result.gaps[last])}
        for name, rule in WORD_COLUMNS.items():
            if name in metrics:
                sums = np.bincount(self.word_of_token, metrics[name]).astype(np.float64)
                columns[name] = metrics[name][last] if rule == "last" else sums
        return SentenceScore(
            log_probs=log_probs,
            word_of_token=self.word_of_token,
            is_lower_bound=settings.gives_bounds,
            columns=columns,
        )
