"""Sentences and documents of modern-english from its raw texts, and open-english-2, which joins both corpora.

python modern_english.py RAW OPEN_ENGLISH --output FOLDER [--held-out DATA]

RAW is what extract.py --modern writes, OPEN_ENGLISH the folder of open-english that open_english.py writes. FOLDER gets
modern-english (train, dev, test and the table of documents) and open-english-2 (both corpora: in train documents in the
order of their hashes, in dev and test those of modern-english first). A sentence that open-english has, or that shares
eight words in a row with dev or test of open-english or with DATA, is left out. The same input gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from open_english import SPLITS, grams, held_out_grams, is_sentence, read_raw, sentence_key, write_packed, write_table

from treelm.cli.arguments import Positional, parse
from treelm.corpora.running_text import normalise, split_sentences
from treelm.corpora.tokens import words_of

_THOUSANDTHS = 13  # of the documents are dev, and as many test
_FEWEST_SENTENCES, _FEWEST_TO_REPEAT = 3, 6
_COLUMNS = ("split", "source", "work", "title", "author", "date", "licence", "sentences", "tokens", "sha256")
_ABBREVIATION = re.compile(r"(?:^|[\s(\"'])(?:Nos|vs?|pp|St|ca|cf|e\.g|i\.e|approx|Inc|Mr|Mrs|Ms|Dr)\.$")
_ODD = re.compile(
    r"\ue000|\( ?\)|&\w+;|\bRFC \d+ \d|==|\(\)|::|\$ \$|[#*=\[\]]{1,}|^\W*[a-z]?\W*$|^[a-z]|\(\s*[,;]"
    r"|\b[a-z_]\w* \. [a-z_]|\w_\w"  # code
)
_SIDE = "(?:north|south|east|west|northeast|northwest|southeast|southwest|away)"
_LOST = re.compile(  # a measure that WikiExtractor left out: "is long from", "about north of"
    rf"\b(?:about|approximately|roughly|located|situated|lies|just|only) {_SIDE}\b"
    r"|\b(?:about|approximately|nearly|roughly|almost|just|is|was|are|were) (?:in (?:length|diameter|area|height|size"
    r"|weight|width|depth)|(?:long|wide|tall) (?:from|by|at|with|and))\b"
    r"|\b(?:area|distance|height|length|population|elevation|depth|width|speed|weight) of"
    r" (?:and|in|from|at|with|above|per|[.,;])(?: |$)"
)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to build."""

    raw: Annotated[Path, Positional("RAW")]
    """Folder of the raw texts."""
    open_english: Annotated[Path, Positional("OPEN_ENGLISH")]
    """Folder of open-english: train.txt.gz, dev.txt.gz and test.txt.gz."""
    output: Annotated[Path, "-o"]
    """Folder of modern-english and open-english-2."""
    held_out: Path | None = None
    """Folder of the corpora that models are measured on."""


def main(options: Arguments) -> int:
    """Write the three splits, the table, and the text of both corpora."""
    held_out = set(held_out_grams(options.held_out)) if options.held_out is not None else set[str]()
    seen: set[bytes] = set()
    for split in SPLITS:
        for line in read_packed(options.open_english / f"{split}.txt.gz").splitlines():
            words = line.split()
            if len(words) >= _FEWEST_TO_REPEAT:
                seen.add(sentence_key(words))
            if split != "train":
                held_out.update(grams(words))
    texts, rows = build(read_raw(options.raw), held_out, seen)
    folder = options.output / "modern-english"
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        write_packed(folder / f"{split}.txt.gz", "\n".join(texts[split]))
        print(f"{split}: {len(rows[split]):,} documents, {sum(int(row['tokens']) for row in rows[split]):,} words")
    write_table(folder / "documents.tsv.gz", _COLUMNS, [row for split in reversed(SPLITS) for row in rows[split]])
    joined = options.output / "open-english-2"
    joined.mkdir(exist_ok=True)
    for split in SPLITS:
        older = documents_of(options.open_english / f"{split}.txt.gz")
        if split != "train":
            write_packed(joined / f"{split}.txt.gz", "\n".join([*texts[split], *older]))
            continue
        with lzma.open(joined / "train.txt.xz", "wb", preset=9 | lzma.PRESET_EXTREME) as packed:
            packed.write("\n".join(sorted([*older, *texts[split]], key=document_key)).encode())
    return 0


