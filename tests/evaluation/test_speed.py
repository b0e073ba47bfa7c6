"""Speed of systems, at a tiny size."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from mmap import mmap
from typing import get_args

import numpy as np
import pytest

from tests.systems import SMALL
from treelm.errors import InputError
from treelm.evaluation.speed import (
    BeamWidths,
    _in_fresh_process,
    benchmark_recipe,
    fitting_sentences,
    measure_search,
    measure_stream,
)
from treelm.models import SYSTEMS, system_class
from treelm.models.base import EstimatedLM
from treelm.models.layers.devices import process_peak_mb, restart_peak
from treelm.models.streams import StreamLM
from treelm.training.config import Precision

STREAMS = [name for name in SYSTEMS if issubclass(system_class(name), StreamLM)]


@pytest.mark.parametrize("system", STREAMS)
@pytest.mark.parametrize("precision", get_args(Precision))
def test_whole_updates_are_measured(system: str, precision: Precision) -> None:
    recipe = benchmark_recipe(system)
    config = replace(recipe.model.config, **SMALL[system].model)
    training = replace(recipe.training, precision=precision, threads=1)
    recipe = replace(recipe, model=replace(recipe.model, config=config), training=training)
    speed = measure_stream(recipe, num_updates=2, bptt=4, vocabulary_size=50)
    assert (speed.system, speed.precision, len(speed.seconds)) == (system, precision, 2)
    assert speed.num_parameters < 300_000


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_that_is_trained_in_updates_can_be_measured(system: str) -> None:
    if issubclass(system_class(system), EstimatedLM):
        with pytest.raises(InputError, match="estimated in one go"):
            benchmark_recipe(system)
    else:
        assert benchmark_recipe(system).model.system == system


def test_a_search_is_measured_with_its_widths() -> None:
    sentences = [("I", "think", ".")] * 2
    speed = measure_search("rnng-gum-open", sentences, BeamWidths(action_beam=5, word_beam=2, fast_track=1))
    assert (speed.action_beam, speed.word_beam, speed.fast_track, speed.threads) == (5, 2, 1, 1)
    assert (speed.num_sentences, speed.words_per_sentence) == (2, 3)


def test_memory_of_a_fresh_process_is_its_own() -> None:
    """What getrusage says of a process is at least what its parent held when it was begun."""
    ballast = np.ones(2**26)  # 512 MiB
    assert _in_fresh_process(process_peak_mb) < process_peak_mb() - 300
    assert ballast.all()


def test_the_peak_of_memory_can_be_counted_anew() -> None:
    with mmap(-1, 2**29) as ballast:  # 512 MiB, which go back when it is closed: freed arrays are kept for later
        pages = np.frombuffer(ballast, np.uint8)
        pages[:: 2**12] = 1
        before = process_peak_mb()
        del pages
    if not restart_peak():
        pytest.skip("this system does not count it anew")
    assert process_peak_mb() < before - 300


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_measurement_ends_with_the_process_that_wanted_it() -> None:
    work = "import time; print('begun', flush=True); time.sleep(600)"
    program = f"from treelm.evaluation.speed import _in_fresh_process; _in_fresh_process(exec, {work!r})"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
        finally:
            process.kill()
        assert process.stdout.read() == ""  # closed when the measurement has ended, too


def test_a_search_is_measured_on_sentences_of_one_length() -> None:
    words = [("a",) * number for number in (12, 17, 13, 18, 15)]
    assert [*map(len, fitting_sentences(words, 2, where="dev.ptb"))] == [17, 13]
    with pytest.raises(InputError, match=r"dev\.ptb: no sentences of 13 to 17 words"):
        fitting_sentences(words[:1], 2, where="dev.ptb")
    with pytest.raises(InputError, match="no sentences to search"):
        measure_search("no-run", [], BeamWidths(action_beam=5, word_beam=2, fast_track=1))
