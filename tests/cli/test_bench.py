"""``treelm bench`` says processor and wall time of all that it measures. Networks are small, and in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.cli.conftest import TREES, Treelm
from tests.shipped import need
from tests.systems import SMALL
from treelm.evaluation import speed
from treelm.training.config import Precision
from treelm.training.recipe import Recipe


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure small networks for a few updates."""
    usual = speed.benchmark_recipe

    def recipe(system: str) -> Recipe:
        found = usual(system)
        config = replace(found.model.config, **SMALL[system].model)
        return replace(found, model=replace(found.model, config=config))

    def here(function: Callable[..., Any], *arguments: object, **named: object) -> Any:
        return function(*arguments, **named)

    monkeypatch.setattr(speed, "benchmark_recipe", recipe)
    monkeypatch.setattr(speed, "_in_fresh_process", here)
    streams = partial(speed.measure_stream, num_updates=1, batch_size=2, bptt=4, vocabulary_size=50)
    monkeypatch.setattr(speed, "measure_stream", streams)


def test_updates_on_streams(treelm: Treelm, tmp_path: Path) -> None:
    outcome = treelm("bench", "lstm", "-o", tmp_path / "bench.json")
    assert outcome.code == 0, outcome.err
    kept = json.loads((tmp_path / "bench.json").read_text())
    lines = [line.split("\t") for line in outcome.out.splitlines()]
    assert [line[1] for line in lines] == [one["precision"] for one in kept] == list(get_args(Precision))
    for line, one in zip(lines, kept, strict=True):
        assert one["tokens_per_second"] == pytest.approx(8 / one["seconds"][0])
        assert one["tokens_per_wall_second"] == pytest.approx(8 / one["wall_seconds"][0])
        assert line[2] == f"{one['tokens_per_second']:.0f} tokens/CPU-s"
        assert line[3] == f"{one['tokens_per_wall_second']:.0f} tokens/s"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("lstm", "--threads", "4"), "--threads with lstm; leave it out: it reads streams"),
        (("chart", "--beams", "4/2/1"), "--beams with chart; leave it out: this system has no search"),
        (("rnng", "--run", "x", "--warm-up-seconds", "1"), "--warm-up-seconds with --run; leave one of them out"),
    ],
)
def test_options_without_effect_are_refused(treelm: Treelm, call: tuple[str, ...], message: str) -> None:
    outcome = treelm("bench", *call)
    assert (outcome.code, outcome.err) == (2, f"treelm bench: {message}\n")


def test_what_cannot_be_searched_or_written_is_told_before_anything_is_measured(
    treelm: Treelm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "measure_training", None)
    for split in ("train", "dev"):
        (tmp_path / f"{split}.ptb").write_text(TREES)
    for flags, message in (
        (("--corpus", tmp_path), f"{tmp_path / 'dev.ptb'}: no sentences of 13 to 17 words to search"),
        (("--sentences", "0"), "sentences = 0; give 1 or more"),
        (("--output", tmp_path / "no" / "bench.json"), f"no folder {tmp_path / 'no'}; make it first"),
    ):
        outcome = treelm("bench", "rnng", *flags)
        assert (outcome.code, outcome.out) == (2, "")
        assert message in outcome.err


def test_updates_and_search_on_trees(treelm: Treelm, tmp_path: Path) -> None:
    need("rnng-gum-open")
    (tmp_path / "train.ptb").write_text(TREES)
    (tmp_path / "dev.ptb").write_text(f"(S {'(D the) ' * 13})\n" * 2)  # sentences of 13 to 17 words are searched
    few = (
        "--batch-sizes",
        "4",
        "--precisions",
        "fp32-fast",
        "--seconds",
        "0.01",
        "--beams",
        "4/2/1",
        "--corpus",
        tmp_path,
    )
    outcome = treelm("bench", "rnng", *few, "--sentences", "2", "--run", "rnng-gum-open", "-o", tmp_path / "bench.json")
    assert outcome.code == 0, outcome.err
    kept = json.loads((tmp_path / "bench.json").read_text())
    (training,), (search,) = kept["training"], kept["search"]
    assert {"words_per_second", "words_per_cpu_second", "sentences_per_second", "sentences_per_cpu_second"} <= set(
        training
    )
    assert {"seconds_per_sentence", "cpu_seconds_per_sentence"} <= set(search)
    above, below = outcome.out.split("Search: score and best tree")
    for table, found in ((above, training), (below, search)):
        assert headings(table) == [name.replace("_", " ") for name in found]


def headings(table: str) -> list[str]:
    """The headings of a printed table, each put together from its lines."""
    lines = [line.strip("┃").split("┃") for line in table.splitlines() if line.startswith("┃")]
    return [" ".join(" ".join(parts).split()) for parts in zip(*lines, strict=True)]
