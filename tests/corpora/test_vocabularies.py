import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.corpora.character_vocabulary import CharacterVocabulary
from treelm.corpora.subword_vocabulary import SubwordVocabulary
from treelm.corpora.unknown_classes import surface_class
from treelm.corpora.vocabularies import (
    VocabularyConfig,
    build_vocabulary,
    load_vocabulary,
    save_vocabulary,
    vocabulary_from_json,
)
from treelm.corpora.vocabulary import FormCounts, Vocabulary
from treelm.corpora.word_vocabulary import Unknown, WordVocabulary
from treelm.errors import InputError

SENTENCES = [
    ["the", "dog", "saw", "the", "cat"],
    ["Running", "dogs", "saw", "7", "cats"],
    ["the", "cat", "walked", "in", "Paris"],
    ["dogs", "and", "the", "cat"],
]
COUNTS = FormCounts.of(SENTENCES)
CONFIGS = [
    VocabularyConfig(),
    VocabularyConfig(unknown="berkeley"),
    VocabularyConfig(unknown="suffixes"),
    VocabularyConfig(kind="character"),
    VocabularyConfig(kind="affixes", affix_rows=50),
    VocabularyConfig(kind="subword", max_size=285, min_count=1),
]
WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


@pytest.fixture(scope="module", params=CONFIGS, ids=lambda config: f"{config.kind}-{config.unknown}")
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return build_vocabulary(request.param, COUNTS)


def tokens(vocabulary: Vocabulary, form: str, *, sentence_initial: bool = False) -> list[str]:
    return [vocabulary.token(int(index)) for index in vocabulary.encode([form], sentence_initial=sentence_initial).ids]


def test_form_counts_count_first_words_apart() -> None:
    counts = dict(zip(COUNTS.forms, zip(COUNTS.counts, COUNTS.initial_counts, strict=True), strict=True))
    assert counts["the"] == (4, 2)
    assert counts["dogs"] == (2, 1)


def test_word_ids_follow_frequency_then_first_appearance() -> None:
    assert build_vocabulary(VocabularyConfig(), COUNTS).to_json()["forms"] == ["the", "cat", "saw", "dogs"]


def test_min_count_and_max_size_cut_words() -> None:
    counts = FormCounts.of([["a", "a", "a", "b", "b", "c", "c", "d"]])
    assert WordVocabulary.build(counts, min_count=2).forms == ("a", "b", "c")
    assert WordVocabulary.build(counts, max_size=2).forms == ("a", "b")


def test_ids_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from treelm.corpora.vocabulary import FormCounts as F\n"
        "from treelm.corpora.word_vocabulary import WordVocabulary as W\n"
        "counts = F.of([[f'w{i % 7}x' for i in range(40)], ['Aed', '-', '7']])\n"
        "print(W.build(counts, min_count=6, unknown='berkeley').fingerprint())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    prints = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(prints) == 1


def test_single_unknown_token_stands_for_every_unknown_form() -> None:
    vocabulary = build_vocabulary(VocabularyConfig(), COUNTS)
    assert tokens(vocabulary, "Zanzibar") == ["<unk>"]
    assert vocabulary.unknown_class("Zanzibar") == "<unk>"
    assert vocabulary.unknown_class("dogs") is None


def test_a_form_that_spells_the_unknown_token_is_unknown() -> None:
    vocabulary = WordVocabulary.build(FormCounts.of([["<unk>", "<unk>", "a"]]))
    assert vocabulary.forms == ("a",)
    assert vocabulary.unknown_class("<unk>") == "<unk>"


def test_berkeley_classes_are_those_of_unknown_training_words() -> None:
    vocabulary = build_vocabulary(VocabularyConfig(unknown="berkeley"), COUNTS)
    assert vocabulary.unknown_class("jumped") == "UNK-LC-ed"
    assert vocabulary.unknown_class("Rome") == "UNK-CAPS"
    assert vocabulary.unknown_class("Cat", sentence_initial=True) == "UNK"  # UNK-INITC was never seen


def test_the_rarest_class_is_given_up_if_no_unknown_word_is_plain() -> None:
    vocabulary = WordVocabulary.build(
        FormCounts.of([["a", "a", "walked", "talked", "7"]]), min_count=2, unknown="berkeley"
    )
    assert vocabulary.unknown_class("walked") == "UNK-LC-ed"
    assert vocabulary.unknown_class("7") == "UNK"


def test_an_unseen_class_backs_off_to_the_nearest_one_with_an_id() -> None:
    vocabulary = WordVocabulary(["a"], unknown="berkeley", classes=["UNK-LC", "UNK-LC-ed"])
    assert vocabulary.unknown_class("walked") == "UNK-LC-ed"
    assert vocabulary.unknown_class("walking") == "UNK-LC"
    assert vocabulary.unknown_class("Walking") == "UNK"


