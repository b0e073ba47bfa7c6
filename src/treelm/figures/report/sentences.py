"""Chosen sentences in every system: trees that align, surprisals, and what only one system has."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from treelm.evaluation.comparison.metrics import Comparison, SentenceAnalysis
from treelm.figures.markup import Markup, element, join
from treelm.figures.report.beams import analyses_list
from treelm.figures.report.parts import (
    CARD_MARGINS,
    Section,
    card,
    details,
    figure,
    looks_of,
    run_name,
    scrolled,
)
from treelm.figures.report.structures import PICTURES
from treelm.figures.report.surprisals import Row, surprisal_table
from treelm.figures.report.trees import TreeColumns, draw_tree
from treelm.models.scores import PartialAnalysis
from treelm.models.structures import Structure
from treelm.trees.tree import MAX_SVG_HEIGHT, Tree

Shown = tuple[str, int, SentenceAnalysis]
"""A run's name, its look, and its analysis of a sentence."""


def sentence_sections(comparison: Comparison) -> Iterator[Section]:
    """A section for each sentence."""
    looks = looks_of(comparison)
    given = {row.name for row in comparison.runs if row.needs_trees}
    count = max((len(row.sentences) for row in comparison.runs), default=0)
    for number in range(count):
        shown = [
            (row.name, looks[row.name], row.sentences[number]) for row in comparison.runs if len(row.sentences) > number
        ]
        sentence = " ".join(shown[0][2].words)
        parts = (_surprisals(shown, given), _trees(shown), *map(_beam, shown), *_own(shown))
        content = join(*(part for part in parts if part is not None))
        quoted = element("blockquote", sentence)
        yield Section(
            identifier=f"sentence-{number + 1}",
            title=f"Sentence {number + 1}",
            content=details(quoted, content) if number else join(quoted, content),
        )


def _surprisals(shown: list[Shown], given: Collection[str]) -> Markup | None:
    """Chart and table of surprisals; ``given`` are the runs that predict words with their trees."""
    scored = [(name, look, one.bits) for name, look, one in shown if one.bits is not None]
    if not scored:
        return None
    words = shown[0][2].words
    rows = [
        Row(
            head=run_name(name, look),
            name=name,
            look=look,
            bits=bits.surprisal_bits,
            is_unknown=bits.is_unk,
            more=(f"{bits.end_surprisal_bits:.1f}", f"{bits.total_bits:.1f}"),
        )
        for name, look, bits in scored
    ]
    content = scrolled(surprisal_table(words, ("(end)", "sum"), rows), "surprisal over words")
    bounds = [name for name, _, bits in scored if bits.is_upper_bound]
    names = [name for name, _, _ in scored]
    caption = _condition([one for one in names if one not in given], [one for one in names if one in given])
    if bounds:
        caption += f"Upper bounds, by a search that finds part of the probability: {', '.join(bounds)}. "
    caption += "An unknown word (*) is predicted as its class, which takes fewer bits than the word would."
    return figure(content, caption)


def _condition(by_words: list[str], by_trees: list[str]) -> str:
    """Begin a caption by saying what the surprisals of a chart are conditional on."""
    lines = "in bits, all models on one scale. "
    with_trees = (
        "the words before it and the constituents that end there in the file's tree, which has seen what follows"
    )
    if not by_trees:
        return f"Surprisal of every word given the words before it, {lines}"
    if not by_words:
        return f"Surprisal of every word given {with_trees}, {lines}"
    return f"Surprisal of every word given the words before it (of {', '.join(by_trees)}: given {with_trees}), {lines}"


def _trees(shown: list[Shown]) -> Markup | None:
    found = [(name, look, Tree.parse(one.tree)) for name, look, one in shown if one.tree is not None]
    found = [one for one in found if one[2].height <= MAX_SVG_HEIGHT]
    if not found:
        return None
    words = shown[0][2].words
    gold = next((Tree.parse(one.gold) for _, _, one in shown if one.gold is not None), None)
    columns = TreeColumns(words, [*(tree for _, _, tree in found), *([] if gold is None else [gold])])
    cards = [
        card(run_name(name, look), draw_tree(tree, columns, f"tree of {name}", gold), f"tree of {name}")
        for name, look, tree in found
    ]
    caption = "The tree that each system finds, words in the same places. Without labels: the system predicts none."
    if gold is not None:
        cards.insert(0, card("tree of the file", draw_tree(gold, columns, "tree of the file"), "tree of the file"))
        caption += " Dashed: constituents that the tree of the file does not have."
    narrowest = f"--narrowest:{columns.width + CARD_MARGINS:.0f}px"
    return figure(element("div", *cards, class_="cards", style=narrowest), caption)


def _beam(shown: Shown) -> Markup | None:
    """The partial trees that a search held, word by word."""
    name, look, analysis = shown
    if not analysis.beam:
        return None
    steps = []
    for place, kept in enumerate(analysis.beam):
        read = analysis.words[: place + 1]
        found = [PartialAnalysis(tree=Tree.parse(one.tree), share=one.share) for one in kept]
        steps.append(element("li", element("h3", " ".join(read)), analyses_list(found, read, name, look)))
    caption = (
        "Partial trees that the search held after each word, the most probable ones, with their probabilities given "
        "the words. Constituents whose line goes on to the right are open."
    )
    content = figure(element("ol", *steps, class_="steps"), caption)
    return details(join(run_name(name, look), ": the beam, word by word"), content)


def _structures(analysis: SentenceAnalysis) -> list[Structure]:
    """What an analysis keeps of a system's ``structure``."""
    kept = (analysis.distances, analysis.attention, analysis.memory, analysis.sight, analysis.tape)
    return [one for one in kept if one is not None]


def _own(shown: list[Shown]) -> Iterator[Markup]:
    """The pictures that only some systems have: a card for each of these systems."""
    for one in PICTURES:
        found = ((name, look, one.of(_structures(analysis))) for name, look, analysis in shown)
        cards = [
            card(run_name(name, look), one.draw(structure), f"{one.name} of {name}")
            for name, look, structure in found
            if structure is not None
        ]
        if cards:
            yield join(one.key, figure(element("div", *cards, class_=one.layout), one.caption))
