"""The Transformer against its plain form: sentences, streams with memory, and states that share what they have read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.layers.plain_attention import columns_of, looks_back
from tests.models.rnng.worlds import Tokens
from tests.models.stream_toys import stream_batch
from tests.models.transformer.plain import layer_weights, plain_layers, plain_losses
from tests.models.weights import stirred
from treelm.corpora.encoding import EncodedCorpus, encode_words
from treelm.corpora.vocabulary import Vocabulary
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.models import streams
from treelm.models.layers import attention
from treelm.models.persistence.storage import load_model, save_model
from treelm.models.transformer.config import TransformerConfig
from treelm.models.transformer.network import Transformer

SIZES = {"size": 12, "num_layers": 2, "num_heads": 3, "max_distance": 3, "dropout": 0.0}
WORDS = [list("1234567"), list("20"), list("7"), list("55512034")]
POSITIONS = ["relative", "learned", "rotary"]
every_kind = pytest.mark.parametrize("positions", POSITIONS)


def transformer(seed: int = 0, *, vocabulary: Vocabulary | None = None, **config: Any) -> Transformer:
    torch.manual_seed(seed)
    network = Transformer(TransformerConfig(**{**SIZES, **config}), vocabulary=vocabulary or Tokens(8)).double()
    return stirred(network, 0.3)


def sizes_of(network: Transformer) -> dict[str, Any]:
    names = ("num_layers", "num_heads", "positions", "max_distance", "memory_length", "sink_tokens")
    return {"end": len(network.vocabulary), **{name: getattr(network.config, name) for name in names}}


def plain_nats(network: Transformer, rows: list[list[int]]) -> list[Tensor]:
    parameters = dict(network.named_parameters())
    return [torch.stack(plain_losses(parameters, row, **sizes_of(network))) for row in rows]


def ended(words: list[list[str]]) -> list[list[int]]:
    return [[int(word) for word in one] + [8] for one in words]


SINKS = {"memory_length": 2, "sink_tokens": 1}


@pytest.mark.parametrize("config", [{}, {"memory_length": 2}, SINKS, {"size": 4, "num_heads": 1, "num_layers": 1}])
@every_kind
def test_loss_and_gradients_of_sentences_equal_the_plain_form(positions: str, config: dict[str, Any]) -> None:
    if (positions == "learned" and "memory_length" in config) or (positions != "relative" and "sink_tokens" in config):
        return
    network = transformer(positions=positions, **config)
    fast = network.losses(encode_words(WORDS, network.vocabulary)).total
    assert_same_loss_and_gradients(network, fast, torch.cat(plain_nats(network, ended(WORDS))).sum())


@every_kind
def test_scores_are_those_of_the_plain_form_also_of_subwords(positions: str) -> None:
    vocabulary = Tokens(8, num_unfinished=3)
    network = transformer(positions=positions, vocabulary=vocabulary).eval()
    words = [["0+1+5", "6", "2+7"], ["4"]]
    for score, wanted in zip(network.score(words), plain_nats(network, [[0, 1, 5, 6, 2, 7, 8], [4, 8]]), strict=True):
        np.testing.assert_allclose(score.log_probs, -wanted.detach().numpy(), atol=1e-8)
    state = network.start(2)
    for one, other in (("0+1+5", "4"), ("6", "4")):
        state = network.extend(state, [one, other])
    expected = plain_nats(network, [[0, 1, 5, 6, 2]])[0][-1]
    assert network.next_word_log_probs(state)[0, 2].item() == pytest.approx(-expected.item(), abs=1e-8)


def plain_entropies(network: Transformer, tokens: list[int]) -> np.ndarray:
    """How widely the last layer looks back, from the end that stands first and from each token: (1 + tokens, H, 2)."""
    sizes, found = sizes_of(network), list[list[Tensor]]()
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    plain_layers(parameters, [sizes.pop("end"), *tokens], **sizes, attention=found)
    heads, last = network.config.num_heads, layer_weights(parameters, network.config.num_layers - 1)
    entropies = [
        looks_back(last, weights[:-1], values[:-1], number % heads, heads)  # the last is the query's own
        for number, (weights, *values) in enumerate(found)
    ]
    return np.array(entropies).reshape(-1, heads, 2)


@pytest.mark.parametrize("most", [2**24, 1, 50])
@pytest.mark.parametrize("memory_length", [0, 2])
@every_kind
def test_attention_entropy_of_words_is_that_of_the_plain_form(
    positions: str, memory_length: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if positions == "learned" and memory_length:
        return
    monkeypatch.setattr(attention, "MOST_WEIGHTS", most)
    network = transformer(positions=positions, memory_length=memory_length, vocabulary=Tokens(8, num_unfinished=3))
    words = [["0+1+5", "6", "2+7"], ["4"], list("65456745")]
    tokens = [[0, 1, 5, 6, 2, 7], [4], [6, 5, 4, 5, 6, 7, 4, 5]]
    places = [[[1, 2, 3], [4], [5, 6]], [[1]], [[place] for place in range(1, 9)]]
    for score, row, own in zip(network.eval().score(words), tokens, places, strict=True):
        for name, expected in columns_of(plain_entropies(network, row), own).items():
            np.testing.assert_allclose(score.columns[name], expected, rtol=0, atol=1e-9)
    spreads = score.columns["nae"] / network.config.num_heads
    assert spreads[0] == 0 < min(spreads[1:]) < 1


# Streams.

TOKENS = np.random.default_rng(1).integers(0, 9, (3, 14))


@pytest.mark.parametrize("positions", ["relative", "rotary"])
@pytest.mark.parametrize(("memory_length", "sink_tokens"), [(1, 0), (4, 0), (20, 0), (1, 1), (2, 1), (4, 3), (20, 2)])
def test_segments_with_memory_are_one_long_row_that_sees_so_far_back(
    positions: str, memory_length: int, sink_tokens: int
) -> None:
    if positions == "rotary" and sink_tokens:
        return
    network = transformer(positions=positions, memory_length=memory_length, sink_tokens=sink_tokens)
    expected = torch.cat(plain_nats(network, TOKENS.tolist())).sum().item()
    for cuts, training in product([(1, 6, 9), tuple(range(1, 14))], [True, False]):
        network.train(training)
        carried, nats = None, list[float]()
        for start, stop in pairwise((0, *cuts, 14)):
            losses, carried = network.stream_losses(stream_batch(TOKENS, start=start, stop=stop), carried)
            nats.append(losses.total.item())
        assert sum(nats) == pytest.approx(expected, abs=1e-9)


def test_the_gradient_of_a_segment_stops_at_the_inputs_of_what_it_remembers() -> None:
    """The first segment equals the plain form; in the next, keys and values of the memory are of present weights."""
    network = transformer(memory_length=20)
    first, carried = network.stream_losses(stream_batch(TOKENS, start=0, stop=7), None)
    assert_same_loss_and_gradients(network, first.total, torch.cat(plain_nats(network, TOKENS[:, :7].tolist())).sum())
    assert not any(tensor.requires_grad for tensor in carried.values())
    inputs = carried["inputs.1"].requires_grad_()
    second, _ = network.stream_losses(stream_batch(TOKENS, start=7, stop=14), carried)
    assert torch.autograd.grad(second.total, inputs)[0].any()


@pytest.mark.parametrize("training", [True, False])
def test_a_row_keeps_its_first_tokens_though_rows_began_at_different_times(training: bool) -> None:
    """The memory of a row that was begun anew lies beside that of one that goes on; its sinks are its own."""
    network = transformer(memory_length=2, sink_tokens=2, max_distance=20).train(training)
    _, carried = network.stream_losses(stream_batch(TOKENS, start=0, stop=7), None)
    fresh = network.init_state(len(TOKENS))
    carried = {name: torch.cat([fresh[name][:1], tensor[1:]]) for name, tensor in carried.items()}
    reading = network.read_segment(stream_batch(TOKENS, start=7, stop=14), carried)
    log_probs = network.target_log_probs(reading.outputs, torch.from_numpy(TOKENS[:, 7:].T.copy()))
    whole = plain_nats(network, TOKENS.tolist())
    sizes = {**sizes_of(network), "end": int(TOKENS[0, 6])}  # what the row begins with
    begun = torch.stack(plain_losses(dict(network.named_parameters()), TOKENS[0, 7:].tolist(), **sizes))
    expected = torch.stack([begun, *(row[7:] for row in whole[1:])], 1)
    torch.testing.assert_close(-log_probs, expected.detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("memory_length", "sink_tokens"), [(0, 0), (3, 0), (3, 1), (3, 3), (30, 0), (30, 2)])
def test_a_text_is_scored_as_one_row(memory_length: int, sink_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing depends on how many tokens are read at a time."""
    network = transformer(memory_length=memory_length, sink_tokens=sink_tokens).eval()
    monkeypatch.setattr(streams, "_STEPS", 4)
    scores = network.score_document(WORDS)
    (expected,) = plain_nats(network, [[token for row in ended(WORDS) for token in row]])
    found = np.concatenate([score.log_probs for score in scores])
    np.testing.assert_allclose(found, -expected.detach().numpy(), atol=1e-8)
    if memory_length:
        entropies = plain_entropies(network, [token for row in ended(WORDS) for token in row])
        is_word = np.concatenate([[False], *([True] * len(words) + [False] for words in WORDS)])
        for name, values in columns_of(entropies, [[place] for place in np.flatnonzero(is_word)]).items():
            columns = np.concatenate([score.columns[name] for score in scores])
            np.testing.assert_allclose(columns, values, rtol=0, atol=1e-9)


