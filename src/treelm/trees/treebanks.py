"""What the files of treebanks hold beside the text and its trees, and the signs by which a treebank is known."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

from treelm.errors import check_choice

TreebankName = Literal["auto", "icepahc", "keyaki", "ppche", "switchboard", "ctb", "penn"]
EMPTY_TAG: Final = "-NONE-"  # tag of traces and other empty elements in the style of the Penn Treebank
AUTO: Final = "auto"
_LEAF = re.compile(rb"\((?!ID\b|-NONE-)[^\s()]+ ([^\s()]+)\)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Treebank:
    """How a treebank writes its trees. What is annotation is left out where they are read, and counted."""

    name: str
    sign: re.Pattern[bytes] | None = None  # found in the first lines of a file of this treebank, and of no other
    has_bare_traces: bool = False
    """Traces have no tag of their own: words that begin with ``*``, and ``0`` that is not a number, are dropped."""
    metadata: frozenset[str] = frozenset()
    """Labels of brackets that hold no text: numbers of sentences, comments, marks of disfluency."""
    lemma: str = ""  # what separates a word from the lemma behind it
    separators: str = "-="  # characters at which function tags and indices are cut off labels
    markup: re.Pattern[bytes] = re.compile(rb"\s*(?:[#%;<]|//|\*x\*|\(\s*(?:@[^()]*|END_OF_TEXT_UNIT)\s*\)\s*$)")
    """Begins a line between trees that is none: a comment, markup, a header, a number or the end of a text of ATIS."""
    encoding: str = ""  # encoding of files that are not in UTF-8

    def is_of(self, head: bytes) -> bool:
        """Tell whether the first lines of a file have the sign of this treebank, or lemmas behind most of their words.

        Lemmas are in lower case. A few words are no evidence, because they may have hyphens of their own.
        """
        if self.sign is not None and self.sign.search(head):
            return True
        leaves = _LEAF.findall(head) if self.lemma else []
        words = [leaf.decode(errors="replace").rpartition(self.lemma) for leaf in leaves]
        return len(words) > 3 and 2 * sum(bool(form) and lemma.islower() for form, _, lemma in words) > len(words)

    @property
    def is_plain(self) -> bool:
        """Tell whether every word with a tag is a word of the text, but for those tagged ``-NONE-``."""
        return not (self.has_bare_traces or self.metadata or self.lemma)

    @property
    def divides_trees(self) -> bool:
        """Tell whether blank lines divide trees, which have numbers of their own, and not documents."""
        return "ID" in self.metadata

    def text_of(self, tag: str, word: str, left_out: Counter[str]) -> str | None:
        """The word of the text that stands under a tag, or None where that is annotation; counts what is left out."""
        is_bare = word.startswith("*") or (word == "0" and not tag.startswith("NUM"))
        if tag == EMPTY_TAG or (self.has_bare_traces and is_bare):
            left_out["traces"] += 1
            return None
        if tag in self.metadata:
            left_out[f"({tag} ...)"] += 1
            return None
        half = word[: len(word) // 2]
        if self.lemma and half and word.casefold() == f"{half}{self.lemma}{half}".casefold():  # e-mail-e-mail
            left_out["lemmas"] += 1
            return half
        form, separator, lemma = word.rpartition(self.lemma) if self.lemma else (word, "", "")
        if separator and not lemma:  # of punctuation that is the separator: --- is a dash and its lemma
            form, separator, lemma = word[:-1].rpartition(self.lemma)
        if not (form and separator):
            return word
        left_out["lemmas"] += 1
        return form


PENN: Final = Treebank(name="penn")
_IDS = frozenset({"ID", "CODE", "COMMENT", "VERSION"})
TREEBANKS: Final = {
    treebank.name: treebank
    for treebank in (
        Treebank(  # Icelandic Parsed Historical Corpus: (VBDI lá-liggja), (. .-.), (ID 1888.GRIMUR.NAR-FIC,.1)
            name="icepahc", sign=re.compile(rb"\([.,] ([^\s()])-\1\)"), has_bare_traces=True, metadata=_IDS, lemma="-"
        ),
        Treebank(  # Keyaki and NPCMJ: (NP;*SBJ* ...), (NP-SBJ *pro*), (ID 1_aozora_Akutagawa-1922;JP)
            name="keyaki",
            sign=re.compile(rb"\(ID [^\s()]+;[A-Z]+\)"),
            has_bare_traces=True,
            metadata=_IDS,
            separators="-=;{",
        ),
        Treebank(  # Penn Parsed Corpora of Historical English, YCOE, and those of other languages in their style
            name="ppche",
            sign=re.compile(rb"\(ID [^\s()]+\)\s*\)|\((?!-NONE-)[^\s()]+ \*(?:T|ICH|con|pro|exp|arb)\*(?:-\d+)?\s*\)"),
            has_bare_traces=True,
            metadata=_IDS,
        ),
        Treebank(  # Switchboard in Penn Treebank 3: (CODE (SYM SpeakerA1) (. .)), (-DFL- E_S), a box of *x*
            name="switchboard",
            sign=re.compile(rb"\(-DFL- |\(CODE \(SYM Speaker"),
            metadata=frozenset({"CODE", "-DFL-"}),
        ),
        Treebank(  # Penn Chinese Treebank: <S ID=1> around trees, in GB 18030 or its parts up to release 5
            name="ctb", sign=re.compile(rb"^\s*<(?:DOC|DOCID|S ID=[^>]*)>", re.MULTILINE), encoding="gb18030"
        ),
        PENN,
    )
}
"""Treebanks by name. The first whose sign is found in a file is meant; ``penn`` has none."""


def treebank_of(name: str, head: bytes) -> Treebank:
    """The treebank of a name or, for ``auto``, the first one whose sign is in the first lines of a file.

    Raises ``InputError`` for another name.
    """
    check_choice("treebank", name, (AUTO, *TREEBANKS))
    if name != AUTO:
        return TREEBANKS[name]
    return next((one for one in TREEBANKS.values() if one.is_of(head)), PENN)


TRACE_LIKE: Final = re.compile(r"\*(?:T|ICH|RNR|EXP|PRO|OP|U|PPA|\?|pro|con|exp|arb)\*(?:-\d+)?|\*-\d+", re.ASCII)
"""Words that look like traces, where no annotation is known to be."""


# Brackets of the text that are not escaped. Structure has a blank in each bracket, between a label and what it is over.
_SIGNS = rb"(?:-[LR][RSC]B-|PU[A-Z]*|PONCT|SYM|NFP|\$[^\s()]*|[^\w\s()]+)"  # tags of punctuation
_UNESCAPED = (
    (re.compile(rb"(\(" + _SIGNS + rb"\s+[^\s()]*)\((?=\))"), rb"\1-LRB-"),  # (-LRB- (), (NFP :()
    (re.compile(rb"(\(" + _SIGNS + rb"\s+)\)(?=\))"), rb"\1-RRB-"),  # (-RRB- ))
    *[(re.compile(rb"\(([^\s()]*)\)"), rb"-LRB-\1-RRB-")] * 4,  # (PRP (Dia)), (NNP Solano(r)), four in each other
)


def repair_brackets(line: bytes) -> bytes:
    """A line in which brackets that can only be text are written ``-LRB-`` and ``-RRB-``.

    >>> repair_brackets(b"(NP (NNP Solano(r)) (-LRB- () (PRP (Dia)) (-RRB- )))")
    b'(NP (NNP Solano-LRB-r-RRB-) (-LRB- -LRB-) (PRP -LRB-Dia-RRB-) (-RRB- -RRB-))'
    """
    for pattern, written in _UNESCAPED:
        line = pattern.sub(written, line)
    return line
