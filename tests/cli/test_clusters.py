"""The workers of a real Dask scheduler give the bytes of one process, also when one of them is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Treelm
from treelm.inference import processes, surprisal_table
from treelm.inference.processes import Sentences
from treelm.inference.surprisal import score_stimuli
from treelm.io import workers
from treelm.models import measures
from treelm.models.base import LanguageModel
from treelm.models.measures import score_with_measures
from treelm.models.scores import SentenceScore

pytest.importorskip("distributed")
REPOSITORY = Path(__file__).parents[2]
PATHS = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
WORDS = ["the", "dog", "cat", "sees", "barks", "a", "."]
MARK = "TREELM_TEST_MARK"


def die_once_and_score(lm: LanguageModel, sentences: Sentences, **options: Any) -> Sequence[SentenceScore]:
    """As ``score_with_measures``, but the first worker that has scored a few batches is killed in the next."""
    if not os.path.exists(os.environ[MARK]) and next(die_once_and_score.numbers) == 3:  # type: ignore[attr-defined]
        Path(os.environ[MARK]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return score_with_measures(lm, sentences, **options)


die_once_and_score.numbers = iter(range(10))  # type: ignore[attr-defined]


def score_slowly(lm: LanguageModel, sentences: Sentences, **options: Any) -> Sequence[SentenceScore]:
    time.sleep(0.5)
    return score_with_measures(lm, sentences, **options)


@contextmanager
def started_cluster(
    folder: Path, *, num_workers: int, paths: str = PATHS
) -> Iterator[tuple[Path, list[subprocess.Popen[bytes]]]]:
    """The scheduler file of a cluster whose workers find the package and these tests, and work elsewhere."""
    file = folder / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", MARK: str(folder / "killed")}

    started = list[subprocess.Popen[bytes]]()

    def start(*command: str) -> None:
        with (folder / "log").open("ab") as log:
            started.append(
                subprocess.Popen([sys.executable, "-m", *command], cwd=folder, env=environment, stdout=log, stderr=log)
            )

    worker = ("distributed.cli.dask_worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny")
    try:
        start("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        for _ in range(num_workers):
            start(*worker, "--no-dashboard")
        deadline = time.monotonic() + 120
        while not file.exists() or not file.read_text().endswith("}"):
            assert started[0].poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        yield file, started
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The scheduler file of a cluster of two workers."""
    with started_cluster(tmp_path_factory.mktemp("cluster"), num_workers=2) as (file, _):
        yield file


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(" ".join(WORDS[(i * 3 + j) % 7] for j in range(1 + i % 5)) + "\n" for i in range(60)))
    return path


def test_what_a_cluster_gives_is_what_one_process_gives(
    project: Path, treelm: Treelm, text: Path, tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    extra = ("--batch-size", "3", "--columns", "entropy_bits")
    for command in (("surprisal", "run", text, *extra), ("parse", "run", text), ("evaluate", "run", "--json")):
        one, many = treelm(*command), treelm(*command, "--cluster", cluster)
        assert (many.code, many.out, many.err) == (0, one.out, one.err)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("good\tbad\nthe dog barks .\tdog the barks .\na cat sees .\tsees a cat .\n")
    command = ("pairs", "run", pairs, "--good", "good", "--bad", "bad", "--json")
    assert treelm(*command, "--cluster", cluster) == treelm(*command)
    command = ("syntaxgym", "run", "--suites", "number_orc", "--json")
    assert treelm(*command, "--cluster", cluster) == treelm(*command, "--processes", "1")


def test_a_run_that_a_worker_cannot_read_or_that_is_another_one_there_is_one_line(
    project: Path, treelm: Treelm, text: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("surprisal", project / "run", text, "--cluster", cluster)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "path_everywhere", lambda run: "/nowhere/run")
        outcome = treelm(*command)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert "/nowhere/run: no such run folder on " in outcome.err
        assert "put it where every worker can read it, under the same path" in outcome.err
    monkeypatch.setattr(processes, "model_hash", lambda run: "of other weights")
    outcome = treelm(*command)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "another model on " in outcome.err


def test_the_sentences_of_a_worker_that_is_killed_are_scored_again(
    project: Path, treelm: Treelm, text: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("surprisal", project / "run", text, "--batch-size", "3")
    one = treelm(*command)
    monkeypatch.setattr(measures, "score_with_measures", die_once_and_score)
    many = treelm(*command, "--cluster", cluster)
    assert (many.code, many.err) == (0, one.err)
    assert many.out == one.out
    assert (cluster.parent / "killed").exists()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("tcp://127.0.0.1:9", "no Dask scheduler answers at tcp://127.0.0.1:9; give the address of a "),
        ("in.txt", "no Dask scheduler answers at in.txt; "),
    ],
)
def test_a_cluster_that_cannot_be_had_is_one_line(
    project: Path, treelm: Treelm, text: Path, monkeypatch: pytest.MonkeyPatch, given: str, found: str
) -> None:
    monkeypatch.chdir(text.parent)
    monkeypatch.setattr(workers, "_CONNECT_SECONDS", 1)
    outcome = treelm("parse", project / "run", text, "--cluster", given)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert found in outcome.err


def test_a_scheduler_that_is_gone_in_the_middle_is_one_line(
    project: Path, treelm: Treelm, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish_and_lose(*arguments: Any, **options: Any) -> Any:
        for some in score_stimuli(*arguments, **options):
            if started[0].poll() is None:
                started[0].kill()
                started[0].wait()
            yield some

    monkeypatch.setattr(surprisal_table, "score_stimuli", finish_and_lose)
    monkeypatch.setattr(measures, "score_with_measures", score_slowly)
    with started_cluster(tmp_path, num_workers=1) as (file, started):
        outcome = treelm("surprisal", project / "run", text, "--cluster", file)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"the cluster at {file} has lost a task (" in outcome.err


def test_workers_of_another_version_are_refused_in_one_line(
    project: Path, treelm: Treelm, text: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treelm.__version__", "0.0.9")
    outcome = treelm("surprisal", project / "run", text, "--cluster", cluster)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "in a worker, but 0.0.9 here; install the same version on both sides" in outcome.err
