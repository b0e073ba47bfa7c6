"""The unsupervised RNNG (Kim et al. 2019b): an RNNG over binary trees that it never sees, and an inference network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import EncodedCorpus, encode_words
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import StreamBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.base import takes_texts
from treelm.models.layers import chart
from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.dropout import evaluating
from treelm.models.layers.softmax import tied
from treelm.models.layers.span_scores import by_length, same_length
from treelm.models.rnng.binary_trees import branches_one_way, gold_trees, with_trees
from treelm.models.rnng.config import UnsupervisedRNNGConfig
from treelm.models.rnng.inference_network import InferenceNetwork, lengths_of, score_function_loss, tree_log_probs
from treelm.models.rnng.network import RNNG
from treelm.models.scores import Loss, Losses
from treelm.models.search.config import SearchMethod
from treelm.models.search.joint import joint_log_probs, joint_losses
from treelm.trees.span_counts import mean_inner_f1
from treelm.trees.tree import Tree, from_spans

LABEL = "X"  # of every constituent
_TREES_AT_ONCE = 512  # of the sentences whose probability is bounded together
_F1, _BOUND = "inference_network_unlabeled_f1", "importance_sampled_perplexity_bound"


class ScoredSentences(NamedTuple):
    """Sentences of one length, by their numbers in a batch, and the scores of their spans."""

    rows: NDArray[np.int64]  # (B,)
    scores: Tensor  # (B, n + 1, n + 1)


class UnsupervisedRNNG(RNNG):
    """An RNNG p(words, tree) with constituents of two children and one label, and an inference network q(tree | words).

    Training raises a bound on log p(words): E_q[log p(words, tree)] + H(q) (Eq. 4). The gradient of the RNNG is that of
    drawn trees; that of the inference network is the score function's, with the mean of the other draws as baseline,
    and the exact gradient of the entropy. Scores, trees and surprisal come from the RNNG alone, by its search.
    """

    system: ClassVar[str] = "urnng"
    search_methods: ClassVar[tuple[SearchMethod, ...]] = ("beam", "particles")  # "released" knows no binary trees
    predicts_labels: ClassVar[bool] = False
    own_metric_names: ClassVar[tuple[str, ...]] = (_F1, _BOUND)

    def __init__(self, config: UnsupervisedRNNGConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator. Its trees have one label, whatever those of the data."""
        super().__init__(config, vocabulary=vocabulary, labels=(LABEL,))
        self.inference = InferenceNetwork(len(vocabulary), config)
        self._kl_weight, self._infers = 1.0, True

    @property
    def config(self) -> UnsupervisedRNNGConfig:
        """The sizes and the objective that both networks were built from."""
        assert isinstance(self._config, UnsupervisedRNNGConfig)
        return self._config

    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Refuse sentences beyond the bounds, and text where trees are needed."""
        if self.config.objective == "trees":
            self.config.check_trees(corpus.prepared)
        else:
            self.config.check_bounds(corpus.prepared)

    def begin_update(self, number: int) -> None:
        """Set the weight of the divergence, and whether the inference network still learns."""
        steps, most = self.config.kl_warmup_steps, self.config.inference_steps
        self._kl_weight = min(1.0, number / steps) if steps else 1.0
        self._infers = most is None or number <= most

    # Losses.

    def losses(self, batch: SentenceBatch) -> Losses:
        """Nats of a batch: in training minus the bound, which is estimated by drawn trees; else of one tree each.

        In training ``action`` and ``word`` are means over draws, and ``entropy`` is H(q). In evaluation they are of the
        best tree of the inference network, which is a bound too and the same every time. With ``objective = "trees"``
        they are of the given trees, and ``tree`` is -log q of these.
        """
        scored = self._scored(batch)
        if self.config.objective == "trees":
            return self._losses_of_trees(batch, scored)
        if self.training:
            return self._losses_of_draws(batch, scored)
        trees = [chart.best_trees(scores.detach(), lengths_of(scores)) for _, scores in scored]
        found = super().losses(self._with_trees(batch, scored, trees))
        return replace(found, terms={**found.terms, "entropy": _summed([_entropy(one) for one in scored], len(batch))})

    def _losses_of_trees(self, batch: SentenceBatch, scored: Sequence[ScoredSentences]) -> Losses:
        ends_word = self.vocabulary.ends_word
        trees = [
            gold_trees(batch, rows, scores.shape[1] - 1, ends_word).to(scores.device, scores.dtype)
            for rows, scores in scored
        ]
        found = super().losses(self._with_trees(batch, scored, trees))
        log_probs = [tree_log_probs(scores, given[None])[0] for (_, scores), given in zip(scored, trees, strict=True)]
        of_trees = _summed([-one for one in log_probs], len(batch))
        return replace(found, terms={**found.terms, "tree": of_trees}, total=found.total + of_trees.sum)

    def _losses_of_draws(self, batch: SentenceBatch, scored: Sequence[ScoredSentences]) -> Losses:
        config, weight = self.config, self._kl_weight
        draws = [chart.samples(scores.detach(), lengths_of(scores), config.num_samples) for _, scores in scored]
        drawn = self._with_trees(batch, scored, draws)
        plan = self._plan(drawn)
        vectors, word_weight = tied(self.word_embedding, plan.given.words)
        outputs = self._outputs(plan, vectors)
        joint = joint_losses(drawn, plan, outputs, self.action_head, word_weight, self.word_bias)
        terms = {
            name: Loss(sum=term.sum / config.num_samples, count=term.count // config.num_samples)
            for name, term in joint.terms.items()
        }
        terms["entropy"] = _summed([_entropy(one) for one in scored], len(batch))
        total = terms["word"].sum + weight * (terms["action"].sum - terms["entropy"].sum)
        if self._infers:
            log_joint = joint_log_probs(
                drawn,
                plan,
                outputs,
                self.action_head,
                self.word_embedding,
                self.word_bias,
                action_weight=weight,
            )
            rewards = torch.split(log_joint, [len(rows) * config.num_samples for rows, _ in scored])
            for (rows, scores), trees, earned in zip(scored, draws, rewards, strict=True):
                gradient_only = score_function_loss(scores, trees, earned.view(-1, len(rows))).double()
                total = total + gradient_only - gradient_only.detach()
        return Losses(terms=terms, total=total, num_words=int(batch.num_words.sum()), num_sentences=len(batch))

    def _scored(self, batch: SentenceBatch) -> list[ScoredSentences]:
        """The inference network's scores of the spans of a batch, without gradient when it rests."""
        ends_word, device = self.vocabulary.ends_word, self.word_bias.device
        found = list(by_length(batch))
        words = plan_to_device([same_length(batch, rows, length, ends_word) for rows, length in found], device)
        with torch.set_grad_enabled(torch.is_grad_enabled() and (self._infers or self.config.objective == "trees")):
            return [ScoredSentences(rows, self.inference(one)) for (rows, _), one in zip(found, words, strict=True)]

    def _with_trees(
        self, batch: SentenceBatch, scored: Sequence[ScoredSentences], trees: Sequence[Tensor]
    ) -> SentenceBatch:
        """The sentences with these trees, one or several draws of each: (B, n + 1, n + 1) or (K, B, n + 1, n + 1)."""
        flat = [of_length.flatten(0, -3) for of_length in trees]
        rows = [np.tile(one.rows, len(own) // len(one.rows)) for one, own in zip(scored, flat, strict=True)]
        return with_trees(batch, rows, flat, self.vocabulary.ends_word)

    # What the inference network says.

    def structure_fault(self, batch: SentenceBatch | StreamBatch) -> str:
        """Trees that branch to one side in every sentence, whatever its words."""
        if not isinstance(batch, SentenceBatch) or self.config.objective == "trees":
            return ""
        with evaluating(self):
            found = [
                branches_one_way(chart.best_trees(scores, lengths_of(scores)))
                for _, scores in self._scored(batch)
                if scores.shape[1] > 3  # of two words there is one tree
            ]
        sides = set(found)
        if len(sides) != 1 or "" in sides:
            return ""
        return f"the inference network finds {sides.pop()}-branching trees alone, whatever the words"

    @takes_texts
    def inferred_trees(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The inference network's trees, which have the most spans expected to be right; it sees whole sentences."""
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        found: dict[int, Tree] = {}
        with evaluating(self):
            for rows, scores in self._scored(batch):
                lengths = lengths_of(scores)
                trees = chart.best_trees(chart.marginals(scores, lengths), lengths)
                for row, tree in zip(rows.tolist(), trees, strict=True):
                    spans = [(i, j, [LABEL]) for i, j in tree.nonzero().tolist() if j - i > 1]
                    found[row] = from_spans(sentences[row], spans or [(0, 1, [LABEL])])
        return [found[row] for row in range(len(sentences))]

    @takes_texts
    def log_prob_bounds(self, sentences: Sequence[Sequence[str]], *, seed: int = 0) -> NDArray[np.float64]:
        """A lower bound on log p(words) of each sentence in nats, its end included, by importance sampling: (B,).

        log of the mean of p(words, tree) / q(tree | words) over ``bound_samples`` trees that are drawn from q, its
        scores divided by ``bound_temperature``. On average it is below log p(words) (Burda et al. 2016), and the nearer
        the more trees are drawn. q sees whole sentences, so no such figure is there for a word.
        """
        config, generator = self.config, torch.Generator(self.word_bias.device).manual_seed(seed)
        found = np.zeros(len(sentences))
        size = max(1, _TREES_AT_ONCE // config.bound_samples)
        order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
        with evaluating(self):
            for start in range(0, len(order), size):
                numbers = np.array(order[start : start + size])
                batch = encode_words([sentences[number] for number in numbers], self.vocabulary, needs_words=True)
                for rows, scores in self._scored(batch):
                    flatter = scores / config.bound_temperature
                    trees = chart.samples(flatter, lengths_of(scores), config.bound_samples, generator)
                    drawn = self._with_trees(batch, [ScoredSentences(rows, flatter)], [trees])
                    log_p = self.tree_log_probs(drawn).view(-1, len(rows))
                    weights = log_p - tree_log_probs(flatter, trees).double()
                    bounds = weights.logsumexp(0) - math.log(config.bound_samples)
                    found[numbers[rows]] = bounds.cpu().numpy()
        return found

    def own_metrics(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """F1 of the inference network's trees, and the perplexity per word, ends included, of ``log_prob_bounds``.

        F1 is the mean of the sentences', unlabelled, over spans of two words or more and less than the sentence. The
        bound is on average above the perplexity of all trees together, which the search's bound is above too.
        """
        words = [sentence.words for sentence in sentences]
        gold = [sentence.tree for sentence in sentences if sentence.tree is not None]
        nats = -float(self.log_prob_bounds(words).sum())
        metrics = {_BOUND: math.exp(nats / (sum(map(len, words)) + len(words)))}
        return {_F1: mean_inner_f1(gold, self.inferred_trees(words)), **metrics} if len(gold) == len(words) else metrics


def _entropy(one: ScoredSentences) -> Tensor:
    """H(q) of each sentence, (B,)."""
    return chart.entropy(one.scores, lengths_of(one.scores))


def _summed(parts: Sequence[Tensor], count: int) -> Loss:
    return Loss(sum=torch.cat(list(parts)).double().sum(), count=count)
