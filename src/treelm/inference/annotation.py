"""Silver trees for raw text: streamed, in parallel, and continued after any interruption.

Work in progress is a folder beside the output with a file of JSON lines. Each line has the trees and the errors of a
block of sentences, and how much of the input is done with them; each has a checksum, and an incomplete last line is cut
off. When all is done, the output is written from these lines.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import treelm
from treelm.corpora.lines import stretches
from treelm.corpora.readers import ReadOptions, no_sentences, read_stretch
from treelm.corpora.tokens import words_of
from treelm.errors import InputError
from treelm.inference.batching import Model, in_batches, model_workers
from treelm.inference.batching import annotate as annotate_words
from treelm.inference.benepar import Benepar
from treelm.inference.loading import model_hash
from treelm.inference.settings import AnnotationSettings
from treelm.io.atomic import check_output_path, hold_folder, open_atomic, path_in_errors
from treelm.io.files import STDIN, name_of, open_bytes
from treelm.io.json import line_with_checksum, line_without_checksum
from treelm.io.tables import tsv_row
from treelm.models.capabilities import ConfidentParser, Parser, Searching, require
from treelm.models.scores import Confidence
from treelm.trees.brackets import format_tree
from treelm.trees.transforms import UNPARSED
from treelm.trees.tree import Tree

BLOCK = 64  # sentences that are written together
JOURNAL = "journal.jsonl"  # the file of work in progress
TABLE_COLUMNS = ("place", "num_words", "confidence", "expected_f1", "kept")
"""Columns of the table of confidences, which has a row for each sentence that was parsed."""
_DEFAULT = AnnotationSettings()


@dataclass(kw_only=True)
class Progress:
    """How much of the input is done, and what is in the output."""

    num_read: int = 0  # pieces of the input (lines of text)
    digest: str = ""  # hash of these pieces, so that another input is not taken for this one
    num_sentences: int = 0  # trees in the output
    num_words: int = 0  # words in them
    num_errors: int = 0  # sentences without a tree of the parser's
    num_unsure: int = 0  # sentences that were left out because the parser was not sure enough of them
    num_kept: int = 0  # sentences that were parsed and not left out; the next numbers are sums over them
    num_kept_words: int = 0
    sum_confidence: float = 0.0
    sum_expected_f1: float = 0.0
    is_done: bool = False


class Journal:
    """The file of work in progress, which one process writes at a time."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Read the file, if it exists, up to its last complete line: ``progress`` tells how far the work is.

        Raises ``InputError`` if the work was begun with other settings.
        """
        self._path, self._settings, self.progress, size = path, dict(settings), Progress(), 0
        path.touch()
        before = self._settings
        for entry, length in self._entries():
            self.progress, before, size = Progress(**entry["progress"]), entry["settings"], size + length
        os.truncate(path, size)
        for name in {} if self.progress.is_done else {**before, **self._settings}:
            if name == "on_error" and not self.progress.num_errors:
                continue  # no sentence so far has had to do with it
            if before.get(name) != self._settings.get(name):
                found = f"begun with {name} = {before.get(name)!r}, now it is {self._settings.get(name)!r}"
                remedy = "give what it was begun with, or remove this folder to begin again"
                raise InputError(found, where=str(path.parent), remedy=remedy)

    def _entries(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield every line with its length in bytes, up to the first that is not as it was written."""
        with self._path.open("rb") as stream:
            for line in stream:
                if (entry := line_without_checksum(line)) is None:
                    return
                yield entry, len(line)

    def append(self, progress: Progress, **written: list[str]) -> None:
        """Add a line, and wait until it is on the disk."""
        entry = {"settings": self._settings, "progress": asdict(progress), **written}
        with path_in_errors(self._path), self._path.open("ab") as stream:
            stream.write(line_with_checksum(entry))
            stream.flush()
            os.fsync(stream.fileno())
        self.progress = progress

    def lines(self, name: str) -> Iterator[list[str]]:
        """Yield the lines of the output of one kind (trees, rows, errors), block by block."""
        return (entry.get(name, []) for entry, _ in self._entries())


