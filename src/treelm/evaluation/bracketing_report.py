"""Bracketing results as text in EVALB's familiar columns, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from treelm.evaluation.bracketing_result import BracketingResult, SentenceRow, Status, Total, percentage

_RULE = "=" * 76
_STATUS_NUMBER: dict[Status, int] = {"valid": 0, "error": 1, "skipped": 2}


def as_text(result: BracketingResult, *, sentences: bool = True) -> str:
    """The columns and the summary that EVALB prints, with the protocol's name, problems and notes below."""
    lines = [
        "  Sent.                        Matched  Bracket   Cross        Correct Tag",
        " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
        _RULE,
    ]
    lines += [_row(row) for row in result.total.rows] if sentences else []
    lines += [_RULE, _total_row(result.total), "=== Summary ===", "", "-- All --", *_summary(result.total), ""]
    lines += [f"-- len<={result.parameters.cutoff_length} --", *_summary(result.total_up_to_cutoff), ""]
    lines += [f"protocol: {result.protocol}", *(f"note: {note}" for note in result.notes)]
    lines += [f"{row.status}: sentence {row.number}: {row.problem}" for row in result.total.rows if row.problem]
    return "\n".join(lines) + "\n"


def _row(row: SentenceRow) -> str:
    return (
        f"{row.number:4d}  {row.length:3d}    {_STATUS_NUMBER[row.status]}  {row.recall:6.2f} {row.precision:6.2f}   "
        f"{row.matched:3d}    {row.gold_brackets:3d}  {row.predicted_brackets:3d}    {row.crossing:3d}   "
        f"{row.words:4d}  {row.correct_tags:4d}   {percentage(row.correct_tags, row.words):6.2f}"
    )


def _total_row(total: Total) -> str:
    return (
        f"                {total.recall:6.2f} {total.precision:6.2f} {total.matched:6d} {total.gold_brackets:5d} "
        f"{total.predicted_brackets:5d}  {total.crossing:5d}  {total.words:5d} {total.correct_tags:5d}   "
        f"{total.tagging_accuracy:6.2f}"
    )


def _summary(total: Total) -> Iterator[str]:
    counts = {
        "Number of sentence": len(total.rows),
        "Number of Error sentence": total.count("error"),
        "Number of Skip  sentence": total.count("skipped"),
        "Number of Valid sentence": len(total.valid),
    }
    yield from (f"{name:25s} = {count:6d}" for name, count in counts.items())
    figures = {
        "Bracketing Recall": total.recall,
        "Bracketing Precision": total.precision,
        "Bracketing FMeasure": total.f1,
        "Complete match": total.complete_match,
        "Average crossing": total.average_crossing,
        "No crossing": total.no_crossing,
        "2 or less crossing": total.two_or_less_crossing,
        "Tagging accuracy": total.tagging_accuracy,
    }
    yield from (f"{name:25s} = {figure:6.2f}" for name, figure in figures.items())


def as_json(result: BracketingResult, *, sentences: bool = True) -> dict[str, Any]:
    """The same figures, unrounded, as JSON values; percentages are in 0..100."""
    everything: dict[str, Any] = {
        "protocol": result.protocol,
        "parameters": result.parameters.name,
        "labeled": result.parameters.labeled,
        "predicted_tags": result.predicted_tags,
        "all": _total_json(result.total),
        "up_to_cutoff": {"cutoff_length": result.parameters.cutoff_length, **_total_json(result.total_up_to_cutoff)},
        "notes": list(result.notes),
        "problems": [
            {"number": row.number, "where": row.where, "status": row.status, "problem": row.problem}
            for row in result.total.rows
            if row.problem
        ],
    }
    return everything | ({"sentences": [_row_json(row) for row in result.total.rows]} if sentences else {})


def _total_json(total: Total) -> dict[str, Any]:
    return {
        "num_sentences": len(total.rows),
        "num_errors": total.count("error"),
        "num_skipped": total.count("skipped"),
        "num_valid": len(total.valid),
        "matched": total.matched,
        "gold_brackets": total.gold_brackets,
        "predicted_brackets": total.predicted_brackets,
        "recall": total.recall,
        "precision": total.precision,
        "f1": total.f1,
        "sentence_f1": total.sentence_f1,
        "complete_match": total.complete_match,
        "average_crossing": total.average_crossing,
        "no_crossing": total.no_crossing,
        "two_or_less_crossing": total.two_or_less_crossing,
        "tagging_accuracy": total.tagging_accuracy,
    }


def _row_json(row: SentenceRow) -> dict[str, Any]:
    return {
        "number": row.number,
        "status": row.status,
        "length": row.length,
        "matched": row.matched,
        "gold_brackets": row.gold_brackets,
        "predicted_brackets": row.predicted_brackets,
        "recall": row.recall,
        "precision": row.precision,
        "f1": row.f1,
        "crossing": row.crossing,
        "words": row.words,
        "correct_tags": row.correct_tags,
    }
