"""Evaluate a model on sentences with gold trees: one search a sentence gives its probability and its tree."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from treelm.corpora.catalog import Split
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.data_config import DataConfig, locate_split, prepared_split
from treelm.corpora.lines import Format
from treelm.corpora.preparing import prepared
from treelm.corpora.readers import ReadOptions, read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.evalb import score_bracketings
from treelm.evaluation.evalb_files import COLLINS, Bracketing, bracketing_of, gold_bracketing
from treelm.evaluation.report import GIVEN_TREES, EvaluationResult
from treelm.evaluation.settings import EvaluationSettings
from treelm.evaluation.span_protocols import (
    BINARISED,
    NO_PUNCTUATION,
    PLAIN,
    PROTOCOLS,
    WSJ10,
    WSJ40,
    SpanProtocol,
    score_spans,
)
from treelm.evaluation.streams import evaluate_stream, require_context
from treelm.evaluation.trivial_baselines import trivial_baselines
from treelm.inference.annotation import parser_of
from treelm.inference.batching import Compute, Task, batched, in_batches, in_process, model_workers, parse
from treelm.inference.loading import load
from treelm.models.base import Analysis, LanguageModel
from treelm.models.capabilities import (
    OwnMetrics,
    Parser,
    Searching,
    TreeConditioned,
    has,
    score_with_trees,
    set_search,
    why_not,
)
from treelm.models.perplexity import Coverage, perplexity
from treelm.training.recipe import EvaluationConfig, Recipe
from treelm.training.run_folder import recipe_of_model
from treelm.trees.brackets import strip_function
from treelm.trees.transforms import UNPARSED
from treelm.trees.tree import Tree
from treelm.trees.trivial import is_binary

_logger = logging.getLogger(__name__)
_AGAINST = "F1 is against"
GUM_NOTES: dict[str, str] = {
    "brackets": "gum-open's constituency trees are the output of a parser run on gold tags, not hand-made: "
    f"{_AGAINST} those",
    "conllu": f"{_AGAINST} the constituents of gum-open's gold dependency trees: a head with all its dependents",
}

AS_THE_RECIPE = EvaluationSettings()
_LEAST_SHARE = 0.01
"""Below this share of the words, sentences that stand in both are those that stand everywhere, such as ``Yes .``."""
NO_GOLD = "these sentences have no gold trees, so no F1"


def evaluate_sentences(
    lm: LanguageModel,
    sentences: Iterable[Sentence],
    *,
    split: str,
    batch_size: int = 10,
    skipped: list[InputError] | None = None,
    notes: Sequence[str] = (),
    protocols: Sequence[SpanProtocol] | None = None,
    baselines: bool = True,
    on_sentence: Callable[[], None] = lambda: None,
    analyse: Task[Analysis] = LanguageModel.analyse,
    compute: Compute = in_process,
) -> EvaluationResult:
    """Compute perplexity if the system predicts words, and bracketing if it parses and the sentences have trees.

    ``skipped`` collects the errors of sentences that are left out; without it, the first one is raised.
    ``on_sentence`` is called after each sentence. ``protocols`` and ``baselines`` are as in ``score_parses``.
    ``analyse`` is the task that gives scores and trees, or trees alone (``parse``), and ``compute`` does it. Raises
    ``InputError`` if some sentences have trees and others have none, and if nothing is left to evaluate.
    """
    num_skipped_before = len(skipped or ())
    kept: list[tuple[Sentence, Analysis]] = []
    analysed = in_batches(sentences, partial(compute, lm, analyse), batch_size=batch_size, skipped=skipped)
    if has(lm, TreeConditioned):
        groups = ((group, score_with_trees(lm, group)) for group in batched(sentences, batch_size))
        analysed = (
            (sentence, Analysis(score=score, tree=None))
            for group, found in groups
            for sentence, score in zip(group, found, strict=True)
        )
        notes = (*notes, GIVEN_TREES)
    for sentence, analysis in analysed:
        if analysis is not None:
            kept.append((sentence, analysis))
        on_sentence()
    if not kept:
        raise InputError("no sentence to evaluate", remedy="give a file with at least one good sentence")
    evaluated, analyses = zip(*kept, strict=True)
    scores = [analysis.score for analysis in analyses if analysis.score is not None]
    trees = [analysis.tree for analysis in analyses if analysis.tree is not None]
    counts = Counter(word for sentence in evaluated for word in sentence.words)
    result = EvaluationResult(
        system=lm.system,
        split=split,
        num_sentences=len(evaluated),
        num_words=counts.total(),
        num_skipped=len(skipped or ()) - num_skipped_before,
        perplexities=(perplexity(scores),) if scores else (),
        coverage=Coverage.of(lm.vocabulary, counts, scores),
        notes=tuple(notes),
        sentences=evaluated,
        analyses=analyses,
    )
    if scores and (not trees or evaluated[0].tree is None or all(map(is_unparsed, map(gold_bracketing, evaluated)))):
        return replace(result, notes=(*notes, NO_GOLD)) if trees else result
    gold, labels = [*map(gold_bracketing, evaluated)], lm.labels if has(lm, Parser) and lm.predicts_labels else ()
    found = score_parses(gold, trees, labels=labels, protocols=protocols, baselines=baselines)
    found["notes"] = (*notes, *found["notes"])
    return replace(result, **found, own=lm.own_metrics(evaluated) if isinstance(lm, OwnMetrics) else {})


def score_parses(
    gold: Sequence[Bracketing],
    predicted: Sequence[Tree],
    *,
    labels: Collection[str] = (),
    protocols: Sequence[SpanProtocol] | None = None,
    baselines: bool = True,
    num_seeds: int = 5,
) -> dict[str, Any]:
    """Compute the metrics of a model's parses, whose words have no tags, by their names in ``EvaluationResult``.

    Sentences without a gold tree, which are written as (UNPARSED word ...), are left out. ``labels`` are those that
    the model knows; F1 is labelled if there is more than one. Without ``protocols``, F1 is by those that the
    literature uses for such trees. With ``baselines``, trivial trees are scored too, random ones with ``num_seeds``
    seeds, and if all predicted trees are binary, the highest F1 that binary trees can reach. Raises ``InputError`` if
    the numbers of trees differ, and if no sentence has a gold tree.
    """
    is_labeled = len(labels) > 1
    if protocols is None:
        protocols = (WSJ10, WSJ40, PLAIN, *(() if is_labeled else (NO_PUNCTUATION, BINARISED)))
    trees, notes = [bracketing_of(tree) for tree in predicted], list[str]()
    num_unparsed = sum(map(is_unparsed, gold))
    if gold and num_unparsed == len(gold):
        raise InputError("no sentence has a gold tree", where=gold[0].where, remedy="evaluate on brackets or CoNLL-U")
    if num_unparsed and len(gold) == len(trees):
        pairs = [pair for pair in zip(gold, trees, strict=True) if not is_unparsed(pair[0])]
        gold, trees = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        notes = [f"sentences without a gold tree ({UNPARSED}), in no F1: {num_unparsed}"]
    options = {"random_distances": not is_labeled, "upper_bound": all(map(is_binary, predicted))}
    trivial = (trivial_baselines(gold, one, num_seeds=num_seeds, **options) for one in (protocols if baselines else ()))
    return {
        "unknown_labels": count_unknown_labels(gold, labels) if is_labeled else {},
        "bracketing": (score_bracketings(gold, trees, COLLINS if is_labeled else COLLINS.unlabeled()),),
        "spans": tuple(score_spans(gold, trees, protocol) for protocol in protocols),
        "baselines": tuple(chain.from_iterable(trivial)),
        "notes": notes,
    }


def count_unknown_labels(gold: Iterable[Bracketing], labels: Collection[str]) -> dict[str, int]:
    """Count the gold constituents whose label, without function tags, is not known, the most frequent label first."""
    known = set(labels)
    counts = Counter(strip_function(span.label) for sentence in gold for span in sentence.spans)
    return {label: count for label, count in counts.most_common() if label not in known}


def evaluate_run(
    run: Path,
    recipe: Recipe,
    settings: EvaluationSettings = AS_THE_RECIPE,
    *,
    skipped: list[InputError] | None = None,
    protocols: Sequence[SpanProtocol] | None = None,
    baselines: bool = True,
    scores: bool = True,
    on_sentence: Callable[[], None] = lambda: None,
) -> list[EvaluationResult]:
    """Evaluate a trained run on the splits of its recipe, or on the files that the settings name.

    ``recipe`` is that of the run as the settings change it (``changed_recipe``). ``skipped`` collects the errors of
    sentences that are left out; without it, the first one is raised. ``protocols`` replace those of the settings. With
    ``baselines``, trivial trees are scored too. Without ``scores``, only trees are computed, which may be faster.
    ``on_sentence`` is called after each sentence. Raises ``InputError`` for settings about trees if the run has none,
    and for data that cannot be read or evaluated.
    """
    config, files = recipe.evaluation, settings.data
    lm = load(run, device=settings.device)
    set_search(lm, recipe.search)
    of_trees = settings.of_trees or ("" if scores else "perplexity = false")
    if of_trees and not has(lm, Parser):
        raise InputError(f"{of_trees}, but {why_not(lm, Parser)}", remedy=f"remove {of_trees}")
    if config.stream != "no":
        require_context(lm, config, fixed_rows=settings.stream_rows is not None)
    notes = (*_choose_builder(lm, config.tree_builder), *_choose_gates(lm, hard=config.hard_gates))
    names, missing = (files, ()) if files else _splits(recipe)
    notes = (*notes, *(f"the recipe has no {split} data" for split in missing))
    if protocols is None and settings.protocol:
        protocols = [PROTOCOLS[one] for one in settings.protocol]
    trained_on = recipe_of_model(run).data  # those of ``recipe`` may be read with other options
    found = []
    with model_workers(str(run), settings.processes) as compute:
        for name in names:
            evaluation = None
            path, options = locate_split(recipe.data, name, settings.format if files else None)
            if config.stream != "only":
                sentences = read_sentences(path, options, skipped=skipped)
                corpus = "" if files else recipe.data.corpus or ""
                about_trees = _about_trees(corpus, name, path, options.format_for(str(path))) if has(lm, Parser) else ()
                evaluation = evaluate_sentences(
                    lm,
                    islice(sentences, config.max_sentences),
                    split=name,
                    skipped=skipped,
                    notes=(*about_trees, *notes),
                    protocols=protocols,
                    baselines=baselines,
                    on_sentence=on_sentence,
                    analyse=LanguageModel.analyse if scores else parse,
                    compute=compute,
                )
            if config.stream != "no":
                on_error = recipe.data.on_error if skipped is None else "skip"
                text = prepared([path], options=options, on_error=on_error, max_sentences=config.max_sentences)
                stream = evaluate_stream(lm, text, recipe, split=name)
                if evaluation is None:
                    stream = replace(stream, sentences=tuple(text.sentences()))
                    if skipped is not None:
                        skipped += text.skipped
                evaluation = stream if evaluation is None else evaluation.with_stream(stream)
            assert evaluation is not None
            learned = _training_note(lm, trained_on, path, options, [one.words for one in evaluation.sentences])
            for note in learned:
                _logger.warning("%s: %s", name, note)
            searched = str(lm.search) if isinstance(lm, Searching) else ""
            found.append(replace(evaluation, search=searched, notes=(*learned, *evaluation.notes)))
    return found


def _training_note(
    lm: LanguageModel, data: DataConfig, path: Path, options: ReadOptions, sentences: Sequence[Sequence[str]]
) -> tuple[str, ...]:
    """A note if the model was trained on sentences of this file, on all of them or on a part; else nothing.

    ``data`` are those of the run. Where they are at hand and have not changed since training, each sentence is looked
    up in them; else it is only known whether the whole file is what was read in training.
    """
    identity, train = lm.data_identity.get("train"), None
    with suppress(InputError):  # of data that are not here
        train = prepared_split(data, "train")
    if train is not None and identity in (None, train.identity):  # older models did not note it
        seen = _stand_in(train, sentences)
    elif identity is None:
        return ()
    else:
        seen = [False] * len(sentences)
        with suppress(InputError):  # of what can be read once only, or not be kept
            corpus = prepared([path], options=options, on_error="skip", max_sentences=data.max_sentences)
            seen = [corpus.identity == identity] * len(sentences)
    num_words = sum(len(words) for words, is_seen in zip(sentences, seen, strict=True) if is_seen)
    share = num_words / max(1, sum(map(len, sentences)))
    if share < _LEAST_SHARE:
        return ()
    part = "all sentences" if all(seen) else f"{sum(seen):,} of {len(seen):,} sentences, {share:.0%} of the words,"
    return (f"{part} were in the training data: on them, figures measure memorisation, not performance on new text",)


def _stand_in(corpus: PreparedCorpus, sentences: Sequence[Sequence[str]]) -> list[bool]:
    """Tell for each sentence whether the corpus has a sentence of the same words."""
    numbers = {form: number for number, form in enumerate(corpus.forms.to_list())}
    coded = [np.array([numbers.get(word, -1) for word in words], corpus.words.dtype).tobytes() for words in sentences]
    own = np.asarray(corpus.words)
    found = {*coded}.intersection(own[start:end].tobytes() for start, end in pairwise(corpus.word_offsets.tolist()))
    return [one in found for one in coded]


def _about_trees(corpus: str, name: str, path: Path, format: Format) -> tuple[str, ...]:
    """A note if gold trees were not annotated by hand, else nothing; ``corpus`` is empty for files."""
    if corpus == "gum-open":
        return (GUM_NOTES["conllu" if format == "conllu" else "brackets"],)
    parser = parser_of(path)
    note = f"the trees of {corpus or name} are the output of the parser {parser}, not annotated by hand"
    return () if parser is None else (f"{note}: {_AGAINST} those",)


def _choose_builder(lm: LanguageModel, builder: str | None) -> tuple[str, ...]:
    """Choose how a system builds trees, if it has several ways; return a note that says which one it is.

    Raises ``InputError`` for a way that the system does not have.
    """
    known = lm.tree_builders if has(lm, Parser) else {}
    if builder is not None and builder not in known:
        which = f"which has {' or '.join(known)}" if known else "which has no choice"
        remedy = "remove this option"
        raise InputError(f"tree_builder = {builder!r} with {lm.system}, {which}", remedy=remedy)
    if not known or not isinstance(lm, Parser):
        return ()
    lm.tree_builder = builder or lm.tree_builder
    return (known[str(lm.tree_builder)],)


def _choose_gates(lm: LanguageModel, *, hard: bool) -> tuple[str, ...]:
    """Make the gates of a PRPN hard, if that is asked for, and return a note that says so.

    Raises ``InputError`` for a system without such gates.
    """
    if not hard:
        return ()
    if "hard_gates" not in lm.runtime_settings:
        raise InputError(f"hard_gates = true, but {lm.system} has no gates from distances", remedy="remove this option")
    lm.hard_gates = True  # type: ignore[assignment]
    return ("gates are 0 or 1: distances are compared at an infinite temperature",)


def _splits(recipe: Recipe) -> tuple[Sequence[Split], Sequence[Split]]:
    """The splits to evaluate, and the default ones that are left out because the recipe has no data for them."""
    wanted = recipe.evaluation.splits
    if wanted != EvaluationConfig().splits:
        return wanted, ()
    found = [split for split in wanted if recipe.data.has_split(split)]
    return (found, [split for split in wanted if split not in found]) if found else (wanted, ())


def is_unparsed(gold: Bracketing) -> bool:
    """Tell whether this is (UNPARSED word ...), which stands for a sentence without a gold tree."""
    return any(span.label == UNPARSED and span.end - span.start == len(gold.words) for span in gold.spans[:1])
