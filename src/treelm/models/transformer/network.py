"""The decoder-only Transformer: a language model of sentences and of streams (Radford et al. 2019; Dai et al. 2019).

The equations of a block are in ``layers/attention.py``. The plain form is ``tests/models/transformer/plain.py``.
Shapes: T steps, B rows, n tokens of a batch without padding, D units, N layers, M tokens of memory, S = M + T tokens
that may be seen, K first tokens of a row that are kept besides (sinks), V tokens of the vocabulary (the end token is
V).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.encoding import EncodedCorpus, SentenceBatch, encode_words
from treelm.corpora.stream_batches import StreamBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import IncrementalState
from treelm.models.capabilities import Attention, ChecksCorpus, Parser
from treelm.models.layers.attention import (
    ATTENTION_COLUMNS,
    AttentionBlock,
    AttentionMask,
    AttentionStack,
    Rotary,
    attention_columns,
    start_normal,
    weights_of_layers,
)
from treelm.models.layers.devices import physical_memory, plan_to_device
from treelm.models.layers.dropout import dropout, shared_generator
from treelm.models.layers.gold_trees import without_unparsed
from treelm.models.layers.packed_sequences import Packing
from treelm.models.layers.precision import to_host
from treelm.models.layers.softmax import summed_cross_entropy, tied
from treelm.models.scores import Loss, Losses, SubwordAggregation
from treelm.models.stream_outputs import RecurrentState, StreamOutput, StreamState
from treelm.models.streams import Floats, StreamLM
from treelm.models.structures import BOUNDARY
from treelm.models.transformer.auxiliary import greedy_tree, planting_loss, scin_chart, treereg_loss
from treelm.models.transformer.config import TransformerConfig
from treelm.trees.transforms import UNPARSED
from treelm.trees.tree import Tree

ENTROPIES = "attention_entropies"
PLANTED_HEAD = 0
"""The head of the last layer that tree planting trains."""


class Transformer(StreamLM, Parser, Attention, ChecksCorpus):
    """Embedding, blocks, a last layer norm, softmax over the tied embedding.

    With memory, the state that is carried from segment to segment consists of each row's first tokens (its sinks), its
    last M tokens, and the number of tokens read. A token is stored in training as the inputs of each layer, from which
    the present weights make keys and values, and in evaluation as keys and values.
    """

    system: ClassVar[str] = "transformer"
    config: TransformerConfig
    predicts_labels: ClassVar[bool] = False
    step_metrics: ClassVar[tuple[str, ...]] = (ENTROPIES,)

    def __init__(self, config: TransformerConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator, as GPT-2 starts."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        if config.auxiliary != "treereg":
            self.unavailable[Parser] = "transformer is a language model without trees"
        self.embedding = nn.Parameter(torch.empty(len(vocabulary) + 1, config.size))
        self.output_bias = nn.Parameter(torch.zeros(len(vocabulary) + 1))
        start_normal(self.embedding)
        self.places: nn.Parameter | None = None
        if config.positions == "learned":
            self.places = nn.Parameter(torch.empty(config.max_length, config.size))
            start_normal(self.places)
        kinds = (config.max_distance + 1,) if config.positions == "relative" else ()
        self.blocks = AttentionStack(
            config.size, config.num_heads, num_layers=config.num_layers, kinds=kinds, dropout=config.dropout
        )
        self.norm = nn.LayerNorm(config.size)
        self._check_memory(1)

    # Sentences and segments.

    def init_state(self, num_rows: int) -> RecurrentState:
        """An empty memory: ``length`` (B,); of each layer ``inputs.l``, or ``keys.l`` and ``values.l``, (B, M, D)."""
        if not self.config.memory_length:
            return {}
        self._check_memory(num_rows)
        return self._memory(num_rows, self.config.sink_tokens + self.config.memory_length)

    def _memory(self, num_rows: int, size: int) -> RecurrentState:
        """An empty memory with room for ``size`` tokens."""
        names, shape = ("inputs",) if self.training else ("keys", "values"), (num_rows, size, self.config.size)
        length = torch.zeros(num_rows, dtype=torch.int64, device=self.embedding.device)
        layers = range(self.config.num_layers)
        return {"length": length} | {f"{n}.{layer}": self.embedding.new_zeros(shape) for layer in layers for n in names}

    @property
    def word_columns(self) -> dict[str, SubwordAggregation]:
        """How widely the last layer looks back from the tokens of a word."""
        return ATTENTION_COLUMNS

    def columns_of(self, metrics: Mapping[str, NDArray[Any]], words: NDArray[np.int64]) -> dict[str, Floats]:
        """The columns of attention from the normalised entropies of the last layer."""
        return attention_columns(metrics[ENTROPIES], words)

    def forward(self, inputs: Tensor, carried: RecurrentState, *, mask: Tensor | None = None) -> StreamOutput:
        """Read tokens (T, B). Without memory, ``carried`` is empty, and the first token has the place 0.

        ``structure`` has ``ENTROPIES`` (T, B, H, 2) unless gradients are computed.
        """
        outputs, following, layers, attention = self._read(inputs, carried)
        last = self.blocks.each[-1]
        structure = {} if torch.is_grad_enabled() else {ENTROPIES: last.entropies(*attention).transpose(0, 1)}
        return StreamOutput(outputs=outputs, carried=following, structure=structure, below=layers[:-1])

    def _read(
        self, inputs: Tensor, carried: RecurrentState
    ) -> tuple[Tensor, RecurrentState, list[Tensor], tuple[Tensor, Tensor, Tensor, AttentionMask]]:
        """Outputs (T, B, D) and memory after tokens (T, B).

        Beside them, the outputs (T, B, D) of each block, and queries, keys, values and mask of the last one.
        """
        layers = list[Tensor]()
        places = torch.arange(len(inputs), device=inputs.device)
        if self.places is not None and carried:
            places = carried["length"][:, None] + places
            self._check_length(int(places.max()) + 1)
        else:
            self._check_length(len(inputs))
        units = self._embedded(self.embedding[inputs.T], places)
        mask, following = self._mask_and_window(len(inputs), carried, inputs.device)
        for layer, block in enumerate(self.blocks.each):
            query, key, value = (
                self._with_memory(block, units, carried, following, layer) if carried else block.heads(units)
            )
            units = block.finish(units, block.attend(query, key, value, mask))
            layers.append(units.transpose(0, 1))
        return self._finished(units).transpose(0, 1), following, layers, (query, key, value, mask)

    def _mask_and_window(
        self, num_steps: int, carried: RecurrentState, device: torch.device
    ) -> tuple[AttentionMask, RecurrentState]:
        """The mask of a segment and, if there is memory, the number of tokens that have been read after it.

        Places are counted from the first token of the window, so the first tokens of a long row have negative places.
        """
        if not carried:
            return causal_mask(num_steps, self.config, device), {}
        memory = carried["inputs.0" if "inputs.0" in carried else "keys.0"]
        window = memory.shape[1] - self.config.sink_tokens
        first = window - carried["length"]
        places = torch.arange(window + num_steps, device=device)[None]
        queries = places[:, window:]
        if self.config.sink_tokens:
            sinks = first[:, None] + torch.arange(self.config.sink_tokens, device=device)
            sinks = torch.where(sinks < 0, sinks, first[:, None] - 1)  # one that the window still has is not seen twice
            places = torch.cat([sinks, places.expand(len(sinks), -1)], 1)
        return mask_between(queries, places, self.config, first=first), {"length": carried["length"] + num_steps}

    def _with_memory(
        self, block: AttentionBlock, units: Tensor, carried: RecurrentState, following: RecurrentState, layer: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of a segment (B, T, D), and its keys and values preceded by those of memory.

        The memory of the next segment is put into ``following``.
        """
        names, length = (f"inputs.{layer}", f"keys.{layer}", f"values.{layer}"), carried["length"]
        if names[0] in carried:
            seen, following[names[0]] = self._joined(carried[names[0]], units, length)
            query, key, value = block.heads(seen)
            return query[:, -units.shape[1] :], key, value
        query, key, value = block.heads(units)
        key, following[names[1]] = self._joined(carried[names[1]], key, length)
        value, following[names[2]] = self._joined(carried[names[2]], value, length)
        return query, key, value

    def _joined(self, memory: Tensor, new: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """Memory (B, K + M, D) followed by a segment (B, T, D), and the memory after the segment."""
        seen = torch.cat([memory, new], 1)
        sinks, kept = self.config.sink_tokens, seen.detach()
        window = kept[:, new.shape[1] + sinks :]
        if not sinks:
            return seen, window
        number = torch.arange(sinks, device=seen.device)
        place = memory.shape[1] + number - length[:, None]  # in what is seen, of those not kept yet
        place = torch.where((number < length[:, None]) | (place >= seen.shape[1]), number, place)
        first = kept.gather(1, place[:, :, None].expand(-1, -1, seen.shape[2]))
        return seen, torch.cat([first, window], 1)

    def losses(self, batch: SentenceBatch) -> Losses:
        """The loss of every token and end, as in every stream model; only attention is computed with padding.

        With trees there is the term of a second loss, if the config has one. It counts in training only: in evaluation
        the total is the loss of words.
        """
        lengths = np.diff(batch.token_offsets) + 1
        inputs = np.insert(batch.tokens, batch.token_offsets[:-1], self.end)
        targets = np.insert(batch.tokens, batch.token_offsets[1:], self.end)
        num_steps = int(lengths.max(initial=0))
        self._check_length(num_steps)
        plan = torch.from_numpy(inputs), torch.from_numpy(targets), Packing.of(lengths)
        token, target, packing = plan_to_device(plan, self.embedding.device)
        vectors, weight = tied(self.embedding, token)
        layers = self._through(self._embedded(vectors, packing.places % num_steps), packing)
        hidden = self._finished(layers[-1])
        word = summed_cross_entropy(hidden.to(weight.dtype), weight, self.output_bias, target)
        terms, total = {"word": Loss(sum=word, count=len(targets))}, word
        if batch.actions is not None and self._is_drawn():
            found = self._second_loss(without_unparsed(batch, self.labels), layers, packing)
            if found is not None:
                terms[self.config.auxiliary.replace("-", "_")] = found
                total = word + self.config.auxiliary_weight * found.sum if self.training else word
        return Losses.of(batch, terms, total)

    def stream_losses(self, batch: StreamBatch, carried: RecurrentState | None) -> tuple[Losses, RecurrentState]:
        """The losses of every stream model. Raises ``InputError`` in training if there is a second loss."""
        if self.training:
            self.check_stream(*batch.inputs.shape)
        return super().stream_losses(batch, carried)

    def _is_drawn(self) -> bool:
        """Whether this batch has the second loss, drawn at random in training, alike for all parts of an update."""
        if self.config.auxiliary == "none":
            return False
        if not self.training or self.config.auxiliary_share == 1:
            return True
        drawn = torch.rand((), device=self.embedding.device, generator=shared_generator())
        return drawn.item() < self.config.auxiliary_share

    def _second_loss(self, batch: SentenceBatch, layers: list[Tensor], packing: Packing) -> Loss | None:
        """The second loss of a batch, from the inputs of the first layer and the outputs of all layers, (n, D) each."""
        config, ends_word = self.config, self.vocabulary.ends_word
        with torch.autocast(packing.places.device.type, enabled=False):
            if config.auxiliary == "treereg":
                states = layers[config.treereg_layer][:, : config.treereg_units]
                return treereg_loss(packing.pad(states.to(self.embedding.dtype))[:, 1:], batch, ends_word)
            query, key, _ = self.blocks.each[-1].heads(layers[-2].to(self.embedding.dtype))
            mask = causal_mask(packing.shape[1], config, query.device)
            logits = self.blocks.each[-1].logits(packing.pad(query), packing.pad(key), mask)[PLANTED_HEAD]
            return planting_loss(logits.log_softmax(-1), batch, ends_word)

    def _embedded(self, vectors: Tensor, places: Tensor) -> Tensor:
        """The inputs of the first layer: embeddings (..., D) of tokens at these places of their sentences."""
        if self.places is not None:
            vectors = vectors + self.places[places]
        return dropout(vectors, self.config.dropout, training=self.training)

    def _through(self, units: Tensor, packing: Packing | None = None) -> list[Tensor]:
        """The inputs of the first layer and the outputs of all layers: (B, T, D) or, with ``packing``, (n, D)."""
        mask = causal_mask(packing.shape[1] if packing else units.shape[1], self.config, units.device)
        layers = [units]
        for block in self.blocks.each:
            layers.append(block(layers[-1], mask, packing))
        return layers

    def _finished(self, units: Tensor) -> Tensor:
        """The outputs of the network, from those of the last layer."""
        return dropout(self.norm(units), self.config.dropout, training=self.training)

    # Word by word.

    @torch.no_grad()
    def _start(self, num_sentences: int) -> StreamState:
        """The state before the first word, after the end token that precedes every sentence."""
        return self._started(torch.full((1, num_sentences), self.end, device=self.embedding.device))

    @torch.no_grad()
    def _start_after(self, sentences: Sequence[Sequence[str]]) -> StreamState:
        """The state after these sentences; without a bound of memory, all of their tokens can be seen."""
        if self.config.memory_length:
            return super()._start_after(sentences)
        tokens = torch.from_numpy(self.in_a_row(encode_words(sentences, self.vocabulary)))
        return self._started(tokens.to(self.embedding.device)[:, None])

    def _started(self, inputs: Tensor) -> StreamState:
        """The state of n sentences after these tokens (T, n), in a memory that is just large enough."""
        exact, num_rows = self.exact(), inputs.shape[1]
        reading = exact.forward(inputs, exact._memory(num_rows, self.config.sink_tokens + len(inputs)))
        return StreamState.begin(num_rows, carried=reading.carried, hidden=reading.outputs[-1])

    @torch.no_grad()
    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> StreamState:
        before = StreamState.own(state)
        rows = [row for row, token in enumerate(tokens) if token is not None]
        if not rows:
            return before
        sinks, room = self.config.sink_tokens, int(before.carried["length"].max()) + 1
        more = min(room, self.config.memory_length or room) + sinks - before.carried["keys.0"].shape[1]
        carried = before.carried
        if more > 0:  # memory grows up to its bound
            carried = {
                name: torch.cat([kept[:, :sinks], functional.pad(kept[:, sinks:], (0, 0, more, 0))], 1)
                for name, kept in carried.items()
                if name != "length"
            } | {"length": carried["length"]}
        index = torch.tensor(rows, device=before.hidden.device)
        read = torch.tensor([[token for token in tokens if token is not None]], device=index.device)
        if len(rows) == len(tokens):
            outputs, following, *_ = self.exact()._read(read, carried)
        else:
            outputs, new, *_ = self.exact()._read(read, {name: kept[index] for name, kept in carried.items()})
            following = {name: kept.index_copy(0, index, new[name]) for name, kept in carried.items()}
        hidden = before.hidden.index_copy(0, index, outputs[0])
        return before.after(tokens, self.vocabulary, carried=following, hidden=hidden)

    # Trees.

    @torch.no_grad()
    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """Binary trees by TreeReg's scores of splits, chosen greedily; constituents have the label X."""
        exact, trees, batch = self.exact(), list[Tree](), encode_words(sentences, self.vocabulary, needs_words=True)
        for number, words in enumerate(sentences):
            tokens = batch.tokens_of(number)
            layers = exact._through(exact._inputs(tokens))
            states = layers[self.config.treereg_layer][:, 1:, : self.config.treereg_units]
            chart = to_host(scin_chart(states)[0])
            trees.append(greedy_tree(tuple(words), chart, self.vocabulary.ends_word[tokens]))
        return trees

    @torch.no_grad()
    def _attention(self, words: Sequence[str]) -> tuple[tuple[str, ...], list[NDArray[np.float64]]]:
        """The words of a sentence, after the end token that precedes it, and the attention weights of each layer."""
        exact, tokens = self.exact(), encode_words([words], self.vocabulary).tokens
        units, is_last = exact._inputs(tokens), np.append(True, self.vocabulary.ends_word[tokens])
        mask = causal_mask(units.shape[1], self.config, units.device)
        return (BOUNDARY, *words), weights_of_layers(exact.blocks.each, units, mask, is_last)

    def _inputs(self, tokens: NDArray[np.int64]) -> Tensor:
        """The inputs of the first layer for the end token and the tokens of a sentence: (1, T, D)."""
        self._check_length(len(tokens) + 1)
        inputs = torch.tensor([[self.end, *tokens.tolist()]], device=self.embedding.device)
        return self._embedded(self.embedding[inputs], torch.arange(inputs.shape[1], device=inputs.device))

    # Limits.

    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Raise ``InputError`` for sentences longer than learned positions, and for text if there is a second loss."""
        if trains and self.config.auxiliary != "none" and not set(corpus.prepared.labels) - {UNPARSED}:
            found = f"sentences without trees with auxiliary = {self.config.auxiliary!r}"
            where = corpus.name(0) if len(corpus) else None
            raise InputError(found, where=where, remedy="give brackets or CoNLL-U, or set auxiliary = 'none'")
        if self.places is not None:
            too_long = np.flatnonzero(corpus.num_tokens >= self.config.max_length)
            if len(too_long):
                index = int(too_long[0])
                self._check_length(int(corpus.num_tokens[index]) + 1, where=corpus.name(index))

    def check_stream(self, num_steps: int, num_rows: int) -> None:
        """Raise ``InputError`` for streams or packed rows that the model cannot read.

        That is so with a second loss, with rows too long for learned positions, and with too large a memory.
        """
        if self.config.auxiliary != "none":
            found = f"batches of rows with auxiliary = {self.config.auxiliary!r}, a loss of whole sentences"
            raise InputError(found, where="[training]", remedy="set batches = 'sentences'")
        if self.places is not None and num_steps > len(self.places):
            found = f"bptt = {num_steps}, of which learned positions take {len(self.places)}"
            raise InputError(found, where="[training]", remedy="raise max_length, or set positions = 'relative'")
        self._check_memory(num_rows, where="[model]")

    def _check_memory(self, num_rows: int, *, where: str | None = None) -> None:
        """Raise ``InputError`` for more memory than the machine has: Linux would grant it, then kill the process."""
        names = 1 if self.training else 2
        length = self.config.sink_tokens + self.config.memory_length
        num_values = num_rows * length * self.config.size * self.config.num_layers * names
        num_bytes = num_values * self.embedding.element_size()
        if self.config.memory_length and num_bytes > (physical_memory() or math.inf):
            rows = f"{num_rows} rows" if num_rows > 1 else "one row"
            found = f"memory_length = {self.config.memory_length}, which takes {num_bytes / 1e9:.0f} GB in {rows}"
            raise InputError(found, where=where, remedy=f"make it smaller{', or read fewer rows' * (num_rows > 1)}")

    def _check_length(self, num_steps: int, *, where: str | None = None) -> None:
        """Raise ``InputError`` for more tokens, the start included, than places that have vectors."""
        if self.places is not None and num_steps > len(self.places):
            found = f"{num_steps - 1} tokens in a row, of which learned positions take {len(self.places) - 1}"
            raise InputError(found, where=where, remedy="raise max_length, or train with positions = 'relative'")


def mask_between(
    queries: Tensor, keys: Tensor, config: TransformerConfig, *, first: Tensor | None = None
) -> AttentionMask:
    """The mask of queries at places (B or 1, T) and keys at places (B or 1, S).

    ``first`` (B,), 0 by default, is the place where each row begins. The sinks are the first places from there on,
    which all queries see.
    """
    distance = queries[:, :, None] - keys[:, None, :]
    hidden = distance < 0
    if config.memory_length:
        is_far = distance > config.memory_length
        if config.sink_tokens:
            is_far = is_far & (keys >= config.sink_tokens + (0 if first is None else first[:, None]))[:, None, :]
        hidden = hidden | is_far
    if first is not None:
        hidden = hidden | (keys < first[:, None])[:, None, :]
    relative = (distance.clamp(0, config.max_distance),) if config.positions == "relative" else ()
    rotary = Rotary(queries, keys) if config.positions == "rotary" else None
    is_near = first is None or not config.sink_tokens
    met = (min(config.max_distance + 1, keys.shape[1]),) if relative and is_near else None
    return AttentionMask(hidden[:, None], relative, rotary, met)


def causal_mask(num_steps: int, config: TransformerConfig, device: torch.device) -> AttentionMask:
    """The mask of the T tokens of sentences, which are read from their start."""
    places = torch.arange(num_steps, device=device)[None]
    mask = mask_between(places, places, config)
    is_all = not config.memory_length or num_steps <= config.memory_length + 1
    return mask._replace(hidden=None) if is_all and config.positions != "relative" else mask
