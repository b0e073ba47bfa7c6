"""Perplexity of a text in a row, hidden states kept from sentence to sentence: the metric of the field's tables.

Systems that read sentences given their document, rather than streams, read each document in a row.

A continuous cache pointer may stand beside the model: words of the recent past become likelier (Grave, Joulin & Usunier
2016).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.data_config import locate_split
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.lines import Format
from treelm.corpora.preparing import prepared
from treelm.corpora.stream_batches import BPTTBatches
from treelm.errors import InputError
from treelm.evaluation.perplexity import LikelihoodSums, Perplexity, perplexity, sum_scores
from treelm.evaluation.report import GIVEN_TREES, EvaluationResult
from treelm.models.base import LanguageModel
from treelm.models.capabilities import DocumentContext, TreeConditioned, has, require
from treelm.models.layers.dropout import evaluating
from treelm.models.layers.softmax import target_log_probs
from treelm.models.stream_outputs import RecurrentState
from treelm.models.streams import StreamLM
from treelm.training.recipe import Recipe

_STEPS = 100  # of a segment: changes no metric


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """p(w) = weight * sum_j softmax_j(theta h_t . h_j) [w_{j+1} = w] + (1 - weight) * p_model(w), j in a window."""

    weight: float
    """Share of the cache (lambda)."""
    theta: float = 1.0
    """Sharpness of its preference for similar states."""
    window: int = 500
    """Number of the latest states that it holds."""


class ContinuousCache:
    """A cache beside each row of a stream. Needs no training: put it on top of any stream model.

    Before a row's first target the cache is empty, and the model's own probability counts alone.
    """

    def __init__(self, config: CacheConfig) -> None:
        """Begin with an empty cache for each row."""
        self._config = config
        self._states: Tensor | None = None  # (W, B, E), W up to the window
        self._following: Tensor | None = None  # (W, B) the token that came after each state

    @torch.no_grad()
    def log_probs(self, outputs: Tensor, targets: Tensor, model_log_probs: Tensor) -> Tensor:
        """Compute log p of the targets of a segment, float64 (T, B), which then are in the cache for the next one.

        outputs (T, B, E) are the states that predict ``targets`` (T, B), with ``model_log_probs`` (T, B) float64.
        """
        states, following = outputs, targets
        if self._states is not None and self._following is not None:
            states, following = torch.cat([self._states, outputs]), torch.cat([self._following, targets])
        weights = self._attend(outputs, states)
        wanted = targets.T[:, :, None] == following.T[:, None, :]  # (B, T, W + T)
        from_cache = (weights * wanted).sum(2).T
        empty = weights.sum(2).T == 0
        share = torch.where(empty, 0.0, self._config.weight).double()
        self._states, self._following = states[-self._config.window :], following[-self._config.window :]
        return torch.logaddexp(share.log() + from_cache.log(), (1 - share).log() + model_log_probs)

    def _attend(self, outputs: Tensor, states: Tensor) -> Tensor:
        """Weights of the cached states at each step, float64 (B, T, W + T); a step sees the window before it."""
        num_steps, num_states = len(outputs), len(states)
        scores = torch.einsum("tbe,wbe->btw", outputs, states).double() * self._config.theta
        step = torch.arange(num_steps, device=outputs.device)[:, None] + (num_states - num_steps)
        place = torch.arange(num_states, device=outputs.device)
        visible = (place < step) & (place >= step - self._config.window)
        return scores.masked_fill(~visible, -torch.inf).softmax(2).nan_to_num(0.0)


@dataclass(frozen=True, kw_only=True)
class StreamProtocol:
    """A way to read a text in a row.

    Each of the ``rows`` begins from the zero state at its place in the text; 1 is the text as it stands. Every token
    and every end is a target once, so the perplexity is over all N of them.
    """

    rows: int = 10
    sentence_ends: bool = True
    cache: CacheConfig | None = None

    @property
    def name(self) -> str:
        """The name that tells this metric from others."""
        cache = self.cache
        pointer = "" if cache is None else f", cache {cache.weight:g}/{cache.theta:g}/{cache.window}"
        return f"in a stream of {self.rows} {'row' if self.rows == 1 else 'rows'}{pointer}"


def stream_perplexities(lm: LanguageModel, corpus: PreparedCorpus, protocol: StreamProtocol) -> tuple[Perplexity, ...]:
    """Compute perplexity per word, ends included; of characters also per character (BPC) or, without ends, per token.

    Raises ``InputError`` for a system that reads whole sentences only.
    """
    sums = stream_likelihood(lm, corpus, protocol)
    units = ["word"]
    if not lm.vocabulary.ends_word.all():
        units.append("character" if protocol.sentence_ends else "symbol")
    return tuple(perplexity(sums, unit=unit, context=protocol.name) for unit in units)  # type: ignore[arg-type]


def stream_likelihood(lm: LanguageModel, corpus: PreparedCorpus, protocol: StreamProtocol) -> LikelihoodSums:
    """Sums for ``stream_perplexities``, in the precision of the model's weights; the model is left as it was."""
    if not isinstance(lm, StreamLM):
        raise _no_stream(lm)
    encoded = EncodedCorpus(corpus, lm.vocabulary, corpus.labels)
    batches = BPTTBatches(
        encoded,
        batch_size=protocol.rows,
        bptt=_STEPS,
        sentence_ends=protocol.sentence_ends,
        keep_rest=True,
        constituents=has(lm, TreeConditioned),
    )
    carried: RecurrentState = {}
    cache = None if protocol.cache is None else ContinuousCache(protocol.cache)
    device, weight = lm.decoder_weight.device, lm.decoder_weight
    tokens_nats = end_nats = 0.0
    with evaluating(lm):
        for batch in batches:
            targets = torch.from_numpy(batch.targets).to(device)
            reading = lm.read_segment(batch, carried)
            carried = reading.carried
            flat = reading.outputs.flatten(0, 1).to(weight.dtype)
            found = target_log_probs(flat, weight, lm.decoder_bias, targets.flatten()).view(targets.shape)
            if cache is not None:
                found = cache.log_probs(reading.outputs, targets, found)
            log_probs = found.cpu().numpy()
            counted = np.ones_like(batch.targets, dtype=bool) if batch.mask is None else batch.mask
            is_end = batch.targets == lm.end
            tokens_nats -= float(log_probs[counted & ~is_end].sum())
            end_nats -= float(log_probs[counted & is_end].sum())
    ends = len(encoded) if protocol.sentence_ends else 0
    return LikelihoodSums(
        tokens_nats=tokens_nats,
        end_nats=end_nats,
        num_sentences=ends,
        num_words=int(encoded.num_words.sum()),
        num_tokens=len(batches.stream) - ends,
        num_characters=num_characters(corpus),
    )


