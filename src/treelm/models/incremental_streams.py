"""Stream models word by word: the carried state as a value that is never changed.

The network is in evaluation mode here: ``StreamLM.exact``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import IncrementalState
from treelm.models.readings import check_carried

if TYPE_CHECKING:
    from treelm.models.streams import StreamLM


@dataclass(frozen=True, kw_only=True)
class StreamState(IncrementalState):
    """The carried state of n sentences after some symbols."""

    words: tuple[tuple[str, ...], ...]  # as they were given, or spelled by their symbols
    symbols: tuple[tuple[int, ...], ...]
    carried: dict[str, Tensor]  # (n, ...)
    hidden: Tensor  # (n, E) predicts the next symbol

    @property
    def num_sentences(self) -> int:
        """Sentences that are read side by side."""
        return len(self.words)

    @property
    def num_symbols_read(self) -> tuple[int, ...]:
        """Symbols that each sentence has read."""
        return tuple(map(len, self.symbols))


def own(state: IncrementalState) -> StreamState:
    """The state as one of a stream model; raises ``InputError`` for another."""
    if not isinstance(state, StreamState):
        raise InputError("a state of another system", remedy="use a state that this model's start() began")
    return state


@torch.no_grad()
def start(network: StreamLM, num_sentences: int) -> StreamState:
    """The state after the end symbol that stands before a sentence."""
    zero = network.begin(num_sentences)
    inputs = torch.full((1, num_sentences), network.end, device=network.decoder_weight.device)
    reading = network.read(inputs, zero)
    check_carried(zero, reading.carried, system=network.system)
    nothing: tuple[tuple[int, ...], ...] = ((),) * num_sentences
    return StreamState(words=((),) * num_sentences, symbols=nothing, carried=reading.carried, hidden=reading.outputs[0])


@torch.no_grad()
def extend_symbols(network: StreamLM, state: StreamState, symbols: Sequence[int | None]) -> StreamState:
    """The state after one more symbol in each sentence, or none where there is None."""
    if len(symbols) != state.num_sentences:
        found = f"{len(symbols)} symbols for {state.num_sentences} sentences"
        raise InputError(found, remedy="give one symbol, or None, for each sentence")
    read = [(row, symbol) for row, symbol in enumerate(symbols) if symbol is not None]
    if not read:
        return state
    rows = torch.tensor([row for row, _ in read], device=state.hidden.device)
    inputs = torch.tensor([[symbol for _, symbol in read]], device=state.hidden.device)
    before = {name: tensor[rows] for name, tensor in state.carried.items()}
    reading = network.read(inputs, before)
    check_carried(before, reading.carried, system=network.system)
    words, all_symbols = list(state.words), list(state.symbols)
    for row, symbol in read:
        words[row] = _spell(network.vocabulary, words[row], all_symbols[row], symbol)
        all_symbols[row] = (*all_symbols[row], symbol)
    return StreamState(
        words=tuple(words),
        symbols=tuple(all_symbols),
        carried={name: _replaced(old, rows, reading.carried[name]) for name, old in state.carried.items()},
        hidden=_replaced(state.hidden, rows, reading.outputs[0]),
    )


def with_words(state: StreamState, words: Sequence[str]) -> StreamState:
    """The same state, whose last words are called as they were given."""
    renamed = tuple((*before[:-1], word) for before, word in zip(state.words, words, strict=True))
    return replace(state, words=renamed)


def _replaced(old: Tensor, rows: Tensor, new: Tensor) -> Tensor:
    changed = old.clone()
    changed[rows] = new
    return changed


def _spell(vocabulary: Vocabulary, words: tuple[str, ...], before: tuple[int, ...], symbol: int) -> tuple[str, ...]:
    text = vocabulary.symbol(symbol)
    if before and not vocabulary.ends_word[before[-1]]:
        return (*words[:-1], words[-1] + text)
    return (*words, text)
