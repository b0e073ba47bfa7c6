"""Advice about stimuli that are read otherwise than their author meant.

Of a whole text: numbers and marks in every sentence, sentences that are too long for one. Of a model: words that it
does not know or spells, punctuation, brackets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING
from unicodedata import category, normalize

from treelm.corpora.tokenizer_vocabulary import TokenizerVocabulary
from treelm.corpora.tokens import BLANKS, words_of
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.trees.brackets import unescape

if TYPE_CHECKING:
    from treelm.inference.stimuli import Stimulus

ReadWords = Counter[tuple[str, bool, bool]]
"""How often each word was read, and how: whether it is unknown, and whether it was read as several tokens."""
_MOST_SHOWN, _MOST_WORDS = 8, 3  # characters, words in a line
LONGEST_SENTENCE = 150  # words beyond which a sentence is hardly one
_MARKS = "|*/\\#^~_+=@<>[]{}"
"""Characters that are hardly in every sentence, but to cut it."""
_ROUND = {"[]", "{}", *_MARKS} - {*"<>[]{}"}
"""Those that may stand around a target, the first and the last of them; <unk> is a word."""
_CUT_MARKS = frozenset(".,;:?!")
"""Marks that are separate words in treebanks but not in running text; a dash stands alone in both."""
_MARKED = "mark the target as *target*, or remove them"


def advice(words: ReadWords, vocabulary: Vocabulary, name: str, option: str = "{} =") -> Iterator[str]:
    """Yield lines that say what a model reads otherwise than it was meant, and what to do.

    ``name`` is the model's, and ``option`` is how the caller writes the name of an option.
    """
    unknown, attached, spelled, escaped = (Counter[str]() for _ in range(4))
    num_alone = 0
    characters = set[str]()

    def knows(word: str) -> bool:
        return vocabulary.unknown_class(word, sentence_initial=False) is None

    for (word, is_unknown, is_cut), count in words.items():
        cut, has_letters = words_of(word, "treebank"), _is_spelled(word)
        unknown[word] += count * is_unknown
        if (is_unknown or is_cut) and unescape(word) != word and knows(unescape(word)):
            escaped[word] += count
        if found := vocabulary.spelled(word):
            spelled[word] += count
            characters.update(found)
        num_alone += count * (word in _CUT_MARKS)  # marks that stand alone, as treebanks have them
        if not is_cut and len(cut) > 1 and has_letters:  # marks or clitics of which the model reads none by itself
            attached[word] += count
    unknown, num_words = +unknown, words.total()
    if unknown:
        has_regions = any(len(words_of(word)) > 1 for word, _, _ in words)
        what, how = ("regions", "have words that are") if has_regions else ("words", "are")
        share = f"{unknown.total():,} of {num_words:,} {what} ({unknown.total() / num_words:.1%}) {how}"
        yield (
            f"{share} unknown to {name}, such as {next(iter(unknown))!r}: their bits are those of a class of "
            "words; leave out rows with is_unk 1, or take a model over subwords"
        )
    if escaped:
        first = next(iter(escaped))
        yield (
            f"{escaped.total():,} words, such as {first!r}, have brackets as treebanks escape them; write "
            f"{unescape(first)!r}, as {name} has it"
        )
    if spelled:
        is_composed = all(normalize("NFC", word) == word for word in spelled)
        remedy = "other words, or leave these out" if is_composed else "accents and letters as one character (NFC)"
        examples = ", ".join(map(repr, islice(spelled, _MOST_WORDS)))
        yield (
            f"{spelled.total():,} of {num_words:,} words, such as {examples}, hold characters of which {name} has "
            f"no piece ({listed(characters)}) and which it reads byte by byte: their bits are those of spelling; "
            f"write {remedy}"
        )
    if attached and not num_alone and not isinstance(vocabulary, TokenizerVocabulary):
        yield (
            f"{attached.total():,} words, such as {next(iter(attached))!r}, are written together with marks or "
            f"clitics, which {name} has read as words of their own; give {option.format('punctuation')} summed"
        )


def _is_spelled(word: str) -> bool:
    return any(map(str.isalnum, word))


def listed(characters: Iterable[str]) -> str:
    """Characters in one line; only the first of them if they are many."""
    shown = sorted(characters)
    return " ".join(map(_in_line, shown[:_MOST_SHOWN])) + (" ..." if len(shown) > _MOST_SHOWN else "")


def _in_line(character: str) -> str:
    """A character as a line can show it: an accent on a circle, an invisible character as its number."""
    if category(character).startswith("M"):
        return f"\u25cc{character}"
    return character if character.isprintable() and not character.isspace() else f"U+{ord(character):04X}"


def long_sentences(found: Sequence[Stimulus]) -> str:
    """A line that says that something longer than a sentence was read as one sentence."""
    longest = max(found, key=lambda one: len(one.sentence.words)).sentence
    number = f"{len(found):,} sentences have" if len(found) > 1 else "a sentence has"
    most = f", up to {len(longest.words):,}" if len(found) > 1 else f", {len(longest.words):,}"
    return f"{longest.where}: {number} more than {LONGEST_SENTENCE} words{most}, read as one"


class EverySentence:
    """What all sentences of a text have in common that may not have been meant as words: their numbers, and marks."""

    def __init__(self, mark: str = "", *, is_text: bool = True) -> None:
        """Begin without a sentence, of a text or of a table.

        ``mark`` is the character that divides sentences or surrounds targets, and does not count as a mark.
        """
        self._count, self._is_numbered, self._marks, self._is_text = 0, True, {*_MARKS} - {*mark}, is_text
        self._round, self._alone = _ROUND - {mark}, {*_MARKS} - {*mark}

    def add(self, words: Sequence[str]) -> None:
        """Add a sentence."""
        self._count += 1
        number = next(filter(None, (word.strip("().:") for word in words[:2])), "")
        self._is_numbered &= number == str(self._count) and len(words) > 1
        self._marks &= set().union(*words)
        self._alone &= {*words}
        self._round = {one for one in self._round if _stand_round(one, " ".join(words))}

    def check(self, where: str, target_column: str) -> None:
        """Raise ``InputError`` if each of several sentences has a mark between its words, or around some of them."""
        marks = min(self._alone, default="") or min(self._round, default="")
        if not marks or self._count < 2:
            return
        is_cut = marks in self._alone
        found = marks if is_cut else f"a part between {marks[0]} and {marks[-1]}"
        remedy = f"cut there by region_separator = {marks!r}, or remove them" if is_cut else _MARKED
        if target_column:
            remedy = f"remove them: {target_column} has the target"
        raise InputError(f"every sentence has {found}, which would be read as words", where=where, remedy=remedy)

    def notes(self) -> Iterator[str]:
        """Yield notes about what several sentences have in common."""
        if self._is_numbered and self._count > 1:
            yield "every sentence begins with its number, which is read as a word: remove the numbers"
        if self._marks and self._count > 1:
            marks = " ".join(sorted(self._marks))
            cuts = sorted(self._marks - {*"<>[]{}_*"})
            remedy = f"cut there, give region_separator = {cuts[0]!r}" if cuts else "mark a target, write *target*"
            remedy += " in a table of sentences, text_column = ..." * self._is_text
            yield f"every sentence has {marks}, which is read as words or parts of them: to {remedy}"


def _stand_round(mark: str, text: str) -> bool:
    """Tell whether a mark, or a pair of marks, surrounds some words of a text, once, without spaces inside."""
    if [one for one in text if one in mark] != [mark[0], mark[-1]]:
        return False
    before, part, after = re.split(f"[{re.escape(mark)}]", text)
    is_tight = part == part.strip(BLANKS) and any(map(str.isalnum, part))
    return is_tight and not before[-1:].isalnum() and not after[:1].isalnum()
