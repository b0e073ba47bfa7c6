"""Analyses of chosen sentences by each system, measured once and kept with the comparison's metrics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from treelm.corpora.data_config import example_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.comparison.measure import ShowProgress
from treelm.evaluation.comparison.metrics import Comparison, PartialTree, RunMetrics, SentenceAnalysis, WordBits
from treelm.inference.loading import load, model_hash
from treelm.models.base import Analysis, LanguageModel
from treelm.models.capabilities import Searching, TreeConditioned, has, score_with_trees, structure_of
from treelm.models.scores import sentence_surprisal
from treelm.models.structures import Distances, SlotSpans, SpanWeights, StackAttention, StackTape
from treelm.training.run_folder import recipe_of_model
from treelm.trees.tree import Tree

DECIMALS = 4  # of numbers that are only drawn
MOST_ANALYSES = 3  # of a beam, after each word


def examples_of(comparison: Comparison) -> list[Sentence]:
    """Sentences to show where none are chosen: examples of the first run whose data are still there; else none."""
    for row in comparison.runs:
        with suppress(InputError):
            return example_sentences(recipe_of_model(row.run).data)
    return []


def kept_sentences(comparison: Comparison) -> list[Sentence]:
    """The sentences that some row was analysed on, if there are any, with the trees of their file."""
    analyses = next((row.sentences for row in comparison.runs if row.sentences), ())
    return [
        Sentence(
            words=one.words,
            tree=None if one.gold is None else Tree.parse(one.gold),
            identifier=str(line),
            source="kept sentences",
            line=line,
        )
        for line, one in enumerate(analyses, 1)
    ]


def with_sentences(comparison: Comparison, sentences: Sequence[Sentence], show: ShowProgress) -> Comparison:
    """The comparison with every system's analyses of the sentences, which replace what was kept of others.

    A row whose run folder is not there any more keeps its analyses if they are of these sentences. Raises
    ``InputError`` if they are not, and for a sentence without words.
    """
    chosen = [one.words for one in sentences]
    if not all(chosen):
        raise InputError("a sentence without words", remedy="leave it out")
    rows = []
    for row in comparison.runs:
        if [one.words for one in row.sentences] != chosen:
            with show(f"{row.name}: {len(chosen)} sentences for the report", len(chosen)) as advance:
                row = replace(row, sentences=_analysed(row, sentences))
                advance()
        rows.append(row)
    return replace(comparison, runs=tuple(rows))


def _analysed(row: RunMetrics, sentences: Sequence[Sentence]) -> tuple[SentenceAnalysis, ...]:
    """Analyse by the adaptive beam, whatever the row was measured with: surprisals of single words are drawn.

    Raises ``InputError`` if another model than that of the row lies there now.
    """
    lm = load(Path(row.run))
    if row.weights and model_hash(row.run) != row.weights:
        found = f"another model than the one that {row.name} was measured with"
        remedy = "compare the run anew, or from the folder from which it was measured"
        raise InputError(found, where=row.run, remedy=remedy)
    return analyses_of(lm, sentences)


def analyses_of(lm: LanguageModel, sentences: Sequence[Sentence]) -> tuple[SentenceAnalysis, ...]:
    """Trees, surprisals, and what only this system has."""
    if has(lm, TreeConditioned):  # nothing is known of a sentence that has none
        scores = [None if one.tree is None else score_with_trees(lm, [one])[0] for one in sentences]
        found = [Analysis(score=score, tree=None) for score in scores]
    else:
        found = lm.analyse([list(one.words) for one in sentences])
    return tuple(_analysis(lm, one, analysis) for one, analysis in zip(sentences, found, strict=True))


def _analysis(lm: LanguageModel, sentence: Sentence, found: Analysis) -> SentenceAnalysis:
    words = sentence.words
    return SentenceAnalysis(
        words=words,
        gold=None if sentence.tree is None else str(sentence.tree),
        tree=None if found.tree is None else str(found.tree),
        bits=_bits(lm, words, found),
        beam=() if has(lm, TreeConditioned) else _beam(lm, words),
        **_structure(lm, words),
    )


def _beam(lm: LanguageModel, words: Sequence[str]) -> tuple[tuple[PartialTree, ...], ...]:
    """The best analyses after each word, of a system that searches."""
    if not isinstance(lm, Searching):
        return ()
    state, steps = lm.start(), []
    for word in words:
        state = lm.extend(state, [word])
        kept = lm.partial_analyses(state, MOST_ANALYSES)[0]
        steps.append(
            tuple(
                PartialTree(tree=str(one.tree), share=round(one.share, DECIMALS))
                for one in kept
                if one.tree.label  # not a first word that no constituent holds yet, which brackets cannot say
            )
        )
    return tuple(steps)


def _bits(lm: LanguageModel, words: Sequence[str], found: Analysis) -> WordBits | None:
    if found.score is None:
        return None
    surprisal = sentence_surprisal(words, found.score, lm.vocabulary)
    return WordBits(
        surprisal_bits=tuple(round(word.surprisal_bits, DECIMALS) for word in surprisal.words),
        end_surprisal_bits=round(surprisal.end_surprisal_bits, DECIMALS),
        is_unk=tuple(word.is_unk for word in surprisal.words),
        is_upper_bound=found.score.is_lower_bound,
    )


_FIELDS = {
    Distances: "distances",
    SpanWeights: "attention",
    SlotSpans: "memory",
    StackAttention: "sight",
    StackTape: "tape",
}


def _structure(lm: LanguageModel, words: Sequence[str]) -> dict[str, Any]:
    """The structure of a sentence under the name of its field, rounded."""
    found = structure_of(lm, words)
    if isinstance(found, Distances):
        found = replace(found, values=tuple(round(value, DECIMALS) for value in found.values))
    elif isinstance(found, SpanWeights):
        weights = (np.asarray(row).round(DECIMALS).tolist() for row in found.weights)
        found = replace(found, weights=tuple(map(tuple, weights)))
    return {} if found is None else {_FIELDS[type(found)]: found}
