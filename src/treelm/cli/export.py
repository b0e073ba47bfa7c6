"""``treelm export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from treelm.cli.options import Output, RunFolder
from treelm.errors import InputError
from treelm.io.atomic import check_output_path
from treelm.io.terminal import log
from treelm.models.capabilities import BackoffNGrams, require


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Write a model as other programs read it: keep the run, since treelm itself reads back only FILE.arpa.

    Example: treelm export runs/lstm --to transformers --output exported
    """

    run: RunFolder
    to: Literal["transformers", "arpa"]
    """transformers: a folder that AutoModelForCausalLM opens after ``import treelm.hf``, of a system that reads step
    by step. arpa: a file of n-grams, as KenLM and SRILM have it."""
    output: Output
    """Folder, or file, to write; it must not exist yet."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.inference.loading import load

    out = Path(options.output)
    if out.exists():
        raise InputError("there is something already", where=options.output, remedy="give another name, or remove it")
    if options.to == "arpa":
        check_output_path(out)
        require(load(options.run), BackoffNGrams).write_arpa(out)
    else:
        from treelm.hf import export_model

        export_model(load(options.run), out)
    log(f"wrote {options.output}")
    return 0
