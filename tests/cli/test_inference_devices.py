"""``--device`` of the subcommands that load a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Treelm


@pytest.fixture
def place(project: Path, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "text.txt").write_text("the dog barks .\na cat sees the dog .\n")
    (tmp_path / "pairs.tsv").write_text("grammatical\tungrammatical\nthe dog barks .\tthe barks dog .\n")
    names = {"run": project / "run", "text": tmp_path / "text.txt", "pairs": tmp_path / "pairs.tsv", "folder": tmp_path}
    return {name: str(path) for name, path in names.items()}


def test_auto_is_the_cpu_where_there_is_nothing_else(
    treelm: Treelm, place: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arguments = ("surprisal", place["run"], place["text"])
    assert treelm(*arguments, "--device", "auto").out == treelm(*arguments).out


@pytest.mark.gpu
@pytest.mark.parametrize("processes", ["1", "2"])
def test_scores_of_a_gpu_are_those_of_the_cpu(
    processes: str, treelm: Treelm, place: dict[str, str], device: torch.device
) -> None:
    if (processes, device.type) == ("2", "cpu"):
        pytest.skip("needs --device cuda; several processes on a CPU: test_processes")
    arguments = ["surprisal", place["run"], place["text"], "--processes", processes, "--device"]
    here, there = (
        [float(line.split("\t")[3]) for line in treelm(*arguments, name).out.splitlines()[1:]]
        for name in ("cpu", device.type)
    )
    assert there == pytest.approx(here, abs=1e-3)  # search is in float32
