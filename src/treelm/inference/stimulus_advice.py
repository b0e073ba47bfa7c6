"""Advice about stimuli that a model reads otherwise than their author meant: unknown words, punctuation, length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from unicodedata import category, normalize

from treelm.corpora.tokenizer_vocabulary import TokenizerVocabulary
from treelm.corpora.tokens import words_of
from treelm.corpora.vocabulary import Vocabulary
from treelm.inference.stimuli import Stimulus
from treelm.trees.brackets import unescape

ReadWords = Counter[tuple[str, bool, bool]]
"""How often each word was read, and how: whether it is unknown, and whether it was read as several tokens."""
_MOST_SHOWN, _MOST_WORDS = 8, 3  # characters, words in a line
_TYPOGRAPHIC = frozenset("‘’‚“”„–—…")
LONGEST_SENTENCE = 150  # words beyond which a sentence is hardly one


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
        num_alone += count * (len(cut) == 1 and not has_letters)  # marks that stand alone, as treebanks have them
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
        parts = {
            "' and \" for curly marks, -- for dashes, ... for dots": not _TYPOGRAPHIC.isdisjoint(characters),
            "accents and letters as one character (NFC)": any(normalize("NFC", word) != word for word in spelled),
        }
        remedy = ", ".join(part for part, there in parts.items() if there) or "other words, or leave these out"
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
