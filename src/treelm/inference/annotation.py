"""Silver trees for raw text: in a stream, in parallel, and where it was after a kill."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from treelm.corpora.inputs import STDIN, name_of, open_bytes
from treelm.corpora.lines import Format, Stretch, cut, numbered_lines, only_text
from treelm.corpora.mapping import mapping
from treelm.corpora.readers import ReadOptions, StretchParser, no_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import words_of
from treelm.errors import InputError
from treelm.inference.annotation_journal import InputHash, Journal, Progress, is_finishing
from treelm.inference.processes import compute_each, path_everywhere
from treelm.inference.tree_parsers import ParserSettings, Words, open_parser, parser_version
from treelm.models.persistence.files import hold_folder
from treelm.trees.brackets import format_tree
from treelm.trees.transforms import UNPARSED
from treelm.trees.tree import Tree

OnError = Literal["raise", "skip", "blank", "flat"]
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
    on_error: OnError = "raise"
    """Treatment of a sentence that cannot be read or parsed: stop; leave it out; or put an empty line or a flat tree in
    its place (``UNPARSED``; an empty line if even its words cannot be read)."""

    def __post_init__(self) -> None:
        """Raise ``InputError`` for values that cannot be."""
        if self.on_error not in get_args(OnError):
            raise InputError(f"on_error = {self.on_error!r}", remedy=f"choose one of {', '.join(get_args(OnError))}")
        if self.max_words is not None and self.max_words < 1:
            raise InputError(f"max_words = {self.max_words}", remedy="give 1 or more, or leave it out")
        if self.tokenise and self.format != "text":
            raise InputError(f"tokenise with {self.format}", remedy="leave it out: these sentences have words")

    def to_json(self) -> dict[str, Any]:
        """Settings in the form that the journal keeps."""
        own = {name: getattr(self, name) for name in ("format", "tokenise", "max_words", "on_error")}
        parser = {"parser": self.parser.name, "parser_version": parser_version(self.parser.name)}
        return {**parser, "beam": dict(self.parser.beam), **own}


class InputSentence(NamedTuple):
    """A sentence of the input, or what is wrong with it."""

    words: tuple[str, ...]
    where: str
    error: InputError | None = None


class SentenceBlock(NamedTuple):
    """Sentences that are parsed together, and how far the input has been read with them."""

    items: list[InputSentence]
    num_read: int
    digest: str


class ParsingTask(NamedTuple):
    """Sentences for a process to parse, and by which parser."""

    parser: ParserSettings
    sentences: Words
    batch_size: int


Answer = list["str | InputError"]


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
    ``on_done`` is called before the target is there. Raises ``InputError`` for a target that exists, for other settings
    or another input than it was begun with, and as ``settings.on_error`` says.
    """
    folder = target.with_name(f"{target.name}.annotating")
    _check_target(target)
    asked = settings.to_json()
    open_parser.cache_clear()  # a run may have been trained on since the last call
    busy = {
        "found": "another process is annotating here",
        "remedy": "wait for it or end it, or give another name for the output",
    }
    with hold_folder(folder, **busy):
        _check_free(target, folder)
        journal = Journal(folder, asked, packed=target.name.endswith(".gz"))
        try:
            if not target.exists():  # else it was killed while finishing
                _work(source, journal, settings, processes, cluster, batch_size, on_progress)
        except BaseException:
            journal.leave()
            raise
        for message in journal.errors():
            on_error(message)
        on_done(journal.progress)
        journal.finish(target)
    return journal.progress


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
            yield ParsingTask(parser, [item.words for item in block.items if item.error is None], batch_size)

    with mapping(processes, cluster, **_WORKER) as computed, open_bytes(source) as stream:
        blocks = read_blocks(stream, name_of(source), settings, journal.progress, where=str(journal.folder))
        for answers in computed(parse_task, tasks(blocks)):
            block = waiting.popleft()
            lines, errors = _settle(block.items, answers, settings.on_error)
            before = journal.progress
            done = replace(
                before,
                num_read=block.num_read,
                digest=block.digest,
                num_sentences=before.num_sentences + len(lines),
                num_words=before.num_words + sum(len(item.words) for item in block.items),
                num_errors=before.num_errors + len(errors),
            )
            journal.append(lines, errors, done)
            on_progress(journal.progress)
    if not journal.progress.num_sentences and not journal.progress.num_errors:
        raise no_sentences(name_of(source), [])


# Reading.


def read_blocks(
    stream: Any, name: str, settings: AnnotationSettings, progress: Progress, *, where: str = ""
) -> Iterator[SentenceBlock]:
    """The rest of the input in blocks. Raises ``InputError`` if what comes before is not what it was."""
    lines = numbered_lines(stream, name=name)
    stretches = cut(only_text(lines, name=name) if settings.is_guess else lines, settings.format)
    num_read, digest = progress.num_read, InputHash()
    for stretch in islice(stretches, num_read):
        digest.add(stretch.content)
    if num_read and digest.value != progress.digest:
        found = f"{name} is not the input that this was begun with"
        raise InputError(found, where=where, remedy="give the same input, or remove this folder to begin again")
    parser = StretchParser(name, settings.format, ReadOptions(format=settings.format))
    items: list[InputSentence] = []
    for stretch in stretches:
        num_read += 1
        digest.add(stretch.content)
        items += _items(stretch, parser, settings)
        if len(items) >= BLOCK:
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
    found: dict[int, str | InputError] = {}
    for start in range(0, len(order), task.batch_size):
        numbers = order[start : start + task.batch_size]
        found.update(zip(numbers, compute_each(parser, [task.sentences[one] for one in numbers]), strict=True))
    return [found[number] for number in range(len(task.sentences))]


def _settle(items: Sequence[InputSentence], answers: Answer, policy: OnError) -> tuple[list[str], list[InputError]]:
    """Lines to write, and errors to report. Raises the first error if that is the policy."""
    remaining = iter(answers)
    lines, errors = [], []
    for item in items:
        answer = item.error if item.error is not None else next(remaining)
        if not isinstance(answer, InputError):
            lines.append(answer)
            continue
        error = InputError(answer.found, where=answer.where or item.where, remedy=answer.remedy)
        if policy == "raise":
            raise error
        errors.append(error)
        lines += _instead(item.words, policy)
    return lines, errors


def _instead(words: Sequence[str], policy: OnError) -> list[str]:
    """Lines that stand in the place of a sentence without a tree."""
    if policy == "skip":
        return []
    return [format_tree(Tree(UNPARSED, words))] if policy == "flat" and words else [""]


def describe(settings: AnnotationSettings, progress: Progress, *, source: str, version: str) -> dict[str, Any]:
    """The provenance of the trees for those who read them, as JSON values."""
    counts = {name: getattr(progress, name) for name in ("num_sentences", "num_words", "num_errors")}
    return {"treelm_version": version, "input": source, **settings.to_json(), **counts}
