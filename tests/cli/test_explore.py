"""What ``treelm explore`` refuses before it serves anything."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.cli.conftest import Treelm


@pytest.fixture
def _installed() -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")


@pytest.mark.usefixtures("_installed")
def test_a_port_that_another_program_has_is_named(treelm: Treelm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = treelm("explore", "ngram-gum-open", "--port", str(port))
    assert outcome.code == 2
    assert f"port {port}" in outcome.err
    assert "--port" in outcome.err.partition(f"port {port}")[2]


def test_the_extra_is_named_when_it_is_missing(treelm: Treelm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    outcome = treelm("explore")
    assert outcome.code == 2
    assert outcome.err.strip().endswith("uvicorn is not installed; pip install 'treelm[explore]'")
