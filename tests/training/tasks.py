"""``treelm`` in processes that are forked from one which has imported everything, with any environment.

What starts the tasks of a cluster does little else: so srun is imitated. ``python -m tests.training.tasks`` is that
process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).parents[2]
CLUSTER = ("SLURM_", "TORCHELASTIC_", "MASTER_", "RANK", "LOCAL_", "WORLD_SIZE", "NODE_RANK")


class Ended(NamedTuple):
    """How a process has ended."""

    code: int  # negative: the signal
    said: str  # on both outputs


class Tasks:
    """Starts processes; use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._number = folder, 0
        paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
        kept = {key: value for key, value in os.environ.items() if not key.startswith(CLUSTER)}
        own = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "TREELM_CACHE": str(folder / "cache")}
        self.environment = {**kept, **own}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.training.tasks"],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, arguments: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> tuple[int, Path]:
        """A process that runs ``treelm`` with these arguments: its number, and the file of what it says."""
        self._number += 1
        said = self.folder / f"said-{self._number}"
        order = {"arguments": list(map(str, arguments)), "environment": dict(environment or {}), "said": str(said)}
        return self._ask(order), said

    def wait(self, task: tuple[int, Path]) -> Ended:
        """Wait for its end."""
        return Ended(self._ask({"wait": task[0]}), task[1].read_text())

    def run(self, arguments: Sequence[str | Path], environments: Sequence[Mapping[str, str]] = ({},)) -> list[Ended]:
        """Processes that run the same at once, each with an environment of its own."""
        started = [self.start(arguments, environment) for environment in environments]
        return [self.wait(task) for task in started]

    def _ask(self, order: Mapping[str, Any]) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(f"{json.dumps(order)}\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def __enter__(self) -> Tasks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.communicate()


class ForkedPopen:
    """In the place of ``subprocess.Popen``, for a launcher in a task: starts ``treelm`` by forking."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **_: Any) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            become(command[command.index("treelm") + 1 :], env)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def become(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Be a ``treelm`` process. The interpreter's own end is left out where no signal waits for it: it takes longest."""
    import treelm.cli
    from tests.training import points

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    points.install(arguments)
    sys.argv = ["treelm", *arguments]
    try:
        treelm.cli.main()
    except SystemExit as end:
        if points.is_at_exit(arguments):
            raise
        os._exit(int(end.code or 0))


def serve() -> None:
    """Start and wait, as asked on standard input."""
    import treelm.training.run  # noqa: F401 (once for all)
    from treelm.training import launch

    launch.subprocess = SimpleNamespace(Popen=ForkedPopen)  # type: ignore[assignment]
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            descriptor = os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for output in (1, 2):
                os.dup2(descriptor, output)
            become(order["arguments"], {**os.environ, **order["environment"]})
        print(pid, flush=True)


if __name__ == "__main__":
    serve()
