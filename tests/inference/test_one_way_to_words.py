"""A text has the same words whoever reads it: the interface of models, files, stimuli, pairs, suites."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import treelm
from tests.evaluation.toys import ToyLM
from treelm.corpora.readers import read_sentences
from treelm.corpora.tokens import BLANKS, Tokenisation, words_of
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.evaluation.minimal_pairs import read_pairs, score_pairs
from treelm.evaluation.syntaxgym.scoring import score_suites
from treelm.evaluation.syntaxgym.suites import load_suites
from treelm.inference.annotation import Progress, read_input
from treelm.inference.sentence_rows import Columns
from treelm.inference.settings import AnnotationSettings
from treelm.inference.stimuli import Stimulus, from_sentences, read_table, read_words
from treelm.models.scores import SentenceScore
from treelm.trees.tree import Tree

Words = tuple[str, ...]


class Recorder(ToyLM):
    """Knows no word, and keeps all that it is asked to score."""

    def __init__(self) -> None:
        super().__init__()
        self.vocabulary = WordVocabulary([])
        self.seen: list[Words] = []

    def score_one(self, words: Sequence[str]) -> SentenceScore:
        self.seen.append(tuple(words))
        return SentenceScore(
            log_probs=-np.ones(len(words) + 1), word_of_token=np.arange(len(words)), is_lower_bound=False
        )


def seen_by(ask: Callable[[Recorder], object]) -> Words:
    """The words of the one sentence, or of all sentences that are the same one."""
    lm = Recorder()
    ask(lm)
    (words,) = set(lm.seen)
    return words


def words_of_tree(trees: Sequence[Tree | None]) -> Words:
    (tree,) = trees
    assert tree is not None
    return tuple(tree.words())


def pairs_file(text: str, folder: Path) -> Path:
    (folder / "pairs.jsonl").write_text(json.dumps({"sentence_good": text, "sentence_bad": text}), encoding="utf-8")
    return folder / "pairs.jsonl"


def suite_file(text: str, folder: Path) -> Path:
    condition = {"condition_name": "c", "regions": [{"region_number": 1, "content": text}]}
    item = {"item_number": 1, "conditions": [condition]}
    suite = {"meta": {"metric": "sum"}, "predictions": [{"formula": "(1;%c%) = (1;%c%)"}], "items": [item]}
    (folder / "suite.json").write_text(json.dumps(suite), encoding="utf-8")
    return folder / "suite.json"


def annotated(text: str, *, tokenise: bool) -> Words:
    how = AnnotationSettings(format="text", tokenise=tokenise)
    (item,) = read_input(io.BytesIO(f"{text}\n".encode()), "in.txt", how, Progress())
    if item.error:
        raise item.error
    return item.words


def from_line(text: str, folder: Path) -> Words:
    (sentence,) = read_sentences(io.BytesIO(f"{text}\n".encode()), format="text")
    return sentence.words


def from_stimulus(text: str, folder: Path) -> Words:
    (found,) = from_sentences(read_sentences(io.BytesIO(f"{text}\n".encode()), format="text"), "as-given")
    return found.words


def from_word_lines(text: str, folder: Path) -> Words:
    (folder / "words.txt").write_text(f"{text}\n", encoding="utf-8")
    return only(list(read_words(str(folder / "words.txt"), "as-given")))


def from_table(text: str, folder: Path) -> Words:
    with (folder / "words.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("word", "sentence_id"), (text, "1")])
    return only(read_table(str(folder / "words.csv"), Columns(), "as-given").stimuli)


def only(stimuli: Sequence[Stimulus]) -> Words:
    (found,) = stimuli
    return found.words


def from_pairs(text: str, folder: Path, how: Tokenisation = "whitespace") -> Words:
    pairs = list(read_pairs(pairs_file(text, folder)))
    return seen_by(lambda lm: score_pairs(lm, pairs, tokenisation=how))


def from_suite(text: str, folder: Path, how: Tokenisation = "whitespace") -> Words:
    suites = load_suites([str(suite_file(text, folder))])
    return seen_by(lambda lm: score_suites(lm, suites, tokenisation=how))


BY_BLANKS: dict[str, Callable[[str, Path], Words]] = {
    "surprisal": lambda text, _: tuple(word.word for word in Recorder().surprisal([text])[0].words),
    "score": lambda text, _: seen_by(lambda lm: lm.score([text])),
    "parse": lambda text, _: words_of_tree(Recorder().parse([text])),
    "analyse": lambda text, _: words_of_tree([one.tree for one in Recorder().analyse([text])]),
    "text": from_line,
    "stimuli": from_stimulus,
    "a word a line": from_word_lines,
    "a table": from_table,
    "annotation": lambda text, _: annotated(text, tokenise=False),
    "pairs": from_pairs,
    "suites": from_suite,
}
AS_TREEBANKS: dict[str, Callable[[str, Path], Words]] = {
    "annotation": lambda text, _: annotated(text, tokenise=True),
    "pairs": lambda text, folder: from_pairs(text, folder, "treebank"),
    "suites": lambda text, folder: from_suite(text, folder, "treebank"),
}
SPACES = "\t\v\f \x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2003\u2009\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
CHARACTERS = st.one_of(
    st.sampled_from(SPACES), st.sampled_from("ab.,'\"(é"), st.characters(exclude_characters="\0\r\n", codec="utf-8")
)
NOT_READ = re.compile(r"\ufeff|\s*([*?#%|(]|\d+[a-z]?[.)])")
LINES = st.text(CHARACTERS, min_size=1, max_size=30).filter(lambda text: not NOT_READ.match(text))
"""Lines of a file; a byte order mark at its start would not be text, nor what linguists write before examples."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@given(text=LINES.filter(words_of))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_words_between_blanks_are_the_same_everywhere(text: str, folder: Path) -> None:
    found = {name: read(text, folder) for name, read in BY_BLANKS.items()}
    assert found == dict.fromkeys(BY_BLANKS, words_of(text))
    assert all(word and not set(word) & set(BLANKS) for word in words_of(text))


