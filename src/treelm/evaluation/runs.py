"""Judging a model on sentences with gold trees: one search a sentence gives its probability and its tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Literal

from treelm.corpora.catalog import Split
from treelm.corpora.data_config import DataConfig, locate_split
from treelm.corpora.lines import Format
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.bracket_lines import Bracketing, bracketing_of
from treelm.evaluation.evaluate import evaluate_parses, evaluate_scores
from treelm.evaluation.report import GIVEN_TREES, EvaluationResult
from treelm.evaluation.span_protocols import BINARISED, NO_PUNCTUATION, PLAIN, WSJ10, WSJ40, SpanProtocol
from treelm.evaluation.streams import judge_stream, require_stream
from treelm.inference.batching import batched, in_batches
from treelm.inference.loading import load
from treelm.inference.processes import Compute, analyse, computing
from treelm.models.base import Analysis, SyntacticLM
from treelm.models.devices import DeviceName
from treelm.models.streams import StreamLM
from treelm.training.recipe import EvaluationConfig, Recipe

GUM_NOTES: dict[str, str] = {
    "brackets": "gum-open's constituency trees are the output of a parser run on gold tags, not hand-made: "
    "F1 is against those",
    "conllu": "F1 is against the constituents of gum-open's gold dependency trees: a head with all its dependents",
}

NO_GOLD = "these sentences have no gold trees, so no F1"


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
    protocols: Sequence[SpanProtocol] | None = None,
    on_sentence: Callable[[], None] = lambda: None,
    compute: Compute[Analysis] | None = None,
) -> Judgement:
    """Perplexity if the system predicts words, and bracketing if it parses and the sentences have trees.

    ``skipped`` collects sentences that cannot be read or scored (see ``in_batches``); ``on_sentence`` is called after
    each one, for progress. ``protocols`` are those of ``usual_protocols`` if not given. ``compute`` (see
    ``computing``) analyses in other processes instead of ``lm``. Raises ``InputError`` when some sentences have trees
    and others have none, and when nothing is left to judge.
    """
    num_skipped_before = len(skipped or ())
    kept: list[tuple[Sentence, Analysis]] = []
    analysed = in_batches(sentences, compute or lm.analyse, batch_size=batch_size, skipped=skipped)
    if lm.needs_trees:
        analysed, notes = _with_trees(lm, sentences, batch_size), (*notes, GIVEN_TREES)
    for sentence, analysis in analysed:
        if analysis is not None:
            kept.append((sentence, analysis))
        on_sentence()
    if not kept:
        raise InputError("no sentence to evaluate", remedy="give a file with at least one good sentence")
    judged = tuple(sentence for sentence, _ in kept)
    analyses = tuple(analysis for _, analysis in kept)
    num_skipped = len(skipped or ()) - num_skipped_before
    result = _result(lm, judged, analyses, split, num_skipped, notes, protocols)
    return Judgement(result=result, sentences=judged, analyses=analyses)


def _with_trees(
    lm: SyntacticLM, sentences: Iterable[Sentence], batch_size: int
) -> Iterator[tuple[Sentence, Analysis | None]]:
    """Sentences with their scores under their own trees."""
    for group in batched(sentences, batch_size):
        for sentence, score in zip(group, lm.score_given(group), strict=True):
            yield sentence, Analysis(score=score, tree=None)


def _result(
    lm: SyntacticLM,
    sentences: Sequence[Sentence],
    analyses: Sequence[Analysis],
    split: str,
    num_skipped: int,
    notes: Sequence[str],
    protocols: Sequence[SpanProtocol] | None,
) -> EvaluationResult:
    scores = [analysis.score for analysis in analyses if analysis.score is not None]
    trees = [analysis.tree for analysis in analyses if analysis.tree is not None]
    if scores and (not trees or sentences[0].tree is None):
        words = [sentence.words for sentence in sentences]
        notes = (*notes, NO_GOLD) if trees else notes
        return evaluate_scores(words, scores, system=lm.system, split=split, num_skipped=num_skipped, notes=notes)
    return evaluate_parses(
        [_gold(sentence) for sentence in sentences],
        trees,
        system=lm.system,
        split=split,
        scores=scores or None,
        labels=lm.labels if lm.predicts_labels else (),
        num_skipped=num_skipped,
        notes=notes,
        protocols=usual_protocols(lm) if protocols is None else protocols,
        own=own_figures(lm, sentences),
    )


def usual_protocols(lm: SyntacticLM) -> tuple[SpanProtocol, ...]:
    """How the trees of this system are judged in the literature."""
    usual = (WSJ10, WSJ40, PLAIN)
    return usual if lm.predicts_labels else (*usual, NO_PUNCTUATION, BINARISED)


OWN_FIGURES = {"som": "treelm.evaluation.som:own_figures"}
"""System -> ``module:function`` that gives figures which only this system has."""


def own_figures(lm: SyntacticLM, sentences: Sequence[Sentence]) -> dict[str, float]:
    """The figures that only this system has, by name; most have none."""
    if lm.system not in OWN_FIGURES:
        return {}
    module, _, name = OWN_FIGURES[lm.system].partition(":")
    found: dict[str, float] = getattr(import_module(module), name)(lm, sentences)
    return found


def evaluate_run(
    run: Path,
    recipe: Recipe,
    *,
    files: Sequence[str] = (),
    format: Format | Literal["auto"] = "auto",
    skipped: list[InputError] | None = None,
    protocols: Sequence[SpanProtocol] | None = None,
    trees_for: str = "",
    fixed_rows: bool = False,
    on_sentence: Callable[[], None] = lambda: None,
    processes: int = 1,
    device: DeviceName = "cpu",
) -> list[Judgement]:
    """Judge a trained run by the ``[evaluation]`` of its recipe: on its splits, or on the given files instead.

    ``format`` is that of the files. A text too short for the recipe's ``stream_rows`` is read in one row, with a note,
    unless they are ``fixed_rows``. ``trees_for`` is an option that asks for trees: a run without any is refused.
    Several ``processes`` share the sentences; a stream, and figures that only one system has, are computed here.
    """
    config = recipe.evaluation
    lm = load(run, device=device)
    lm.set_beam(action_beam=config.action_beam, word_beam=config.word_beam, fast_track=config.fast_track)
    if trees_for and not lm.parses:
        raise InputError(f"{trees_for}, but {lm.why_no_trees}", remedy=f"leave {trees_for} out")
    if config.stream != "no":
        require_stream(lm)
    notes = _choose_builder(lm, config.tree_builder)
    if recipe.data.corpus == "gum-open" and not files and lm.parses:
        notes = (_gum_note(recipe.data), *notes)
    names, missing = (files, ()) if files else _splits(recipe)
    notes = (*notes, *(f"the recipe has no {split} data" for split in missing))
    inputs = _inputs(recipe.data, names, format if files else None, skipped)
    in_a_row = partial(judge_stream, lm, recipe, format=format if files else None, fixed_rows=fixed_rows)
    by_sentence = partial(judge, lm, skipped=skipped, notes=notes, protocols=protocols, on_sentence=on_sentence)
    with computing(analyse, lm, run=str(run), processes=processes) as compute:
        by_sentence = partial(by_sentence, compute=compute)
        return [_judge_input(config, by_sentence, in_a_row, one, skipped) for one in inputs]


def _judge_input(
    config: EvaluationConfig,
    by_sentence: Callable[..., Judgement],
    in_a_row: Callable[..., EvaluationResult],
    named: tuple[str, Iterator[Sentence]],
    skipped: list[InputError] | None,
) -> Judgement:
    name, sentences = named
    if config.stream == "only":
        return Judgement(result=in_a_row(name, skipped=skipped), sentences=(), analyses=())
    judgement = by_sentence(islice(sentences, config.max_sentences), split=name)
    if config.stream == "no":
        return judgement
    again: list[InputError] | None = None if skipped is None else []  # those that were skipped above
    return replace(judgement, result=judgement.result.with_stream(in_a_row(name, skipped=again)))


def _choose_builder(lm: SyntacticLM, builder: Literal["unbiased", "biased"] | None) -> tuple[str, ...]:
    """Set the builder of trees from distances; returns the note that names it."""
    if not isinstance(lm, StreamLM) or not lm.parses or lm.tree_builder is None:
        if builder is not None:
            remedy = "leave tree_builder out"
            raise InputError(f"tree_builder = {builder!r} with {lm.system}, which has no distances", remedy=remedy)
        return ()
    lm.tree_builder = builder or lm.tree_builder
    return (f"trees are built from distances by the {lm.tree_builder} builder",)


def _gum_note(data: DataConfig) -> str:
    return GUM_NOTES["conllu" if data.format == "conllu" else "brackets"]


def _splits(recipe: Recipe) -> tuple[Sequence[Split], Sequence[Split]]:
    """The splits to judge, and of those that nobody has named the ones that the recipe has no data for."""
    wanted = recipe.evaluation.splits
    if wanted != EvaluationConfig().splits:
        return wanted, ()
    found = [split for split in wanted if recipe.data.has_split(split)]
    return (found, [split for split in wanted if split not in found]) if found else (wanted, ())


def _inputs(
    data: DataConfig,
    names: Sequence[str],
    of_files: Format | Literal["auto"] | None,
    skipped: list[InputError] | None,
) -> Iterator[tuple[str, Iterator[Sentence]]]:
    """Every input with its sentences: files in the given format, or splits."""
    for name in names:
        path, format = (Path(name), of_files) if of_files else locate_split(data, name)  # type: ignore[arg-type]
        yield (
            name,
            read_sentences(
                path,
                **vars(data.read_options(format)),
                on_error="raise" if skipped is None else "skip",
                skipped=skipped,
            ),
        )


def _gold(sentence: Sentence) -> Bracketing:
    if sentence.tree is None:
        raise InputError("a sentence without a tree", where=sentence.where, remedy="evaluate on brackets or CoNLL-U")
    return bracketing_of(sentence.tree, tags=sentence.tags, where=sentence.where)
