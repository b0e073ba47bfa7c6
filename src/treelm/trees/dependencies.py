"""CoNLL-U in, and dependency trees as constituency trees (section 4.2 and Fig. 4, Shen et al. 2021).

A small reader of its own instead of a library's, because errors must name the line and one bad sentence must not lose
the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from treelm.errors import InputError
from treelm.trees.tree import Tree, from_flat

NUM_COLUMNS = 10
_WORD_ID = re.compile(r"[1-9][0-9]{0,8}+", re.ASCII)
_OTHER_ID = re.compile(r"[0-9]++[-.][0-9]++", re.ASCII)  # a range of words that are written as one, or an empty node
_HEAD = re.compile(r"[0-9]{1,9}+", re.ASCII)
_BLANKS = " \t\r\n\f\v"
_BLANK = re.compile(f"[{_BLANKS}]")
_READ_ON = "or leave it out with on_error = skip"


@dataclass(frozen=True, kw_only=True, slots=True)
class DependencySentence:
    """The syntactic words of a sentence; ``heads[i]`` is the number of the head of word i, from 1, or 0 for the root.

    A blank inside a word form becomes a no-break space, so that all other formats can hold it.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    universal_tags: tuple[str, ...]
    tags: tuple[str, ...]  # XPOS
    identifier: str | None  # sent_id
    text: str | None  # the comment of that name
    line: int  # of the first line of the sentence, comments included


def iter_dependencies(
    lines: Iterable[str], *, source: str = "<text>", first_line: int = 1
) -> Iterator[DependencySentence | InputError]:
    """Read CoNLL-U, one sentence at a time. Ranges (``3-4``) and empty nodes (``8.1``) are left out.

    Lines are numbered from ``first_line`` on. In the place of a sentence without exactly one root, with a cycle, a
    missing head or broken columns stands an ``InputError`` with ``source:line``.
    """
    for block in _blocks(lines, first_line):
        try:
            sentence = _parse(block, source)
        except InputError as error:
            yield error
        else:
            if sentence is not None:
                yield sentence


def _blocks(lines: Iterable[str], first_line: int) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of each sentence."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines, first_line):
        if number == 1:
            line = line.removeprefix("\ufeff")
        if line.strip(_BLANKS):
            block.append((number, line.rstrip("\r\n")))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _parse(block: list[tuple[int, str]], source: str) -> DependencySentence | None:
    """The sentence; None when there are comments only."""
    comments: dict[str, str] = {}
    rows: list[list[str]] = []
    numbers: list[int] = []
    for number, line in block:
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            comments[key.strip(_BLANKS)] = value.strip(_BLANKS)
        elif (row := _row(line, len(rows) + 1, f"{source}:{number}")) is not None:
            rows.append(row)
            numbers.append(number)
    if not rows:
        if all(line.startswith("#") for _, line in block):
            return None
        raise _error("a sentence without words", "give it words", f"{source}:{block[0][0]}")
    _, words, _, universal_tags, tags, _, _, relations, _, _ = zip(*rows, strict=True)
    return DependencySentence(
        words=tuple(_BLANK.sub("\u00a0", word) for word in words),
        heads=_heads([row[6] for row in rows], numbers, source),
        relations=relations,
        universal_tags=universal_tags,
        tags=tags,
        identifier=comments.get("sent_id"),
        text=comments.get("text"),
        line=block[0][0],
    )


def _row(line: str, expected_id: int, where: str) -> list[str] | None:
    """The columns of a word; None for a range or an empty node."""
    row = line.split("\t")
    if len(row) != NUM_COLUMNS:
        raise _error(f"{len(row)} columns", f"CoNLL-U has {NUM_COLUMNS}, set apart by tabs", where)
    if _OTHER_ID.fullmatch(row[0]):
        return None
    if not _WORD_ID.fullmatch(row[0]) or int(row[0]) != expected_id:
        raise _error(f"word id {row[0]!r} where {expected_id} was expected", "number the words from 1", where)
    if not row[1].strip(_BLANKS):
        raise _error("a word without a form", "write _ for an unknown form", where)
    return row


