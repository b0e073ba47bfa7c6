"""Tests of syntax in cards: what is kept of SyntaxGym and of BLiMP, and how it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

Record = dict[str, Any]
Told = tuple[list[tuple[str, str]], str]
"""Rows of a table, and a sentence below it."""
ALL_PAIRS = 67_000
"""Pairs of BLiMP."""
GROUPINGS = {"fields": "field", "terms": "linguistics_term"}
"""Groupings of BLiMP that are kept, by the names that records have for them."""
_AS_PUBLISHED = {"syntax/semantics": "syntax_semantics", "s-selection": "argument_structure"}
"""Slips in the file of BLiMP, and the group that the paper counts them in."""


def keep_syntaxgym(found: Mapping[str, Any]) -> Record:
    """The SG score, circuits and suites of ``treelm syntaxgym``."""
    search = found["title"].partition(": ")[2]
    suites = {name: suite["accuracy"] for name, suite in found["suites"].items()}
    return {"search": search, "sg_score": found["sg_score"], "circuits": found["circuits"], "suites": suites}


def keep_pairs(found: Mapping[str, Any]) -> Record:
    """Accuracies of ``treelm pairs`` over all pairs, by field and by linguistic term, with the number of pairs."""
    (search,) = found["notes"]
    paradigms = found["groups"]["UID"].values()
    return {
        "search": search,
        **_counts(found["overall"]["correct"], found["overall"]["pairs"]),
        "num_ties": found["overall"]["ties"],
        "num_with_unknown": found["num_pairs_with_unknown_words"],
        "num_paradigms": len(paradigms),
        "most_pairs_of_a_paradigm": max(paradigm["pairs"] for paradigm in paradigms),
        **{kept: _by_group(found["groups"][grouping]) for kept, grouping in GROUPINGS.items()},
    }


def _by_group(groups: Mapping[str, Mapping[str, int]]) -> dict[str, Record]:
    correct, pairs = Counter[str](), Counter[str]()
    for name, counts in groups.items():
        published = _AS_PUBLISHED.get(name, name)
        correct[published] += counts["correct"]
        pairs[published] += counts["pairs"]
    return {name: _counts(correct[name], pairs[name]) for name in sorted(pairs)}


def _counts(correct: int, pairs: int) -> Record:
    return {"accuracy": correct / pairs, "num_pairs": pairs}


def tell_syntaxgym(record: Record) -> Told:
    """A row for each circuit; the suites in one sentence."""
    rows = [("SyntaxGym: SG score, % right, mean of the 31 suites of six circuits", f"{100 * record['sg_score']:.1f}")]
    rows += [(f"  {name}", f"{100 * share:.1f}") for name, share in record["circuits"].items()]
    suites = ", ".join(f"{name} {100 * share:.0f}" for name, share in record.get("suites", {}).items())
    notes = [*_beam(record), *([f"% of items right by suite: {suites}"] if suites else [])]
    return rows, ": ".join(["SyntaxGym", *(["; ".join(notes)] if notes else [])])


def tell_pairs(record: Record) -> Told:
    """A row for each field and each linguistic term; of how many pairs, in a sentence."""
    rows = [("BLiMP: % of pairs right", f"{100 * record['accuracy']:.1f}")]
    for kept in GROUPINGS:
        rows += [(f"  {_in_words(name)}", f"{100 * one['accuracy']:.1f}") for name, one in record[kept].items()]
    number = f"{record['num_pairs']:,} pairs, up to {record['most_pairs_of_a_paradigm']:,} of each of"
    note = "; ".join([f"BLiMP: {number} {record['num_paradigms']} paradigms", *_beam(record)])
    counts = {"have an unknown word": record["num_with_unknown"], "are ties, which count as wrong": record["num_ties"]}
    return rows, note + "".join(f"; {count:,} {what}" for what, count in counts.items() if count)


def _beam(record: Record) -> list[str]:
    """How a system searched, without its name; nothing for one that does not search."""
    return [beam] if (beam := record["search"].partition(", ")[2]) else []


def pairs_text(record: Record) -> str:
    """An accuracy on BLiMP, with the number of pairs that it is of where these are not all."""
    part = "" if record["num_pairs"] == ALL_PAIRS else f" of {record['num_pairs']:,}"
    return f"{100 * record['accuracy']:.1f}{part}"


def _in_words(name: str) -> str:
    return "syntax and semantics" if name == "syntax_semantics" else name.replace("_", " ")