@given(text=LINES.filter(lambda text: bool(words_of(text, "treebank"))))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_words_as_in_treebanks_are_the_same_everywhere(text: str, folder: Path) -> None:
    expected = words_of(text, "treebank")
    assert {name: read(text, folder) for name, read in AS_TREEBANKS.items()} == dict.fromkeys(AS_TREEBANKS, expected)


@pytest.mark.parametrize("name", BY_BLANKS)
def test_a_nul_character_is_refused_everywhere(name: str, folder: Path) -> None:
    with pytest.raises(InputError, match="a NUL character"):
        BY_BLANKS[name]("The dog bar\0ks at the cats .", folder)


@pytest.mark.parametrize("ask", ["surprisal", "score", "parse", "analyse"])
@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ("The dog", r"one text where a list of sentences was expected; give \['The dog'\]"),
        (None, "NoneType where a list of sentences was expected; give texts, or lists of words"),
        ([None], "NoneType where a sentence was expected; give a text, or a list of words"),
        ([b"The dog"], "bytes where a sentence was expected; give a text, or a list of words"),
        ([["The", 2]], r"int where a word was expected; give words as texts \(str\)"),
        ([["The", ""]], "an empty word; remove it"),
        ([["The", "d\0g"]], "a NUL character; remove it: text has none"),
    ],
)
def test_what_is_no_list_of_words_is_refused(ask: str, sentences: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        getattr(Recorder(), ask)(sentences)


@pytest.mark.parametrize("name", ["ngram-gum-open", "rnng-gum-open"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("The", r"one text where a list of words was expected; give \['The'\]"),
        (["The"], "1 words for 3 sentences; give one word for each sentence"),
        (["The", "", "A"], "an empty word; remove it"),
        (["The", "d\0g", "A"], "a NUL character; remove it: text has none"),
        (["The", None, "A"], "NoneType where a word was expected; give words as texts"),
    ],
)
def test_states_are_extended_by_a_word_for_each_sentence_not_by_the_characters_of_a_text(
    name: str, words: Any, message: str
) -> None:
    lm = treelm.load(name)
    with pytest.raises(InputError, match=message):
        lm.extend(lm.start(3), words)