def _write_lines(path: Path, blocks: Iterable[list[str]]) -> None:
    """Write blocks of lines into a file.

    For a name in ``.gz`` each block is compressed by itself: several members in a row are one gzip file.
    """
    with open_atomic(path) as out:
        for lines in blocks:
            content = "".join(f"{line}\n" for line in lines).encode()
            out.write(gzip.compress(content, mtime=0) if path.name.endswith(".gz") else content)


def annotate(
    source: str,
    target: Path,
    parser: Model,
    settings: AnnotationSettings = _DEFAULT,
    *,
    run: str,
    processes: int = 1,
    batch_size: int = 16,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_error: Callable[[str], None] = lambda message: None,
    on_done: Callable[[dict[str, Any]], None] = lambda description: None,
) -> Progress:
    """Parse a file (``-``: standard input) into ``target``, one tree a line in input order; ``.gz`` is packed.

    ``run`` is where the parser was loaded from: other processes load it there, and its weights are part of what work in
    progress depends on. Work in progress stands in ``TARGET.annotating``; the same call continues from there after any
    interruption, with any number of processes, to the same bytes. When all is done, ``on_error`` gets every sentence
    that was not parsed, with its place, and ``on_done`` the provenance of the trees, as JSON values, before the target
    is there. Raises ``InputError`` for an output that exists, for other settings or another input than it was begun
    with, for a parser without trees, and as ``settings.on_error`` says.
    """
    folder, table = target.with_name(f"{target.name}.annotating"), table_of(target)
    if target.name == STDIN:
        remedy = "give the name of a file: work in progress stands beside it"
        raise InputError("trees cannot go to standard output", remedy=remedy)
    check_output_path(target)
    if not isinstance(parser, Benepar):
        require(parser, Parser)
    asked, has_confidence = _begun_with(source, parser, run, settings), isinstance(parser, ConfidentParser)
    if settings.min_confidence is not None and not has_confidence:
        remedy = "remove min_confidence, or take a run of chart"
        raise InputError(f"{run} does not say how sure it is of its trees", remedy=remedy)
    remedy = "wait for it or end it, or give another name for the output"
    with hold_folder(folder, found="another process is annotating here", remedy=remedy):
        journal = Journal(folder / JOURNAL, asked)
        if not journal.progress.is_done:  # else it was killed when all was done but for the output
            try:
                outputs = [target, *([table] if has_confidence else [])]
                outputs += [] if journal.progress.num_read else [metadata_of(target)]  # written shortly before the end
                for path in filter(Path.exists, outputs):
                    remedy = "remove it, or give another name for the output"
                    raise InputError("this file is there already", where=str(path), remedy=remedy)
                own_size = parser.preferred_batch_size if isinstance(parser, Parser) else 0  # 0: any
                after = "; the same command continues from here"
                with model_workers(run, processes, after_kill=after) as compute, open_bytes(source) as stream:
                    sentences = read_input(stream, source, settings, journal.progress)
                    unparsed: list[InputError] | None = None if settings.on_error == "raise" else []
                    answers = in_batches(
                        sentences,
                        partial(compute, parser, parse_lines),
                        batch_size=own_size or batch_size,
                        window=1 if own_size else 16,
                        skipped=unparsed,
                    )
                    for block in _blocks(answers, own_size or BLOCK, unparsed):
                        _write(block, settings, journal)
                        on_progress(journal.progress)
                journal.append(replace(_checked(journal.progress, name_of(source)), is_done=True))
            except BaseException:
                if not journal.progress.num_read:
                    shutil.rmtree(folder)
                raise
        for errors in journal.lines("errors"):
            for message in errors:
                on_error(message)
        on_done(_describe(source, parser, asked, journal.progress))
        _write_lines(target, journal.lines("trees"))
        if has_confidence and (journal.progress.num_kept or journal.progress.num_unsure):
            _write_lines(table, chain([["\t".join(TABLE_COLUMNS)]], journal.lines("rows")))
        shutil.rmtree(folder)
    return journal.progress


