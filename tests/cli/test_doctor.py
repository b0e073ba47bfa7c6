"""The report on the machine."""

from importlib import metadata

import pytest
import torch

from tests.cli.conftest import Treelm


def test_report_has_releases_what_torch_found_and_warnings(treelm: Treelm) -> None:
    outcome = treelm("doctor")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert f"torch {metadata.version('torch')}" in lines
    assert len([line for line in lines if line.startswith("torch ")]) == 1
    packages = lines[2 : lines.index("")]
    assert len(packages) == len({line.split()[0] for line in packages})  # also those of several extras
    assert f"PyTorch version: {torch.__version__}" in lines
    assert lines[-1].startswith("warning: ")


@pytest.mark.parametrize(
    ("required", "warning"),
    [
        ("torch<1", f"torch is {metadata.version('torch')}, not <1: pip install 'torch<1'"),
        ("no-such-package>=2", "no-such-package is not installed: pip install 'no-such-package>=2'"),
        ('no-such-package>=2; extra == "x"', None),
    ],
)
def test_potential_problems_are_warned_of(
    treelm: Treelm, monkeypatch: pytest.MonkeyPatch, required: str, warning: str | None
) -> None:
    monkeypatch.setattr("torch.utils.collect_env.get_pretty_env_info", lambda: "")
    monkeypatch.setattr(metadata, "requires", lambda _: [required])
    monkeypatch.setenv("TREELM_CACHE", "/proc/treelm")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    lines = treelm("doctor").out.splitlines()
    found = [line.removeprefix("warning: ") for line in lines if "pip install" in line]
    assert found == ([] if warning is None else [warning])
    assert any("1000 threads on " in line for line in lines)
    assert any("/proc/treelm cannot be written to: set TREELM_CACHE" in line for line in lines)
