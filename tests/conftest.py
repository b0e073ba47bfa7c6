"""Settings of all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.durations import LIST, Recorder, names_of, read_slow
from tests.made_once import made_once
from tests.preloaded import programs
from treelm.io.files import CACHE_VARIABLE
from treelm.models.layers.devices import find_device

# No test asserts a time, and continuous integration should not fail at random.
settings.register_profile("treelm", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("treelm")

# Searches for garbage would take a twentieth of the time: modules and collected tests are there to the end.
gc.set_threshold(10_000, 20, 10)

# Signals do what they do in a terminal, also under nohup and in a background job, which ignore some of them.
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", choices=("cpu", "cuda"), help="where tests marked `gpu` compute")
    parser.addoption(
        "--write-slow", action="store_true", help=f"write the slow tests into {LIST.name} (make durations)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: also runs on CUDA, with --device cuda (make test-gpu)")
    config.addinivalue_line("markers", "isa: depends on the processor's last bits; run as several (make test-isa)")
    config.addinivalue_line("markers", "slow: stands in slow.txt; left out by make quick")
    if config.getoption("--write-slow"):
        config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is slow. On a CPU, tests of GPUs compare it with itself: two systems show that they work."""
    slow = read_slow()
    for item in items:
        if not slow.isdisjoint(names_of(item.nodeid)):
            item.add_marker(pytest.mark.slow)
    if config.getoption("--device") == "cuda":
        return
    for item in items:
        call = getattr(item, "callspec", None)
        if item.get_closest_marker("gpu") and call and call.params.get("variant") not in (None, "rnng", "prpn"):
            item.add_marker(pytest.mark.skip(reason="needs --device cuda"))


def pytest_collection_finish() -> None:
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """Every checkpoint would, a dozen times; only a power cut could tell. That ``fsync`` is called: ``test_files``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def the_cache_is_of_this_run(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[None]:
    """What earlier runs and the user keep on this machine decides nothing, and nothing is added to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(made_once(tmp_path_factory, worker_id, "cache", lambda folder: None)))
        yield


@pytest.fixture(scope="session")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with ``treelm`` and ``python`` for the search path, which start by a fork (``tests.preloaded``)."""
    with programs(tmp_path_factory.mktemp("programs")) as folder:
        yield folder


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of the option; skips the test where there is none."""
    name: str = request.config.getoption("--device")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    return torch.device(find_device(name))  # type: ignore[arg-type]
