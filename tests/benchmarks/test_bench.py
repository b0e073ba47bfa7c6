"""Speed of systems, at a tiny size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.programs import rows_of
from tests.cli.conftest import TREES
from tests.shipped import need
from treelm.errors import InputError
from treelm.models.layers.devices import process_peak_mb
from treelm.papers.metrics.speed import fitting_sentences, in_fresh_process


def test_updates_and_search_are_measured(preloaded: Path, tmp_path: Path) -> None:
    need("rnng-gum-open")
    (tmp_path / "train.ptb").write_text(TREES)
    (tmp_path / "dev.ptb").write_text(f"(S {'(D the) ' * 13})\n" * 2)  # sentences of 13 to 17 words are searched
    few = ["--batch-sizes", "4", "--precisions", "fp32-fast", "--seconds", "0.01", "--beams", "4/2/1"]
    few += ["--corpus", str(tmp_path), "--sentences", "2", "--run", "rnng-gum-open"]
    machine, training, search = rows_of(preloaded, "benchmarks/bench.py", "rnng", *few)
    assert "python" in machine
    assert training["words_per_cpu_second"] > 0
    assert (search["action_beam"], search["num_sentences"], search["words_per_sentence"]) == (4, 2, 13)


def test_memory_of_a_fresh_process_is_its_own() -> None:
    """What getrusage says of a process is at least what its parent held when it was begun."""
    ballast = np.ones(2**26)  # 512 MiB
    assert in_fresh_process(process_peak_mb) < process_peak_mb() - 300
    assert ballast.all()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_measurement_ends_with_the_process_that_wanted_it() -> None:
    work = "import time; print('begun', flush=True); time.sleep(600)"
    program = f"from treelm.papers.metrics.speed import in_fresh_process; in_fresh_process(exec, {work!r})"
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
