"""Words scored by models of transformers: equal to sums over that library's own log probabilities."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.hf.worlds import CONTEXT, MAKERS, SENTENCES, transformers
from treelm import load
from treelm.errors import InputError
from treelm.evaluation.audit import audit
from treelm.models.base import LanguageModel
from treelm.models.measures import MEASURES, score_with_measures

from . import plain

every_model = pytest.mark.parametrize("name", MAKERS)
with_keys_and_values = pytest.mark.parametrize("name", [name for name in MAKERS if name != "mamba"])  # which is slow
LONG = [*SENTENCES[2], *SENTENCES[3], *SENTENCES[0], *SENTENCES[3], *SENTENCES[2]]


@every_model
def test_words_have_the_bits_that_transformers_gives_their_tokens(folder: Path, lm: LanguageModel) -> None:
    for words, found in zip(SENTENCES, lm.surprisal(SENTENCES), strict=True):
        bits, end = plain.word_bits(folder, words)
        assert [word.surprisal_bits for word in found.words] == pytest.approx(bits, abs=1e-5)
        assert found.end_surprisal_bits == pytest.approx(end, abs=1e-5)


@every_model
def test_the_audit_finds_nothing(lm: Any) -> None:
    report = audit(lm, [SENTENCES[0][:4], SENTENCES[1]], num_cuts=1)
    assert report.passed, report.as_text()
    assert max(check.figure or 0.0 for check in report.checks) < 1e-5  # float32


@with_keys_and_values
def test_distributions_sum_to_one_at_every_token_and_hold_what_scores_say(lm: LanguageModel) -> None:
    lm.double()
    (score,) = lm.score([SENTENCES[2]])
    state, said = lm.start(), []
    for number, word in enumerate(SENTENCES[2]):
        for token in lm.vocabulary.encode([word], sentence_initial=number == 0).ids.tolist():
            log_probs = lm.next_word_log_probs(state)
            assert log_probs.shape == (1, len(lm.vocabulary) + 1)
            assert float(log_probs.exp().sum()) == pytest.approx(1)
            said.append(float(log_probs[0, token]))
            state = lm.extend_tokens(state, [token])
    assert [*said, float(lm.next_word_log_probs(state)[0, -1])] == pytest.approx(score.log_probs.tolist(), abs=1e-6)


@every_model
def test_a_text_of_sentences_is_one_text(lm: LanguageModel) -> None:
    lm.double()
    (whole,) = lm.score([[word for words in SENTENCES[:2] for word in words]])
    first, second = score_with_measures(lm, SENTENCES[:2], [MEASURES["next_entropy_bits"]], in_document=True)
    chained = np.concatenate([first.log_probs[:-1], second.log_probs])
    np.testing.assert_allclose(chained, whole.log_probs, atol=1e-6)
    assert first.log_probs[-1] == 0
    state = lm.start()
    for word in (words[0] for words in SENTENCES[:1]):
        state = lm.extend(state, [word])
    following = lm.next_word_log_probs(state)[0]
    entropy = -float((following.exp() * following).nan_to_num(0).sum()) / math.log(2)
    assert first.columns["next_entropy_bits"][0] == pytest.approx(entropy)
    assert [len(score.columns["next_entropy_bits"]) for score in (first, second)] == [7, 1]


@pytest.mark.parametrize(("name", "context"), [("gpt2", 7), ("gpt2", CONTEXT), ("llama", 2)])
def test_a_long_text_is_read_in_windows_word_by_word_too(context: int, folder: Path, lm: Any) -> None:
    """Whatever is predicted is predicted from a context that was cut down to its latest half when it was full."""
    lm.double().context = context
    text = LONG if context == CONTEXT else LONG[:12]
    (score,) = lm.score([text])
    ids = lm.tokens.segment_text(text)
    assert len(ids) > context
    model, _ = plain.load(folder)
    kept, logits, states = list[int](), [], []
    for token in [*ids, 0]:  # the rule, step by step
        with torch.no_grad():
            read = model.double()(torch.tensor([[lm.tokens.begin, *kept]]), output_hidden_states=True)
        logits.append(read.logits[0, -1].log_softmax(0))
        states.append([layer[0, -1].numpy() for layer in read.hidden_states])
        if len(kept) == context - 1:
            kept = kept[len(kept) - (context - 1) // 2 :]
        kept.append(token)
    within = [place for place, token in enumerate(ids) if place and not lm.tokens.begins_word[token]]
    expected = [float(logits[place][ids[place]]) for place in within]
    tokens = [int(t) for t in lm.vocabulary.encode(text[:1], sentence_initial=True).ids]
    tokens += lm.vocabulary.encode(text[1:]).ids.tolist()
    own = [place for place, token in enumerate(tokens) if token != lm.tokens.end_of_word]
    assert score.log_probs[[own[place] for place in within]].tolist() == pytest.approx(expected, abs=1e-6)
    ends = np.cumsum([token != lm.tokens.end_of_word for token in tokens])[lm.vocabulary.ends_word[tokens]]
    for layer in (1, -1):
        (found,) = lm.hidden_states([text], layer=layer)
        assert found == pytest.approx(np.stack([states[end][layer] for end in ends]), abs=1e-6)
    state = lm.start()
    for word in text:
        state = lm.extend(state, [word])
    assert float(lm.next_word_log_probs(state)[0, -1]) == pytest.approx(score.log_probs[-1], abs=1e-6)


@with_keys_and_values
def test_words_look_as_the_tokens_of_the_eager_network_do(folder: Path, lm: Any) -> None:
    words, implementation = SENTENCES[2], lm.network.config._attn_implementation
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    encoded = (lm.vocabulary.encode([word], sentence_initial=n == 0).ids.tolist() for n, word in enumerate(words))
    pieces = [[lm.tokens.begin], *([one for one in own if one != lm.tokens.end_of_word] for own in encoded)]
    ends = np.cumsum([len(own) for own in pieces])
    with torch.no_grad():
        read = network(torch.tensor([[token for own in pieces for token in own]]), output_attentions=True)
    for layer, weights in enumerate(read.attentions, 1):
        (found,) = lm.attention([words], layer=layer)
        assert found.tokens == ("<s>", *words)
        for row, end in enumerate(ends):
            for column, (own, stop) in enumerate(zip(pieces, ends, strict=True)):
                expected = weights[0, :, end - 1, stop - len(own) : stop].sum(1).numpy()
                np.testing.assert_allclose(found.weights[:, row, column], expected, atol=1e-6)
    assert lm.network.config._attn_implementation == implementation
    lm.context = ends[-1] - 1
    with pytest.raises(InputError, match=r"of which the model sees \d+ at once"):
        lm.attention([words])


@pytest.mark.parametrize("name", ["unigram"])
def test_a_word_that_cannot_be_written_is_unknown(lm: LanguageModel) -> None:
    known, unknown = lm.surprisal([["dog", "猫"]])[0].words
    assert (known.is_unk, unknown.is_unk, unknown.unk_class) == (False, True, "<unk>")


@pytest.mark.parametrize("name", ["gpt2"])
def test_what_is_no_word_to_the_tokenizer_is_refused(lm: LanguageModel) -> None:
    for word in ("New York", "<|endoftext|>", " dog"):
        with pytest.raises(InputError, match="as one word"):
            lm.score([["the", word]])


@pytest.mark.parametrize("name", ["gpt2"])
def test_a_model_that_sees_what_it_predicts_is_refused(folder: Path, tmp_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = transformers.BertLMHeadModel(config)
    torch.nn.init.normal_(model.bert.embeddings.word_embeddings.weight)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="BertLMHeadModel sees the tokens that it is to predict"):
        load(tmp_path)
