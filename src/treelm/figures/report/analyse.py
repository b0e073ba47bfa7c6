"""Analyses of chosen sentences by each system, measured once and kept with the comparison's metrics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from treelm.corpora.data_config import example_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.comparison.measure import ShowProgress
from treelm.evaluation.comparison.metrics import Comparison, PartialTree, SentenceAnalysis, WordBits
from treelm.inference.loading import load, model_hash
from treelm.models.base import Analysis, LanguageModel
from treelm.models.capabilities import Searching, TreeConditioned, has, score_with_trees, structure_of
from treelm.models.scores import SentenceScore, sentence_surprisal
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
    """Add every system's analyses of the sentences to a comparison, unless it has them already.

    A system searches as its recipe says. Raises ``InputError`` for a run that is not where it was or has other weights
    now, and for a sentence without words.
    """
    chosen = [one.words for one in sentences]
    if not all(chosen):
        raise InputError("a sentence without words", remedy="remove it")
    rows = []
    for row in comparison.runs:
        if [one.words for one in row.sentences] != chosen:
            with show(f"{row.name}: {len(chosen)} sentences for the report", len(chosen)) as advance:
                lm = load(Path(row.run))
                if row.weights and model_hash(row.run) != row.weights:
                    found = f"another model than the one that {row.name} was measured with"
                    remedy = "compare the run again, or from the folder from which it was measured"
                    raise InputError(found, where=row.run, remedy=remedy)
                row = replace(row, sentences=analyses_of(lm, sentences))
                advance()
        rows.append(row)
    return replace(comparison, runs=tuple(rows))


def analyses_of(lm: LanguageModel, sentences: Sequence[Sentence]) -> tuple[SentenceAnalysis, ...]:
    """Analyse sentences by a model: trees, surprisals, and the structures that only this system has."""
    if has(lm, TreeConditioned):  # nothing is known of a sentence that has none
        scores = [None if one.tree is None else score_with_trees(lm, [one])[0] for one in sentences]
        found = [Analysis(score=score, tree=None) for score in scores]
    else:
        found = lm.analyse([list(one.words) for one in sentences])
    return tuple(
        SentenceAnalysis(
            words=sentence.words,
            gold=None if sentence.tree is None else str(sentence.tree),
            tree=None if analysis.tree is None else str(analysis.tree),
            bits=None if analysis.score is None else _bits(lm, sentence.words, analysis.score),
            beam=() if has(lm, TreeConditioned) else _beam(lm, sentence.words),
            structures=tuple(filter(None, [structure_of(lm, sentence.words)])),
        )
        for sentence, analysis in zip(sentences, found, strict=True)
    )


def _beam(lm: LanguageModel, words: Sequence[str]) -> tuple[tuple[PartialTree, ...], ...]:
    """The best partial analyses that a search holds after each word; empty for a system without a search.

    An analysis in which no constituent holds the first word yet is left out, since brackets cannot express it.
    """
    if not isinstance(lm, Searching):
        return ()
    state, steps = lm.start(), []
    for word in words:
        state = lm.extend(state, [word])
        kept = [one for one in lm.partial_analyses(state, MOST_ANALYSES)[0] if one.tree.label]
        steps.append(tuple(PartialTree(tree=str(one.tree), share=round(one.share, DECIMALS)) for one in kept))
    return tuple(steps)


def _bits(lm: LanguageModel, words: Sequence[str], score: SentenceScore) -> WordBits:
    surprisal = sentence_surprisal(words, score, lm.vocabulary)
    return WordBits(
        surprisal_bits=tuple(round(word.surprisal_bits, DECIMALS) for word in surprisal.words),
        end_surprisal_bits=round(surprisal.end_surprisal_bits, DECIMALS),
        is_unk=tuple(word.is_unk for word in surprisal.words),
        is_upper_bound=score.is_lower_bound,
    )
