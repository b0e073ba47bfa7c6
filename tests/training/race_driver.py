"""Two commands at once in one run folder, again and again; prints what became of what they made, as JSON.

``python -m tests.training.race_driver DIRECTORY NUM_RACES SEED``. In each race two of ``COMMANDS`` start in a folder
that is new, or holds a run that was stopped or is finished (``BEFORE``). Both wait random times at the ``POINTS`` of
their way through it, so that they meet everywhere. Then the folder must hold, in full, what every command that said
that it succeeded has made, or else what was there before: with the weights, bit for bit, of a run that nobody
disturbed, and to be resumed. Commands are forked from this process, which has imported everything and computed nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tests.training.kill_driver import fork
from tests.training.treebanks import write_treebank
from treelm.cli import demo
from treelm.cli import run as run_treelm
from treelm.io import atomic
from treelm.models.persistence import storage
from treelm.models.persistence.storage import load_model
from treelm.training import checkpoints, estimation, loop, run, session

SHORT = ("short.toml", "--set", "training.epochs=2")
STOPPED = ("short.toml", "--set", "training.epochs=1")
LONG = ("long.toml",)
COUNTS = ("counts.toml",)
COMMANDS = ("short", "long", "counts", "resume", "short or resume", "again", "save")
MADE = {
    "short": "short",
    "long": "long",
    "counts": "counts",
    "short or resume": "short",
    "again": "long",
    "save": "long",
}
"""Whose model a command has made when it succeeds; ``resume`` goes on with what is there."""
BEFORE = (None, "stopped", "short", "counts")
POINTS: tuple[tuple[Any, str], ...] = (
    (run, "set_up"),
    (run, "has_run"),
    (run, "save_vocabulary"),
    (run, "save_recipe"),
    (run, "load_model"),
    (run, "load_run_recipe"),
    (atomic, "_acquire"),
    (loop, "Session"),
    (estimation, "save_model"),
    (session, "save_model"),
    (storage, "write_atomically"),
    (storage, "save_vocabulary"),
    (checkpoints.Checkpoints, "save"),
    (checkpoints.Checkpoints, "newest"),
    (storage.ModelHubMixin, "save_pretrained"),
    (demo.shutil, "rmtree"),
)
"""What is about to be called there."""
MOST_SECONDS = 0.03  # of one wait


def command(name: str, world: Path, folder: Path) -> int:
    """Do what a command does in a folder; the exit code."""
    if name == "save":
        load_model(world / "long").save_pretrained(folder)
        return 0
    if name == "again":
        demo._throw_away([folder])
    if name == "resume":
        return run_treelm(["train", "--resume", str(folder), "--set", "training.epochs=2", "--quiet"])
    recipe, *settings = {"long": LONG, "again": LONG, "counts": COUNTS, "stopped": STOPPED}.get(name, SHORT)
    flags = ["--resume-if-present"] if name == "short or resume" else []
    return run_treelm(["train", str(world / recipe), "--out", str(folder), "--quiet", *flags, *settings])


def start(name: str, world: Path, folder: Path, said: Path, source: random.Random | None) -> int:
    """Begin a command in a process of its own; with a source of random numbers it waits at every point."""

    def work() -> None:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        if source is not None:
            time.sleep(source.uniform(0, 5 * MOST_SECONDS))
            for place, function in POINTS:
                setattr(place, function, hesitating(getattr(place, function), source))
        os._exit(command_code(name, world, folder))

    return fork(work)


def command_code(name: str, world: Path, folder: Path) -> int:
    """As the command line would end: a refusal is a line and the code 2."""
    from treelm.errors import InputError

    try:
        return command(name, world, folder)
    except InputError as error:
        print(f"treelm {name}: {error}", file=sys.stderr, flush=True)
        return 2
    except SystemExit as end:
        return int(end.code or 0)


def hesitating(call: Callable[..., Any], source: random.Random) -> Callable[..., Any]:
    def hesitate(*arguments: Any, **options: Any) -> Any:
        if source.random() < 0.5:
            time.sleep(source.uniform(0, MOST_SECONDS))
        return call(*arguments, **options)

    return hesitate


def wait(process: int) -> int:
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def model_of(folder: Path) -> str | None:
    path = folder / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def write_world(world: Path) -> None:
    """Recipes, and undisturbed runs by them."""
    text = write_treebank(world, num_train=12, num_dev=4).read_text()
    (world / "short.toml").write_text(text)
    long = text.replace("min_count = 1", "max_size = 5").replace("epochs = 3", "epochs = 2")
    (world / "long.toml").write_text(long.replace("hidden_size = 8", "hidden_size = 6"))
    counts = '[model]\nsystem = "ngram"\norder = 2\nfallback_discounts = [0.5, 1.0, 1.5]\n'
    (world / "counts.toml").write_text(f"{text.partition('[model]')[0]}{counts}")
    for name in ("short", "long", "counts", "stopped"):
        assert wait(start(name, world, world / name, world / f"{name}.said", None)) == 0, name


def race(names: Sequence[str], before: str | None, world: Path, folder: Path, source: random.Random) -> dict[str, Any]:
    """Two commands at once; what they said, and what is wrong afterwards."""
    if before is not None:
        shutil.copytree(world / before, folder)
    said = [folder.with_name(f"{folder.name}.said-{number}") for number in range(2)]
    sources = [random.Random(source.random()) for _ in names]
    started = [start(name, world, folder, *rest) for name, *rest in zip(names, said, sources, strict=True)]
    codes = [wait(process) for process in started]
    lines = [file.read_text().strip().split("\n")[-1] for file in said]
    found = problems(list(zip(names, codes, strict=True)), before, world, folder)
    return {"names": names, "before": before, "codes": codes, "said": lines, "wrong": found}


def problems(ended: Sequence[tuple[str, int]], before: str | None, world: Path, folder: Path) -> list[str]:
    """How the folder is not what the commands that succeeded have left."""
    found = [f"exit code {code}" for _, code in ended if code not in (0, 2)]
    names = [name for name, _ in ended]
    final, known = model_of(folder), {name: model_of(world / name) for name in ("short", "long", "counts", "stopped")}
    done = [known[MADE[name]] for name, code in ended if code == 0 and name in MADE]
    if "again" in names:  # it may have thrown away what the other made, or what was there before, as it was told to
        allowed = [*done, None] if done == [] or "resume" in names else done
        allowed += [known[before]] if before is not None and ("again", 0) not in ended else []
    elif done:
        allowed = done if len(set(done)) == 1 else []
    else:
        allowed = [known["short" if before == "stopped" and ("resume", 0) in ended else before] if before else None]
    if final not in allowed:
        there = next((name for name, model in known.items() if model == final), "another model" if final else "nothing")
        found.append(f"a finished model was lost: {there} is there")
    if final is not None and not found:
        found += unusable(world, folder, final)
    return found


def unusable(world: Path, folder: Path, final: str) -> list[str]:
    """Whether what is there can neither score nor be resumed."""

    def score() -> None:
        load_model(folder).score([["the", "cat"]])

    if wait(fork(score)) != 0:
        return ["the model cannot score"]
    is_run = (folder / "checkpoints").exists()
    if is_run and wait(start("resume", world, folder, folder.with_name("resumed.said"), None)) != 0:
        return ["the run cannot be resumed"]
    stopped = final == model_of(world / "stopped")
    return [] if stopped or model_of(folder) == final else ["resuming a finished run changed it"]


def main(directory: Path, num_races: int, seed: int) -> None:
    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    directory.mkdir(exist_ok=True)
    os.environ["TREELM_CACHE"] = str(directory / "cache")
    write_world(directory)
    source = random.Random(seed)
    pairs = [(one, other) for one in COMMANDS for other in COMMANDS if one <= other]
    ways = [(pair, before) for before in BEFORE for pair in pairs]
    wrong, outcomes = [], Counter[str]()
    for number in range(num_races):
        if number % len(ways) == 0:
            source.shuffle(ways)
        pair, before = ways[number % len(ways)]
        result = race(pair, before, directory, directory / f"race-{number}", source)
        outcomes[" and ".join(map(str, sorted(result["codes"])))] += 1
        wrong += [result] if result["wrong"] else []
    print(json.dumps({"races": num_races, "wrong": wrong, "exit codes": outcomes}))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
