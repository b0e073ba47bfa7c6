"""Silver trees that a parser is sure enough of: a threshold chosen on gold trees, and the corpus that it leaves.

python benchmarks/silver_threshold.py choose PARSER DEV.ptb ...
python benchmarks/silver_threshold.py keep SILVER --parser PARSER --dev DEV.ptb ... --out FOLDER

SILVER holds what `treelm data annotate TEXT.txt.gz --parser PARSER --documents --out SPLIT.ptb.gz` wrote: trees, and
their confidence in SPLIT.ptb.gz.tsv. The threshold is the lowest, in hundredths, at which the trees of dev sentences
that the parser is at least so sure of have a labelled F1 of `--least-f1` or more. FOLDER gets the sentences above it,
documents apart, and silver.json: how the trees were made, the threshold and what it costs.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro
from one_line import run
from silver_trees import f1_of

from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.loading import load
from treelm.inference.tree_parsers import parser_version
from treelm.models.scores import ParsedSentence

SPLITS = ("train", "dev", "test")
METADATA = "silver.json"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to do."""

    action: Annotated[tyro.conf.Positional[Literal["choose", "keep"]], tyro.conf.arg()]
    """choose: print the table of thresholds. keep: write the corpus."""
    places: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="PLACE")]
    """choose: the parser and treebanks. keep: the folder of silver trees."""
    parser: str = ""
    """The parser (keep)."""
    dev: tuple[str, ...] = ()
    """Treebanks to choose on (keep)."""
    out: Path | None = None
    """Folder to write (keep)."""
    least_f1: float = 85.0
    """F1 that dev sentences above the threshold have at least."""


class Level(NamedTuple):
    """What is left of dev above a threshold."""

    threshold: float
    sentences: int
    words: int
    f1: float


def main(options: Arguments) -> int:
    """Print the table, and write the corpus if it is asked for."""
    chooses = options.action == "choose"
    parser, dev = (options.places[0], options.places[1:]) if chooses else (options.parser, options.dev)
    if not parser or not dev:
        raise InputError("no parser, or no treebank to choose on", remedy="give both")
    levels = list(levels_of(parser, dev))
    print("threshold\tsentences\twords\tF1")
    for level in levels:
        print(f"{level.threshold:.2f}\t{level.sentences}\t{level.words}\t{level.f1:.2f}")
    chosen = lowest(levels, options.least_f1)
    print(f"F1 of {options.least_f1} or more: from {chosen.threshold:.2f} on")
    if not chooses:
        if options.out is None:
            raise InputError("no folder for the corpus", remedy="add --out FOLDER")
        keep(Path(options.places[0]), options.out, parser, dev, levels[0], chosen)
    return 0


def levels_of(parser: str, treebanks: Sequence[str]) -> Iterator[Level]:
    """All sentences, and those above each hundredth from the first that leaves some out."""
    lm = load(parser)
    gold = [sentence for path in treebanks for sentence in read_sentences(path)]
    parsed = lm.annotate([sentence.words for sentence in gold])
    before = -1
    for hundredths in range(100):
        pairs = [(one, tree) for one, tree in zip(gold, parsed, strict=True) if _sure(tree) >= hundredths / 100]
        if pairs and len(pairs) != before:
            before = len(pairs)
            yield _level(hundredths / 100, pairs)


def _sure(parsed: ParsedSentence) -> float:
    if parsed.confidence is None:
        raise InputError("a parser that does not say how sure it is of its trees", remedy="take a run of chart")
    return parsed.confidence.mean


def _level(threshold: float, pairs: Sequence[tuple[Sentence, ParsedSentence]]) -> Level:
    sentences, parsed = zip(*pairs, strict=True)
    return Level(threshold, len(pairs), sum(len(one.words) for one in sentences), f1_of(sentences, parsed))


def lowest(levels: Sequence[Level], least_f1: float) -> Level:
    """The first level with that F1; raises ``InputError`` if none has it."""
    for level in levels:
        if level.f1 >= least_f1:
            return level
    raise InputError(f"no threshold with F1 {least_f1}", remedy=f"give at most {max(level.f1 for level in levels):.1f}")


def keep(silver: Path, out: Path, parser: str, dev: Sequence[str], whole: Level, chosen: Level) -> None:
    """Write the sentences above the threshold, and how they came about."""
    out.mkdir(parents=True, exist_ok=True)
    counts = {split: _keep_split(silver / f"{split}.ptb.gz", out, chosen.threshold) for split in SPLITS}
    metadata = {
        "parser": Path(parser).name,
        "parser_version": parser_version(parser),
        "trees": "made by a parser, none by people",
        "chosen_on": ["/".join(Path(path).parts[-2:]) for path in dev],
        "dev_all": whole._asdict(),
        "dev_above": chosen._asdict(),
        "threshold": chosen.threshold,
        "splits": counts,
    }
    (out / METADATA).write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")


def _keep_split(trees: Path, out: Path, threshold: float) -> dict[str, float]:
    """Sentences and words of a split, all and above the threshold."""
    found = {"sentences": 0, "words": 0, "kept_sentences": 0, "kept_words": 0}
    divides = False
    target = out / trees.name
    with (
        gzip.open(trees, "rt", encoding="utf-8") as lines,
        Path(f"{trees}.tsv").open(encoding="utf-8", newline="") as table,
        target.open("wb") as stream,
        gzip.GzipFile("", "wb", compresslevel=9, fileobj=stream, mtime=0) as packed,
    ):
        rows = csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
        for line in lines:
            if not line.strip():
                divides = found["kept_sentences"] > 0
                continue
            row = next(rows)
            words, is_kept = int(row["num_words"]), float(row["confidence"]) >= threshold
            found["sentences"] += 1
            found["words"] += words
            if is_kept:
                packed.write(("\n" if divides else "").encode() + line.encode())
                divides = False
                found["kept_sentences"] += 1
                found["kept_words"] += words
    return found


if __name__ == "__main__":
    sys.exit(run(main, tyro.cli(Arguments, description=__doc__)))
