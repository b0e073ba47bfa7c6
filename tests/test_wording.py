"""Docs, messages, help and docstrings: phrases that are not used, and sizes of the guide."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.pages import ROOT


def test_no_file_has_an_unwanted_phrase_and_the_guide_is_within_its_limits() -> None:
    done = subprocess.run([sys.executable, "scripts/wording.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_there_are_ten_findings_and_each_has_a_figure_and_its_record() -> None:
    _, *findings = re.split(r"^### ", (ROOT / "docs" / "findings.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(findings) == 10
    for finding in findings:
        assert re.search(r"\d", finding.partition("\n")[2])
        (record,) = re.findall(r"^\[Record\]\((research/[\w-]+\.md)", finding, re.MULTILINE)
        assert (ROOT / "docs" / record).is_file()