@pytest.mark.parametrize("unknown", ["berkeley", "suffixes"])
@given(st.lists(st.lists(st.text("aAbdeginsz7-$", min_size=1, max_size=6), min_size=1, max_size=6), min_size=1))
def test_every_unknown_token_occurs_in_the_training_data(unknown: Unknown, sentences: list[list[str]]) -> None:
    vocabulary = WordVocabulary.build(FormCounts.of(sentences), min_count=2, unknown=unknown)
    used = {
        int(index)
        for words in sentences
        for place, word in enumerate(words)
        for index in vocabulary.encode([word], sentence_initial=place == 0).ids
    }
    if any(index < vocabulary.num_unknowns for index in used):
        assert set(range(vocabulary.num_unknowns)) <= used


def test_position_decides_on_the_class_of_a_capital() -> None:
    counts = FormCounts.of([["b"], ["Xa"], ["c", "Ya"], ["$"]])
    vocabulary = WordVocabulary.build(counts, max_size=1, unknown="berkeley")
    assert vocabulary.position_matters
    assert tokens(vocabulary, "Za", sentence_initial=True) == ["UNK-INITC"]
    assert tokens(vocabulary, "Za") == ["UNK-CAPS"]
    assert surface_class("Za", sentence_initial=False, known=()) == "UNK-CAPS"


def test_characters_end_with_an_end_mark_of_their_own() -> None:
    vocabulary = CharacterVocabulary.build(COUNTS)
    assert tokens(vocabulary, "dog") == ["d", "o", "g", "</w>"]
    assert tokens(vocabulary, "dö") == ["d", "<unk>", "</w>"]
    assert vocabulary.unknown_class("dö") == "<unk>"
    assert vocabulary.ends_word.nonzero()[0].tolist() == [1]


def test_a_no_break_space_inside_a_word_is_a_character() -> None:
    vocabulary = CharacterVocabulary.build(FormCounts.of([["10\u00a0000"]]))
    assert "\u00a0" in tokens(vocabulary, "1\u00a00")


@given(st.lists(WORDS, max_size=5))
def test_characters_spell_every_form(forms: list[str]) -> None:
    vocabulary = CharacterVocabulary.build(FormCounts.of([forms]))
    pieces = vocabulary.encode(forms)
    for index, form in enumerate(forms):
        ids = pieces.ids[pieces.offsets[index] : pieces.offsets[index + 1]]
        assert [vocabulary.token(int(i)) for i in ids] == [*form, "</w>"]


@pytest.fixture(scope="module")
def subwords() -> Vocabulary:
    return build_vocabulary(CONFIGS[-1], COUNTS)


@given(form=WORDS)
def test_subwords_spell_every_form_and_mark_its_end(subwords: Vocabulary, form: str) -> None:
    ids = subwords.encode([form]).ids
    ends = subwords.ends_word[ids]
    assert ends[-1]
    assert not ends[:-1].any()
    spelled = b"".join(
        bytes([int(piece[3:5], 16)]) if piece.startswith("<0x") else piece.encode()
        for piece in (subwords.token(int(index)) for index in ids)
    )
    assert spelled.decode() == form + "▁"
    assert subwords.unknown_class(form) is None


def test_half_a_character_is_spelt_in_bytes(subwords: Vocabulary) -> None:
    """JSON may hold half of a surrogate pair, which SentencePiece does not take."""
    found = subwords.encode(["the", "d\ud83dog", "dogs"])
    alone = [subwords.encode([form]).ids.tolist() for form in ("the", "d\ud83dog", "dogs")]
    assert found.ids.tolist() == [*alone[0], *alone[1], *alone[2]]
    assert [subwords.token(index) for index in alone[1]][1:4] == ["<0xED>", "<0xA0>", "<0xBD>"]
    assert subwords.ends_word[alone[1]].tolist() == [False] * 6 + [True]
    assert subwords.spelled("d\ud83dog") == "\ud83d"


def test_subwords_are_segmented_word_by_word(subwords: Vocabulary) -> None:
    together = subwords.encode(["the", "dogs"])
    apart = [subwords.encode([form]).ids for form in ("the", "dogs")]
    assert together.ids.tolist() == [*apart[0], *apart[1]]


def test_subwords_train_to_the_same_model_again(subwords: Vocabulary) -> None:
    assert build_vocabulary(CONFIGS[-1], COUNTS).fingerprint() == subwords.fingerprint()


def test_too_many_subwords_are_an_error_that_names_the_limit() -> None:
    with pytest.raises(InputError, match=r"max_size to \d+ or less"):
        SubwordVocabulary.build(COUNTS, max_size=5000)


def test_too_few_subwords_are_an_error() -> None:
    with pytest.raises(InputError, match="max_size"):
        SubwordVocabulary.build(COUNTS, max_size=258)


