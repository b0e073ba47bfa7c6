"""The chart parser (after Stern et al. 2017 and Kitaev & Klein 2018): its parameters, losses, trees and confidence.

The plain form is ``tests/models/chart/plain.py``. Shapes: B sentences of one length n, spans in the order of
``layers/span_scores.spans_of``, H units of the LSTM in one direction. A chain is a label, or several of a unary chain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.encoding import SentenceBatch, encode_words
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.base import LanguageModel, Loss, Losses
from treelm.models.capabilities import ConfidentParser, LearnsTags
from treelm.models.chart.config import ChartConfig
from treelm.models.chart.plan import GoldSpans, chain_numbers, gold_spans, label_table
from treelm.models.layers import chart
from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.dropout import evaluating
from treelm.models.layers.gold_trees import constituents_of
from treelm.models.layers.precision import one_thread
from treelm.models.layers.span_scores import (
    SameLength,
    SpanScorer,
    by_length,
    fenceposts,
    flat,
    read_both_ways,
    same_length,
    spans_of,
    square,
)
from treelm.models.scores import Confidence, ParsedSentence
from treelm.trees.tree import Tree, from_spans

IntArray = NDArray[np.int64]
UNLABELLED = "X"  # the label of a parser that was trained without labels
_MOST_SPANS = 40_000  # spans of the sentences that are parsed together


class ChartParser(LanguageModel, ConfidentParser, LearnsTags):
    """A parser that scores every labelled span of a sentence, and gives trees of any arity exact probabilities.

    A derivation is a binary tree with a label, or none, on every span; a tree is the set of all derivations whose
    labelled spans are its constituents. p(tree) is proportional to the sum of exp(score) over these, so log p(tree) is
    a difference of two log Z (``layers/chart.py``). An LSTM reads the sentence from both ends, so whatever the parser
    says of a word depends on the words after it.
    """

    system: ClassVar[str] = "chart"
    config: ChartConfig
    preferred_batch_size: ClassVar[int] = 4096

    def __init__(self, config: ChartConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        self.unavailable[LanguageModel] = "take another system"  # it sees the whole sentence before it says anything
        alone = [(label,) for label in self.labels] or [(UNLABELLED,)]
        self._chains = [*alone, *(tuple(chain.split()) for chain in config.chains)]
        numbers = {label: number for number, label in enumerate(self.labels)}
        self._chain_numbers = {
            tuple(numbers.get(label, -1) for label in chain): number for number, chain in enumerate(self._chains)
        }
        size, hidden = config.embedding_size, config.hidden_size
        self.embedding = nn.Parameter(torch.empty(len(vocabulary), size).normal_(std=0.3))
        self.edges = nn.Parameter(torch.empty(2, size).normal_(std=0.3))
        self.lstm = nn.LSTM(
            size,
            hidden,
            num_layers=config.num_layers,
            bidirectional=True,
            batch_first=True,
            dropout=config.dropout if config.num_layers > 1 else 0.0,
        )
        self.spans = SpanScorer(2 * hidden, config.span_size, len(self._chains))
        self.tagger = nn.Linear(2 * hidden, len(config.tags)) if config.tags else None
        self.register_buffer("temperature", torch.ones(()))
        self.temperature: Tensor  # scores are divided by it, except in training: see ``calibrate``

    @property
    def tags(self) -> tuple[str, ...]:
        """The part-of-speech tags that it predicts."""
        return self.config.tags

    # The network.

    def encode(self, words: SameLength) -> Tensor:
        """Sentences of one length -> states (B, n + 2, 2H) of their words and of the edges before and after."""
        config = self.config
        return read_both_ways(
            words,
            self.embedding,
            self.edges,
            self.lstm,
            embedding_dropout=config.embedding_dropout,
            dropout=config.dropout,
            training=self.training,
        )

    def scores(self, states: Tensor) -> Tensor:
        """States (B, n + 2, 2H) -> scores of labelled spans (B, spans, chains); "no constituent" has the score 0."""
        found: Tensor = self.spans(fenceposts(states))
        return found

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sums of -log p in nats: ``tree`` of the gold trees and, if the parser has tags, ``tag`` of the gold tags.

        Raises ``InputError`` for a batch without trees, or with a sentence without words.
        """
        trees, tags = self._losses(batch, temperature=1.0)
        terms = {"tree": Loss(sum=trees, count=len(batch))}
        if tags is None:
            return Losses.of(batch, terms)
        return Losses.of(batch, {**terms, "tag": tags}, trees + self.config.tag_weight * tags.sum)

    def _losses(self, batch: SentenceBatch, *, temperature: float) -> tuple[Tensor, Loss | None]:
        actions, offsets = batch.trees()
        found = constituents_of(actions, offsets, self.vocabulary.ends_word[batch.tokens])
        numbers = chain_numbers(found, actions, self._chain_numbers, np.arange(max(1, len(self.labels))))
        lengths = list(by_length(batch))
        groups = [same_length(batch, rows, num_words, self.vocabulary.ends_word) for rows, num_words in lengths]
        gold = [gold_spans(label_table(found, numbers, rows, num_words)) for rows, num_words in lengths]
        num_tags = 0 if batch.tags is None else int((batch.tags >= 0).sum())
        trees, tags = self.embedding.new_zeros((2,), dtype=torch.float64)
        for words, spans in plan_to_device(list(zip(groups, gold, strict=True)), self.embedding.device):
            states = self.encode(words)
            trees = trees + tree_losses(self.scores(states) / temperature, spans, words.num_words).double().sum()
            if self.tagger is not None and words.tags is not None:
                logits = self.tagger(states[:, 1:-1].flatten(0, 1))
                own = functional.cross_entropy(logits, words.tags, ignore_index=-1, reduction="sum")
                tags = tags + own.double()
        return trees, None if self.tagger is None else Loss(sum=tags, count=num_tags)

    # Parsing.

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The tree of minimum Bayes risk of each sentence (see ``decode``)."""
        return [found.tree for found in self._annotate(sentences)]

    def _annotate(self, sentences: Sequence[Sequence[str]]) -> list[ParsedSentence]:
        if not sentences:
            return []
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        parsed: list[ParsedSentence | None] = [None] * len(sentences)
        with evaluating(self), one_thread():
            for rows, num_words in by_length(batch):
                most = max(1, _MOST_SPANS // (num_words * (num_words + 1) // 2))
                for start in range(0, len(rows), most):
                    some = rows[start : start + most]
                    found = self._parse_length(batch, some, num_words, [sentences[row] for row in some])
                    for row, one in zip(some.tolist(), found, strict=True):
                        parsed[row] = one
        return [one for one in parsed if one is not None]

    def _parse_length(
        self, batch: SentenceBatch, rows: IntArray, num_words: int, sentences: Sequence[Sequence[str]]
    ) -> Iterator[ParsedSentence]:
        """Parse sentences of one length."""
        read = same_length(batch, rows, num_words, self.vocabulary.ends_word)
        states = self.encode(plan_to_device(read, self.embedding.device))
        found = span_probabilities(self.scores(states) / self.temperature, num_words)
        chosen = decode(found, num_words, self.config.threshold)
        spans = spans_of(num_words, chosen.device)
        sentence, place = chosen.nonzero(as_tuple=True)
        sure = found.best[chosen]
        labels = [self._chains[number] for number in found.label[chosen].tolist()]
        constituents = list(zip(*(side[place].tolist() for side in spans), labels, strict=True))
        tags = None if self.tagger is None else self.tagger(states[:, 1:-1]).argmax(2).tolist()
        stops = np.cumsum(chosen.sum(1).cpu().numpy()).tolist()
        right = torch.zeros_like(found.expected).index_add_(0, sentence, sure).tolist()
        begin = 0
        for number, (words, stop) in enumerate(zip(sentences, stops, strict=True)):
            gold = float(found.expected[number])
            yield ParsedSentence(
                tree=from_spans(words, constituents[begin:stop]),
                tags=None if tags is None else tuple(self.tags[tag] for tag in tags[number]),
                confidence=Confidence(
                    mean=right[number] / (stop - begin), expected_f1=2 * right[number] / (stop - begin + gold)
                ),
            )
            begin = stop

    @torch.no_grad()
    def calibrate(self, batches: Sequence[SentenceBatch]) -> str:
        """Set the temperature with which held-out trees are most probable (Guo et al. 2017); returns a summary.

        It is fitted to every other batch and checked on the rest. It changes probabilities, but hardly any tree.
        """
        self.eval()
        self.temperature.fill_(1.0)
        fitted, held = batches[::2], batches[1::2] or batches

        def loss(some: Sequence[SentenceBatch], log_temperature: float) -> float:
            return sum(float(self._losses(one, temperature=math.exp(log_temperature))[0]) for one in some)

        low, high = math.log(0.5), math.log(4.0)
        for _ in range(_STEPS):  # golden section: the loss has one minimum
            left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
            if loss(fitted, left) < loss(fitted, right):
                high = right
            else:
                low = left
        middle = (low + high) / 2
        before, after = loss(held, 0.0), loss(held, middle)
        self.temperature.fill_(math.exp(middle))
        count = sum(map(len, held))
        return f"temperature {math.exp(middle):.3f}: {before / count:.3f} -> {after / count:.3f} nats a held-out tree"

    def _without_words(self, *_: Any, **__: Any) -> Any:
        """Raise ``InputError``: a model that reads the whole sentence gives no probabilities of prefixes."""
        self.require_words()

    _score = _start = _extend = _next_word_log_probs = _without_words


def tree_losses(scores: Tensor, gold: GoldSpans, num_words: int) -> Tensor:
    """-log p(gold tree) in nats (B,): log Z, minus log Z of the derivations of the gold tree alone.

    ``scores`` are (B, spans, chains).
    """
    of_gold = scores.gather(2, gold.chains.clamp_min(0)[..., None])[..., 0]
    restricted = torch.where(gold.chains >= 0, of_gold, 0.0).masked_fill(~gold.allowed, chart.NEG)
    potentials = square(torch.cat([log_potentials(scores), restricted]), num_words)
    lengths = torch.full((len(potentials),), num_words, device=scores.device)
    total, of_trees = chart.log_partition(potentials, lengths).chunk(2)
    return total - of_trees


_STEPS, _GOLDEN = 14, (math.sqrt(5) - 1) / 2


class SpanProbabilities(NamedTuple):
    """p(labelled constituent in tree), of all spans."""

    best: Tensor  # (B, spans) the probability of the best chain of each span
    label: Tensor  # (B, spans) this chain
    expected: Tensor  # (B,) the expected number of constituents of the tree


def log_potentials(scores: Tensor) -> Tensor:
    """a(i, j) = log sum over labels l of exp(s(i, j, l)), "no constituent" included: (B, spans).

    ``scores`` (B, spans, labels) are those of constituents; "no constituent" has the score 0. The whole sentence is
    always a constituent.
    """
    constituent = scores.logsumexp(-1)
    either = torch.logaddexp(constituent, torch.zeros_like(constituent))
    return torch.cat([constituent[:, :1], either[:, 1:]], 1)  # the first span is the sentence


def span_probabilities(scores: Tensor, num_words: int) -> SpanProbabilities:
    """p(i, j, l) = p(span (i, j) in the binary derivation) exp(s(i, j, l) - a(i, j))."""
    potentials = log_potentials(scores)
    lengths = torch.full((len(scores),), num_words, device=scores.device)
    in_tree = flat(chart.marginals(square(potentials, num_words), lengths))
    top, label = scores.max(-1)
    constituent = in_tree * (scores.logsumexp(-1) - potentials).exp()
    return SpanProbabilities(in_tree * (top - potentials).exp(), label, constituent.sum(1))


def decode(found: SpanProbabilities, num_words: int, threshold: float) -> Tensor:
    """Mark the constituents of the tree of minimum Bayes risk of each sentence: bool (B, spans).

    The tree maximises the sum of max(0, p - threshold) over its spans. With the threshold 0.5 its constituents are all
    spans with p > 0.5, which never cross. The whole sentence is always a constituent.
    """
    gain = (found.best - threshold).clamp_min(0)
    lengths = torch.full((len(gain),), num_words, device=gain.device)
    chosen = (flat(chart.best_trees(square(gain, num_words), lengths)) > 0) & (gain > 0)
    chosen[:, 0] = True
    return chosen
