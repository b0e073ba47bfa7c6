"""The language model with pushdown layers (Murty et al. 2023): its parameters and its losses.

``plan.py`` shows what attachments, the stack and the tape are. The plain form is ``tests/models/pushdown/plain.py``.
Shapes: B sentences, n positions of a batch without padding, T positions of the longest sentence, W tokens, D units, V
tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.encoding import SentenceBatch, encode_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.base import Losses
from treelm.models.capabilities import Attention
from treelm.models.layers.attention import AttentionMask, AttentionStack, start_normal, weights_of_layers
from treelm.models.layers.binary_structure import word_tree
from treelm.models.layers.dropout import dropout, evaluating
from treelm.models.layers.softmax import summed_cross_entropy, target_log_probs, tied
from treelm.models.pushdown.config import PushdownConfig
from treelm.models.pushdown.machine import AttachmentWeights, SearchWeights, TapeMachine
from treelm.models.pushdown.on_device import DeviceTape
from treelm.models.pushdown.plan import BatchPlan, plan_batch
from treelm.models.scores import Loss
from treelm.models.search.attention import BlockWeights, Product, frozen
from treelm.models.search.batch_invariant import Affine, widened
from treelm.models.search.model import GenerativeParser
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.sentences import Searchable
from treelm.models.search.word_head import TiedSoftmax
from treelm.models.structures import BOUNDARY, StackTape
from treelm.trees.transitions import SHIFT
from treelm.trees.tree import Tree


class AttachmentHead(nn.Module):
    """Which of the constituents on the stack a word closes, given the word (Section 3.2 of the paper).

        g_t = W_2 gelu(W_1 [h_{t-1}; e(w_t)] + b_1) + b_2               the word in its context
        logit(t attaches to j) = g_t . (K h_j + d[closed_j] + r[t - j]) / sqrt(D)      last tokens j of constituents
        logit(to itself)       = g_t . (o_t + r[0]) / sqrt(D),    o_t = W_4 gelu(W_3 [g_t; e(w_t)] + b_3) + b_4

    d is a table of depths, r one of distances. The depth of j on the tape is the number of constituents that j has
    closed: as long as j is the end of a constituent on the stack, all constituents that hold j end in j.
    """

    def __init__(self, size: int, *, num_depths: int, num_distances: int) -> None:
        """Draw from torch's global generator."""
        super().__init__()
        self.scale = size**-0.5
        self.query_in, self.query_out = nn.Linear(2 * size, size), nn.Linear(size, size)
        self.own_in, self.own_out = nn.Linear(2 * size, size), nn.Linear(size, size)
        self.key = nn.Linear(size, size, bias=False)
        self.depths = nn.Parameter(torch.empty(num_depths, size))
        self.distances = nn.Parameter(torch.empty(num_distances, size))
        for linear in (self.query_in, self.query_out, self.own_in, self.own_out, self.key):
            start_normal(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        start_normal(self.depths)
        start_normal(self.distances)

    def queries(self, states: Tensor, vectors: Tensor) -> Tensor:
        """g (n, D) of words with these vectors (n, D), after hidden states (n, D) of the positions before them."""
        queries: Tensor = self.query_out(functional.gelu(self.query_in(torch.cat([states, vectors], 1))))
        return queries

    def own_keys(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """o (n, D) of words with these vectors (n, D), from their g (n, D)."""
        keys: Tensor = self.own_out(functional.gelu(self.own_in(torch.cat([queries, vectors], 1))))
        return keys

    def keys(self, states: Tensor, closed: Tensor) -> Tensor:
        """K h + d (n, D) of the constituents that end in positions with these hidden states and numbers closed (n,)."""
        keys: Tensor = self.key(states) + self.depths[closed.clamp(max=len(self.depths) - 1)]
        return keys


class Pushdown(GenerativeParser, Attention):
    """A joint model of a sentence and its binary tree: a word, what it attaches to, the next word (Murty et al. 2023).

    A position attends to all earlier ones, and knows the depth of each on the tape. Its hidden state predicts whether
    the sentence ends, when the stack is one constituent, and the next token, by a softmax over the tied embeddings.
    The token then attaches to a constituent on the stack, or to itself.
    """

    system: ClassVar[str] = "pushdown"
    config: PushdownConfig
    predicts_labels = False

    def __init__(self, config: PushdownConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator, as GPT-2 starts."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        size, num_layers = config.size, config.num_layers
        kinds = config.max_distance + 1, config.max_depth + 1
        self.word_embedding = nn.Parameter(torch.empty(len(vocabulary), size))  # (V, D), tied
        self.word_bias = nn.Parameter(torch.zeros(len(vocabulary)))
        self.start_embedding = nn.Parameter(torch.empty(size))
        self.blocks = AttentionStack(size, config.num_heads, num_layers=num_layers, kinds=kinds, dropout=config.dropout)
        self.norm = nn.LayerNorm(size)
        self.attachment = AttachmentHead(size, num_distances=kinds[0], num_depths=kinds[1])
        self.finish_head = nn.Linear(size, 1)
        nn.init.zeros_(self.finish_head.bias)
        for matrix in (self.word_embedding, self.start_embedding, self.finish_head.weight):
            start_normal(matrix)

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sums of -log p(attachment), -log p(end or not) and -log p(word), nats, of the trees in the batch.

        Raises ``InputError`` for a tree that the model cannot build.
        """
        plan = self._plan(batch)
        word_vectors, word_weight = tied(self.word_embedding, plan.words)
        outputs, vectors = self._outputs(plan, word_vectors)
        outputs = outputs.to(word_weight.dtype)
        attachment = -self._attachment_log_probs(plan, outputs, vectors).sum(dtype=torch.float64)
        finish = -self._finish_log_probs(plan, outputs).sum(dtype=torch.float64)
        contexts = outputs.index_select(0, plan.contexts)
        word = summed_cross_entropy(contexts, word_weight, self.word_bias, plan.words)
        terms = {
            "attachment": Loss(sum=attachment, count=len(plan.words)),
            "finish": Loss(sum=finish, count=len(plan.may_end)),
            "word": Loss(sum=word, count=len(plan.words)),
        }
        return Losses.of(batch, terms)

    def tree_log_probs(self, batch: SentenceBatch) -> Tensor:
        """log p(tree, sentence) of every sentence with its tree: float64 (B,), nats, without dropout."""
        with evaluating(self):
            plan = self._plan(batch)
            outputs, vectors = self._outputs(plan, self.word_embedding.index_select(0, plan.words))
            contexts = outputs.index_select(0, plan.contexts)
            words = target_log_probs(contexts, self.word_embedding, self.word_bias, plan.words)
            total = self._attachment_log_probs(plan, outputs, vectors).double().sum(1)
            total.index_add_(0, plan.sentence[plan.contexts], words)
            return total.index_add_(0, plan.sentence[plan.may_end], self._finish_log_probs(plan, outputs).double())

    def _plan(self, batch: SentenceBatch) -> BatchPlan:
        ends_word, device = np.asarray(self.vocabulary.ends_word), self.word_embedding.device
        return plan_batch(self.config, batch, ends_word, device)

    def _outputs(self, plan: BatchPlan, word_vectors: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden state of every position, and the vector of its token or START: (n, D) each."""
        vectors = torch.cat([word_vectors, self.start_embedding[None]]).index_select(0, plan.inputs)
        units, mask = self._drop(vectors), self._mask(plan)
        for block in self.blocks.each:
            units = block(units, mask, plan.packing)
        return self._drop(self.norm(units)), vectors

    def _mask(self, plan: BatchPlan) -> AttentionMask:
        """The mask: later positions are hidden; relative positions are distances, and depths on the tape."""
        steps = torch.arange(plan.packing.shape[1], device=plan.inputs.device)
        distance = (steps[:, None] - steps).clamp(0, self.config.max_distance)[None]
        met = min(len(steps), self.config.max_distance + 1), plan.num_depths
        return AttentionMask(None, (distance, plan.tape), num_relative=met)

    def _attachment_log_probs(self, plan: BatchPlan, outputs: Tensor, vectors: Tensor) -> Tensor:
        """log p of the attachment of the token after each position: (B, T), 0 where no token follows."""
        head, packing = self.attachment, plan.packing
        following = vectors.index_select(0, plan.following)
        queries = head.queries(outputs, following)
        own = (queries * head.own_keys(queries, following)).sum(1, keepdim=True)
        padded = packing.pad(queries)
        logits = padded @ packing.pad(head.keys(outputs, plan.closed)).transpose(1, 2)
        steps = torch.arange(packing.shape[1], device=outputs.device)
        distance = (steps[:, None] + 1 - steps).clamp(0, self.config.max_distance)[None]
        by_distance = padded @ head.distances.T
        logits = logits + by_distance.gather(2, distance.expand(len(logits), -1, -1))
        logits = torch.cat([logits, packing.pad(own) + by_distance[..., :1]], 2) * head.scale
        log_probs = logits.to(self.word_bias.dtype).masked_fill(~plan.valid, -torch.inf).log_softmax(2)
        found: Tensor = log_probs.gather(2, plan.target[..., None])[..., 0]
        return found

    def _finish_log_probs(self, plan: BatchPlan, outputs: Tensor) -> Tensor:
        """log p of ending or of not ending, at every position after which the sentence may end: (E,)."""
        logits = self.finish_head(outputs.index_select(0, plan.may_end))[:, 0]
        return functional.logsigmoid(torch.where(plan.ends, logits, -logits))

    def _drop(self, units: Tensor) -> Tensor:
        return dropout(units, self.config.dropout, training=self.training)

    # Search, and the trees that it finds.

    def searchable(self) -> Searchable:
        """The machine of the search, and its word head."""
        weights = self._search_weights()
        return Searchable(
            machine=partial(TapeMachine, weights),
            head=partial(TiedSoftmax, weights.words, weights.tokens),
            on_device=partial(DeviceTape, weights),
        )

    def _search_weights(self) -> SearchWeights:
        """The parameters for the search, valid while they do not change: token vectors are views, the others copies."""
        size, head = self.config.size, self.attachment
        words = widened(self.word_embedding, size), widened(self.word_bias, size, -torch.inf)
        return SearchWeights(
            config=self.config,
            ends_word=np.asarray(self.vocabulary.ends_word),
            tokens=self.word_embedding.detach(),
            start=self.start_embedding.detach()[None],
            layers=tuple(map(BlockWeights.of, self.blocks.each)),
            norm=frozen(self.norm),
            attachment=AttachmentWeights(
                scale=head.scale,
                query_in=Product.linear(head.query_in),
                query_out=Product.linear(head.query_out),
                own_in=Product.linear(head.own_in),
                own_out=Product.linear(head.own_out),
                key=Product.linear(head.key),
                depths=head.depths.detach(),
                distances=Product.of(head.distances),
            ),
            finish=Product.linear(self.finish_head),
            words=Affine.of(*words, copied=False),
        )

    def build_tree(self, actions: Sequence[int], ends_word: Bools, words: Sequence[str]) -> Tree:
        """The binary tree over words of a derivation over tokens; constituents have the label X."""
        word_of_token: Ints = np.cumsum(ends_word) - ends_word
        return word_tree(words, spans_of(actions, self.config.num_actions - 1), word_of_token)

    def build_open_tree(self, actions: Sequence[int], ends_word: Bools, words: Sequence[str]) -> Tree:
        """The constituents on the stack side by side, and the last word, which has not attached yet."""
        return self.build_tree(actions, ends_word, words)

    def structure(self, words: Sequence[str]) -> StackTape:
        """The stack and the tape after every word of the best tree.

        Raises ``InputError`` for a sentence without words, and when the search found no tree.
        """
        (tree,) = self.parse([words])
        return tape_of([(span.start, span.end) for span in tree.spans() if span.end - span.start > 1], words)

    def _attention(self, words: Sequence[str]) -> tuple[tuple[str, ...], list[Floats]]:
        (tree,) = self.parse([words])
        sentence = Sentence(words=tuple(words), tree=tree, identifier="1", source="<words>", line=1)
        batch = encode_sentences([sentence], self.vocabulary, [one.label for one in tree.constituents()])
        with evaluating(self):
            plan = self._plan(batch)
            units = torch.cat([self.word_embedding[plan.words], self.start_embedding[None]])[plan.inputs]
            is_last = np.append(True, self.vocabulary.ends_word[batch.tokens])
            return (BOUNDARY, *words), weights_of_layers(self.blocks.each, units[None], self._mask(plan), is_last)


Span = tuple[int, int]
"""Places ``start <= i < end``."""


def spans_of(actions: Sequence[int], finish: int) -> list[Span]:
    """The constituents, by tokens, that a derivation builds: SHIFT, attachments by what they close, and FINISH."""
    spans, stack, num_read = list[Span](), list[int](), 0  # where the constituents on the stack begin
    for action in actions:
        if action == SHIFT:
            num_read += 1
        elif action != finish:
            start = num_read - 1
            for _ in range(action - 1):
                start = stack.pop()
                spans.append((start, num_read))
            stack.append(start)
    return spans


def tape_of(spans: Sequence[Span], words: Sequence[str]) -> StackTape:
    """The stack of a binary tree after every word, and the tape: how many of its constituents so far hold a word."""
    stack, stacks, depths = list[Span](), list[tuple[Span, ...]](), list[tuple[int, ...]]()
    for last in range(len(words)):
        start, built = last, [span for span in spans if span[1] <= last + 1]
        for _ in range(sum(end == last + 1 for _, end in built)):
            start, _ = stack.pop()
        stack.append((start, last + 1))
        stacks.append(tuple(stack))
        depths.append(tuple(sum(start <= place < end for start, end in built) for place in range(last + 1)))
    return StackTape(tokens=tuple(words), stacks=tuple(stacks), depths=tuple(depths))
