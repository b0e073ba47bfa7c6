"""The ON-LSTM language model against its plain form; its distances and trees; that every regulariser acts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.lstm.test_network import recorded_masks
from tests.models.on_lstm.plain import Masks, plain_losses
from tests.models.rnng.worlds import Symbols
from tests.models.test_streams import stream_batch
from treelm.corpora.encoding import encode_words
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.evaluation.audit import audit
from treelm.models import system_class
from treelm.models.on_lstm.config import ONLSTMConfig
from treelm.models.on_lstm.network import ONLSTM
from treelm.models.persistence.storage import load_model, save_model
from treelm.training.loop import fit
from treelm.training.recipe import load_recipe
from treelm.training.run import set_up
from treelm.trees.distances import tree_from_distances

SIZES = {"embedding_size": 4, "hidden_size": 6, "num_layers": 3, "chunk_size": 2}
REGULARISERS = {
    "embedding_dropout": 0.3,
    "input_dropout": 0.4,
    "layer_dropout": 0.25,
    "output_dropout": 0.4,
    "weight_dropout": 0.45,
    "activation_penalty": 2.0,
    "difference_penalty": 1.0,
}
SENTENCES = [list("1234567"), list("20"), list("7"), list("55512034")]
ROWS = [[int(word) for word in words] + [8] for words in SENTENCES]
SYMBOLS = np.random.default_rng(1).integers(0, 9, (4, 9))


def on_lstm(**config: Any) -> ONLSTM:
    torch.manual_seed(0)
    network = ONLSTM(ONLSTMConfig(**{**SIZES, **config}), vocabulary=Symbols(8)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2).add_(torch.randn_like(parameter) * 0.2)
    return network


def assert_same(network: ONLSTM, fast: Tensor, plain: Tensor) -> None:
    torch.testing.assert_close(fast, plain, rtol=0, atol=1e-10)
    names, parameters = zip(*network.named_parameters(), strict=True)
    found, expected = (torch.autograd.grad(loss, parameters) for loss in (fast, plain))
    for name, one, other in zip(names, found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10, msg=name)


def plain(network: ONLSTM, rows: list[list[int]], masks: Masks | None = None) -> Any:
    return plain_losses(
        dict(network.named_parameters()),
        rows,
        num_layers=network.config.num_layers,
        chunk_size=network.config.chunk_size,
        end=8,
        masks=masks,
    )


@pytest.mark.parametrize("config", [{}, {"num_layers": 1, "distance_layer": 1}, {"chunk_size": 1}])
def test_loss_and_gradients_of_sentences_equal_the_plain_form(config: dict[str, Any]) -> None:
    network = on_lstm(**config)
    fast = network.losses(encode_words(SENTENCES, network.vocabulary)).total
    assert_same(network, fast, plain(network, ROWS).nats)


def test_loss_and_gradients_of_a_stream_with_all_regularisers_equal_the_plain_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = on_lstm(**REGULARISERS).train()
    with recorded_masks(monkeypatch) as drawn:
        losses, _ = network.stream_losses(stream_batch(SYMBOLS, start=0, stop=9), None)
    assert [tuple(one.shape) for one in drawn[2::2]] == [(30, 6), (30, 6), (20, 4)]  # rows of master gates too
    expected = plain(network, SYMBOLS.tolist(), Masks(drawn[0], drawn[1], drawn[2::2], drawn[3::2]))
    assert_same(network, losses.total, expected.nats + 36 * (2 * expected.activation + expected.difference))


@pytest.mark.isa
@pytest.mark.parametrize("cut", [1, 4])
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_two_segments_are_one_pass_but_for_rounding(cut: int, dtype: torch.dtype, rounding: float) -> None:
    # Products of other numbers of rows may take other kernels, which add up in another order.
    network = on_lstm().eval().to(dtype)
    inputs = torch.from_numpy(SYMBOLS.T)
    whole = network.read(inputs, network.begin(4))
    first = network.read(inputs[:cut], network.begin(4))
    second = network.read(inputs[cut:], first.carried)
    together = {"outputs": torch.cat([first.outputs, second.outputs]), **second.carried}
    torch.testing.assert_close(together, {"outputs": whole.outputs, **whole.carried}, rtol=0, atol=rounding)


@pytest.mark.parametrize("name", REGULARISERS)
def test_each_regulariser_acts_in_training_and_only_there(name: str) -> None:
    batch = stream_batch(SYMBOLS, start=0, stop=9)
    network, bare = on_lstm(**{name: REGULARISERS[name]}), on_lstm()
    expected = bare.stream_losses(batch, None)[0].total
    torch.manual_seed(1)
    assert network.train().stream_losses(batch, None)[0].total != expected
    assert network.eval().stream_losses(batch, None)[0].total == expected


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_distances_are_those_of_the_chosen_layer_of_the_plain_form(layer: int) -> None:
    network = on_lstm(distance_layer=layer)
    expected = plain(network, ROWS).distances
    for words, steps, found in zip(SENTENCES, expected, network.distances(SENTENCES), strict=True):
        np.testing.assert_allclose(found, [step[layer - 1] for step in steps[1:]], atol=1e-8)
        assert len(found) == len(words)


@pytest.mark.parametrize("builder", ["unbiased", "biased"])
def test_trees_are_built_from_the_distances(builder: Any) -> None:
    network = on_lstm()
    network.tree_builder = builder
    for words, distances, tree in zip(SENTENCES, network.distances(SENTENCES), network.parse(SENTENCES), strict=True):
        assert tree == tree_from_distances(words, distances, builder=builder)


def test_the_distance_is_high_where_the_master_forget_gate_closes() -> None:
    network = on_lstm(num_layers=1, distance_layer=1)
    weights = network.layers[0].weights
    with torch.no_grad():
        for parameter in (weights.weight_input, weights.weight_hidden, weights.bias, network.embedding):
            parameter.zero_()
        network.embedding[5, 0] = 1.0
        weights.weight_input[-1, 0] = 20.0  # symbol 5: cumax is 0 up to the last chunk
    (distances,) = network.distances([list("1252")])
    assert distances[2] == pytest.approx(0.5, abs=1e-6)  # 1 - (0 + 1) / 2
    assert distances[[0, 1, 3]] == pytest.approx([0.25] * 3)  # 1 - (1/2 + 1) / 2


@pytest.mark.parametrize("config", [{}, REGULARISERS])
def test_the_audit_finds_nothing(config: dict[str, Any]) -> None:
    report = audit(on_lstm(**config).float(), SENTENCES)
    assert report.passed, report.as_text()
    figures = {check.name: check.figure for check in report.checks}
    assert figures["causality"] == figures["batch invariance"] == 0


def test_reading_word_by_word_gives_the_scores_and_sums_to_one() -> None:
    network = on_lstm()
    (score,) = network.score([SENTENCES[0]])
    state, found = network.start(), []
    for word in [*SENTENCES[0], None]:
        log_probs = network.next_word_log_probs(state)[0]
        assert log_probs.exp().sum().item() == pytest.approx(1.0, abs=1e-12)
        found.append(log_probs[8 if word is None else int(word)].item())
        state = state if word is None else network.extend(state, [word])
    np.testing.assert_allclose(found, score.log_probs, atol=1e-8)


def test_sizes_are_those_of_the_paper() -> None:
    vocabulary = WordVocabulary([str(number) for number in range(9_998)])  # and <unk>; the end makes 10,000
    with torch.device("meta"):
        network = ONLSTM(ONLSTMConfig(), vocabulary=vocabulary)
    second_biases = 4830 + 4830 + 1680  # the published code has two a gate
    assert sum(parameter.numel() for parameter in network.parameters()) + second_biases == 25_232_180


def test_overfits_and_scores_the_same_after_saving(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = ONLSTMConfig(embedding_size=16, hidden_size=16, num_layers=2, chunk_size=4)
    network = ONLSTM(config, vocabulary=WordVocabulary([f"w{index}" for index in range(6)]))
    sentences = [["w0", "w1", "w2"], ["w3", "w4"], ["w5", "w0", "w5", "w1"]]
    batch = encode_words(sentences, network.vocabulary)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        (network.losses(batch).total / len(batch)).backward()
        optimizer.step()
    scores = network.score(sentences)
    # What starts a sentence has probability 1/3, all that follows is sure.
    assert sum(score.log_probs.sum() for score in scores) == pytest.approx(3 * np.log(1 / 3), abs=0.2)
    save_model(network, tmp_path)
    loaded = load_model(tmp_path)
    for one, other in zip(scores, loaded.score(sentences), strict=True):
        np.testing.assert_array_equal(one.log_probs, other.log_probs)
    assert loaded.parse(sentences) == network.parse(sentences)


RECIPE = """
[data]
train = "train.txt"
dev = "train.txt"
[vocabulary]
min_count = 1
[model]
system = "on-lstm"
embedding_size = 4
hidden_size = 8
num_layers = 2
chunk_size = 2
layer_dropout = 0.2
weight_dropout = 0.3
activation_penalty = 1.0
[training]
batches = "stream"
batch_size = 4
bptt = 12
bptt_random_length = true
dev_rows = 2
epochs = 3
optimizer = "sgd"
learning_rate = 2.0
checkpoint_every_steps = 3
threads = 1
"""


def test_a_run_stopped_within_an_epoch_and_resumed_is_the_undisturbed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    lines = (" ".join(random.choice(list("abcdefg"), random.integers(1, 9))) for _ in range(40))
    (tmp_path / "train.txt").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "my.toml").write_text(RECIPE)

    def run(name: str, *, resume: bool = False, stop: int | None = None) -> dict[str, Tensor]:
        setup = set_up(load_recipe(tmp_path / "my.toml", []))
        training = setup.recipe.training
        for step in fit(setup.model, setup.batches, setup.dev, training, tmp_path / name, resume=resume):
            if step.step == stop:
                break
        return setup.model.state_dict()

    whole = run("whole")
    run("parts", stop=5)
    for name, tensor in run("parts", resume=True).items():
        assert torch.equal(tensor, whole[name]), name


def test_the_system_is_registered() -> None:
    assert system_class("on-lstm") is ONLSTM


@pytest.mark.parametrize(
    "field",
    [{"hidden_size": 0}, {"hidden_size": 1155}, {"embedding_size": 7}, {"weight_dropout": 1.0}, {"distance_layer": 4}],
)
def test_impossible_configs_are_user_errors(field: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(field))):
        dataclasses.replace(ONLSTMConfig(), **field)
