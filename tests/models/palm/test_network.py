"""PaLM against its plain form: every variant, losses and gradients; and that it never sees what comes later."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.lstm.test_network import recorded_masks
from tests.models.palm.plain import Masks
from tests.models.palm.worlds import END, REGULARISED, assert_same, nats, palm, plain
from tests.models.test_streams import stream_batch
from treelm.corpora.encoding import encode_words
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.evaluation.audit import audit
from treelm.models.palm.config import PaLMConfig
from treelm.models.palm.network import PaLM

SENTENCES = [list("1234567"), list("20"), list("7"), list("55512034")]
ROWS = [[int(word) for word in words] for words in SENTENCES]
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "first layer": {"attention_layer": 1},
    "last layer": {"attention_layer": 3},
    "one layer": {"num_layers": 1, "attention_layer": 1},
    "spans of one": {"max_span": 1},
    "long spans": {"max_span": 15},
    "stop at ends": {"stop_at_end": True},
    "right branching": {"attention": "right"},
    "left branching": {"attention": "left"},
}
every_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS.keys())


def tokens(num_steps: int, num_rows: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, END + 1, (num_rows, num_steps))


@every_variant
def test_loss_and_gradients_of_sentences_equal_the_plain_form(config: dict[str, Any]) -> None:
    network = palm(**config)
    fast = network.losses(encode_words(SENTENCES, network.vocabulary)).total
    rows = [plain(network, [END, *row]) for row in ROWS]
    assert_same(network, fast, nats(rows, [[*row, END] for row in ROWS]))


@every_variant
def test_loss_and_gradients_of_a_stream_equal_the_plain_form(config: dict[str, Any]) -> None:
    network, rows = palm(**config), tokens(12, 4)
    fast = network.stream_losses(stream_batch(rows, start=0, stop=12), None)[0].total
    slow = [plain(network, [END, *row[:-1]]) for row in rows.tolist()]
    assert_same(network, fast, nats(slow, rows.tolist()))


def test_all_dropouts_act_where_the_plain_form_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    network, rows = palm(**REGULARISED), tokens(9, 4)
    with recorded_masks(monkeypatch) as drawn:
        losses, _ = network.stream_losses(stream_batch(rows, start=0, stop=9), None)
    embedding, inputs, w0, o0, w1, o1, context, joined, w2, o2 = drawn
    masks = Masks(embedding, inputs, [w0, w1, w2], [o0, o1, o2], context, joined)
    slow = [plain(network, [END, *row[:-1]], row=i, masks=masks) for i, row in enumerate(rows.tolist())]
    activation = 2 * torch.stack([torch.stack(row.outputs) for row in slow]).square().mean()
    raw = torch.stack([torch.stack(row.raw) for row in slow])
    difference = (raw[:, 1:] - raw[:, :-1]).square().mean()
    assert_same(network, losses.total, nats(slow, rows.tolist()) + 36 * (activation + difference))


@pytest.mark.parametrize("name", REGULARISED)
def test_each_regulariser_acts_in_training_and_only_there(name: str) -> None:
    batch = stream_batch(tokens(12, 4), start=0, stop=12)
    network, bare = palm(**{name: REGULARISED[name]}), palm()
    expected = bare.stream_losses(batch, None)[0].total
    assert network.train().stream_losses(batch, None)[0].total != expected
    assert network.eval().stream_losses(batch, None)[0].total == expected


@every_variant
@pytest.mark.parametrize("cut", [1, 3, 11])
def test_two_segments_are_one_pass(config: dict[str, Any], cut: int) -> None:
    network = palm(**config).eval()
    inputs = torch.from_numpy(tokens(14, 4).T)
    whole = network.forward(inputs, network.init_state(4))
    first = network.forward(inputs[:cut], network.init_state(4))
    second = network.forward(inputs[cut:], first.carried)
    torch.testing.assert_close(torch.cat([first.outputs, second.outputs]), whole.outputs, rtol=0, atol=1e-12)
    for name, tensor in whole.carried.items():
        torch.testing.assert_close(second.carried[name], tensor, rtol=0, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("num_rows", [1, 4, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_comes_later_and_other_rows_change_nothing_at_all(
    training: bool, num_rows: int, dtype: torch.dtype
) -> None:
    network = palm(**REGULARISED).to(dtype).train(training)
    inputs = torch.from_numpy(tokens(12, num_rows).T.copy())
    first = outputs_of(network, inputs)
    for step in (4, 9):
        later = inputs.clone()
        later[step:] = (later[step:] + 3) % (END + 1)
        assert torch.equal(outputs_of(network, later)[:step], first[:step])
        assert not torch.equal(outputs_of(network, later)[step:], first[step:])
    if num_rows > 1:
        other = inputs.clone()
        other[:, 1:] = (other[:, 1:] + 3) % (END + 1)
        assert torch.equal(outputs_of(network, other)[:, 0], first[:, 0])


def outputs_of(network: PaLM, inputs: Tensor) -> Tensor:
    torch.manual_seed(5)  # the same dropout masks
    before = network.init_state(inputs.shape[1])
    carried = {
        name: value.clone() if name == "reach" else torch.linspace(-1, 1, value.numel()).view(value.shape).to(value)
        for name, value in before.items()
    }
    carried["reach"] += 2
    return network.forward(inputs, carried).outputs.detach()


def test_padding_enters_nothing() -> None:
    inputs, mask = torch.from_numpy(tokens(7, 3).T), torch.ones(7, 3, dtype=torch.bool)
    mask[4:, 1] = mask[2:, 2] = False
    results = []
    for padding in (0, 5):
        torch.manual_seed(0)
        network = palm(activation_penalty=1.0, difference_penalty=1.0)
        reading = network.forward(inputs.where(mask, padding), network.init_state(3), mask=mask)
        results.append((reading.outputs[mask], *reading.regularisers.values()))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_weights_of_spans_sum_to_one_where_there_is_a_span() -> None:
    network = palm()
    weights = network.forward(torch.from_numpy(tokens(9, 4).T), network.init_state(4)).structure["span_weights"]
    assert (weights[0] == 0).all()
    torch.testing.assert_close(weights[1:].sum(2), torch.ones(8, 4).double())
    assert (weights[2, :, 2:] == 0).all()  # two tokens have been read
    slow = plain(network, tokens(9, 4)[0].tolist()).weights
    for step, expected in enumerate(slow):
        torch.testing.assert_close(weights[step, 0, : len(expected)], expected)


def test_columns_are_of_the_step_that_predicts_the_word() -> None:
    network = palm().eval()
    words = ["1", "4", "2", "4", "3"]
    (score,) = network.score([words])
    slow = [one.detach() for one in plain(network, [END, *map(int, words)]).weights]
    expected = [float(weights @ torch.arange(1.0, len(weights) + 1).double()) for weights in slow]
    np.testing.assert_allclose(score.columns["attended_length"], expected[:-1], atol=1e-9)
    entropies = [float(-(weights * weights.log2()).nan_to_num().sum()) for weights in slow]
    np.testing.assert_allclose(score.columns["attention_entropy_bits"], entropies[:-1], atol=1e-9)
    again = network.score_document([words, words])
    assert again[0].columns["attended_length"].tolist() == score.columns["attended_length"].tolist()
    assert again[1].columns["attended_length"][0] > 0  # the text goes on


def test_saturated_gates_in_the_whole_network_give_finite_losses_and_gradients() -> None:
    network = palm(max_span=10).float()
    with torch.no_grad():
        for parameter in network.attention.parameters():
            parameter.mul_(200)
    total = network.stream_losses(stream_batch(tokens(30, 4), start=0, stop=30), None)[0].total
    assert total.isfinite()
    for gradient in torch.autograd.grad(total, list(network.parameters())):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("config", [{"stop_at_end": True}, {"attention": "right"}])
def test_the_audit_finds_nothing(config: dict[str, Any]) -> None:
    report = audit(palm(**config).float(), SENTENCES)
    assert report.passed, report.as_text()
    figures = {check.name: check.figure for check in report.checks}
    assert figures["causality"] == figures["batch invariance"] == 0


def test_sizes_of_the_recipe_for_the_penn_treebank() -> None:
    vocabulary = WordVocabulary([str(number) for number in range(9_998)])  # and <unk>; the end makes 10,000
    with torch.device("meta"):
        network = PaLM(PaLMConfig(), vocabulary=vocabulary)
    sizes = {name: sum(one.numel() for one in part.parameters()) for name, part in network.named_children()}
    counts = {name: size for name, size in sizes.items() if size}
    lstm = sum(4 * following * (size + following + 1) for size, following in ((400, 1020), (1020, 1020), (1020, 400)))
    rational, scorer = 2 * 400 * 1020 + 400, 100 * (400 + 1020) + 100 + 100
    residual = (1020 + 400) * (1020 + 400) + 1020 + 400 + 400 * 1020 + 1020
    assert counts == {"stack": lstm, "attention": rational + scorer + residual}
    assert sum(one.numel() for one in network.parameters()) == 4_010_000 + lstm + rational + scorer + residual


@pytest.mark.parametrize(
    "field",
    [
        {"max_span": 0},
        {"attention_layer": 4},
        {"attention": "up"},
        {"span_weight": -1.0},
        {"weight_dropout": 1.0},
        {"objective": "words"},
        {"span_weight": 0.1, "attention": "right"},
        {"embedding_range": 0.6, "initialisation": "released"},
        {"span_weight": math.inf},
        {"span_weight": math.nan},
        {"without_gold": "shortest"},
        *({"without_gold": "shortest", "attention": name} for name in ("right", "left", "given")),
    ],
)
def test_impossible_configs_are_user_errors(field: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(field))):
        PaLMConfig(**field)


@pytest.mark.parametrize("field", [{"span_weight": 0.1}, {"objective": "spans"}])
def test_the_shortest_span_is_taught_where_spans_are(field: dict[str, Any]) -> None:
    assert PaLMConfig(without_gold="shortest", **field).is_supervised
