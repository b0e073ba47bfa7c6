"""The vocabulary that a recipe asks for, and its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from treelm.configs import Size, configuration, require
from treelm.corpora.subword_vocabulary import SubwordVocabulary
from treelm.corpora.tokenizer_vocabulary import TokenizerVocabulary
from treelm.corpora.vocabulary import FormCounts, SubwordModel, Vocabulary, fingerprint_of
from treelm.corpora.word_vocabulary import AffixVocabulary, CharacterVocabulary, Unknown, WordVocabulary
from treelm.errors import InputError
from treelm.io.atomic import open_atomic
from treelm.io.json import read_json

Kind = Literal["word", "character", "subword", "tokenizer", "affixes", "saved"]
FILE_NAME = "vocabulary.json"
_FORMAT = "treelm-vocabulary"
_FORMAT_VERSION = 1
_OF_FILES = ("tokenizer", "saved")
_LEAST_SUBWORDS = 258  # 256 bytes, the end of a word, and SentencePiece's own unknown token


@configuration
class VocabularyConfig:
    """The tokens that a model reads and predicts; built from the training data alone, or read from a file."""

    kind: Kind = "word"
    """Whole words, characters, subwords by SentencePiece, or the tokens of another tokenizer, which is in ``file``;
    ``affixes``, for parsers that do not predict words: words with their affixes and shapes, by which unknown words are
    told apart; ``saved``, that of another run, whose vocabulary.json is ``file``."""
    min_count: Size = 2
    """Words (characters, for a character vocabulary) that occur less often are unknown; subwords train without them."""
    max_size: Size | None = None
    """Keep at most this many words or characters, the most frequent ones; for subwords the exact number of pieces."""
    unknown: Unknown = "single"
    """One token for all unknown words, Berkeley-style classes by their surface ("berkeley", with English suffixes), or
    the same with suffixes that are learned from the unknown words of the training data; for kind = "word"."""
    affix_rows: Size = 4096
    """Rows that affixes and shapes are hashed into; for kind = "affixes"."""
    subword_model: SubwordModel = "unigram"
    """Way in which SentencePiece chooses pieces; for kind = "subword"."""
    characters: str = ""
    """Characters that are pieces even if the training data lack them, so that no word is written in bytes for having
    one; for kind = "subword"."""
    split_digits: bool = False
    """Whether each digit is a piece of its own, so that all numbers of a length have as many; for kind = "subword"."""
    file: str | None = None
    """Path of a Hugging Face tokenizer.json, or of a folder with it; for kind = "tokenizer". That of a run, or its
    folder; for kind = "saved"."""

    def __post_init__(self) -> None:
        """Check combinations."""
        has_size = self.max_size is not None and self.max_size >= _LEAST_SUBWORDS
        remedy = f"the number of pieces, at least {_LEAST_SUBWORDS}, for kind = 'subword'"
        require(self, "max_size", self.kind != "subword" or has_size, remedy)
        of_file = self.kind in _OF_FILES
        remedy = f"none for kind = {self.kind!r}: the vocabulary has the tokens of its file"
        require(self, "max_size", not of_file or self.max_size is None, remedy)
        remedy = f"'single' for kind = {self.kind!r}: classes of unknown words are for kind = 'word'"
        require(self, "unknown", self.unknown == "single" or self.kind == "word", remedy)
        remedy = f"a path for kind = 'tokenizer' and 'saved', and for them alone: this is kind = {self.kind!r}"
        require(self, "file", of_file == (self.file is not None), remedy)


def build_vocabulary(config: VocabularyConfig, counts: FormCounts) -> Vocabulary:
    """Build the vocabulary of a corpus from the counts of its training split (``PreparedCorpus.form_counts``).

    Raises ``InputError`` if there are no words, and for a file that is not the vocabulary or tokenizer that it should
    be.
    """
    if not len(counts.forms):
        raise InputError("a vocabulary from no words at all", remedy="give training data with words")
    limits: dict[str, Any] = {"min_count": config.min_count, "max_size": config.max_size}
    match config.kind:
        case "saved":
            file = Path(str(config.file))
            return load_vocabulary(file / FILE_NAME if file.is_dir() else file)
        case "tokenizer":
            return TokenizerVocabulary.read(Path(str(config.file)))
        case "character":
            return CharacterVocabulary.build(counts, **limits)
        case "subword":
            options: dict[str, Any] = {"characters": config.characters, "split_digits": config.split_digits}
            return SubwordVocabulary.build(counts, **limits, model=config.subword_model, **options)
        case "affixes":
            return AffixVocabulary.build(counts, **limits, num_rows=config.affix_rows)
    return WordVocabulary.build(counts, **limits, unknown=config.unknown)


def vocabulary_from_json(content: Any, *, where: str | None = None) -> Vocabulary:
    """The inverse of ``Vocabulary.to_json``; raises InputError for anything else."""
    remedy = "give a vocabulary that treelm wrote"
    try:
        kind = _CLASSES[content["kind"]]
    except (KeyError, TypeError) as error:
        raise InputError("not a vocabulary", where=where, remedy=remedy) from error
    try:
        return kind.from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found = error.found if isinstance(error, InputError) else f"{content['kind']} vocabulary with missing parts"
        raise InputError(found, where=where, remedy=remedy) from error


_CLASSES = {
    one.kind: one
    for one in (WordVocabulary, AffixVocabulary, CharacterVocabulary, SubwordVocabulary, TokenizerVocabulary)
}


def save_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    """Write one JSON file with the content and its fingerprint, atomically."""
    content = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "fingerprint": vocabulary.fingerprint(),
        "vocabulary": vocabulary.to_json(),
    }
    with open_atomic(path) as file:
        file.write((json.dumps(content, ensure_ascii=False) + "\n").encode())


def load_vocabulary(path: Path) -> Vocabulary:
    """Read what ``save_vocabulary`` wrote; raises InputError for a missing, truncated, changed or foreign file."""
    where, remedy = str(path), "restore the file from its run, or build the vocabulary again"
    content = read_json(path, remedy=remedy)
    if content.get("format") != _FORMAT:
        raise InputError("not a treelm vocabulary file", where=where, remedy=remedy)
    if content.get("format_version") != _FORMAT_VERSION:
        found = f"vocabulary format {content.get('format_version')!r}, known is {_FORMAT_VERSION}"
        raise InputError(found, where=where, remedy="use the version of treelm that wrote it")
    # Before anything is built: what SentencePiece makes of damaged bytes is not ours to say.
    if fingerprint_of(content.get("vocabulary")) != content.get("fingerprint"):
        raise InputError("vocabulary was changed after it was written", where=where, remedy=remedy)
    return vocabulary_from_json(content.get("vocabulary"), where=where)
