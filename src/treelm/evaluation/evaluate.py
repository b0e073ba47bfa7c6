"""One call for each thing that users evaluate: two bracket files, or a model's parses and scores of one split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treelm.evaluation.bracket_lines import Bracketing, Layout, bracketing_of, read_bracketings
from treelm.evaluation.bracketing import PredictedTags, score_bracketings
from treelm.evaluation.bracketing_result import BracketingResult
from treelm.evaluation.parameters import COLLINS, Parameters
from treelm.evaluation.perplexity import perplexity, sum_scores
from treelm.evaluation.report import EvaluationResult
from treelm.evaluation.span_protocols import PLAIN, WSJ10, WSJ40, SpanProtocol, score_spans
from treelm.evaluation.trivial_baselines import trivial_baselines
from treelm.trees.brackets import BracketedTree
from treelm.trees.transforms import strip_function

if TYPE_CHECKING:
    from treelm.models.base import SentenceScore
    from treelm.trees.tree import Tree


def evaluate_files(
    gold: Path,
    predicted: Path,
    parameters: Parameters = COLLINS,
    *,
    predicted_tags: PredictedTags = "auto",
    tagless_predicted: bool = False,
    layout: Layout = "auto",
) -> BracketingResult:
    """Score one bracket file against another as EVALB does. Raises ``InputError`` for files that cannot be compared."""
    return score_bracketings(
        read_bracketings(gold, layout=layout),
        read_bracketings(predicted, tagless=tagless_predicted, layout=layout),
        parameters,
        predicted_tags=predicted_tags,
    )


def gold_bracketing(read: BracketedTree, *, source: str = "") -> Bracketing:
    """A gold tree as the treebank reader gives it (normal form, outer bracket gone) with the tags of its words."""
    return bracketing_of(read.tree, tags=read.tags, where=f"{source}:{read.line}")


def evaluate_parses(
    gold: Sequence[Bracketing],
    predicted: Sequence[Tree],
    *,
    system: str,
    split: str,
    scores: Sequence[SentenceScore] | None = None,
    labels: Collection[str] = (),
    parameters: Parameters = COLLINS,
    protocols: Sequence[SpanProtocol] = (WSJ10, WSJ40, PLAIN),
    num_seeds: int = 5,
    num_skipped: int = 0,
    notes: Sequence[str] = (),
    own: Mapping[str, float] | None = None,
) -> EvaluationResult:
    """Every figure of a model's parses (whose words carry no tags) and, if given, of its scores of the same sentences.

    ``labels`` are those that the model knows. With one or none, which tells constituents apart no better than none,
    labels are ignored in matching and the result says so in its protocol. Raises ``InputError`` when there are not as
    many trees as gold trees.
    """
    is_labeled = len(labels) > 1
    trees = [bracketing_of(tree) for tree in predicted]
    sums = None if scores is None else sum_scores(scores, (sentence.words for sentence in gold))
    return EvaluationResult(
        system=system,
        split=split,
        num_sentences=len(gold),
        num_words=sum(len(sentence.words) for sentence in gold),
        num_skipped=num_skipped,
        unknown_labels=count_unknown_labels(gold, labels) if is_labeled else {},
        perplexities=() if sums is None else (perplexity(sums, policy="with_end"),),
        bracketing=(score_bracketings(gold, trees, parameters if is_labeled else parameters.unlabeled()),),
        spans=tuple(score_spans(gold, trees, protocol) for protocol in protocols),
        baselines=tuple(
            row
            for protocol in protocols
            for row in trivial_baselines(gold, protocol, num_seeds=num_seeds, random_distances=not labels)
        ),
        own=own or {},
        notes=tuple(notes),
    )


def evaluate_scores(
    sentences: Sequence[Sequence[str]],
    scores: Sequence[SentenceScore],
    *,
    system: str,
    split: str,
    num_skipped: int = 0,
    notes: Sequence[str] = (),
) -> EvaluationResult:
    """Perplexity alone: for a model without trees, or sentences without gold trees."""
    return EvaluationResult(
        system=system,
        split=split,
        num_sentences=len(sentences),
        num_words=sum(map(len, sentences)),
        num_skipped=num_skipped,
        perplexities=(perplexity(sum_scores(scores, sentences), policy="with_end"),),
        notes=tuple(notes),
    )


def count_unknown_labels(gold: Iterable[Bracketing], labels: Collection[str]) -> dict[str, int]:
    """Gold constituents whose label (function tags cut) is not among the labels, most frequent first."""
    known = set(labels)
    counts = Counter(strip_function(span.label) for sentence in gold for span in sentence.spans)
    return {label: count for label, count in counts.most_common() if label not in known}
