"""EVALB's scoring parameters: the sets that everybody uses by name, and ``.prm`` files."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from treelm.corpora.inputs import read_bytes
from treelm.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What is left out before brackets are counted, and what counts as equal. The meanings are those of EVALB's README.

    A tag in ``delete_labels`` deletes the word under it from both sides; a constituent label deletes the bracket and
    leaves its words. ``equal_labels`` and ``equal_words`` are unordered pairs, not transitive.
    """

    name: str
    labeled: bool = True
    cutoff_length: int = 40
    delete_labels: tuple[str, ...] = ()
    delete_labels_for_length: tuple[str, ...] = ()
    quote_labels: tuple[str, ...] = ()
    equal_labels: tuple[tuple[str, str], ...] = ()
    equal_words: tuple[tuple[str, str], ...] = ()
    max_errors: int = 10

    def same_label(self, first: str, second: str) -> bool:
        """Whether two labels (or tags) count as the same."""
        return first == second or _is_pair(self.equal_labels, first, second)

    def same_word(self, first: str, second: str) -> bool:
        """Whether two words count as the same."""
        return first == second or _is_pair(self.equal_words, first, second)

    def deletes_constituent(self, label: str) -> bool:
        """Whether brackets with this label (function tags already cut) are left out; equal labels count here too."""
        return any(self.same_label(label, deleted) for deleted in self.delete_labels)

    def unlabeled(self) -> Parameters:
        """The same rules with labels ignored when brackets are matched (``LABELED 0``)."""
        return replace(self, labeled=False)

    def deleting(self, *labels: str) -> Parameters:
        """The same rules with more labels deleted, as further ``DELETE_LABEL`` lines would."""
        return replace(self, delete_labels=self.delete_labels + labels, name=f"{self.name}+{'+'.join(labels)}")


def _is_pair(pairs: tuple[tuple[str, str], ...], first: str, second: str) -> bool:
    return any(pair in ((first, second), (second, first)) for pair in pairs)


COLLINS = Parameters(
    name="collins",
    delete_labels=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    delete_labels_for_length=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)
"""``COLLINS.prm``: the scoring of Collins (1997), which published labelled F1 on English uses."""

NEW = replace(
    COLLINS,
    name="new",
    delete_labels=("TOP", "S1", "-NONE-", ",", ":", "``", "''", ".", "?", "!"),
    quote_labels=("``", "''", "POS", "NN", "CD", "VBZ", ":"),
)
"""``new.prm`` of the 2006 release: also deletes ``S1``, ``?``, ``!`` and mends quotes that are tagged differently."""

BUILT_IN = {parameters.name: parameters for parameters in (COLLINS, NEW)}


def find_parameters(name_or_path: str) -> Parameters:
    """A built-in set by its name, else the ``.prm`` file at this path."""
    return BUILT_IN[name_or_path] if name_or_path in BUILT_IN else read_parameters(Path(name_or_path))


def read_parameters(path: Path) -> Parameters:
    """Read a ``.prm`` file. Raises ``InputError`` with file and line for anything that EVALB would only warn about."""
    remedy = f"give a .prm file or one of {', '.join(BUILT_IN)}"
    content = read_bytes(path, remedy=remedy)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("not UTF-8", where=str(path), remedy=remedy) from None
    return parse_parameters(text, source=str(path))


def parse_parameters(text: str, *, source: str) -> Parameters:
    """Parse the text of a ``.prm`` file: a keyword and its value a line, ``#`` in the first column is a comment."""
    numbers: dict[str, Any] = {}
    lists: dict[str, list[Any]] = {field: [] for field in _LISTS.values()}
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{source}:{number}"
        keyword, *values = line.split()
        _check_line(keyword, values, where)
        if keyword in _LISTS:
            lists[_LISTS[keyword]].append(tuple(values) if keyword in _PAIRS else values[0])
        else:
            value = _number(values[0], where, choices=_CHOICES.get(keyword))
            if keyword == "DISC_ONLY" and value:
                found = "DISC_ONLY 1 scores only discontinuous constituents, and Penn brackets have none"
                raise InputError(found, where=where, remedy="set it to 0")
            if (field := _NUMBERS[keyword]) is not None:
                numbers[field] = bool(value) if keyword == "LABELED" else value
    fields: dict[str, Any] = numbers | {field: tuple(items) for field, items in lists.items()}
    return Parameters(name=Path(source).name, **fields)


def _check_line(keyword: str, values: list[str], where: str) -> None:
    if keyword not in _KEYWORDS:
        raise InputError(f"unknown keyword {keyword!r}", where=where, remedy=f"use one of {', '.join(_KEYWORDS)}")
    num_values = 2 if keyword in _PAIRS else 1
    if len(values) != num_values:
        remedy = f"give exactly {num_values}, separated by blanks"
        raise InputError(f"{keyword} has {len(values)} values", where=where, remedy=remedy)


def _number(value: str, where: str, *, choices: tuple[int, ...] | None = None) -> int:
    number = int(value) if re.fullmatch(r"[0-9]{1,18}", value) else None
    if number is None or (choices is not None and number not in choices):
        expected = " or ".join(map(str, choices)) if choices else "a whole number, 0 or more"
        raise InputError(f"value {value!r}", where=where, remedy=f"give {expected}")
    return number


_NUMBERS = {
    "DEBUG": None,
    "MAX_ERROR": "max_errors",
    "CUTOFF_LEN": "cutoff_length",
    "LABELED": "labeled",
    "DISC_ONLY": None,
}
"""The field of each keyword with a number; None: it says nothing about scores."""
_CHOICES = {"LABELED": (0, 1), "DISC_ONLY": (0, 1)}
_LISTS = {
    "DELETE_LABEL": "delete_labels",
    "DELETE_LABEL_FOR_LENGTH": "delete_labels_for_length",
    "QUOTE_LABEL": "quote_labels",
    "EQ_LABEL": "equal_labels",
    "EQ_WORD": "equal_words",
}
"""The field of each keyword of which every line adds a value."""
_PAIRS = ("EQ_LABEL", "EQ_WORD")
_KEYWORDS = (*_NUMBERS, *_LISTS)
