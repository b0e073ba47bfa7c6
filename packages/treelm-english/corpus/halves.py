"""The training texts of open-english and of modern-english, from that of open-english-2, which has both.

python halves.py CORPORA --output FOLDER

CORPORA is the folder of the three corpora (src/treelm_english). FOLDER gets open-english/train.txt.gz and
modern-english/train.txt.gz, documents in the order of each corpus's table.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import lzma
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from open_english import write_packed

from treelm.cli.arguments import Positional, parse
from treelm.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to take apart."""

    corpora: Annotated[Path, Positional("CORPORA")]
    """Folder of open-english-2 and of the tables of documents of open-english and modern-english."""
    output: Annotated[Path, "-o"]
    """Folder of the training texts."""


def main(options: Arguments) -> int:
    """Write both texts; raises ``InputError`` for a document of a table that the text lacks."""
    joined = options.corpora / "open-english-2" / "train.txt.xz"
    with lzma.open(joined, "rt", encoding="utf-8") as packed:
        texts = [f"{text}\n" for text in packed.read().rstrip("\n").split("\n\n")]
    by_hash = {hashlib.sha256(text.encode()).hexdigest(): text for text in texts}
    for name in ("open-english", "modern-english"):
        with gzip.open(options.corpora / name / "documents.tsv.gz", "rt", encoding="utf-8", newline="") as table:
            rows = csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
            hashes = [row["sha256"] for row in rows if row["split"] == "train"]
        if missing := [one for one in hashes if one not in by_hash]:
            found = f"{len(missing):,} of the {len(hashes):,} documents of {name} are not there"
            raise InputError(found, where=str(joined), remedy="take text and tables of one release")
        (options.output / name).mkdir(parents=True, exist_ok=True)
        write_packed(options.output / name / "train.txt.gz", "\n".join(by_hash[one] for one in hashes))
    return 0


if __name__ == "__main__":
    sys.exit(main(parse(Arguments, Path(__file__).name, sys.argv[1:])))
