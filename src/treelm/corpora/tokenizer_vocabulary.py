"""A vocabulary that another tokenizer gives, such as GPT-2's byte-level BPE, read by the ``tokenizers`` library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.vocabulary import Pieces, Vocabulary
from treelm.errors import InputError, import_extra, is_out_of_memory
from treelm.io.json import read_json

_REMEDY = "give a tokenizer whose tokens mark the beginnings of words: by byte-level BPE, as GPT-2's, or by Metaspace"
_FILES = "give a tokenizer.json, or a folder with it"
_BYTE_BLANK = "Ġ"  # how byte-level BPE writes a blank
_NO_TEXT = "ÿ"  # how it writes byte 255, which no text holds: here a blank within a word


class TokenizerVocabulary(Vocabulary):
    """The tokens of another tokenizer; each word is segmented by itself, as it is within a text.

    If tokens mark where a word *begins*, only the token after a word shows that the word has ended, and no model could
    tell the probability of a word without it. Here the tokens of a word are therefore read last first (``dogs`` is
    ``s``, ``Ġdog``): the marked token comes last and ends the word, as in every other vocabulary. The segmentation is
    that of the tokenizer, and the probability of a word is the product over its tokens.

    Control tokens of the tokenizer have no ids here, except the unknown token; the other tokens keep their order. A
    word that the tokenizer does not write completely, as one word, is unknown; byte-level tokenizers write every word.
    """

    kind: ClassVar[str] = "tokenizer"

    def __init__(self, content: dict[str, Any]) -> None:
        """Take the content of a ``tokenizer.json``. Raises ``InputError`` for what cannot be a vocabulary of words."""
        self._content = _essence(content)
        self._tokenizer = _load(self._content)
        model = self._content["model"]
        by_id = sorted((index, token) for token, index in self._tokenizer.get_vocab(with_added_tokens=False).items())
        self._unknown = _unknown_token(model)
        control = set(self._content["control"]) - {self._unknown}
        kept = [(index, token) for index, token in by_id if token not in control]
        if not kept:
            raise InputError("a tokenizer without tokens", remedy=_REMEDY)
        self._tokens: list[str] = [token for _, token in kept]
        self._own_ids = {index: own for own, (index, _) in enumerate(kept)}
        self._sign, self._has_bytes = _sign(self._content, set(self._tokens))
        self._before = " " if self._has_bytes else ""  # what stands before a word in a text for its token to be marked
        self._unknown_id = -1 if self._unknown is None else self._tokens.index(self._unknown)
        marked = [token.startswith(self._sign) or token == self._unknown for token in self._tokens]
        self._ends_word = np.array(marked, dtype=np.bool_)

    @classmethod
    def read(cls, path: Path) -> TokenizerVocabulary:
        """Read a ``tokenizer.json``, or the folder of one. Raises ``InputError`` for what is no tokenizer."""
        content = read_json(path / "tokenizer.json" if path.is_dir() else path, remedy=_FILES)
        try:
            return cls(content)
        except InputError as error:
            raise InputError(error.found, where=str(path), remedy=error.remedy) from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError("not a tokenizer file", where=str(path), remedy=_FILES) from error

    def __len__(self) -> int:
        """Number of tokens, without those of control."""
        return len(self._tokens)

    def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
        """Write each form as the tokenizer does within a text, with the token that marks the word last.

        Raises ``InputError`` for a form that is not written as one word, if the tokenizer has no unknown token.
        """
        pieces = self._segmented([self._before + form for form in forms])
        for number, form in enumerate(forms):
            if " " in form and self._has_bytes:
                pieces[number] = self._with_blanks(form)
            pieces[number].reverse()
            if not self._is_word(pieces[number]):
                if self._unknown_id < 0:
                    raise InputError(f"the tokenizer does not write {form!r} as one word", remedy=_REMEDY)
                pieces[number] = [self._unknown_id]
        return Pieces.of(pieces)

    def _segmented(self, texts: list[str]) -> list[list[int]]:
        encoded = self._tokenizer.encode_batch(texts, add_special_tokens=False) if texts else []
        return [[self._own_ids.get(index, -1) for index in one.ids] for one in encoded]

    def _with_blanks(self, form: str) -> list[int]:
        """A word with blanks inside, which would be several words: byte 255 stands in their place."""
        first, *others = self._segmented([self._before + form.partition(" ")[0], *form.split(" ")[1:]])
        blank = self._tokens.index(_NO_TEXT)
        return [*first, *(piece for part in others for piece in (blank, *part))]

    def _is_word(self, pieces: list[int]) -> bool:
        """Tell whether the tokens write one word, and nothing in it is unknown."""
        ends = self._ends_word[pieces]
        return (
            bool(pieces) and min(pieces) >= 0 and self._unknown_id not in pieces and bool(ends[-1] and ends.sum() == 1)
        )

    def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
        """The tokenizer's unknown token for a form that it does not write, else None."""
        return self._unknown if self.encode([form]).ids[0] == self._unknown_id else None

    def token(self, index: int) -> str:
        """The token as the tokenizer calls it, such as ``Ġdog``."""
        return self._tokens[index]

    def spell(self, tokens: Sequence[int]) -> str:
        """The word that the tokens write; bytes that are no UTF-8 together become U+FFFD."""
        from tokenizers import decoders

        names = [self._tokens[index] for index in reversed(tokens)]
        if not self._has_bytes:
            return str(decoders.Sequence([decoders.ByteFallback()]).decode(names)).removeprefix(self._sign)
        parts = "".join(names).split(_NO_TEXT)
        return " ".join(str(decoders.ByteLevel().decode([part])) if part else "" for part in parts).removeprefix(" ")

    @property
    def ends_word(self) -> NDArray[np.bool_]:
        """Mask of the tokens (V,): true for those that the tokenizer marks, and for the unknown one."""
        return self._ends_word

    def to_json(self) -> dict[str, Any]:
        """The kind and the tokenizer, as JSON values."""
        return {"kind": self.kind, "tokenizer": self._content}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TokenizerVocabulary:
        """Build the vocabulary that ``to_json`` has described."""
        return cls(content["tokenizer"])


