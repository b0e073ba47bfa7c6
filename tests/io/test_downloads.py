import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from treelm.corpora.data_config import DataConfig, prepared_split
from treelm.errors import InputError
from treelm.io.downloads import Download, fetch

TREE = b"(S (NP (D the) (N dog)) (VP (V barks)))\n"
CONTENT = TREE * 5000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT under any name, and can be told to misbehave."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []  # what was asked for
        self.break_after: list[int] = []  # bytes after which the next answers end
        self.status: int | None = None
        self.knows_ranges = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data/train.ptb"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.knows_ranges else 0
        if self.server.status is not None:
            self.send_error(self.server.status)
            return
        if start >= len(CONTENT):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        stop = start + self.server.break_after.pop(0) if self.server.break_after else len(CONTENT)
        self.wfile.write(CONTENT[start:stop])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def download(server: Server, sha256: str = SHA256) -> Download:
    return Download(url=server.url, sha256=sha256)


def test_a_file_is_downloaded_once(server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        path = fetch(download(server), tmp_path)
        assert path == tmp_path / "train.ptb"
        assert path.read_bytes() == CONTENT
    assert server.ranges == [None]
    assert list(tmp_path.iterdir()) == [path]


def test_progress_counts_up_to_the_length(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    fetch(download(server), tmp_path, progress=lambda here, total: seen.append((here, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_a_transfer_that_breaks_off_continues_at_once(server: Server, tmp_path: Path) -> None:
    server.break_after = [70_000, 50_000]
    assert fetch(download(server), tmp_path).read_bytes() == CONTENT
    first, second, third = server.ranges
    assert first is None
    assert second is not None
    assert third is not None
    assert 60_000 < int(second[6:-1]) <= 70_000 < 100_000 < int(third[6:-1]) <= 120_000


def test_the_next_call_continues_what_broke_off(server: Server, tmp_path: Path) -> None:
    server.break_after = [60_000, 10_000, 10_000]
    with pytest.raises(InputError, match=r"broke off after 7\d+ bytes"):
        fetch(download(server), tmp_path)
    (partial,) = tmp_path.iterdir()
    assert CONTENT.startswith(partial.read_bytes())
    num_kept = partial.stat().st_size
    assert not (tmp_path / "train.ptb").exists()
    server.ranges.clear()
    assert fetch(download(server), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={num_kept}-"]


def test_a_server_without_ranges_is_asked_from_the_start(server: Server, tmp_path: Path) -> None:
    server.knows_ranges = False
    server.break_after = [60_000]
    assert fetch(download(server), tmp_path).read_bytes() == CONTENT


def test_a_complete_partial_file_is_taken(server: Server, tmp_path: Path) -> None:
    (tmp_path / f".{SHA256}.partial").write_bytes(CONTENT)
    assert fetch(download(server), tmp_path).read_bytes() == CONTENT


def test_a_partial_file_that_is_too_long_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / f".{SHA256}.partial").write_bytes(CONTENT + b"?")
    assert fetch(download(server), tmp_path).read_bytes() == CONTENT


def test_another_hash_is_an_error_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another sha256"):
        fetch(download(server, "0" * 64), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_partial_file_is_noticed(server: Server, tmp_path: Path) -> None:
    (tmp_path / f".{SHA256}.partial").write_bytes(b"?" * 100)
    with pytest.raises(InputError, match="another sha256"):
        fetch(download(server), tmp_path)
    assert fetch(download(server), tmp_path).read_bytes() == CONTENT


def test_a_missing_file_is_an_error_that_names_the_address(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(InputError, match=r"train\.ptb.*404"):
        fetch(download(server), tmp_path)


def test_a_server_that_cannot_be_reached_is_an_error(server: Server, tmp_path: Path) -> None:
    wanted = Download(url="http://127.0.0.1:1/train.ptb", sha256=SHA256)
    with pytest.raises(InputError, match="broke off after 0 bytes"):
        fetch(wanted, tmp_path)


def test_a_corpus_of_the_catalogue_is_downloaded_and_prepared(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TREELM_CATALOG", str(tmp_path / "catalog.toml"))
    (tmp_path / "catalog.toml").write_text(
        f'[mine]\nlicence = "CC0"\ntrain.brackets = {{url = "{server.url}", sha256 = "{SHA256}"}}\n'
    )
    for _ in range(2):
        assert len(prepared_split(DataConfig(corpus="mine"), "train")) == 5000
    assert server.ranges == [None]
