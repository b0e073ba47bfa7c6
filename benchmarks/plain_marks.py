"""Trees in the marks and words of plain text: straight quotation marks, and hyphenated words in one piece.

python benchmarks/plain_marks.py --to dickens/train.ptb dickens-benepar/train.ptb.gz

Parsers such as benepar's cut words at hyphens (tag HYPH) and leave curly marks as they are. treelm's tokeniser does
neither, so a parser that is trained on such trees and reads its words would meet other ones. Files are written one
behind another; each sentence keeps its tags, a word that was put together that of its last piece.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from treelm.cli.arguments import Positional, parse
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.io.atomic import open_atomic
from treelm.trees.brackets import format_tree
from treelm.trees.transforms import keep_words
from treelm.trees.tree import Tree

_STRAIGHT = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"'})
_HYPHEN, _CUT = "-", "HYPH"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to read and to write."""

    files: Annotated[tuple[Path, ...], Positional("FILE")]
    """Bracket files with tags."""
    to: Path
    """Bracket file to write."""


def in_plain_marks(sentence: Sentence) -> tuple[Tree, list[str]]:
    """The tree and the tags of a sentence in the words of plain text. Raises ``InputError`` if it lacks either."""
    if sentence.tree is None or sentence.tags is None:
        raise InputError("a sentence without tree or tags", where=sentence.where, remedy="give brackets with tags")
    words, tags, keep = list[str](), list[str](), list[bool]()
    joins = False  # the word goes on the one before
    last = len(sentence.words) - 1
    for place, (word, tag) in enumerate(zip(sentence.words, sentence.tags, strict=True)):
        hyphen = tag == _CUT and word == _HYPHEN and 0 < place < last
        if joins or hyphen:
            words[-1] += word.translate(_STRAIGHT)
            tags[-1] = tags[-1] if hyphen else tag
        else:
            words.append(word.translate(_STRAIGHT))
            tags.append(tag)
        keep.append(not (joins or hyphen))
        joins = hyphen
    tree = keep_words(sentence.tree, keep, words)
    assert tree is not None  # the first word is kept
    return tree, tags


def main(options: Arguments) -> int:
    """Write the file."""
    options.to.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(options.to, "w", encoding="utf-8") as out:
        for file in options.files:
            for sentence in read_sentences(file, format="brackets"):
                out.write(format_tree(*in_plain_marks(sentence)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(parse(Arguments, Path(__file__).name, sys.argv[1:])))