def _essence(content: dict[str, Any]) -> dict[str, Any]:
    """What segments one word: without tokens that are looked for in a text, templates, and segmentation by chance."""
    if "control" in content:  # written by us
        return content
    control = [one["content"] for one in content.get("added_tokens", []) if one.get("special")]
    model = {name: value for name, value in content["model"].items() if name != "dropout"}
    steps = {name: content.get(name) for name in ("normalizer", "pre_tokenizer")}
    return {**steps, "model": model, "control": sorted(control)}


def _steps(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps by which a text is cut, those in sequences too."""
    waiting = [content.get("pre_tokenizer"), content.get("normalizer")]
    while waiting:
        step = waiting.pop()
        if step is not None:
            yield step
            waiting += [*step.get("pretokenizers", []), *step.get("normalizers", [])]


def _load(content: dict[str, Any]) -> Any:
    kind = import_extra("tokenizers", "tokenizers").Tokenizer
    parts = {name: content[name] for name in ("normalizer", "pre_tokenizer", "model")}
    try:
        return kind.from_str(json.dumps({"version": "1.0", "added_tokens": [], **parts}, ensure_ascii=False))
    except Exception as error:  # it has no class of its own
        if is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())
        raise InputError(f"a tokenizer that does not load ({reason})", remedy=_REMEDY) from error


def _unknown_token(model: dict[str, Any]) -> str | None:
    if model["type"] == "Unigram":
        index = model.get("unk_id")
        return None if index is None else str(model["vocab"][index][0])
    name = model.get("unk_token")
    return name if name in model["vocab"] else None


def _sign(content: dict[str, Any], tokens: set[str]) -> tuple[str, bool]:
    """What the first token of a word begins with, and whether tokens are bytes.

    Raises ``InputError`` for a tokenizer that does not mark the beginnings of words, or that would lose characters.
    """
    from tokenizers import pre_tokenizers

    model, steps = content["model"], {step["type"]: step for step in _steps(content)}
    has_other_marks = model["type"] == "WordPiece" or model.get("end_of_word_suffix")
    if "ByteLevel" in steps and not has_other_marks:
        if num_missing := len(set(pre_tokenizers.ByteLevel.alphabet()) - tokens):
            raise InputError(f"a byte-level tokenizer without {num_missing} of the 256 bytes", remedy=_REMEDY)
        return _BYTE_BLANK, True
    if _unknown_token(model) is None:
        raise InputError("a tokenizer that leaves out characters that it does not know", remedy=_REMEDY)
    metaspace = steps.get("Metaspace", {"prepend_scheme": "never"})
    if has_other_marks or (metaspace.get("prepend_scheme") == "never" and "Prepend" not in steps):
        raise InputError("a tokenizer whose tokens do not tell where words begin", remedy=_REMEDY)
    return steps["Prepend"]["prepend"] if "Prepend" in steps else metaspace["replacement"], False
