"""The report on the machine, for eyes and for programs."""

import json

import pytest
import torch

from tests.cli.conftest import Treelm
from treelm.models import environment

SECTIONS = ["versions", "extras", "processor", "threads", "gpus", "memory", "limits", "places", "variables", "warnings"]


def test_the_report_for_programs_has_all_sections(treelm: Treelm) -> None:
    outcome = treelm("doctor", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert list(found) == SECTIONS
    assert found["places"]["cache"].keys() == {"path", "writable", "free_gb"}


def test_the_report_for_eyes_says_the_same(treelm: Treelm, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {torch.float32: 90.0, torch.bfloat16: 60.0}  # measured ones are never the same
    monkeypatch.setattr(environment, "_products_per_second", speeds.__getitem__)
    found = json.loads(treelm("doctor", "--json").out)
    lines = treelm("doctor").out.splitlines()
    assert [line[:-1] for line in lines if line.endswith(":") and line[0] != " "] == SECTIONS[:-1]
    warnings = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
    assert warnings == found["warnings"]
    assert any("1.5 times as fast in float32" in one for one in warnings)
    assert any(line.split() == ["torch", found["versions"]["torch"]] for line in lines)
