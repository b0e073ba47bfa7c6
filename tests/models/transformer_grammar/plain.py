"""Transformer Grammars straight from their equations: a stack that is walked, one position, one head at a time.

Shares nothing with the package but the names of parameters and of the config's fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.models.layers.plain_attention import block, layer_norm, looks_back, read_one
from tests.models.rnng.worlds import top_down

SHIFT, REDUCE, FIRST_LABEL = 0, 1, 2


def binarised(node: Any, ends_word: Any, *, is_root: bool = True) -> Any:
    """The binary tree of (label, children): two parts each, to the right, but for the only word of a sentence."""
    label, children = node
    parts: list[list[Any]] = [[]]
    for child in children:
        if not isinstance(child, int):
            inner = binarised(child, ends_word, is_root=False)
            parts[-1:] = [inner if isinstance(inner, list) else [inner], []]
        else:
            parts[-1].append(child)
            if ends_word[child]:
                parts.append([])
    *parts, _ = parts
    if len(parts) == 1:
        is_word = all(isinstance(one, int) for one in parts[0])
        return (label, parts[0]) if is_root and is_word else parts[0] if is_word else parts[0][0]
    if len(parts) == 2:
        return label, [*parts[0], *parts[1]]
    rest = [child for part in parts[1:] for child in part]
    return label, [*parts[0], binarised((label, rest), ends_word, is_root=False)]


class Position(NamedTuple):
    """A position of the input, with all that later ones may look at."""

    kind: str  # START, OPEN, WORD, COMPOSE, STACK or CLOSED
    sees: tuple[int, ...]
    heads: tuple[tuple[int, ...], tuple[int, ...]]  # what PLM-mask's first two heads see of it
    depth: int
    height: int
    place: int


@dataclass(frozen=True)
class Walk:
    """A stack after some actions: positions so far, numbers of those on the stack, and of all that were pushed."""

    positions: tuple[Position, ...] = ()
    stack: tuple[int, ...] = ()
    history: tuple[int, ...] = ()
    frames: tuple[tuple[int, int, int], ...] = ()  # of each open nonterminal: its place on the stack, label, position

    @property
    def num_open(self) -> int:
        return len(self.frames)

    def pushed(self, config: Any, kind: str, depth: int, *, sees: tuple[int, ...] | None = None) -> Walk:
        """With one position more; COMPOSE sees what it is told, the others the stack, or everything."""
        number = len(self.positions)
        if sees is None:
            sees = self.stack if config.masking and config.composition != "none" else self.history
        sees = (*sees, number)
        border = self.frames[-1][2] if self.frames else -1
        outside = tuple(k for k in sees if k < border or border < 0)
        height, place = len(self.stack), len(self.history)
        position = Position(kind, sees, (outside, tuple(k for k in sees if k >= border)), depth, height, place)
        if kind == "STACK":
            return replace(self, positions=(*self.positions, position._replace(height=height - 1)))
        return replace(
            self,
            positions=(*self.positions, position),
            stack=(*self.stack, number),
            history=(*self.history, number),
        )

    def after(self, config: Any, action: int) -> Walk:
        """After one action, which does not end the sentence."""
        depth = self.num_open + 1
        if action >= FIRST_LABEL:
            frame = len(self.stack), action - FIRST_LABEL, len(self.positions)
            if config.order == "bottom-up":
                return replace(self, frames=(*self.frames, frame))
            return replace(self, frames=(*self.frames, frame)).pushed(config, "OPEN", depth)
        if action == SHIFT:
            return self.pushed(config, "WORD", depth)
        base = self.frames[-1][0]
        outer = replace(self, frames=self.frames[:-1])
        if config.composition == "none":
            return outer.pushed(config, "CLOSED", depth - 1)
        return outer.composed(config, base, depth - 1)

    def composed(self, config: Any, base: int, depth: int = 0) -> Walk:
        """With what lies above a place of the stack as one constituent."""
        if config.composition == "external":
            return replace(self, stack=self.stack[:base]).pushed(config, "CLOSED", depth)
        parts = self.stack[base:]
        composed = replace(self, stack=self.stack[:base]).pushed(config, "COMPOSE", depth, sees=parts)
        return composed.pushed(config, "STACK", depth)


def begun(config: Any) -> Walk:
    return Walk().pushed(config, "START", 0)


@dataclass(frozen=True)
class State:
    walk: Walk
    keys: tuple[tuple[Tensor, ...], ...] = ()  # of each position, of each layer
    values: tuple[tuple[Tensor, ...], ...] = ()
    output: Any = None  # that predicts what comes next
    num_consecutive: int = 0
    above: int = -1  # the last action
    in_word: bool = False
    is_finished: bool = False
    vectors: tuple[Tensor, ...] = ()  # of each position, its input
    children: tuple[int, ...] = ()  # of each open nonterminal; the pieces of a word are one
    attention: tuple[Any, ...] = ()  # of each position, what each head sees, and its weights in every layer

    @property
    def num_open(self) -> int:
        return self.walk.num_open


class PlainGrammar:
    """The model action by action; every position is read once, from the positions that it sees."""

    def __init__(self, model: Any, start: Tensor | float = 0.0) -> None:
        self.start = start  # from which a sentence of a document begins besides START
        self.config, self.parameters = model.config, dict(model.named_parameters())
        self.num_labels, self.ends_word = len(model.labels), model.vocabulary.ends_word
        self.finish = FIRST_LABEL + self.num_labels  # there is none

    @property
    def num_groups(self) -> int:
        return 4 if self.config.binary and self.config.order == "top-down" else 1

    def group(self, state: State) -> int:
        """The least number of words that have still to come, up to three."""
        needed = sum(2 - children for children in state.children) - (state.num_open - 1) if state.num_open else 1
        return min(needed, 3)

    def initial(self) -> State:
        return self._read(State(begun(self.config)), [self.parameters["start_embedding"] + self.start])

    def valid(self, state: State) -> list[int]:
        if state.in_word:
            return [SHIFT]
        within = state.num_open < self.config.max_open and state.num_consecutive < self.config.max_consecutive
        labels = [FIRST_LABEL + label for label in range(self.num_labels)] if within else []
        inside = state.num_open > 0
        if self.config.binary and inside and state.children[-1] == 2:
            return [REDUCE]
        if self.config.binary and inside and state.children[-1] == 1:
            is_one_word = state.num_open == 1 and state.above == SHIFT
            return [SHIFT, *([REDUCE] if is_one_word else []), *labels]
        return [*([SHIFT] if inside else []), *([REDUCE] if inside and state.above < FIRST_LABEL else []), *labels]

    def derivation(self, tree: Any) -> list[int]:
        """The actions of a tree in the model's order."""
        return top_down(binarised(tree, self.ends_word) if self.config.binary else tree)

    def action_log_probs(self, state: State) -> dict[int, Tensor]:
        return self._of_actions(self.valid(state), state)

    def _of_actions(self, valid: list[int], state: State) -> dict[int, Tensor]:
        """log p of the valid actions; the last one in the head is the last one of all."""
        logits = self.parameters["action_head.weight"] @ state.output + self.parameters["action_head.bias"]
        place = {action: -1 if action == self.finish else action for action in valid}
        return dict(zip(valid, logits[list(place.values())].log_softmax(0), strict=True))

    @staticmethod
    def log_softmax(logits: list[Tensor]) -> Tensor:
        return torch.stack(logits).log_softmax(0)

    def word_log_probs(self, state: State) -> Tensor:
        logits = self.parameters["word_embedding"] @ state.output + self.parameters["word_bias"]
        return logits.log_softmax(0)

    def apply(self, state: State, action: int, token: int | None = None) -> State:
        assert action in self.valid(state)
        if action == REDUCE and state.num_open == 1:
            return replace(state, is_finished=True)
        is_label = action >= FIRST_LABEL
        in_word = action == SHIFT and not self.ends_word[token]
        children = state.children[: len(state.children) - (action == REDUCE)]
        if is_label:
            children = (*children, 0)
        elif not in_word:
            children = (*children[:-1], children[-1] + 1)
        new = replace(
            state,
            walk=state.walk.after(self.config, action),
            num_consecutive=state.num_consecutive + 1 if is_label else 0,
            above=action,
            in_word=in_word,
            children=children,
        )
        if action == SHIFT:
            vector = self.parameters["word_embedding"][token]
        elif is_label:
            vector = self.parameters["open_embedding"][action - FIRST_LABEL]
        else:
            label = 0 if self.config.composition == "none" else state.walk.frames[-1][1]
            vector = self.parameters["close_embedding"][label]
            if self.config.composition == "external":
                base = state.walk.frames[-1][0]
                vector = self.composed(vector, [state.vectors[number] for number in state.walk.stack[base + 1 :]])
        return self._read(new, [vector] * (len(new.walk.positions) - len(state.walk.positions)))

    def composed(self, label: Tensor, children: list[Tensor]) -> Tensor:
        """The vector of a constituent by external composition."""
        own = {n.removeprefix("composer."): p for n, p in self.parameters.items() if n.startswith("composer.")}
        units = [own["input.weight"] @ vector + own["input.bias"] for vector in [label, *children]]
        sees = [range(len(units))] * len(units)
        for layer in range(self.config.composer_layers):
            start = f"blocks.{layer}."
            weights = {n.removeprefix(start): value for n, value in own.items() if n.startswith(start)}
            kinds = [lambda i, j: min(max(i - j, -8), 8) + 8]
            units = block(weights, units, sees, num_heads=self.config.composer_heads, kinds=kinds)
        summed = layer_norm(torch.stack(units).sum(0), own["norm.weight"], own["norm.bias"])
        return own["output.weight"] @ summed + own["output.bias"]

    def _read(self, state: State, vectors: list[Tensor]) -> State:
        for x in vectors:
            state = self._read_one(state, x)
        return state

    def _read_one(self, state: State, x: Tensor) -> State:
        """One more position, layer by layer."""
        config, positions = self.config, state.walk.positions
        position = positions[len(state.keys)]
        lowest = 0 if config.positions == "place" else -1

        def distance(t: int, s: int) -> int:
            between = getattr(positions[t], config.positions) - getattr(positions[s], config.positions)
            return min(max(between, lowest), config.max_distance) - lowest

        structured = position.heads if config.structured_heads else ()
        sees = [*structured, *[position.sees] * (config.num_heads - len(structured))]
        found, layers = list[list[Tensor]](), config.num_layers
        output, keys, values = read_one(
            self.parameters, x, state.keys, state.values, num_layers=layers, sees=sees, kinds=[distance], found=found
        )
        vectors, attention = (*state.vectors, x), (*state.attention, (sees, found))
        return replace(state, keys=keys, values=values, output=output, vectors=vectors, attention=attention)

    def looks_back(self, state: State) -> list[list[float]]:
        """Of the last position, the normalised attention entropies of each head of the last layer (H, 2)."""
        last, own = self.config.num_layers - 1, len(state.attention) - 1
        start = f"blocks.{last}."
        weights = {n.removeprefix(start): value for n, value in self.parameters.items() if n.startswith(start)}
        (sees, found), entropies = state.attention[-1], []
        for number, seen in enumerate(sees):
            before = [place for place, s in enumerate(seen) if s != own]
            values = [state.values[seen[place]][last] for place in before]
            entropies.append(looks_back(weights, found[last][number][before], values, number, len(sees)))
        return entropies

    def log_prob(self, actions: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
        """log p of the actions, and of the tokens given them."""
        state, coming = self.initial(), iter(tokens)
        action_sum = word_sum = torch.zeros((), dtype=torch.float64)
        for action in actions:
            action_sum = action_sum + self.action_log_probs(state)[action]
            token = next(coming) if action == SHIFT else None
            if token is not None:
                word_sum = word_sum + self.word_log_probs(state)[token]
            state = self.apply(state, action, token)
        assert state.is_finished
        return action_sum, word_sum
