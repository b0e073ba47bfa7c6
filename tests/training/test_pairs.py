"""Two processes train what one does."""

from __future__ import annotations

import json
import math
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from safetensors.torch import load_file

from tests.made_once import made_once
from tests.programs import environment
from tests.training.pairs import CASES, recipe_of, train_all, train_ngram, train_one
from tests.training.treebanks import write_treebank
from treelm.training.distributed import ProcessGroup

pytestmark = pytest.mark.timeout(1200)  # all trainings are in one fixture; seconds on an idle machine
CODE = "import sys; from pathlib import Path; from tests.training import pairs; pairs.main(Path(sys.argv[2]))"
PAIR = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "TORCHELASTIC_USE_AGENT_STORE": "True"}
TOLERANCE = 1e-9  # in float64; asked for is 1e-6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str, preloaded: Path) -> Path:
    """Everything, trained in one process and in two."""
    return made_once(tmp_path_factory, worker_id, "pairs", lambda folder: _train(folder, preloaded))


def _train(folder: Path, preloaded: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREELM_CACHE", str(folder / "cache"))
        write_treebank(folder)
        group = ProcessGroup(recipe_of("lstm", folder, noisy=False).training)
        for name in ("lstm", "rnng"):
            train_one(folder, folder / f"{name} from one", name, noisy=True, group=group, max_steps=2)
        # What torchrun does, without its start of two seconds a process (test_distributed): it keeps the store open
        store = distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        begin = partial(subprocess.Popen, [preloaded / "python", "-c", CODE, folder], stderr=subprocess.PIPE, text=True)
        own = {**PAIR, "MASTER_PORT": str(store.port)}
        pair = [begin(env=environment(**own, RANK=rank, LOCAL_RANK=rank)) for rank in "01"]
        curves = train_all(folder, folder / "one", group)
        for process in pair:
            _, error = process.communicate(timeout=900)
            assert process.returncode == 0, error
        for name in ("lstm", "rnng"):
            curves[f"{name} from two"] = train_one(folder, folder / f"{name} from two", name, noisy=True, group=group)
        train_ngram(folder, folder / "ngram one")
    (folder / "curves.json").write_text(json.dumps(curves))


def curves(folder: Path, name: str = "curves.json") -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = json.loads((folder / name).read_text())
    return found


def assert_close(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(("name", "noisy"), CASES)
def test_loss_curve_and_weights_are_equal(folder: Path, name: str, noisy: bool) -> None:
    case = f"{name} {noisy}"
    one = curves(folder)[case]
    assert len(one) >= 4
    assert all(math.isfinite(value) for step in one for value in step)
    for rank in range(2):
        assert_close(curves(folder, f"curves-{rank}.json")[case], one)
    for file in ("final.safetensors", "model.safetensors"):
        ours, theirs = (load_file(folder / number / case / file) for number in ("two", "one"))
        assert ours.keys() == theirs.keys()
        for key, tensor in theirs.items():
            torch.testing.assert_close(ours[key], tensor, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["lstm", "rnng"])
def test_another_number_of_processes_goes_on_with_a_run(folder: Path, name: str) -> None:
    whole = curves(folder)[f"{name} True"]
    assert_close(curves(folder, "curves-0.json")[f"{name} from one"], whole[2:])
    assert_close(curves(folder)[f"{name} from two"], whole[2:])
    for run in (f"{name} from one", f"{name} from two"):
        ours = load_file(folder / run / "final.safetensors")
        theirs = load_file(folder / f"one/{name} True/final.safetensors")
        for key, tensor in theirs.items():
            torch.testing.assert_close(ours[key], tensor, rtol=TOLERANCE, atol=TOLERANCE)


def test_the_connection_ends_before_python_does(folder: Path) -> None:
    assert [(folder / f"left-{rank}").read_text() for rank in range(2)] == ["disconnected"] * 2


def test_there_is_one_log_and_one_line_a_step(folder: Path) -> None:
    for case in (f"{name} {noisy}" for name, noisy in CASES):
        lines = [
            [json.loads(line) for line in (folder / number / case / "metrics.jsonl").read_text().splitlines()]
            for number in ("one", "two")
        ]
        one, two = ([(line["kind"], line["step"], line.get("num_words")) for line in log] for log in lines)
        assert two == one


def test_the_first_process_estimates_counts(folder: Path) -> None:
    one, two = ((folder / f"ngram {number}" / "model.safetensors").read_bytes() for number in ("one", "two"))
    assert one == two