def test_a_trained_network_reads_with_another_memory(tmp_path: Path) -> None:
    """``reading`` of config.json touches no weight; what is saved again has it as its own."""
    network = transformer(memory_length=20, vocabulary=WordVocabulary(["a", "b"]))
    save_model(network.float(), tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "reading": SINKS}))
    read = load_model(tmp_path / "run")
    assert read.config == replace(network.config, **SINKS)
    save_model(read, tmp_path / "again")
    assert load_model(tmp_path / "again").config == read.config
    assert torch.equal(read.state_dict()["embedding"], load_model(tmp_path / "again").state_dict()["embedding"])


# Word by word.


# Sizes and limits.


@every_kind
def test_it_starts_near_the_uniform_distribution_whatever_the_seed(positions: str) -> None:
    vocabulary = Tokens(50)
    for seed in range(20):
        torch.manual_seed(seed)
        config = TransformerConfig(size=32, num_layers=3, num_heads=4, positions=positions)  # type: ignore[arg-type]
        network = Transformer(config, vocabulary=vocabulary)
        losses = network.losses(encode_words([["3", "17", "49"], [str(one) for one in range(30, 39)]], vocabulary))
        assert losses.total.item() / 14 == pytest.approx(np.log(51), abs=0.3)
        losses.total.backward()
        assert all(one.grad is not None and one.grad.isfinite().all() for one in network.parameters())


