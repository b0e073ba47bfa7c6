"""``treelm data sections``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from treelm.cli.arguments import Positional
from treelm.cli.options import Output
from treelm.io.terminal import log

Splits = Literal[
    "ptb-parsing", "ptb-parsing-24", "ptb-lm", "ptb-sample", "bllip-xs", "bllip-sm", "bllip-md", "bllip-lg"
]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Splits of a treebank by its sections, as papers use them: train.ptb, dev.ptb and test.ptb in a folder.

    Trees are copied one a line as they are annotated; name the folder as data.corpus of a recipe. sections.json says
    what was made of which sections. ptb-parsing: sections 2-21, 22, 23 of the Penn Treebank; ptb-parsing-24: 24 to
    develop on; ptb-lm: 0-20, 21-22, 23-24, as Mikolov's text; ptb-sample: NLTK's sample by files, no published split.
    bllip-xs to bllip-lg: the sections of Hu et al. (2020).

    Example: treelm data sections treebank_3/parsed/mrg/wsj --splits ptb-parsing --output ptb
    Example: treelm data sections nltk_data/corpora/treebank --splits ptb-sample --output sample
    """

    folder: Annotated[str, Positional("FOLDER")]
    """Folder that has the treebank's files, however deep: wsj_0001.mrg and so on, or w7_001 and so on of BLLIP."""
    splits: Splits
    """Sections to take."""
    output: Output
    """Folder of the splits."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.corpora.sections import named_splits, write_splits

    out = Path(options.output)
    reports = write_splits(Path(options.folder), named_splits()[options.splits], out)
    for split, report in reports.items():
        log(f"{split}: {report.num_trees:,} trees of sections {report.sections} in {out / report.file}")
    return 0
