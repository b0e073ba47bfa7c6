"""The unsupervised RNNG (Kim et al. 2019b): an RNNG over binary trees, which are not given, and an inference network.

The plain form is ``tests/models/rnng/plain_unsupervised.py``. Trees of B sentences of one length n are tensors
(B, n + 1, n + 1), 1 at their spans; K draws of them are (K, B, n + 1, n + 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.corpora.arrays import gather_indices, offsets_of
from treelm.corpora.encoding import EncodedCorpus, SentenceBatch, encode_words
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import StreamBatch
from treelm.corpora.tokens import words_of_each
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.capabilities import LatentTrees, OwnMetrics, StepScheduled
from treelm.models.layers import chart
from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.dropout import evaluating
from treelm.models.layers.gold_trees import constituents_of
from treelm.models.layers.softmax import tied
from treelm.models.layers.span_scores import (
    SameLength,
    SpanScorer,
    by_length,
    fenceposts,
    read_both_ways,
    same_length,
    square,
)
from treelm.models.rnng.config import EMBEDDING_DEVIATION, UnsupervisedRNNGConfig
from treelm.models.rnng.network import RNNG
from treelm.models.scores import Loss, Losses
from treelm.models.search.joint import joint_log_probs, joint_losses
from treelm.models.search.options import SearchMethod
from treelm.trees.span_counts import mean_inner_f1
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT
from treelm.trees.tree import Tree, from_spans


class InferenceNetwork(nn.Module):
    """Scores of spans from an LSTM that reads a sentence from both ends (Eq. 5 and 6, Kim et al. 2019b).

    q(tree | words) is proportional to exp of the sum of its spans' scores: a tree CRF (``layers/chart.py``).
    """

    def __init__(self, num_tokens: int, config: UnsupervisedRNNGConfig) -> None:
        """Draw the parameters from torch's global generator."""
        super().__init__()
        self.dropout = config.inference_dropout
        size, hidden = config.inference_embedding_size, config.inference_hidden_size
        self.embedding = nn.Parameter(torch.empty(num_tokens, size).normal_(std=EMBEDDING_DEVIATION))
        self.edges = nn.Parameter(torch.empty(2, size).normal_(std=EMBEDDING_DEVIATION))
        self.lstm = nn.LSTM(size, hidden, config.inference_num_layers, bidirectional=True, batch_first=True)
        self.spans = SpanScorer(2 * hidden, config.inference_span_size, 1, bias=False)

    def forward(self, words: SameLength) -> Tensor:
        """Scores of all spans of B sentences of one length, that of (i, j) at [:, i, j]: (B, n + 1, n + 1)."""
        states = read_both_ways(
            words,
            self.embedding,
            self.edges,
            self.lstm,
            embedding_dropout=0.0,
            dropout=self.dropout,
            training=self.training,
        )
        scores = self.spans(fenceposts(states))[..., 0].to(self.embedding.dtype)
        return square(scores, words.num_words)


def lengths_of(scores: Tensor) -> Tensor:
    """The number of words of B sentences with these scores (B, n + 1, n + 1), as charts need it: (B,)."""
    return torch.full((len(scores),), scores.shape[1] - 1, device=scores.device)


def tree_log_probs(scores: Tensor, trees: Tensor) -> Tensor:
    """log q(tree | words) of trees (K, B, n + 1, n + 1), 1 at their spans, from scores (B, n + 1, n + 1): (K, B)."""
    return (trees * scores).sum((2, 3)) - chart.log_partition(scores, lengths_of(scores))


def score_function_loss(scores: Tensor, trees: Tensor, rewards: Tensor) -> Tensor:
    """A value whose gradient by the scores estimates that of minus the sum of E_q[reward], from drawn trees.

    ``trees`` (K, B, n + 1, n + 1) are K draws for each sentence, ``rewards`` (K, B) what each has earned. From each
    the mean of the other draws of its sentence is subtracted, which leaves the mean of the estimate as it is and makes
    its variance smaller (leave-one-out: Mnih & Rezende 2016).
    """
    num_samples = len(trees)
    above_others = (rewards - rewards.mean(0)) * (num_samples / (num_samples - 1))
    return -(above_others.to(scores.dtype) * tree_log_probs(scores, trees)).sum() / num_samples


IntArray = NDArray[np.int64]


