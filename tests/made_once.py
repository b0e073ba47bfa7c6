"""What is made once, and used by all processes of one test run.

A fixture of a module or a session is made in every process that a test of it falls to, and processes take tests from
each other when they have none left: what takes half a minute would often be made twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, worker_id: str, name: str, make: Callable[[Path], None]) -> Path:
    """Give the folder of that name, which ``make`` fills; whoever comes while another fills it waits.

    A folder that could not be filled is said to be so to each who asks, and not tried again.
    """
    if worker_id == "master":
        folder = factory.mktemp(name)
        make(folder)
        return folder
    from filelock import FileLock

    folder = factory.getbasetemp().parent / name
    done = folder.with_name(f"{name}.done")
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    assert done.exists(), f"another process could not make {folder}: its error stands with its test"
    return folder