def test_what_is_longer_than_learned_positions_is_refused_before_training() -> None:
    network = transformer(positions="learned", max_length=4).eval()

    class Corpus:
        num_tokens = np.array([3, 4, 9])

        def name(self, index: int) -> str:
            return f"train.txt:{index + 1}"

    corpus: EncodedCorpus = Corpus()  # type: ignore[assignment]
    message = r"train\.txt:2: 4 tokens in a row, of which learned positions take 3; raise max_length, or"
    with pytest.raises(InputError, match=message):
        network.check_corpus(corpus, trains=True)
    assert len(network.score([list("123")])[0].log_probs) == 4
    for ask in (lambda: network.score([list("1234")]), lambda: network.losses(encode_words(WORDS, network.vocabulary))):
        with pytest.raises(InputError, match="in a row, of which learned positions take 3"):
            ask()
    state = network.start()
    for word in "123":
        state = network.extend(state, [word])
    with pytest.raises(InputError, match="4 tokens in a row"):
        network.extend(state, ["4"])
    assert network.extend_tokens(state, [None]) is state


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        ({"size": 8}, "'size' in 'reading' of a transformer; give memory_length and sink_tokens alone"),
        ([2], "reading = [2]; copy the run folder again"),
        ({"sink_tokens": 21}, "sink_tokens = 21; give at most memory_length = 20"),
        ({"memory_length": "x"}, "memory_length = 'x'; give a whole number"),
    ],
)
def test_what_cannot_be_read_with_is_refused(tmp_path: Path, reading: Any, message: str) -> None:
    save_model(transformer(memory_length=20, vocabulary=WordVocabulary(["a", "b"])).float(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "reading": reading}))
    with pytest.raises(InputError, match=re.escape(message)):
        load_model(tmp_path)
