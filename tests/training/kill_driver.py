"""Trains in child processes that are killed at random moments; prints what happened as JSON.

Run as ``python -m tests.training.kill_driver DIRECTORY NUM_KILLS SEED [rnng]``. Children are forked from this process,
which has imported everything and computed nothing, so that twenty kills take seconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from tests.training.toys import ToyBatches, toy_model
from tests.training.treebanks import write_treebank
from treelm.models import SYSTEMS
from treelm.training.config import TrainingConfig
from treelm.training.loop import fit
from treelm.training.recipe import load_recipe
from treelm.training.run import train as train_recipe

CONFIG = TrainingConfig(
    epochs=24,
    batch_size=4,
    learning_rate=0.1,
    micro_batch_size=3,
    schedule="plateau",
    checkpoint_every_steps=1,
    log_every_steps=3,
    threads=1,
)


def train_toy(directory: Path) -> None:
    dev = list(ToyBatches(num_sentences=8, seed=1, shuffle=False))
    for _ in fit(toy_model(dropout=0.5), ToyBatches(), dev, CONFIG, directory, resume=True):
        pass


def train_rnng(directory: Path) -> None:
    run_recipe = load_recipe(directory.parent / "my.toml", ["training.epochs=24", "training.checkpoint_every_steps=1"])
    train_recipe(run_recipe, directory, resume=(directory / "recipe.toml").exists(), on_terminal=False)


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def train_with_kills(
    train: Callable[[Path], None], directory: Path, num_kills: int, seconds: float, seed: int
) -> dict[str, int]:
    """Kill a run again and again and resume it, then let it end; when one ends by itself, begin another."""
    source = random.Random(seed)
    counts = {"kills": 0, "kills_while_saving": 0, "runs": 1}
    run = directory / "killed-1"
    while counts["kills"] < num_kills:
        child = fork(partial(train, run))
        time.sleep(source.uniform(0, 0.8 * seconds / num_kills))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            counts["kills"] += 1
            counts["kills_while_saving"] += any(run.glob("checkpoints/.*")) or any(run.glob(".*.tmp"))
        else:
            assert status == 0, "a resumed run failed"
            counts["runs"] += 1
            run = directory / f"killed-{counts['runs']}"
    _, status = os.waitpid(fork(partial(train, run)), 0)
    assert status == 0, "the last run failed"
    return counts


def main(directory: Path, num_kills: int, seed: int, system: str = "toy") -> None:
    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    train = train_rnng if system == "rnng" else train_toy
    directory.mkdir(exist_ok=True)
    write_treebank(directory)
    SYSTEMS["toy"] = "tests.training.toys:ToyLM"
    begin = time.perf_counter()
    _, status = os.waitpid(fork(partial(train, directory / "undisturbed")), 0)
    assert status == 0
    counts = train_with_kills(train, directory, num_kills, time.perf_counter() - begin, seed)
    print(json.dumps({**counts, "seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
