import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.errors import InputError
from treelm.trees.dependencies import DependencySentence, projectivise, read_dependencies, to_constituency

from .conftest import read_lines


def row(number: int | str, head: int | str, form: str = "", tag: str = "NOUN") -> str:
    return f"{number}\t{form or f'w{number}'}\t_\t{tag}\tT\t_\t{head}\tdep\t_\t_\n"


def rows(*heads: int | str) -> str:
    return "".join(row(i, head) for i, head in enumerate(heads, 1)).rstrip("\n")


def read(text: str) -> DependencySentence:
    found = read_dependencies(text.rstrip("\n"), source="file.conllu", first_line=4)
    assert found is not None
    return found


def read_all(lines: list[str]) -> list[DependencySentence]:
    return list(map(read, filter(None, "".join(lines).split("\n\n"))))


@st.composite
def head_lists(draw: st.DrawFn) -> list[int]:
    """Any dependency tree of up to eight words, crossing arcs included."""
    order = draw(st.permutations(range(1, draw(st.integers(1, 8)) + 1)))
    heads = dict.fromkeys(order, 0)
    for i, word in enumerate(order[1:], 1):
        heads[word] = order[draw(st.integers(0, i - 1))]
    return [heads[word] for word in sorted(heads)]


def plain_crossings(heads: list[int]) -> list[tuple[int, int]]:
    """Length and dependent of each arc over a word that its head does not dominate, by the definition."""

    def dominates(head: int, word: int) -> bool:
        while word and word != head:
            word = heads[word - 1]
        return word == head

    return [
        (abs(head - dependent), dependent)
        for dependent, head in enumerate(heads, 1)
        if not all(dominates(head, word) for word in range(min(head, dependent) + 1, max(head, dependent)))
    ]


def plain_projectivise(heads: list[int]) -> list[int]:
    heads = list(heads)
    while crossings := plain_crossings(heads):
        dependent = min(crossings)[1]
        heads[dependent - 1] = heads[heads[dependent - 1] - 1]
    return heads


def test_constituents_can_be_named_by_their_head() -> None:
    text = row(1, 2, tag="DET") + row(2, 3) + row(3, 0, tag="VERB") + row(4, 3, tag="_") + row(5, 4)
    tree = to_constituency(read(text), labels="upos")
    assert str(tree) == "(VERBP (NOUNP w1 w2) w3 (X w4 w5))"


@given(head_lists())
def test_projectivising_follows_its_definition(heads: list[int]) -> None:
    assert list(projectivise(heads)) == plain_projectivise(heads)


@given(head_lists())
def test_constituents_are_the_subtrees_of_heads(heads: list[int]) -> None:
    sentence = read(rows(*heads))
    tree = to_constituency(sentence)
    lifted = plain_projectivise(heads)

    def dominated(head: int) -> set[int]:
        return {head}.union(*(dominated(i) for i, above in enumerate(lifted, 1) if above == head))

    expected = sorted((min(words) - 1, max(words)) for head in set(lifted) - {0} for words in [dominated(head)])
    assert tree.words() == list(sentence.words)
    assert sorted(span[1:] for span in tree.spans()) == (expected or [(0, 1)])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (rows(2, 3, 0, 0), "file.conllu:7: a second root, after word 3"),
        (rows(0, 4, 2, 3, 1), "file.conllu:5: the heads from word 2 on lead back to it"),
        (rows(0, "_"), "file.conllu:5: head '_' is not a number"),
        (rows(0, 3), "file.conllu:5: head 3 in a sentence of 2 words"),
        (row(1, 0) + row(3, 1), "file.conllu:5: word id '3' where 2 was expected"),
        (row(1, 0) + "2 bark 1", "file.conllu:5: 1 columns"),
        (row(1, 0, form="_") + row(2, 1, form="_"), "file.conllu:4: every form is _: the text is not supplied"),
        (row("1.1", "_"), "file.conllu:4: a sentence without words"),
    ],
)
def test_a_bad_sentence_is_named_by_file_and_line_with_a_remedy(bad: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(bad)
    assert str(caught.value).startswith(message)
    assert 'on_error = "skip"' in caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("heads", [range(5000), [*range(2, 5001), 0], [0] + [1] * 4999])
def test_5000_words_need_no_recursion(heads: list[int]) -> None:
    sentence = read(rows(*heads))
    assert to_constituency(sentence).words() == list(sentence.words)


def num_crossing(sentences: list[DependencySentence]) -> int:
    return sum(projectivise(sentence.heads) != sentence.heads for sentence in sentences)


@pytest.mark.parametrize(
    ("split", "num_sentences", "crossing"), [("train", 3624, 128), ("dev", 474, 27), ("test", 460, 16)]
)
def test_the_treebank_becomes_constituency_trees(split: str, num_sentences: int, crossing: int) -> None:
    sentences = read_all(read_lines(f"{split}.conllu.gz"))
    assert len(sentences) == num_sentences
    assert num_crossing(sentences) == crossing
    for sentence in sentences:
        assert to_constituency(sentence).words() == list(sentence.words)
