"""benepar, a parser that is installed apart, behind the method by which our own parsers annotate text."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar

from torch import nn

from treelm.errors import InputError, import_extra, is_out_of_memory
from treelm.models.scores import ParsedSentence
from treelm.trees.brackets import format_tree, read_trees
from treelm.trees.transforms import replace_words
from treelm.trees.tree import Tree

BENEPAR = "benepar"
"""The name that stands for this parser where a run folder may be given."""
MODEL = "benepar_en3"


class Benepar(nn.Module):
    """The Berkeley neural parser of English (Kitaev et al. 2019)."""

    runtime_settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        """Load the parser. Raises ``InputError`` if the package or its model is not installed."""
        super().__init__()
        self._benepar = import_extra("benepar", "benepar")
        try:
            self._parser = self._benepar.Parser(MODEL)
        except LookupError:
            remedy = f"python -c \"import benepar; benepar.download('{MODEL}')\""
            raise InputError(f"benepar has no model {MODEL}", remedy=remedy) from None

    @property
    def version(self) -> str:
        """The version of the package."""
        try:
            return version(BENEPAR)
        except PackageNotFoundError:
            return "unknown"

    def annotate(self, sentences: Sequence[Sequence[str]]) -> list[ParsedSentence]:
        """Trees with tags over our own words: benepar escapes some.

        Whatever error benepar raises becomes an ``InputError``, so that the sentence is reported, except an exhausted
        memory. Raises ``InputError``, too, for a tree with another number of words.
        """
        try:
            given = [self._benepar.InputSentence(words=list(words)) for words in sentences]
            found = [Tree.from_nltk(tree) for tree in self._parser.parse_sents(given)]
        except Exception as error:
            if is_out_of_memory(error):
                raise
            reason = str(error).partition("\n")[0] or type(error).__name__
            remedy = "give on_error = 'skip', or a max_words below"
            raise InputError(f"benepar cannot parse it ({reason})", remedy=remedy) from error
        parsed = []
        for tree, words in zip(found, sentences, strict=True):
            (read,) = read_trees(format_tree(tree, with_tags=False), separators="")
            own = None
            if not isinstance(read, InputError) and len(read.tree.words()) == len(words):
                own = replace_words(read.tree, [[word] for word in words])
            if own is None or isinstance(read, InputError):
                raise InputError("benepar has changed the number of words", remedy="give on_error = 'skip'")
            parsed.append(ParsedSentence(own, read.tags))
        return parsed
