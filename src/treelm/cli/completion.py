"""``treelm completion``."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

from treelm.cli import SUBCOMMANDS
from treelm.cli.arguments import Positional, note, parse, parser_of
from treelm.cli.files import open_output

Shell = Literal["bash", "zsh", "fish"]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Completion of subcommands, options and file names with the tab key, in bash, zsh or fish.

    Example: treelm completion bash --install
    Example: treelm completion zsh > ~/.zfunc/_treelm
    """

    shell: Annotated[Shell, Positional("SHELL")]
    """The shell: bash, zsh or fish."""
    install: bool = False
    """Write the script to where the shell looks for it, instead of to standard output."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    import shtab

    options = parse(Arguments, "treelm completion", arguments)
    program = ArgumentParser("treelm")
    subcommands = program.add_subparsers()
    for name, what in SUBCOMMANDS.items():
        parser = parser_of(import_module(f"treelm.cli.{name}").Arguments, name)
        for action in parser._actions:
            if action.type is str:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        subcommands.add_parser(name, help=what, parents=[parser], add_help=False)
    script = shtab.complete(program, options.shell)
    path = place(options.shell)
    if options.install:
        path.parent.mkdir(parents=True, exist_ok=True)
    with open_output(str(path) if options.install else "-") as out:
        out.write(script)
    if options.install:
        note(f"wrote {path}; it holds from the next shell on{_HINTS.get(options.shell, '')}")
    return 0


_HINTS = {
    "bash": " (where bash-completion is not there: source it in ~/.bashrc)",
    "zsh": ", if ~/.zshrc has fpath+=(~/.zfunc) before compinit",
}


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
