"""Precision: in which type matrices are multiplied, and float64 copies of networks for scores."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from copy import copy, deepcopy
from functools import cache
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Float32Products = Literal["highest", "high", "medium"]
MatmulPrecision = Literal["fp32", "bf16"]
_precision: ContextVar[MatmulPrecision] = ContextVar("matmul_precision", default="fp32")
DECIMALS = 9  # of scores in nats: coarser than the noise of float64, finer than any difference of interest
Network = TypeVar("Network", bound=nn.Module)
Value = TypeVar("Value")
_SIZE = 256  # large enough: torch passes small products to another library
_logger = logging.getLogger(__name__)


@contextmanager
def float32_products(wanted: Float32Products, device: torch.device | str) -> Iterator[None]:
    """Set ``torch.set_float32_matmul_precision`` within this context, unless a CPU would then round the factors.

    "medium" lets a CPU multiply by oneDNN. On most processors that is float32 by other kernels, but where there are
    instructions for bfloat16, oneDNN rounds both factors to its eight bits. There the setting stays "highest". On a GPU
    "high" and "medium" mean TF32.
    """
    before = float32_setting()
    if before is None:
        yield
        return
    if wanted != "highest" and torch.device(device).type == "cpu" and rounds_operands(wanted):
        _say_once(_ROUNDED)
        wanted = "highest"
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def float32_setting() -> str | None:
    """Torch's present setting; None if backends have different ones, which are then not changed."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


