"""A process that has imported what every command imports, mostly torch, and starts commands without that: by a fork.

``python -m tests.preloaded SOCKET`` listens; the programs that ``programs`` writes hand their arguments, environment,
folder and streams over, and exit as the command does. For tests of what commands do, not of how they start: which
streams are open, and their encodings, are those of this process. Searches whose width nobody gives are narrow.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

ROOT = Path(__file__).parent.parent
_PROGRAM = """\
#!{python} -IS
import json, os, socket, sys
here = socket.socket(socket.AF_UNIX)
here.connect({address!r})
call = {{"program": {name!r}, "arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(here, [json.dumps(call).encode()], [0, 1, 2])
sys.exit(int(here.recv(1)[0]))
"""


@contextmanager
def programs(folder: Path) -> Iterator[Path]:
    """A folder with ``treelm`` and ``python`` for the search path; they work inside of the block."""
    with TemporaryDirectory(dir="/tmp") as short:  # an address has 107 bytes at most, and test folders may be deep
        yield from _programs(folder, f"{short}/s")


def _programs(folder: Path, address: str) -> Iterator[Path]:
    (folder / "bin").mkdir()
    for name in ("treelm", "python"):
        program = folder / "bin" / name
        program.write_text(_PROGRAM.format(python=sys.executable, address=address, name=name))
        program.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "tests.preloaded", address]
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        try:
            yield folder / "bin"
        finally:
            server.kill()


def _serve(address: str) -> NoReturn:
    for name in ("treelm.inference.loading", "treelm.training.trainer", "torch._dynamo"):  # the last for optimisers
        import_module(name)

    config = import_module("treelm.models.search.config")
    config.ADAPTIVE = config.ADAPTIVE._replace(action_beam=10, word_beam=4)
    os.fsync = lambda descriptor: None  # as in tests/conftest.py
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries what has ended
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                _answer(connection)
            connection.close()


def _answer(connection: socket.socket) -> NoReturn:
    """Run a call in this process, and end it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        message, streams, *_ = socket.recv_fds(connection, 1 << 20, 3)
        call = json.loads(message)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(call["folder"])
        os.environ.clear()
        os.environ.update(call["environment"])
        code = _run(call["program"], call["arguments"])
    except BaseException:  # as Python itself tells what nobody caught
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        with suppress(OSError):
            sys.stdout.flush()
        connection.send(bytes([code]))
        os._exit(code)


def _run(program: str, arguments: list[str]) -> int:
    try:
        if program == "treelm":
            from treelm.cli import main

            sys.argv = ["treelm", *arguments]
            main()
        else:
            sys.argv = arguments
            if arguments[0].endswith(".py"):
                sys.path.insert(0, str(Path(arguments[0]).parent))
                runpy.run_path(arguments[0], run_name="__main__")
                return 0
            source = arguments[1] if arguments[0] == "-c" else sys.stdin.read()
            exec(compile(source, arguments[0], "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
