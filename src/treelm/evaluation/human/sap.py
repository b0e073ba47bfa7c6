"""The SAP benchmark (Huang et al. 2024): sentences, effects on reading times, and its authors' surprisals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from treelm.evaluation.human.corpora import read_columns
from treelm.evaluation.human.material import Material, Surprisals

FOLDER = Path(str(files("treelm"))) / "data" / "sap"
REGIONS = (0, 1, 2)
REGIONS_IN_WORDS = "word 0: the critical one; 1, 2: those after it; of relative clauses verb, determiner, noun"
"""The critical word and the two after it; in relative clauses, verb, determiner and noun."""
_UNKNOWN = "?"


class Effect(NamedTuple):
    """An effect: the difference between two conditions of an item, one hard to read and one easy."""

    name: str  # as the benchmark's tables have it
    title: str
    subset: str
    hard: str
    easy: str


EFFECTS = (
    Effect("GPE_MVRR", "MVRR garden path", "garden-path", "MVRR_AMB", "MVRR_UAMB"),
    Effect("GPE_NPS", "NP/S garden path", "garden-path", "NPS_AMB", "NPS_UAMB"),
    Effect("GPE_NPZ", "NP/Z garden path", "garden-path", "NPZ_AMB", "NPZ_UAMB"),
    Effect("RC", "object - subject relative", "relative-clause", "RC_Obj", "RC_Subj"),
    Effect("Agr", "agreement violated", "agreement", "UNAGREE", "AGREE"),
    Effect("GPE_high", "attachment, high", "attachment", "AttachHigh", "AttachMulti"),
    Effect("GPE_low", "attachment, low", "attachment", "AttachLow", "AttachMulti"),
)
SUBSETS = tuple(dict.fromkeys(effect.subset for effect in EFFECTS))


class Item(NamedTuple):
    """One sentence of an item, and the places of its regions among its words."""

    subset: str
    number: str
    condition: str
    places: tuple[int, ...]
    words: tuple[str, ...]


class HumanEffect(NamedTuple):
    """Milliseconds in self-paced reading: posterior mean and 95 % interval."""

    ms: float
    low: float
    high: float


def _rows(name: str) -> Iterator[Mapping[str, str]]:
    return iter(read_columns(FOLDER / f"{name}.csv.gz").to_dict("records"))


def is_in(subsets: tuple[str, ...], subset: str, condition: str) -> bool:
    """Tell whether a condition is of one of these subsets, or of a kind that is named alone, such as NPZ."""
    return subset in subsets or condition.partition("_")[0] in subsets


@cache
def items(subsets: tuple[str, ...] = SUBSETS) -> tuple[Item, ...]:
    """The sentences of subsets, in the benchmark's order."""
    return tuple(
        Item(
            row["subset"],
            row["item"],
            row["condition"],
            tuple(int(row[f"place_{region}"]) for region in REGIONS),
            tuple(row["sentence"].split(" ")),
        )
        for row in _rows("items")
        if is_in(subsets, row["subset"], row["condition"])
    )


@cache
def human_effects() -> dict[tuple[str, int, str], HumanEffect]:
    """Effects on reading times, by effect, region and item; the item "" stands for all items together."""
    return {
        (row["effect"], int(row["roi"]), row["item"]): HumanEffect(
            *(float(row[name]) for name in ("ms", "lower_95", "upper_95"))
        )
        for row in _rows("human")
    }


@cache
def ceilings() -> dict[tuple[str, int], float]:
    """The highest correlation by item that could be reached, by effect and region."""
    return {(row["effect"], int(row["roi"])): float(row["correlation"]) for row in _rows("ceilings")}


@cache
def material(subsets: tuple[str, ...] = SUBSETS) -> Material:
    """All words of the sentences of subsets, each sentence a document of its own."""
    words = [(item, place, word) for item in items(subsets) for place, word in enumerate(item.words)]
    sentences = tuple(f"{item.subset}-{item.number}-{item.condition}" for item, _, _ in words)
    return Material(
        name="sap",
        key_names=("subset", "item", "condition", "word_pos"),
        keys=tuple((item.subset, item.number, item.condition, str(place)) for item, place, _ in words),
        words=tuple(word for _, _, word in words),
        sentences=sentences,
        documents=sentences,
    )


@cache
def published(subsets: tuple[str, ...] = SUBSETS) -> dict[str, Surprisals]:
    """The surprisals of the benchmark's authors, by model."""
    cells: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    for row in _rows("surprisals"):
        key = row["subset"], row["item"], row["condition"]
        cells.setdefault(row["model"], {})[key] = row["surprisal_bits"].split(" ")
    found = {}
    for name, by_sentence in cells.items():
        own = [cell for item in items(subsets) for cell in by_sentence[item.subset, item.number, item.condition]]
        found[name] = Surprisals(
            name=name,
            kind="published",
            bits=np.array([math.nan if cell == "NA" else float(cell.rstrip(_UNKNOWN)) for cell in own]),
            is_unknown=np.array([cell.endswith(_UNKNOWN) for cell in own]),
        )
    return found
