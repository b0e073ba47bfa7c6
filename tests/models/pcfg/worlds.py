"""Small grammars, counted and drawn."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tests.models.pcfg.plain import Node, written_out
from treelm.corpora.building import corpus_of
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.readers import read_sentences
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models.pcfg.config import TreebankPCFGConfig
from treelm.models.pcfg.interface import read_tokens
from treelm.models.pcfg.rules import MarkovRules, Rules
from treelm.models.pcfg.treebank import TreebankPCFG

TREEBANK = """
(S (NP (D the) (N cat)) (VP (V sees) (NP (D the) (N dog))))
(S (NP (N dog)) (VP (V sees) (NP (D the) (A the) (N cat))))
(S (NP (NP (D the) (N dog)) (PP (P sees) (NP (N cat)))) (VP (V sees)))
(S (S (NP (N cat)) (VP (V sees))) (C the) (S (VP (V cat) (NP (N dog)))))
(NP (D the) (N dog))
(S (VP (V sees) (PP (P the) (NP (NP (N cat)) (C the) (NP (N dog))))))
"""


def read_trees(folder: Path, treebank: str = TREEBANK) -> EncodedCorpus:
    """The treebank, encoded."""
    (folder / "trees.ptb").write_text(treebank.strip() + "\n")
    prepared = corpus_of(list(read_sentences(str(folder / "trees.ptb"), format="brackets")))
    vocabulary = WordVocabulary(["cat", "dog", "sees", "the"])
    return EncodedCorpus(prepared, vocabulary, prepared.labels, tags=tuple(sorted(prepared.tag_names)))


def nested(text: str) -> Node:
    """A tree with tags as tuples of labels and tags."""
    tokens = text.replace("(", " ( ").replace(")", " ) ").split()
    stack: list[list[object]] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            node = stack.pop()
            is_tag = len(node) == 2 and isinstance(node[1], str) and str(node[0]) in set("DNVAPC")
            stack[-1].append(node[0] if is_tag else tuple(node))
        else:
            stack[-1].append(token)
    (tree,) = stack[0]
    assert isinstance(tree, tuple)
    return tree


TREES = [nested(line) for line in TREEBANK.strip().splitlines()]


def counted(folder: Path, treebank: str = TREEBANK, **config: object) -> TreebankPCFG:
    """The grammar of a treebank."""
    corpus = read_trees(folder, treebank)
    made = TreebankPCFG(
        TreebankPCFGConfig(tags=corpus.tags, **config),  # type: ignore[arg-type]
        vocabulary=corpus.vocabulary,
        labels=corpus.labels,
    )
    made.estimate(corpus)
    return made.eval()


def branching(share: float) -> MarkovRules:
    """A -> A A with this probability, else A -> tag: of two words. Above one half it may branch for ever."""
    ints = lambda *values: np.array(values, np.int64)  # noqa: E731
    return MarkovRules(
        root=np.array([0.0, 1.0, 0.0]),
        words=np.array([[0.3, 0.7]]),
        last=ints(1),
        mixture_from=ints(0, 1),
        mixture_to=ints(0, 1),
        mixture_weights=np.ones(2),
        step_from=ints(0),
        step_to=ints(0),
        step_probs=np.array([share]),
        ending_from=ints(0, 1),
        ending_child=ints(0, 1),
        ending_probs=np.array([1 - share, 1.0]),
    )


def assert_constituents_are_the_derivative(rules: Rules, sentences: Iterable[list[int]]) -> None:
    """Of whole sentences and of their beginnings, beside the plain form."""
    plain = written_out(rules)
    for words in sentences:
        for ended in (True, False):
            expected = plain.constituents(words, ended=ended)
            found = read_tokens([rules], words)[1].constituents(ended=ended)
            np.testing.assert_allclose(found, expected, atol=1e-10)
