"""Silver trees for raw text: in a stream, in parallel, and where it was after a kill."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from treelm.corpora.lines import Format, Stretch, stretches
from treelm.corpora.readers import ReadOptions, StretchParser, no_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import words_of
from treelm.errors import InputError
from treelm.inference.annotation_journal import Journal, Progress
from treelm.inference.processes import compute_each, path_everywhere
from treelm.inference.tree_parsers import (
    ParsedLine,
    ParserSettings,
    Sentences,
    open_parser,
    parser_class,
    parser_version,
)
from treelm.io.atomic import check_output_path, hold_folder
from treelm.io.files import STDIN, name_of, open_bytes
from treelm.io.tables import tsv_row
from treelm.io.workers import worker_pool
from treelm.models.capabilities import ConfidentParser, Parser, Searching
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
    number of processes, here or on a ``cluster`` (see ``worker_pool``), and the result is the same bytes. Memory does
    not grow with the input. When all is done, ``on_error`` is told every sentence that was not parsed, with its place,
    and ``on_done`` is called before the target is there. Raises ``InputError`` for an output that exists, for other
    settings or another input than it was begun with, and as ``settings.on_error`` says.
    """
    folder = target.with_name(f"{target.name}.annotating")
    if target.name == STDIN:
        remedy = "give the name of a file: work in progress stands beside it"
        raise InputError("trees cannot go to standard output", remedy=remedy)
    check_output_path(target)
    asked, name = settings.to_json(), settings.parser.name
    system = parser_class(name)
    has_confidence = system is not None and issubclass(system, ConfidentParser)
    if settings.min_confidence is not None and not has_confidence:
        remedy = "leave min_confidence out, or take a run of chart"
        raise InputError(f"{name} does not say how sure it is of its trees", remedy=remedy)
    at_once = system.preferred_batch_size if system and issubclass(system, Parser) else 0  # 0: as batches have
    open_parser.cache_clear()  # a run may have been trained on since the last call
    remedy = "wait for it or end it, or give another name for the output"
    with hold_folder(folder, found="another process is annotating here", remedy=remedy):
        journal = Journal(folder, asked, packed=target.name.endswith(".gz"))
        outputs = [target, *([table_of(target)] if has_confidence else [])]
        outputs += [] if journal.is_begun else [metadata_of(target)]  # it is written shortly before the end
        if (taken := next(filter(Path.exists, outputs), None)) and not journal.is_finishing:
            remedy = "remove it, or give another name for the output"
            raise InputError("this file is there already", where=str(taken), remedy=remedy)
        try:
            if not journal.is_finishing:
                journal.go_on()
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
    parser = settings.parser
    if cluster:
        parser = replace(parser, name=path_everywhere(parser.name), version=parser_version(parser.name))
    waiting: deque[SentenceBlock] = deque()

    def sentences(blocks: Iterator[SentenceBlock]) -> Iterator[Sentences]:
        for block in blocks:
            waiting.append(block)
            yield [item.words for item in block.items if item.error is None]

    with worker_pool(processes, cluster, **_WORKER) as computed, open_bytes(source) as stream:
        where, size = str(journal.folder), at_once or BLOCK
        blocks = read_blocks(stream, name_of(source), settings, journal.progress, where=where, size=size)
        for answers in computed(partial(parse_block, parser, at_once or batch_size), sentences(blocks)):
            _settle(waiting.popleft(), answers, settings, journal)
            on_progress(journal.progress)
    progress = journal.progress
    if progress.num_unsure and not progress.num_sentences and not progress.num_errors:
        found = f"the parser is sure of none of its {progress.num_unsure:,} sentences (how sure: {journal.table})"
        remedy = f"lower min_confidence, and remove {journal.folder} to begin again"
        raise InputError(found, where=name_of(source), remedy=remedy)
    if not progress.num_sentences and not progress.num_errors:
        raise no_sentences(name_of(source), [])


