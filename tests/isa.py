"""Runs the tests marked ``isa`` as several processors would: ``python -m tests.isa [avx2] [avx512] [default]``.

Libraries of matrix products choose kernels by the processor's instructions, and round differently. Three variables
pretend that there are fewer: torch's own, MKL's and oneDNN's. ``avx512`` is AVX-512 without AMX.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

PRETENDED = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
    },
    "default": {},
}
ORDER = ("AVX2", "AVX512")


def can_pretend(name: str) -> bool:
    """A processor can pretend to have less than it has; one with AVX-512, that it has no AMX."""
    has = torch.backends.cpu.get_cpu_capability()
    if name == "default" or name.upper() == has == "AVX512":
        return True
    return has in ORDER and ORDER.index(name.upper()) < ORDER.index(has)


def marked_files() -> list[str]:
    """The modules with such tests, so that no process imports all."""
    here = Path(__file__).parent
    return [str(path) for path in sorted(here.rglob("test_*.py")) if "mark.isa" in path.read_text(encoding="utf-8")]


def main(names: list[str]) -> int:
    failed = []
    for name in names or list(PRETENDED):
        if not can_pretend(name):
            print(f"{name}: left out, this processor is one, or has less", flush=True)
            continue
        print(f"{name}:", *(f"{key}={value}" for key, value in PRETENDED[name].items()), flush=True)
        command = [sys.executable, "-m", "pytest", "-m", "isa", "-n", "2", *marked_files()]
        if subprocess.run(command, env={**os.environ, **PRETENDED[name]}, check=False).returncode:
            failed.append(name)
    if failed:
        print("failed:", *failed, flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
