"""The base class of systems that are read by search: scores, trees and states from a machine and a word head."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from treelm.corpora.encoding import EncodedCorpus, encode_words, word_of_token
from treelm.corpora.tokens import words_of_each
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import Analysis, IncrementalState, LanguageModel, ProbabilityMass, SentenceScore, extend_words
from treelm.models.capabilities import ChecksCorpus, Enumerable, Parser, Searching
from treelm.models.layers.attention import attention_columns
from treelm.models.layers.devices import to_device
from treelm.models.layers.precision import warn_of_half_precision
from treelm.models.scores import CONVERGED, NoLogProbability, PartialAnalysis, ScoredTree, SubwordAggregation
from treelm.models.search.analyses import joined, log_sums
from treelm.models.search.batch_invariant import arithmetic
from treelm.models.search.beam import WAITS, Beam
from treelm.models.search.config import SearchConfig
from treelm.models.search.machine import ending_actions
from treelm.models.search.metrics import WORD_COLUMNS, converged, gaps, log_ratio
from treelm.models.search.options import SearchMethod
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.sentences import Searchable, SentenceResult, search_all
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, Order, finish_action, from_actions
from treelm.trees.tree import Tree

MOST_TOKENS, MOST_ANALYSES = 50, 50_000  # of a model that is enumerated


class GenerativeParser(LanguageModel, Parser, Searching, Enumerable, ChecksCorpus):
    """A joint model of a sentence and its tree, built action by action, read by word-synchronous search."""

    runtime_settings: ClassVar[tuple[str, ...]] = ("search",)
    search_methods: ClassVar[tuple[SearchMethod, ...]] = ("beam", "particles")
    """Values of ``search.method`` that the system supports; ``released`` reproduces the RNNG's public code."""

    def __init__(self, *, vocabulary: Vocabulary, labels: Sequence[str]) -> None:
        """Start with the default search."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._search_config = SearchConfig()

    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Raise ``InputError`` for text without trees, and for trees beyond the model's bounds."""
        self.config.check_trees(corpus)

    @property
    def order(self) -> Order:
        """The order of the actions of a derivation, as the config says."""
        found: Order = self.config.order
        return found

    def build_tree(self, actions: Sequence[int], ends_word: Bools, words: Sequence[str]) -> Tree:
        """The tree over words of a derivation over tokens; ``ends_word`` says for each SHIFT whether it ends a word."""
        coming = iter(ends_word.tolist())
        of_words = [action for action in actions if action != SHIFT or next(coming)]
        return from_actions(of_words, words, self.labels, self.order)

    def build_open_tree(self, actions: Sequence[int], ends_word: Bools, words: Sequence[str]) -> Tree:
        """The tree of a derivation that has just shifted a word; open constituents are closed."""
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
        """The metrics of every word that the search reports."""
        return WORD_COLUMNS

    @property
    def search(self) -> SearchConfig:
        """The search by which the model scores and parses."""
        return self._search_config

    @search.setter
    def search(self, config: SearchConfig) -> None:
        """Set it. Raises ``InputError`` for a method that the system does not support."""
        if config.method not in self.search_methods:
            found = f"search by {config.method!r}, which is that of the RNNG's public code, but this is {self.system}"
            raise InputError(found, remedy="remove this option")
        self._search_config = config

    def _score(self, sentences: Sequence[Sequence[str]], starts: Tensor | None = None) -> list[SentenceScore]:
        """Scores by search. In systems that read documents, sentences may begin from ``starts`` (n, E)."""
        return [one.score(self.search) for one in self._search(sentences, starts)]

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The best tree of every sentence. Raises ``InputError`` if the search found none."""
        return [self._trees(one, 1)[0].tree for one in self._search(sentences)]

    def parse_nbest(self, sentences: Sequence[Sequence[str]], num_trees: int) -> list[list[ScoredTree]]:
        """At most ``num_trees`` trees of every sentence, best first; never more than ``word_beam``."""
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
        """``searchable``. Raises ``NoLogProbability`` for weights that are not finite: no word would be possible."""
        for name, parameter in self.named_parameters():
            if not (parameter < torch.inf).all():
                raise NoLogProbability(f"weight {name!r} is not a number, or infinite", where=self.system)
        return self._in_precision().searchable()

    def _in_precision(self) -> GenerativeParser:
        """The network with its weights in the precision of the search. Raises ``InputError`` if one is too large."""
        precision = self.search.precision
        if precision == "full":
            return self
        if precision == "fp16":
            warn_of_half_precision(next(self.parameters()).device)
        rounded = self._copied().to(torch.float16 if precision == "fp16" else torch.bfloat16)
        for name, parameter in rounded.named_parameters():
            if not parameter.isfinite().all():
                remedy = "search with bf16, or in full precision"
                raise InputError(f"weight {name!r} is too large for {precision}", where=self.system, remedy=remedy)
        return rounded

    def _copied(self) -> GenerativeParser:
        return copy.deepcopy(self, {id(self.vocabulary): self.vocabulary})

    def _trees(self, searched: _Searched, num_trees: int) -> list[ScoredTree]:
        """The trees that the search found, best first. Raises ``InputError`` if it found none."""
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
        """The mass of all trees over up to two tokens, and of all that need more; None unless the model is tiny."""
        return enumerate_mass(self._checked())

    def _start(self, num_sentences: int, starts: Tensor | None = None) -> BeamState:
        """The state before the first word. It keeps the present parameters and search settings."""
        search = self.search
        if search.method != "beam":
            found = f"search by {search.method!r} works on whole sentences only"
            raise InputError(found, remedy="use beam search to read word by word, and for columns of the next word")
        own = self._copied() if search.precision == "full" else self  # ``searchable`` does not copy all parameters
        model = own._checked()
        head, nothing = model.head(search.heavy_words), ((),) * num_sentences
        with torch.inference_mode(), arithmetic(search.matmul, head.device):
            beam = Beam(model.new_machine(starts), head, search, num_sentences)
        return BeamState.begin(
            num_sentences,
            ends_word=np.asarray(self.vocabulary.ends_word),
            beam=beam,
            log_mass=np.zeros(num_sentences),
            token_log_probs=nothing,
            token_gaps=nothing,
        )

    @torch.inference_mode()
    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> BeamState:
        """The state after one more token in each sentence, by the search that ``score`` uses."""
        before = BeamState.own(state)
        before.check_tokens(tokens)
        beam, read = before.beam.copy(), np.array([WAITS if token is None else token for token in tokens])
        with arithmetic(beam.settings.matmul, beam.head.device):
            metrics = beam.read(read)
        reads, log_mass = read != WAITS, metrics.log_mass
        return before.after(
            tokens,
            self.vocabulary,
            beam=beam.copy(),  # without spare memory, since there may be many states
            log_mass=np.where(reads, log_mass, before.log_mass),
            token_log_probs=_appended(before.token_log_probs, log_ratio(log_mass, before.log_mass), reads),
            token_gaps=_appended(before.token_gaps, gaps(log_mass, metrics.narrow_log_mass), reads),
        )

    def _extend_scored(self, state: IncrementalState, words: Sequence[str]) -> tuple[BeamState, Floats]:
        """The state after one more word in each sentence, and log p of each by the same search: lower bounds."""
        after = BeamState.own(extend_words(self, state, words))
        return after, after.last_word_log_probs

    @torch.inference_mode()
    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """log p(next token), float64 (n, V + 1), by a search that does not look at the next word.

        The search finds analyses that are about to SHIFT, and p(w) is the sum over them of
        p(analysis, SHIFT) p(w | analysis) / exp(M). These sum to 1 but for what the beam loses. Where a beam is empty,
        all are -inf.

        ``score`` finds log p of a given word by another search from the same analyses, which looks at the word and
        keeps the best analyses of it. Either search finds a part of the same sum, so either may find more; they are
        equal where the beams lose nothing. ``treelm audit`` measures by how much they differ. Neither includes what was
        lost at earlier words; where that may matter, the state's ``beam_converged`` is 0.
        """
        before = BeamState.own(state)
        beam = before.beam.copy()
        with arithmetic(beam.settings.matmul, beam.head.device):
            out = beam.next_token_log_mass()
        alive = np.isfinite(before.log_mass)
        out[to_device(~alive, out.device)] = -torch.inf
        return out - to_device(np.where(alive, before.log_mass, 0.0), out.device)[:, None]

    @torch.inference_mode()
    def _layer_states(self, state: IncrementalState) -> list[Tensor]:
        """The hidden states of each sentence's most probable analysis, right after its last SHIFT.

        Raises ``InputError`` if a beam is empty.
        """
        read = BeamState.own(state)
        beam, ranked = read.beam.copy(), read.beam.analyses.ranked()
        sentences, first = np.unique(ranked.sentence, return_index=True)
        empty = sorted(set(range(read.num_sentences)) - set(sentences.tolist()))
        if empty:
            raise InputError(f"the beam of sentence {empty[0] + 1} is empty", remedy="raise action_beam or word_beam")
        with arithmetic(beam.settings.matmul, beam.head.device):
            return beam.machine.layer_states(ranked.top[first])

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The best analysis of each sentence as a tree over the words read so far.

        Where closing the root ends the sentence, open constituents are closed. In other systems the last words may be
        in no constituent yet, and the tree is that of the best way to end the sentence here. Raises ``InputError``
        before the first word, within a word, and if the beam is empty.
        """
        read = BeamState.own(state)
        beam = read.beam.copy()
        if beam.machine.ends_by_closing:
            ranked = beam.analyses.ranked()
            sentence, history, num_open = ranked.sentence, ranked.history, beam.machine.num_open(ranked.top)
        else:
            with torch.inference_mode(), arithmetic(beam.settings.matmul, beam.head.device):
                endings = beam.endings(np.ones(beam.num_sentences, np.bool_))
            sentence, history, num_open = endings.sentence, endings.history, np.zeros_like(endings.history)
        sentences, first = np.unique(sentence, return_index=True)
        actions = beam.machine.histories.actions(history[first])
        closed = [[*one, *[REDUCE] * number] for one, number in zip(actions, num_open[first].tolist(), strict=True)]
        best = dict(zip(sentences.tolist(), closed, strict=True))
        trees = []
        for index, words in enumerate(read.words):
            read.check_after_word(index)
            if index not in best:
                raise InputError(f"the beam of sentence {index + 1} is empty", remedy="raise action_beam or word_beam")
            trees.append(self.build_tree(best[index], read.ends(index), words))
        return trees

    def partial_analyses(self, state: IncrementalState, most: int = 10) -> list[list[PartialAnalysis]]:
        """The most probable analyses of each sentence, at most ``most``, right after its last SHIFT.

        Every constituent that holds the last word is still open. Raises ``InputError`` before the first word, and
        within a word.
        """
        read, found = BeamState.own(state), []
        analyses = read.beam.analyses.ranked()
        total = log_sums(analyses.sentence, analyses.score, read.num_sentences)
        for index, words in enumerate(read.words):
            read.check_after_word(index)
            kept = np.flatnonzero((analyses.sentence == index) & np.isfinite(analyses.score))[:most]
            shares = np.exp(analyses.score[kept] - total[index]).tolist()
            actions = read.beam.machine.histories.actions(analyses.history[kept])
            trees = [self.build_open_tree(one, read.ends(index), words) for one in actions]
            found.append([PartialAnalysis(tree, share) for tree, share in zip(trees, shares, strict=True)])
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class BeamState(IncrementalState):
    """The beam after some tokens, with its own copy of the parameters. States are never changed."""

    ends_word: Bools  # (V,) tokens that end a word
    beam: Beam  # never changed: every step works on a copy
    log_mass: Floats  # (n,) log p(tokens so far)
    token_log_probs: tuple[tuple[float, ...], ...]  # the same numbers as ``score`` gives
    token_gaps: tuple[tuple[float, ...], ...]  # how much less a narrower search found so far, nats

    @property
    def word_log_probs(self) -> list[Floats]:
        """log p of each word given those before it, one array (n,) for every word read; nan beyond a sentence."""
        rows = [self._of_words(index) for index in range(self.num_sentences)]
        table = np.full((max(map(len, rows), default=0), len(rows)), np.nan)
        for index, row in enumerate(rows):
            table[: len(row), index] = row
        return list(table)

    @property
    def last_word_log_probs(self) -> Floats:
        """log p of the last word of each sentence given those before it: (n,)."""
        return np.array([self._of_words(index)[-1] for index in range(self.num_sentences)])

    @property
    def beam_converged(self) -> list[Floats]:
        """For every sentence, 1 for each word whose search has converged, else 0: a column of ``score``."""
        return [converged(np.array(gaps)[self.ends(index)]) for index, gaps in enumerate(self.token_gaps)]

    def ends(self, index: int) -> Bools:
        """Which tokens of sentence ``index`` end a word."""
        return self.ends_word[np.array(self.tokens[index], np.int64)]

    def check_after_word(self, index: int) -> None:
        """Raise ``InputError`` if sentence ``index`` has no word yet, or its last word is not complete."""
        if not self.tokens[index] or not self.ends(index)[-1]:
            found = f"sentence {index + 1} stands within a word" if self.tokens[index] else "no word was read"
            raise InputError(found, remedy="read up to the end of a word")

    def _of_words(self, index: int) -> list[float]:
        totals, total = list[float](), 0.0
        for ends, log_prob in zip(self.ends(index).tolist(), self.token_log_probs[index], strict=True):
            total += log_prob
            if ends:
                totals.append(total)
                total = 0.0
        return totals