def read_blocks(
    stream: Any, name: str, settings: AnnotationSettings, progress: Progress, *, where: str = "", size: int = BLOCK
) -> Iterator[SentenceBlock]:
    """The rest of the input in blocks of ``size`` sentences.

    Raises ``InputError`` if what comes before is not what it was.
    """
    pieces = stretches(stream, name=name, format=settings.format, is_guess=settings.is_guess)
    num_read, digest, document = progress.num_read, hashlib.sha256(), 0
    for stretch in islice(pieces, num_read):
        digest.update(b"%d:%s" % (len(stretch.content), stretch.content))
        document = stretch.document
    if num_read and digest.hexdigest() != progress.digest:
        found = f"{name} is not the input that this was begun with"
        raise InputError(found, where=where, remedy="give the same input, or remove this folder to begin again")
    parser = StretchParser(name, settings.format, ReadOptions(format=settings.format))
    items: list[InputSentence] = []
    for stretch in pieces:
        num_read += 1
        digest.update(b"%d:%s" % (len(stretch.content), stretch.content))
        own = list(_items(stretch, parser, settings))
        if own and stretch.document > document:
            own[0] = own[0]._replace(begins_document=True)
            document = stretch.document
        items += own
        if len(items) >= size:
            yield SentenceBlock(items, num_read, digest.hexdigest())
            items = []
    if items:
        yield SentenceBlock(items, num_read, digest.hexdigest())


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


def parse_block(parser: ParserSettings, batch_size: int, sentences: Sentences) -> Answer:
    """A line, or an error, for every sentence; those of similar length are parsed together."""
    parse = open_parser(parser)
    order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
    found: dict[int, ParsedLine | InputError] = {}
    for start in range(0, len(order), batch_size):
        numbers = order[start : start + batch_size]
        found.update(zip(numbers, compute_each(parse, [sentences[one] for one in numbers]), strict=True))
    return [found[number] for number in range(len(sentences))]


def _settle(block: SentenceBlock, answers: Answer, settings: AnnotationSettings, journal: Journal) -> None:
    """Write the lines of a block, its errors and its rows. Raises the first error if that is the policy."""
    remaining, least = iter(answers), settings.min_confidence
    lines, errors, rows = list[str](), list[InputError](), list[str]()
    sums = Counter[str]()
    for item in block.items:
        answer = item.error or next(remaining)
        num_words = len(item.words)
        if item.begins_document and settings.documents:
            lines.append("")
        if isinstance(answer, InputError):
            error = InputError(answer.found, where=answer.where or item.where, remedy=answer.remedy)
            if settings.on_error == "raise":
                raise error
            errors.append(error)
            is_flat = settings.on_error == "flat" and num_words > 0
            if settings.on_error != "skip":
                lines.append(format_tree(Tree(UNPARSED, item.words)) if is_flat else "")
            sums.update(num_sentences=settings.on_error != "skip", num_words=num_words * is_flat, num_errors=1)
            continue
        sure = answer.confidence
        is_kept = least is None or sure is None or sure.mean >= least
        if is_kept:
            lines.append(answer.line)
            sums.update(num_sentences=1, num_words=num_words, num_kept_words=num_words)
        else:
            sums.update(num_unsure=1)
        if sure is not None:
            rows.append(tsv_row((item.where, str(num_words), *(f"{v:.4f}" for v in sure), str(int(is_kept)))))
            if is_kept:
                sums.update(sum_confidence=sure.mean, sum_expected_f1=sure.expected_f1)  # type: ignore[call-overload]
    before = journal.progress
    if rows and not before.num_table_bytes:
        rows = ["\t".join(TABLE_COLUMNS), *rows]
    done = {name: getattr(before, name) + value for name, value in sums.items()}
    journal.append(lines, errors, replace(before, num_read=block.num_read, digest=block.digest, **done), rows)


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