def with_trees(
    batch: SentenceBatch, sentences: Sequence[IntArray], trees: Sequence[Tensor], ends_word: NDArray[np.bool_]
) -> SentenceBatch:
    """A batch of sentences of another batch, with trees of one label; a sentence may occur several times.

    ``trees[g]`` (R, n + 1, n + 1) are 1 at the spans of binary trees over the sentences ``sentences[g]`` (R,), all of n
    words; ``ends_word`` (V,) marks tokens that end words. The only word of a sentence is a constituent.
    """
    chosen = np.concatenate(sentences)
    brackets = [_brackets(of_length) for of_length in trees]
    opens, closes = (np.concatenate([pair[side].ravel() for pair in brackets]) for side in (0, 1))
    num_tokens = batch.token_offsets[chosen + 1] - batch.token_offsets[chosen]
    tokens = batch.tokens[gather_indices(batch.token_offsets[chosen], num_tokens)]
    num_pieces = np.diff(np.flatnonzero(ends_word[tokens]) + 1, prepend=0)
    num_words = batch.num_words[chosen]
    counts = np.stack([opens, num_pieces, closes], 1)  # of a word: NT before it, its tokens, REDUCE behind it
    of_words = offsets_of(counts.sum(1))
    return SentenceBatch(
        tokens=tokens,
        token_offsets=offsets_of(num_tokens),
        num_words=num_words,
        actions=np.repeat(np.tile([FIRST_NT, SHIFT, REDUCE], len(counts)), counts.ravel()),
        action_offsets=of_words[offsets_of(num_words)],
        names=tuple(batch.names[number] for number in chosen.tolist()),
    )


def _brackets(trees: Tensor) -> tuple[IntArray, IntArray]:
    """How many constituents begin with each word, and how many end with it: two (R, n)."""
    spans = trees.detach().cpu().numpy() > 0.5
    num_words = spans.shape[1] - 1
    if num_words > 1:  # words are no constituents
        spans = spans & ~np.eye(num_words + 1, k=1, dtype=np.bool_)
    return spans.sum(2)[:, :-1], spans.sum(1)[:, 1:]


def gold_trees(batch: SentenceBatch, rows: IntArray, num_words: int, ends_word: NDArray[np.bool_]) -> Tensor:
    """The gold trees of the sentences ``rows``, made binary: float32 (B, n + 1, n + 1), 1 at their spans.

    A constituent with more than two children branches right: of all binary trees that have the constituents of the gold
    tree, the chart takes the one with the first of equal splits. Labels and unary chains are lost. Raises
    ``InputError`` for a batch without trees.
    """
    found = constituents_of(*batch.trees(), ends_word[batch.tokens])
    own = np.isin(found.sentence, rows)
    spans = torch.zeros(len(rows), num_words + 1, num_words + 1)
    spans[np.searchsorted(rows, found.sentence[own]), found.start[own], found.end[own]] = 1.0
    return chart.best_trees(spans, torch.full((len(rows),), num_words))


def branches_one_way(trees: Tensor) -> str:
    """The side, ``right`` or ``left``, to which all of these trees (B, n + 1, n + 1) branch all the way, else ""."""
    num_words = trees.shape[1] - 1
    if bool((trees[:, :, num_words].sum(1) == num_words).all()):
        return "right"
    return "left" if bool((trees[:, 0].sum(1) == num_words).all()) else ""


LABEL = "X"  # of every constituent
_TREES_AT_ONCE = 512  # of the sentences whose probability is bounded together


class TreeDistribution(NamedTuple):
    """q(tree | words) of B sentences of one length n, by the scores of their spans."""

    rows: IntArray  # (B,) their numbers in a batch
    scores: Tensor  # (B, n + 1, n + 1)

    @property
    def num_words(self) -> int:
        """Number of words n of each sentence."""
        return self.scores.shape[1] - 1

    @property
    def lengths(self) -> Tensor:
        """Number of words of each sentence, as charts need it: (B,)."""
        return lengths_of(self.scores)

    def best(self) -> Tensor:
        """The most probable tree of each sentence, without gradient: (B, n + 1, n + 1)."""
        return chart.best_trees(self.scores.detach(), self.lengths)

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """``count`` trees of each sentence, drawn independently, without gradient: (K, B, n + 1, n + 1)."""
        return chart.samples(self.scores.detach(), self.lengths, count, generator)


