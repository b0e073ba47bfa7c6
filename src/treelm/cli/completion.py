"""``treelm completion``."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import tyro

from treelm.cli import SUBCOMMANDS
from treelm.cli.arguments import SHOWN, note, parse
from treelm.cli.files import open_output

Shell = Literal["bash", "zsh", "fish"]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Completion of subcommands, options and file names with the tab key, in bash, zsh or fish.

    Example: treelm completion bash --install
    Example: treelm completion zsh > ~/.zfunc/_treelm
    """

    shell: Annotated[tyro.conf.Positional[Shell], tyro.conf.arg()]
    """The shell: bash, zsh or fish."""
    install: bool = False
    """Write the script to where the shell looks for it, instead of to standard output."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "completion", arguments)
    text = script(options.shell)
    if not options.install:
        with open_output("-") as out:
            out.write(text)
        return 0
    path = place(options.shell)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_output(str(path)) as out:
        out.write(text)
    note(f"wrote {path}; it holds from the next shell on" + _and(options.shell, path))
    return 0


def place(shell: Shell) -> Path:
    """Where a shell looks for completions of a user."""
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return {
        "bash": data / "bash-completion" / "completions" / "treelm",
        "zsh": home / ".zfunc" / "_treelm",
        "fish": config / "fish" / "completions" / "treelm.fish",
    }[shell]


def _and(shell: Shell, path: Path) -> str:
    if shell == "bash":
        return " (where bash-completion is not there: source it in ~/.bashrc)"
    return f", if ~/.zshrc has fpath+=({path.parent}) before compinit" if shell == "zsh" else ""


def script(shell: Shell) -> str:
    """The script of a shell, made of the arguments of all subcommands; file names where nothing else is known."""
    kinds = {name: import_module(f"treelm.cli.{name}").Arguments for name in SUBCOMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script"
        with suppress(SystemExit):
            tyro.extras.subcommand_cli_from_dict(
                kinds, prog="treelm", args=["--tyro-write-completion", shell, str(path)], config=SHOWN
            )
        return path.read_text(encoding="utf-8").replace("complete -F ", "complete -o default -F ")
