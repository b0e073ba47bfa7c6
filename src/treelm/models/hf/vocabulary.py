"""The tokens of a causal language model's tokenizer, and one more: the end of a word.

Such tokenizers mark where a word *begins* (``Ġdog``), so that a word has ended only when the next token begins another
one, or ends the text. The probability that it does is what the model gives to all tokens of that kind together, B. Here
this event is a token of its own, as in a vocabulary of characters: ``dogs bark`` is ``dog s </w> Ġbark </w>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.arrays import offsets_of
from treelm.corpora.tokens import BLANKS
from treelm.corpora.vocabulary import Pieces, Vocabulary
from treelm.errors import InputError

END_OF_WORD = "</w>"
_BEFORE = "a"  # a word that others follow: what a token writes is seen behind it
_LONG = "zyxwvutsrqponm"  # no tokenizer has it as one token, unless it has words alone
_REMEDY = "remove it, or take a model whose tokenizer marks where words begin"


class CausalVocabulary(Vocabulary):
    """Ids are those of the model's own tokens, as many as its softmax has (V); the end of a word has the id V."""

    kind: ClassVar[str] = "hf"

    def __init__(self, tokenizer: Any, *, size: int) -> None:
        """Take a tokenizer of transformers, and the number of tokens in the model's softmax.

        Raises ``InputError`` for a tokenizer without an end of text, and for one whose tokens do not show where words
        begin.
        """
        self.tokenizer = tokenizer
        self.num_tokens = size
        begin, end, unknown = (getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "unk"))
        if end is None or end >= size:
            raise InputError("a tokenizer without an end of text (eos_token)", remedy="set its eos_token, and save it")
        self.end_of_text: int = end
        """The model's own token that ends a text."""
        self.begin: int = end if begin is None else begin
        """The token that stands before every text: the beginning of sequence, where there is none the end of text."""
        self._unknown = None if unknown in (None, end, begin) else int(unknown)
        self.begins_word = self._find_begins()
        """Mask of the tokens (V,) before which a word has ended: marked ones, and those of control."""
        first, inside = self._segment([_BEFORE, f"{_BEFORE} {_LONG}"])
        cut = len(first)
        tells = inside[:cut] == first and len(inside) > cut and max(inside) < size
        if not tells or self.begins_word[inside[cut:]].tolist() != [True, *[False] * (len(inside) - cut - 1)]:
            raise InputError("a tokenizer whose tokens do not tell where words begin", remedy=_REMEDY)
        self._prefix = first
        self.marks_first = bool(self.begins_word[first[0]])
        """True if the first word of a text is marked as any other; else it is written without the blank before it."""

    def _find_begins(self) -> NDArray[np.bool_]:
        tokenizer, found = self.tokenizer, np.zeros(self.num_tokens, dtype=np.bool_)
        number = min(len(tokenizer), self.num_tokens)
        names = tokenizer.convert_ids_to_tokens(list(range(number)))
        behind = self._segment([_BEFORE])[0]
        before = tokenizer.convert_ids_to_tokens(behind)
        start = len(tokenizer.convert_tokens_to_string(before))
        for index, name in enumerate(names):
            text = "" if name is None else tokenizer.convert_tokens_to_string([*before, name])[start:]
            found[index] = text[:1] != "" and text[0] in BLANKS
        control = [index for index, token in tokenizer.added_tokens_decoder.items() if token.special]
        for index in {*control, *tokenizer.all_special_ids, self.end_of_text} - {self._unknown}:
            if index < self.num_tokens:
                found[index] = True
        return found

    def _segment(self, texts: Sequence[str]) -> list[list[int]]:
        found = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []
        return [list(map(int, ids)) for ids in found]

    @property
    def end_of_word(self) -> int:
        """The id V of the end of a word. The end of a text has the next one, as in every vocabulary."""
        return self.num_tokens

    def __len__(self) -> int:
        """The number of tokens, the end of a word among them."""
        return self.num_tokens + 1

    def segment_text(self, words: Sequence[str]) -> list[int]:
        """The model's own tokens of a text, whose words have spaces between them, without the one before it."""
        return self._segment([" ".join(words)])[0]

    def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
        """Encode each form as the tokenizer does after another word, or at the start of a text, with an end of a word.

        Raises ``InputError`` for a form that the tokenizer does not write as one word, such as one with a space inside.
        """
        if sentence_initial:
            pieces = self._segment(forms)
        else:
            cut = len(self._prefix)
            texts = self._segment([f"{_BEFORE} {form}" for form in forms])
            pieces = [one[cut:] if one[:cut] == self._prefix else [] for one in texts]
        for form, own in zip(forms, pieces, strict=True):
            self._check(form, own, is_marked=self.marks_first or not sentence_initial)
        lengths = np.fromiter((len(own) + 1 for own in pieces), dtype=np.int64, count=len(pieces))
        ids = np.fromiter((i for own in pieces for i in (*own, self.end_of_word)), dtype=np.int32)
        return Pieces(ids=ids, offsets=offsets_of(lengths))

    def _check(self, form: str, pieces: list[int], *, is_marked: bool) -> None:
        is_word = bool(pieces) and max(pieces) < self.num_tokens and pieces[0] != self.end_of_text
        if not is_word or self.begins_word[pieces[0]] != is_marked or self.begins_word[pieces[1:]].any():
            raise InputError(f"the tokenizer does not write {form!r} as one word", remedy=_REMEDY)

    def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
        """The tokenizer's unknown token for a form that it cannot write completely, else None."""
        if self._unknown is None or self._unknown not in self.encode([form], sentence_initial=sentence_initial).ids:
            return None
        return str(self.tokenizer.unk_token)

    def token(self, index: int) -> str:
        """The name of a token in the tokenizer, such as ``Ġdog``; ``</w>`` for the end of a word."""
        if index == self.end_of_word:
            return END_OF_WORD
        name = self.tokenizer.convert_ids_to_tokens(index) if index < len(self.tokenizer) else None
        return f"<{index}>" if name is None else str(name)  # rows of the softmax that no token has

    def spell(self, tokens: Sequence[int]) -> str:
        """The word that tokens spell. Bytes that are not UTF-8 together become U+FFFD."""
        names = [self.token(index) for index in tokens if index != self.end_of_word]
        return str(self.tokenizer.convert_tokens_to_string(names)).strip(BLANKS)

    @property
    def ends_word(self) -> NDArray[np.bool_]:
        """Mask of the tokens (V + 1,): True for the end of a word alone."""
        return np.equal(np.arange(len(self)), self.end_of_word)

    @property
    def position_matters(self) -> bool:
        """Whether the first word of a text has other tokens than the same word after another one."""
        return not self.marks_first

    @cached_property
    def _content(self) -> dict[str, Any]:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        rules = type(self.tokenizer).__name__ if backend is None else backend.to_str()
        special = {"begin": self.begin, "end": self.end_of_text, "size": self.num_tokens}
        return {"kind": self.kind, "tokens": self.tokenizer.get_vocab(), "rules": rules, **special}

    def to_json(self) -> dict[str, Any]:
        """The tokens and rules of the tokenizer, for the fingerprint. The tokenizer is stored in files of its own."""
        return self._content
