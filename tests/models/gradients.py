"""Gradients of a model's losses, against another form of it and against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Gradients of a loss in every parameter, by name; 0 where it does not reach."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


def assert_same_loss_and_gradients(model: nn.Module, loss: Tensor, expected: Tensor) -> None:
    """Both are equal to 1e-10, and so are their gradients in every parameter, beside its largest one."""
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    wanted = gradients(model, expected)
    for name, found in gradients(model, loss).items():
        assert float((found - wanted[name]).abs().max()) <= 1e-10 * max(float(wanted[name].abs().max()), 1.0), name


def assert_gradients_by_differences(model: nn.Module, loss: Callable[[], Tensor], names: Sequence[str]) -> None:
    """Along a random direction of each of these parameters; ``loss`` draws the same dropout every time."""
    parameters = [model.get_parameter(name) for name in names]
    found_gradients = torch.autograd.grad(loss(), parameters)
    torch.manual_seed(0)
    for name, parameter, gradient in zip(names, parameters, found_gradients, strict=True):
        direction = torch.randn_like(parameter)
        found = []
        for step in (1e-5, -2e-5, 1e-5):
            with torch.no_grad():
                parameter.add_(direction, alpha=step)
                found.append(loss())
        slope = (found[0] - found[1]) / 2e-5
        assert slope.item() == pytest.approx((gradient * direction).sum().item(), rel=1e-4), name
