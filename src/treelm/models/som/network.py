"""The SOM behind the interface of all systems: losses, scores, trees, and reading word by word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from treelm.corpora.batches import SentenceBatch, SentenceBatches
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.encoding import EncodedCorpus, encode_words, word_of_token
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.models.base import Analysis, IncrementalState, Loss, Losses, SentenceScore
from treelm.models.capabilities import Parser
from treelm.models.layers.binary_structure import decoded_spans, word_tree
from treelm.models.layers.precision import DECIMALS
from treelm.models.layers.softmax import summed_cross_entropy, target_log_probs
from treelm.models.scores import SubwordAggregation
from treelm.models.som import incremental
from treelm.models.som.cells import Accuracy, accuracies
from treelm.models.som.decide import Choose, DynamicOracle, greedy
from treelm.models.som.graph import IntArray, lay_out, pad
from treelm.models.som.memory import MemoryNetwork, MemoryReading
from treelm.models.structures import SlotSpans
from treelm.trees.tree import Tree

_ROWS = 32  # sentences that are read side by side


class SOM(MemoryNetwork, Parser):
    """A language model that reads one word at a time into a memory of N slots, one a level of the open constituents.

    A scorer decides with one word of look-ahead where the word attaches (theta); the memory then composes candidates
    bottom-up; a second scorer guesses the next decision (theta'), and the prediction network reads the memory from the
    root down to it. Both are trained on the decisions of an oracle. The boundary token, the last row of the embedding,
    is ``<s>`` as input and ``</s>`` as output.
    """

    system: ClassVar[str] = "som"
    predicts_labels: ClassVar[bool] = False
    lm_flag: ClassVar[str] = "word_loss"  # without it the output layer was never trained
    own_metric_names: ClassVar[tuple[str, ...]] = (
        "p_accuracy",
        "p_accuracy_unforced",
        "p_prediction_accuracy",
        "p_prediction_accuracy_unforced",
        "perplexity_along_gold_trees",
    )

    @property
    def word_columns(self) -> dict[str, SubwordAggregation]:
        """Metrics of the decisions at every word."""
        return {"depth": "last", "attachment_slot": "first"}

    def losses(self, batch: SentenceBatch, *, choose: Choose | None = None) -> Losses:
        """Sums of -log p in nats: ``word`` and, under the oracle, ``parse`` (p) and ``parse_prediction`` (p').

        In training decisions are sampled (static oracle: gold); in evaluation they are greedy; their loss is by the
        corrected dynamic oracle. ``choose`` decides instead. Raises ``InputError`` for a batch without trees unless the
        oracle is left-branching.
        """
        reading = self.read(batch, choose=choose)
        targets = self._targets(batch, reading.layout)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.config.word_loss):
            dropped = functional.dropout(reading.hidden, self.config.output_dropout, self.training)
            word = summed_cross_entropy(dropped, self.embedding, self.output_bias, targets)
        terms = {"word": Loss(sum=word, count=len(targets))}
        for name, log_probs, labels in (
            ("parse", reading.log_p, reading.labels),
            ("parse_prediction", reading.log_p_prediction, reading.next_labels),
        ):
            if log_probs is not None:
                wanted = log_probs.gather(1, self._tensor(labels)[:, None])
                terms[name] = Loss(sum=-wanted.sum(dtype=torch.float64), count=len(labels))
        trained = [term.sum for name, term in terms.items() if name != "word" or self.config.word_loss]
        return Losses(
            terms=terms,
            total=torch.stack(trained).sum(),
            num_words=int(batch.num_words.sum()),
            num_sentences=len(batch),
        )

    @torch.no_grad()
    def token_log_probs(self, batch: SentenceBatch, reading: MemoryReading) -> Tensor:
        """log p of what follows every position, tokens and ends of sentences: float64 (P,), nats, packed."""
        targets = self._targets(batch, reading.layout)
        return target_log_probs(reading.hidden, self.embedding, self.output_bias, targets)

    def exact(self) -> Self:
        """This network with float64 weights, in evaluation mode, kept until the weights change.

        Scores are computed with it and rounded to ``DECIMALS``, so that they do not depend on batch-mates or on what
        follows: the last bits of float32 would, and could even tip a decision.
        """
        build: Any = type(self)
        return self._exact.of(self, lambda: build(self.config, vocabulary=self.vocabulary, labels=self.labels))

    # The interface of all systems.

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Log probability of every token under greedy decisions.

        ``columns``: ``depth``, slots in use at each word, and ``attachment_slot``, where its first token was attached.
        """
        return [analysis.score for analysis in self._analyse(sentences) if analysis.score is not None]

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The tree of the greedy decisions over each sentence; constituents have the label X."""
        return [analysis.tree for analysis in self._analyse(sentences) if analysis.tree is not None]

    def _analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Scores and trees of one reading; trees alone if this is only a parser.

        Raises ``InputError`` for a sentence without words.
        """
        return self._analyses(sentences, None)

    def score_from(self, sentences: Sequence[Sequence[str]], starts: Tensor) -> list[SentenceScore]:
        """``score`` of sentences that begin from ``starts`` (n, D) besides ``<s>``."""
        return [analysis.score for analysis in self._analyses(sentences, starts) if analysis.score is not None]

    def _analyses(self, sentences: Sequence[Sequence[str]], starts: Tensor | None) -> list[Analysis]:
        if not sentences:
            return []
        exact = self.exact()
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        reading = exact._read_words(batch, starts)
        log_probs = None
        if self.predicts_words:
            log_probs = exact.token_log_probs(batch, reading).cpu().numpy().round(DECIMALS)
        row_of = np.argsort(reading.layout.sentences)
        return [
            self._analysis(words, batch.tokens_of(number), reading, log_probs, int(row_of[number]))
            for number, words in enumerate(sentences)
        ]

    def _analysis(
        self,
        words: Sequence[str],
        tokens: IntArray,
        reading: MemoryReading,
        log_probs: NDArray[np.float64] | None,
        row: int,
    ) -> Analysis:
        positions = reading.layout.of_row(row)
        decisions = reading.graph.decisions[positions]
        spans = decoded_spans(decisions.tolist(), self.config.num_slots)
        word_numbers = word_of_token(tokens, self.vocabulary.ends_word)
        tree = word_tree(words, spans, word_numbers)
        if log_probs is None:
            return Analysis(score=None, tree=tree)
        starts = np.diff(word_numbers) > 0
        depth = self.config.num_slots + 1 - decisions[1:][np.append(starts, True)]
        attachment = decisions[1:][np.insert(starts, 0, True)]
        score = SentenceScore(
            log_probs=log_probs[positions],
            word_of_token=word_numbers,
            is_lower_bound=False,
            columns={"depth": depth.astype(np.float64), "attachment_slot": attachment.astype(np.float64)},
        )
        return Analysis(score=score, tree=tree)

    @torch.no_grad()
    def _read_words(self, batch: SentenceBatch, starts: Tensor | None = None) -> MemoryReading:
        """Read sentences without trees, greedily; for a network in evaluation mode."""
        layout = lay_out(batch.token_offsets)
        nothing = pad(np.zeros_like(batch.tokens), batch.token_offsets, first=0, last=0)
        oracle = DynamicOracle(nothing[layout.sentences], self.config.num_slots)
        return self._read(batch, layout, oracle, greedy, None, starts)

    @torch.no_grad()
    def own_metrics(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """Accuracies of p and p' on sentences with trees, against the dynamic oracle on the greedy history, and the
        perplexity per token, ends included, of reading along the gold trees, which have seen what follows.
        """
        prepared = PreparedCorpus.from_sentences(sentences)
        encoded = EncodedCorpus(prepared, self.vocabulary, prepared.labels)  # whatever labels: structure alone counts
        exact, attachment, prediction = self.exact(), Accuracy(), Accuracy()
        nats, num_targets = 0.0, 0
        for batch in SentenceBatches(encoded, batch_size=_ROWS, shuffle=False):
            reading = exact.read(batch)
            attachment.add(reading.log_p, reading.labels)
            if reading.log_p_prediction is not None:
                prediction.add(reading.log_p_prediction, reading.next_labels)
            if self.predicts_words:
                nats -= float(exact.token_log_probs(batch, exact.read(batch, gold=True)).sum())
                num_targets += len(batch.tokens) + len(batch)
        along_gold = {"perplexity_along_gold_trees": math.exp(nats / num_targets)} if self.predicts_words else {}
        return accuracies(attachment, prediction) | along_gold

    def structure(self, words: Sequence[str]) -> SlotSpans:
        """Spans that each slot covers after every word. Raises ``InputError`` for a sentence without words."""
        if not words:
            raise InputError("a sentence without words", remedy="give one with words")
        state: IncrementalState = self.start()
        for word in words:
            state = self.extend(state, [word])
        return self.memory(state)

    def memory(self, state: IncrementalState, sentence: int = 0) -> SlotSpans:
        """Spans that each slot has covered of a sentence read word by word, by token if words have several."""
        return incremental.memory(self, incremental.SOMState.own(state), sentence)

    def _start(self, num_sentences: int) -> incremental.SOMState:
        """The state before the first word."""
        return incremental.start(self.exact(), num_sentences)

    def start_from(self, starts: Tensor) -> incremental.SOMState:
        """``start`` of sentences that begin from ``starts`` (n, D) besides ``<s>``."""
        return incremental.start(self.exact(), len(starts), starts)

    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> incremental.SOMState:
        """The state after one more token in each sentence; None for a sentence that waits."""
        return incremental.extend_tokens(self.exact(), incremental.SOMState.own(state), tokens)

    @torch.no_grad()
    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """log p(next token), float64 (num_sentences, V + 1); the last column is the end of sentence."""
        exact, hidden = self.exact(), incremental.SOMState.own(state).hidden
        return functional.linear(hidden, exact.embedding, exact.output_bias).log_softmax(1)

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The tree of the decisions so far, what is open closed. Raises ``InputError`` before the first word."""
        return incremental.partial_trees(self, incremental.SOMState.own(state))
