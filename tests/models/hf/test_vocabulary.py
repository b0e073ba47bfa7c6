"""Tokenizers that tell where words begin are taken, others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.corpora.tokenizers_of_others import END, byte_level, marked_ends, wordpiece
from tests.models.hf.worlds import transformers
from treelm.errors import InputError
from treelm.models.hf.vocabulary import CausalVocabulary


def vocabulary_of(own: Any, **special: str) -> CausalVocabulary:
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=own, **special)
    return CausalVocabulary(tokenizer, size=len(tokenizer))


def test_words_end_with_a_token_of_their_own_and_are_spelled_again() -> None:
    vocabulary = vocabulary_of(byte_level(), eos_token=END)
    for form in ("dogs", "Zürich", "n't", "1984", "state-of-the-art"):
        for is_initial in (False, True):
            ids = vocabulary.encode([form], sentence_initial=is_initial).ids.tolist()
            assert ids[-1] == vocabulary.end_of_word
            assert vocabulary.token(ids[0]).startswith("Ġ") is not is_initial
            assert vocabulary.spell(ids) == form
    assert vocabulary.ends_word.sum() == 1
    assert vocabulary.position_matters
    assert vocabulary.unknown_class("猫") is None


def test_signs_of_going_on_tell_where_words_begin() -> None:
    vocabulary = vocabulary_of(wordpiece(), eos_token="[SEP]", unk_token="[UNK]")
    ids = vocabulary.encode(["unbelievable", "dog"]).ids
    assert [vocabulary.token(index) for index in ids.tolist()][-2:] == ["dog", "</w>"]
    assert not vocabulary.position_matters
    assert vocabulary.unknown_class("猫") == "[UNK]"


@pytest.mark.parametrize(
    ("own", "special", "found"),
    [
        (marked_ends, {"eos_token": "<unk>"}, "do not tell where words begin"),
        (byte_level, {}, "without an end of text"),
    ],
)
def test_others_are_refused(own: Any, special: dict[str, str], found: str) -> None:
    with pytest.raises(InputError, match=found):
        vocabulary_of(own(), **special)