def _begun_with(source: str, parser: Model, run: str, settings: AnnotationSettings) -> dict[str, Any]:
    """The settings that the trees depend on, as work in progress keeps them.

    Raises ``InputError`` if sentences shall be tokenised that consist of words already.
    """
    format = ReadOptions(format=settings.format).format_for(name_of(source))
    if settings.tokenise and format != "text":
        raise InputError(f"tokenise with {format}", remedy="remove this option: these sentences have words")
    optional = {name: getattr(settings, name) for name in ("min_confidence", "documents")}
    return {
        "parser": run,
        "parser_version": parser.version if isinstance(parser, Benepar) else model_hash(run),
        **({"beam": parser.search.to_json()} if isinstance(parser, Searching) else {}),
        "format": format,
        **{name: getattr(settings, name) for name in ("tokenise", "max_words", "on_error")},
        **{name: value for name, value in optional.items() if value not in (None, False)},
    }


def table_of(target: Path) -> Path:
    """The file with the table of confidences of an output: ``silver.ptb.gz.tsv`` beside ``silver.ptb.gz``."""
    return target.with_name(f"{target.name}.tsv")


def metadata_of(target: Path) -> Path:
    """The file that tells how an output was made: ``silver.ptb.json`` beside ``silver.ptb``."""
    return target.with_name(f"{target.name}.json")