def test_vocabulary_round_trip_through_its_file(vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    save_vocabulary(vocabulary, path)
    loaded = load_vocabulary(path)
    assert type(loaded) is type(vocabulary)
    assert loaded.fingerprint() == vocabulary.fingerprint()
    forms = ["dog", "Zürich", "7", "x y"]
    for initial in (False, True):
        before, after = (v.encode(forms, sentence_initial=initial) for v in (vocabulary, loaded))
        np.testing.assert_array_equal(before.ids, after.ids)
        np.testing.assert_array_equal(before.offsets, after.offsets)
    assert list(tmp_path.iterdir()) == [path]


def test_ids_are_within_the_vocabulary_and_words_end(vocabulary: Vocabulary) -> None:
    pieces = vocabulary.encode(["dog", "ñandú", "the"])
    assert pieces.offsets.tolist()[0] == 0
    assert pieces.offsets[-1] == len(pieces.ids)
    assert 0 <= pieces.ids.min() <= pieces.ids.max() < len(vocabulary) == len(vocabulary.ends_word)
    assert vocabulary.ends_word[pieces.ids[pieces.offsets[1:] - 1]].all()


def test_no_forms_encode_to_no_pieces(vocabulary: Vocabulary) -> None:
    pieces = vocabulary.encode([])
    assert len(pieces.ids) == 0
    assert pieces.offsets.tolist() == [0]


def test_fingerprint_tells_vocabularies_apart() -> None:
    assert WordVocabulary(["a", "b"]).fingerprint() != WordVocabulary(["b", "a"]).fingerprint()


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _tamper(path: Path) -> None:
    path.write_text(path.read_text("utf-8").replace('"cat"', '"cow"'), "utf-8")


def _make_foreign(path: Path) -> None:
    path.write_text('{"model": "bert"}', "utf-8")


def _change_version(path: Path) -> None:
    path.write_text(path.read_text("utf-8").replace('"format_version": 1', '"format_version": 99'), "utf-8")


def _drop_part(path: Path) -> None:
    content = json.loads(path.read_text("utf-8"))
    del content["vocabulary"]["forms"]
    path.write_text(json.dumps(content), "utf-8")


@pytest.mark.parametrize("config", CONFIGS)
def test_the_vocabulary_of_another_run_is_taken_as_it_is(config: VocabularyConfig, tmp_path: Path) -> None:
    first = build_vocabulary(config, COUNTS)
    save_vocabulary(first, tmp_path / "vocabulary.json")
    for file in (tmp_path, tmp_path / "vocabulary.json"):
        saved = VocabularyConfig(kind="saved", file=str(file))
        assert build_vocabulary(saved, FormCounts.of([["other", "words"]])).fingerprint() == first.fingerprint()
    with pytest.raises(InputError, match="no such file"):
        build_vocabulary(VocabularyConfig(kind="saved", file=str(tmp_path / "nowhere")), COUNTS)


@pytest.mark.parametrize("settings", [{}, {"file": "run", "max_size": 300}])
def test_a_saved_vocabulary_needs_its_file_and_nothing_else(settings: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"vocabulary\.file|remove this option"):
        VocabularyConfig(kind="saved", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", [_truncate, _tamper, _make_foreign, _change_version, _drop_part, Path.unlink])
def test_a_damaged_vocabulary_file_is_an_error_that_names_it(damage: object, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    save_vocabulary(build_vocabulary(VocabularyConfig(), COUNTS), path)
    damage(path)  # type: ignore[operator]
    with pytest.raises(InputError) as caught:
        load_vocabulary(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {"kind": "emoji"},
        {"kind": "word"},
        {"kind": "subword", "model": "?"},
        {"kind": "subword", "model": "AA=="},
    ],
)
def test_json_that_is_no_vocabulary_is_an_error(content: object) -> None:
    with pytest.raises(InputError):
        vocabulary_from_json(content)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "emoji"}, "kind = "),
        ({"unknown": "many"}, "unknown = "),
        ({"min_count": 0}, "min_count = "),
        ({"max_size": 0}, "max_size = "),
        ({"kind": "subword"}, "max_size = "),
        ({"kind": "character", "unknown": "berkeley"}, "unknown = "),
    ],
)
def test_bad_configuration_names_field_and_remedy(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        VocabularyConfig(**settings)  # type: ignore[arg-type]


def test_a_vocabulary_of_no_words_is_an_error() -> None:
    with pytest.raises(InputError, match="no words"):
        build_vocabulary(VocabularyConfig(), FormCounts.of([[]]))


def test_a_frequent_mark_is_one_piece() -> None:
    """SentencePiece 0.2.2 made every full stop two tokens where there were many kinds of words."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 7))) for _ in range(3000)]
    counts = FormCounts.of([[*draw.choices(words, k=9), "."] for _ in range(300)])
    vocabulary = SubwordVocabulary.build(counts, max_size=400)
    assert [vocabulary.token(index) for index in vocabulary.encode(["."]).ids] == [".▁"]
