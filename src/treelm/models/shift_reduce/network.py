"""The shift-reduce parser: its parameters, its losses, and the interface of all systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import encode_words, word_of_token
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.base import Analysis, IncrementalState, LanguageModel, Loss, Losses, SentenceScore
from treelm.models.capabilities import Parser
from treelm.models.layers.binary_structure import first_siblings
from treelm.models.layers.devices import to_device
from treelm.models.layers.dropout import dropout, dropout_mask
from treelm.models.layers.lstm import LSTMWeights
from treelm.models.layers.precision import DECIMALS, ExactCopy
from treelm.models.layers.recurrent import embed_with_dropout
from treelm.models.layers.softmax import summed_cross_entropy, target_log_probs
from treelm.models.shift_reduce.config import ShiftReduceConfig
from treelm.models.shift_reduce.graph import StackGraph, stack_states
from treelm.models.shift_reduce.reading import (
    Bank,
    Choose,
    IntArray,
    ParserStacks,
    ParserState,
    Reader,
    StackLSTM,
    greedy,
    partial_tree,
    sample,
)
from treelm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Positions:
    """The tokens of a batch with the boundary before each sentence, sentence by sentence: m in all."""

    tokens: IntArray  # (m,)
    targets: IntArray  # (m,) the next token, or the boundary
    offsets: IntArray  # (B + 1,)


class ShiftReduce(LanguageModel, Parser):
    """A parser that builds binary trees from the left, and may predict words from the state of its stack.

    Before a word is shifted, REDUCE joins the two items on top of the stack as often as the model decides, with the
    stack and this one word in view. An LSTM over the items summarises the stack. The boundary token, the last row of
    the embedding, is shifted first and never seen as a look-ahead: at the end everything is reduced.
    """

    system: ClassVar[str] = "shift-reduce"
    predicts_labels: ClassVar[bool] = False
    lm_flag: ClassVar[str] = "language_model"

    def __init__(self, config: ShiftReduceConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator. The trees have no labels: ``labels`` is kept."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._config = config
        size, vocabulary_size = config.size, len(vocabulary) + 1
        self.embedding = nn.Parameter(torch.empty(vocabulary_size, size).uniform_(-0.1, 0.1))  # tied with the output
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size)) if config.language_model else None
        self.input_norm = nn.LayerNorm(size)
        self.composition = nn.Linear(2 * size, size)
        self.stack = nn.ModuleList([LSTMWeights(size, size) for _ in range(config.num_layers)])
        self.action_hidden = nn.Linear(2 * size, size)
        self.action_score = nn.Linear(size, 1)
        self._exact: ExactCopy[ShiftReduce] = ExactCopy()

    @property
    def config(self) -> ShiftReduceConfig:
        """The sizes and the variant that this network was built from."""
        return self._config

    @property
    def boundary(self) -> int:
        """The id of ``<s>`` and ``</s>``."""
        return len(self.vocabulary)

    def stack_lstm(self) -> StackLSTM:
        """The layers that compute the stack and choose actions."""
        return StackLSTM(
            composition=self.composition,
            layers=[cast(LSTMWeights, layer) for layer in self.stack],
            action_hidden=self.action_hidden,
            action_score=self.action_score,
        )

    def embed(self, tokens: Tensor) -> Tensor:
        """x = LN(embedding), with dropout of whole types and of units: ids (n,) -> (n, D)."""
        rate = self.config.embedding_dropout
        vectors = embed_with_dropout(tokens, self.embedding, rate, training=self.training)
        return dropout(self.input_norm(vectors), self.config.dropout, training=self.training)

    def losses(self, batch: SentenceBatch, *, choose: Choose | None = None) -> Losses:
        """Sums of -log p in nats: ``parse`` of the oracle's actions and, of a language model, ``word``.

        In training actions are sampled (static oracle: gold); in evaluation they are greedy. Their loss is by the
        dynamic oracle either way; where only one action is possible there is none. ``choose`` acts instead.
        Raises ``InputError`` for a batch without trees.
        """
        positions = self._positions(batch)
        inputs = self.embed(self._tensor(positions.tokens))
        masks = None
        if self.training and self.config.dropout:
            masks = dropout_mask(len(batch), self.config.size, self.config.dropout, inputs)
        siblings = np.insert(first_siblings(batch, self.vocabulary.ends_word), batch.token_offsets[:-1], 0)
        follows = self.training and self.config.oracle == "static" and choose is None
        reader = self._reader(len(batch), inputs, computes=not follows)
        with torch.no_grad():
            reader.read(
                inputs.detach(),
                positions.offsets,
                choose=choose or (sample if self.training else greedy),
                siblings=siblings,
                masks=masks,
            )
        graph = StackGraph.of(reader)
        if torch.is_grad_enabled() or reader.bank is None:
            states = stack_states(self.stack_lstm(), graph, inputs)
        else:
            states = reader.bank.hidden[-1]
        sentence = np.repeat(np.arange(len(batch)), np.diff(positions.offsets))
        terms = {"parse": self._parse_loss(reader, states, inputs, sentence, masks)}
        if self.output_bias is not None:
            hidden = states.index_select(0, self._tensor(graph.node_of_input(len(inputs))))
            hidden = dropout(hidden, self.config.output_dropout, training=self.training)
            targets = self._tensor(positions.targets)
            word = summed_cross_entropy(hidden, self.embedding, self.output_bias, targets)
            terms["word"] = Loss(sum=word, count=len(targets))
        return Losses(
            terms=terms,
            total=torch.stack([term.sum for term in terms.values()]).sum(),
            num_words=int(batch.num_words.sum()),
            num_sentences=len(batch),
        )

    def _parse_loss(
        self, reader: Reader, states: Tensor, inputs: Tensor, sentence: IntArray, masks: Tensor | None
    ) -> Loss:
        made = reader.decisions
        none = np.zeros(0, np.int64)  # in sentences of one word nothing is decided
        at = np.concatenate([none, *made.inputs])
        deciding = states.index_select(0, self._tensor(np.concatenate([none, *made.nodes])))
        if masks is not None:
            deciding = deciding * masks.index_select(0, self._tensor(sentence[at]))
        logits = self.stack_lstm().action_logits(deciding, inputs.index_select(0, self._tensor(at)))
        signs = to_device(np.where(np.concatenate([none, *made.best]), 1.0, -1.0), logits.device).to(logits.dtype)
        return Loss(sum=-functional.logsigmoid(signs * logits).sum(dtype=torch.float64), count=len(at))

    def _reader(self, num_rows: int, like: Tensor, *, computes: bool) -> Reader:
        bank = Bank.empty(like.detach(), self.config.num_layers) if computes else None
        return Reader(self.stack_lstm(), ParserStacks(num_rows), bank)

    def _positions(self, batch: SentenceBatch) -> Positions:
        tokens = np.insert(batch.tokens, batch.token_offsets[:-1], self.boundary)
        offsets = batch.token_offsets + np.arange(len(batch.token_offsets))
        targets = np.append(tokens[1:], self.boundary)  # where a sentence ends, the next one's boundary
        return Positions(tokens=tokens, targets=targets, offsets=offsets)

    def _tensor(self, values: IntArray) -> Tensor:
        return to_device(values, self.embedding.device)

    def exact(self) -> ShiftReduce:
        """This network with float64 weights, in evaluation mode, kept until the weights change."""
        return self._exact.of(self)

    # The interface of all systems.

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Log probability of every token under greedy actions."""
        return [analysis.score for analysis in self._analyse(sentences) if analysis.score is not None]

    def _analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Scores and trees of one reading; trees alone if this is only a parser."""
        if not self.predicts_words:
            return [Analysis(score=None, tree=tree) for tree in self._parse(sentences)]
        return self.exact()._analyses(sentences) if sentences else []

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The tree of the greedy actions over each sentence; constituents have the label X."""
        return self.exact()._trees(sentences) if sentences else []

    @torch.no_grad()
    def _trees(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        reader, ends_word = self._read(self._positions(batch)), self.vocabulary.ends_word
        return [
            partial_tree(words, reader.stacks.shifted_at[number], word_of_token(batch.tokens_of(number), ends_word))
            for number, words in enumerate(sentences)
        ]

    @torch.no_grad()
    def _analyses(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        positions = self._positions(batch)
        reader = self._read(positions)
        assert reader.bank is not None
        assert self.output_bias is not None
        nodes = StackGraph.of(reader).node_of_input(len(positions.tokens))
        hidden = reader.bank.hidden[-1].index_select(0, self._tensor(nodes))
        log_probs = target_log_probs(hidden, self.embedding, self.output_bias, self._tensor(positions.targets))
        rounded = log_probs.cpu().numpy().round(DECIMALS)
        analyses = []
        for number, words in enumerate(sentences):
            word_numbers = word_of_token(batch.tokens_of(number), self.vocabulary.ends_word)
            own = rounded[positions.offsets[number] : positions.offsets[number + 1]]
            score = SentenceScore(log_probs=own, word_of_token=word_numbers, is_lower_bound=False)
            tree = partial_tree(words, reader.stacks.shifted_at[number], word_numbers)
            analyses.append(Analysis(score=score, tree=tree))
        return analyses

    def _read(self, positions: Positions) -> Reader:
        inputs = self.embed(self._tensor(positions.tokens))
        reader = self._reader(len(positions.offsets) - 1, inputs, computes=True)
        reader.read(inputs, positions.offsets)
        return reader

    @torch.no_grad()
    def _start(self, num_sentences: int) -> ParserState:
        """The state before the first word."""
        exact = self.exact()
        inputs = exact.embed(torch.full((num_sentences,), self.boundary, device=self.embedding.device))
        reader = exact._reader(num_sentences, inputs, computes=True)
        reader.read(inputs, np.arange(num_sentences + 1))
        assert reader.bank is not None
        empty: tuple[()] = ()
        return ParserState(
            words=(empty,) * num_sentences, tokens=(empty,) * num_sentences, stacks=reader.stacks, bank=reader.bank
        )

    @torch.no_grad()
    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> ParserState:
        """The state after one more token in each sentence; None for a sentence that waits."""
        before = ParserState.own(state)
        exact = self.exact()
        counts = np.array([token is not None for token in tokens], np.int64)
        read = torch.tensor([s for s in tokens if s is not None], dtype=torch.int64, device=self.embedding.device)
        reader = Reader(exact.stack_lstm(), before.stacks.copy(), before.bank.copy())
        reader.read(exact.embed(read), np.concatenate([[0], np.cumsum(counts)]))
        assert reader.bank is not None
        return before.after(tokens, self.vocabulary, stacks=reader.stacks, bank=reader.bank)

    @torch.no_grad()
    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """log p(next token), float64 (num_sentences, V + 1); the last column is the end of sentence."""
        exact, own = self.exact(), ParserState.own(state)
        tops = own.stacks.top(np.arange(own.num_sentences))
        hidden = own.bank.hidden[-1].index_select(0, self._tensor(tops))
        return functional.linear(hidden, exact.embedding, exact.output_bias).log_softmax(1)

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The tree of the actions so far, what is open closed. Raises ``InputError`` before the first word."""
        return ParserState.own(state).trees(self.vocabulary)
