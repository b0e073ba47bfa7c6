"""Draws the pictures of docs/gallery.md with models that come with the package: ``python scripts/gallery.py``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import treelm
from treelm.evaluation.human import sap
from treelm.evaluation.human.garden_paths import measure_effects
from treelm.evaluation.human.material import score_material
from treelm.explorer.page import Reading, picture
from treelm.explorer.reading import Reader
from treelm.figures.charts import Dot, dot_panels
from treelm.figures.structures import figure_of

FOLDER = Path(__file__).parent.parent / "docs" / "pictures" / "gallery"
GARDEN_PATH = ("While", "the", "man", "hunted", "the", "deer", "ran", "into", "the", "woods", ".")
SENTENCE = "The people who live in the old city want a new museum ."


def of_structure(model: str) -> str:
    """What the tree of the sentence follows from in a model, else the tree."""
    lm = treelm.load(model)
    (tree,) = lm.parse([SENTENCE])
    return figure_of(lm, tree).file()


def reading_along(*models: str, num_read: int) -> str:
    """Surprisals of the garden path, and what models make of its first words."""
    readers = [Reader(name, treelm.load(name)) for name in models]
    try:
        return asyncio.run(_read(readers, num_read))
    finally:
        for reader in readers:
            reader.close()


async def _read(readers: Sequence[Reader], num_read: int) -> str:
    readings = []
    for number, reader in enumerate(readers):
        steps = [await reader.step(GARDEN_PATH[:end]) for end in range(1, len(GARDEN_PATH) + 1)]
        look = await reader.look(GARDEN_PATH[:num_read])
        readings.append(Reading(name=reader.name, number=number, steps=steps, look=look))
    return picture(GARDEN_PATH, num_read, readings)


def effects(model: str, beside: str) -> str:
    """Effects of garden paths in bits at the critical word and the two after it, beside a published model's."""
    subsets = ("garden-path",)
    ours = measure_effects(score_material(treelm.load(model), sap.material(subsets), name=model), subsets)
    published = measure_effects(sap.published(subsets)[beside], subsets)
    places = ("critical word", "one word later", "two words later")
    panels = {
        place: [
            Dot(
                name=effect.title,
                label=model,
                ours=ours.find(effect.name, region).bits,
                spread=1.96 * ours.find(effect.name, region).standard_error,
                published=published.find(effect.name, region).bits,
            )
            for effect in sap.EFFECTS
            if effect.subset in subsets
        ]
        for region, place in enumerate(places)
    }
    return dot_panels(panels, f"Garden paths in bits: {model} (dots) beside {beside} (rings)")


PICTURES: dict[str, Callable[[], str]] = {
    "tree": lambda: of_structure("chart-gum-open"),
    "distances": lambda: of_structure("prpn-open-english"),
    "memory": lambda: of_structure("som-open-english"),
    "spans": lambda: of_structure("palm-open-english"),
    "positions": lambda: of_structure("tg-open-english"),
    "stack": lambda: of_structure("pushdown-open-english"),
    "object": lambda: reading_along("rnng-gum-open", "lstm-gum-open", num_read=6),
    "subject": lambda: reading_along("rnng-gum-open", "lstm-gum-open", num_read=7),
    "garden-paths": lambda: effects("lstm-open-english", "gpt2"),
}
"""What draws each picture, by the name of its file."""


def main(names: Sequence[str]) -> None:
    """Draw pictures, all of them if none is named."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or PICTURES:
        (FOLDER / f"{name}.svg").write_text(PICTURES[name](), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
