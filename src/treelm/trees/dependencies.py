"""CoNLL-U in, and dependency trees as constituency trees (section 4.2 and Fig. 4, Shen et al. 2021).

This is a small reader of our own, because errors must name the line, and one bad sentence must not lose the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from treelm.errors import SKIP, InputError
from treelm.trees.tree import Tree, from_flat

NUM_COLUMNS = 10
_OTHER_ID = re.compile(r"[0-9]++[-.][0-9]++", re.ASCII)  # a range of words that are written as one, or an empty node
_HEAD = re.compile(r"[0-9]{1,9}+", re.ASCII)
_WHITESPACE = re.compile(r"\s", re.ASCII)
_ASCII_SPACES = " \t\r\n\f\v"


@dataclass(frozen=True, kw_only=True, slots=True)
class DependencySentence:
    """The syntactic words of a sentence; ``heads[i]`` is the number of the head of word i, from 1, or 0 for the root.

    Whitespace inside a word form becomes a no-break space, so that all other formats can hold it.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    universal_tags: tuple[str, ...]
    tags: tuple[str, ...]  # XPOS
    identifier: str | None  # sent_id
    text: str | None  # the comment of that name


def read_dependencies(text: str, *, source: str = "<text>", first_line: int = 1) -> DependencySentence | None:
    """The sentence of CoNLL-U between two empty lines; None if there are comments only.

    Ranges (``3-4``) and empty nodes (``8.1``) are left out. Raises ``InputError`` with ``source:line`` for a sentence
    without exactly one root, with a cycle, a missing head or broken columns.
    """
    comments: dict[str, str] = {}
    rows: list[list[str]] = []
    numbers: list[int] = []  # of their lines

    def error(found: str, remedy: str, line: int) -> InputError:
        return InputError(found, where=f"{source}:{line}", remedy=f"{remedy}, {SKIP}")

    for number, line in enumerate(text.split("\n"), first_line):
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            comments[key.strip(_ASCII_SPACES)] = value.strip(_ASCII_SPACES)
            continue
        row = line.rstrip("\r").split("\t")
        if len(row) != NUM_COLUMNS:
            raise error(f"{len(row)} columns", f"CoNLL-U has {NUM_COLUMNS}, separated by tabs", number)
        if _OTHER_ID.fullmatch(row[0]):
            continue
        expected = str(len(rows) + 1)
        if row[0] == "1" and rows:
            raise error(f"word id 1 behind word {len(rows)}", "put a blank line between sentences", number)
        if row[0] != expected:
            raise error(f"word id {row[0]!r} where {expected} was expected", "number the words from 1", number)
        if not row[1].strip(_ASCII_SPACES):
            raise error("a word without a form", "write _ for an unknown form", number)
        if not _HEAD.fullmatch(row[6]):
            raise error(f"head {row[6]!r} is not a number", "give each word a head, the root 0", number)
        rows.append(row)
        numbers.append(number)
    if not rows:
        if all(line.startswith("#") for line in text.split("\n")):
            return None
        raise error("a sentence without words", "give it words", first_line)
    if all(row[1] == "_" for row in rows):
        raise error(
            "every form is _: the text is not supplied", "merge it in as the treebank's README says", numbers[0]
        )
    heads = tuple(int(row[6]) for row in rows)
    for number, head, place in zip(numbers, heads, range(len(heads)), strict=True):
        if head > len(heads):
            raise error(f"head {head} in a sentence of {len(heads)} words", "name a word of the sentence", number)
        if head == 0 and heads.index(0) < place:
            raise error(f"a second root, after word {heads.index(0) + 1}", "keep one root", number)
    if word := _word_in_cycle(heads):
        raise error(f"the heads from word {word} on lead back to it", "break the cycle", numbers[word - 1])
    return DependencySentence(
        words=tuple(_WHITESPACE.sub("\u00a0", row[1]) for row in rows),
        heads=heads,
        universal_tags=tuple(row[3] for row in rows),
        tags=tuple(row[4] for row in rows),
        identifier=comments.get("sent_id"),
        text=comments.get("text"),
    )


def _word_in_cycle(heads: Sequence[int]) -> int | None:
    """The first word found whose chain of heads comes back to it, or None when all chains end at the root."""
    ends_at_root = {0}
    for word in range(1, len(heads) + 1):
        chain = set[int]()
        while word not in ends_at_root:
            if word in chain:
                return word
            chain.add(word)
            word = heads[word - 1]
        ends_at_root |= chain
    return None


def projectivise(heads: Sequence[int]) -> tuple[int, ...]:
    """Heads without crossing arcs.

    While there are non-projective arcs, the shortest one (the leftmost dependent among equals) is lifted: its dependent
    moves up to the head of its head. An arc is projective when its head dominates all words between its ends.
    """
    lifted = list(heads)
    while (dependent := _shortest_crossing(lifted)) is not None:
        lifted[dependent - 1] = lifted[lifted[dependent - 1] - 1]
    return tuple(lifted)


def _shortest_crossing(heads: Sequence[int]) -> int | None:
    """The dependent of the shortest non-projective arc, or None."""
    dependents = _dependents(heads)
    order, todo = list[int](), [0]  # nodes in preorder
    while todo:
        order.append(todo.pop())
        todo += dependents[order[-1]]
    entry, leave = [0] * len(order), [0] * len(order)  # of a node: its place, and that behind all that it dominates
    for place, node in enumerate(order):
        entry[node] = place
    for node in reversed(order):
        leave[node] = max([entry[node] + 1, *(leave[dependent] for dependent in dependents[node])])
    crossing = []
    for dependent, head in enumerate(heads, 1):
        between = entry[min(dependent, head) + 1 : max(dependent, head)] if head else []
        if between and (min(between) < entry[head] or max(between) >= leave[head]):
            crossing.append((len(between), dependent))
    return min(crossing)[1] if crossing else None


def _dependents(heads: Sequence[int]) -> list[list[int]]:
    """The dependents of the root 0 and of each word, left to right."""
    dependents: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for dependent, head in enumerate(heads, 1):
        dependents[head].append(dependent)
    return dependents


def to_constituency(sentence: DependencySentence, *, labels: Literal["plain", "upos"] = "plain") -> Tree:
    """The constituency tree: each word with dependents heads one flat constituent of itself and theirs.

    Words keep their order; non-projective arcs are lifted first. Constituents are labelled ``X``, or with
    ``labels="upos"`` by their head's universal part of speech and ``P``, ``NOUNP`` (``X`` where it is ``_``). A word
    without dependents is a word; a sentence of one word is a constituent of one word.
    """
    heads = projectivise(sentence.heads)
    dependents = _dependents(heads)
    flat: list[str | tuple[str, int]] = []
    todo = [(dependents[0][0], True)]  # a word, and whether with its dependents
    while todo:
        word, whole = todo.pop()
        if not whole or (len(heads) > 1 and not dependents[word]):
            flat.append(sentence.words[word - 1])
        else:
            flat.append((_label(sentence, word, labels), 1 + len(dependents[word])))
            todo += [(child, child != word) for child in sorted([*dependents[word], word], reverse=True)]
    return from_flat(flat)


def _label(sentence: DependencySentence, word: int, labels: Literal["plain", "upos"]) -> str:
    tag = sentence.universal_tags[word - 1]
    return f"{tag}P" if labels == "upos" and tag != "_" else "X"
