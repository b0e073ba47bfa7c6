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
        self.num_asked = 0
        self.break_after: int | None = None  # bytes after which the answer ends
        self.status: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data/train.ptb"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.num_asked += 1
        if self.server.status is not None:
            self.send_error(self.server.status)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: self.server.break_after])

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
    assert server.num_asked == 1
    assert list(tmp_path.iterdir()) == [path]


def test_another_hash_is_an_error_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another sha256"):
        fetch(download(server, "0" * 64), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"break_after": 60_000}, r"cannot download .*train\.ptb"),
        ({"status": 404}, r"train\.ptb.*404"),
        ({"server_port": 1}, "cannot download"),
    ],
)
def test_a_transfer_that_fails_is_told_and_leaves_nothing(
    server: Server, wrong: dict[str, int], message: str, tmp_path: Path
) -> None:
    wanted = download(server)
    if "server_port" in wrong:
        wanted = Download(url="http://127.0.0.1:1/train.ptb", sha256=SHA256)
    server.break_after, server.status = wrong.get("break_after"), wrong.get("status")
    with pytest.raises(InputError, match=message):
        fetch(wanted, tmp_path)
    assert list(tmp_path.iterdir()) == []


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
    assert server.num_asked == 1
