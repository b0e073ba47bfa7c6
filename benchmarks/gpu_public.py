"""Drivers for the public codes that ``gpu.py`` measures beside treelm: their networks, from a folder of clones.

Nothing of theirs is here but names. They run as they are, in float32 with products in TF32, with a loop around them
that does what their own training scripts do in a step, and reads the loss back. What fails with a newer torch, or on
the card, is reported as a row that was not measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gpu_systems
import numpy as np
import torch
from gpu_timing import Settings, Work
from public_codes import detached, import_public
from torch import Tensor
from torch.nn import functional

from treelm.corpora.encoding import SentenceBatch
from treelm.trees.transitions import FIRST_NT, REDUCE

STACK_BOUND = 100  # items beyond the words that its search makes room for, as its documentation advises


def _import(folder: str, module: str, settings: Settings) -> Any:
    """A module of a clone. Raises ``FileNotFoundError`` where there is none."""
    if settings.public is None:
        raise FileNotFoundError("no folder of clones")
    torch.set_float32_matmul_precision("medium" if settings.device == "cuda" else "highest")
    return import_public(settings.public, folder, module)


@dataclass(frozen=True)
class _Trees:
    """A batch as its training script would hand it over: padded, 0 for nothing."""

    tokens: Tensor  # (B, longest)
    actions: Tensor  # (B, longest)
    ends_word: Tensor  # (B, longest) bool
    stack_size: int

    @classmethod
    def of(cls, batch: SentenceBatch) -> _Trees:
        """Its tokens and actions are numbered from 1."""
        assert batch.actions is not None
        assert batch.action_offsets is not None
        tokens = _padded(batch.tokens + 1, batch.token_offsets)
        actions = _padded(batch.actions + 1, batch.action_offsets)
        deepest = max(map(_stack_size, np.split(batch.actions, batch.action_offsets[1:-1])))
        return cls(tokens, actions, torch.ones_like(tokens, dtype=torch.bool), deepest + 2)


def _padded(values: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any]) -> Tensor:
    rows = [torch.from_numpy(row) for row in np.split(values, offsets[1:-1])]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def _stack_size(actions: np.ndarray[Any, Any]) -> int:
    """Most items on the stack of a derivation."""
    children: list[int] = []  # of every open nonterminal
    size = largest = 0
    for action in actions.tolist():
        if action == REDUCE:
            size -= children.pop()
            if children:
                children[-1] += 1
        else:
            size += 1
            if action >= FIRST_NT:
                children.append(0)
            else:
                children[-1] += 1
        largest = max(largest, size)
    return largest


class _RNNG:
    """The fixed-stack RNNG of rnng-pytorch, of the size that treelm's has in ``gpu.py``."""

    def __init__(self, settings: Settings) -> None:
        network = _import("rnng-pytorch", "fixed_stack_models", settings).FixedStackRNNG
        actions = _import("rnng-pytorch", "action_dict", settings).TopDownActionDict
        corpus = gpu_systems.encoded_corpus("brackets")
        torch.manual_seed(1)
        size = 8 if settings.small else 256
        self.settings = settings
        self.model: Any = network(
            actions(list(corpus.labels)),
            vocab=len(corpus.vocabulary) + 1,
            w_dim=size,
            h_dim=size,
            num_layers=2,
            dropout=0.1,
        ).to(settings.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def trainer(self, batch_size: int) -> Callable[[], int]:
        """A step on the next of the batches that treelm is given."""
        source = gpu_systems.tree_batches("brackets", batch_size)
        ready: dict[int, _Trees] = {}

        def step() -> int:
            batch = next(source)
            if id(batch) not in ready:  # the same few batches come again and again
                ready[id(batch)] = _Trees.of(batch)
            self._update(ready[id(batch)])
            return len(batch)

        return step

    def _update(self, trees: _Trees) -> None:
        self.model.train()
        device = self.settings.device
        tokens, actions, ends = (one.to(device) for one in (trees.tokens, trees.actions, trees.ends_word))
        loss = self.model(tokens, actions, stack_size_bound=trees.stack_size, subword_end_mask=ends)[0]
        self.optimizer.zero_grad()
        (loss / len(tokens)).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        loss.item()

    def searcher(self, num_sentences: int, beam: int, words: int) -> Callable[[], int]:
        """Its word-synchronous search of treelm's sentences, in one batch."""
        sentences = gpu_systems.search_sentences(num_sentences)
        vocabulary = gpu_systems.encoded_corpus("brackets").vocabulary
        ids = [torch.from_numpy(vocabulary.encode(words).ids + 1).long() for words in sentences]
        tokens = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True).to(self.settings.device)
        ends, fast = torch.ones_like(tokens, dtype=torch.bool), 1 if beam < 1000 else 10

        @torch.no_grad()
        def step() -> int:
            self.model.eval()
            self.model.word_sync_beam_search(tokens, ends, beam, words, fast, stack_size_bound=STACK_BOUND)
            return sum(map(len, sentences))

        return step


def rnng_training(settings: Settings) -> Iterator[Work]:
    """Sentences a second at several sizes of a batch."""
    for batch_size in (4,) if settings.small else gpu_systems.BATCH_SIZES:
        step = _RNNG(settings).trainer(batch_size)
        yield Work(name=f"rnng-pytorch training, batch {batch_size}, fp32", unit="sentences", step=step)


def rnng_search(settings: Settings) -> Iterator[Work]:
    """Beam search after as many updates as treelm's model had."""
    rnng = _RNNG(settings)
    train = rnng.trainer(4 if settings.small else 64)
    for _ in range(1 if settings.small else gpu_systems.STEPS_BEFORE_SEARCH):
        train()
    for beam, words in ((3, 2),) if settings.small else gpu_systems.BEAMS:
        step = rnng.searcher(1 if settings.small else gpu_systems.NUM_SENTENCES, beam, words)
        yield Work(name=f"rnng-pytorch search, k {beam}, k_w {words}", unit="words", step=step, warm_up=1)


