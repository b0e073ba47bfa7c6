"""Docs, messages, help and docstrings: phrases that are not used, and sizes of the guide."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from scripts import wording

from tests.pages import ROOT

UNWANTED = wording.phrases((ROOT / "scripts" / "wording.txt").read_text(encoding="utf-8"))
LIMITS = {"guide": 100, "page": 60, "readme-lines": 3}


def test_no_file_has_an_unwanted_phrase_and_the_guide_is_within_its_limits() -> None:
    done = subprocess.run([sys.executable, "scripts/wording.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x is no number", ["a.md:1: 'is no number': write \"is not a number\""]),
        ("first\nwhat is left out is\ntold here", ['a.md:2: \'is told\': write "is reported", "is printed"']),
        ("# Used in the\n# place of it\n", ["a.md:1: 'in the place of': write \"instead of\""]),
        ("there is no number of words", []),
        ("The two are told apart.", []),
    ],
)
def test_a_phrase_is_found_across_lines_and_its_replacement_is_named(text: str, found: list[str]) -> None:
    assert wording.wordings(text, "a.md", UNWANTED) == found


def test_sizes_above_a_limit_are_named() -> None:
    assert wording.sizes({"docs/a.md": 60, "docs/b.md": 40}, 3, LIMITS) == []
    page, guide, readme = wording.sizes({"docs/a.md": 61, "docs/b.md": 40}, 4, LIMITS)
    assert page.startswith("docs/a.md: 61 bytes, limit 60")
    assert guide == "docs without docs/research: 101 bytes, limit 100"
    assert readme == "README.md: 4 lines, limit 3"


def test_there_are_ten_findings_and_each_has_a_figure_and_its_record() -> None:
    _, *findings = re.split(r"^### ", (ROOT / "docs" / "findings.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(findings) == 10
    for finding in findings:
        assert re.search(r"\d", finding.partition("\n")[2])
        (record,) = re.findall(r"^\[Record\]\((research/[\w-]+\.md)", finding, re.MULTILINE)
        assert (ROOT / "docs" / record).is_file()
