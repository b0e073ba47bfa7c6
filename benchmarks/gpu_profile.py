"""Where an update of an RNNG spends its time: milliseconds of kernels beside those of the whole, and calls by name.

python benchmarks/gpu_profile.py
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from time import perf_counter

import gpu_systems
import one_line
from gpu_timing import Settings, wait
from torch.profiler import ProfilerActivity, profile

UPDATES = 3
CALLS = ("aten::_cudnn_rnn", "aten::_cudnn_rnn_backward", "_StackSweep", "_StackSweepBackward")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to profile. Determinism is off, products are TF32 on a GPU."""

    device: str = "cuda"
    """``cuda`` or ``cpu``, where there are no kernels."""
    size: int = 256
    """Units of each of two layers."""
    batch_size: int = 512
    """Sentences in a step, at most."""
    cuda_graphs: bool = False
    """As the setting of [training]; every batch is seen once before."""


def main(options: Arguments) -> None:
    """Print one line of JSON: means over the updates."""
    settings = Settings(device=options.device, small=False, seconds=0, public=None)
    model = gpu_systems.build_rnng(settings, options.size)
    graphs = options.cuda_graphs
    step = gpu_systems.training_step(model, "brackets", options.batch_size, "fp32", settings, graphs=graphs)
    for _ in range(gpu_systems.NUM_BATCHES if graphs else 1):
        step()
    wait(options.device)
    begin = perf_counter()
    for _ in range(UPDATES):
        step()
    wait(options.device)
    whole = (perf_counter() - begin) / UPDATES
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * (options.device == "cuda")]) as found:
        for _ in range(UPDATES):
            step()
        wait(options.device)
    events = found.key_averages()
    calls = {one.key: (one.count / UPDATES, one.cpu_time_total / UPDATES / 1000) for one in events if one.key in CALLS}
    kernels = sum(one.self_device_time_total for one in events) / UPDATES / 1000
    print(json.dumps({"ms_an_update": 1000 * whole, "ms_of_kernels": kernels, "calls_and_ms": calls}))


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