def require_context(lm: LanguageModel, protocol: StreamProtocol, *, fixed_rows: bool = False) -> None:
    """Raise ``InputError`` for a model that reads no text in a row, and for what only streams have."""
    if isinstance(lm, StreamLM):
        return
    if not has(lm, DocumentContext):
        raise _no_stream(lm)
    if fixed_rows or protocol.cache is not None:
        what = "stream_rows" if fixed_rows else "cache_weight"
        found = f"{what}, but {lm.system} reads each document in a row, not a stream"
        raise InputError(found, remedy=f"remove {what}")


def _no_stream(lm: LanguageModel) -> InputError:
    found = f"{lm.system} reads whole sentences, not streams"
    return InputError(found, remedy="set stream = no: sentence by sentence")


def document_perplexity(lm: LanguageModel, corpus: PreparedCorpus) -> Perplexity:
    """Compute perplexity per word, ends included, each sentence read given its document so far (``score_document``).

    Raises ``InputError`` for a model that does not keep its context.
    """
    sums, reader = sum_scores([]), require(lm, DocumentContext)
    for start, end in pairwise([*corpus.document_starts.tolist(), len(corpus)]):
        sums += sum_scores(reader.score_document([corpus.sentence(number).words for number in range(start, end)]))
    return perplexity(sums, policy="with_end", context="in documents")


