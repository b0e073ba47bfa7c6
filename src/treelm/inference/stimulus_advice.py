"""What is to be said of stimuli that a model reads otherwise than their author meant: unknown words, marks, length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from unicodedata import category, normalize

from treelm.corpora.tokenizer_vocabulary import TokenizerVocabulary
from treelm.corpora.tokens import words_of
from treelm.corpora.vocabulary import Vocabulary
from treelm.inference.stimuli import Stimulus
from treelm.inference.stimulus_scores import ScoredStimulus

_MOST_SHOWN = 8  # characters in a line
_TYPOGRAPHIC = frozenset("‘’‚“”„–—…")
LONGEST_SENTENCE = 150
"""Words beyond which a sentence is hardly one."""


@dataclass(kw_only=True)
class Advice:
    """Counts of the words of a table that a model reads otherwise than meant."""

    vocabulary: Vocabulary
    num_words: int = 0
    num_unknown: int = 0
    unknown: str = ""  # the first one
    num_known_capitals: int = 0  # known words with a capital letter
    num_known_lower: int = 0  # unknown words that are known in lower case
    lowered: str = ""  # the first one
    num_attached: int = 0  # with marks or clitics of which the model reads none by itself
    num_known_without: int = 0  # those of them that are unknown, but known without these
    attached: str = ""  # the first one, if there is one that is known without
    num_spelled: int = 0  # words with characters of which the model has no piece
    spelled: set[str] = field(default_factory=set)  # those characters
    has_parts: bool = False  # whether one of them could be written with fewer characters
    num_alone: int = 0  # marks that stand alone, as treebanks have them
    _known: dict[str, bool] = field(default_factory=dict)

    def add(self, one: ScoredStimulus) -> None:
        """Take in a sentence."""
        for word, tokens in zip(one.scored.surprisal.words, one.stimulus.tokens, strict=True):
            self.num_words += 1
            if word.is_unk:
                self.num_unknown += 1
                self.unknown = self.unknown or word.word
            if found := self.vocabulary.spelled(word.word):
                self.num_spelled += 1
                self.spelled.update(found)
                self.has_parts |= normalize("NFC", word.word) != word.word
            has_capitals = word.word != word.word.lower()
            self.num_known_capitals += has_capitals and not word.is_unk
            if word.is_unk and has_capitals and self._knows(word.word.lower()):
                self.num_known_lower += 1
                self.lowered = self.lowered or word.word
            cut = words_of(word.word, "treebank")
            self.num_alone += len(cut) == 1 and not any(map(str.isalnum, word.word))
            if len(tokens) > 1 or len(cut) < 2 or not any(map(str.isalnum, word.word)):
                continue
            self.num_attached += 1
            if word.is_unk and all(self._knows(part) for part in cut if any(map(str.isalnum, part))):
                self.num_known_without += 1
                self.attached = self.attached or word.word
            elif not self.num_known_without:
                self.attached = self.attached or word.word

    def _remedy(self) -> str:
        """What to write in the place of characters, as texts do that models have learned from."""
        parts = {
            "' and \" for curly marks, -- for dashes, ... for dots": not _TYPOGRAPHIC.isdisjoint(self.spelled),
            "accents and letters as one character (NFC)": self.has_parts,
        }
        return f"write {', '.join(part for part, there in parts.items() if there) or 'other words, or leave these out'}"

    def _knows(self, word: str) -> bool:
        if word not in self._known:
            self._known[word] = self.vocabulary.unknown_class(word, sentence_initial=False) is None
        return self._known[word]

    def lines(self, name: str, option: str = "{} =") -> Iterator[str]:
        """Say what was found of a model, and what to do; ``option`` is how the caller names one."""
        summed = f"{option.format('punctuation')} summed (or left-out)"
        if self.num_unknown:
            share = f"{self.num_unknown:,} of {self.num_words:,} words ({self.num_unknown / self.num_words:.1%})"
            yield (
                f"{share} are unknown to {name}, such as {self.unknown!r}: their bits are those of a class of words; "
                "leave out rows with is_unk 1, or take a model over subwords"
            )
        if self.num_known_lower and not self.num_known_capitals:  # as models of text in lower case have none
            yield (
                f"{self.num_known_lower:,} of them, such as {self.lowered!r}, are known in lower case, and no word "
                "with a capital is; give the text in lower case if the model was trained on such"
            )
        if self.num_spelled:
            yield (
                f"{self.num_spelled:,} of {self.num_words:,} words hold characters of which {name} has no piece "
                f"({listed(self.spelled)}) and which it reads byte by byte: their bits are those of spelling; "
                f"{self._remedy()}"
            )
        if self.num_known_without:
            yield (
                f"{self.num_known_without:,} of them, such as {self.attached!r}, are known without the marks that are "
                f"written with them; give {summed}"
            )
        elif self.num_attached and not self.num_alone and not isinstance(self.vocabulary, TokenizerVocabulary):
            yield (
                f"{self.num_attached:,} words, such as {self.attached!r}, are written together with marks or clitics, "
                f"which {name} has read as words of their own; give {summed}"
            )


def listed(characters: Iterable[str]) -> str:
    """Characters in a line, some of them if they are many."""
    shown = sorted(characters)
    return " ".join(map(_in_line, shown[:_MOST_SHOWN])) + (" ..." if len(shown) > _MOST_SHOWN else "")


def _in_line(character: str) -> str:
    """A character as a line can show it: a mark on a circle, what cannot be seen as its number."""
    if category(character).startswith("M"):
        return f"\u25cc{character}"
    return character if character.isprintable() and not character.isspace() else f"U+{ord(character):04X}"


def note_long(stimuli: Iterable[Stimulus], found: list[Stimulus]) -> Iterator[Stimulus]:
    """Pass stimuli on, and collect those that are longer than a sentence."""
    for one in stimuli:
        if len(one.sentence.words) > LONGEST_SENTENCE:
            found.append(one)
        yield one


def long_sentences(found: list[Stimulus]) -> str:
    """Say that something longer than a sentence was read as one."""
    longest = max(found, key=lambda one: len(one.sentence.words)).sentence
    number = f"{len(found):,} sentences have" if len(found) > 1 else "a sentence has"
    most = f", up to {len(longest.words):,}" if len(found) > 1 else f", {len(longest.words):,}"
    return f"{longest.where}: {number} more than {LONGEST_SENTENCE} words{most}, read as one"
