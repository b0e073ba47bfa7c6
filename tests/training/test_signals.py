"""Signals ask for an end; a second SIGINT does not wait."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from treelm.training.signals import quit_on_signals, stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_remembered(number: signal.Signals) -> None:
    with stop_on_signals() as request:
        assert request.signal_name is None
        signal.raise_signal(number)
        assert request.signal_name == number.name


def test_a_second_sigterm_is_taken_for_the_same_request() -> None:
    with stop_on_signals() as request:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert request.signal_name == "SIGTERM"


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_sigint_after_a_signal_ends_the_process_at_once(first: signal.Signals) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with stop_on_signals(lambda: os.write(write, b"last words")):
                signal.raise_signal(first)
                signal.raise_signal(signal.SIGINT)
                threading.Event().wait()  # as within a long operation
        finally:
            os._exit(0)  # not reached
    os.close(write)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    with os.fdopen(read, "rb") as said:
        assert said.read() == b"last words"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_signals_of_a_forked_process_are_its_own() -> None:
    with stop_on_signals() as request:
        child = os.fork()
        if child == 0:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            os._exit(0)
        os.waitpid(child, 0)
    assert request.signal_name is None


def test_a_signal_before_training_ends_the_process_at_once() -> None:
    with pytest.raises(SystemExit, match="75"), quit_on_signals(75):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_after_training_changes_nothing(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with quit_on_signals(75):
        with stop_on_signals():
            pass
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