@cache
def rounds_operands(setting: Float32Products) -> bool:
    """Whether a CPU rounds float32 matrices before it multiplies them with this setting; found by multiplying."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        matrix = torch.full((_SIZE, _SIZE), 1 + 2**-12)  # bfloat16 keeps seven bits after the point, TF32 ten
        return not torch.equal(matrix @ torch.eye(_SIZE), matrix)
    finally:
        torch.set_float32_matmul_precision(before)


def warn_of_half_precision(device: torch.device) -> None:
    """Warn once if this processor has no instructions for float16."""
    if device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_fp16_supported():
        _say_once(_SLOW)


def lstm_states(lstm: nn.LSTM, inputs: Tensor) -> Tensor:
    """The states of torch's LSTM. They are computed in the type of its weights on a processor without arithmetic in
    bfloat16 (x86 before AVX-512), on which torch's LSTM fails under autocast.
    """
    lacks_bf16 = inputs.device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with torch.autocast("cpu", enabled=False) if lacks_bf16 else nullcontext():
        states: Tensor = lstm(inputs.to(next(lstm.parameters()).dtype) if lacks_bf16 else inputs)[0]
    return states


_ROUNDED = (
    "on this processor the faster float32 products round to bfloat16: taking plain float32 ones "
    '(precision = "bf16" rounds on purpose, and is faster)'
)
_SLOW = "this processor has no arithmetic in fp16: a search in fp16 is several times slower here than in full precision"


@cache
def _say_once(message: str) -> None:
    _logger.warning(message)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread within this context.

    With several, a library divides products and sums among them by their shape, which changes the order of sums.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def small_products(device: torch.device) -> AbstractContextManager[None]:
    """Within this context, use the kernel that is fastest for products of a few rows.

    With ``torch.set_float32_matmul_precision("medium")`` a CPU multiplies by oneDNN, which is faster for large matrices
    but takes five times as long for a matrix and a vector. On a GPU, where it means TF32, nothing changes.
    """
    return float32_products("highest", device) if device.type == "cpu" else nullcontext()


def column_sums(matrix: Tensor) -> Tensor:
    """The sum over all dimensions but the last, (..., C) -> (C,), without gradient.

    On a CPU it is a product with ones, which takes a third of the time of ``sum``.
    """
    flat = matrix.flatten(0, -2)
    if flat.device.type != "cpu":
        return flat.sum(0)
    with small_products(flat.device):  # with ``out``, because autocast would round to bfloat16
        return torch.mv(flat.T, flat.new_ones(len(flat)), out=flat.new_empty(flat.shape[1]))


@contextmanager
def setting(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Give a context variable this value within the context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def matmul_precision(precision: MatmulPrecision) -> AbstractContextManager[None]:
    """Within this context, layers multiply operands as they are (fp32), or rounded to bf16.

    Products are accumulated in fp32. Gradients have the precision of their forward pass.
    """
    return setting(_precision, precision)


@contextmanager
def recurrent_tf32(*, allowed: bool) -> Iterator[None]:
    """Within this context, let cuDNN's LSTMs and their gradients multiply in TF32 or not; torch's default is yes."""
    cudnn = torch.backends.cudnn
    try:
        before = cudnn.allow_tf32
        cudnn.allow_tf32 = allowed
    except RuntimeError:  # set for each operator by itself, as ``float32_setting``
        yield
        return
    try:
        yield
    finally:
        cudnn.allow_tf32 = before


def rounds_on_gpu() -> bool:
    """Whether products of float32 matrices may be TF32 on a GPU: in the precisions ``fp32-fast`` and ``bf16``."""
    return _precision.get() == "bf16" or float32_setting() in ("high", "medium")


def operand(matrix: Tensor) -> Tensor:
    """The matrix in the type in which the current precision multiplies it."""
    return matrix.bfloat16() if _precision.get() == "bf16" else matrix


def multiply_into(out: Tensor, left: Tensor, right: Tensor, *, bias: Tensor | None = None, whole: bool = False) -> None:
    """out = left @ right (+ bias), in the precision of ``right``, which ``operand`` has made.

    ``whole``: as one product, for numbers of rows that occur again and again, as in streams.
    """
    if whole:
        return _multiply_into(out, left, right, bias)
    for start, end in _few_shapes(left, right.dtype, _LARGEST_PRODUCT):
        _multiply_into(out[start:end], left[start:end], right, bias)


def _multiply_into(out: Tensor, left: Tensor, right: Tensor, bias: Tensor | None) -> None:
    if right.dtype != out.dtype:
        product = left.to(right.dtype) @ right
        out.copy_(product)  # not added to the bias as it is: torch takes three times as long to add mixed types
        if bias is not None:
            out.add_(bias)
    elif bias is None:
        torch.mm(left, right, out=out)
    else:
        torch.addmm(bias, left, right, out=out)


def add_product(out: Tensor, left: Tensor, right: Tensor) -> None:
    """out += left @ right, in the precision of ``right``, which ``operand`` has made."""
    for start, end in _few_shapes(left, right.dtype, _LARGEST_PRODUCT):
        rows, total = left[start:end], out[start:end]
        if right.dtype == total.dtype:
            total.addmm_(rows, right)
        else:
            _add_converted(total, rows.to(right.dtype) @ right)


def add_outer(total: Tensor, left: Tensor, right: Tensor, *, dtype: torch.dtype, whole: bool = False) -> None:
    """total += left^T @ right, multiplied in the type ``dtype``: the gradient of a weight, summed over rows.

    ``whole`` as in ``multiply_into``; otherwise every piece of rows takes a pass over ``total``.
    """
    for start, end in [(0, len(left))] if whole else _few_shapes(left, dtype, _LARGEST_OUTER):
        if dtype == total.dtype:
            total.addmm_(left[start:end].T, right[start:end])
        else:
            _add_converted(total, left[start:end].to(dtype).T @ right[start:end].to(dtype))


def _add_converted(total: Tensor, product: Tensor) -> None:
    """total += product. Torch takes longer to add mixed types than to convert first."""
    total += product.to(total.dtype)


def like_operand(rows: Tensor, weight: Tensor) -> Tensor:
    """Memory for rows in the type of ``weight``: the rows themselves, unless their type is another."""
    return rows if rows.dtype == weight.dtype else torch.empty_like(rows, dtype=weight.dtype)


def gather_into(out: Tensor, rows: Tensor, index: Tensor) -> None:
    """out = rows[index], in the type of ``out``."""
    if out.dtype == rows.dtype:
        torch.index_select(rows, 0, index, out=out)
    else:
        out.copy_(rows.index_select(0, index))


def sum_of_rows(matrix: Tensor, *, like: Tensor) -> Tensor:
    """The sum (C,) of rows (n, C), in the type of ``like``; torch sums low precision in fp32."""
    return matrix.sum(0).to(like.dtype)


def product(left: Tensor, right: Tensor, *, like: Tensor) -> Tensor:
    """left @ right as one product, in the precision of the factors; the result has the type of ``like``."""
    out = like.new_empty(len(left), right.shape[1])
    _multiply_into(out, left, right, None)
    return out


# oneDNN compiles a kernel for every new shape and keeps a thousand of them. Levels have all numbers of rows, and
# compiling takes longer than multiplying, so rows are cut into pieces of few sizes.
_LARGEST_PRODUCT, _LARGEST_OUTER = 512, 4096


def compiles_shapes(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether oneDNN computes products of this type: on a CPU, except for exact ones, which MKL computes."""
    is_exact = dtype == torch.float64 or (dtype == torch.float32 and float32_setting() == "highest")
    return device.type == "cpu" and not is_exact


