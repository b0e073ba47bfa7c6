"""Silver trees for raw text: in a stream, in parallel, and where it was after a kill."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from treelm.corpora.lines import Format, Stretch, cut, numbered_lines, only_text
from treelm.corpora.readers import ReadOptions, StretchParser, no_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import words_of
from treelm.errors import InputError
from treelm.inference.annotation_journal import InputHash, Journal, Progress, is_begun, is_finishing
from treelm.inference.processes import compute_each, path_everywhere
from treelm.inference.tree_parsers import (
    ParsedLine,
    ParserSettings,
    Sentences,
    open_parser,
    parser_class,
    parser_has_confidence,
    parser_version,
)
from treelm.io.atomic import hold_folder
from treelm.io.files import STDIN, name_of, open_bytes
from treelm.io.tables import tsv_row
from treelm.io.workers import worker_pool
from treelm.models.capabilities import Searching
from treelm.models.scores import Confidence
from treelm.trees.brackets import format_tree
from treelm.trees.transforms import UNPARSED
from treelm.trees.tree import Tree

OnUnparsed = Literal["raise", "skip", "blank", "flat"]
BLOCK = 64
"""Sentences that are parsed by one process in one go, and promised to the journal together."""
_WORKER = {
    "what": "a process that parses",
    "remedy": "free memory, or lower the number of processes; the same command goes on from here",
}


@dataclass(frozen=True, kw_only=True)
class AnnotationSettings:
    """Settings that the trees depend on. Going on with other settings is refused."""

    parser: ParserSettings
    """The parser."""
    format: Format = "text"
    """Format of the input; of trees, only the words are read."""
    is_guess: bool = False
    """True if nobody has said that it is text: then one that begins like trees is refused."""
    tokenise: bool = False
    """Cut text into words as treebanks do; else at blanks."""
    max_words: int | None = None
    """A longer sentence counts as one that cannot be parsed."""
    min_confidence: float | None = None
    """Leave out sentences of whose trees the parser is less sure than this (``Confidence.mean``)."""
    documents: bool = False
    """Keep documents apart: an empty line between their trees."""
    on_error: OnUnparsed = "raise"
    """Treatment of a sentence that cannot be read or parsed: stop; leave it out; or put an empty line or a flat tree in
    its place (``UNPARSED``; an empty line if even its words cannot be read)."""

    def __post_init__(self) -> None:
        """Raise ``InputError`` for values that cannot be."""
        if self.on_error not in get_args(OnUnparsed):
            raise InputError(f"on_error = {self.on_error!r}", remedy=f"choose one of {', '.join(get_args(OnUnparsed))}")
        if self.max_words is not None and self.max_words < 1:
            raise InputError(f"max_words = {self.max_words}", remedy="give 1 or more, or leave it out")
        if self.min_confidence is not None and not 0 <= self.min_confidence <= 1:
            raise InputError(f"min_confidence = {self.min_confidence}", remedy="give a number from 0 to 1")
        if self.tokenise and self.format != "text":
            raise InputError(f"tokenise with {self.format}", remedy="leave it out: these sentences have words")

    def to_json(self) -> dict[str, Any]:
        """Settings in the form that the journal keeps."""
        own = {name: getattr(self, name) for name in ("format", "tokenise", "max_words", "on_error")}
        parser = {"parser": self.parser.name, "parser_version": parser_version(self.parser.name)}
        least = {} if self.min_confidence is None else {"min_confidence": self.min_confidence}
        documents = {"documents": True} if self.documents else {}
        search = self.parser.search.to_json() if self.parser.search else {}
        return {**parser, "beam": search, **own, **least, **documents}


class InputSentence(NamedTuple):
    """A sentence of the input, or what is wrong with it."""

    words: tuple[str, ...]
    where: str
    error: InputError | None = None
    begins_document: bool = False  # not the first one


class SentenceBlock(NamedTuple):
    """Sentences that are parsed together, and how far the input has been read with them."""

    items: list[InputSentence]
    num_read: int
    digest: str


class ParsingTask(NamedTuple):
    """Sentences for a process to parse, and by which parser."""

    parser: ParserSettings
    sentences: Sentences
    batch_size: int


Answer = list["ParsedLine | InputError"]
TABLE_COLUMNS = ("place", "num_words", "confidence", "expected_f1", "kept")
"""Columns of the table of confidences, which has a row for each sentence that was parsed."""


def annotate(
    source: str,
    target: Path,
    settings: AnnotationSettings,
    *,
    processes: int = 1,
    cluster: str = "",
    batch_size: int = 16,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_error: Callable[[str], None] = lambda message: None,
    on_done: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Parse a file (``-``: standard input) into ``target``, one tree a line in input order; ``.gz`` is packed.

    Work in progress stands in ``TARGET.annotating``; the same call goes on from there after any interruption, with any
    number of processes, here or on a ``cluster`` (see ``mapping``), and the result is the same bytes. Memory does not
    grow with the input. When all is done, ``on_error`` is told every sentence that was not parsed, with its place, and
    ``on_done`` is called before the target is there. Raises ``InputError`` for an output that exists, for other
    settings or another input than it was begun with, and as ``settings.on_error`` says.
    """
    folder = target.with_name(f"{target.name}.annotating")
    _check_target(target)
    asked = settings.to_json()
    at_once = _sentences_at_once(settings)
    open_parser.cache_clear()  # a run may have been trained on since the last call
    busy = {
        "found": "another process is annotating here",
        "remedy": "wait for it or end it, or give another name for the output",
    }
    with hold_folder(folder, **busy):
        outputs = [target]
        outputs += [table_of(target)] if parser_has_confidence(settings.parser.name) else []
        outputs += [] if is_begun(folder) else [metadata_of(target)]  # it is written shortly before the end
        for path in outputs:
            _check_free(path, folder)
        journal = Journal(folder, asked, packed=target.name.endswith(".gz"))
        try:
            if not target.exists():  # else it was killed while finishing
                _work(source, journal, settings, processes, cluster, batch_size, at_once, on_progress)
        except BaseException:
            journal.leave()
            raise
        for message in journal.errors():
            on_error(message)
        on_done(journal.progress)
        journal.finish(target, table_of(target))
    return journal.progress


