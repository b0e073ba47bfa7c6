"""Small corpora and the slow plain forms that the fast ones are compared with."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from treelm.corpora.building import corpus_of
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.sentence import Sentence
from treelm.corpora.vocabulary import FormCounts
from treelm.trees.tree import Tree

SHARED = Path(__file__).parents[3] / "shared" / "data"
GUM_OPEN = Path(__file__).parents[2] / "src" / "treelm" / "data" / "gum-open"

TREES = (
    "(S (NP the dog) (VP barks))",
    "(S (NP (NP dogs) (PP of (NP war))) (VP bark) .)",
    "(NP (NP (NP dogs)))",
    "(S (VP (VP (VP go) on) on) on)",
    "(S The (VP dog))",
)


def sentence(tree: str | Tree, line: int = 1, source: str = "t.ptb", **more: Any) -> Sentence:
    """A sentence with its tree; ``more`` are other fields."""
    parsed = Tree.parse(tree) if isinstance(tree, str) else tree
    return text_sentence(parsed.words(), line, source, tree=parsed, **more)


def text_sentence(text: str | Sequence[str], line: int = 1, source: str = "t.txt", **more: Any) -> Sentence:
    """A sentence of words, or of a text with blanks between them."""
    words = text.split() if isinstance(text, str) else text
    return Sentence(words=tuple(words), identifier=str(line), source=source, line=line, **more)


def corpus(trees: Iterable[str] = TREES, source: str = "t.ptb") -> PreparedCorpus:
    return corpus_of(sentence(tree, line, source) for line, tree in enumerate(trees, 1))


def text_corpus(lines: Iterable[str | Sequence[str]]) -> PreparedCorpus:
    return corpus_of(text_sentence(text, line) for line, text in enumerate(lines, 1))


def counts_of(sentences: Iterable[Sequence[str]]) -> FormCounts:
    return text_corpus(sentences).form_counts()
