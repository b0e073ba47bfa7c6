"""Reading word by word: the memory as one state that is never changed in place.

The network is in evaluation mode here: ``SOM.exact``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from treelm.corpora.encoding import word_of_token
from treelm.models.layers.binary_structure import decoded_spans, word_tree
from treelm.models.som.cells import CellWeights, apply_cell, slot_log_probs
from treelm.models.som.decide import EMPTY, DynamicOracle
from treelm.models.som.memory import MemoryNetwork
from treelm.models.states import TextState
from treelm.models.structures import BOUNDARY, SlotSpans
from treelm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class SOMState(TextState):
    """The memory of n sentences after some words. Vectors of empty slots are never read."""

    decisions: tuple[tuple[int, ...], ...]  # theta of every position so far
    memory: Tensor  # (n, N, D)
    candidates: Tensor  # (n, N, D)
    prefixes: Tensor  # (n, N + 1, D) of the prediction network, after the slots N - 1 .. s
    hidden: Tensor  # (n, D) predicts the next token


def memory(som: MemoryNetwork, state: SOMState, sentence: int) -> SlotSpans:
    """Spans that each slot has covered of one sentence; of its tokens, where words have several."""
    names, tokens = state.words[sentence], state.tokens[sentence]
    if len(names) != len(tokens):
        names = tuple(map(som.vocabulary.token, tokens))
    return slot_spans((BOUNDARY, *names), state.decisions[sentence], som.config.num_slots)


def slot_spans(tokens: Sequence[str], decisions: Sequence[int], num_slots: int) -> SlotSpans:
    """Spans that each slot covers under the decisions of tokens, both with the boundary's (``<s>``, N) first."""
    oracle = DynamicOracle(np.zeros((1, len(tokens) + 1), np.int64), num_slots)  # keeps what each slot covers
    spans = []
    for position in range(len(tokens)):
        if position:
            oracle.observe(np.array([decisions[position]]))
        starts = oracle.start[0].tolist()
        spans.append(tuple(None if start == EMPTY else (start, position + 1) for start in starts))
    return SlotSpans(tokens=tuple(tokens), decisions=tuple(decisions), spans=tuple(spans))


@torch.no_grad()
def start(som: MemoryNetwork, num_sentences: int, starts: Tensor | None = None) -> SOMState:
    """The state after the sentence boundary; sentences may begin from ``starts`` (n, D) besides."""
    num_slots, size = som.config.num_slots, som.config.size
    token = torch.full((num_sentences,), som.boundary, device=som.embedding.device)
    inputs = som.embed(token, starts)
    zeros = inputs.new_zeros(num_sentences, num_slots + 1, size)
    candidates = zeros[:, 1:].clone()
    candidates[:, -1] = inputs
    hidden = inputs
    if som.prediction_cell is not None:
        hidden = apply_cell(som.prediction_cell.weights(), torch.zeros_like(inputs), inputs)
    return SOMState(
        words=((),) * num_sentences,
        tokens=((),) * num_sentences,
        decisions=((num_slots,),) * num_sentences,
        memory=zeros[:, 1:],
        candidates=candidates,
        prefixes=zeros,
        hidden=hidden,
    )


@torch.no_grad()
def extend_tokens(som: MemoryNetwork, state: SOMState, tokens: Sequence[int | None]) -> SOMState:
    """The state after one more token in each sentence, or none where there is None."""
    state.check_tokens(tokens)
    reader = _Reader(som, state)
    read = [(row, token) for row, token in enumerate(tokens) if token is not None]
    if read:
        reader.step([row for row, _ in read], [token for _, token in read])
    return state.after(
        tokens,
        som.vocabulary,
        decisions=tuple(map(tuple, reader.decisions)),
        memory=reader.memory,
        candidates=reader.candidates,
        prefixes=reader.prefixes,
        hidden=reader.hidden,
    )


