"""Faults of the program itself: one line, an exit code of their own, and a file with the traceback to be sent."""

from __future__ import annotations

import os
import platform
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from treelm.errors import InputError, OutOfMemory, is_out_of_memory

EXIT_FAILED = 70  # EX_SOFTWARE of sysexits.h
VARIABLE = "TREELM_TRACEBACK"
"""The environment variable with which developers see tracebacks on standard error instead."""
_PACKAGES = ("treelm", "torch", "numpy", "safetensors")
_WHAT_IS_IN_IT = """\
It holds versions, the names of options, and the traceback: places in programs, no values of variables and no content of
your files, but for what the error message in its last line may quote. Paths in your home folder begin with ~.
"""


def explain(error: BaseException, subcommand: str, arguments: Sequence[str] = ()) -> InputError:
    """Keep the traceback in a file, and say so to the user in one line; out of memory has its own line."""
    if is_out_of_memory(error):
        return OutOfMemory()
    if os.environ.get(VARIABLE, "0") not in ("", "0"):
        traceback.print_exception(error)
        remedy = "its traceback is above"
    elif (path := _keep(_report(error, subcommand, arguments))) is not None:
        remedy = f"please send {path} to the authors, and say what you did"
    else:
        remedy = f"no file for the traceback could be written: set {VARIABLE}=1 to see it"
    last = traceback.format_exception_only(error)[0].strip()
    return InputError(f"a fault of treelm itself ({last})", remedy=remedy)


def _report(error: BaseException, subcommand: str, arguments: Sequence[str]) -> str:
    options = " ".join(argument.partition("=")[0] for argument in arguments if argument.startswith("--"))
    head = (
        f"A fault of treelm in: treelm {subcommand} {options}\n{_WHAT_IS_IN_IT}\n"
        f"{', '.join(map(_version, _PACKAGES))}, Python {platform.python_version()}\n{platform.platform()}\n\n"
    )
    text = head + "".join(traceback.format_exception(error))
    home = os.path.expanduser("~")  # which stays "~" where nobody knows it
    return text.replace(home, "~") if len(home) > 1 else text


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # here because every process imports this module

    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"


def _keep(report: str) -> Path | None:
    """Write a new file in the working directory, or else in that of temporary files."""
    for folder in (".", None):
        with suppress(OSError):  # also where there is no folder for temporary files
            descriptor, path = tempfile.mkstemp(prefix="treelm-failure-", suffix=".txt", dir=folder)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(report)
            return Path(os.path.relpath(path) if folder else path)
    return None
