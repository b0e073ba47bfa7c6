import gzip
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.toys import Searches, ToyLM, fails_at
from treelm.errors import InputError
from treelm.evaluation.minimal_pairs import MinimalPair, compare_log_probs, read_pairs, score_pairs

BLIMP_LINE = {
    "sentence_good": "a b",
    "sentence_bad": "b a",
    "field": "syntax",
    "linguistics_term": "islands",
    "UID": "one",
    "pairID": "0",
}


def pair(good: str, bad: str, group: str = "g") -> MinimalPair:
    return MinimalPair(good=good, bad=bad, groups={"kind": group}, where="file:1")


def test_accuracy_follows_whole_sentence_log_probabilities() -> None:
    lm = ToyLM()
    pairs = [pair("a b c", "c b a", "x"), pair("b", "c", "x"), pair("c a", "a c", "y")]
    total = {text: lm.score([text.split()])[0].log_probs.sum() for one in pairs for text in (one.good, one.bad)}
    result = score_pairs(lm, pairs, tokenisation="whitespace")
    right = [total[one.good] > total[one.bad] for one in pairs]
    assert (result.overall.correct, result.overall.total) == (sum(right), 3)
    assert result.groups["kind"]["x"].correct == sum(right[:2])
    assert result.groups["kind"]["y"].correct == right[2]


def test_pairs_with_unknown_words_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = ToyLM()
    monkeypatch.setattr(
        lm.vocabulary, "unknown_class", lambda form, sentence_initial=False: "UNK" * (form == "c") or None
    )
    result = score_pairs(lm, [pair("a b", "b c"), pair("a", "b")], tokenisation="whitespace")
    assert (result.num_with_unknown, result.without_unknown.total, result.overall.total) == (1, 1, 2)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_blimp_lines(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "blimp"
    path.write_bytes(pack((json.dumps(BLIMP_LINE) + "\n").encode()))
    (found,) = read_pairs(path)
    assert (found.good, found.bad, found.where) == ("a b", "b a", f"{path}:1")
    assert found.groups == {"UID": "one", "linguistics_term": "islands", "field": "syntax"}


def test_marvin_and_linzen_are_grouped_by_construction(tmp_path: Path) -> None:
    path = tmp_path / "ml.tsv"
    path.write_text("test case\tgrammatical\tungrammatical\nobj_rel--sing\ta b\tb a\n")
    (found,) = read_pairs(path)
    assert (found.good, found.bad, found.groups) == ("a b", "b a", {"construction": "obj_rel"})


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("yes\tno\na\tb\n", "no 'grammatical'"),
        ("grammatical\tungrammatical\na\t\n", ":2"),
        ('{"sentence_good": "a", \n', "not JSON"),
        (
            "n\tgrammatical\tungrammatical\n1\ta\tb\n2\tc\td\n3\te\tf\n1\ta\tb\n2\tc\te\n3\te\td\n",
            "numbered by n: 1 a, 2 c",
        ),
        ("word_id\tgrammatical\tungrammatical\n1\tThe\tA\n2\tdog\tdog\n", ":2: a word in each row"),
    ],
)
def test_bad_file_is_one_line(tmp_path: Path, content: str, part: str) -> None:
    path = tmp_path / "bad"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        list(read_pairs(path))
    assert part in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("mark", ["*", "* ", "?? ", "#", "1. ", "(2a) ", "2b) ", "| "])
@pytest.mark.parametrize("side", ["sentence_good", "sentence_bad"])
def test_what_linguists_write_before_examples_is_not_read(side: str, mark: str, tmp_path: Path) -> None:
    path = tmp_path / "marked"
    path.write_text("\n".join(json.dumps({**BLIMP_LINE, side: f"{start}the man came ."}) for start in ("", mark)))
    with pytest.raises(InputError, match=re.escape(f"{path}:2: {mark.strip()!r} before the sentence in {side!r}")):
        list(read_pairs(path))


@pytest.mark.parametrize("sentence", ["1984 is a book .", "... and so on", "2.5 men came .", "'s is a clitic", "* ."])
def test_numbers_and_marks_of_sentences_are_read(sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    path.write_text(json.dumps({**BLIMP_LINE, "sentence_bad": sentence}))
    assert [pair.bad for pair in read_pairs(path)] == [sentence]


@pytest.mark.parametrize(
    ("rows", "places"),
    [
        (["a b,b a,x", "a b", "a,,y", "c,b,z"], [2, 5]),
        ([json.dumps(BLIMP_LINE), "{", "[1]", '{"sentence_good": 1}', json.dumps(BLIMP_LINE)], [1, 5]),
    ],
)
def test_bad_pairs_are_left_out_and_named(rows: list[str], places: list[int], tmp_path: Path) -> None:
    path = tmp_path / "some"
    is_json = rows[0].startswith("{")
    path.write_text("\n".join([*(() if is_json else ("grammatical,ungrammatical,kind",)), *rows]))
    skipped: list[InputError] = []
    found = list(read_pairs(path, skipped=skipped))
    assert [one.where for one in found] == [f"{path}:{line}" for line in places]
    assert {error.where for error in skipped} == {f"{path}:{line}" for line in range(places[0] + 1, places[1])}


def test_pairs_whose_sentences_cannot_be_scored_are_left_out_and_the_others_keep_their_numbers() -> None:
    lm, skipped = ToyLM(), list[InputError]()
    compute, pairs = fails_at("c"), [pair("a b", "b a"), pair("a c", "c a"), pair("b", "a")]
    found = score_pairs(lm, pairs, compute=compute, skipped=skipped)
    assert found.items["pair"].tolist() == [1, 3]
    assert [error.found for error in skipped] == ["too hard"] * 2
    with pytest.raises(InputError, match="no pair of which both sentences can be scored"):
        score_pairs(lm, pairs[1:2], compute=compute, skipped=skipped)


@pytest.mark.parametrize(
    ("good", "bad", "is_correct", "is_tie"),
    [
        (-100.0, -100.00001, False, True),  # relative to the size
        (-100.0, -100.001, True, False),
        (-100.0, -math.inf, True, False),
        (-math.inf, -100.0, False, False),
        (-math.inf, -math.inf, False, True),
    ],
)
def test_ties_and_impossible_sentences(good: float, bad: float, is_correct: bool, is_tie: bool) -> None:
    found = compare_log_probs(np.array([good]), np.array([bad]))
    assert (found["is_correct"].tolist(), found["is_tie"].tolist()) == ([is_correct], [is_tie])


def test_a_table_of_pairs_says_how_many_words_have_not_converged() -> None:
    pairs = [pair("a b", "b a"), pair("a b", "b a c c")]
    assert score_pairs(Searches(), pairs, tokenisation="whitespace").notes == ("62.5% of the words have not converged",)
    assert score_pairs(ToyLM(), pairs, tokenisation="whitespace").notes == ()
