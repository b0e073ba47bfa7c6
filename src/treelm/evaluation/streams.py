"""Perplexity of a text or of each document in a row, with a continuous cache if asked (Grave et al. 2016)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.stream_batches import BPTTBatches
from treelm.errors import InputError
from treelm.evaluation.report import GIVEN_TREES, EvaluationResult
from treelm.models.base import LanguageModel, SentenceScore
from treelm.models.capabilities import DocumentContext, TreeConditioned, has, require
from treelm.models.layers.dropout import evaluating
from treelm.models.layers.softmax import target_log_probs
from treelm.models.perplexity import Coverage, Perplexity, perplexity
from treelm.models.stream_outputs import RecurrentState
from treelm.models.streams import StreamLM
from treelm.training.recipe import EvaluationConfig, Recipe

_STEPS = 100  # of a segment: changes no metric


class ContinuousCache:
    """p(w) = weight * sum_j softmax_j(theta h_t . h_j) [w_{j+1} = w] + (1 - weight) * p_model(w), j in a window.

    A cache beside each row of a stream. Needs no training: put it on top of any stream model. Before a row's first
    target the cache is empty, and the model's own probability counts alone.
    """

    def __init__(self, *, weight: float, theta: float, window: int) -> None:
        """Begin with an empty cache for each row. ``window`` is the number of the latest states that it holds."""
        self._weight, self._theta, self._window = weight, theta, window
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
        share = torch.where(empty, 0.0, self._weight).double()
        self._states, self._following = states[-self._window :], following[-self._window :]
        return torch.logaddexp(share.log() + from_cache.log(), (1 - share).log() + model_log_probs)

    def _attend(self, outputs: Tensor, states: Tensor) -> Tensor:
        """Weights of the cached states at each step, float64 (B, T, W + T); a step sees the window before it."""
        num_steps, num_states = len(outputs), len(states)
        scores = torch.einsum("tbe,wbe->btw", outputs, states).double() * self._theta
        step = torch.arange(num_steps, device=outputs.device)[:, None] + (num_states - num_steps)
        place = torch.arange(num_states, device=outputs.device)
        visible = (place < step) & (place >= step - self._window)
        return scores.masked_fill(~visible, -torch.inf).softmax(2).nan_to_num(0.0)


def stream_perplexities(
    lm: StreamLM, corpus: PreparedCorpus, config: EvaluationConfig, *, sentence_ends: bool = True
) -> tuple[Perplexity, ...]:
    """Compute the perplexity of a text that is read in a row, per word, ends of sentences included.

    Models of characters also have a perplexity per character (from which bits per character follow) or, without
    ``sentence_ends``, per token. The text is cut into ``stream_rows`` rows, each of which begins from the zero state;
    every token is predicted once. Raises ``InputError`` for a text without words.
    """
    encoded = EncodedCorpus(corpus, lm.vocabulary, corpus.labels)
    batches = BPTTBatches(
        encoded,
        batch_size=config.stream_rows,
        bptt=_STEPS,
        sentence_ends=sentence_ends,
        keep_rest=True,
        constituents=has(lm, TreeConditioned),
    )
    carried: RecurrentState = {}
    context = f"in a stream of {config.stream_rows} row{'s' * (config.stream_rows != 1)}"
    cache = None
    if config.cache_weight:
        cache = ContinuousCache(weight=config.cache_weight, theta=config.cache_theta, window=config.cache_window)
        context += f", cache {config.cache_weight:g}/{config.cache_theta:g}/{config.cache_window}"
    device, weight = lm.decoder_weight.device, lm.decoder_weight
    bits = 0.0
    with evaluating(lm):
        for batch in batches:
            targets = torch.from_numpy(batch.targets).to(device)
            output = lm.read_segment(batch, carried)
            carried = output.carried
            flat = output.outputs.flatten(0, 1).to(weight.dtype)
            found = target_log_probs(flat, weight, lm.decoder_bias, targets.flatten()).view(targets.shape)
            if cache is not None:
                found = cache.log_probs(output.outputs, targets, found)
            log_probs = found.cpu().numpy()
            bits -= float((log_probs if batch.mask is None else log_probs[batch.mask]).sum()) / math.log(2)
    ends = len(encoded) if sentence_ends else 0
    units = {"word": int(encoded.num_words.sum()) + ends}
    if not lm.vocabulary.ends_word.all() and sentence_ends:
        units["character"] = num_characters(corpus) + ends
    elif not lm.vocabulary.ends_word.all():
        units["symbol"] = len(batches.stream)
    if not all(units.values()):
        raise InputError("no words to compute a perplexity from", remedy="give at least one sentence")
    return tuple(
        Perplexity(unit=unit, total_bits=bits, num_units=number, context=context)  # type: ignore[arg-type]
        for unit, number in units.items()
    )


def num_characters(corpus: PreparedCorpus) -> int:
    """Number of characters of all words, with one space between neighbouring words of a sentence."""
    lengths = np.array([len(form) for form in corpus.forms.to_list()], dtype=np.int64)
    spaces = np.maximum(np.diff(corpus.word_offsets) - 1, 0).sum()
    return int((lengths * corpus.form_counts().counts).sum() + spaces)


def document_perplexity(lm: LanguageModel, corpus: PreparedCorpus) -> Perplexity:
    """Compute perplexity per word, ends included, of sentences given what comes before them in their document.

    Raises ``InputError`` for a model that does not keep the context of a document.
    """
    reader = require(lm, DocumentContext)

    def scores() -> Iterator[SentenceScore]:
        for start, end in pairwise([*corpus.document_starts.tolist(), len(corpus)]):
            yield from reader.score_document([corpus.sentence(number).words for number in range(start, end)])

    return perplexity(scores(), context="in documents")


def require_context(lm: LanguageModel, config: EvaluationConfig, *, fixed_rows: bool = False) -> None:
    """Raise ``InputError`` if a model cannot read text in a row, or lacks what the settings ask of streams."""
    if isinstance(lm, StreamLM):
        return
    if not has(lm, DocumentContext):
        found = f"{lm.system} reads whole sentences, not streams"
        raise InputError(found, remedy='give stream = "no", sentence by sentence')
    if fixed_rows or config.cache_weight:
        what = "stream_rows" if fixed_rows else "cache_weight"
        found = f"{what}, but {lm.system} reads each document in a row, not a stream"
        raise InputError(found, remedy=f"remove {what}")


def evaluate_stream(lm: LanguageModel, corpus: PreparedCorpus, recipe: Recipe, *, split: str) -> EvaluationResult:
    """Compute the perplexities of a text that is read in a row; ``split`` is its name in the result.

    Raises ``InputError`` for a text that has fewer tokens than the recipe has rows.
    """
    config, sentence_ends = recipe.evaluation, recipe.training.sentence_ends
    if isinstance(lm, StreamLM):
        num_tokens = len(corpus) * sentence_ends + corpus.num_tokens
        if num_tokens < config.stream_rows:
            short = f"a stream of {num_tokens} tokens for {config.stream_rows} rows"
            raise InputError(short, where=split, remedy="lower stream_rows, or give more data")
        perplexities = stream_perplexities(lm, corpus, config, sentence_ends=sentence_ends)
    else:
        perplexities = (document_perplexity(lm, corpus),)
    counts = dict(zip(corpus.forms.to_list(), corpus.form_counts().counts.tolist(), strict=True))
    return EvaluationResult(
        system=lm.system,
        split=split,
        num_sentences=len(corpus),
        num_words=corpus.num_tokens,
        num_skipped=len(corpus.skipped),
        perplexities=perplexities,
        coverage=Coverage.of(lm.vocabulary, counts),
        notes=(GIVEN_TREES,) if has(lm, TreeConditioned) else (),
    )