def _appended(rows: tuple[tuple[float, ...], ...], entries: Floats, reads: Bools) -> tuple[tuple[float, ...], ...]:
    pairs = zip(rows, entries.tolist(), reads.tolist(), strict=True)
    return tuple((*row, entry) if goes else row for row, entry, goes in pairs)


@dataclass(frozen=True)
class _Searched:
    """A sentence and the result of its search."""

    words: Sequence[str]
    tokens: Ints  # (num_tokens,)
    word_of_token: Ints  # (num_tokens,)
    result: SentenceResult

    def score(self, settings: SearchConfig) -> SentenceScore:
        """Log probabilities and metrics of words, as every system reports them."""
        log_probs = self.result.log_probs
        last = np.append(np.flatnonzero(np.diff(self.word_of_token)), len(self.tokens) - 1)  # of each word
        metrics = {name: np.array(values) for name, values in self.result.metrics.items()}
        bits, syntactic = -log_probs[:-1] / np.log(2), metrics["syntactic_bits"]
        finite = np.isfinite(bits)  # where the surprisal is infinite, so is its lexical part
        metrics["lexical_bits"] = np.where(finite, np.where(finite, bits, 0.0) - np.where(finite, syntactic, 0.0), bits)
        columns = {CONVERGED: converged(self.result.gaps[last])}
        for name, rule in WORD_COLUMNS.items():
            if name in metrics:
                sums = np.bincount(self.word_of_token, metrics[name]).astype(np.float64)
                columns[name] = metrics[name][last] if rule == "last" else sums
        attention = metrics["attention"]
        if attention.size:
            columns |= attention_columns(np.pad(attention, ((1, 0), (0, 0), (0, 0))), self.word_of_token)
        return SentenceScore(
            log_probs=log_probs,
            word_of_token=self.word_of_token,
            is_lower_bound=settings.gives_bounds,
            columns=columns,
        )


