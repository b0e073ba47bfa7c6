"""What users see of a sentence does not depend on its company: the bytes of tables and trees, for every system."""

from __future__ import annotations

from pathlib import Path

import pytest

import treelm as package
from tests.cli.conftest import Treelm
from tests.legacy.make import HERE, KEPT
from treelm.models.capabilities import Parser, Searching, TreeConditioned, has
from treelm.models.persistence.shipped import shipped_names

TINY = [str(HERE / name) for name in KEPT]
ANY = [*shipped_names(), *TINY]
SENTENCES = """\
The old city is one .
Why ?
Zyxwv barks
In 1999 he saw us
Yes
She knew
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text(SENTENCES, encoding="utf-8")
    return path


def commands(run: str) -> list[tuple[str, ...]]:
    """What a run can be asked for."""
    lm = package.load(run)
    beam = ("--action-beam", "4", "--word-beam", "2") if isinstance(lm, Searching) else ()
    found = list[tuple[str, ...]]()
    if lm.predicts_words and not has(lm, TreeConditioned):
        found.append(("surprisal", "--end", *beam, *(["--columns", *lm.word_columns] if lm.word_columns else [])))
    if has(lm, Parser):
        found.append(("parse", *beam))
    return found


def output(treelm: Treelm, command: tuple[str, ...], run: str, text: Path, *options: str) -> str:
    outcome = treelm(command[0], run, text, *command[1:], *options)
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("\n") >= SENTENCES.count("\n")
    return outcome.out


@pytest.mark.isa
@pytest.mark.parametrize("run", ANY, ids=[Path(run).name for run in ANY])
def test_tables_and_trees_have_the_same_bytes_alone_and_in_one_batch(treelm: Treelm, text: Path, run: str) -> None:
    """Of shipped models the first command alone: the tiny runs of the same systems answer all."""
    for command in commands(run) if run in TINY else commands(run)[:1]:
        alone, together = (output(treelm, command, run, text, "--batch-size", size) for size in ("1", "64"))
        assert alone == together, command
