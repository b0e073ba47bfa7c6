from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.trees.strategies import trees
from treelm.figures.terminal import draw_tree
from treelm.trees.tree import Tree

DOGS = Tree.parse("(S (NP the dogs) (VP bark (ADVP loudly)) .)")
BITS = ["1.2", "11.0", "8.25", "9.0", "0.1"]

UPRIGHT = """\
              S
   ┌──────────┴┬──────────┐
   │           VP         │
   │        ┌──┴───┐      │
   NP       │     ADVP    │
 ┌─┴──┐     │      │      │
the  dogs  bark  loudly   .
1.2  11.0  8.25   9.0    0.1"""

OUTLINE = """\
S
  NP
    the        1.2
    dogs      11.0
  VP
    bark      8.25
    ADVP
      loudly   9.0
  .            0.1"""


def test_a_tree_that_fits_stands_upright_with_its_words_in_one_row() -> None:
    assert draw_tree(DOGS, BITS, width=30) == UPRIGHT
    assert draw_tree(DOGS, width=30).splitlines()[-1].split() == DOGS.words()


def test_a_tree_that_does_not_fit_is_an_outline() -> None:
    assert draw_tree(DOGS, BITS, width=27) == OUTLINE


def test_a_tree_of_any_depth_is_drawn_with_all_of_its_words() -> None:
    tree = Tree("S", ["w"])
    for i in range(5000):
        tree = Tree("S", [f"w{i}", tree])
    lines = draw_tree(tree, ["1.0"] * 5001, width=60).splitlines()
    assert [line.split()[0] for line in lines if line.split() != ["S"]] == tree.words()
    assert max(map(cell_len, lines)) <= 60


@given(trees(words=st.text("ab語", min_size=1, max_size=5)), st.integers(30, 90))
def test_no_word_is_lost_nothing_overflows_and_no_line_ends_in_blanks(tree: Tree, width: int) -> None:
    words, notes = tree.words(), [f"#{i}" for i in range(len(tree.words()))]
    drawing = draw_tree(tree, notes, width=width)
    lines = drawing.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert max(map(cell_len, lines)) <= width
    outlined = [line.split() for line in lines if line.split()[-1].startswith("#")]
    upright = lines[-1].split() == notes and lines[-2].split() == words
    assert upright or outlined == [[word, note] for word, note in zip(words, notes, strict=True)]


@given(trees(words=st.text("ab語", min_size=1, max_size=5)))
def test_an_upright_drawing_names_every_constituent(tree: Tree) -> None:
    drawing = draw_tree(tree, width=10_000)
    labels = [word for line in drawing.splitlines()[:-1] for word in line.split() if word[0] not in "│┌├┐─┬┴┼"]
    assert sorted(labels) == sorted(node.label for node in tree.constituents())