def _few_shapes(rows: Tensor, dtype: torch.dtype, largest: int) -> Iterator[tuple[int, int]]:
    """Cut rows into pieces of few sizes: of ``largest``, then multiples of 512, 64 and 8, and a rest.

    Rows are cut only if oneDNN compiles shapes, since each piece takes a pass over the other factor or the sum.
    """
    start, num_rows = 0, len(rows)
    if num_rows and not compiles_shapes(dtype, rows.device):
        yield 0, num_rows
        return
    while start < num_rows:
        rest = num_rows - start
        step = 512 if rest >= 512 else 64 if rest > 128 else 8 if rest >= 8 else 1
        size = min(rest // step * step, largest)
        yield start, start + size
        start += size


def padded(num_rows: int) -> int:
    """``num_rows`` rounded up to a multiple of 8, for speed; the results of the further rows are not used."""
    return -(-num_rows // SLACK_ROWS) * SLACK_ROWS


SLACK_ROWS = 8
"""Rows that a buffer must have beyond those in use if products are ``padded``."""


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, whole: bool) -> Tensor:
        multiplied = operand(weight)
        seen = inputs.to(multiplied.dtype)  # both are kept in the type of the product, so that they are converted once
        ctx.save_for_backward(seen, multiplied)
        ctx.whole, ctx.like = whole, weight.new_empty(0)
        out = inputs.new_empty(len(inputs), len(weight))
        multiply_into(out, seen, multiplied.T, bias=bias, whole=whole)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (gradient,) = gradients
        inputs, weight = ctx.saved_tensors
        d_inputs, d_out = gradient.new_empty(inputs.shape), gradient.to(weight.dtype)
        multiply_into(d_inputs, d_out, weight, whole=ctx.whole)
        if ctx.whole or gradient.device.type != "cpu":
            d_weight = product(d_out.T, inputs, like=ctx.like)
        else:
            d_weight = ctx.like.new_zeros(weight.shape)
            add_outer(d_weight, d_out, inputs, dtype=weight.dtype)
        return d_inputs, d_weight, column_sums(gradient), None


def linear(inputs: Tensor, weight: Tensor, bias: Tensor, *, whole: bool = False) -> Tensor:
    """inputs (n, I), weight (O, I), bias (O) -> inputs @ weight^T + bias (n, O), in the current precision.

    ``whole`` as in ``multiply_into``.
    """
    out: Tensor = _Linear.apply(inputs, weight, bias, whole)  # type: ignore[no-untyped-call]
    return out


class UntilChanged(nn.Module, Generic[Value]):
    """Caches something that was made from a network, until its weights or its mode change.

    It is a part of the network, so that ``network.train()`` and ``network.eval()`` reach it. Both drop what is cached,
    since torch's fused optimisers change weights without counting a version.
    """

    def __init__(self) -> None:
        """Start with an empty cache."""
        super().__init__()
        self._kept: tuple[tuple[tuple[int, int], ...], Value] | None = None

    def __deepcopy__(self, memo: object) -> Self:
        """A new object with an empty cache, as copies of networks need."""
        new = copy(self)
        new._kept = None
        return new

    def train(self, mode: bool = True) -> Self:
        """Change the mode, and drop what is cached."""
        self._kept = None
        return super().train(mode)

    def made_of(self, network: nn.Module, make: Callable[[], Value]) -> Value:
        """The result of ``make``, which is called if nothing is cached for the present weights of the network.

        In training mode nothing is cached.
        """
        tensors = [*network.parameters(), *network.buffers()]
        versions = tuple((tensor.data_ptr(), tensor._version) for tensor in tensors)
        if self._kept is not None and self._kept[0] == versions:
            return self._kept[1]
        made = make()
        self._kept = None if network.training else (versions, made)
        return made


class ExactCopy(UntilChanged[Network]):
    """Caches a float64 copy of a network, for scores: in float32 their last bits depend on the shape of a batch."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        """``dtype`` is the type of the copy's weights."""
        super().__init__()
        self._dtype = dtype

    def of(self, network: Network) -> Network:
        """The copy, in evaluation mode; it shares the network's vocabulary."""
        vocabulary = getattr(network, "vocabulary", None)
        memo = {id(vocabulary): vocabulary}
        return self.made_of(network, lambda: deepcopy(network, memo).to(self._dtype).eval().requires_grad_(False))


def to_host(values: Tensor) -> NDArray[np.float64]:
    """Values as a float64 array, rounded to ``DECIMALS``: their last bits depend on the other sentences of a batch."""
    found: NDArray[np.float64] = values.double().cpu().numpy().round(DECIMALS)
    return found
