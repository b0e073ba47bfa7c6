"""Berkeley-style classes of unknown words: what the surface of a form tells about it.

The class is ``UNK`` with features joined by ``-``: the case of the word (``CAPS``, ``INITC`` for the capital that
starts a sentence, ``KNOWNLC`` when its lower-case form is known, ``LC``), ``NUM``, ``DASH`` and one English suffix.
These are the signatures of the Berkeley parser's lexicon (Petrov et al. 2006), which RNNG has used since Dyer et al.
2016.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

PLAIN = "UNK"
_SUFFIXES = ("ed", "ing", "ion", "er", "est", "ly", "ity", "y", "al")
_MIN_LENGTH_PLURAL = 3
_MIN_LENGTH_SUFFIX = 5


def surface_class(form: str, *, sentence_initial: bool, known: Container[str]) -> str:
    """The class of a form, such as ``UNK-LC-ing`` or ``UNK-INITC-KNOWNLC-s``.

    ``known`` holds the forms of the vocabulary; it is asked only for the lower-case form of a sentence-initial word.
    """
    num_capitals = sum(character.isupper() or character.istitle() for character in form)
    has_digit = any(character.isdigit() for character in form)
    features = [
        PLAIN,
        *_case(form, num_capitals, sentence_initial=sentence_initial, known=known),
        *(["NUM"] if has_digit else []),
        *(["DASH"] if "-" in form else []),
        *_suffix(form.lower(), plain_letters="-" not in form and not (has_digit and num_capitals > 0)),
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


def _suffix(lower: str, *, plain_letters: bool) -> list[str]:
    if lower.endswith("s") and len(lower) >= _MIN_LENGTH_PLURAL:
        return ["s"] if lower[-2] not in "siu" else []
    if len(lower) >= _MIN_LENGTH_SUFFIX and plain_letters:
        return next(([suffix] for suffix in _SUFFIXES if lower.endswith(suffix)), [])
    return []


def back_off(name: str) -> Iterator[str]:
    """The class itself, then ever coarser ones without its last feature, down to ``UNK``."""
    while True:
        yield name
        if "-" not in name:
            return
        name = name.rpartition("-")[0]
