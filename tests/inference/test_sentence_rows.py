"""What is put together as one sentence has to be one; whoever forgets a column is told which."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from treelm.cli.arguments import as_typed, parse
from treelm.cli.surprisal import Arguments
from treelm.errors import InputError
from treelm.inference.sentence_rows import Columns
from treelm.inference.stimuli import read_table, table_stimuli

HARD, EASY = (
    ["While", "the", "man", "hunted", "the", "deer", "ran"],
    ["While", "the", "man", "hunted", ",", "the", "deer", "ran"],
)
LONG = ["The", "old", "dog", "that", "the", "cat", "saw", "slept"]
ITEMS = {("1", "a"): HARD, ("1", "b"): EASY, ("2", "a"): LONG, ("2", "b"): [*LONG[:6], "often", *LONG[6:]]}
Rows = Iterable[Sequence[object]]


@pytest.fixture(autouse=True)
def call() -> None:
    """The call in whose terms messages are."""
    parse(Arguments, "treelm surprisal", ["run", "words.csv"])


def two_conditions() -> Rows:
    """Rows of two items in two conditions: item, condition, number of the word, word."""
    yield from (
        (item, condition, n, word) for (item, condition), words in ITEMS.items() for n, word in enumerate(words, 1)
    )


def readers_in_turn() -> Rows:
    """Word by word, three readers each: item, reader, number of the word, word."""
    for item, words in (("1", HARD), ("2", LONG)):
        yield from ((item, reader, n, word) for n, word in enumerate(words, 1) for reader in ("r1", "r2", "r3"))


def readers_after_each_other() -> Rows:
    """Reader by reader: reader, item, number of the word, word."""
    for reader in ("r1", "r2"):
        yield from ((reader, i, n, word) for i, words in (("1", HARD), ("2", LONG)) for n, word in enumerate(words, 1))


def readers_of_each_item() -> Rows:
    """Item by item: reader, item, number of the word, word."""
    for item, words in (("1", HARD), ("2", LONG)):
        yield from ((reader, item, n, word) for reader in ("r1", "r2") for n, word in enumerate(words, 1))


def two_texts() -> Rows:
    """Sentences numbered anew in each text: text, sentence, number of the word, word."""
    yield from (("A", "1", n, word) for n, word in enumerate(HARD, 1))
    yield from (("B", "1", n, word) for n, word in enumerate(LONG, 1))
    yield from (("B", "2", n, word) for n, word in enumerate(HARD, 1))


def practice() -> Rows:
    """Items that begin anew after a block of practice: block, item, number of the word, word."""
    yield from (("practice", str(i), n, word) for i in (1, 2) for n, word in enumerate(LONG, 1))
    yield from (("main", str(i), n, word) for i, words in ((1, HARD), (2, EASY)) for n, word in enumerate(words, 1))


def two_lists() -> Rows:
    """Both factors are needed: list, group, item, number of the word, word."""
    sentences = [HARD, EASY, LONG, EASY[::-1]]
    for name, group, words in zip("aabb", "xyxy", sentences, strict=True):
        yield from ((name, group, "1", n, word) for n, word in enumerate(words, 1))


def sorted_by(rows: Callable[[], Rows], *columns: int) -> Callable[[], Rows]:
    return lambda: iter(sorted(rows(), key=lambda row: [str(row[column]) for column in columns]))


def without(rows: Callable[[], Rows], *columns: int) -> Callable[[], Rows]:
    return lambda: ([cell for place, cell in enumerate(row) if place not in columns] for row in rows())


two_without_numbers = without(two_conditions, 2)


def write(folder: Path, header: str, rows: Rows) -> str:
    path = folder / "words.csv"
    path.write_text("\n".join([header, *(";".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("header", "rows", "key", "found", "remedy"),
    [
        ("item;condition;word_id;word", two_conditions, "item", "word_id is 1 in 2 of its rows", "item condition"),
        ("item;condition;word", two_without_numbers, "item", "condition changes from 'a' to 'b'", "item condition"),
        ("item;amb;nr;word", two_conditions, "item", "nr is 1 in 2 of its rows", "item amb"),
        ("item;reader;word_id;word", readers_in_turn, "item", "adjacent rows; its rows: 1 While, 1 W", "reader: sort"),
        ("item;word", without(readers_in_turn, 1, 2), "item", "its rows: While, While, W", "no other one here"),
        ("reader;item;word_id;word", readers_after_each_other, "item", "all its words are repeated", "item reader"),
        ("reader;item;word", without(readers_of_each_item, 2), "item", "all its words are repeated", "item reader"),
        ("text;nr;word_id;word", two_texts, "nr", "word_id is 1 in 2 of its rows", "nr text"),
        ("block;item;word_id;word", practice, "item", "word_id is 1 in 2 of its rows", "item block"),
        ("half;item;word", without(practice, 2), "item", "rows of it come after sentence '2'", "item half"),
        ("list;group;item;word_id;word", two_lists, "item", "word_id is 1 in 4 of its rows", "item list group"),
        ("item;cond;word_id;word", sorted_by(two_conditions, 2, 0, 1), "item cond", "rows of it come", "order: sort"),
        (
            "item;cond;word",
            without(sorted_by(two_conditions, 3), 2),
            "item cond",
            "rows of it come",
            "sentence together",
        ),
    ],
)
def test_rows_of_several_sentences_are_refused_with_the_columns_that_tell_them_apart(
    header: str, rows: Callable[[], Rows], key: str, found: str, remedy: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        read_table(write(tmp_path, header, rows()), Columns(sentence=tuple(key.split())), "as-given")
    assert found in str(error.value)
    assert remedy in as_typed(error.value.remedy), error.value
    assert "words.csv:" in str(error.value)


def numbered(*sentences: str, start: int = 1) -> list[Sequence[object]]:
    return [(n, place, word) for n, text in enumerate(sentences, 1) for place, word in enumerate(text.split(), start)]


@pytest.mark.parametrize(
    ("columns", "words", "cells"),
    [
        ("n", "that that is is that that is not is not", lambda n: (n,)),
        ("", "ha ha ha ha", lambda n: ()),
        ("clause", "the more you know the more you see", lambda n: (n > 3,)),
        ("word_id", "numbers from some place", lambda n: (n + 17,)),
        ("position", "around the critical word", lambda n: (n - 2,)),
        ("region", "the old man the old boat", lambda n: (n // 2,)),
        ("word_id;lemma", "the dog bites the dog", lambda n: (n, n % 3)),
        ("condition", "that of the one critical word", lambda n: ("yx"[n == 4],)),
        ("subject", "the dog barks now", lambda n: (int(n < 2),)),  # of the sentence, not of an experiment
    ],
)
def test_sentences_are_not_refused_for_what_authors_write_and_count(
    columns: str, words: str, cells: Callable[[int], Sequence[object]], tmp_path: Path
) -> None:
    rows = [(item, *cells(n), word) for item in (1, 2) for n, word in enumerate(words.split())]
    path = write(tmp_path, ";".join(filter(None, ("item", columns, "word"))), rows)
    table = read_table(path, Columns(sentence=("item",)), "as-given")
    assert [" ".join(one.sentence.words) for one in table.stimuli] == [words, words]
    assert table.notes == ()


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        ([(1, 1, "the"), (1, 3, "dog"), (1, 2, "old")], "1 of 1 sentences (first at {}:2) word_id decreases"),
        (numbered("The dog barked. It slept."), "1 of 1 sentences (first at {}:2) one ends before the last word"),
        ([(1, 1, "The dog barked loudly"), (2, 1, "It")], "1 of 2 sentences (first at {}:2) cells hold several words"),
    ],
)
def test_what_may_be_read_otherwise_than_meant_is_told(rows: list, note: str, tmp_path: Path) -> None:
    path = write(tmp_path, "item;word_id;word", rows)
    (found,) = read_table(path, Columns(sentence=("item",)), "as-given").notes
    assert note.format(path) in found


BLOCKS = [
    (item, typ, word)
    for item, texts in (("1", ("the dog raced fell", "a cat slept")), ("2", ("the man sent fell", "one boy came")))
    for typ, text in zip(("gp", "kontrolle"), texts, strict=True)
    for word in text.split()
]


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (BLOCKS, "in 2 of 2 sentences (first at {}:2) typ changes and stays so: if it tells sentences apart, give "),
        ([(item, {"gp": "TRUE"}.get(typ, "FALSE"), word) for item, typ, word in BLOCKS], ""),
        ([(item, {"gp": 1}.get(typ, 2), word) for item, typ, word in BLOCKS], ""),  # lines of a screen
        ([("1", tag, "that") for tag in ("IN", "DT")] + [(n, "NN", "dog") for n in range(2, 5)], ""),
        ([("1", *cells.split()) for cells in ("DT the", "NN dog", "VB saw", "DT the", "NN cat")], ""),
    ],
)
def test_a_column_that_may_tell_sentences_apart_is_told(rows: Rows, note: str, tmp_path: Path) -> None:
    path = write(tmp_path, "item;typ;word", rows)
    found = read_table(path, Columns(sentence=("item",)), "as-given").notes
    assert len(found) == bool(note)
    assert all(note.format(path) in one and as_typed(one).endswith("--sentence-column item typ") for one in found)


def test_ids_that_differ_in_blanks_or_types_alone_are_one(tmp_path: Path) -> None:
    path = write(tmp_path, "item;word", [("2", "The"), ("2 ", "dog"), ("3", "It")])
    stimuli = read_table(path, Columns(sentence=("item",)), "as-given").stimuli
    assert [(one.keys, one.sentence.words) for one in stimuli] == [(("2",), ("The", "dog")), (("3",), ("It",))]
    rows = [(f"x:{n}", {"sentence_id": key, "word": "a"}) for n, key in enumerate([2, "2"])]
    assert [
        one.keys for one in table_stimuli(["sentence_id", "word"], rows, Columns(), "as-given", source="x").stimuli
    ] == [(2,)]


@pytest.mark.parametrize(
    ("name", "numbers", "is_told"),
    [
        ("word_nr", "321 132", True),
        ("Wortnr", "1X23 12", True),  # X: 10, after 1 by its letters
        ("k", "1X23 12", False),
        ("rank", "321 322", False),
        ("k", "123 12", False),
    ],
)
def test_words_in_another_order_than_their_numbers_are_told(
    name: str, numbers: str, is_told: bool, tmp_path: Path
) -> None:
    rows = [(item, n.replace("X", "10"), f"w{item}{n}") for item, own in enumerate(numbers.split()) for n in own]
    path = write(tmp_path, f"item;{name};word", rows)
    found = read_table(path, Columns(sentence=("item",)), "as-given").notes
    assert [f"{name} decreases: the words are read in the order of the rows" in note for note in found] == [
        True
    ] * is_told


@pytest.mark.parametrize(
    ("header", "rows", "filled"),
    [
        ("item;word", "1;The ;dog 2;It ;is", ["The dog", "It is"]),
        ("item;condition;word", "1;a;The ;;dog ;b;The ;;cat", ["The dog", "The cat"]),
    ],
)
def test_an_empty_cell_is_no_name_of_a_sentence_but_may_be_that_of_the_row_above(
    header: str, rows: str, filled: list[str], tmp_path: Path
) -> None:
    path = write(tmp_path, header, (row.split(";") for row in rows.split()))
    columns = Columns(sentence=tuple(header.split(";")[:-1]))
    with pytest.raises(InputError, match=r"words.csv:3: an empty sentence.*fill_down = True"):
        read_table(path, columns, "as-given")
    table = read_table(path, columns, "as-given", fill_down=True)
    assert [" ".join(one.sentence.words) for one in table.stimuli] == filled
    assert all(all(one.keys) for one in table.stimuli)
