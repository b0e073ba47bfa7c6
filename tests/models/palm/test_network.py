"""PaLM against its plain form: every variant, losses and gradients; and that it never sees what comes later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.lstm.test_network import recorded_masks
from tests.models.palm.plain import Masks
from tests.models.palm.worlds import END, REGULARISED, nats, palm, plain
from tests.models.stream_toys import stream_batch
from treelm.corpora.encoding import encode_words
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
    assert_same_loss_and_gradients(network, fast, nats(rows, [[*row, END] for row in ROWS]))


@every_variant
def test_loss_and_gradients_of_a_stream_equal_the_plain_form(config: dict[str, Any]) -> None:
    network, rows = palm(**config), tokens(12, 4)
    fast = network.stream_losses(stream_batch(rows, start=0, stop=12), None)[0].total
    slow = [plain(network, [END, *row[:-1]]) for row in rows.tolist()]
    assert_same_loss_and_gradients(network, fast, nats(slow, rows.tolist()))


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
    assert_same_loss_and_gradients(network, losses.total, nats(slow, rows.tolist()) + 36 * (activation + difference))


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