def stream_protocol(recipe: Recipe) -> StreamProtocol:
    """The way in which ``[evaluation]`` wants streams to be read."""
    config = recipe.evaluation
    cache = None
    if config.cache_weight:
        cache = CacheConfig(weight=config.cache_weight, theta=config.cache_theta, window=config.cache_window)
    return StreamProtocol(rows=config.stream_rows, sentence_ends=recipe.training.sentence_ends, cache=cache)


def evaluate_stream(
    lm: LanguageModel,
    recipe: Recipe,
    name: str,
    *,
    format: Format | Literal["auto"] | None = None,
    fixed_rows: bool = False,
    skipped: list[InputError] | None = None,
) -> EvaluationResult:
    """Compute the metrics of a split of the recipe's corpus, or of a file of that ``format``, read in a row.

    Bad sentences go to ``skipped``. A text with fewer tokens than the recipe's rows is read in one row, and a note
    says so; if they are ``fixed_rows``, it raises ``InputError``. A system that reads documents, not streams, reads
    each of them in a row.
    """
    data, limit = recipe.data, recipe.evaluation.max_sentences
    path, found = (Path(name), format) if format else locate_split(data, name)  # type: ignore[arg-type]
    on_error = data.on_error if skipped is None else "skip"
    corpus = prepared([path], options=data.read_options(found), on_error=on_error, max_sentences=limit)
    if skipped is not None:
        skipped += corpus.skipped
    protocol, notes = stream_protocol(recipe), tuple[str, ...]()
    require_context(lm, protocol, fixed_rows=fixed_rows)
    if isinstance(lm, StreamLM):
        protocol, notes = _fitting(lm, corpus, protocol, name, fixed_rows=fixed_rows)
        perplexities = stream_perplexities(lm, corpus, protocol)
    else:
        perplexities = (document_perplexity(lm, corpus),)
    return EvaluationResult(
        system=lm.system,
        split=name,
        num_sentences=len(corpus),
        num_words=corpus.num_tokens,
        num_skipped=len(corpus.skipped),
        perplexities=perplexities,
        notes=(*((GIVEN_TREES,) if has(lm, TreeConditioned) else ()), *notes),
    )


def _fitting(
    lm: LanguageModel, corpus: PreparedCorpus, protocol: StreamProtocol, name: str, *, fixed_rows: bool
) -> tuple[StreamProtocol, tuple[str, ...]]:
    """The protocol, or that of one row with a note if there are not as many tokens as rows.

    Short text pays nothing for a single row, and has all its context there.
    """
    ends = len(corpus) if protocol.sentence_ends else 0
    if corpus.num_tokens + ends >= protocol.rows:  # a word has one token or more
        return protocol, ()
    num_tokens = int(EncodedCorpus(corpus, lm.vocabulary, corpus.labels).num_tokens.sum()) + ends
    if num_tokens >= protocol.rows:
        return protocol, ()
    found = f"a stream of {num_tokens} tokens for {protocol.rows} rows"
    if fixed_rows:
        raise InputError(found, where=name, remedy="lower stream_rows, or give more data")
    return replace(protocol, rows=1), (f"{name}: {found}, so it was read in 1 row",)


def num_characters(corpus: PreparedCorpus) -> int:
    """Characters of all words, and one blank between neighbours in a sentence."""
    lengths = np.array([len(form) for form in corpus.forms.to_list()], dtype=np.int64)
    blanks = np.maximum(np.diff(corpus.word_offsets) - 1, 0).sum()
    return int((lengths * corpus.form_counts().counts).sum() + blanks)
