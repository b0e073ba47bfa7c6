"""ARPA files: what is written is read again, by us and by KenLM; what is damaged is told with its line."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Treelm, treelm  # noqa: F401
from tests.fuzz.seeds import ARPA
from treelm import load
from treelm.errors import InputError

SENTENCES = [["The", "museum", "was", "built", "in", "the", "city", "."], ["of", "of", "the", "of"], ["Zymurgy"]]
SMALL = ARPA.decode()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arpa") / "ngram.arpa"
    load("ngram-gum-open").write_arpa(path)
    return path


@pytest.fixture(scope="module")
def read(exported: Path) -> Any:
    return load(exported)


def as_tokens(lm: Any, words: list[str]) -> list[str]:
    """Words as the model has them: unknown ones by their class."""
    initial, rest = lm.vocabulary.encode(words[:1], sentence_initial=True), lm.vocabulary.encode(words[1:])
    return [lm.vocabulary.token(int(index)) for index in (*initial.ids, *rest.ids)]


def test_what_is_exported_says_the_same_when_it_is_read(read: Any) -> None:
    ours = load("ngram-gum-open")
    for words in SENTENCES:
        (score,), (again,) = ours.score([words]), read.score([as_tokens(ours, words)])
        np.testing.assert_allclose(again.log_probs, score.log_probs, atol=1e-5)
    state = read.extend(read.start(), ["The"])
    assert float(read.next_word_log_probs(state).exp().sum()) == pytest.approx(1, abs=1e-4)


def test_scores_beside_those_of_kenlm(exported: Path, read: Any) -> None:
    kenlm = pytest.importorskip("kenlm", reason="the kenlm package is not installed (a C++ compiler builds it)")
    ours, theirs = load("ngram-gum-open"), kenlm.Model(str(exported))
    for words in SENTENCES:
        tokens = as_tokens(ours, words)
        expected = [log_prob * math.log(10) for log_prob, _, _ in theirs.full_scores(" ".join(tokens))]
        np.testing.assert_allclose(read.score([tokens])[0].log_probs, expected, atol=1e-4)
        np.testing.assert_allclose(ours.score([words])[0].log_probs, expected, atol=1e-4)


def test_a_small_file_has_the_probabilities_that_stand_there(tmp_path: Path) -> None:
    (tmp_path / "small.arpa").write_text(SMALL)
    lm = load(tmp_path / "small.arpa")
    score, other = lm.score([["dog", "dog"], ["cat", "dog"]])
    assert (score.log_probs / math.log(10)).tolist() == pytest.approx([-0.1, -0.5, -0.7])
    assert (other.log_probs / math.log(10)).tolist() == pytest.approx([-0.3 - 1.5, -0.4, -0.7])
    assert [word.is_unk for word in lm.surprisal([["cat", "dog"]])[0].words] == [True, False]


def test_a_file_stands_wherever_a_run_can(treelm: Treelm, tmp_path: Path) -> None:  # noqa: F811
    arpa, text, trees = tmp_path / "small.arpa", tmp_path / "text.txt", tmp_path / "trees.ptb"
    arpa.write_text(SMALL)
    text.write_text("dog dog\n")
    trees.write_text("(S (NP (NN dog)) (VP (VB dog)))\n")
    found = treelm("surprisal", arpa, text)
    assert (found.code, len(found.out.splitlines())) == (0, 3), found.err
    compared = treelm("compare", arpa, "--data", trees)
    assert compared.code == 0, compared.err
    again = treelm("export", arpa, "--to", "arpa", "--output", tmp_path / "again.arpa")
    assert again.code == 0, again.err
    assert load(tmp_path / "again.arpa").score(["dog cat"])[0].log_probs.tolist() == pytest.approx(
        load(arpa).score(["dog cat"])[0].log_probs.tolist()
    )
    refused = treelm("export", "lstm-gum-open", "--to", "arpa", "--output", tmp_path / "no.arpa")
    assert (refused.code, "has no n-grams" in refused.err, (tmp_path / "no.arpa").exists()) == (2, True, False)
    assert treelm("export", arpa, "--to", "arpa", "--output", text).code == 2


@pytest.mark.parametrize(
    ("before", "after", "found", "line"),
    [
        ("\\data\\", "data", "no ARPA file", ""),
        ("ngram 2=3", f"ngram 2={'9' * 5000}", "no ARPA file", ""),
        ("-0.5\tdog dog", "-1_2\tdog dog", "is not an n-gram of length 2", ":13"),
        ("-0.5\tdog dog", "-\u0661\tdog dog", "is not an n-gram of length 2", ":13"),
        ("-0.4\tdog", "-0.4\t<UNK>", "'<unk>' stands twice", ":8"),
        ("ngram 2=3", "ngram 3=3", "n-grams of length 3", ":3"),
        ("-0.5\tdog dog", "-0.5\tdog", "is not an n-gram of length 2", ":13"),
        ("-0.5\tdog dog", "x\tdog dog", "is not an n-gram of length 2", ":13"),
        ("-0.5\tdog dog", "0.5\tdog dog", "is not an n-gram of length 2", ":13"),
        ("-0.5\tdog dog", "-0.5\tcat dog", "without 'cat'", ":13"),
        ("-0.5\tdog dog", "-0.5\tdog </s>", "'dog </s>' stands twice", ":14"),
        ("-0.6\t</s>", "-0.6\tend", "no </s> among its words", ""),
        ("-0.7\tdog </s>\n", "", "is not an n-gram", ":14"),
        ("\n\\end\\\n", "", "no .end. behind", ":15"),
    ],
)
def test_a_damaged_file_is_told_with_its_line(before: str, after: str, found: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.arpa"
    assert before in SMALL
    path.write_text(SMALL.replace(before, after))
    with pytest.raises(InputError, match=found) as error:
        load(path)
    assert error.value.where is not None
    assert error.value.where.startswith(f"{path}{line}")


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (math.log10, ""),
        (math.log, ":6: .* sum to 0.28, not 1: .* natural"),
        (lambda p: math.log10(p / 2), "sum to 0.50, not 1$"),
    ],
)
def test_words_whose_probabilities_are_no_distribution_are_told_of(
    log: Any, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    half, quarter = log(0.5), log(0.25)
    rows = f"-99\t<s>\n{half}\t</s>\n{quarter}\t<unk>\n{quarter}\tdog"
    (tmp_path / "own.arpa").write_text(f"\\data\\\nngram 1=4\n\n\n\\1-grams:\n{rows}\n\n\\end\\\n")
    load(tmp_path / "own.arpa")
    assert len(caplog.messages) == bool(message)
    assert all(re.search(message, line) for line in caplog.messages)
