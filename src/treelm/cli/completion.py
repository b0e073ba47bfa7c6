"""``treelm completion``."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Literal

from treelm.cli import SUBCOMMANDS
from treelm.cli.arguments import Positional, parser_of


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Print a script that completes subcommands, options and file names with the tab key, in bash, zsh or fish.

    Example: treelm completion bash > ~/.local/share/bash-completion/completions/treelm
    Example: treelm completion zsh > ~/.zfunc/_treelm
    Example: treelm completion fish > ~/.config/fish/completions/treelm.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], Positional("SHELL")]
    """The shell: bash, zsh or fish."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    import shtab

    def parser_for(name: str) -> ArgumentParser:
        parser = parser_of(import_module(f"treelm.cli.{name}").Arguments, name)
        for action in parser._actions:
            if action.type is str:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        return parser

    program = ArgumentParser("treelm")
    subcommands = program.add_subparsers()
    for name, what in SUBCOMMANDS.items():
        subcommands.add_parser(name, help=what, parents=[parser_for(name)], add_help=False)
    print(shtab.complete(program, options.shell), end="")
    return 0
