"""The report on the machine, for people and for programs."""

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Treelm


def test_report_for_programs_and_for_people_say_the_same(treelm: Treelm) -> None:
    outcome = treelm("doctor", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert list(found) == ["versions", "torch", "warnings"]
    assert found["versions"]["torch"] == metadata.version("torch")
    lines = treelm("doctor").out.splitlines()
    assert f"torch {found['versions']['torch']}" in lines
    assert f"PyTorch version: {torch.__version__}" in lines
    assert [line for line in lines if line.startswith("warning: ")]


@pytest.mark.parametrize(
    ("required", "warning"),
    [
        ("torch<1", f"torch is {metadata.version('torch')}, not <1: pip install 'torch<1'"),
        ("no-such-package>=2", "no-such-package is not installed: pip install 'no-such-package>=2'"),
        ('no-such-package>=2; extra == "x"', None),
    ],
)
def test_requirements_that_are_not_met_are_warned_of(
    treelm: Treelm, monkeypatch: pytest.MonkeyPatch, required: str, warning: str | None
) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: [required])
    found = json.loads(treelm("doctor", "--json").out)["warnings"]
    assert [one for one in found if "pip install" in one] == ([] if warning is None else [warning])


def test_a_folder_that_cannot_be_written_to_and_too_many_threads_are_warned_of(
    treelm: Treelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREELM_CACHE", "/proc/treelm")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    found = "\n".join(json.loads(treelm("doctor", "--json").out)["warnings"])
    assert "1000 threads on " in found
    if not Path("/proc").is_dir():
        pytest.skip("no /proc")
    assert "/proc/treelm cannot be written to: set TREELM_CACHE" in found
