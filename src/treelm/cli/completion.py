"""``treelm completion``."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Literal

from treelm.cli import NESTED, SUBCOMMANDS
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
        parser = parser_of(import_module(f"treelm.cli.{NESTED.get(name, name)}").Arguments, name)
        for action in parser._actions:
            if action.type is str:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        return parser

    program = ArgumentParser("treelm")
    subcommands = program.add_subparsers()
    parents = {name.split()[0] for name in NESTED}
    for name, what in SUBCOMMANDS.items():
        parser = parser_for(name)
        if name not in parents:
            subcommands.add_parser(name, help=what, parents=[parser], add_help=False)
            continue
        # Each action is a parser, as some have options of their own.
        (place,) = (action for action in parser._actions if action.dest == "action")
        parser._actions.remove(place)
        actions = subcommands.add_parser(name, help=what).add_subparsers()
        for action in place.choices or ():
            own = f"{name} {action}"
            its = parser_for(own) if own in NESTED else parser
            actions.add_parser(action, help=f"treelm {own}", parents=[its], add_help=False)  # shtab skips what has none
    print(shtab.complete(program, options.shell), end="")
    return 0
