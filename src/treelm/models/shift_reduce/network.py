"""The incremental shift-reduce parser (Shen et al. 2021, Table 5): its equations, losses, and the common interface.

    item of a word         x = LN(embedding)
    item of a constituent  c = tanh(W [left; right] + b)
    stack                  an LSTM over the items, bottom to top; popping goes back to the state below
                           (stack LSTM, Dyer et al. 2015)
    log odds of REDUCE     w . ReLU(W [state; x of the look-ahead] + b) + c
    p(next word)           softmax(E state + b), E the embedding

The plain form is ``tests/models/shift_reduce/plain.py``. Shapes: B sentences, m inputs (the boundary and the tokens of
each), D units, L layers, V tokens of the vocabulary (the boundary token is V).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.configs import Dropout, Size, configuration
from treelm.corpora.encoding import SentenceBatch, encode_words, word_of_token
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.base import Analysis, IncrementalState, LanguageModel, Loss, Losses, SentenceScore
from treelm.models.capabilities import Parser
from treelm.models.layers.binary_structure import first_siblings
from treelm.models.layers.devices import few_calls, plan_to_device, to_device
from treelm.models.layers.dropout import dropout, dropout_mask
from treelm.models.layers.few_calls import plan_stack, run_stack, stepping
from treelm.models.layers.levels import schedule, schedule_tree
from treelm.models.layers.lstm import LSTMWeights, plan_tree
from treelm.models.layers.precision import ExactCopy, linear, to_host
from treelm.models.layers.recurrent import embed_with_dropout
from treelm.models.layers.softmax import summed_cross_entropy, target_log_probs
from treelm.models.layers.sweep import Kind, Matrix, Rows, sweep
from treelm.models.shift_reduce.machine import (
    Bank,
    BoolArray,
    IntArray,
    Nodes,
    ParserStacks,
    ParserState,
    partial_tree,
)
from treelm.models.shift_reduce.on_device import StepTape
from treelm.trees.tree import Tree

OracleKind = Literal["dynamic", "static"]
Choose = Callable[[Tensor, BoolArray], BoolArray]
"""Logits of REDUCE (n,) and what the oracle would do (n,) -> whether to REDUCE."""


@configuration
class ShiftReduceConfig:
    """Sizes, oracle, and whether it is a language model too. Raises ``InputError`` for values that make no network.

    Table 5 has ``language_model = false`` with ``oracle = "static"``, and ``true`` with ``"dynamic"``, the defaults.
    """

    size: Size = 400
    """Size of every vector (D)."""

    num_layers: Size = 2
    """Layers of the stack LSTM."""

    embedding_dropout: Dropout = 0.1
    """Probability that a word type's input vector is zeroed in a batch."""

    dropout: Dropout = 0.3
    """Probability that a unit is zeroed, in words and, by one mask a sentence, in the states that choose actions."""

    output_dropout: Dropout = 0.5
    """Probability that a unit is zeroed before the output layer."""

    oracle: OracleKind = "dynamic"
    """dynamic: actions are sampled in training, and the oracle says what is best after them. static: gold actions."""

    language_model: bool = True
    """Predict the next word from the state of the stack; without, the model is only a parser."""


def greedy(logits: Tensor, best: BoolArray) -> BoolArray:
    """The more probable action."""
    chosen: BoolArray = (logits > 0).cpu().numpy()
    return chosen


def sample(logits: Tensor, best: BoolArray) -> BoolArray:
    """An action drawn from the distribution, with torch's global generator."""
    # Of weights that have gone wrong any action will do: the loss says what is the matter.
    chosen: BoolArray = torch.bernoulli(logits.sigmoid().nan_to_num(0.0)).bool().cpu().numpy()
    return chosen


