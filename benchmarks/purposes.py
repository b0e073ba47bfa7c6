"""What a shipped model is for, said by its figures: its surprisals, its trees, what it knows of syntax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from human_figures import BESIDE, led_up, milli, said_of_reading

from treelm.models.base import LanguageModel

MOST_UNKNOWN = 0.01
"""Share of unknown words above which a model's surprisals are not for studies of reading."""
SMALL = "trying things out, teaching, tests and examples"
TREES = "trees like those that taught it"
UPPER_BOUND = "binary upper bound"
"""The row of baselines that is none: what the best binary trees would have."""


def purpose(lm: LanguageModel, results: Sequence[Mapping[str, Any]], measured: Mapping[str, Any]) -> str:
    """What a model is for, in a line, and below it the figures that say so."""
    uses = [
        *_uses_of_surprisals(measured),
        *([TREES] if getattr(lm, "predicts_labels", False) and _unlabelled_f1(results) else []),
    ]
    lines = [*_of_surprisals(lm, measured), *_of_trees(results)]
    said = f"For {', '.join(uses)}; for {SMALL}." if uses else f"For {SMALL}, not for studies."
    return "\n".join([said, "", *(f"* {line}" for line in lines)])


def _uses_of_surprisals(measured: Mapping[str, Any]) -> Iterator[str]:
    reading, paths = measured.get("reading"), measured.get("gardenpath")
    if reading and reading["delta"]["low"] > 0 and unknown_share(reading) < MOST_UNKNOWN:
        yield "surprisals in studies of how people read"
    if paths and led_up(paths) == list(paths["effects"]) and not _most_unknown_items(paths):
        yield "studies of garden paths"


def _of_surprisals(lm: LanguageModel, measured: Mapping[str, Any]) -> Iterator[str]:
    if not lm.predicts_words:
        yield "It predicts no words, so it has no surprisals."
        return
    if "reading" in measured:
        yield from _of_reading(measured["reading"])
    else:
        yield "Whether its surprisals predict how long people read was not measured."
    if "gardenpath" in measured:
        names = led_up(measured["gardenpath"])
        others = [name for name in measured["gardenpath"]["effects"] if name not in names]
        shown = f"shows a garden-path effect, as people do, in {', '.join(names)}" if names else "shows no garden path"
        yield f"It {shown}" + (f", not in {', '.join(others)}" if names and others else "") + "."
    if "syntaxgym" in measured:
        score = f"{100 * measured['syntaxgym']['sg_score']:.1f}"
        yield f"Its SG score is {score}: % of items right, mean of 31 suites of SyntaxGym."
    if "blimp" in measured:
        share, number = 100 * measured["blimp"]["accuracy"], measured["blimp"]["num_pairs"]
        yield f"Of BLiMP's pairs it has {share:.1f} % right ({number:,} read; chance: 50)."


def _of_reading(record: Mapping[str, Any]) -> Iterator[str]:
    """What surprisals add to the prediction of reading times, beside published models; unknown words."""
    beside = ", ".join(f"{BESIDE[name]} {1000 * value:.1f}" for name, value in record["beside"].items())
    compared = f" (on the same words {beside})" if beside else ""
    gain = f"{milli(record)} x 10^-3 nats a word{compared}"
    yield f"Its surprisals {said_of_reading(record)} the prediction of how long people read Natural Stories: {gain}."
    share = unknown_share(record)
    yield "It knows every word there." if not share else f"{100 * share:.0f} % of the words there are unknown to it."


def unknown_share(record: Mapping[str, Any]) -> float:
    """Share of the words of a corpus of reading times that are unknown to a model."""
    share: float = record["num_unknown"] / record["num_words_of_corpus"]
    return share


def _most_unknown_items(paths: Mapping[str, Any]) -> int:
    return max(effect["num_unknown"] for effect in paths["effects"].values())


def _of_trees(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    found = _unlabelled_f1(results)
    if found is None:
        return
    own, baselines = found
    name, best = max(baselines.items(), key=lambda pair: pair[1])
    verdict = "above" if own > best else "no better than"
    split = results[0]["split"]
    yield f"Its trees have an unlabelled F1 of {own:.1f} on {split}, {verdict} trivial ones ({name}: {best:.1f})."


def _unlabelled_f1(results: Sequence[Mapping[str, Any]]) -> tuple[float, dict[str, float]] | None:
    """Unlabelled F1 of the first split by the plain protocol, and of trivial trees by name; None without trees."""
    rows = results[0]["rows"] if results else {}
    own = next((value for name, value in rows.items() if name.startswith("unlabelled F1, plain")), None)
    if own is None:
        return None
    baselines = {
        name.strip().removesuffix(", plain"): _first(value)
        for name, value in rows.items()
        if name.startswith("  ") and name.endswith(", plain") and " / " in value and UPPER_BOUND not in name
    }
    return _first(own), baselines


def _first(value: str) -> float:
    """Of two figures the first, that of the corpus."""
    return float(value.partition(" / ")[0])
