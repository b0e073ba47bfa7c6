"""Progress is one line an evaluation in a file, and a bar besides in a terminal."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from typing import TextIO

import pytest

from treelm.training.config import TrainingConfig
from treelm.training.metrics import LossSum, fraction_done, progress
from treelm.training.trainer import Step

CONFIG = TrainingConfig()


def steps() -> Iterator[Step]:
    for number in range(1, 5):
        yield Step(
            step=number,
            epoch=number // 2,
            step_in_epoch=number % 2,
            seconds=float(number),
            cpu_seconds=number / 2,
            loss=LossSum(total=20.0, num_words=10, num_sentences=2, terms={"word": [20.0, 12]}),
            gradient_norm=1.0,
            learning_rate=0.001,
            dev=LossSum(total=10.0, num_words=10, num_sentences=2, terms={"word": [10.0, 12]})
            if number % 2 == 0
            else None,
            is_best=number == 2,
            stopped_because="epochs = 2 are done" if number == 4 else None,
        )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(steps: Iterable[Step], stream: TextIO, *, config: TrainingConfig = CONFIG, evaluates: bool = True) -> None:
    with progress(config, 2, evaluates=evaluates, stream=stream) as show_step:
        for step in steps:
            show_step(step)


@pytest.mark.skipif(os.name != "posix", reason="errors of POSIX")
def test_nothing_comes_of_it_when_nobody_reads_what_is_shown() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as pipe:
        show(steps(), io.TextIOWrapper(pipe, encoding="utf-8", write_through=True))


def test_a_file_gets_one_line_an_evaluation() -> None:
    stream = io.StringIO()
    show(steps(), stream)
    assert stream.getvalue().splitlines() == [
        "epoch 1 · step 2 · 2 s · train 2.0000 nats/word (loss perplexity 7.4)"
        " · dev 1.0000 nats/word (loss perplexity 2.7) · best so far",
        "epoch 2 · step 4 · 4 s · train 2.0000 nats/word (loss perplexity 7.4)"
        " · dev 1.0000 nats/word (loss perplexity 2.7) · end: epochs = 2 are done",
    ]


def test_a_terminal_gets_a_bar_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    show(steps(), stream, config=TrainingConfig(epochs=2))
    assert "100%" in stream.getvalue()
    assert "best so far" in stream.getvalue()


def test_the_nearest_limit_tells_how_much_is_done() -> None:
    [_, second, third, last] = steps()
    assert fraction_done(second, TrainingConfig(epochs=4), None) == 0.25
    assert fraction_done(third, TrainingConfig(epochs=4), 2) == 0.375
    assert fraction_done(third, TrainingConfig(epochs=4, max_steps=6), 2) == 0.5
    assert fraction_done(third, TrainingConfig(epochs=4, max_minutes=0.0625), 2) == 0.8
    assert fraction_done(third, TrainingConfig(epochs=4, max_cpu_minutes=0.05), 2) == 0.5
    assert fraction_done(last, TrainingConfig(epochs=4), 2) == 1.0
