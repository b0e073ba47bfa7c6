"""Judging a model on sentences with gold trees: one search a sentence gives its probability and its tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.bracket_lines import Bracketing, bracketing_of
from treelm.evaluation.evaluate import evaluate_parses
from treelm.evaluation.report import EvaluationResult
from treelm.inference.batching import in_batches
from treelm.models.base import Analysis, SyntacticLM


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The figures, and what they were computed from."""

    result: EvaluationResult
    sentences: tuple[Sentence, ...]
    analyses: tuple[Analysis, ...]


def judge(
    lm: SyntacticLM,
    sentences: Iterable[Sentence],
    *,
    split: str,
    batch_size: int = 10,
    skipped: list[InputError] | None = None,
    notes: Sequence[str] = (),
    on_sentence: Callable[[], None] = lambda: None,
) -> Judgement:
    """Perplexity and bracketing of a model on sentences that have trees.

    ``skipped`` collects sentences that cannot be read or scored (see ``in_batches``); ``on_sentence`` is called after
    each one, for progress. Raises ``InputError`` for a sentence without a tree and when nothing is left to judge.
    """
    kept: list[tuple[Sentence, Analysis]] = []
    for sentence, analysis in in_batches(sentences, lm.analyse, batch_size=batch_size, skipped=skipped):
        if analysis is not None:
            kept.append((sentence, analysis))
        on_sentence()
    if not kept:
        raise InputError("no sentence to evaluate", remedy="give a file with at least one good sentence")
    result = evaluate_parses(
        [_gold(sentence) for sentence, _ in kept],
        [analysis.tree for _, analysis in kept],
        system=lm.system,
        split=split,
        scores=[analysis.score for _, analysis in kept],
        labels=lm.labels,
        num_skipped=len(skipped or ()),
        notes=notes,
    )
    return Judgement(result=result, sentences=tuple(s for s, _ in kept), analyses=tuple(a for _, a in kept))


def _gold(sentence: Sentence) -> Bracketing:
    if sentence.tree is None:
        raise InputError("a sentence without a tree", where=sentence.where, remedy="evaluate on brackets or CoNLL-U")
    return bracketing_of(sentence.tree, tags=sentence.tags, where=sentence.where)
