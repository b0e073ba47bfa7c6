"""``treelm export``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from treelm.cli.arguments import parse
from treelm.cli.options import RunFolder
from treelm.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Write a model as other programs read it. The other way, hf:FOLDER and FILE.arpa stand wherever a run can.

    Example: treelm export runs/lstm --to transformers --out exported
    """

    run: RunFolder
    to: Literal["transformers", "arpa"]
    """transformers: a folder that AutoModelForCausalLM opens after ``import treelm.hf``, of a system that reads step
    by step. arpa: a file of n-grams, as KenLM and SRILM have it."""
    out: str
    """Folder, or file, to write; it must not exist yet."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "export", arguments)
    from treelm.inference.loading import load

    out = Path(options.out)
    if out.exists():
        raise InputError("there is something already", where=options.out, remedy="give another name, or remove it")
    lm = load(options.run)
    if options.to == "arpa":
        lm.write_arpa(out)
    else:
        from treelm.hf import export_model

        export_model(lm, out)
    print(f"wrote {options.out}", file=sys.stderr)
    return 0
