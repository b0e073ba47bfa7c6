"""What is seen on the page as files: a table of surprisals, and one picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treelm.explorer.reading import Look, Step, Words
from treelm.figures.report.sentences import drawn_analyses
from treelm.figures.report.templates import share_text
from treelm.figures.structures import PICTURES
from treelm.figures.svg import FONT, Drawing, below, box, colour_class, element, heading, join, text, text_width
from treelm.figures.trees import tree_drawing
from treelm.io.tables import MISSING, tsv_row
from treelm.trees.tree import MAX_SVG_HEIGHT

COLUMNS = ("model", "system", "sentence_id", "word_id", "word", "surprisal_bits", "is_unk", "unk_class")
_BARS = 64


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one model has made of a text."""

    name: str
    system: str
    number: int  # of its look
    sentences: Sequence[Sequence[Step]] = ()  # a step a word
    look: Look | None = None  # at the words in view
    refused: str = ""  # why there is none of these


def surprisal_table(sentences: Sequence[Words], readings: Sequence[Reading]) -> str:
    """A row for each model and word, tab-separated, with a header; nothing is known of one that has refused."""
    lines = [tsv_row(COLUMNS)]
    for one in readings:
        for sentence, words in enumerate(sentences, 1):
            for number, word in enumerate(words, 1):
                known = (MISSING,) * 3 if one.refused else _cells(one.sentences[sentence - 1][number - 1])
                lines.append(tsv_row([one.name, one.system, str(sentence), str(number), word, *known]))
    return "\n".join(lines) + "\n"


def _cells(step: Step) -> tuple[str, str, str]:
    bits = MISSING if step.surprisal_bits is None else f"{step.surprisal_bits:.6f}"
    return bits, str(int(step.unknown_class is not None)), step.unknown_class or MISSING


def picture(words: Words, sentence: int, num_read: int, readings: Sequence[Reading]) -> str:
    """The surprisals of a sentence by all models, and what each makes of its first ``num_read`` words, as SVG."""
    parts = list(_parts(words, sentence, words[:num_read], readings))
    return below(f"read along: {' '.join(words)}", parts, gap=18).file()


def _parts(words: Words, sentence: int, read: Words, readings: Sequence[Reading]) -> Iterator[Drawing]:
    yield from (heading(f"{one.name}: {one.refused}") for one in readings if one.refused)
    readings = [one for one in readings if not one.refused]
    scored = [one for one in readings if all(step.surprisal_bits is not None for step in one.sentences[sentence])]
    if scored:
        yield heading("Surprisal in bits")
        bits = [step.surprisal_bits or 0.0 for one in scored for step in one.sentences[sentence]]
        highest = max([1.0, *filter(math.isfinite, bits)])
        yield from (_bars(one, words, one.sentences[sentence], highest) for one in scored)
    if read and readings:
        yield heading(f"After {' '.join(read)}")
        for one in readings:
            if one.look is not None:
                yield from _drawings(one, one.look, read)


def _bars(one: Reading, words: Words, steps: Sequence[Step], highest: float) -> Drawing:
    column = max(44.0, *(text_width(word) + 10 for word in words))
    base = FONT + 20 + _BARS
    parts = [text(0, FONT, one.name)]
    for number, (word, step) in enumerate(zip(words, steps, strict=True)):
        bits = step.surprisal_bits or 0.0
        size = _BARS * min(bits / highest, 1.0)
        middle = column * (number + 0.5)
        shown = f"{bits:.1f}{'*' if step.unknown_class is not None else ''}"
        parts.append(box(middle - 11, base - size, 22, size, f"bar {colour_class(one.number)}"))
        parts.append(text(middle, base - size - 4, shown, "label middle"))
        parts.append(text(middle, base + FONT + 3, word, "middle"))
    width = column * len(words)
    parts.append(element("line", class_="axis", x1=0, x2=width, y1=base, y2=base))
    return Drawing("plot", one.name, width, base + FONT + 6, join(*parts))


def _drawings(one: Reading, look: Look, words: Words) -> Iterator[Drawing]:
    """The tree of a model, the beam of a search, and what the tree follows from."""
    if look.tree is not None and look.tree.height <= MAX_SVG_HEIGHT:
        yield _under(f"{one.name}: best tree so far", tree_drawing(look.tree, one.name))
    for rank, each in enumerate(drawn_analyses(look.analyses, words, one.name) if look.analyses else (), 1):
        yield _under(f"{one.name}: analysis {rank}, {share_text(each.share)}", each.drawing)
    for kind in PICTURES:
        if look.structure is not None and kind.of([look.structure]) is not None:
            yield _under(f"{one.name}: {kind.name}", kind.draw(look.structure))


def _under(title: str, drawing: Drawing) -> Drawing:
    return below(title, [heading(title, "soft"), drawing], gap=4)