@torch.inference_mode()
def enumerate_mass(model: Searchable, *, max_tokens: int = 2) -> ProbabilityMass | None:
    """The probability of all complete trees over up to ``max_tokens`` tokens, and of all analyses that need more.

    Returns None if there are more than ``MOST_TOKENS`` tokens or ``MOST_ANALYSES`` analyses: only a tiny vocabulary
    with few labels and low bounds on open nonterminals can be enumerated.
    """
    machine, head = model.machine(), model.head(1)
    if head.vocabulary_size > MOST_TOKENS:
        return None
    finished, num_pairs, num_analyses = 0.0, 0, 0
    analyses = machine.start(1)
    for num_tokens in range(max_tokens + 1):
        at_shift = [analyses.take(np.empty(0, np.int64))]
        while len(analyses):
            scores = analyses.score[:, None] + analyses.log_probs
            possible, ends = np.isfinite(scores), ending_actions(machine, analyses)
            shifting = np.flatnonzero(possible[:, SHIFT])
            at_shift.append(replace(analyses.take(shifting), score=scores[shifting, SHIFT]))
            num_analyses += int(possible[:, REDUCE:].sum())
            if num_analyses > MOST_ANALYSES:
                return None
            possible[:, SHIFT] = False
            finished += float(np.exp(scores[possible & ends]).sum())
            num_pairs += int((possible & ends).sum())
            rows, actions = np.nonzero(possible & ~ends)
            if len(rows) == 0:
                break
            analyses = machine.apply(analyses, rows, actions, scores[rows, actions])
        analyses = joined(at_shift)
        if num_tokens < max_tokens:
            if len(analyses) * head.vocabulary_size > MOST_ANALYSES:
                return None
            log_probs = head.log_probs(analyses.outputs).cpu().numpy()
            rows, tokens = np.nonzero(np.isfinite(log_probs))
            shifted = replace(analyses.take(rows), score=analyses.score[rows] + log_probs[rows, tokens])
            analyses = machine.shift(shifted, tokens)
    return ProbabilityMass(
        finished=finished,
        unfinished=float(np.exp(analyses.score).sum()),
        num_pairs=num_pairs,
        description=f"trees over up to {max_tokens} of {head.vocabulary_size} tokens",
    )
