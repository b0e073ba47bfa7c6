"""From scores to frames: context, words of several tokens, columns, places in the text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas
import pytest

from tests.corpora.helpers import text_sentence
from tests.models.test_bits import build
from tests.systems import SMALL
from treelm.corpora.sentence import Sentence
from treelm.inference.settings import Context
from treelm.inference.stimuli import Punctuation, Stimulus, stimulus, word_offsets
from treelm.inference.surprisal import score_stimuli, word_frame
from treelm.models import SYSTEMS, system_class
from treelm.models.base import LanguageModel
from treelm.models.capabilities import set_search
from treelm.models.scores import SentenceScore, SubwordAggregation, sentence_surprisal
from treelm.models.search.config import SearchConfig
from treelm.models.streams import StreamLM

STREAMS = [name for name in SYSTEMS if issubclass(system_class(name), StreamLM)]
TEXTS = ["the dog barks at the moon", "the cats see a dog , unbelievable", "the moon"]


def stimuli(*texts: str, documents: Sequence[str] = (), punctuation: Punctuation = "as-given") -> list[Stimulus]:
    names = documents or ["1"] * len(texts)
    return [
        stimulus(text_sentence(text, n), punctuation, document=name)
        for n, (text, name) in enumerate(zip(texts, names, strict=True), start=1)
    ]


def frames(lm: LanguageModel, given: Sequence[Stimulus], context: Context = "sentence") -> list[pandas.DataFrame]:
    pairs = score_stimuli(lm, given, context=context)
    return [word_frame(lm, [one], [score], tuple(lm.word_columns)) for one, score in pairs if score is not None]


@pytest.mark.parametrize("kind", ["word", "subword"])
@pytest.mark.parametrize("system", STREAMS)
def test_one_sentence_in_a_row_scores_as_by_itself(system: str, kind: str) -> None:
    lm = build(system, kind)
    assert isinstance(lm, StreamLM)
    for text in TEXTS:
        (in_row,), (alone,) = lm.score_document([text.split()]), lm.score([text.split()])
        np.testing.assert_allclose(in_row.log_probs, alone.log_probs, atol=1e-9)
        assert in_row.columns.keys() == alone.columns.keys()
        for name, values in alone.columns.items():
            np.testing.assert_allclose(in_row.columns[name], values, atol=1e-9)
            assert len(values) == len(text.split())


@pytest.mark.parametrize("system", ["lstm", "prpn"])
def test_a_document_is_one_text_whose_ends_are_tokens(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = build(system, "word")
    assert isinstance(lm, StreamLM)
    sentences = [text.split() for text in TEXTS]
    whole = lm.score_document(sentences)
    monkeypatch.setattr("treelm.models.streams._STEPS", 4)
    for one, other in zip(whole, lm.score_document(sentences), strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-9)
    state = lm.start(1)
    for token in [*lm.vocabulary.encode(sentences[0]).ids.tolist(), lm.end]:
        expected = lm.next_word_log_probs(state)[0, token]
        state = lm.extend_tokens(state, [token]) if token != lm.end else state
    assert whole[0].log_probs[-1] == pytest.approx(float(expected), abs=1e-9)
    assert abs(whole[1].log_probs[0] - lm.score(sentences)[1].log_probs[0]) > 1e-6


def test_context_is_carried_in_a_document_and_only_there() -> None:
    given = stimuli(TEXTS[0], TEXTS[2], TEXTS[0], documents=["a", "a", "b"])
    for system, carries in (("lstm", True), ("ngram", False)):
        lm = build(system, "word")
        found, alone = (
            [one["surprisal_bits"].tolist() for one in frames(lm, given, context)]
            for context in ("document", "sentence")
        )
        assert found[0] == pytest.approx(found[2])
        assert found[0] == pytest.approx(alone[0])
        assert (found[1] != pytest.approx(alone[1])) == carries


class Columns:
    """Of a model: its vocabulary, and how its columns are gathered."""

    def __init__(self, columns: dict[str, SubwordAggregation]) -> None:
        self.vocabulary, self.word_columns = build("lstm", "word").vocabulary, columns


def test_tokens_are_gathered_into_the_words_of_the_experimenter() -> None:
    lm = Columns({"distance": "first", "beam_loss_bits": "sum", "open_nodes": "last", "beam_converged": "min"})
    values = np.array([1.0, 2.0, 4.0])
    score = SentenceScore(
        log_probs=-math.log(2) * np.array([0.5, 0.5, 2.0, 4.0, 8.0]),
        word_of_token=np.array([0, 0, 1, 2]),
        is_lower_bound=False,
        columns=dict.fromkeys(lm.word_columns, values),
    )
    names = ("surprisal_bits", "num_pieces", "is_unk", "distance", "beam_loss_bits", "open_nodes", "beam_converged")
    for punctuation, expected in (("summed", (3, 3, 1, 1, 3, 2, 1)), ("left-out", (1, 2, 0, 1, 1, 1, 1))):
        (one,) = stimuli("dog; moon", punctuation=punctuation)  # type: ignore[arg-type]
        frame = word_frame(lm, [one], [score], tuple(lm.word_columns))  # type: ignore[arg-type]
        assert frame.loc[0, list(names)].tolist() == pytest.approx(list(expected))
        assert (frame.loc[0, "unk_class"] is None) == (punctuation == "left-out")
        assert frame.loc[1, ["surprisal_bits", "distance", "beam_converged"]].tolist() == [4, 4, 4]


@pytest.mark.parametrize("system", [name for name in sorted(SYSTEMS) if build(name, "word").predicts_words])
def test_columns_have_a_figure_for_every_word(system: str) -> None:
    searched = {"entropy_bits", "open_nodes", "beam_loss_bits", "beam_bound_bits", "beam_converged"}
    searched |= {"num_actions", "num_reduces", "search_actions", "syntactic_bits", "lexical_bits"}
    attention = {"attention_entropy", "nae", "delta_nae"}
    expected = {name: searched for name in ("pushdown", "rnng", "urnng")} | {
        "transformer-grammar": searched | attention,
        "som": {"depth", "attachment_slot"},
        "on-lstm": {"distance"},
        "prpn": {"distance"},
        "transformer": attention,
        "palm": {"attended_length", "attention_entropy_bits"},
    }
    lm = build(system, "word" if SMALL[system].whole_words else "subword")
    set_search(lm, SearchConfig(action_beam=20, word_beam=5, threshold=8.0))
    assert lm.word_columns.keys() == expected.get(system, set())
    (found,) = frames(lm, stimuli(TEXTS[1]))
    assert np.isfinite(found[list(lm.word_columns)].to_numpy(float)).all()


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        (None, ("the", "\u00a0", "dog"), [(0, 3), (4, 5), (6, 9)]),
        ("  the   dog ", ("the", "dog"), [(2, 5), (8, 11)]),
        ("I don't", ("I", "do", "n't"), [(0, 1), (2, 4), (4, 7)]),
        ("the the the", ("the", "the", "the"), [(0, 3), (4, 7), (8, 11)]),
        ("al mar", ("a", "el", "mar"), [(0, 1), (None, None), (3, 6)]),
        ("im Haus bei dem", ("in", "dem", "Haus", "bei", "dem"), [(None, None)] * 2 + [(3, 7), (8, 11), (12, 15)]),
        ("cái bàn.", ("cái\u00a0bàn", "."), [(0, 7), (7, 8)]),  # one word of CoNLL-U with a blank
        ("我看他们", ("我", "?", "他", "们"), [(0, 1), (None, None), (2, 3), (3, 4)]),
    ],
)
def test_offsets_follow_the_text(text: str | None, words: tuple[str, ...], expected: list[tuple[int, int]]) -> None:
    assert word_offsets(Sentence(words=words, text=text, identifier="s1", source="in.txt", line=1)) == expected


def test_surprisal_of_a_word_is_the_sum_over_its_tokens_and_names_the_class_of_unknown_ones() -> None:
    score = SentenceScore(
        log_probs=np.log([0.5, 0.25, 0.125, 0.5]), word_of_token=np.array([0, 1, 1]), is_lower_bound=False
    )
    found = sentence_surprisal(["the", "zebra"], score, build("lstm", "word").vocabulary)
    assert [word.surprisal_bits for word in found.words] == pytest.approx([1.0, 5.0])
    assert [word.num_pieces for word in found.words] == [1, 2]
    assert [word.is_unk for word in found.words] == [False, True]
    assert found.words[1].unk_class
    assert found.total_bits == pytest.approx(7.0)