class UnsupervisedRNNG(RNNG, LatentTrees, StepScheduled, OwnMetrics):
    """An RNNG p(words, tree) with constituents of two children and one label, and an inference network q(tree | words).

    Training raises a bound on log p(words): E_q[log p(words, tree)] + H(q) (Eq. 4). The gradient of the RNNG is that of
    drawn trees; that of the inference network is the score function's, with the mean of the other draws as baseline,
    and the exact gradient of the entropy. Scores, trees and surprisal come from the RNNG alone, by its search.
    """

    system: ClassVar[str] = "urnng"
    config: UnsupervisedRNNGConfig
    search_methods: ClassVar[tuple[SearchMethod, ...]] = ("beam", "particles")  # "released" knows no binary trees
    predicts_labels: ClassVar[bool] = False

    def __init__(self, config: UnsupervisedRNNGConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator. Its trees have one label, whatever those of the data."""
        super().__init__(config, vocabulary=vocabulary, labels=(LABEL,))
        self.inference = InferenceNetwork(len(vocabulary), config)
        self._kl_weight, self._infers = 1.0, True

    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Raise ``InputError`` for sentences beyond the bounds, and for text without trees where trees are needed."""
        if self.config.objective == "trees":
            self.config.check_trees(corpus)
        else:
            self.config.check_bounds(corpus)

    def plan_ahead(self, batch: SentenceBatch | StreamBatch) -> None:
        """Plan nothing: the trees of the next batch are not drawn yet."""

    def before_step(self, number: int) -> None:
        """Set the weight of the divergence, and whether the inference network is still trained."""
        steps, most = self.config.kl_warmup_steps, self.config.inference_steps
        self._kl_weight = min(1.0, number / steps) if steps else 1.0
        self._infers = most is None or number <= most

    # Losses.

    def losses(self, batch: SentenceBatch) -> Losses:
        """Nats of a batch. In training the total is minus the bound (Eq. 4), estimated from trees that are drawn.

        In training the terms ``action`` and ``word`` are means over draws, and ``entropy`` is H(q). In evaluation they
        are those of the best tree of the inference network, which gives a bound too, without randomness. With
        ``objective = "trees"`` they are those of the given trees, and the term ``tree`` is -log q of these.
        """
        scored = self._scored(batch)
        if self.config.objective == "unsupervised" and self.training:
            return self._losses_of_draws(batch, scored)
        if self.config.objective == "unsupervised":
            found = super().losses(self._with_trees(batch, scored, [one.best() for one in scored]))
            return replace(found, terms={**found.terms, "entropy": _entropy(scored, batch)})
        ends_word = self.vocabulary.ends_word
        trees = [gold_trees(batch, one.rows, one.num_words, ends_word).to(one.scores) for one in scored]
        found = super().losses(self._with_trees(batch, scored, trees))
        log_probs = [tree_log_probs(one.scores, given[None])[0] for one, given in zip(scored, trees, strict=True)]
        of_trees = Loss(sum=-torch.cat(log_probs).double().sum(), count=len(batch))
        return replace(found, terms={**found.terms, "tree": of_trees}, total=found.total + of_trees.sum)

    def _losses_of_draws(self, batch: SentenceBatch, scored: Sequence[TreeDistribution]) -> Losses:
        config, weight = self.config, self._kl_weight
        draws = [one.draw(config.num_samples) for one in scored]
        drawn = self._with_trees(batch, scored, draws)
        plan = self._plan(drawn)
        vectors, word_weight = tied(self.word_embedding, plan.given.words)
        outputs = self._outputs(plan, vectors)
        joint = joint_losses(drawn, plan, outputs, self.action_head, word_weight, self.word_bias)
        terms = {
            name: Loss(sum=term.sum / config.num_samples, count=term.count // config.num_samples)
            for name, term in joint.terms.items()
        }
        terms["entropy"] = _entropy(scored, batch)
        total = terms["word"].sum + weight * (terms["action"].sum - terms["entropy"].sum)
        if self._infers:
            weights = self.action_head, self.word_embedding, self.word_bias
            log_joint = joint_log_probs(drawn, plan, outputs, *weights, action_weight=weight)
            rewards = torch.split(log_joint, [len(rows) * config.num_samples for rows, _ in scored])
            for (rows, scores), trees, earned in zip(scored, draws, rewards, strict=True):
                gradient_only = score_function_loss(scores, trees, earned.view(-1, len(rows))).double()
                total = total + gradient_only - gradient_only.detach()
        return Losses.of(batch, terms, total)

    def _scored(self, batch: SentenceBatch) -> list[TreeDistribution]:
        """q(tree | words) of the sentences of a batch, by length; without gradient if the network is not trained."""
        ends_word, device = self.vocabulary.ends_word, self.word_bias.device
        found = list(by_length(batch))
        words = plan_to_device([same_length(batch, rows, length, ends_word) for rows, length in found], device)
        with torch.set_grad_enabled(torch.is_grad_enabled() and (self._infers or self.config.objective == "trees")):
            return [TreeDistribution(rows, self.inference(one)) for (rows, _), one in zip(found, words, strict=True)]

    def _with_trees(
        self, batch: SentenceBatch, scored: Sequence[TreeDistribution], trees: Sequence[Tensor]
    ) -> SentenceBatch:
        """A batch of the sentences with these trees, (B, n + 1, n + 1), or with K draws of each."""
        flat = [of_length.flatten(0, -3) for of_length in trees]
        rows = [np.tile(one.rows, len(own) // len(one.rows)) for one, own in zip(scored, flat, strict=True)]
        return with_trees(batch, rows, flat, self.vocabulary.ends_word)

    # What the inference network says.

    def diagnose_latent_trees(self, batch: SentenceBatch | StreamBatch) -> str:
        """A warning if the inference network's trees branch to one side in every sentence, else ""."""
        if not isinstance(batch, SentenceBatch) or self.config.objective == "trees":
            return ""
        with evaluating(self):
            longer = [one for one in self._scored(batch) if one.num_words > 2]  # of two words there is one tree
            sides = {branches_one_way(one.best()) for one in longer}
        if len(sides) != 1 or "" in sides:
            return ""
        return f"the inference network finds {sides.pop()}-branching trees alone, whatever the words"

    def inferred_trees(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The inference network's trees of minimum Bayes risk; it sees whole sentences."""
        sentences = words_of_each(sentences)
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        found: dict[int, Tree] = {}
        with evaluating(self):
            for one in self._scored(batch):
                trees = chart.best_trees(chart.marginals(one.scores, one.lengths), one.lengths)
                for row, tree in zip(one.rows.tolist(), trees, strict=True):
                    spans = [(i, j, [LABEL]) for i, j in tree.nonzero().tolist() if j - i > 1]
                    found[row] = from_spans(sentences[row], spans or [(0, 1, [LABEL])])
        return [found[row] for row in range(len(sentences))]

    def log_prob_bounds(self, sentences: Sequence[Sequence[str]], *, seed: int = 0) -> NDArray[np.float64]:
        """A lower bound on log p(words) of each sentence in nats, its end included, by importance sampling: (B,).

        It is the log of the mean of p(words, tree) / q(tree | words) over ``bound_samples`` trees drawn from q, whose
        scores are divided by ``bound_temperature``. Its expected value is below log p(words), and closer to it with
        more draws (Burda et al. 2016). Since q sees whole sentences, there is no such bound for single words.
        """
        config, generator = self.config, torch.Generator(self.word_bias.device).manual_seed(seed)
        sentences = words_of_each(sentences)
        found = np.zeros(len(sentences))
        size = max(1, _TREES_AT_ONCE // config.bound_samples)
        order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
        with evaluating(self):
            for start in range(0, len(order), size):
                numbers = np.array(order[start : start + size])
                batch = encode_words([sentences[number] for number in numbers], self.vocabulary, needs_words=True)
                for one in self._scored(batch):
                    flatter = one._replace(scores=one.scores / config.bound_temperature)
                    trees = flatter.draw(config.bound_samples, generator)
                    log_p = self.tree_log_probs(self._with_trees(batch, [flatter], [trees])).view(-1, len(one.rows))
                    weights = log_p - tree_log_probs(flatter.scores, trees).double()
                    bounds = weights.logsumexp(0) - math.log(config.bound_samples)
                    found[numbers[one.rows]] = bounds.cpu().numpy()
        return found

    def own_metrics(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """The perplexity per word, ends included, by ``log_prob_bounds``, and the F1 of the inference network's trees.

        The perplexity is an upper bound on average, as that of the search is an upper bound. F1 is unlabelled, the mean
        over sentences, of spans of two words or more and shorter than the sentence.
        """
        words = [sentence.words for sentence in sentences]
        gold = [sentence.tree for sentence in sentences if sentence.tree is not None]
        nats = -float(self.log_prob_bounds(words).sum())
        found = {"importance_sampled_perplexity_bound": math.exp(nats / (sum(map(len, words)) + len(words)))}
        if len(gold) == len(words):
            found["inference_network_unlabeled_f1"] = mean_inner_f1(gold, self.inferred_trees(words))
        return found


def _entropy(scored: Sequence[TreeDistribution], batch: SentenceBatch) -> Loss:
    """H(q), summed over the sentences."""
    parts = [chart.entropy(one.scores, one.lengths) for one in scored]
    return Loss(sum=torch.cat(parts).double().sum(), count=len(batch))
