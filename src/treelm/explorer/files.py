"""What is seen on the page as files: a table of surprisals, and one picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treelm.explorer.reading import Look, Step, Words
from treelm.figures.markup import Markup, element, join, size_of, svg_file
from treelm.figures.report.beams import share_text
from treelm.figures.report.parts import NUM_COLOURS, colour_class, text_width
from treelm.figures.report.structures import PICTURES
from treelm.figures.report.trees import TreeColumns, draw_tree
from treelm.io.tables import MISSING, tsv_row
from treelm.trees.tree import MAX_SVG_HEIGHT

COLUMNS = ("model", "system", "sentence_id", "word_id", "word", "surprisal_bits", "is_unk", "unk_class")
_FONT, _MARGIN, _BARS, _GAP = 13, 16, 64, 18
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#bf5f95", "#c48a00", "#3d9cd3", "#4b5263")
_STYLE = """\
text { font: 13px sans-serif; fill: #1d2430; }
.title { font-weight: bold; } .soft, .tree .label, .distances .tick { fill: #596273; font-size: 11px; }
.middle, .tree text, .distances text, .memory text { text-anchor: middle; }
.rule, .axis { stroke: #9aa1ad; } .background { fill: #ffffff; }
.branch { fill: none; stroke: #1d2430; stroke-width: 1.2; } .coming { stroke-dasharray: 2 3; }
.tree .label { paint-order: stroke; stroke: #ffffff; stroke-width: 5px; }
.distances .bar { fill: #3d9cd3; } .distances .end { fill: #d55e00; }
.distances .tick { text-anchor: end; dominant-baseline: central; }
.attention .row, .memory .name { text-anchor: end; } .attention .weight { fill: #0072b2; stroke: #dcdfe5; }
.attention .outside { fill: none; stroke: #dcdfe5; stroke-dasharray: 2 4; }
.memory .cell { fill: #dcecf8; stroke: #5b94be; } .memory .read { fill: #fbeeb5; stroke: #b58a00; }
.memory .split { fill: #f9d9c2; stroke: #d55e00; stroke-width: 2.5; }
.memory .empty { fill: none; stroke: #dcdfe5; stroke-dasharray: 3 3; }
.sight .row, .tape .name { text-anchor: end; } .tape text { text-anchor: middle; }
.sight .seen, .tape .cell { fill: #dcecf8; stroke: #5b94be; }
.sight .own, .tape .read { fill: #fbeeb5; stroke: #b58a00; }
.sight .part, .tape .split { fill: #f9d9c2; stroke: #d55e00; } .sight .hidden { fill: none; stroke: #dcdfe5; }
"""


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
    """The surprisals of a sentence by all models, and what each makes of its first ``num_read`` words, as SVG.

    Nothing outside is needed to show it.
    """
    parts: list[Markup] = []
    width, y = 0.0, float(_MARGIN)
    for block in _blocks(words, sentence, num_read, readings):
        parts.append(element("g", block.content, transform=f"translate({_MARGIN} {y:.0f})"))
        width, y = max(width, block.width), y + block.height + _GAP
    colours = "".join(f".s{number} {{ fill: {colour}; }}\n" for number, colour in enumerate(_COLOURS[:NUM_COLOURS]))
    style = f"<style>{_STYLE}{colours}</style>"
    width, height = width + 2 * _MARGIN, y - _GAP + _MARGIN
    background = element("rect", class_="background", width=width, height=height)
    return svg_file(width, height, f"read along: {' '.join(words)}", [style, background, *parts])


@dataclass(frozen=True)
class _Block:
    """A part of the picture, drawn from (0, 0)."""

    content: Markup
    width: float
    height: float


def _blocks(words: Words, sentence: int, num_read: int, readings: Sequence[Reading]) -> Iterator[_Block]:
    for one in readings:
        if one.refused:
            yield _heading(f"{one.name}: {one.refused}")
    readings = [one for one in readings if not one.refused]
    scored = [one for one in readings if all(step.surprisal_bits is not None for step in one.sentences[sentence])]
    column = max(44.0, *(text_width(word, _FONT) + 10 for word in words))
    if scored:
        yield _heading("Surprisal in bits")
        steps = [one.sentences[sentence] for one in scored]
        finite = [bits for row in steps for step in row if math.isfinite(bits := step.surprisal_bits or 0.0)]
        for one in scored:
            yield _bars(one, words, one.sentences[sentence], column, max([1.0, *finite]))
    if num_read == 0 or not readings:
        return
    read = words[:num_read]
    yield _heading(f"After {' '.join(read)}")
    for one in readings:
        if one.look is not None:
            yield from _drawings(one, one.look, read)


def _heading(text: str) -> _Block:
    return _Block(element("text", text, class_="title", y=_FONT), text_width(text, _FONT) * 1.1, _FONT)


def _bars(one: Reading, words: Words, steps: Sequence[Step], column: float, highest: float) -> _Block:
    base = _FONT + 20 + _BARS
    parts = [element("text", one.name, y=_FONT)]
    for number, (word, step) in enumerate(zip(words, steps, strict=True)):
        bits = step.surprisal_bits or 0.0
        size = _BARS * min(bits / highest, 1.0)
        middle = column * (number + 0.5)
        shape = {"x": middle - 11, "y": base - size, "width": 22, "height": size}
        parts.append(element("rect", class_=colour_class(one.number), **shape))
        mark = "*" if step.unknown_class is not None else ""
        parts.append(element("text", f"{bits:.1f}{mark}", class_="soft middle", x=middle, y=base - size - 4))
        parts.append(element("text", word, class_="middle", x=middle, y=base + _FONT + 3))
    width = column * len(words)
    parts.append(element("line", class_="rule", x1=0, x2=width, y1=base, y2=base))
    return _Block(join(*parts), width, base + _FONT + 6)


def _drawings(one: Reading, look: Look, words: Words) -> Iterator[_Block]:
    """The tree of a model, the beam of a search, and what the tree follows from."""
    if look.tree is not None and look.tree.height <= MAX_SVG_HEIGHT:
        yield _under(f"{one.name}: best tree so far", draw_tree(look.tree, TreeColumns(words, [look.tree]), one.name))
    shown = [each for each in look.analyses if each.tree.height <= MAX_SVG_HEIGHT]
    columns = TreeColumns(words, [each.tree for each in shown])
    for rank, each in enumerate(shown, 1):
        title = f"{one.name}: analysis {rank}, {share_text(each.share)}"
        yield _under(title, draw_tree(each.tree, columns, title, is_open=True))
    for kind in PICTURES:
        if look.structure is not None and kind.of([look.structure]) is not None:
            yield _under(f"{one.name}: {kind.name}", kind.draw(look.structure))


def _under(title: str, drawing: Markup) -> _Block:
    width, height = size_of(drawing)
    parts = (element("text", title, class_="soft", y=_FONT), element("g", drawing, transform="translate(0 20)"))
    return _Block(join(*parts), max(width, text_width(title, _FONT)), height + 20)