class _Reading:
    """What was done to read some sentences, action by action."""

    def __init__(self) -> None:
        none = np.zeros(0, np.int64)
        self.pushed: list[Nodes] = []
        self.pushed_inputs: list[IntArray] = []  # of every node, from node 1 on: an input, or -1 for a constituent
        self.decided_at: list[IntArray] = [none]  # where there was a choice, the node on top of the stack,
        self.look_ahead: list[IntArray] = [none]  # the word that came next, among the inputs,
        self.best: list[BoolArray] = [none.astype(bool)]  # and whether the oracle would REDUCE

    def node_of_input(self, num_inputs: int) -> IntArray:
        """The node that each input became when it was shifted: (m,)."""
        inputs = np.concatenate(self.pushed_inputs)
        shifted = np.flatnonzero(inputs >= 0)
        nodes = np.empty(num_inputs, np.int64)
        nodes[inputs[shifted]] = shifted + 1
        return nodes


class ShiftReduce(LanguageModel, Parser):
    """A parser that builds binary trees from the left, and may predict words from the state of its stack.

    Before a word is shifted, REDUCE joins the two items on top of the stack as often as the model decides, with the
    stack and this one word in view. An LSTM over the items summarises the stack. The boundary token, the last row of
    the embedding, is shifted first and never seen as a look-ahead: at the end everything is reduced.
    """

    system: ClassVar[str] = "shift-reduce"
    config: ShiftReduceConfig
    predicts_labels: ClassVar[bool] = False

    def __init__(self, config: ShiftReduceConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator. The trees have no labels: ``labels`` is kept."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        if not config.language_model:
            self.unavailable[LanguageModel] = "train one with model.language_model = true"
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
    def boundary(self) -> int:
        """The id of ``<s>`` and ``</s>``."""
        return len(self.vocabulary)

    @property
    def _layers(self) -> list[LSTMWeights]:
        return [layer for layer in self.stack if isinstance(layer, LSTMWeights)]

    # The equations.

    def embed(self, tokens: Tensor) -> Tensor:
        """x = LN(embedding), with dropout of whole types and of units: ids (n,) -> (n, D)."""
        rate = self.config.embedding_dropout
        vectors = embed_with_dropout(tokens, self.embedding, rate, training=self.training)
        return dropout(self.input_norm(vectors), self.config.dropout, training=self.training)

    def composed(self, left: Tensor, right: Tensor) -> Tensor:
        """The vector of constituents: tanh(W [left; right] + b), (n, D) each."""
        return linear(torch.cat([left, right], 1), self.composition.weight, self.composition.bias).tanh()

    def action_logits(self, states: Tensor, look_ahead: Tensor) -> Tensor:
        """Log odds of REDUCE: w . ReLU(W [state; look-ahead] + b) + c, from (n, D) and (n, D) to (n,)."""
        pair = torch.cat([states, look_ahead], 1)
        hidden = linear(pair, self.action_hidden.weight, self.action_hidden.bias).relu()
        return linear(hidden, self.action_score.weight, self.action_score.bias)[:, 0]

    def losses(self, batch: SentenceBatch, *, choose: Choose | None = None) -> Losses:
        """Sums of -log p in nats: ``parse`` of the oracle's actions and, of a language model, ``word``.

        In training actions are sampled (static oracle: gold); in evaluation they are greedy. Their loss is by the
        dynamic oracle either way; where only one action is possible there is none. ``choose`` acts instead.
        Raises ``InputError`` for a batch without trees.
        """
        tokens, targets, offsets = self._positions(batch)
        inputs = self.embed(self._tensor(tokens))
        masks = None
        if self.training and self.config.dropout:
            masks = dropout_mask(len(batch), self.config.size, self.config.dropout, inputs)
        siblings = np.insert(first_siblings(batch, self.vocabulary.ends_word), batch.token_offsets[:-1], 0)
        follows = self.training and self.config.oracle == "static" and choose is None
        bank: Bank | StepTape | None = None
        choose = choose or (sample if self.training else greedy)
        with torch.no_grad():
            if few_calls(inputs.device) and not follows:
                action = self.action_hidden, self.action_score
                bank = StepTape(inputs, masks, self.composition, self._layers, *action, len(batch))
            elif not follows:
                bank = Bank.empty(inputs.detach(), self.config.num_layers)
            read = self._read(ParserStacks(len(batch)), bank, inputs.detach(), offsets, choose, siblings, masks)
        if isinstance(bank, StepTape):
            pushed = Nodes(*map(np.concatenate, zip(*read.pushed, strict=True)))
            states = bank.states(pushed, np.concatenate(read.pushed_inputs), inputs, self._layers)
        else:
            states = self._stack_states(read, inputs) if torch.is_grad_enabled() or bank is None else bank.hidden[-1]
        terms = {"parse": self._parse_loss(read, states, inputs, offsets, masks)}
        if self.output_bias is not None:
            hidden = states.index_select(0, self._tensor(read.node_of_input(len(inputs))))
            hidden = dropout(hidden, self.config.output_dropout, training=self.training)
            word = summed_cross_entropy(hidden, self.embedding, self.output_bias, self._tensor(targets))
            terms["word"] = Loss(sum=word, count=len(targets))
        return Losses.of(batch, terms)

    def _parse_loss(
        self, read: _Reading, states: Tensor, inputs: Tensor, offsets: IntArray, masks: Tensor | None
    ) -> Loss:
        look_ahead = np.concatenate(read.look_ahead)
        deciding = states.index_select(0, self._tensor(np.concatenate(read.decided_at)))
        if masks is not None:
            sentence = np.searchsorted(offsets, look_ahead, side="right") - 1
            deciding = deciding * masks.index_select(0, self._tensor(sentence))
        logits = self.action_logits(deciding, inputs.index_select(0, self._tensor(look_ahead)))
        signs = to_device(np.where(np.concatenate(read.best), 1.0, -1.0), logits.device).to(logits.dtype)
        return Loss(sum=-functional.logsigmoid(signs * logits).sum(dtype=torch.float64), count=len(look_ahead))

    def _positions(self, batch: SentenceBatch) -> tuple[IntArray, IntArray, IntArray]:
        """The inputs (m,), the boundary before each sentence; what follows each; where sentences begin (B + 1,)."""
        tokens = np.insert(batch.tokens, batch.token_offsets[:-1], self.boundary)
        targets = np.append(tokens[1:], self.boundary)  # where a sentence ends, the next one's boundary
        return tokens, targets, batch.token_offsets + np.arange(len(batch.token_offsets))

    def _tensor(self, values: IntArray) -> Tensor:
        return to_device(values, self.embedding.device)

    # Deciding, one action a step: nothing is differentiated, and only what the next decision needs is computed.

    def _read(
        self,
        stacks: ParserStacks,
        bank: Bank | StepTape | None,
        inputs: Tensor,  # (m, D)
        offsets: IntArray,  # (B + 1,) sentence b reads inputs[offsets[b]:offsets[b + 1]]
        choose: Choose = greedy,
        siblings: IntArray | None = None,  # (m,) first siblings, for the oracle
        masks: Tensor | None = None,  # (B, D) dropout of the states that decide
    ) -> _Reading:
        """Read until every sentence has shifted its last input; stacks and bank change.

        Without a bank nothing is computed: the oracle acts.
        """
        read, at = _Reading(), offsets[:-1].copy()
        layers = [stepping(weights, inputs.device) for weights in self._layers] if isinstance(bank, Bank) else []
        while len(rows := np.flatnonzero(at < offsets[1:])):
            reduces = np.zeros(len(rows), bool)
            is_free = stacks.heights[rows] >= 2
            if is_free.any():
                free = rows[is_free]
                tops = stacks.top(free)
                best = np.zeros(len(free), bool) if siblings is None else stacks.best_action(free, siblings[at[free]])
                read.decided_at.append(tops)
                read.look_ahead.append(at[free])
                read.best.append(best)
                if bank is None:
                    reduces[is_free] = best
                elif isinstance(bank, StepTape):
                    reduces[is_free] = choose(bank.logits[torch.from_numpy(free)], best)
                else:
                    top, row, position = self._tensor(np.stack([tops, free, at[free]])).unbind()
                    states = bank.hidden[-1].index_select(0, top)
                    states = states if masks is None else states * masks[row]
                    logits = self.action_logits(states, inputs.index_select(0, position))
                    reduces[is_free] = choose(logits, best)
            nodes = stacks.step(rows, reduces)
            read.pushed.append(nodes)
            read.pushed_inputs.append(np.where(reduces, -1, at[rows]))
            if isinstance(bank, StepTape):
                bank.push(nodes, rows, reduces, at[rows])
            elif bank is not None:
                self._push(bank, layers, stacks.num_nodes, nodes, reduces, inputs, at[rows])
            at[rows] += ~reduces
        return read

    def _push(
        self,
        bank: Bank,
        layers: Sequence[Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]],
        num_nodes: int,
        nodes: Nodes,
        reduces: BoolArray,
        inputs: Tensor,
        positions: IntArray,
    ) -> None:
        """Compute the last n of ``num_nodes`` nodes: inputs at ``positions`` (n,), or what REDUCE makes."""
        bank.make_room(num_nodes)
        new = slice(num_nodes - len(positions), num_nodes)
        indices = [positions, nodes.below, nodes.left[reduces], nodes.right[reduces], np.flatnonzero(reduces)]
        moved = torch.split(self._tensor(np.concatenate(indices)), [len(index) for index in indices])
        position, below, left, right, wholes = moved
        items = inputs.index_select(0, position)
        if len(wholes):
            items[wholes] = self.composed(bank.items[left], bank.items[right])
        bank.items[new] = items
        for layer, step in enumerate(layers):
            state = step(items, bank.hidden[layer, below], bank.cell[layer, below])
            bank.hidden[layer, new], bank.cell[layer, new] = state
            items = bank.hidden[layer, new]

    # The same for decisions that were made, with gradients: items by height and stack states by depth.

    def _stack_states(self, read: _Reading, inputs: Tensor) -> Tensor:
        """The state of the stack LSTM's last layer with every node on top, row 0 for none: (nodes + 1, D)."""
        below, left, right, heights = map(np.concatenate, zip(*read.pushed, strict=True))
        order = schedule_tree(below - 1, heights - 1)  # a node stands on one whose stack is lower by one
        before = order.position[below[order.order[int(order.offsets[1]) :]] - 1]
        packed, indices = few_calls(inputs.device), (torch.from_numpy(order.order), torch.from_numpy(order.position))
        levels = plan_stack(before, order.offsets) if packed else plan_tree(before, order.offsets, inputs.device)
        levels, permutation, position = plan_to_device((levels, *indices), inputs.device)
        items = self._items(np.stack([left, right], 1), np.concatenate(read.pushed_inputs), inputs)
        states = items.index_select(0, permutation)
        for weights in self._layers:
            states = run_stack(states, weights, levels)
        return torch.cat([inputs.new_zeros(1, inputs.shape[1]), states.index_select(0, position)])

    def _items(self, parts: IntArray, pushed: IntArray, inputs: Tensor) -> Tensor:
        """The vector of every node from node 1 on: (nodes, D); constituents have ``parts`` (nodes, 2)."""
        constituents, positions = np.flatnonzero(pushed < 0), np.flatnonzero(pushed >= 0)
        shifted = inputs.index_select(0, self._tensor(pushed[positions]))
        items = inputs.new_zeros(len(pushed), inputs.shape[1]).index_copy(0, self._tensor(positions), shifted)
        if not len(constituents):
            return items
        number = np.full(len(pushed) + 1, -1)  # of each constituent among themselves, by node
        number[constituents + 1] = np.arange(len(constituents))
        parts = parts[constituents]
        order = schedule(number[parts])
        levels = order.offsets.tolist()
        left, right, whole = (
            Rows("items", self._tensor(nodes[order.order]), levels) for nodes in (*(parts - 1).T, constituents)
        )
        kind = Kind(function=_compose, reads=(left, right), writes=(whole,))
        weights = {"composition": (self.composition.weight, self.composition.bias)}
        return sweep((kind,), {"items": items}, weights)["items"]

    # The interface of all systems.

    def exact(self) -> ShiftReduce:
        """This network with float64 weights, in evaluation mode, kept until the weights change."""
        return self._exact.of(self)

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        return [analysis.score for analysis in self._analyse(sentences) if analysis.score is not None]

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The tree of the greedy actions over each sentence; constituents have the label X."""
        return [analysis.tree for analysis in self._analyse(sentences) if analysis.tree is not None]

    @torch.no_grad()
    def _analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Scores and trees of one reading; trees alone if this is only a parser."""
        if not sentences:
            return []
        exact, batch = self.exact(), encode_words(sentences, self.vocabulary, needs_words=True)
        tokens, targets, offsets = self._positions(batch)
        inputs, stacks = exact.embed(self._tensor(tokens)), ParserStacks(len(sentences))
        bank = Bank.empty(inputs, self.config.num_layers)
        read = exact._read(stacks, bank, inputs, offsets)
        log_probs = None
        if exact.output_bias is not None:
            hidden = bank.hidden[-1].index_select(0, self._tensor(read.node_of_input(len(tokens))))
            log_probs = to_host(target_log_probs(hidden, exact.embedding, exact.output_bias, self._tensor(targets)))
        analyses = list[Analysis]()
        for number, words in enumerate(sentences):
            word_numbers, score = word_of_token(batch.tokens_of(number), self.vocabulary.ends_word), None
            if log_probs is not None:
                own = log_probs[offsets[number] : offsets[number + 1]]
                score = SentenceScore(log_probs=own, word_of_token=word_numbers, is_lower_bound=False)
            analyses.append(Analysis(score=score, tree=partial_tree(words, stacks.shifted_at[number], word_numbers)))
        return analyses

    @torch.no_grad()
    def _start(self, num_sentences: int) -> ParserState:
        exact, stacks = self.exact(), ParserStacks(num_sentences)
        inputs = exact.embed(torch.full((num_sentences,), self.boundary, device=self.embedding.device))
        bank = Bank.empty(inputs, self.config.num_layers)
        exact._read(stacks, bank, inputs, np.arange(num_sentences + 1))
        return ParserState.begin(num_sentences, stacks=stacks, bank=bank)

    @torch.no_grad()
    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> ParserState:
        before, exact = ParserState.own(state), self.exact()
        counts = np.array([token is not None for token in tokens], np.int64)
        read = torch.tensor([s for s in tokens if s is not None], dtype=torch.int64, device=self.embedding.device)
        stacks, bank = before.stacks.copy(), before.bank.copy()
        exact._read(stacks, bank, exact.embed(read), np.concatenate([[0], np.cumsum(counts)]))
        return before.after(tokens, self.vocabulary, stacks=stacks, bank=bank)

    @torch.no_grad()
    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        exact = self.exact()
        return functional.linear(self._layer_states(state)[-1], exact.embedding, exact.output_bias).log_softmax(1)

    def _layer_states(self, state: IncrementalState) -> list[Tensor]:
        """h of every layer of the stack LSTM at the tops of the stacks."""
        own = ParserState.own(state)
        tops = self._tensor(own.stacks.top(np.arange(own.num_sentences)))
        return [hidden.index_select(0, tops) for hidden in own.bank.hidden]

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The tree of the actions so far, open constituents closed. Raises ``InputError`` before the first word."""
        own, ends_word = ParserState.own(state), self.vocabulary.ends_word
        own.check_begun()
        return [
            partial_tree(words, shifted_at, word_of_token(np.array(tokens), ends_word))
            for shifted_at, words, tokens in zip(own.stacks.shifted_at, own.words, own.tokens, strict=True)
        ]


def _compose(matrices: dict[str, Matrix], left: Tensor, right: Tensor) -> tuple[Tensor]:
    return (matrices["composition"](torch.cat([left, right], 1)).tanh(),)