def parser_of(trees: Path) -> str | None:
    """The parser that made the trees in a file, by the metadata beside it; None if there are none."""
    try:
        told = json.loads(metadata_of(trees).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    parser = told.get("parser") if isinstance(told, dict) else None
    return parser if isinstance(parser, str) else None


def _checked(done: Progress, name: str) -> Progress:
    """The progress at the end of the input. Raises ``InputError`` if no sentence has a tree."""
    if done.num_unsure and not done.num_sentences and not done.num_errors:
        found = f"the parser is sure of none of its {done.num_unsure:,} sentences"
        remedy = "lower min_confidence, and remove the folder of work in progress to begin again"
        raise InputError(found, where=name, remedy=remedy)
    if not done.num_sentences and not done.num_errors:
        raise no_sentences(name, [])
    return done


class InputSentence(NamedTuple):
    """A sentence of the input, or what is wrong with it, and how far the input has been read with it."""

    all_words: tuple[str, ...]
    where: str
    error: InputError | None = None
    begins_document: bool = False  # not the first one
    num_read: int = 0  # pieces of the input
    digest: str = ""  # of these pieces; "" where more sentences of the same piece follow

    @property
    def words(self) -> tuple[str, ...]:
        """The words that are parsed: none of a sentence with an error."""
        return () if self.error else self.all_words


Line = tuple[str, Confidence | None]
"""A tree in brackets, with a tag over each word, and how sure the parser is of it, if it says so."""
Answer = tuple[InputSentence, Line | InputError]


def read_input(stream: Any, source: str, settings: AnnotationSettings, progress: Progress) -> Iterator[InputSentence]:
    """The sentences of the rest of the input. Raises ``InputError`` if what comes before has changed."""
    name, options = name_of(source), ReadOptions(format=settings.format)
    digest, document = hashlib.sha256(), 0
    pieces = enumerate(stretches(stream, name, options), 1)
    for _, stretch in islice(pieces, progress.num_read):
        digest.update(b"%d:%s" % (len(stretch.content), stretch.content))
        document = stretch.document
    if progress.num_read and digest.hexdigest() != progress.digest:
        found = f"{name} is not the input that this was begun with"
        raise InputError(found, remedy="give the same input, or another name for the output")
    for num_read, stretch in pieces:
        digest.update(b"%d:%s" % (len(stretch.content), stretch.content))
        items = list[InputSentence]()
        for sentence in read_stretch(stretch, options):
            if isinstance(sentence, InputError):
                item = InputSentence((), sentence.where or "", sentence)
            else:
                has_text = settings.tokenise and sentence.text is not None
                words = words_of(sentence.text or "", "treebank") if has_text else sentence.words
                if not words:  # nothing but other spaces of Unicode, in running text
                    continue
                item = InputSentence(words, sentence.where)
                if settings.max_words is not None and len(words) > settings.max_words:
                    remedy = "raise max_words to parse it"
                    item = item._replace(error=InputError(f"{len(words)} words", where=item.where, remedy=remedy))
            items.append(item._replace(begins_document=stretch.document > document, num_read=num_read))
            document = stretch.document
        yield from items[:-1]
        if items:
            yield items[-1]._replace(digest=digest.hexdigest())


def parse_lines(parser: Model, sentences: Sequence[Sequence[str]]) -> list[Line | None]:
    """The tree of each sentence as it is written, None of one without words (a ``Task``).

    Raises ``InputError`` for words that brackets cannot hold.
    """
    found = annotate_words(parser, sentences)
    return [None if one is None else (format_tree(one.tree, one.tags), one.confidence) for one in found]


def _blocks(
    answers: Iterable[tuple[InputSentence, Line | None]], size: int, unparsed: list[InputError] | None
) -> Iterator[list[Answer]]:
    """Sentences that are written together, with the line or the error of each.

    A block has ``size`` sentences, or more until a piece of the input ends. ``unparsed`` are the errors that
    ``in_batches`` collects; without it, the first sentence with an error raises that.
    """
    block = list[Answer]()
    for sentence, line in answers:
        if sentence.error and unparsed is None:
            raise sentence.error
        block.append((sentence, line or sentence.error or (unparsed or []).pop()))
        if len(block) >= size and sentence.digest:
            yield block
            block = []
    if block:
        yield block


def _write(block: Sequence[Answer], settings: AnnotationSettings, journal: Journal) -> None:
    """Write the trees of a block of sentences, its errors and its rows of the table of confidences."""
    trees, errors, rows = list[str](), list[str](), list[str]()
    done = replace(journal.progress, num_read=block[-1][0].num_read, digest=block[-1][0].digest)
    for item, answer in block:
        num_words = len(item.all_words)
        if item.begins_document and settings.documents:
            trees.append("")
        if isinstance(answer, InputError):
            errors.append(str(answer))
            done.num_errors += 1
            if settings.on_error == "flat":
                trees.append(format_tree(Tree(UNPARSED, item.all_words)) if num_words else "")
                done.num_sentences += 1
                done.num_words += num_words
            continue
        line, sure = answer
        is_kept = sure is None or sure.mean >= (settings.min_confidence or 0.0)
        if sure is not None:
            rows.append(tsv_row((item.where, str(num_words), *(f"{v:.4f}" for v in sure), str(int(is_kept)))))
        if not is_kept:
            done.num_unsure += 1
            continue
        trees.append(line)
        done.num_sentences += 1
        done.num_words += num_words
        done.num_kept += 1
        done.num_kept_words += num_words
        if sure is not None:
            done.sum_confidence += sure.mean
            done.sum_expected_f1 += sure.expected_f1
    journal.append(done, trees=trees, errors=errors, rows=rows)


def _describe(source: str, parser: Model, asked: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """How the trees were made, as JSON values."""
    counts = {name: getattr(progress, name) for name in ("num_sentences", "num_words", "num_errors")}
    described = {"treelm_version": treelm.__version__, "input": source, **asked, **counts}
    if not isinstance(parser, ConfidentParser):
        return described
    sums = {
        "mean": progress.sum_confidence,
        "expected_f1": progress.sum_expected_f1,
        "mean_words": progress.num_kept_words,
    }
    kept = progress.num_kept
    confidence = {name: round(value / kept, 4) for name, value in sums.items()} if kept else {}
    return {**described, "confidence": {**confidence, "num_left_out": progress.num_unsure}}
