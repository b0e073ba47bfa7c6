"""Vocabularies that other tokenizers give."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpora.helpers import counts_of
from tests.corpora.tokenizers_of_others import END, TEXT, byte_level, metaspace, saved, wordpiece
from treelm.corpora.tokenizer_vocabulary import TokenizerVocabulary
from treelm.corpora.vocabularies import VocabularyConfig, build_vocabulary, load_vocabulary, save_vocabulary
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError

WORDS = sorted({word for line in TEXT for word in line.split()})
ANY_WORD = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
MADE = {"byte-level": byte_level, "metaspace": metaspace}


def read(tokenizer: Any) -> TokenizerVocabulary:
    return TokenizerVocabulary(json.loads(tokenizer.to_str()))


@pytest.fixture(scope="module", params=MADE)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return MADE[request.param]()


@pytest.fixture(scope="module")
def gpt2() -> Any:
    return byte_level()


def names(vocabulary: Vocabulary, form: str) -> list[str]:
    return [vocabulary.token(index) for index in vocabulary.encode([form]).ids.tolist()]


@pytest.mark.parametrize("form", [word for word in WORDS if word.isalnum()])
def test_words_are_segmented_as_within_a_text_and_spelled_back(tokenizer: Any, form: str) -> None:
    vocabulary, found = read(tokenizer), names(read(tokenizer), form)
    before = tokenizer.encode("the", add_special_tokens=False).tokens
    assert before + found[::-1] == tokenizer.encode(f"the {form}", add_special_tokens=False).tokens
    assert vocabulary.spell(vocabulary.encode([form]).ids.tolist()) == form


@given(form=ANY_WORD)
def test_bytes_spell_every_form_and_the_last_token_alone_ends_it(gpt2: Any, form: str) -> None:
    vocabulary = read(gpt2)
    ids = vocabulary.encode([form]).ids
    assert vocabulary.spell(ids.tolist()) == form
    assert vocabulary.ends_word[ids].tolist() == [False] * (len(ids) - 1) + [True]
    assert vocabulary.unknown_class(form) is None


@given(words=st.lists(st.text("abdegos'7-ü.", min_size=1, max_size=6), min_size=1, max_size=5))
def test_the_tokens_of_a_sentence_are_those_of_its_text(gpt2: Any, words: list[str]) -> None:
    vocabulary, pieces = read(gpt2), read(gpt2).encode(words)
    in_words = [pieces.ids[start:end][::-1] for start, end in zip(pieces.offsets, pieces.offsets[1:], strict=False)]
    expected = gpt2.encode(" " + " ".join(words), add_special_tokens=False).tokens
    assert [vocabulary.token(int(index)) for index in np.concatenate(in_words)] == expected


@given(form=ANY_WORD)
def test_every_form_ends_once_or_is_unknown(tokenizer: Any, form: str) -> None:
    vocabulary = read(tokenizer)
    ids = vocabulary.encode([form]).ids
    assert vocabulary.ends_word[ids].tolist() == [False] * (len(ids) - 1) + [True]
    assert (vocabulary.unknown_class(form) is None) or len(ids) == 1


def test_a_vocabulary_keeps_its_tokenizer(tokenizer: Any, tmp_path: Path) -> None:
    vocabulary = read(tokenizer)
    save_vocabulary(vocabulary, tmp_path / "vocabulary.json")
    loaded = load_vocabulary(tmp_path / "vocabulary.json")
    forms = [*WORDS, "Ζεύς", "x y", "[UNK]"]
    for other in (loaded, pickle.loads(pickle.dumps(vocabulary))):
        assert other.fingerprint() == vocabulary.fingerprint()
        assert other.encode(forms).ids.tolist() == vocabulary.encode(forms).ids.tolist()


def change(tokenizer: Any, part: str, value: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    *sections, last = part.split(".")
    place = content
    for name in sections:
        place = place[name]
    place[last] = value
    return content


@pytest.mark.parametrize(
    ("made", "part", "value", "message"),
    [
        (byte_level, "pre_tokenizer", None, "characters that it does not know"),
        (byte_level, "model.vocab", {"a": 0}, "does not load|256 bytes"),
        (metaspace, "pre_tokenizer", {"type": "Whitespace"}, "do not tell where words begin"),
        (metaspace, "model", 7, "not a tokenizer file"),
        (wordpiece, "truncation", None, "do not tell where words begin"),
    ],
)
def test_a_tokenizer_that_cannot_be_a_vocabulary_is_named(
    made: Callable[[], Any], part: str, value: Any, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(change(made(), part, value)), "utf-8")
    with pytest.raises(InputError, match=message) as told:
        TokenizerVocabulary.read(path)
    assert str(path) in str(told.value)


def test_tokens_of_control_have_no_ids(gpt2: Any, tmp_path: Path) -> None:
    config = VocabularyConfig(kind="tokenizer", file=str(saved(gpt2, tmp_path).parent))
    vocabulary = build_vocabulary(config, counts_of([["x"]]))
    assert len(vocabulary) == gpt2.get_vocab_size() - 1
    assert END not in {vocabulary.token(index) for index in range(len(vocabulary))}
