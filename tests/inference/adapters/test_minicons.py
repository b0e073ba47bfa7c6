"""Figures under minicons' method names are those of ``score``."""

import math

import pytest
import torch

from tests.models.test_bits import build
from treelm.errors import InputError
from treelm.inference.adapters.minicons import Scorer

TEXTS = ["the unbelievable cats sleep", "a dog sees the moon"]


@pytest.mark.parametrize("system", ["lstm", "rnng"])
def test_sequence_score_is_the_mean_log_probability_of_tokens_unless_told_otherwise(system: str) -> None:
    lm = build(system, "subword")
    scores = [torch.from_numpy(score.log_probs[:-1]) for score in lm.score([text.split() for text in TEXTS])]
    scorer = Scorer(lm)
    assert scorer.sequence_score(TEXTS) == pytest.approx([float(score.mean()) for score in scores])
    assert scorer.sequence_score(TEXTS[0]) == pytest.approx([float(scores[0].mean())])
    in_bits = scorer.sequence_score(TEXTS, reduction=lambda x: x.sum(0).item(), base_two=True)
    assert in_bits == pytest.approx([float(score.sum()) / math.log(2) for score in scores])


def test_probabilities_and_ranks_follow_the_distribution() -> None:
    lm = build("lstm", "word")
    (row,) = Scorer(lm).token_score("the dog barks", prob=True, rank=True)
    state = lm.start(1)
    for (_, value, place), word in zip(row, ["the", "dog", "barks"], strict=True):  # type: ignore[misc]
        (token,) = lm.vocabulary.encode([word]).ids.tolist()
        log_probs = lm.next_word_log_probs(state)[0]
        assert value == pytest.approx(float(log_probs[token].exp()))
        assert log_probs.sort(descending=True).indices.tolist().index(token) + 1 == place
        state = lm.extend(state, [word])


@pytest.mark.parametrize("unit", ["token", "word"])
def test_prefix_and_stimulus_make_the_sentence(unit: str) -> None:
    scorer = Scorer(build("lstm", "subword"), unit=unit)  # type: ignore[arg-type]

    def total(x: torch.Tensor) -> float:
        return float(x.sum())

    (whole,) = scorer.sequence_score("the unbelievable cats sleep", reduction=total)
    (start,) = scorer.sequence_score("the unbelievable", reduction=total)
    for separator, prefix, rest in ((" ", "the unbelievable", "cats sleep"), ("", "the unbelievable ", "cats sleep")):
        (given,) = scorer.conditional_score(prefix, rest, separator=separator, reduction=total)
        assert given == pytest.approx(whole - start)


def test_contradictions_are_one_line() -> None:
    scorer = Scorer(build("lstm", "word"), unit="word")
    for call, part in (
        (lambda: scorer.token_score("the dog", prob=True, base_two=True), "prob and base_two"),
        (lambda: scorer.token_score("the dog", prob=True, surprisal=True), "prob and surprisal"),
        (lambda: scorer.token_score("the dog", rank=True), "ranks of words"),
        (lambda: scorer.conditional_score(["the"], ["dog", "cat"]), "1 prefixes for 2 stimuli"),
        (lambda: scorer.conditional_score("the", " "), "nothing to score"),
        (lambda: scorer.sequence_score(" "), "0 sentences"),
        (lambda: Scorer(build("lstm", "word"), unit="piece"), "unit = 'piece'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match=part):
            call()


def test_words_as_a_function_cuts_them_have_the_sums_of_the_models_own_words() -> None:
    lm = build("lstm", "word")
    scorer = Scorer(lm, tokenisation="treebank", with_end=True)
    text = "the dog's moon."
    (row,) = scorer.word_score_tokenized(text, str.split, surprisal=True)
    (score,) = lm.score([["the", "dog", "'s", "moon", "."]])
    log_probs = score.log_probs
    expected = [log_probs[0], log_probs[1:3].sum(), log_probs[3:5].sum(), log_probs[5]]
    assert [word for word, _ in row] == ["the", "dog's", "moon.", "</s>"]
    assert [value for _, value in row] == pytest.approx([-float(value) for value in expected])
    with pytest.raises(InputError, match="a part of a word"):
        Scorer(lm).word_score_tokenized(text, lambda text: ["the", "dog", "'s", "moon."])
    with pytest.raises(InputError, match="not in"):
        scorer.word_score_tokenized(text, lambda text: text.upper().split())
    with pytest.raises(InputError, match="bow_correction"):
        scorer.word_score_tokenized(text, str.split, bow_correction=False)


def test_distributions_and_their_likeliest_tokens() -> None:
    lm = build("ngram", "word")
    scorer = Scorer(lm)
    log_probs = scorer.next_word_distribution(["the unbelievable", "", "the"])
    assert log_probs.shape == (3, len(lm.vocabulary) + 1)
    assert torch.equal(log_probs[1], lm.next_word_log_probs(lm.start())[0])
    assert torch.equal(log_probs[2], lm.next_word_log_probs(lm.extend(lm.start(), ["the"]))[0])
    assert torch.equal(scorer.next_word_distribution("the", surprisal=True)[0], -log_probs[2])
    names, probs = scorer.topk(log_probs, k=3)
    assert [len(row) for row in (*names, *probs)] == [3] * 6
    best = int(log_probs[0].argmax())
    assert names[0][0] == ("</s>" if best == len(lm.vocabulary) else lm.vocabulary.token(best))
    assert probs[0][0] == pytest.approx(float(log_probs[0].max().exp()))
    assert scorer.topk(log_probs) == ([row[0] for row in names], [row[0] for row in probs])
