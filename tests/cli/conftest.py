"""A tiny trained run that the subcommands are tried on."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest

from treelm.cli import run as run_treelm

TREES = """\
(S (NP (D the) (N dog)) (VP (V barks)) (. .))
(S (NP (D the) (N cat)) (VP (V sees) (NP (D the) (N dog))) (. .))
(S (NP (D a) (N dog)) (VP (V sees) (NP (D a) (N cat))) (. .))
(S (NP (D a) (N cat)) (VP (V sleeps)) (. .))
"""

RECIPE = """\
[data]
train = "train.ptb"
dev = "train.ptb"
test = "train.ptb"
[vocabulary]
kind = "word"
min_count = 1
[model]
system = "rnng"
embedding_size = 16
hidden_size = 16
num_layers = 1
dropout = 0.0
[training]
epochs = 30
batch_size = 4
learning_rate = 0.02
[search]
action_beam = 20
word_beam = 5
"""


@pytest.fixture(autouse=True)
def no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far something is, is told by time: on a slow machine, standard error would have lines that others lack."""
    monkeypatch.setattr("treelm.io.terminal.SECONDS_BETWEEN_NOTES", math.inf)


def suite_of(name: str, *verbs: tuple[str, str]) -> dict[str, Any]:
    """A suite of an item for each pair of verbs, of which the first is expected after "the dog"."""

    def condition(name: str, verb: str) -> dict[str, Any]:
        regions = [{"region_number": 1, "content": "the dog"}, {"region_number": 2, "content": verb}]
        return {"condition_name": name, "regions": regions}

    return {
        "meta": {"name": name, "metric": "sum"},
        "predictions": [{"type": "formula", "formula": "(2;%learned%) < (2;%odd%)"}],
        "items": [
            {"item_number": number, "conditions": [condition("learned", learned), condition("odd", odd)]}
            for number, (learned, odd) in enumerate(verbs, start=1)
        ],
    }


class Outcome(NamedTuple):
    """What a call of ``treelm`` gave."""

    code: int
    out: str
    err: str


Treelm = Callable[..., Outcome]


@pytest.fixture
def treelm(capsys: pytest.CaptureFixture[str]) -> Treelm:
    """Call the command line in this process."""

    def call(*arguments: str | Path) -> Outcome:
        try:
            code = run_treelm([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let commands do runs in this process, one by one; give the names of those that they have begun."""
    names: list[str] = []

    def one_by_one(commands: Mapping[str, Sequence[str]], **options: object) -> dict[str, int]:
        names.extend(commands)
        return {name: run_treelm([*command]) for name, command in commands.items()}

    for command in ("demo", "reproduce"):
        monkeypatch.setattr(f"treelm.cli.{command}.run_side_by_side", one_by_one)
    return names


@pytest.fixture
def closed_pipe() -> Iterator[TextIO]:
    """Give a stream into a pipe whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w", buffering=1, encoding="utf-8")
    yield stream
    with suppress(BrokenPipeError):
        stream.close()


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small treebank, a recipe, and a run."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.ptb").write_text(TREES, encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    assert run_treelm(["train", str(folder / "recipe.toml"), "--output", str(folder / "run"), "--quiet"]) == 0
    return folder
