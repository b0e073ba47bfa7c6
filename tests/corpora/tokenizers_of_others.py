"""Tokenizers as other people make them, trained here on a few words. Importing this skips tests without the library."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

_library: Any = pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
Tokenizer, decoders, models, normalizers = (
    getattr(_library, name) for name in ("Tokenizer", "decoders", "models", "normalizers")
)
pre_tokenizers, processors, trainers = (
    getattr(_library, name) for name in ("pre_tokenizers", "processors", "trainers")
)

TEXT = (
    "the dog saw the dogs and the unbelievable cats ; the cats ' dog did n't see state-of-the-art 1984 moons",
    "a dog is believed to be seen , and Zürich barks at 7 moons",
)
END = "<|endoftext|>"


def byte_level(text: Iterable[str] = TEXT) -> Any:
    """Byte-level BPE, as GPT-2 has it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=alphabet, special_tokens=[END], show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(list(text) * 2, trainer)
    return tokenizer


def metaspace() -> Any:
    """A unigram model whose tokens begin words with ▁, as T5 and others have it."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=["<pad>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(list(TEXT) * 3, trainer)
    return tokenizer


def wordpiece() -> Any:
    """WordPiece as BERT has it, which lower-cases and marks the tokens that go on."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False)
    tokenizer.train_from_iterator(list(TEXT) * 3, trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ends)
    return tokenizer


def marked_ends() -> Any:
    """BPE that marks the ends of words, as the first GPT has it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=150, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(list(TEXT) * 3, trainer)
    return tokenizer


def saved(tokenizer: Any, folder: Path) -> Path:
    """The ``tokenizer.json`` of a tokenizer, in a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"
