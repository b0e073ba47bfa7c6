"""Random trees for property tests."""

from hypothesis import strategies as st

from treelm.trees.tree import Tree

LABELS = ("S", "NP", "VP", "PP")


def written_back(word: str) -> bool:
    """Whether brackets can hold the word: an escape in memory would be read as a bracket."""
    return not any(escape in word for escape in ("-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-"))


blanks = st.characters(categories=["L", "N", "P", "S", "Zs", "M"], exclude_characters=" ")
words = st.text(blanks, min_size=1, max_size=6).filter(written_back)
labels = st.sampled_from(LABELS)


def trees(words: st.SearchStrategy[str] = words, max_leaves: int = 25) -> st.SearchStrategy[Tree]:
    """Trees of every shape: unaries, words beside constituents, constituents over words."""
    node = st.recursive(
        words,
        lambda children: st.builds(Tree, labels, st.lists(children, min_size=1, max_size=4)),
        max_leaves=max_leaves,
    )
    return st.builds(Tree, labels, st.lists(node, min_size=1, max_size=4))


@st.composite
def binary_trees(draw: st.DrawFn, max_words: int = 20) -> Tree:
    """Binary trees of two or more words, labelled X."""
    nodes: list[Tree | str] = [f"w{i}" for i in range(draw(st.integers(2, max_words)))]
    while len(nodes) > 1:
        i = draw(st.integers(0, len(nodes) - 2))
        nodes[i : i + 2] = [Tree("X", nodes[i : i + 2])]
    (top,) = nodes
    assert isinstance(top, Tree)
    return top
