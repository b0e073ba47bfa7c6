"""The job scripts of docs/cluster.md, and what workers do without torchrun (``test_cluster`` trains under it)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import blocks
from tests.training.tasks import REPOSITORY
from treelm.training import launch

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.timeout(300),  # on a machine that does other things too
]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
SCRIPTS = [code for code in blocks("shell", REPOSITORY / "docs" / "cluster.md") if code.startswith("#!/bin/bash")]
STOPPED_BY_A_SIGNAL = """\
import os, signal, sys
def stop(number, frame):
    sys.exit(75)
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, stop)
with open("begun", "w") as pipe:
    pipe.write("x")
while True:
    signal.pause()
"""


def test_workers_save_when_torchrun_is_gone(tmp_path: Path) -> None:
    worker = (
        "import os, signal, sys\nfrom treelm.training.launch import end_with_launcher\nend_with_launcher()\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('SIGTERM', flush=True))\n"
        "os.write(int(sys.argv[1]), b'x')\nsignal.pause()"
    )
    agent = (
        "import os, subprocess, sys\nread, write = os.pipe()\n"
        f"subprocess.Popen([sys.executable, '-c', {worker!r}, str(write)], pass_fds=[write])\nos.read(read, 1)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), launch._TORCHRUN: "x"}
    command = [sys.executable, "-c", agent]
    # Standard output closes when the worker has ended, after the agent.
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "SIGTERM\n"


@pytest.mark.parametrize("script", SCRIPTS, ids=["srun", "devices", "torchrun"])
def test_the_job_scripts_requeue_a_run_that_was_stopped(tmp_path: Path, script: str) -> None:
    """With a training that only waits for a signal, and srun that starts one task and signals it."""
    commands = {
        "treelm": f"exec {sys.executable} -m treelm",
        "torchrun": f'exec {" ".join(TORCHRUN)} "$@"',
        "srun": '"$@" & read < begun; kill -USR1 $!; wait $!',
        "scontrol": 'echo "$@" > asked',
    }
    for name, body in commands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "treelm.py").write_text(STOPPED_BY_A_SIGNAL)
    os.mkfifo(tmp_path / "begun")
    (asked,) = re.findall(r"--signal=(\S+)@120", script)
    paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    environment = {**os.environ, **paths, "OMP_NUM_THREADS": "1", "SLURM_JOB_ID": "17"}
    job = subprocess.Popen(
        ["bash", "-c", script.replace("--nproc-per-node 4", "--nproc-per-node 1")],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    if asked.startswith("B:"):  # else it is for the tasks
        assert (tmp_path / "begun").read_text() == "x"
        job.send_signal(getattr(signal, f"SIG{asked.removeprefix('B:')}"))
    _, error = job.communicate()
    assert job.returncode == (1 if "torchrun" in script else 75), error
    assert (tmp_path / "asked").read_text() == "requeue 17\n"
