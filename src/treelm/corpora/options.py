"""Options of reading files, the same for subcommands and in Python; costs no import."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from treelm.trees.treebanks import TreebankName

FileFormat = Literal["auto", "text", "brackets", "conllu"]


@dataclass(frozen=True, kw_only=True)
class TreebankOptions:
    """Options of what is text in files of treebanks."""

    treebank: TreebankName = "auto"
    """Treebank whose annotation (traces, numbers of sentences, lemmas, markup) is left out of brackets. auto:
    detected from the first lines; penn: drop only words tagged -NONE-."""
    encoding: str = ""
    """Encoding of text, treebanks and tables, such as gb18030, latin-1, utf-16; without it UTF-8."""
    label_separators: str = ""
    """Characters at which function tags are cut off labels, such as -=*|:#; without it those of the treebank."""

    repair_brackets: bool = False
    """Read brackets that stand unescaped in words, as in (NNP Solano(r)) and (-LRB- (), as text."""

    def of_treebank(self) -> dict[str, Any]:
        """Those that are given."""
        given = ((one, getattr(self, one.name)) for one in fields(TreebankOptions))
        return {one.name: value for one, value in given if value != one.default}
