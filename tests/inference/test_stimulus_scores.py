"""Figures of stimuli: context, words of several tokens, columns."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tests.models.test_bits import build
from tests.systems import SMALL
from treelm.corpora.sentence import Sentence
from treelm.inference.stimuli import Stimulus, stimulus
from treelm.inference.stimulus_scores import ScoredStimulus, gather, score_stimuli
from treelm.models import SYSTEMS, system_class
from treelm.models.measures import ENTROPY, MEASURES
from treelm.models.scores import Gathering, SentenceSurprisal, WordSurprisal
from treelm.models.streams import StreamLM, score_text

STREAMS = [name for name in SYSTEMS if issubclass(system_class(name), StreamLM)]
TEXTS = ["the dog barks at the moon", "the cats see a dog , unbelievable", "the moon"]


def stimuli(*texts: str, documents: Sequence[str] = ()) -> list[Stimulus]:
    names = documents or ["1"] * len(texts)
    return [
        stimulus(Sentence(words=tuple(text.split()), identifier=str(n), source="in", line=n), "as-given", document=name)
        for n, (text, name) in enumerate(zip(texts, names, strict=True), start=1)
    ]


def bits(found: Sequence[ScoredStimulus]) -> list[list[float]]:
    return [[word.surprisal_bits for word in one.scored.surprisal.words] for one in found]


@pytest.mark.parametrize("kind", ["word", "subword"])
@pytest.mark.parametrize("system", STREAMS)
def test_one_sentence_in_a_row_scores_as_by_itself(system: str, kind: str) -> None:
    lm = build(system, kind)
    assert isinstance(lm, StreamLM)
    for text in TEXTS:
        (in_row,), (alone,) = score_text(lm, [text.split()]), lm.score([text.split()])
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
    whole = score_text(lm, sentences)
    monkeypatch.setattr("treelm.models.streams._STEPS", 4)
    for one, other in zip(whole, score_text(lm, sentences), strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-9)
    state = lm.start(1)
    for token in [*lm.vocabulary.encode(sentences[0]).ids.tolist(), lm.end]:
        expected = lm.next_word_log_probs(state)[0, token]
        state = lm.extend_tokens(state, [token]) if token != lm.end else state
    assert whole[0].log_probs[-1] == pytest.approx(float(expected), abs=1e-9)
    assert abs(whole[1].log_probs[0] - lm.score(sentences)[1].log_probs[0]) > 1e-6


def test_context_is_carried_in_a_document_and_only_there() -> None:
    lm = build("lstm", "word")
    given = stimuli(TEXTS[0], TEXTS[2], TEXTS[0], documents=["a", "a", "b"])
    carried = list(score_stimuli(lm, given, context="document"))
    apart = list(score_stimuli(lm, given))
    assert {one.context for one in carried} == {"document"}
    assert {one.context for one in apart} == {"sentence"}
    first, second, third = bits(carried)
    assert first == pytest.approx(third)
    assert first == pytest.approx(bits(apart)[0])
    assert second != pytest.approx(bits(apart)[1])


def test_a_system_of_whole_sentences_begins_each_from_nothing_and_says_so() -> None:
    lm, given = build("ngram", "word"), stimuli(*TEXTS)
    found = list(score_stimuli(lm, given, context="document"))
    assert {one.context for one in found} == {"sentence"}
    assert bits(found) == bits(list(score_stimuli(lm, given)))


@pytest.mark.parametrize("system", ["lstm", "ngram", "rnng", "som"])
def test_entropy_is_that_of_the_next_token_after_the_word(system: str) -> None:
    lm, words = build(system, "subword"), TEXTS[1].split()
    (found,) = score_stimuli(lm, stimuli(TEXTS[1]), measures=[MEASURES[ENTROPY]])
    state = lm.start(1)
    for word, said in zip(words, found.scored.surprisal.words, strict=True):
        state = lm.extend(state, [word])
        log_probs = lm.next_word_log_probs(state)[0]
        shares = (log_probs - log_probs.logsumexp(0)).exp()
        expected = -sum(p * math.log2(p) for p in shares.tolist() if p > 0)
        assert said.columns[ENTROPY] == pytest.approx(expected, abs=1e-6)


COLUMNS: dict[str, Gathering] = {
    "distance": "first",
    "beam_loss_bits": "sum",
    "open_nodes": "last",
    "beam_converged": "least",
    "other": "last",
}


def test_tokens_are_gathered_into_the_words_of_the_experimenter() -> None:
    one = stimulus(Sentence(words=("dog,", "x"), identifier="1", source="in", line=1), "summed")
    left_out = stimulus(one.sentence, "left-out")

    def token(word: str, value: float, unknown: str | None = None) -> WordSurprisal:
        columns = dict.fromkeys(("distance", "beam_loss_bits", "open_nodes", "beam_converged", "other"), value)
        known = unknown is None
        return WordSurprisal(
            word=word, surprisal_bits=value, is_unk=not known, unk_class=unknown, num_pieces=2, columns=columns
        )

    tokens = SentenceSurprisal(words=(token("dog", 1), token(",", 2, "MARK"), token("x", 4)), end_surprisal_bits=8)
    first, second = gather(one, tokens, COLUMNS).words
    assert (first.word, first.surprisal_bits, first.num_pieces, first.unk_class) == ("dog,", 3, 4, "MARK")
    assert first.columns == {"distance": 1, "beam_loss_bits": 3, "open_nodes": 2, "beam_converged": 1, "other": 2}
    assert second.surprisal_bits == 4
    assert gather(one, tokens, COLUMNS).total_bits == tokens.total_bits
    without = gather(left_out, tokens, COLUMNS).words[0]
    assert (without.surprisal_bits, without.is_unk, without.columns["open_nodes"]) == (1, False, 1)


@pytest.mark.parametrize("system", [name for name in sorted(SYSTEMS) if build(name, "word").predicts_words])
def test_columns_have_a_figure_for_every_word(system: str) -> None:
    searched = {"entropy_bits", "open_nodes", "beam_loss_bits", "beam_bound_bits", "beam_converged"}
    searched |= {"num_actions", "num_reduces", "search_actions", "syntactic_bits", "lexical_bits"}
    expected = {name: searched for name in ("pushdown", "rnng", "transformer-grammar", "urnng")} | {
        "som": {"depth", "attachment_slot"},
        "on-lstm": {"distance"},
        "prpn": {"distance"},
        "transformer": {"attention_entropy"},
        "palm": {"attended_length", "attention_entropy_bits"},
    }
    lm = build(system, "word" if SMALL[system].whole_words else "subword")
    (found,) = score_stimuli(lm, stimuli(TEXTS[1]))
    for word in found.scored.surprisal.words:
        assert word.columns.keys() == expected.get(system, set())
        assert all(math.isfinite(value) for value in word.columns.values())
