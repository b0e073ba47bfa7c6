"""A vocabulary of subwords by SentencePiece, whose pieces mark the end of a word."""

from __future__ import annotations

import base64
import io
import logging
import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.running_text import PLAIN_MARKS
from treelm.corpora.tokens import words_of
from treelm.corpora.vocabulary import FormCounts, Pieces, SubwordModel, Vocabulary
from treelm.errors import InputError

_logger = logging.getLogger(__name__)
END_OF_WORD = "▁"  # SentencePiece's sign for whitespace, here a suffix
_NOT_IN_WORDS = frozenset(f"{END_OF_WORD} \t\r\n\0")  # the trainer takes them for something else
_HALF_CHARACTERS = re.compile("[\ud800-\udfff]")  # as JSON may hold, of a pair that was cut
_NUM_BYTES = 256
_REMEDY = "build the vocabulary again"
# Sums of the trainer depend on how many threads share the work, so their number is part of the result.
_NUM_THREADS = 4
_MAX_TRAINING_TOKENS = 1 << 22  # the trainer's memory grows with the sum of the counts, about 100 bytes for each


class SubwordVocabulary(Vocabulary):
    """Pieces of words: frequent words are one piece, any other form is written in several, at worst byte by byte.

    Each word is segmented by itself and the last piece of a word ends with ``▁``, no other does. So no word is unknown,
    and a reader knows after each piece whether the word may go on.

    Typographic marks that have no piece, as the training text had plain ones, are read as the plain ones: ``It’s`` as
    ``It's``. As bytes they would make the word a very rare one.
    """

    kind: ClassVar[str] = "subword"

    def __init__(self, model: bytes) -> None:
        """Load a serialised SentencePiece model that was trained by ``build``."""
        from sentencepiece import SentencePieceProcessor  # here because it is for these vocabularies alone

        try:
            self._processor = SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise InputError("a SentencePiece model that does not load", remedy=_REMEDY) from error
        self._model = model
        self._byte_ids = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(_NUM_BYTES)]
        self._end_id = self._processor.piece_to_id(END_OF_WORD)
        if not all(self._processor.is_byte(index) for index in self._byte_ids):
            raise InputError("a SentencePiece model without byte fallback", remedy=_REMEDY)
        read_as = {mark: plain for mark, plain in PLAIN_MARKS.items() if self._has(plain) and not self._has(mark)}
        self._read_as = str.maketrans(read_as)

    def _has(self, characters: str) -> bool:
        """Tell whether every one of these characters is a piece."""
        return self._processor.unk_id() not in self._processor.piece_to_id(list(characters))

    @classmethod
    def build(
        cls,
        counts: FormCounts,
        *,
        max_size: int,
        min_count: int = 1,
        model: SubwordModel = "unigram",
        characters: str = "",
        split_digits: bool = False,
    ) -> SubwordVocabulary:
        """Train exactly ``max_size`` tokens (256 of them bytes) on the forms that occur ``min_count`` times.

        All ``characters`` are tokens even if the forms have none of them. With ``split_digits``, every digit is a
        token of its own and no token has a digit beside another character.

        Warns of typographic marks among ``characters`` that the forms lack, whose pieces are never trained. Raises
        ``InputError`` for a size that SentencePiece cannot train on these forms.
        """
        from sentencepiece import SentencePieceTrainer

        if unseen := sorted((PLAIN_MARKS.keys() & characters) - set("".join(counts.forms))):
            told = "[vocabulary] characters: training lacks %s; leave them out, to read them as plain marks"
            _logger.warning(told, " ".join(unseen))
        written = io.BytesIO()
        try:
            SentencePieceTrainer.train(
                sentence_iterator=_weighted_forms(counts, min_count),
                model_writer=written,
                input_format="tsv",
                model_type=model,
                vocab_size=max_size,
                byte_fallback=True,
                required_chars=characters,
                split_digits=split_digits,
                treat_whitespace_as_suffix=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                num_threads=_NUM_THREADS,
                minloglevel=2,
            )
        except RuntimeError as error:
            message = " ".join(str(error).split())
            most = re.search(r"value <= (\d+)", message)
            found = f"SentencePiece cannot build {max_size} subwords from this corpus ({message})"
            remedy = f"to {most[1]} or less" if most else "higher, or give more text"
            raise InputError(found, remedy=f"set vocabulary.max_size {remedy}") from error
        return cls(written.getvalue())

    def __len__(self) -> int:
        """Number of pieces, with bytes and SentencePiece's own ``<unk>``, which byte fallback never uses."""
        return int(self._processor.vocab_size())

    def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
        """Write each form as pieces, or as bytes where it holds a blank or the sign of the end of a word.

        On one thread: SentencePiece would start threads for every call, which takes longer than a sentence.
        """
        forms = [form if form.isascii() else form.translate(self._read_as) for form in forms]
        taken = forms
        try:
            pieces: list[list[int]] = self._processor.encode(taken, num_threads=1) if taken else []
        except TypeError:  # half a character, which is none of UTF-8: for SentencePiece a blank stands there
            taken = [_HALF_CHARACTERS.sub(" ", form) for form in forms]
            pieces = self._processor.encode(taken, num_threads=1)
        for index, form in enumerate(taken):
            if not _NOT_IN_WORDS.isdisjoint(form):
                pieces[index] = self._spell(forms[index])
        return Pieces.of(pieces)

    def _spell(self, form: str) -> list[int]:
        """Bytes for a form with a character that would pass for the end of a word."""
        return [*(self._byte_ids[byte] for byte in form.encode(errors="surrogatepass")), self._end_id]

    def spelled(self, form: str) -> str:
        """The characters of a form, or of several with blanks between, that have no piece and are written as bytes."""
        form = "".join(words_of(form))
        if not np.isin(self.encode([form]).ids, self._byte_ids).any():
            return ""
        pieces = self.encode(list(form))
        byte_counts = np.concatenate(([0], np.cumsum(np.isin(pieces.ids, self._byte_ids))))[pieces.offsets]
        return "".join(character for character, num in zip(form, np.diff(byte_counts), strict=True) if num)

    def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
        """Return None, whatever the form: bytes write every one."""
        return None

    def token(self, index: int) -> str:
        """The piece, ``▁`` at the end of a word; bytes as ``<0xE6>``."""
        return str(self._processor.id_to_piece(index))

    def spell(self, tokens: Sequence[int]) -> str:
        """The word without the end mark; bytes that are no UTF-8 together become U+FFFD."""
        byte_of = {index: byte for byte, index in enumerate(self._byte_ids)}
        parts = (bytes([byte_of[i]]) if i in byte_of else self.token(i).encode() for i in tokens)
        return b"".join(parts).decode(errors="replace").removesuffix(END_OF_WORD)

    @cached_property
    def ends_word(self) -> NDArray[np.bool_]:
        """Mask of the tokens (V,): true for pieces that end with ``▁``."""
        return np.array([self.token(index).endswith(END_OF_WORD) for index in range(len(self))], dtype=np.bool_)

    def to_json(self) -> dict[str, Any]:
        """The kind and the SentencePiece model in base64, as JSON values."""
        return {"kind": self.kind, "model": base64.b64encode(self._model).decode("ascii")}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> SubwordVocabulary:
        """Build the vocabulary that ``to_json`` has described; raises ``ValueError`` for a model that is damaged."""
        vocabulary = cls(base64.b64decode(content["model"], validate=True))
        for index in range(len(vocabulary)):
            vocabulary.token(index)  # half a piece is found here
        return vocabulary


def _weighted_forms(counts: FormCounts, min_count: int) -> Iterator[str]:
    """Forms with their weights: counts, in proportion when there are too many tokens for the trainer."""
    share = min(1.0, _MAX_TRAINING_TOKENS / max(int(counts.counts.sum()), 1))
    for form, count in zip(counts.forms, counts.counts.tolist(), strict=True):
        if count >= min_count and _NOT_IN_WORDS.isdisjoint(form):
            yield f"{form}\t{math.ceil(count * share)}"