def _heads(column: Sequence[str], numbers: Sequence[int], source: str) -> tuple[int, ...]:
    """The heads, checked to be a tree with one root."""
    heads: list[int] = []
    for i, text in enumerate(column):
        where = f"{source}:{numbers[i]}"
        if not _HEAD.fullmatch(text):
            raise _error(f"head {text!r} is not a number", "give each word a head, the root 0", where)
        head = int(text)
        if head > len(column):
            raise _error(f"head {head} in a sentence of {len(column)} words", "name a word of the sentence", where)
        if head == 0 and 0 in heads:
            raise _error(f"a second root, after word {heads.index(0) + 1}", "keep one root", where)
        heads.append(head)
    in_cycle = _word_in_cycle(heads)
    if in_cycle is not None:
        found = f"the heads from word {in_cycle} on lead back to it"
        raise _error(found, "break the cycle", f"{source}:{numbers[in_cycle - 1]}")
    return tuple(heads)


def _error(found: str, remedy: str, where: str) -> InputError:
    return InputError(found, where=where, remedy=f"{remedy}, {_READ_ON}")


def _word_in_cycle(heads: Sequence[int]) -> int | None:
    """The number of the first word whose chain of heads comes back to it, or None when all chains end at the root."""
    reached_from = [0] * (len(heads) + 1)  # the word from which a chain first came here
    for word in range(1, len(heads) + 1):
        node = word
        while node and not reached_from[node]:
            reached_from[node] = word
            node = heads[node - 1]
        if node and reached_from[node] == word:
            return min(_chain(node, heads))
    return None


def _chain(start: int, heads: Sequence[int]) -> list[int]:
    """The words of the cycle through ``start``."""
    words = [start]
    while heads[words[-1] - 1] != start:
        words.append(heads[words[-1] - 1])
    return words


def projectivise(heads: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Heads without crossing arcs, and the number of lifts.

    While there are non-projective arcs, the shortest one (the leftmost dependent among equals) is lifted: its dependent
    moves up to the head of its head. An arc is projective when its head dominates all words between its ends.
    """
    lifted = list(heads)
    num_lifts = 0
    while (dependent := _shortest_crossing(lifted)) is not None:
        lifted[dependent - 1] = lifted[lifted[dependent - 1] - 1]
        num_lifts += 1
    return tuple(lifted), num_lifts


def _shortest_crossing(heads: Sequence[int]) -> int | None:
    """The dependent of the shortest non-projective arc, or None."""
    entry, leave = _visits(heads)
    best: tuple[int, int] | None = None
    for dependent, head in enumerate(heads, 1):
        length = abs(dependent - head)
        if head == 0 or length == 1 or (best and length >= best[0]):
            continue
        between = entry[min(dependent, head) + 1 : max(dependent, head)]
        if min(between) < entry[head] or max(between) >= leave[head]:
            best = (length, dependent)
    return best[1] if best else None


def _dependents(heads: Sequence[int]) -> list[list[int]]:
    """The dependents of the root 0 and of each word, left to right."""
    dependents: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for dependent, head in enumerate(heads, 1):
        dependents[head].append(dependent)
    return dependents


def _visits(heads: Sequence[int]) -> tuple[list[int], list[int]]:
    """For each node, its number in a preorder, and that of the first node after those that it dominates."""
    dependents = _dependents(heads)
    order: list[int] = []
    todo = [0]
    while todo:
        node = todo.pop()
        order.append(node)
        todo += dependents[node]
    entry = [0] * len(order)
    leave = [0] * len(order)
    for visit, node in enumerate(order):
        entry[node] = visit
    for visit in range(len(order) - 1, -1, -1):
        node = order[visit]
        leave[node] = max([visit + 1, *(leave[dependent] for dependent in dependents[node])])
    return entry, leave


def to_constituency(sentence: DependencySentence, *, labels: Literal["plain", "upos"] = "plain") -> Tree:
    """The constituency tree: each word with dependents heads one flat constituent of itself and theirs.

    Words keep their order; non-projective arcs are lifted first. Constituents are labelled ``X``, or with
    ``labels="upos"`` by their head's universal part of speech and ``P``, ``NOUNP`` (``X`` where it is ``_``). A word
    without dependents is a word; a sentence of one word is a constituent of one word.

    Raises ``InputError`` for another choice of ``labels``.
    """
    if labels not in ("plain", "upos"):
        raise InputError(f"labels={labels!r}", remedy='choose "plain" or "upos"')
    heads, _ = projectivise(sentence.heads)
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
