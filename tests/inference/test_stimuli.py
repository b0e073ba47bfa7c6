"""The experimenter's words, and what a model reads in their place."""

import io
from pathlib import Path

import pytest

from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.inference.sentence_rows import Columns
from treelm.inference.stimuli import Punctuation, from_sentences, read_table, read_words, split, stimulus, word_offsets


def sentence(*words: str, line: int = 1) -> Sentence:
    return Sentence(words=words, identifier=str(line), source="in.txt", line=line)


@pytest.mark.parametrize(
    ("punctuation", "words", "tokens", "counts"),
    [
        ("as-given", ["dog,", "don't"], [["dog,"], ["don't"]], [[True], [True]]),
        ("summed", ["dog,", "don't"], [["dog", ","], ["do", "n't"]], [[True, True], [True, True]]),
        ("left-out", ["dog,", "don't", "..."], [["dog", ","], ["do", "n't"], ["..."]], [[1, 0], [1, 1], [1]]),
        ("apart", ["dog", ",", "do", "n't"], [["dog"], [","], ["do"], ["n't"]], [[1], [1], [1], [1]]),
    ],
)
def test_punctuation_is_read_as_asked(
    punctuation: Punctuation, words: list[str], tokens: list[list[str]], counts: list[list[bool]]
) -> None:
    given = sentence("dog,", "don't", *(["..."] if punctuation == "left-out" else []))
    found = stimulus(given, punctuation)
    assert list(found.sentence.words) == words
    assert [list(own) for own in found.tokens] == tokens
    assert [list(own) for own in found.counts] == counts
    assert found.words == tuple(token for own in tokens for token in own)
    starts = {"apart": [0, 3, 5, 7], "left-out": [0, 5, 11]}.get(punctuation, [0, 5])
    assert [start for start, _ in word_offsets(found.sentence)] == starts  # in "dog, don't", whatever is read apart


def test_documents_are_those_of_the_reader() -> None:
    token = b"1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n\n"
    conllu = read_sentences(io.BytesIO(token + token + b"# newdoc\n" + token), format="conllu")
    for given in (read_sentences(io.BytesIO(b"\na\na\n\n\na\n"), format="text"), conllu):
        assert [one.document for one in from_sentences(given, "as-given")] == ["1", "1", "2"]


@pytest.mark.parametrize(
    ("texts", "is_told"),
    [
        (["1 It slept", "2 It ran"], True),
        (["( 1 ) It slept", "( 2 ) It ran"], True),
        (["1 It slept", "It ran"], False),
        (["1984 was bad", "1985 was not"], False),
    ],
)
def test_numbers_of_sentences_that_are_read_are_told(
    texts: list[str], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    given = [sentence(*text.split(), line=line) for line, text in enumerate(texts, 5)]
    assert len(list(from_sentences(given, "as-given"))) == len(texts)
    told = "in.txt:5: every sentence begins with its number, which is read as a word"
    assert (told in caplog.text, bool(caplog.text)) == (is_told, is_told)


def test_one_word_a_line(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("\n\nThe\ndog\r\n\nIt\nNew York\n\n\n\u00a0x\n", encoding="utf-8")
    found = list(read_words(str(path), "as-given"))
    expected = [(("The", "dog"), "1", 3), (("It", "New York"), "1", 6), (("\u00a0x",), "2", 10)]
    assert [(one.sentence.words, one.document, one.sentence.line) for one in found] == expected
    assert found[1].tokens == (("It",), ("New", "York"))


def test_a_table_keeps_its_own_columns(tmp_path: Path) -> None:
    path = tmp_path / "rt.csv"
    path.write_text('item,rt,form,text\n7,300,"dog,",a\n7,210,"say ""no""",a\n7,1,x,b\n', encoding="utf-8")
    table = read_table(str(path), Columns("form", ("item",), "text"), "summed")
    assert table.columns.kept == ("rt",)
    expected = [("7", "a", (("300",), ("210",))), ("7", "b", (("1",),))]
    assert [(one.sentence.identifier, one.document, one.kept) for one in table.stimuli] == expected
    assert table.stimuli[0].sentence.words == ("dog,", 'say "no"')
    assert table.stimuli[0].tokens == (("dog", ","), ("say", '"', "no", '"'))


def test_several_columns_name_a_sentence_together_and_come_back_as_keys(tmp_path: Path) -> None:
    path = tmp_path / "rt.csv"
    path.write_text("item;condition;word\n1;a;x\n1;a;y\n1;b;z\n", encoding="utf-8")
    table = read_table(str(path), Columns(sentence=("item", "condition")), "as-given")
    assert [(one.sentence.words, one.keys) for one in table.stimuli] == [(("x", "y"), ("1", "a")), (("z",), ("1", "b"))]


def test_texts_are_split_into_sentences_and_words_stay_as_they_are() -> None:
    words = ["He", "left.", "“Who?”", "asked", "she.", "The", "fox", "saw…", "dogs", "—and", "fled."]
    rows = tuple((str(number),) for number in range(len(words)))
    given = stimulus(sentence(*words), "summed", kept=rows, keys=("story",))
    found = list(split([given], "en", are_documents=True))
    texts = [" ".join(one.sentence.words) for one in found]
    assert texts == ["He left.", "“Who?” asked she.", "The fox saw… dogs —and fled."]
    assert [one.keys for one in found] == [("story", 1), ("story", 2), ("story", 3)]
    apart = list(split([stimulus(sentence("It", "is.", "I", "don't."), "apart")], "en"))[1]
    assert (apart.sentence.text, word_offsets(apart.sentence)) == ("I don't.", [(0, 1), (2, 4), (4, 7), (7, 8)])
    assert {one.document for one in found} == {"1"}
    assert [cells for one in found for cells in one.kept] == list(rows)
    assert [own for one in found for own in one.tokens] == list(given.tokens)
