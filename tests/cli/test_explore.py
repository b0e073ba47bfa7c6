"""What ``treelm explore`` refuses before it serves anything."""

from __future__ import annotations

import importlib.util
import socket

import pytest

from tests.cli.conftest import Treelm


@pytest.fixture
def _installed() -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-words", "0"), "--max-words 0"),
        (("--max-seconds", "0"), "--max-seconds 0"),
        (("--port", "70000"), "--port 70000"),
        (("no-such-run",), "no such run folder"),
        (("ngram-gum-open", "ngram-gum-open"), "the same run twice"),
        (("rnng-gum-open", "--action-beam", "0"), "action_beam"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(treelm: Treelm, options: tuple[str, ...], message: str) -> None:
    outcome = treelm("explore", *options)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.usefixtures("_installed")
def test_a_port_that_another_program_has_is_named(treelm: Treelm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = treelm("explore", "ngram-gum-open", "--port", str(port))
    assert outcome.code == 2
    assert f"port {port}" in outcome.err
    assert "--port" in outcome.err.partition(f"port {port}")[2]


def test_the_extra_is_named_when_it_is_missing(treelm: Treelm, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("treelm.cli.explore.find_spec", lambda name: None if name == "uvicorn" else found(name))
    outcome = treelm("explore")
    assert outcome.code == 2
    assert outcome.err.strip().endswith('uvicorn not installed; pip install "treelm[explore]"')
