"""Trains in child processes that are killed at random moments; prints what happened as JSON.

``python -m tests.training.kill_driver DIRECTORY NUM_KILLS SEED [SYSTEM ...]`` kills runs of each system (names of
``tests.training.pairs.CHANGES``, ``toy``, or ``all``) so many times in all, and compares every run, to its last bit,
with one that nobody disturbed. Children are forked from this process, which has imported everything and computed
nothing, so that twenty kills take seconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # optimisers do: here once, not in each child
from safetensors.torch import load_file

from tests.training.fitting import fit
from tests.training.pairs import CHANGES, recipe_of
from tests.training.runs import metrics
from tests.training.toys import ToyBatches, toy_model
from tests.training.treebanks import write_treebank
from treelm import models
from treelm.training.config import TrainingConfig
from treelm.training.trainer import train as train_recipe

CONFIG = TrainingConfig(
    epochs=6,
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


def train_system(name: str, directory: Path) -> None:
    recipe = recipe_of(name, directory.parent.parent, noisy=True)
    changes = {"epochs": 2, "shards": None, "checkpoint_every_steps": 1, "batch_size": 5, "bptt": 5}
    recipe = replace(recipe, training=replace(recipe.training, **changes))
    train_recipe(recipe, directory, resume_if_present=True, quiet=True)


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
    train: Callable[[Path], None], directory: Path, num_kills: int, seconds: float, source: random.Random
) -> dict[str, int]:
    """Kill a run again and again and resume it, then let it end; when one ends by itself, begin another."""
    counts = {"kills": 0, "kills_while_saving": 0, "runs": 1}
    run = directory / "killed-1"
    while counts["kills"] < num_kills:
        child = fork(partial(train, run))
        time.sleep(source.uniform(0, 0.8 * seconds / max(num_kills, 4)))
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


def differences(killed: Path, undisturbed: Path) -> list[str]:
    """What is not the same in two finished runs."""
    found = []
    if (killed / "model.safetensors").read_bytes() != (undisturbed / "model.safetensors").read_bytes():
        found.append("model")
    if metrics(killed) != metrics(undisturbed):
        found.append("metrics")
    last = [max((one / "checkpoints").glob("step-*")) for one in (killed, undisturbed)]
    if last[0].name.split(".")[0] != last[1].name.split(".")[0]:
        found.append("last step")
    for theirs in last[1].glob("*.safetensors"):
        ours, others = load_file(last[0] / theirs.name), load_file(theirs)
        if ours.keys() != others.keys() or not all(torch.equal(ours[key], others[key]) for key in others):
            found.append(theirs.stem)
    return found


def disturb(name: str, directory: Path, num_kills: int, source: random.Random) -> dict[str, Any]:
    """Train one system undisturbed, then with kills."""
    train: Callable[[Path], None] = train_toy if name == "toy" else partial(train_system, name)
    directory.mkdir(parents=True)
    begin = time.perf_counter()
    _, status = os.waitpid(fork(partial(train, directory / "undisturbed")), 0)
    assert status == 0, "the undisturbed run failed"
    counts = train_with_kills(train, directory, num_kills, time.perf_counter() - begin, source)
    runs = [directory / f"killed-{number + 1}" for number in range(counts["runs"])]
    different = sorted({what for run in runs for what in differences(run, directory / "undisturbed")})
    return {**counts, "different": different, "seconds": time.perf_counter() - begin}


def main(directory: Path, num_kills: int, seed: int, *systems: str) -> None:
    os.fsync = lambda descriptor: None  # what a process has written outlives it
    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    names = [*CHANGES, "toy"] if "all" in systems else list(systems or ("toy",))
    directory.mkdir(exist_ok=True)
    os.environ["TREELM_CACHE"] = str(directory / "cache")
    write_treebank(directory)
    models.SYSTEMS["toy"] = "tests.training.toys:ToyLM"
    source = random.Random(seed)
    report = {}
    for number, name in enumerate(names):
        own_kills = num_kills * (number + 1) // len(names) - num_kills * number // len(names)
        report[name] = disturb(name, directory / name, own_kills, source)
        print(json.dumps({name: report[name]}), file=sys.stderr)
    kills = sum(counts["kills"] for counts in report.values())
    different = {name: counts["different"] for name, counts in report.items() if counts["different"]}
    print(json.dumps({"kills": kills, "different": different, "systems": report}))
    sys.exit(bool(different))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