def read_packed(path: Path) -> str:
    """The text of a gzip file."""
    return gzip.decompress(path.read_bytes()).decode()


def documents_of(path: Path) -> list[str]:
    """The documents of a gzip file, each with the end of its last line."""
    return [f"{text}\n" for text in read_packed(path).rstrip("\n").split("\n\n")]


def document_key(text: str) -> bytes:
    """By which documents are ordered: a hash of their lines, so that sources are mixed."""
    return hashlib.sha256(text.rstrip("\n").encode()).digest()


def build(
    documents: Iterable[tuple[dict[str, str], str]], held_out: set[str], seen: set[bytes]
) -> tuple[Mapping[str, list[str]], Mapping[str, list[dict[str, str]]]]:
    """Cut documents into sentences and sort them into splits: their texts and their rows of the table."""
    texts, rows = defaultdict[str, list[str]](list), defaultdict[str, list[dict[str, str]]](list)
    all_documents, known = list(documents), set[bytes]()
    for split in SPLITS:
        for row, text in all_documents:
            key = hashlib.sha256(re.sub(r"\W+", "", text.lower()).encode()).digest()
            if split_of(row) != split or key in known:
                continue
            known.add(key)
            sentences = list(_kept_sentences(text, held_out, seen))
            if len(sentences) < _FEWEST_SENTENCES:
                continue
            content = "".join(" ".join(words) + "\n" for words in sentences)
            own = {"split": split, "sentences": str(len(sentences)), "tokens": str(sum(map(len, sentences)))}
            texts[split].append(content)
            rows[split].append({**row, **own, "sha256": hashlib.sha256(content.encode()).hexdigest()})
    return texts, rows


def split_of(row: Mapping[str, str]) -> str:
    """The split of a document, by a hash of its source and work."""
    name = f"modern-english:{row['source']}:{row['work']}"
    bucket = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 1000
    return "dev" if bucket < _THOUSANDTHS else "test" if bucket < 2 * _THOUSANDTHS else "train"


def _kept_sentences(text: str, held_out: set[str], seen: set[bytes]) -> Iterator[Sequence[str]]:
    """The words of sentences that are prose, are not there yet, and are not held out; they are added to ``seen``."""
    for paragraph in text.split("\n\n"):
        for sentence in _sentences(normalise(paragraph.replace("\n", " "))):
            words = words_of(sentence, "treebank")
            if not is_modern_sentence(words):
                continue
            key = sentence_key(words)
            is_repeated = len(words) >= _FEWEST_TO_REPEAT and key in seen
            if is_repeated or not held_out.isdisjoint(grams(words)):
                continue
            seen.add(key)
            yield words


def _sentences(paragraph: str) -> Iterator[str]:
    """Sentences of a paragraph; more abbreviations than in novels end none."""
    last = ""
    for sentence in split_sentences(paragraph):
        if last and _ABBREVIATION.search(last):
            last = f"{last} {sentence}"
            continue
        if last:
            yield last
        last = sentence
    if last:
        yield last


def is_modern_sentence(words: Sequence[str]) -> bool:
    """Tell prose from formulas, code, lists, and sentences that have lost a part."""
    text = " ".join(words)
    is_whole = not _ODD.search(text) and not _LOST.search(text) and text.count("(") == text.count(")")
    return is_sentence(words) and is_whole


if __name__ == "__main__":
    sys.exit(main(parse(Arguments, Path(__file__).name, sys.argv[1:])))
