"""Any function by levels: a small tree network against the same network node by node."""

import pytest
import torch
from torch import Tensor

from treelm.models.layers import sweep as module
from treelm.models.layers.sweep import Constant, Kind, Matrix, Rows, sweep

# Nodes 0-2 are given; 3 = f(0, 1), 4 = f(2, 2), 5 = f(3, 4), 6 = f(5, 0).
CHILDREN = {3: (0, 1), 4: (2, 2), 5: (3, 4), 6: (5, 0)}
OFFSETS = [0, 2, 3, 4]


def join(matrices: dict[str, Matrix], left: Tensor, right: Tensor, scale: Tensor) -> tuple[Tensor]:
    return ((matrices["join"](torch.cat([left, right], 1)) * scale).tanh() + left * right,)


def rows(index: list[int]) -> Rows:
    return Rows("vectors", torch.tensor(index), OFFSETS)


def by_levels(given: Tensor, weight: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
    left, right = zip(*CHILDREN.values(), strict=True)
    reads, writes = [rows([*left]), rows([*right])], [rows([3, 4, 5, 6])]
    kind = Kind(function=join, reads=reads, constants=[Constant(scale, OFFSETS)], writes=writes)
    buffers = {"vectors": torch.cat([given, given.new_full((4, 3), 9.0)])}
    return sweep([kind], buffers, {"join": (weight, bias)})["vectors"]


def node_by_node(given: Tensor, weight: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
    vectors = list(given)
    for (left, right), factor in zip(CHILDREN.values(), scale, strict=True):
        product = weight @ torch.cat([vectors[left], vectors[right]]) + bias
        vectors.append((product * factor).tanh() + vectors[left] * vectors[right])
    return torch.stack(vectors)


@pytest.mark.parametrize("outer_rows", [1, 4096])
def test_values_and_gradients_equal_those_node_by_node(outer_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTER_ROWS", outer_rows)
    torch.manual_seed(0)
    given, weight, bias = (torch.randn(*s, dtype=torch.float64).requires_grad_() for s in ((3, 3), (3, 6), (3,)))
    scale = torch.rand(4, 1, dtype=torch.float64)
    found, expected = by_levels(given, weight, bias, scale), node_by_node(given, weight, bias, scale)
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(found)
    pairs = zip(
        torch.autograd.grad(found, [given, weight, bias], direction),
        torch.autograd.grad(expected, [given, weight, bias], direction),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other)
