"""Small corpora and the slow plain forms that the fast ones are compared with."""

from collections.abc import Iterable, Sequence
from pathlib import Path

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


def sentence(tree: str, line: int = 1, source: str = "t.ptb") -> Sentence:
    parsed = Tree.parse(tree)
    return Sentence(words=tuple(parsed.words()), tree=parsed, identifier=str(line), source=source, line=line)


def corpus(trees: Iterable[str] = TREES, source: str = "t.ptb") -> PreparedCorpus:
    return corpus_of(sentence(tree, line, source) for line, tree in enumerate(trees, 1))


def text_corpus(lines: Iterable[str | Sequence[str]]) -> PreparedCorpus:
    return corpus_of(
        Sentence(words=tuple(text.split() if isinstance(text, str) else text), identifier="", source="t.txt", line=line)
        for line, text in enumerate(lines, 1)
    )


def counts_of(sentences: Iterable[Sequence[str]]) -> FormCounts:
    return text_corpus(sentences).form_counts()
