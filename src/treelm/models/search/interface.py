"""From words to scores and trees: what ``RNNG`` offers, on top of the search over symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import SentenceScore
from treelm.models.rnng.weights import SearchWeights
from treelm.models.search.prefixes import grouped
from treelm.models.search.products import arithmetic
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.sentences import SentenceResult, converged, search_sentences
from treelm.models.search.settings import Search
from treelm.models.search.words import WordHead
from treelm.trees.transitions import SHIFT, Order, from_actions
from treelm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class ScoredTree:
    """A tree and log p(tree, sentence) in nats, under the model (no search has made it smaller)."""

    tree: Tree
    log_prob: float


@dataclass(frozen=True, kw_only=True)
class EncodedSentence:
    """Words as symbols."""

    words: tuple[str, ...]
    symbols: Ints  # (num_symbols,)
    word_of_symbol: Ints  # (num_symbols,)


def encode(vocabulary: Vocabulary, words: Sequence[str]) -> EncodedSentence:
    """Write words in the vocabulary's symbols; raises ``InputError`` without words."""
    if len(words) == 0:
        raise InputError("a sentence without words", remedy="leave out empty lines")
    first = vocabulary.encode(words[:1], sentence_initial=True)
    rest = vocabulary.encode(words[1:])
    lengths = np.concatenate([np.diff(first.offsets), np.diff(rest.offsets)])
    return EncodedSentence(
        words=tuple(words),
        symbols=np.concatenate([first.ids, rest.ids]).astype(np.int64),
        word_of_symbol=np.repeat(np.arange(len(words)), lengths),
    )


def search_all(
    weights: SearchWeights, head: WordHead, settings: Search, sentences: Sequence[EncodedSentence]
) -> list[SentenceResult]:
    """Search any number of sentences, ``settings.batch_size`` at a time."""
    symbols = [sentence.symbols for sentence in sentences]
    results: dict[int, SentenceResult] = {}
    with arithmetic(settings.matmul, weights.initial.device):
        for group in grouped(symbols, settings.batch_size, share=settings.shares_prefixes):
            found = search_sentences(weights, head, settings, [symbols[index] for index in group])
            results.update(zip(group, found, strict=True))
    return [results[index] for index in range(len(sentences))]


def sentence_score(sentence: EncodedSentence, result: SentenceResult, settings: Search) -> SentenceScore:
    """Log probabilities and statistics as every system reports them. Beam search gives lower bounds."""
    last = np.append(np.flatnonzero(np.diff(sentence.word_of_symbol)), len(sentence.symbols) - 1)  # of each word
    loss = np.bincount(sentence.word_of_symbol, result.beam_loss_bits).astype(np.float64)
    columns: dict[str, Floats] = {
        "entropy_bits": np.array(result.entropy_bits)[last],
        "open_nodes": np.array(result.open_nodes)[last],
        "beam_loss_bits": loss,
        "beam_bound_bits": np.array(result.beam_bound_bits)[last],
        "beam_converged": converged(result.gaps[last]),
    }
    return SentenceScore(
        log_probs=result.log_probs,
        word_of_symbol=sentence.word_of_symbol,
        is_lower_bound=settings.method == "beam",
        columns=columns,
    )


def scored_trees(
    sentence: EncodedSentence, result: SentenceResult, vocabulary: Vocabulary, labels: Sequence[str], order: Order
) -> list[ScoredTree]:
    """The trees that search found, best first. Raises ``InputError`` when it found none."""
    if not result.derivations:
        found = f"the beam is empty after {int(np.isfinite(result.log_masses).sum())} symbols: no tree was found"
        raise InputError(found, remedy="raise action_beam, word_beam or fast_track")
    ends_word = vocabulary.ends_word[sentence.symbols]
    return [
        ScoredTree(tree=build_tree(one.actions, ends_word, sentence.words, labels, order), log_prob=one.log_prob)
        for one in result.derivations
    ]


def build_tree(
    actions: Sequence[int], ends_word: Bools, words: Sequence[str], labels: Sequence[str], order: Order
) -> Tree:
    """The tree over words of a derivation over symbols; ``ends_word`` says for each SHIFT whether it ends a word."""
    coming = iter(ends_word.tolist())
    return from_actions([action for action in actions if action != SHIFT or next(coming)], words, labels, order)
