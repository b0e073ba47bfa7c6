"""Dropout by random bits."""

import pytest
import torch
from torch import nn

from treelm.models.layers.dropout import add_dropped, dropout, dropout_mask, dropout_off, shared_draws


def test_rows_and_columns_are_dropped_independently() -> None:
    torch.manual_seed(0)
    mask = dropout_mask(400, 400, 0.5, like=torch.empty(0)) - 1
    for shift, dim in [(1, 0), (1, 1), (2, 1), (4, 1)]:
        assert abs(float((mask * mask.roll(shift, dim)).mean())) < 0.02


@pytest.mark.parametrize("probability", [0.1, 0.45, 0.5, 0.9])
def test_what_stays_is_scaled_up_in_value_and_gradient(probability: float) -> None:
    weight = torch.ones(1000, 1001, requires_grad=True)
    dropped = dropout(weight, probability, training=True)
    dropped.sum().backward()
    assert (dropped == 0).float().mean().item() == pytest.approx(probability, abs=0.003)
    assert dropped.max().item() == pytest.approx(1 / (1 - probability), rel=1e-4)
    assert weight.grad is not None
    assert torch.equal(weight.grad, dropped)


def test_parts_of_a_batch_share_what_belongs_to_the_whole_and_nothing_else() -> None:
    like, weight = torch.ones(1), torch.ones(20, 20)
    drawn = []
    for part in range(2):
        torch.manual_seed(part)
        with shared_draws(torch.Generator().manual_seed(7)):
            shared = dropout_mask(50, 1, 0.5, like, shared=True), dropout(weight, 0.5, training=True, shared=True)
            drawn.append((*shared, dropout_mask(50, 1, 0.5, like)))
    types, weights, units = zip(*drawn, strict=True)
    assert torch.equal(*types)
    assert torch.equal(*weights)
    assert not torch.equal(*units)


def test_dropout_of_torch_is_off_as_the_packages_own_is_and_normalisation_stays_as_it_was() -> None:
    encoder = nn.TransformerEncoderLayer(4, 2, dim_feedforward=4, dropout=0.5)
    network = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4), encoder).train()
    recurrent = nn.LSTM(4, 4, num_layers=2, dropout=0.5).train()
    units, before = torch.randn(9, 4), torch.get_rng_state()
    for part in (network, recurrent):
        with dropout_off(part):
            assert dropout(units, 0.5, training=True) is units
            one, other = part(units), part(units)
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert all(module.training for module in part.modules())
    assert torch.equal(torch.get_rng_state(), before)
    normalise = network[1]
    assert isinstance(normalise, nn.BatchNorm1d)
    assert normalise.num_batches_tracked == 2  # it was in training mode
    assert not torch.equal(network[0](units), network[0](units))


@pytest.mark.parametrize("added_type", [torch.float32, torch.bfloat16])
def test_what_is_dropped_and_added_at_once_is_what_is_dropped_and_then_added(added_type: torch.dtype) -> None:
    units, added = torch.randn(5, 8, requires_grad=True), torch.randn(5, 8).to(added_type).requires_grad_()
    weights = torch.randn(5, 8)
    found = []
    for training in (True, False):
        torch.manual_seed(3)
        total = add_dropped(units, added, 0.3, training=training)
        torch.manual_seed(3)
        wanted = units + dropout(added, 0.3, training=training)
        torch.testing.assert_close(total, wanted)
        gradients = (torch.autograd.grad((one * weights).sum(), (units, added)) for one in (total, wanted))
        torch.testing.assert_close(*gradients)
        found.append(total)
    assert not torch.equal(*found)
