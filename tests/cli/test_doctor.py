"""The report on the machine."""

from importlib import metadata

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