def partial_trees(som: MemoryNetwork, state: SOMState) -> list[Tree]:
    """The trees of the decisions so far."""
    state.check_begun()
    ends_word = som.vocabulary.ends_word
    return [
        word_tree(words, decoded_spans(decisions, som.config.num_slots), word_of_token(np.array(tokens), ends_word))
        for words, decisions, tokens in zip(state.words, state.decisions, state.tokens, strict=True)
    ]


class _Reader:
    """Mutable copies of a state's tensors, for one word."""

    def __init__(self, som: MemoryNetwork, state: SOMState) -> None:
        """Copy the state, so that it stays as it is."""
        self.som = som
        self.memory, self.candidates = state.memory.clone(), state.candidates.clone()
        self.prefixes, self.hidden = state.prefixes.clone(), state.hidden.clone()
        self.decisions = [list(decisions) for decisions in state.decisions]

    def step(self, rows: list[int], tokens: list[int]) -> None:
        """Read one token in each of these rows."""
        inputs = self.som.embed(torch.tensor(tokens, device=self.hidden.device))
        chosen = self._decide(rows, inputs)
        for row, decision in zip(rows, chosen, strict=True):
            self.decisions[row].append(decision)
        self.memory[rows, chosen] = self.candidates[rows, chosen]
        self._compose(rows, chosen, inputs)
        self._predict(rows, chosen)

    def _decide(self, rows: list[int], inputs: Tensor) -> list[int]:
        queries = self.som.attachment.queries(self.som.for_scoring(inputs))
        index, slots = self._occupied([self.decisions[row][-1] for row in rows])
        candidates = self.candidates[torch.tensor(rows, device=slots.device)[index], slots]
        scores = self.som.attachment(queries[index], self.som.for_scoring(candidates))
        return self._best(scores, index, slots, len(rows))

    def _compose(self, rows: list[int], decisions: list[int], inputs: Tensor) -> None:
        weights = self.som.cell.weights()
        below = dict(zip(rows, inputs, strict=True))
        for row, decision in zip(rows, decisions, strict=True):
            if decision:
                self.candidates[row, decision - 1] = below[row]
        for height in range(self.som.config.num_slots - min(decisions)):
            active = [
                (r, d + height) for r, d in zip(rows, decisions, strict=True) if d + height < self.som.config.num_slots
            ]
            self._evaluate(weights, active, below)

    def _evaluate(self, weights: CellWeights, active: list[tuple[int, int]], below: dict[int, Tensor]) -> None:
        rows, slots = map(list, zip(*active, strict=True))
        results = apply_cell(weights, torch.stack([below[row] for row in rows]), self.memory[rows, slots])
        self.candidates[rows, slots] = results
        below.update(zip(rows, results, strict=True))

    def _predict(self, rows: list[int], decisions: list[int]) -> None:
        if self.som.prediction_cell is None or self.som.prediction is None:
            self.hidden[rows] = self.candidates[rows, -1]
            return
        weights = self.som.prediction_cell.weights()
        above = [decision + 1 for decision in decisions]
        self.prefixes[rows, decisions] = apply_cell(weights, self.prefixes[rows, above], self.memory[rows, decisions])
        index, slots = self._occupied(decisions)
        candidates = self.candidates[torch.tensor(rows, device=slots.device)[index], slots]
        scores = self.som.prediction(self.som.for_scoring(candidates))
        chosen = self._best(scores, index, slots, len(rows))
        above = [choice + 1 for choice in chosen]
        self.hidden[rows] = apply_cell(weights, self.prefixes[rows, above], self.candidates[rows, chosen])

    def _occupied(self, decisions: list[int]) -> tuple[Tensor, Tensor]:
        """Row numbers and slots of the occupied candidates after these decisions."""
        slots = torch.arange(self.som.config.num_slots)
        index, slot = (slots >= torch.tensor(decisions)[:, None] - 1).nonzero(as_tuple=True)
        return index.to(self.hidden.device), slot.to(self.hidden.device)

    def _best(self, scores: Tensor, index: Tensor, slots: Tensor, num_rows: int) -> list[int]:
        best: list[int] = slot_log_probs(scores, index, slots, num_rows, self.som.config.num_slots).argmax(1).tolist()
        return best
