"""Bracketing scores by the rules of EVALB (Sekine & Collins 1997): sentence by sentence, in total, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Self

from treelm.errors import InputError
from treelm.evaluation.evalb_files import COLLINS, Bracketing, Parameters
from treelm.trees.brackets import unescape
from treelm.trees.span_counts import harmonic_mean
from treelm.trees.tree import Span
from treelm.trees.treebanks import EMPTY_TAG

Status = Literal["valid", "error", "skipped"]


def percentage(part: float, whole: float) -> float:
    """Return ``part`` in hundredths of ``whole``; 0 of nothing is 0."""
    return 100.0 * part / whole if whole else 0.0


@dataclass(frozen=True, kw_only=True)
class BracketCounts:
    """Counts of brackets and words after deletion, of one sentence or of many; from them follow percentages."""

    matched: int = 0
    gold_brackets: int = 0
    predicted_brackets: int = 0
    crossing: int = 0  # predicted brackets that cross a gold bracket
    words: int = 0
    correct_tags: int = 0  # words with the tag that gold has
    recall: float = field(init=False)
    precision: float = field(init=False)
    f1: float = field(init=False)  # of many sentences at corpus level: what EVALB prints and papers report
    tagging_accuracy: float = field(init=False)

    def __post_init__(self) -> None:
        """Compute recall, precision, F1 and tagging accuracy, 0..100, from the counts."""
        recall = percentage(self.matched, self.gold_brackets)
        precision = percentage(self.matched, self.predicted_brackets)
        accuracy = percentage(self.correct_tags, self.words)
        found = {"recall": recall, "precision": precision, "f1": harmonic_mean(precision, recall)}
        vars(self).update(found, tagging_accuracy=accuracy)


@dataclass(frozen=True, kw_only=True)
class SentenceRow(BracketCounts):
    """One sentence. Counts of an error sentence and of a skipped one are 0, except ``length``."""

    number: int  # from 1
    where: str
    status: Status
    problem: str | None = None
    length: int  # words of the gold tree, without those that do not count for length


@dataclass(frozen=True, kw_only=True)
class Total(BracketCounts):
    """Sums and metrics over the valid sentences. Metrics are in percent unless they are counts."""

    rows: tuple[SentenceRow, ...]
    sentence_f1: float  # mean of the sentences' F1 (not a metric of EVALB)
    complete_match: float  # sentences whose brackets all match, also those without any
    average_crossing: float  # crossing brackets a sentence
    no_crossing: float  # sentences without a crossing bracket
    two_or_less_crossing: float

    @classmethod
    def of(cls, rows: Sequence[SentenceRow]) -> Self:
        """Add up the valid sentences."""
        valid = [row for row in rows if row.status == "valid"]
        complete = [row.matched == row.gold_brackets == row.predicted_brackets for row in valid]
        crossing = [row.crossing for row in valid]
        return cls(
            rows=tuple(rows),
            sentence_f1=percentage(sum(row.f1 for row in valid), 100 * len(valid)),
            complete_match=percentage(sum(complete), len(valid)),
            average_crossing=sum(crossing) / max(len(valid), 1),
            no_crossing=percentage(crossing.count(0), len(valid)),
            two_or_less_crossing=percentage(sum(number <= 2 for number in crossing), len(valid)),
            **{one.name: sum(getattr(row, one.name) for row in valid) for one in fields(BracketCounts) if one.init},
        )

    def count(self, status: Status) -> int:
        """Number of sentences with this status."""
        return sum(row.status == status for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class BracketingResult:
    """Scores of all sentences, in total and of short ones, and notes that help to interpret them."""

    parameters: Parameters
    total: Total
    total_up_to_cutoff: Total
    predicted_tags: Literal["own", "gold"]
    notes: tuple[str, ...] = ()

    @property
    def protocol(self) -> str:
        """The name that goes with every metric."""
        return f"evalb ({self.parameters.name}, {'labelled' if self.parameters.labeled else 'unlabelled'})"


def score_bracketings(
    gold: Sequence[Bracketing],
    predicted: Sequence[Bracketing],
    parameters: Parameters = COLLINS,
) -> BracketingResult:
    """Score predicted sentences against gold ones as EVALB does; a sentence that cannot be compared is an error row.

    Words are deleted by their tags, on each side by its own. Where predicted words have only the unknown tag and gold
    words have others, predicted words get the gold tags, and a note says so. Raises ``InputError`` if the numbers of
    sentences differ.
    """
    if len(gold) != len(predicted):
        raise InputError(
            f"{len(gold)} gold trees but {len(predicted)} predicted ones",
            where=predicted[0].where if predicted else None,
            remedy="give one predicted tree for each gold tree, an empty line where there is none",
        )
    tagless = not any(sentence.has_tags for sentence in predicted)
    tags: Literal["own", "gold"] = "gold" if tagless and any(sentence.has_tags for sentence in gold) else "own"
    rows = tuple(
        score_sentence(one_gold, _with_gold_tags(one_gold, one) if tags == "gold" else one, parameters, number=number)
        for number, (one_gold, one) in enumerate(zip(gold, predicted, strict=True), start=1)
    )
    short = tuple(row for row in rows if row.length <= parameters.cutoff_length)
    return BracketingResult(
        parameters=parameters,
        total=Total.of(rows),
        total_up_to_cutoff=Total.of(short),
        predicted_tags=tags,
        notes=tuple(_notes(gold, predicted, parameters, rows, tags)),
    )


def score_sentence(
    gold: Bracketing, predicted: Bracketing, parameters: Parameters = COLLINS, *, number: int = 1
) -> SentenceRow:
    """Score one sentence; words that cannot be aligned make an error row, a tree without words a skipped one.

    ``-LRB-`` and ``(`` are the same word, and so are the other escapes of brackets (to EVALB they are not).

    >>> from treelm.evaluation.evalb_files import parse_bracketing
    >>> gold = parse_bracketing("(S (NP (D the) (N cat)) (VP (V sat)))")
    >>> row = score_sentence(gold, parse_bracketing("(S (NP (D the)) (VP (N cat) (V sat)))"))
    >>> row.matched, row.gold_brackets, row.crossing
    (1, 3, 1)
    """
    keep = [[tag not in parameters.delete_labels for tag in side.tags] for side in (gold, predicted)]
    if sum(keep[0]) != sum(keep[1]) > 0:
        _mend_quotes([_quotes(side, parameters) for side in (gold, predicted)], keep)
    left, right = gold.over(keep[0]), predicted.over(keep[1])
    status, problem = _comparability(left, right, parameters)
    length = sum(tag not in parameters.delete_labels_for_length for tag in gold.tags)
    row = SentenceRow(number=number, where=predicted.where, status=status, problem=problem, length=length)
    if status != "valid":
        return row
    gold_spans, predicted_spans = _brackets(left, parameters), _brackets(right, parameters)
    return replace(
        row,
        matched=_num_matched(gold_spans, predicted_spans, parameters),
        gold_brackets=len(gold_spans),
        predicted_brackets=len(predicted_spans),
        crossing=_num_crossing(gold_spans, predicted_spans),
        words=len(left.words),
        correct_tags=sum(map(parameters.same_label, left.tags, right.tags)),
    )


def _comparability(gold: Bracketing, predicted: Bracketing, parameters: Parameters) -> tuple[Status, str | None]:
    """Align the words that both sides keep; return a status, and the reason if it is not valid."""
    for side, name in ((gold, "gold"), (predicted, "predicted")):
        if side.problem is not None:
            return "error", f"the {name} tree cannot be read: {side.problem}"
    if not predicted.words:
        return "skipped", "the predicted tree has no words after deletion"
    if len(gold.words) != len(predicted.words):
        return "error", f"{len(gold.words)} gold words but {len(predicted.words)} predicted ones after deletion"
    for gold_word, predicted_word in zip(gold.words, predicted.words, strict=True):
        if not parameters.same_word(unescape(gold_word), unescape(predicted_word)):
            return "error", f"gold word {gold_word!r} but predicted word {predicted_word!r}"
    return "valid", None


def _brackets(kept: Bracketing, parameters: Parameters) -> list[Span]:
    """The constituents that count, in the order in which they open; labels are cut before their first - or =."""
    spans = [span._replace(label=span.label.partition("-")[0].partition("=")[0]) for span in kept.spans]
    return [span for span in spans if not parameters.deletes_constituent(span.label)]


def _quotes(side: Bracketing, parameters: Parameters) -> list[int]:
    """Positions of words that may be a quote or something else."""
    pairs = enumerate(zip(side.words, side.tags, strict=True))
    return [i for i, (word, tag) in pairs if word in ("'", '"', "/") and tag in parameters.quote_labels]


def _mend_quotes(quotes: Sequence[Sequence[int]], keep: Sequence[list[bool]]) -> None:
    """Keep quotes that one side deletes, if the other side tags them differently and does not (``QUOTE_LABEL``).

    ``quotes`` and ``keep`` are of the gold side and of the predicted one.
    """
    gold, predicted = keep
    for theirs in quotes[1]:
        index = sum(predicted[:theirs])
        for ours in quotes[0]:
            if sum(gold[:ours]) == index and gold[ours] != predicted[theirs]:
                gold[ours] = predicted[theirs] = True
                break


def _num_matched(gold: Sequence[Span], predicted: Sequence[Span], parameters: Parameters) -> int:
    """Count the gold brackets that match a predicted one with equal span and label.

    Each predicted bracket is used once, so equal brackets of a unary chain match as often as both sides have them.
    """
    free: dict[tuple[int, int], list[str]] = {}
    for span in predicted:
        free.setdefault((span.start, span.end), []).append(span.label)
    matched = 0
    for span in gold:
        labels = free.get((span.start, span.end), [])
        for index, label in enumerate(labels):
            if not parameters.labeled or parameters.same_label(span.label, label):
                del labels[index]
                matched += 1
                break
    return matched


def _num_crossing(gold: Sequence[Span], predicted: Sequence[Span]) -> int:
    """Count the predicted brackets that cross a gold bracket: they overlap, and neither is inside the other."""
    places = {(start, end) for _, start, end in gold}
    return sum(
        any(first < start < last < end or start < first < end < last for first, last in places)
        for _, start, end in predicted
    )


def _with_gold_tags(gold: Bracketing, predicted: Bracketing) -> Bracketing:
    """Predicted words with the gold tags of the same words; gold's empty elements (-NONE-) have no counterpart."""
    tags = [tag for tag in gold.tags if tag != EMPTY_TAG]
    tags = list(gold.tags) if len(gold.tags) == len(predicted.words) else tags
    return predicted.with_tags(tags) if len(tags) == len(predicted.words) else predicted


def _notes(
    gold: Sequence[Bracketing],
    predicted: Sequence[Bracketing],
    parameters: Parameters,
    rows: Sequence[SentenceRow],
    tags: str,
) -> list[str]:
    notes = []
    if tags == "gold":
        notes.append("predicted words carry the gold tags, so tagging accuracy says nothing")
    num_errors = sum(row.status == "error" for row in rows)
    if num_errors > parameters.max_errors:
        notes.append(
            f"{num_errors} error sentences, more than MAX_ERROR {parameters.max_errors}, where EVALB stops; "
            "all sentences are scored here"
        )
    for name, side in (("gold", gold), ("predicted", predicted)):
        num_outer = sum(_has_counted_outer_bracket(sentence, parameters) for sentence in side)
        if num_outer:
            notes.append(
                f"{num_outer} {name} trees have an outer bracket (no label, ROOT, S1 or VROOT) that these parameters "
                "count; delete it with a DELETE_LABEL line if the other side has none"
            )
    return notes


def _has_counted_outer_bracket(sentence: Bracketing, parameters: Parameters) -> bool:
    outer = sentence.spans[0].label if sentence.spans else "S"
    return outer in ("", "ROOT", "S1", "VROOT") and not parameters.deletes_constituent(outer)
