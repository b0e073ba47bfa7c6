"""Classes of unknown words by their surface, with English suffixes or with suffixes that are learned from the data.

A class is ``UNK`` with features joined by ``-``: the case of the word (``CAPS``, ``INITC`` for the capital that starts
a sentence, ``KNOWNLC`` when its lower-case form is known, ``LC``), ``NUM``, ``DASH`` and one suffix. With the English
suffixes these are the signatures of the Berkeley parser's lexicon (Petrov et al. 2006), which RNNGs have used since
Dyer et al. 2016. Nothing else in them is English: words in scripts without case have no features of case.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator

import numpy as np

PLAIN = "UNK"
_ENGLISH = ("ed", "ing", "ion", "er", "est", "ly", "ity", "y", "al")
_MIN_LENGTH_PLURAL = 3
_MIN_LENGTH_SUFFIX = 5
_LONGEST = 5  # characters of a learned suffix
_MOST_SUFFIXES = 50
FEWEST = 10  # forms that a learned suffix needs, and tokens that a class needs where suffixes are learned
_DECIMALS = 6  # of what a suffix is worth


def surface_class(
    form: str, *, sentence_initial: bool, known: Container[str], suffixes: Container[str] | None = None
) -> str:
    """The class of a form, such as ``UNK-LC-ing`` or ``UNK-INITC-KNOWNLC-s``.

    ``known`` holds the forms of the vocabulary; it is asked only for the lower-case form of a sentence-initial word.
    ``suffixes`` are learned ones, of which the longest is taken; without them the suffix is Berkeley's English one.

    >>> surface_class("Walking", sentence_initial=True, known={"walking"})
    'UNK-INITC-KNOWNLC-ing'
    >>> surface_class("Wanderungen", sentence_initial=False, known=(), suffixes={"en", "ungen"})
    'UNK-CAPS-ungen'
    """
    num_capitals = sum(character.isupper() or character.istitle() for character in form)
    has_digit = any(character.isdigit() for character in form)
    plain_letters = "-" not in form and not (has_digit and num_capitals > 0)
    lower = form.lower()
    if suffixes is None:
        suffix = _english_suffix(lower, plain_letters=plain_letters)
    else:
        suffix = [ending for ending in _endings(lower) if ending in suffixes][-1:]
    features = [
        PLAIN,
        *_case(form, num_capitals, sentence_initial=sentence_initial, known=known),
        *(["NUM"] if has_digit else []),
        *(["DASH"] if "-" in form else []),
        *suffix,
    ]
    return "-".join(features)


def _case(form: str, num_capitals: int, *, sentence_initial: bool, known: Container[str]) -> list[str]:
    first = form[0]
    if first.isupper() or first.istitle():
        if not (sentence_initial and num_capitals == 1):
            return ["CAPS"]
        return ["INITC", "KNOWNLC"] if form.lower() in known else ["INITC"]
    if not first.isalpha() and num_capitals > 0:
        return ["CAPS"]
    return ["LC"] if any(character.islower() for character in form) else []


def _english_suffix(lower: str, *, plain_letters: bool) -> list[str]:
    if lower.endswith("s") and len(lower) >= _MIN_LENGTH_PLURAL:
        return ["s"] if lower[-2] not in "siu" else []
    if len(lower) >= _MIN_LENGTH_SUFFIX and plain_letters:
        return next(([suffix] for suffix in _ENGLISH if lower.endswith(suffix)), [])
    return []


def back_off(name: str) -> Iterator[str]:
    """Yield the class itself, then ever coarser ones without its last feature, down to ``UNK``."""
    while True:
        yield name
        if "-" not in name:
            return
        name = name.rpartition("-")[0]


def _endings(lower: str) -> list[str]:
    """What a suffix of this form may be, shortest first: up to five letters, with a stem before them."""
    endings = []
    for start in range(len(lower) - 1, max(0, len(lower) - 1 - _LONGEST), -1):
        if not lower[start].isalpha():
            break
        endings.append(lower[start:])
    return endings


def learned_suffixes(forms: Iterable[str]) -> list[str]:
    """Suffixes of some forms, each counted once: at most 50, in the order in which they are found.

    A suffix is worth c log(c / e): c forms end with it and with no longer suffix that was found before, and e would if
    the letters that it has more than the next shorter suffix (or than nothing) stood there by their frequency. That is
    the weighted mutual information by which Goldsmith (2001) ranks endings, but for the suffixes that are found
    already. The best is found first, then the next; one with fewer than ten forms is none.
    """
    lowered = sorted({form.lower() for form in forms})
    letters = Counter(letter for form in lowered for letter in form)
    num_letters = letters.total()
    log_share = {letter: math.log(count / num_letters) for letter, count in letters.items()}
    with_ending: dict[str, list[int]] = {}
    for number, form in enumerate(lowered):
        for ending in _endings(form):
            with_ending.setdefault(ending, []).append(number)
    candidates = {ending: np.array(numbers) for ending, numbers in with_ending.items() if len(numbers) >= FEWEST}
    found: list[str] = []
    longest = np.zeros(len(lowered), dtype=np.int64)  # length of the suffix that each form has by now

    def worth(ending: str) -> tuple[float, str]:
        count = int((longest[candidates[ending]] < len(ending)).sum())
        if count < FEWEST:
            return 0.0, ending
        shorter = next((ending[-size:] for size in range(len(ending) - 1, 0, -1) if ending[-size:] in found), "")
        expected = math.log(len(candidates[shorter]) if shorter else len(lowered))
        expected += sum(log_share[letter] for letter in ending[: len(ending) - len(shorter)])
        return round(count * (math.log(count) - expected), _DECIMALS), ending  # what is equal but for rounding is equal

    while len(found) < _MOST_SUFFIXES:
        best, ending = max(map(worth, sorted(candidates.keys() - set(found))), default=(0.0, ""))
        if best <= 0:
            break
        found.append(ending)
        longest[candidates[ending]] = longest[candidates[ending]].clip(min=len(ending))
    return found


def trained_classes(tokens: Counter[str], *, learned: bool) -> list[str]:
    """Classes that get an id beside the plain one, from counts of their tokens, the most frequent first.

    Classes by ``learned`` suffixes, of which there may be many, need at least ten tokens. If all tokens have such a
    class, the rarest class that backs off to the plain one is given up, so that the plain class has tokens to be
    trained on.
    """
    frequent = [name for name in tokens if name != PLAIN and tokens[name] >= (FEWEST if learned else 1)]
    classes = sorted(frequent, key=lambda name: (-tokens[name], name))
    if classes and not any(_nearest(name, classes) == PLAIN for name in tokens):
        coarse = [name for name in classes if _nearest(name, set(classes) - {name}) == PLAIN]
        classes.remove(coarse[-1])
    return classes


def _nearest(name: str, classes: Collection[str]) -> str:
    return next(coarser for coarser in back_off(name) if coarser in classes or coarser == PLAIN)
