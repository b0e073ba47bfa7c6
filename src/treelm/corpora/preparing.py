"""Preparing a corpus: one streaming pass over its files; the parts of text8."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from treelm.corpora.building import CorpusBuilder
from treelm.corpora.corpus import DTYPES, FORMAT_VERSION, PreparedCorpus
from treelm.corpora.readers import ReadOptions, read_sentences
from treelm.errors import InputError, OnError
from treelm.io.atomic import atomic_directory, open_atomic
from treelm.io.files import (
    CACHE_VARIABLE,
    cache_directory,
    check_is_file,
    file_hash,
    name_of,
    read_bytes,
    require_rereadable,
    unpacked,
)

Text8Parts = Literal["90-5-5", "99-1"]
TEXT8_PARTS: Mapping[Text8Parts, Mapping[str, tuple[int, int]]] = {
    "90-5-5": {"train": (0, 90), "dev": (90, 95), "test": (95, 100)},
    "99-1": {"train": (0, 99), "dev": (99, 100)},
}
"""Begin and end of the parts of text8 in percent: of 10^8 characters 90M, 5M and 5M, as language models of characters
have them, or 99M and 1M, as language models of words do (Mikolov et al. 2014, Shen et al. 2018)."""
_WORDS_A_LINE = 1000
_BLOCK = 1000  # sentences
_DEFAULT_OPTIONS = ReadOptions()


def prepare(
    sources: Sequence[str | Path],
    directory: str | Path,
    *,
    options: ReadOptions = _DEFAULT_OPTIONS,
    on_error: OnError = "raise",
    max_sentences: int | None = None,
    on_block: Callable[[], None] = lambda: None,
) -> PreparedCorpus:
    """Read files, or their first ``max_sentences``, into a new directory of flat arrays, and open it.

    The files are read once, with bounded memory; ``on_block`` is called after each thousand sentences. With
    ``on_error="skip"`` sentences that cannot be read are left out, and their errors are in ``skipped`` of the corpus;
    otherwise the first one raises its ``InputError``. Raises ``InputError`` also for a directory that exists, for a
    file without sentences, and for one that changes while it is read.
    """
    directory = Path(directory)
    if directory.exists():
        raise InputError("the directory exists", where=str(directory), remedy="remove it or choose another one")
    if not sources:
        raise InputError("a corpus of no files", remedy="give at least one file")
    before, most = list(map(_status, sources)), sys.maxsize if max_sentences is None else max_sentences
    with atomic_directory(directory) as building, CorpusBuilder(building) as builder:
        for source in sources:
            builder.begin_source(name_of(source))
            sentences = read_sentences(source, options, skipped=builder.skipped if on_error == "skip" else None)
            while block := list(islice(sentences, min(most - builder.num_sentences, _BLOCK))):
                builder.add(block)
                on_block()
        builder.finish()
        for source, status in zip(sources, before, strict=True):
            if _status(source) != status:
                remedy = "wait until it is complete"
                raise InputError("it changed while it was read", where=str(source), remedy=remedy)
    return PreparedCorpus.open(directory)


def prepared(
    sources: Sequence[str | Path],
    *,
    options: ReadOptions = _DEFAULT_OPTIONS,
    on_error: OnError = "raise",
    max_sentences: int | None = None,
    cache: Path | None = None,
    on_block: Callable[[], None] = lambda: None,
) -> PreparedCorpus:
    """The prepared corpus of these files, from the cache unless the content of a file or an option has changed.

    Files are compared by content, as a file may be replaced by one of the same size and time. The options are the
    fields of ``ReadOptions``; the other arguments are those of ``prepare``. Raises ``InputError`` for a file that can
    be read only once, such as a pipe, for a cache that cannot be written, and as ``prepare`` does.
    """
    require_rereadable(sources)
    for source in sources:
        check_is_file(str(source))
    # Of names, which messages repeat and which tell the format, and content.
    hashes = [(str(source), file_hash(Path(source), remedy="check the path")) for source in sources]
    how_read = {one.name: getattr(options, one.name) for one in fields(ReadOptions)}
    key = json.dumps([FORMAT_VERSION, sorted(DTYPES), hashes, how_read, (on_error, max_sentences)])
    name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    directory = (cache or cache_directory() / "prepared") / name
    if directory.exists():
        return PreparedCorpus.open(directory)
    try:
        how: dict[str, Any] = {"on_error": on_error, "max_sentences": max_sentences, "on_block": on_block}
        return prepare(sources, directory, options=options, **how)
    except OSError as error:
        path, folder = Path(str(error.filename)), directory.parent
        if not (path.is_relative_to(folder) or folder.is_relative_to(path)):
            raise
        found = f"prepared data cannot be kept ({error.strerror or error})"
        remedy = f"set {CACHE_VARIABLE} to a folder that can be written"
        raise InputError(found, where=str(folder), remedy=remedy) from None


def _status(source: str | Path) -> tuple[int, ...] | None:
    """Properties of a regular file that change when it is written; None for anything else."""
    if not os.path.isfile(source):
        return None
    status = os.stat(source)
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def split_text8(file: Path, folder: Path, parts: Text8Parts = "90-5-5") -> dict[str, int]:
    """Write ``train.txt``, ``dev.txt`` and so on with so many percent of the characters each; returns their numbers.

    text8 is 100 million characters of Wikipedia on one line, of the letters a to z and blanks (Mahoney 2006). The lines
    that are written end between words and mean nothing: train with ``sentence_ends = false``. A word on the border of
    two parts is cut in two. With a character vocabulary, the end mark of a word stands for the blank after it, so that
    a part of n characters has n tokens (one more where it begins within a word, one less where it begins with a blank).

    Raises ``InputError`` for other characters than the 27 of text8, and for a folder with a part of another split that
    this one would not replace.
    """
    others = (
        folder / f"{name}.txt" for split in TEXT8_PARTS.values() for name in split if name not in TEXT8_PARTS[parts]
    )
    left = next((path for path in others if path.exists()), None)
    if left is not None:
        found = f"a part of another split than {parts}, whose text train has here"
        raise InputError(found, where=str(left), remedy="remove it, or give another folder")
    content = read_bytes(file, remedy="check the path", may_be_pipe=True)
    text = unpacked(content, name=str(file)).rstrip(b"\r\n")
    strange = re.search(rb"[^a-z ]", text)
    if strange is not None:
        found = f"byte 0x{text[strange.start()]:02x} at {strange.start()}, where text8 has letters a to z and blanks"
        raise InputError(found, where=str(file), remedy="give the unpacked file text8, or prepare other text as lines")
    if not text:
        raise InputError("empty", where=str(file), remedy="give the unpacked file text8")
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name, (first, last) in TEXT8_PARTS[parts].items():
        part = text[len(text) * first // 100 : len(text) * last // 100]
        with open_atomic(folder / f"{name}.txt") as out:
            out.writelines(line + b"\n" for line in _lines(part))
        counts[name] = len(part)
    return counts


def _lines(text: bytes) -> Iterator[bytes]:
    words = text.split()
    for start in range(0, len(words), _WORDS_A_LINE):
        yield b" ".join(words[start : start + _WORDS_A_LINE])
