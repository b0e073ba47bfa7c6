"""Fused kernels, in Triton's interpreter or on a GPU, against the plain form; and how many are launched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.devices.calls import num_calls
from tests.models.gradients import gradients
from tests.models.rnng.test_network import random_trees
from tests.models.rnng.worlds import Tokens, as_batch, build_model
from treelm.models.layers import fused
from treelm.models.layers.devices import computing
from treelm.models.layers.few_calls import FusedKernels, fused_kernels
from treelm.models.layers.precision import MatmulPrecision, matmul_precision

CAN_RUN = fused.triton is not None and (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1")
# Relative, of the loss, and of the norm of every gradient: sums in another order, and bf16's 8 bits.
TOLERANCE: dict[MatmulPrecision, tuple[float, float]] = {"fp32": (1e-6, 5e-6), "bf16": (1e-3, 0.1)}


@pytest.mark.gpu
@pytest.mark.skipif(not CAN_RUN, reason="needs Triton and a GPU, or its interpreter (make test-triton)")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kernels", ["level", "forest"])
@pytest.mark.parametrize("composition", ["lstm", "none"])
def test_loss_and_gradients_of_random_trees_equal_the_plain_form(
    composition: str,
    kernels: FusedKernels,
    precision: MatmulPrecision,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocabulary = Tokens(9)
    for name, small in (("PROGRAMS", 1), ("UNITS", 16), ("INNER", 16)):  # so that every loop has several rounds
        monkeypatch.setattr(fused, name, small)
    sizes = {"num_layers": 2, "embedding_size": 10, "hidden_size": 18}
    model = build_model(vocabulary, dtype=torch.float32, composition=composition, **sizes)
    batch = as_batch(random_trees(vocabulary, 20), vocabulary)
    with matmul_precision(precision), computing(in_few_calls=False):
        expected = model.losses(batch).total
        wanted = gradients(model, expected)
    with matmul_precision(precision), computing(in_few_calls=True), fused_kernels(kernels):
        found = model.to(device).losses(batch).total
        near = gradients(model, found)
    of_loss, of_gradients = TOLERANCE[precision]
    torch.testing.assert_close(found.cpu(), expected, rtol=of_loss, atol=0)
    for name, gradient in near.items():
        assert float((gradient.cpu() - wanted[name]).norm()) <= of_gradients * float(wanted[name].norm()), name


COMPILED = """
import triton
from triton.compiler import ASTSource
from treelm.models.layers import fused

types = dict.fromkeys(("below", "children", "bounds"), "*i64") | dict.fromkeys(fused._NUMBERS, "i32")
numbers = {"SIZE": 256, "UNITS": fused.UNITS, "INNER": fused.INNER, "PRECISION": "tf32"}
for kernel in (fused.forward_kernel, fused.backward_kernel):
    for weight in ("fp32", "bf16"):
        for rows in (fused.WHOLE_ROWS, fused.LEVEL_ROWS):
            constants = {**numbers, "ROWS": rows}
            of_arrays = types | {"weight": "*" + weight} | dict.fromkeys(constants, "constexpr")
            signature = {name: of_arrays.get(name, "*fp32") for name in kernel.arg_names}
            target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
            source = ASTSource(kernel, signature, constexprs=constants)
            found = triton.compile(source, target=target, options={"enable_fp_fusion": True})
            assert found.asm["cubin"] and "mma.sync" in found.asm["ptx"]
            assert found.metadata.shared <= 99 * 2**10, found.metadata.shared  # of every card with TF32
"""


@pytest.mark.skipif(fused.triton is None, reason="needs Triton (make test-triton)")
def test_kernels_compile_for_tensor_cores_without_a_gpu(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "error::UserWarning", "-c", COMPILED]
    done = subprocess.run(
        command, env={**environment, "TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("order", "composition"), [("top-down", "lstm"), ("in-order", "lstm"), ("top-down", "none")])
def test_a_forest_of_stacks_is_one_launch_a_layer(order: str, composition: str) -> None:
    """Of forward and gradient each. Without composition, calls then do not depend on the length of sentences."""
    vocabulary = Tokens(9)
    model = build_model(vocabulary, num_layers=2, order=order, composition=composition)
    short, long = (as_batch(random_trees(vocabulary, count, seed=5), vocabulary) for count in (3, 40))
    found: dict[FusedKernels, int] = {}
    for kernels in ("none", "level", "forest"):
        with fused_kernels(kernels):
            found[kernels] = num_calls(model, long)
            of_short = num_calls(model, short)
    with computing(in_few_calls=True), fused_kernels("level"):
        plan = model._plan(long)
    forests = [plan.below, plan.below, *(one.chains for one in (plan.lstm.levels if plan.lstm else ()))]
    assert found["level"] - found["forest"] == 2 * sum(len(forest.spans) - 1 for forest in forests)
    assert found["forest"] < found["level"] < found["none"]
    assert composition != "none" or of_short == found["forest"]