class _Stream:
    """A network that gives outputs before the softmax and a state, trained with the penalties of AWD-LSTM."""

    def __init__(self, settings: Settings) -> None:
        self.device = settings.device
        self.vocabulary_size = 20 if settings.small else gpu_systems.VOCABULARY_SIZE
        self.model: Any = self.build(settings).to(settings.device).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=30.0, weight_decay=1.2e-6)
        self.clip = 0.25

    def build(self, settings: Settings) -> Any:
        """The network of the Penn Treebank recipe of its documentation."""
        raise NotImplementedError

    def zero(self, rows: int) -> Any:
        """The state before the first segment."""
        return self.model.init_hidden(rows)

    def loss(self, inputs: Tensor, targets: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The loss of a segment and the state after it."""
        output, state, raw, dropped = self.model(inputs, state, return_h=True)
        decoder = self.model.decoder
        loss = functional.cross_entropy(functional.linear(output.flatten(0, -2), decoder.weight, decoder.bias), targets)
        return loss + 2 * dropped[-1].pow(2).mean() + (raw[-1][1:] - raw[-1][:-1]).pow(2).mean(), state

    def trainer(self, rows: int, bptt: int) -> Callable[[], int]:
        """A step on the next random segment."""
        batches = gpu_systems.random_batches(self.vocabulary_size, bptt, rows)
        state = self.zero(rows)

        def step() -> int:
            nonlocal state
            batch = next(batches)
            inputs, targets = (torch.from_numpy(one).to(self.device) for one in (batch.inputs, batch.targets))
            self.optimizer.zero_grad()
            loss, state = self.loss(inputs, targets.flatten(), detached(state))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            loss.item()
            return rows * bptt

        return step


class _AWD(_Stream):
    def build(self, settings: Settings) -> Any:
        network = _import("awd-lstm-lm", "model", settings).RNNModel
        sizes = (8, 8, 2) if settings.small else (400, 1150, 3)
        return network("LSTM", self.vocabulary_size, *sizes, 0.4, 0.25, 0.4, 0.1, 0.5, True)


class _ONLSTM(_Stream):
    def build(self, settings: Settings) -> Any:
        network = _import("Ordered-Neurons", "model", settings).RNNModel
        sizes = (10, 10, 10, 2) if settings.small else (400, 1150, 10, 3)
        return network("LSTM", self.vocabulary_size, *sizes, 0.45, 0.3, 0.5, 0.1, 0.45, True)


class _PaLM(_Stream):
    def build(self, settings: Settings) -> Any:
        network = _import("PaLM", "model", settings).RNNModel
        sizes = {"emsize": 400, "embedding": 400, "nhid": 1020, "hidden": 1020, "cxtsize": 400, "rrnn_size": 400}
        sizes |= {"parser_size": 100, "max_span_length": 20}
        sizes = dict.fromkeys(sizes, 8) if settings.small else sizes
        rates = {"dropout": 0.4, "dropouth": 0.3, "dropouti": 0.4, "dropoute": 0.1, "wdrop": 0.5}
        own = argparse.Namespace(**sizes, **rates, nlayers=3, layers=3, tie_weights=True)
        return network(self.vocabulary_size, own)

    def zero(self, rows: int) -> Any:
        return self.model.init_hidden(rows), self.model.init_c_hidden(rows)

    def loss(self, inputs: Tensor, targets: Tensor, state: Any) -> tuple[Tensor, Any]:
        output, _, hidden, context, raw, dropped = self.model(inputs, *state, return_h=True)[:6]
        decoder = self.model.decoder
        loss = functional.cross_entropy(functional.linear(output.flatten(0, -2), decoder.weight, decoder.bias), targets)
        penalties = 2 * dropped[-1].pow(2).mean() + (raw[-1][1:] - raw[-1][:-1]).pow(2).mean()
        return loss + penalties, (hidden, context)


class _PRPN(_Stream):
    def build(self, settings: Settings) -> Any:
        network = _import("PRPN", "model_PRPN", settings).PRPN
        sizes = (8, 8, 2, 4, 2) if settings.small else (800, 1200, 2, 15, 5)
        return network(self.vocabulary_size, *sizes, 0.1, 0.7, 0.5, 0.5, True, True, 0)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        rates = {"lr": 0.003, "betas": (0.0, 0.999), "eps": 1e-9, "weight_decay": 1e-6}
        self.optimizer, self.clip = torch.optim.Adam(self.model.parameters(), **rates), 1.0  # type: ignore[assignment]

    def loss(self, inputs: Tensor, targets: Tensor, state: Any) -> tuple[Tensor, Any]:
        output, state = self.model(inputs, state)
        return functional.cross_entropy(output.view(-1, self.vocabulary_size), targets), state


_STREAMS = {"awd-lstm": _AWD, "on-lstm": _ONLSTM, "palm": _PaLM, "prpn": _PRPN}


def stream(system: str) -> Callable[[Settings], Iterator[Work]]:
    """Words a second at the paper's size, on the random tokens that treelm is given."""

    def works(settings: Settings) -> Iterator[Work]:
        own = "lstm" if system == "awd-lstm" else system
        rows, bptt = (2, 3) if settings.small else gpu_systems.PAPER_BATCH[own]
        step = _STREAMS[system](settings).trainer(rows, bptt)
        yield Work(name=f"public {system} training, {rows} x {bptt}, fp32", unit="words", step=step)

    return works
