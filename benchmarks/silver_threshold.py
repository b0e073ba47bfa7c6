"""Silver trees that a parser is sure enough of: a threshold chosen on gold trees, and the corpus that it leaves.

python benchmarks/silver_threshold.py choose PARSER DEV.ptb ...
python benchmarks/silver_threshold.py keep SILVER --parser PARSER --dev DEV.ptb ... --out FOLDER
python benchmarks/silver_threshold.py describe SILVER --parser PARSER --dev DEV.ptb ... --out FOLDER

SILVER holds what `treelm data annotate TEXT.txt.gz --parser PARSER --documents --output SPLIT.ptb.gz` wrote: trees, and
their confidence in SPLIT.ptb.gz.tsv. The threshold is the lowest, in hundredths, at which the trees of dev sentences
that the parser is at least so sure of have a labelled F1 of `--least-f1` or more. FOLDER gets the sentences above it,
documents apart, and silver.json: how the trees were made, the threshold and what it costs. `describe` leaves no tree
out: FOLDER gets silver.json alone.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from one_line import run
from silver_trees import f1_of

from treelm.cli.arguments import Positional
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.loading import load, model_hash
from treelm.models.capabilities import ConfidentParser
from treelm.models.scores import ParsedSentence

SPLITS = ("train", "dev", "test")
METADATA = "silver.json"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to do."""

    action: Annotated[Literal["choose", "keep", "describe"], Positional("ACTION")]
    """choose: print the table of thresholds. keep: write the corpus. describe: write what is known of all trees."""
    places: Annotated[tuple[str, ...], Positional("PLACE")]
    """choose: the parser and treebanks. keep, describe: the folder of silver trees."""
    parser: str = ""
    """The parser (keep, describe)."""
    dev: tuple[str, ...] = ()
    """Treebanks to choose on (keep, describe)."""
    out: Path | None = None
    """Folder to write (keep, describe)."""
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
        write = keep if options.action == "keep" else describe
        write(Path(options.places[0]), options.out, parser, dev, levels[0], chosen)
    return 0


def levels_of(parser: str, treebanks: Sequence[str]) -> Iterator[Level]:
    """All sentences, and those above each hundredth from the first that leaves some out."""
    lm = load(parser)
    if not isinstance(lm, ConfidentParser):
        raise InputError("a parser that does not say how sure it is of its trees", remedy="take a run of chart")
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
    for split in SPLITS:
        _keep_split(silver / f"{split}.ptb.gz", out, chosen.threshold)
    _write_metadata(silver, out, parser, dev, whole, chosen, are_left_out=True)


def describe(silver: Path, out: Path, parser: str, dev: Sequence[str], whole: Level, chosen: Level) -> None:
    """Write what the threshold would leave of the trees."""
    _write_metadata(silver, out, parser, dev, whole, chosen, are_left_out=False)


def _write_metadata(
    silver: Path, out: Path, parser: str, dev: Sequence[str], whole: Level, chosen: Level, *, are_left_out: bool
) -> None:
    metadata = {
        "parser": Path(parser).name,
        "parser_version": model_hash(parser),
        "trees": "made by a parser, none by people",
        "chosen_on": ["/".join(Path(path).parts[-2:]) for path in dev],
        "dev_all": whole._asdict(),
        "dev_above": chosen._asdict(),
        "threshold": chosen.threshold,
        "trees_below_are_left_out": are_left_out,
        "splits": {split: _counts(silver, split, chosen.threshold) for split in SPLITS},
    }
    (out / METADATA).write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")


def _confidences(silver: Path, split: str) -> Iterator[dict[str, str]]:
    """The rows that tell of the trees of a split, in their order."""
    with Path(silver / f"{split}.ptb.gz.tsv").open(encoding="utf-8", newline="") as table:
        yield from csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)


def _counts(silver: Path, split: str, threshold: float) -> dict[str, int]:
    """Sentences and words of a split, all and above the threshold."""
    found = {"sentences": 0, "words": 0, "kept_sentences": 0, "kept_words": 0}
    for row in _confidences(silver, split):
        for kind in ("", "kept_") if float(row["confidence"]) >= threshold else ("",):
            found[f"{kind}sentences"] += 1
            found[f"{kind}words"] += int(row["num_words"])
    return found


def _keep_split(trees: Path, out: Path, threshold: float) -> None:
    """Write the sentences of a split that are above the threshold, documents apart."""
    rows = _confidences(trees.parent, trees.name.partition(".")[0])
    divides = has_begun = False
    with gzip.open(trees, "rt", encoding="utf-8") as lines, _packed(out / trees.name) as packed:
        for line in lines:
            if not line.strip():
                divides = has_begun
            elif float(next(rows)["confidence"]) >= threshold:
                packed.write("\n" + line if divides else line)
                divides, has_begun = False, True


@contextmanager
def _packed(path: Path) -> Iterator[io.TextIOWrapper]:
    """A file to write, whose bytes say nothing of when it was written."""
    with (
        path.open("wb") as stream,
        gzip.GzipFile("", "wb", compresslevel=9, fileobj=stream, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text,
    ):
        yield text


if __name__ == "__main__":
    sys.exit(run(main, Arguments))
