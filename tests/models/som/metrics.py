"""SOM's own metrics: its parsers against the oracle, binarised bracketing, depth (Shen et al. 2021, Tables 1, 2)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from treelm.corpora.batches import SentenceBatch
from treelm.models.layers.binary_structure import ANY_DEPTH, decoded_spans, static_labels
from treelm.models.som.cells import Accuracy, accuracies
from treelm.models.som.memory import MemoryReading
from treelm.models.som.network import SOM
from treelm.trees.span_counts import SpanCounts

IntArray = NDArray[np.int64]


@dataclass(kw_only=True)
class SOMMetrics:
    """Sums over sentences, and the metrics that follow from them."""

    num_sentences: int = 0
    num_tokens: int = 0
    predicts_words: bool = True  # a bare parser has no perplexity: its output layer was never trained
    nll_nats: float = 0.0  # of tokens and ends of sentences
    attachment: Accuracy = field(default_factory=Accuracy)  # p, one word of look-ahead
    prediction: Accuracy = field(default_factory=Accuracy)  # p', none
    matched: int = 0
    gold: int = 0
    predicted: int = 0
    num_too_deep: int = 0  # tokens whose gold slot lies below the memory
    depth_sum: int = 0  # slots that each gold tree needs
    depth_max: int = 0

    @property
    def perplexity(self) -> float:
        """Perplexity per token, ends of sentences included."""
        return math.exp(self.nll_nats / (self.num_tokens + self.num_sentences))

    @property
    def binarised_f1(self) -> float:
        """Corpus F1 against left-binarised gold trees, roots and punctuation included, 0..100 (Table 2)."""
        return SpanCounts(matched=self.matched, gold=self.gold, predicted=self.predicted).f1

    def to_json(self) -> dict[str, float]:
        """The metrics by name."""
        return {
            "sentences": self.num_sentences,
            "symbols": self.num_tokens,
            **({"perplexity_with_end": self.perplexity} if self.predicts_words else {}),
            **accuracies(self.attachment, self.prediction),
            "binarised_unlabeled_f1": self.binarised_f1,
            "gold_depth_mean": self.depth_sum / self.num_sentences if self.num_sentences else math.nan,
            "gold_depth_max": self.depth_max,
            "symbols_too_deep": self.num_too_deep,
        }


@torch.no_grad()
def evaluate_som(som: SOM, batches: Iterable[SentenceBatch], *, gold_trees: bool = False) -> SOMMetrics:
    """Evaluate a SOM on sentences with trees. With ``gold_trees`` it reads along the gold tree, which looks ahead.

    Accuracy is against the dynamic oracle on the model's own greedy history.
    """
    metrics = SOMMetrics(predicts_words=som.predicts_words)
    was_training = som.training
    som.eval()
    try:
        for batch in batches:
            reading = som.read(batch, gold=gold_trees)
            _add(metrics, som, batch, reading)
    finally:
        som.train(was_training)
    return metrics


def _add(metrics: SOMMetrics, som: SOM, batch: SentenceBatch, reading: MemoryReading) -> None:
    metrics.num_sentences += len(batch)
    metrics.num_tokens += len(batch.tokens)
    if metrics.predicts_words:
        metrics.nll_nats -= float(som.token_log_probs(batch, reading).sum())
    metrics.attachment.add(reading.log_p, reading.labels)
    if reading.log_p_prediction is not None:
        metrics.prediction.add(reading.log_p_prediction, reading.next_labels)
    siblings = som.gold_siblings(batch)
    gold = static_labels(siblings, ANY_DEPTH)[0]
    lengths = np.diff(batch.token_offsets)
    for row, sentence in enumerate(reading.layout.sentences):
        wanted = gold[sentence, : lengths[sentence] + 1]
        _add_spans(metrics, wanted.tolist(), reading.graph.decisions[reading.layout.of_row(row)].tolist(), som)
        depth = ANY_DEPTH - int(wanted.min())
        metrics.depth_sum += depth
        metrics.depth_max = max(metrics.depth_max, depth)
        metrics.num_too_deep += int((wanted < ANY_DEPTH - som.config.num_slots).sum())


def _add_spans(metrics: SOMMetrics, gold: list[int], decisions: list[int], som: SOM) -> None:
    wanted = set(decoded_spans(gold, ANY_DEPTH))
    found = set(decoded_spans(decisions, som.config.num_slots))
    metrics.matched += len(wanted & found)
    metrics.gold += len(wanted)
    metrics.predicted += len(found)
