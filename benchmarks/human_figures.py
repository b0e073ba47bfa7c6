"""What a model's surprisals are worth: the commands that measure it, what is kept of their output, how it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from syntax_figures import Record, Told, keep_pairs, keep_syntaxgym, tell_pairs, tell_syntaxgym

from treelm.evaluation.intervals import interval

GARDEN_PATHS = {"GPE_MVRR": "MVRR", "GPE_NPS": "NP/S", "GPE_NPZ": "NP/Z"}
BESIDE = {"trigram": "trigram of 13.6 million words", "gpt2": "GPT-2"}
"""Published models of Natural Stories that cards repeat, on the same words."""


class Measure(NamedTuple):
    """A subcommand with its options, what is kept of its JSON, and how a card tells it."""

    command: tuple[str, ...]  # NAME stands for the model, BLIMP and EWT for files
    keep: Callable[[Any], Record]
    tell: Callable[[Record], Told]


def _reading(found: Mapping[str, Any]) -> Record:
    (own,) = (model for model in found["models"] if model["kind"] == "run")
    beside = {model["name"]: model["delta"]["nats_per_word"] for model in found["models"] if model["name"] in BESIDE}
    return {
        "corpus": found["corpus"],
        "delta": {name: own["delta"][name] for name in ("nats_per_word", "low", "high")},
        "beside": beside,
        "num_words": found["num_words"],
        "num_unknown": own["num_unknown"],
        "num_words_of_corpus": found["num_words"] + sum(found["left_out"].values()),
    }


def _garden_paths(found: Mapping[str, Any]) -> Record:
    """Mean over items at the critical word, with half of its 95 % interval."""
    (model,) = found["models"]
    effects = {
        GARDEN_PATHS[one["effect"]]: {
            "bits": one["bits"],
            "interval": interval(list(one["by_item"].values())),
            "num_items": len(one["by_item"]),
            "num_unknown": one["num_unknown"],
        }
        for one in model["effects"]
        if one["region"] == 0
    }
    return {"effects": effects}


def _tell_reading(record: Record) -> Told:
    unknown = f"{record['num_unknown']:,} of {record['num_words_of_corpus']:,}"
    rows = [
        ("Natural Stories: gain in log likelihood of reading times, 10^-3 nats a word, 95 % interval", milli(record)),
        *((f"  {BESIDE[name]}, same words", f"{1000 * value:.2f}") for name, value in record["beside"].items()),
        ("  words that it does not know", unknown),
    ]
    baseline = "length, frequency, punctuation and place"
    said = f"Surprisals {said_of_reading(record)} the prediction of reading times by {baseline}"
    return rows, f"{said}; {record['num_words']:,} words compared"


def said_of_reading(record: Record) -> str:
    """What surprisals do to the prediction of reading times, no more than the interval says."""
    low, high = record["delta"]["low"], record["delta"]["high"]
    return "add to" if low > 0 else "take away from" if high < 0 else "were not shown to add to"


def _tell_garden_paths(record: Record) -> Told:
    rows = [
        (f"garden path {name}: bits at the critical word, 95 % interval", effect_text(effect))
        for name, effect in record["effects"].items()
    ]
    shown = led_up(record)
    unknown = max(one["num_unknown"] for one in record["effects"].values())
    items = max(one["num_items"] for one in record["effects"].values())
    said = f"A garden-path effect above zero, as people have it: {', '.join(shown) or 'none was shown'}"
    return rows, said + (f"; up to {unknown} of {items} items have an unknown word" if unknown else "")


def led_up(record: Record) -> list[str]:
    """The garden paths whose effect is above zero with its whole interval."""
    return [name for name, one in record["effects"].items() if one["bits"] - (one["interval"] or 0.0) > 0]


def _text(found: Sequence[Mapping[str, Any]]) -> Record:
    """Perplexity of a text with the end of sentences, and how many words were spelled byte by byte."""
    (result,) = found
    (figure,) = result["perplexities"]
    kept = ("perplexity", "bits_per_word", "is_upper_bound")
    return {name: figure[name] for name in kept} | {
        name: result[name] for name in ("num_sentences", "num_words", "num_spelled", "num_unknown")
    }


def _tell_text(name: str) -> Callable[[Record], Told]:
    """How the perplexity of a text of this name is told."""

    def tell(record: Record) -> Told:
        counts = f"of {record['num_words']:,} words {record['num_spelled']:,} spelled byte by byte"
        unknown = f", {record['num_unknown']:,} unknown" if record["num_unknown"] else ""
        return [(f"perplexity of {name}", perplexity_text(record))], f"{name}: {counts}{unknown}"

    return tell


def perplexity_text(record: Record) -> str:
    """A perplexity, marked if it is a bound."""
    return f"{'≤ ' if record['is_upper_bound'] else ''}{record['perplexity']:.1f}"


TEXTS = {
    "modern": ("modern-english, test", "--corpus", "modern-english"),
    "older": ("open-english, test", "--corpus", "open-english"),
}
"""Texts whose perplexity is measured: the name of the measure, of the text, and how ``treelm evaluate`` has it."""
MEASURES = {
    **{
        name: Measure(("evaluate", "NAME", *options, "--split", "test"), _text, _tell_text(text))
        for name, (text, *options) in TEXTS.items()
    },
    "web": Measure(("evaluate", "NAME", "--data", "EWT"), _text, _tell_text("English Web Treebank, test")),
    "syntaxgym": Measure(("syntaxgym", "NAME"), keep_syntaxgym, tell_syntaxgym),
    "blimp": Measure(("pairs", "NAME", "BLIMP"), keep_pairs, tell_pairs),
    "reading": Measure(("reading", "NAME", "--corpus", "natural-stories"), _reading, _tell_reading),
    "gardenpath": Measure(
        ("gardenpath", "NAME", "--subsets", "garden-path", "--references", "none"), _garden_paths, _tell_garden_paths
    ),
}


def worth(measured: Mapping[str, Record]) -> str:
    """The part of a card: a table of what was measured, and what it says, in Markdown."""
    rows: list[tuple[str, str]] = []
    notes: list[str] = []
    for name, measure in MEASURES.items():
        if name in measured:
            own_rows, note = measure.tell(measured[name])
            rows += own_rows
            notes.append(f"* {note} (`{measured[name]['command']}`, {measured[name]['date']})")
    table = "\n".join(["| figure | |", "| --- | ---: |", *(f"| {name} | {value} |" for name, value in rows)])
    return "\n".join([table, "", *notes])


def milli(record: Record) -> str:
    """A gain in 10^-3 nats with its interval."""
    mean, low, high = (1000 * record["delta"][name] for name in ("nats_per_word", "low", "high"))
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def effect_text(effect: Mapping[str, Any]) -> str:
    """An effect in bits with its interval."""
    if not effect["interval"]:  # one item, or the same for all, as of a 5-gram, which sees no garden path
        return f"{effect['bits']:.2f}"
    low, high = effect["bits"] - effect["interval"], effect["bits"] + effect["interval"]
    return f"{effect['bits']:.2f} ({low:.2f} to {high:.2f})"