def table_of(target: Path) -> Path:
    """The table of confidences of an output: ``silver.ptb.gz.tsv`` beside ``silver.ptb.gz``."""
    return target.with_name(f"{target.name}.tsv")


def metadata_of(target: Path) -> Path:
    """The file that says how an output was made: ``silver.ptb.json`` beside ``silver.ptb``."""
    return target.with_name(f"{target.name}.json")


def parser_of(trees: Path) -> str | None:
    """The parser that made the trees of a file, by what stands beside it; None if nothing says so."""
    try:
        told = json.loads(metadata_of(trees).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    parser = told.get("parser") if isinstance(told, dict) else None
    return parser if isinstance(parser, str) else None


def _sentences_at_once(settings: AnnotationSettings) -> int:
    """Sentences that the parser is given at once, 0 if batches do. Raises ``InputError`` if it has no confidence."""
    system = parser_class(settings.parser.name)
    if settings.min_confidence is not None and not parser_has_confidence(settings.parser.name):
        remedy = "leave min_confidence out, or take a run of chart"
        raise InputError(f"{settings.parser.name} does not say how sure it is of its trees", remedy=remedy)
    return 0 if system is None else system.sentences_at_once


def _check_target(target: Path) -> None:
    if target.name == STDIN:
        remedy = "give the name of a file: work in progress stands beside it"
        raise InputError("trees cannot go to standard output", remedy=remedy)
    if target.is_dir():
        raise InputError("a folder", where=str(target), remedy="give the name of a file")
    if not target.parent.is_dir():
        raise InputError(f"no folder {target.parent}", remedy="make it first")


def _check_free(target: Path, folder: Path) -> None:
    """Raise ``InputError`` if the target is there; to be called when no other process can be about to finish it."""
    if target.exists() and not is_finishing(folder):
        with suppress(OSError):
            folder.rmdir()  # if it was made for this call
        raise InputError(
            "this file is there already", where=str(target), remedy="remove it, or give another name for the output"
        )


def _work(
    source: str,
    journal: Journal,
    settings: AnnotationSettings,
    processes: int,
    cluster: str,
    batch_size: int,
    at_once: int,
    on_progress: Callable[[Progress], None],
) -> None:
    """Annotate from where the journal is to the end of the input."""
    journal.go_on()
    parser = settings.parser
    if cluster:
        parser = replace(parser, name=path_everywhere(parser.name), version=parser_version(parser.name))
    waiting: deque[SentenceBlock] = deque()

    def tasks(blocks: Iterator[SentenceBlock]) -> Iterator[ParsingTask]:
        for block in blocks:
            waiting.append(block)
            sentences = [item.words for item in block.items if item.error is None]
            yield ParsingTask(parser, sentences, at_once or batch_size)

    with worker_pool(processes, cluster, **_WORKER) as computed, open_bytes(source) as stream:
        where, size = str(journal.folder), at_once or BLOCK
        blocks = read_blocks(stream, name_of(source), settings, journal.progress, where=where, size=size)
        for answers in computed(parse_task, tasks(blocks)):
            block = waiting.popleft()
            lines, errors, parsed = _settle(block.items, answers, settings)
            before = journal.progress
            kept = [one for one in parsed if one.is_kept]
            num_divisions = sum(item.begins_document for item in block.items) if settings.documents else 0
            num_kept_words = sum(one.num_words for one in kept)
            num_flat_words = sum(len(item.words) for item in block.items) - sum(one.num_words for one in parsed)
            sure = [one.confidence for one in kept if one.confidence is not None]
            done = replace(
                before,
                num_read=block.num_read,
                digest=block.digest,
                num_sentences=before.num_sentences + len(lines) - num_divisions,
                num_words=before.num_words + num_kept_words + (num_flat_words if settings.on_error == "flat" else 0),
                num_errors=before.num_errors + len(errors),
                num_unsure=before.num_unsure + len(parsed) - len(kept),
                num_kept_words=before.num_kept_words + num_kept_words,
                sum_confidence=before.sum_confidence + sum(one.mean for one in sure),
                sum_expected_f1=before.sum_expected_f1 + sum(one.expected_f1 for one in sure),
            )
            rows = [row for one in parsed if (row := one.row())]
            if rows and not before.num_table_bytes:
                rows = ["\t".join(TABLE_COLUMNS), *rows]
            journal.append(lines, errors, done, rows)
            on_progress(journal.progress)
    progress = journal.progress
    if progress.num_unsure and not progress.num_sentences and not progress.num_errors:
        found = f"the parser is sure of none of its {progress.num_unsure:,} sentences (how sure: {journal.table})"
        remedy = f"lower min_confidence, and remove {journal.folder} to begin again"
        raise InputError(found, where=name_of(source), remedy=remedy)
    if not progress.num_sentences and not progress.num_errors:
        raise no_sentences(name_of(source), [])


# Reading.


def read_blocks(
    stream: Any, name: str, settings: AnnotationSettings, progress: Progress, *, where: str = "", size: int = BLOCK
) -> Iterator[SentenceBlock]:
    """The rest of the input in blocks of ``size`` sentences.

    Raises ``InputError`` if what comes before is not what it was.
    """
    lines = numbered_lines(stream, name=name)
    stretches = cut(only_text(lines, name=name) if settings.is_guess else lines, settings.format)
    num_read, digest, document = progress.num_read, InputHash(), 0
    for stretch in islice(stretches, num_read):
        digest.add(stretch.content)
        document = stretch.document
    if num_read and digest.value != progress.digest:
        found = f"{name} is not the input that this was begun with"
        raise InputError(found, where=where, remedy="give the same input, or remove this folder to begin again")
    parser = StretchParser(name, settings.format, ReadOptions(format=settings.format))
    items: list[InputSentence] = []
    for stretch in stretches:
        num_read += 1
        digest.add(stretch.content)
        own = list(_items(stretch, parser, settings))
        if own and stretch.document > document:
            own[0] = own[0]._replace(begins_document=True)
            document = stretch.document
        items += own
        if len(items) >= size:
            yield SentenceBlock(items, num_read, digest.value)
            items = []
    if items:
        yield SentenceBlock(items, num_read, digest.value)


def _items(stretch: Stretch, parser: StretchParser, settings: AnnotationSettings) -> Iterator[InputSentence]:
    for found in parser.parse(stretch):
        if isinstance(found, InputError):
            yield InputSentence((), found.where or "", found)
            continue
        words = _words(found, settings)
        if not words:  # nothing but other spaces of Unicode, in running text
            continue
        error = None
        if settings.max_words is not None and len(words) > settings.max_words:
            error = InputError(f"{len(words)} words", where=found.where, remedy="raise max_words to parse it")
        yield InputSentence(words, found.where, error)


def _words(sentence: Sentence, settings: AnnotationSettings) -> tuple[str, ...]:
    if not settings.tokenise or sentence.text is None:
        return sentence.words
    return words_of(sentence.text, "treebank")


# Parsing.


def parse_task(task: ParsingTask) -> Answer:
    """A line, or an error, for every sentence of a task; sentences of similar length are parsed together."""
    parser = open_parser(task.parser)
    order = sorted(range(len(task.sentences)), key=lambda number: len(task.sentences[number]))
    found: dict[int, ParsedLine | InputError] = {}
    for start in range(0, len(order), task.batch_size):
        numbers = order[start : start + task.batch_size]
        found.update(zip(numbers, compute_each(parser, [task.sentences[one] for one in numbers]), strict=True))
    return [found[number] for number in range(len(task.sentences))]


class Parsed(NamedTuple):
    """A sentence that the parser has parsed, whether or not its tree stays."""

    where: str
    num_words: int
    confidence: Confidence | None
    is_kept: bool

    def row(self) -> str:
        """Its row of the table; "" where the parser has no confidence."""
        if self.confidence is None:
            return ""
        values = (f"{value:.4f}" for value in self.confidence)
        return tsv_row((self.where, str(self.num_words), *values, str(int(self.is_kept))))


def _settle(
    items: Sequence[InputSentence], answers: Answer, settings: AnnotationSettings
) -> tuple[list[str], list[InputError], list[Parsed]]:
    """Lines to write, errors to report, and what was parsed. Raises the first error if that is the policy."""
    remaining, policy, least = iter(answers), settings.on_error, settings.min_confidence
    lines, errors, parsed = list[str](), list[InputError](), list[Parsed]()
    for item in items:
        answer = item.error if item.error is not None else next(remaining)
        lines += [""] if item.begins_document and settings.documents else []
        if not isinstance(answer, InputError):
            sure = answer.confidence
            is_kept = least is None or sure is None or sure.mean >= least
            parsed.append(Parsed(item.where, len(item.words), sure, is_kept))
            lines += [answer.line] if is_kept else []
            continue
        error = InputError(answer.found, where=answer.where or item.where, remedy=answer.remedy)
        if policy == "raise":
            raise error
        errors.append(error)
        lines += _instead(item.words, policy)
    return lines, errors, parsed


def _instead(words: Sequence[str], policy: OnUnparsed) -> list[str]:
    """Lines that stand in the place of a sentence without a tree."""
    if policy == "skip":
        return []
    return [format_tree(Tree(UNPARSED, words))] if policy == "flat" and words else [""]


def describe(settings: AnnotationSettings, progress: Progress, *, source: str, version: str) -> dict[str, Any]:
    """The provenance of the trees for those who read them, as JSON values."""
    counts = {name: getattr(progress, name) for name in ("num_sentences", "num_words", "num_errors")}
    described = {"treelm_version": version, "input": source, **settings.to_json(), **counts}
    system = parser_class(settings.parser.name)
    if system is None or not issubclass(system, Searching):
        del described["beam"]
    num_parsed = progress.num_sentences - (0 if settings.on_error in ("raise", "skip") else progress.num_errors)
    if not progress.num_table_bytes:
        return described
    sums = {
        "mean": progress.sum_confidence,
        "expected_f1": progress.sum_expected_f1,
        "mean_words": progress.num_kept_words,
    }
    confidence = {name: round(value / num_parsed, 4) for name, value in sums.items()} if num_parsed else {}
    return {**described, "confidence": {**confidence, "num_left_out": progress.num_unsure}}
