"""Parsers that annotate text: runs of this package, and benepar. Each gives brackets on one line a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from treelm.errors import InputError, import_extra, is_out_of_memory
from treelm.inference.loading import load, model_hash
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser, annotate, require, set_search
from treelm.models.layers.devices import DeviceName
from treelm.models.persistence.shipped import find_run
from treelm.models.persistence.storage import read_system
from treelm.models.scores import Confidence
from treelm.models.search.config import SearchConfig
from treelm.trees.brackets import TOP_LABELS, format_tree
from treelm.trees.transforms import replace_words
from treelm.trees.tree import Tree

Sentences = Sequence[Sequence[str]]


class ParsedLine(NamedTuple):
    """A tree in brackets, a tag over each word, and how sure the parser is of it, if it says so."""

    line: str
    confidence: Confidence | None = None


LineParser = Callable[[Sentences], list[ParsedLine]]  # function from sentences to their trees

BENEPAR_MODEL = "benepar_en3"


@dataclass(frozen=True, kw_only=True)
class ParserSettings:
    """Name and settings of a parser, from which any process opens it."""

    name: str
    """A run folder, the name of a model in the package, or ``benepar``."""
    search: SearchConfig | None = None
    """Search of a run; without one, as its recipe asks."""
    device: DeviceName = "cpu"
    """Device on which a run computes."""


@lru_cache(maxsize=1)
def open_parser(settings: ParserSettings) -> LineParser:
    """Load a parser, once a process. Raises ``InputError`` for one that is not there or has no trees."""
    return EXTERNAL[settings.name]() if settings.name in EXTERNAL else _run(settings)


def parser_version(name: str) -> str:
    """The hash of a run's weights, or a package's version. Raises ``InputError`` for a run that is not there."""
    if name in EXTERNAL:
        try:
            return version(name)
        except PackageNotFoundError:
            return "unknown"
    return model_hash(name)


def parser_class(name: str) -> type[LanguageModel] | None:
    """The system of a run, or None for other parsers. Raises ``InputError`` for a run that is not there."""
    return None if name in EXTERNAL else read_system(find_run(name))


def _run(settings: ParserSettings) -> LineParser:
    """A trained model of this package. Where its trees have no tags, the tag is X."""
    lm = load(settings.name, device=settings.device)
    require(lm, Parser)
    if settings.search is not None:
        set_search(lm, settings.search)
    return lambda sentences: [
        ParsedLine(format_tree(one.tree, one.tags), one.confidence) for one in annotate(lm, sentences)
    ]


def _benepar() -> LineParser:
    """The Berkeley neural parser (Kitaev et al. 2019), English."""
    benepar = import_extra("benepar", "benepar")
    try:
        parser = benepar.Parser(BENEPAR_MODEL)
    except LookupError:
        remedy = f"python -c \"import benepar; benepar.download('{BENEPAR_MODEL}')\""
        raise InputError(f"benepar has no model {BENEPAR_MODEL}", remedy=remedy) from None

    def parse(sentences: Sentences) -> list[Tree]:
        found = parser.parse_sents([benepar.InputSentence(words=list(words)) for words in sentences])
        return [Tree.from_nltk(tree) for tree in found]

    return partial(_lines, "benepar", parse)


EXTERNAL: dict[str, Callable[[], LineParser]] = {"benepar": _benepar}  # parsers that are installed apart, as extras


def _lines(name: str, parse: Callable[[Sentences], list[Tree]], sentences: Sentences) -> list[ParsedLine]:
    """The trees of another parser, which have a tag over each word, written over our own words: parsers escape some.

    Its errors become ``InputError``, so that the sentence is reported, but for an exhausted memory.
    """
    try:
        trees = parse(sentences)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(
            f"{name} cannot parse it ({reason})", remedy="give on_error = 'skip', or a max_words below"
        ) from error
    try:
        own = [replace_words(tree, [[one] for one in words]) for tree, words in zip(trees, sentences, strict=True)]
    except ValueError:
        raise InputError(f"{name} has changed the number of words", remedy="give on_error = 'skip'") from None
    return [ParsedLine(format_tree(_without_top(tree), with_tags=False)) for tree in own if tree is not None]


def _without_top(tree: Tree) -> Tree:
    """The tree without its outer bracket, unless a tag alone would be left."""
    child = tree.children[0]
    is_outer = tree.label in TOP_LABELS and len(tree.children) == 1
    return child if is_outer and isinstance(child, Tree) and isinstance(child.children[0], Tree) else tree
