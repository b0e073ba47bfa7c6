"""Sentences and documents of open-english from its raw texts: train, dev and test, and the table of documents.

python open_english.py RAW --output FOLDER [--held-out DATA]

RAW holds SOURCE.txt.gz, two blank lines between documents and one between paragraphs, and documents.tsv.gz, a row each:
what extract.py writes. DATA is the folder of the corpora that models are measured on (README.md); a sentence that
shares eight words in a row with them is left out. The same input gives the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from treelm.cli.arguments import Positional, parse
from treelm.corpora.running_text import CHARACTERS, normalise, sentences_of
from treelm.corpora.tokens import words_of

SPLITS = ("dev", "test", "train")  # in this order they are filled: what is said twice stays where models are measured
TOKENISED = ("masc", "wikisplit")  # sources with a sentence a line, in words already
MOST_WORDS = 80
LEFT_OUT = ("jane-austen_pride-and-prejudice",)  # of 1813
THINNED = {"o-henry_short-fiction": 3}  # one story in three: all of them would be a tenth of the fiction
FREE_UNTIL = 1955
"""Authors who died by then are free where copyright ends seventy years after the author's death."""
NOT_FREE_SOURCES = ("masc",)  # open by its own statement, which is no licence of Creative Commons
COLUMNS = (
    "split",
    "source",
    "work",
    "title",
    "author",
    "died",
    "date",
    "licence",
    "free",
    "sentences",
    "tokens",
    "sha256",
)
_FEWEST_TO_REPEAT = 6  # words: shorter sentences may be there more than once
_GRAM = 8
_ODD = re.compile(
    r"(?:, |- ){2}|, \.|\w \. (?:gov|com|org|net|mil|edu)\b|https?:|www\.|@|[<>{}|\\^~]|_{2,}"
    r"|[\u0370-\u1fff\u2e80-\uffff]|\ufffd"
)
_MARKS = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "—": "--", "…": "..."})
_HELD_OUT_COLUMNS = ("sentence", "Sentence", "ambiguous", "unambiguous")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to build."""

    raw: Annotated[Path, Positional("RAW")]
    """Folder of the raw texts."""
    output: Annotated[Path, "-o"]
    """Folder of train.txt.gz, dev.txt.gz, test.txt.gz and documents.tsv.gz."""
    held_out: Path | None = None
    """Folder of the corpora that models are measured on."""


@dataclass(kw_only=True)
class Splits:
    """Documents and rows of the table so far, by split, and what no other document may say again."""

    texts: dict[str, list[str]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    rows: dict[str, list[dict[str, str]]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    documents: set[bytes] = field(default_factory=set)
    sentences: set[bytes] = field(default_factory=set)


def main(options: Arguments) -> int:
    """Write the three splits and the table."""
    held_out = set(held_out_grams(options.held_out)) if options.held_out is not None else set()
    options.output.mkdir(parents=True, exist_ok=True)
    splits = build(read_raw(options.raw), held_out, read_deaths(Path(__file__).with_name("authors.tsv")))
    for split in SPLITS:
        write_packed(options.output / f"{split}.txt.gz", "\n".join(splits.texts[split]))
        words = sum(int(row["tokens"]) for row in splits.rows[split])
        print(f"{split}: {len(splits.rows[split]):,} documents, {words:,} words")
    rows = [row for split in reversed(SPLITS) for row in splits.rows[split]]
    write_table(options.output / "documents.tsv.gz", COLUMNS, rows)
    free = sum(int(row["tokens"]) for row in rows if row["free"] == "yes")
    print(f"free everywhere: {free:,} words")
    return 0


def write_packed(path: Path, text: str) -> None:
    """Write a gzip file without time or name, so that the same text is the same bytes."""
    with path.open("wb") as stream, gzip.GzipFile("", "wb", compresslevel=9, fileobj=stream, mtime=0) as packed:
        packed.write(text.encode())


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> None:
    """Write a table separated by tabs, packed."""
    write_packed(
        path,
        "".join("\t".join(cells) + "\n" for cells in [columns, *([row[name] for name in columns] for row in rows)]),
    )


# Raw documents.


def read_raw(folder: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Every raw document with its row, by source."""
    rows = defaultdict(list)
    with gzip.open(folder / "documents.tsv.gz", "rt", encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            rows[row["source"]].append(row)
    for source in sorted(rows):
        with gzip.open(folder / f"{source}.txt.gz", "rt", encoding="utf-8") as stream:
            yield from zip(rows[source], stream.read().rstrip("\n").split("\n\n\n"), strict=True)


def read_deaths(path: Path) -> dict[str, int]:
    """Year in which the last of those who wrote or translated a book died, by author as the table names them."""
    with path.open(encoding="utf-8", newline="") as stream:
        return {row["author"]: int(row["died"]) for row in csv.DictReader(stream, delimiter="\t")}


def build(documents: Iterable[tuple[dict[str, str], str]], held_out: set[str], deaths: Mapping[str, int]) -> Splits:
    """Cut, choose and sort documents into splits."""
    kept = [(row, text) for row, text in documents if is_built(row["work"])]
    splits = Splits()
    for split in SPLITS:
        for row, text in kept:
            if split_of(row) == split:
                _add(splits, split, row, text, held_out, deaths)
    return splits


def is_built(work: str) -> bool:
    """Tell whether a work is taken."""
    book = work.partition("/")[0]
    number = int(hashlib.sha256(work.encode()).hexdigest(), 16)
    return book not in LEFT_OUT and (book not in THINNED or number % THINNED[book] == 0)


def split_of(row: Mapping[str, str]) -> str:
    """The split of a document, by a hash of its work: a novel is wholly in one, a story, post or article too."""
    name = f"open-english:{row['source']}:{row['work']}"
    bucket = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 100
    return "dev" if bucket < 2 else "test" if bucket < 4 else "train"


def _add(
    splits: Splits, split: str, row: Mapping[str, str], text: str, held_out: set[str], deaths: Mapping[str, int]
) -> None:
    key = hashlib.sha256(re.sub(r"\W+", "", text.lower()).encode()).digest()
    if key in splits.documents:
        return
    splits.documents.add(key)
    sentences = [words for words in cut(row["source"], text) if _is_kept(words, splits.sentences, held_out)]
    if not sentences:
        return
    content = "".join(" ".join(words) + "\n" for words in sentences)
    died = str(deaths.get(row["author"], "")) if row["source"] == "standard-ebooks" else ""
    own = {
        "split": split,
        "died": died,
        "free": "yes" if is_free(row["source"], died) else "no",
        "sentences": str(len(sentences)),
        "tokens": str(sum(map(len, sentences))),
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
    }
    splits.texts[split].append(content)
    splits.rows[split].append({**row, **own})


def is_free(source: str, died: str) -> bool:
    """Tell whether a document is free everywhere, not only in the USA: by its licence, or by its author's death."""
    if source == "standard-ebooks":
        return bool(died) and int(died) <= FREE_UNTIL
    return source not in NOT_FREE_SOURCES


# Sentences.


def cut(source: str, text: str) -> Iterator[Sequence[str]]:
    """The words of every sentence of a raw document."""
    if source in TOKENISED:
        return (pretokenised(line) for line in text.split("\n"))
    return sentences_of(text)


def pretokenised(line: str) -> list[str]:
    """The words of a sentence that its source has tokenised, with clitics and marks as elsewhere."""
    line = re.sub(r" n [’'] t ", " n't ", f" {line} ")
    line = re.sub(r"n [’'] t ", " n't ", line)
    line = re.sub(r" [’'] (s|re|ve|ll|d|m) ", r" '\1 ", line, flags=re.IGNORECASE)
    return re.sub(r"``|''", '"', line.translate(CHARACTERS).translate(_MARKS)).split()


def _is_kept(words: Sequence[str], seen: set[bytes], held_out: set[str]) -> bool:
    """Tell whether a sentence is one, is not there yet, and is not held out; one that is kept is noted."""
    if not is_sentence(words):
        return False
    key = sentence_key(words)
    if (len(words) >= _FEWEST_TO_REPEAT and key in seen) or not held_out.isdisjoint(grams(words)):
        return False
    seen.add(key)
    return True


def sentence_key(words: Sequence[str]) -> bytes:
    """By which a repeated sentence is known: a hash of its words without case."""
    return hashlib.blake2b(" ".join(words).lower().encode(), digest_size=8).digest()


def is_sentence(words: Sequence[str]) -> bool:
    """Tell prose from formulas, addresses, lists of numbers and other scripts."""
    if not 1 <= len(words) <= MOST_WORDS:
        return False
    text = " ".join(words)
    if sum(character.isalpha() for character in text) < 2 or _ODD.search(text):
        return False
    num_with_letters = sum(any(character.isalpha() for character in word) for word in words)
    if len(words) > 8 and num_with_letters < 0.45 * len(words):
        return False
    return not (len(words) > 5 and text.isupper())


def grams(words: Sequence[str]) -> Iterator[str]:
    """Eight words in a row, without case and punctuation."""
    plain = [word.lower() for word in words if any(character.isalnum() for character in word)]
    return (" ".join(plain[start : start + _GRAM]) for start in range(len(plain) - _GRAM + 1))


# What models are measured on.


def held_out_grams(data: Path) -> Iterator[str]:
    """Eight words in a row of Natural Stories, SAP, UCL, WikiText's and the treebanks' dev and test parts."""
    for text in set(_held_out_texts(data)):
        text = text.replace("@-@", "-").replace(" @,@ ", ",").replace(" @.@ ", ".")
        yield from grams(words_of(normalise(text), "treebank"))


def _held_out_texts(data: Path) -> Iterator[str]:
    for path in (data / "human").glob("**/*.csv"):
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                yield from (row.get(column) or "" for column in _HELD_OUT_COLUMNS)
    stories = data / "human" / "natural-stories" / "stories.txt"
    if stories.exists():
        yield from stories.read_text("utf-8").splitlines()
    for name in ("dev", "valid", "validation", "test"):
        yield from (line for path in (data / "wikitext-2").glob(f"{name}.txt.gz") for line in _lines(path))
        for folder in ("gum", "ud-ood"):
            for path in (data / folder).glob(f"*{name}*.conllu.gz"):
                yield from (line.removeprefix("# text = ") for line in _lines(path) if line.startswith("# text = "))


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        yield from stream


if __name__ == "__main__":
    sys.exit(main(parse(Arguments, Path(__file__).name, sys.argv[1:])))
