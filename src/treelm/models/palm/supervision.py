"""Gold trees that teach the attention (PaLM-S; Peng, Schwartz & Smith 2019), or that set it.

Trees come as the constituents that end before each input. Shapes: m longest span, T steps, B rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import EncodedCorpus, encode_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import StreamBatch, non_trivial_spans
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.palm.config import WithoutGold
from treelm.models.scores import Loss

_ROWS = 64  # sentences that are read side by side
_LOOKED_AT = 1000  # sentences that are searched for constituents together
SPAN_METRICS = ("span_cross_entropy", "span_cross_entropy_uniform", "span_cross_entropy_least")
"""Names of what ``span_fit`` gives."""


def encode_with_trees(sentences: Sequence[Sentence], vocabulary: Vocabulary) -> Iterator[SentenceBatch]:
    """Batches in the order of the sentences. Raises ``InputError`` for a sentence without a tree."""
    for start in range(0, len(sentences), _ROWS):
        chosen = sentences[start : start + _ROWS]
        labels: set[str] = set()
        for one in chosen:
            if one.tree is None:
                raise InputError("a sentence without a tree", where=one.where, remedy="give brackets or CoNLL-U")
            labels.update(constituent.label for constituent in one.tree.constituents())
        yield encode_sentences(chosen, vocabulary, sorted(labels))


def require_trees(corpus: EncodedCorpus) -> None:
    """Raise ``InputError`` for text."""
    if not corpus.prepared.has_trees:
        where = corpus.name(0) if len(corpus) else None
        raise InputError("a sentence without a tree", where=where, remedy="give brackets or CoNLL-U")


def require_constituents(corpus: EncodedCorpus, max_span: int) -> None:
    """Raise ``InputError`` unless some constituent of a corpus with trees has at most ``max_span`` tokens."""
    for start in range(0, len(corpus), _LOOKED_AT):
        batch = corpus.batch(range(start, min(start + _LOOKED_AT, len(corpus))))
        spans = non_trivial_spans(batch, corpus.vocabulary.ends_word)
        if (spans[:, 2] - spans[:, 1] <= max_span).any():
            return
    found = f"no constituent of two words or more, and {max_span} tokens or less, that could teach the attention"
    where = corpus.name(0) if len(corpus) else None
    raise InputError(found, where=where, remedy="give trees with constituents, raise max_span, or set span_weight = 0")


def before_inputs(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(n, 3): step, row and number of tokens of every non-trivial constituent that ends just before this input.

    The first input of a sentence is the end token, so what ends with token s ends before the input s + 2.
    """
    spans = non_trivial_spans(batch, ends_word)
    return np.stack([spans[:, 2] + 1, spans[:, 0], spans[:, 2] - spans[:, 1]], 1)


def constituents_of(batch: StreamBatch) -> NDArray[np.int64]:
    """(n, 3): as ``before_inputs``, of a segment of a stream. Raises ``InputError`` if its text has no trees."""
    if batch.constituents is None:
        raise InputError("a stream without trees", where=batch.names[0], remedy="give brackets or CoNLL-U")
    return batch.constituents


def gold_spans(constituents: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(T, B, m): whether the span of 1 to m tokens that ends before a step is a constituent.

    ``constituents`` (n, 3) are step, row and length, as in ``StreamBatch``; longer ones and later steps are left out.
    """
    step, row, length = constituents.T
    kept = (length <= shape[2]) & (step < shape[0])
    gold = torch.zeros(shape, dtype=torch.bool, device=constituents.device)
    gold[step[kept], row[kept], length[kept] - 1] = True
    return gold


def _in_reach(gold: Tensor, available: Tensor) -> Tensor:
    lengths = torch.arange(1, gold.shape[2] + 1, device=gold.device)
    return gold & (lengths <= available[..., None])


def given_weights(gold: Tensor, available: Tensor, dtype: torch.dtype) -> Tensor:
    """Equal weights (T, B, m) for the constituents in reach; all 0 where there is none."""
    inside = _in_reach(gold, available).to(dtype)
    return inside / inside.sum(2, keepdim=True).clamp(min=1)


def span_cross_entropy(
    log_weights: Tensor,
    available: Tensor,
    gold: Tensor,
    mask: Tensor | None,
    *,
    without_gold: WithoutGold = "none",
) -> Loss:
    """Cross-entropy of the attention (T, B, m) to the gold spans in reach, each step's weighted equally.

    Steps without one carry no loss, or are taught the shortest span. Steps beyond ``mask`` (T, B) are left out. The
    count is that of steps with a loss.
    """
    targets = _in_reach(gold, available)
    if without_gold == "shortest":
        targets[..., 0] |= ~targets.any(2) & (available > 0)
    if mask is not None:
        targets &= mask[..., None]
    shares = targets.double() / targets.sum(2, keepdim=True).clamp(min=1)
    wanted = log_weights.masked_fill(~targets, 0).double()
    return Loss(sum=-(shares * wanted).sum(), count=int(targets.any(2).sum()))


def span_fit(structure: Mapping[str, Tensor], gold: Tensor, mask: Tensor | None) -> tuple[Loss, Loss, Loss]:
    """Cross-entropies of three attentions to the gold spans in reach, in nats, over the places where one ends.

    The attention itself, weights spread evenly over the spans in reach, and the least that any could have: at some
    places several gold spans end. In the order of ``SPAN_METRICS``.
    """
    weights, available = structure["span_weights"], structure["available"]
    uniform = (1 / available.clamp(min=1))[..., None].expand_as(weights)
    least = given_weights(gold, available, weights.dtype)
    attention, evenly, lowest = (
        span_cross_entropy(each.log(), available, gold, mask) for each in (weights, uniform, least)
    )
    return attention, evenly, lowest
