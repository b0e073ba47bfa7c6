"""ARPA files: n-gram models as KenLM, SRILM and others write and read them, with logarithms of base 10.

Inside of the program logarithms are natural.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from treelm.corpora.vocabulary import Vocabulary
from treelm.corpora.word_vocabulary import SINGLE, WordVocabulary
from treelm.errors import InputError
from treelm.io.atomic import open_atomic
from treelm.io.files import read_text
from treelm.io.numbers import number
from treelm.models.ngram.kneser_ney import Floats, Ints

_logger = logging.getLogger(__name__)
BEGIN, END = "<s>", "</s>"
_NEVER = -99.0  # stands for log 0 in ARPA files
_BASE = math.log(10)
_REMEDY = "give an ARPA file that is whole, as lmplz writes it"
_COUNT = re.compile(r"ngram\s+([0-9]{1,2})\s*=\s*([0-9]{1,18})")
_UNKNOWN = re.compile(r"(?<!\S)<UNK>(?!\S)")  # so some programs write <unk>; KenLM reads both
Level = tuple[Ints, Floats, Floats]
"""Keys, log probabilities and log back-off weights (nats) of the n-grams of one length, as ``NGram`` stores them."""


def write_levels(path: Path, levels: list[Level], vocabulary: Vocabulary) -> None:
    """Write the n-grams of all lengths. Raises ``InputError`` for tokens that such a file cannot contain."""
    names = [*(vocabulary.token(index) for index in range(len(vocabulary))), END, BEGIN]
    wrong = next((name for name in names if not name or len(name.split()) != 1 or name.split()[0] != name), None)
    if wrong is not None or len(set(names)) < len(names):
        found = f"a token {wrong!r}, which has a blank" if wrong is not None else "tokens that are written alike"
        raise InputError(found, remedy="export a model of words")
    has_unknown, base = SINGLE in names, len(names)
    with open_atomic(path, "w", encoding="utf-8") as file:
        file.write("\\data\\\n")
        for length, (keys, _, _) in enumerate(levels, start=1):
            file.write(f"ngram {length}={len(keys) + (length == 1 and not has_unknown)}\n")
        texts = [""]
        for length, (keys, log_probs, log_backoffs) in enumerate(levels, start=1):
            file.write(f"\n\\{length}-grams:\n")
            if length == 1 and not has_unknown:
                file.write(f"{_NEVER:g}\t{SINGLE}\t0\n")  # which other programs expect
            prefixes, last = np.divmod(keys, base) if length > 1 else (np.zeros_like(keys), keys)
            texts = [f"{texts[prefix]} {names[token]}".lstrip() for prefix, token in zip(prefixes, last, strict=True)]
            weights = log_backoffs / _BASE if len(log_backoffs) else [None] * len(texts)
            for text, log_prob, weight in zip(texts, np.maximum(log_probs / _BASE, _NEVER), weights, strict=True):
                end = "" if weight is None else f"\t{max(weight, _NEVER):.8g}"
                file.write(f"{log_prob:.8g}\t{text}{end}\n")
        file.write("\n\\end\\\n")


def read_levels(path: Path) -> tuple[list[Level], WordVocabulary]:
    """The n-grams of a file, and the vocabulary of its words. Raises ``InputError`` that names file and line."""
    texts = read_text(path).split("\n")
    lines, last_line = iter(enumerate(texts, start=1)), len(texts)
    counts = _read_counts(lines, path)
    vocabulary, levels, numbers = WordVocabulary([]), list[Level](), dict[str, int]()
    for length, count in enumerate(counts, start=1):
        rows = list(_read_section(lines, path, length, count, last_line))
        if length == 1:
            given = dict[str, tuple[float, float]]()
            for log_prob, text, weight, line in rows:
                if text in given:
                    raise InputError(f"{text!r} stands twice", where=f"{path}:{line}", remedy=_REMEDY)
                given[text] = log_prob, weight
            if missing := [name for name in (BEGIN, END) if name not in given]:
                raise InputError(f"no {missing[0]} among its words", where=str(path), remedy=_REMEDY)
            _warn_of_base([log_prob for text, (log_prob, _) in given.items() if text != BEGIN], f"{path}:{rows[0][3]}")
            vocabulary = WordVocabulary([text for text in given if text not in (BEGIN, END, SINGLE)])
            names = [*(vocabulary.token(index) for index in range(len(vocabulary))), END, BEGIN]
            numbers = {name: index for index, name in enumerate(names)}
            found = np.array([given.get(name, (-math.inf, 0.0)) for name in names])
            found[-1, 0] = -math.inf  # the begin of a sentence is never predicted, whatever the file says
            keys, tokens, texts = np.arange(len(names)), numbers, names
        else:
            found, keys = np.array([(row[0], row[2]) for row in rows]).reshape(-1, 2), np.zeros(len(rows), np.int64)
            for number, (_, text, _, line) in enumerate(rows):
                prefix, _, last = text.rpartition(" ")
                if prefix not in numbers or last not in tokens:
                    what = f"{text!r} without {prefix!r} among shorter n-grams, or with an unknown word"
                    raise InputError(what, where=f"{path}:{line}", remedy=_REMEDY)
                keys[number] = numbers[prefix] * len(tokens) + tokens[last]
            order = np.argsort(keys)
            keys, found, texts = keys[order], found[order], [rows[number][1] for number in order]
            if len(twice := np.flatnonzero(np.diff(keys) == 0)):
                where = f"{path}:{rows[max(order[twice[0]], order[twice[0] + 1])][3]}"
                raise InputError(f"{texts[twice[0]]!r} stands twice", where=where, remedy=_REMEDY)
            numbers = {text: number for number, text in enumerate(texts)}
        weights = found[:, 1] if length < len(counts) else np.zeros(0)
        levels.append((keys, found[:, 0].copy(), weights.copy()))
    line, text = next(((line, text) for line, text in lines if text.strip()), (last_line, ""))
    if text.strip() != "\\end\\":
        raise InputError("no \\end\\ behind the last n-gram", where=f"{path}:{line}", remedy=_REMEDY)
    return levels, vocabulary


def _warn_of_base(log_probs: list[float], where: str) -> None:
    """Warn if the probabilities of all words (logs in nats) do not sum to 1, as with a file in natural logarithms."""
    total, natural = sum(map(math.exp, log_probs)), sum(math.exp(one / _BASE) for one in log_probs)
    if not 0.9 < total < 1.1:
        likely = ": it seems to have natural logarithms, where ARPA files have base 10" if 0.9 < natural < 1.1 else ""
        _logger.warning("%s: the probabilities of single words sum to %.2f, not 1%s", where, total, likely)


def _read_counts(lines: Iterator[tuple[int, str]], path: Path) -> list[int]:
    begin = next((text for _, text in lines if text.strip() == "\\data\\"), None)  # after comments of programs
    counts = list[int]()
    for place, text in lines if begin else ():
        match = _COUNT.fullmatch(text.strip())
        if match is None:
            if text.strip() or not counts:
                break
            return counts
        if int(match[1]) != len(counts) + 1 or int(match[1]) > 12:
            raise InputError(f"n-grams of length {match[1]}", where=f"{path}:{place}", remedy=_REMEDY)
        counts.append(int(match[2]))
    raise InputError("no ARPA file: no \\data\\ with counts of n-grams", where=str(path), remedy=_REMEDY)


def _read_section(
    lines: Iterator[tuple[int, str]], path: Path, length: int, count: int, last_line: int
) -> Iterator[tuple[float, str, float, int]]:
    """For each n-gram of a length: log p, its words joined by blanks, log back-off weight, and line; logs in nats."""
    header = next(((line, text.strip()) for line, text in lines if text.strip()), (last_line, "the end of the file"))
    if header[1] != f"\\{length}-grams:":
        found = f"{header[1]!r} where \\{length}-grams: was expected"
        raise InputError(found, where=f"{path}:{header[0]}", remedy=_REMEDY)
    for _ in range(count):
        line, text = next(lines, (last_line, ""))
        parts = _UNKNOWN.sub(SINGLE, text).split()
        try:
            numbers = [number(parts[0]), *map(number, parts[length + 1 :])]
            is_whole = len(numbers) <= 2 and len(parts) > length and not any(map(math.isnan, numbers))
        except (ValueError, IndexError):
            is_whole = False
        if not is_whole or numbers[0] > 1e-6 or max(numbers) > -_NEVER:
            found = f"{text!r} is not an n-gram of length {length} with its logarithms"
            raise InputError(found, where=f"{path}:{line}", remedy=_REMEDY)
        log_prob, weight = (*numbers, 0.0)[:2]
        log_prob = -math.inf if log_prob <= _NEVER else log_prob * _BASE
        yield min(log_prob, 0.0), " ".join(parts[1 : length + 1]), weight * _BASE, line
