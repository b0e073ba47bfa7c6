"""Names of the release before still work, and say what they are called now."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.evaluation import toys
from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import encode_words, word_of_token
from treelm.corpora.vocabulary import Pieces, Vocabulary
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.evaluation import audit
from treelm.evaluation.perplexity import LikelihoodSums
from treelm.inference.adapters.minicons import Scorer
from treelm.inference.stimulus_scores import gatherings
from treelm.models.base import IncrementalState, LanguageModel, Losses, SentenceScore
from treelm.trees.tree import Tree

WORDS = ["a", "b+d", "c"]


def old(name: str, new: str) -> Any:
    """Within it ``name`` is used, and says what it is called now."""
    return pytest.warns(DeprecationWarning, match=rf"{name}\S* is now \S*{new}")


with old("symbol", "token"):

    class TheirVocabulary(Vocabulary):
        """As it was written for the release before, like all classes below."""

        kind = "theirs"

        def __len__(self) -> int:
            return toys.END

        def encode(self, forms: Sequence[str], *, sentence_initial: bool = False) -> Pieces:
            return toys.ToyVocabulary().encode(forms)

        def unknown_class(self, form: str, *, sentence_initial: bool = False) -> str | None:
            return None

        def symbol(self, index: int) -> str:
            return f"<{index}>"

        @property
        def ends_word(self) -> NDArray[np.bool_]:
            return toys.ToyVocabulary().ends_word

        def to_json(self) -> dict[str, Any]:
            return {"kind": "theirs"}


with old("num_symbols_read", "num_tokens_read"):

    @dataclasses.dataclass(frozen=True)
    class TheirState(IncrementalState):
        toy: toys.ToyState

        @property
        def num_sentences(self) -> int:
            return self.toy.num_sentences

        @property
        def num_symbols_read(self) -> list[int]:
            return self.toy.num_tokens_read


with old("extend_symbols", "extend_tokens"):

    class TheirLM(LanguageModel):
        system = "theirs"

        def __init__(self) -> None:
            super().__init__(vocabulary=TheirVocabulary())  # type: ignore[abstract]
            self.toy = toys.ToyLM()

        @property
        def config(self) -> Any:
            return None

        def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
            return self.toy.score(sentences)

        def start(self, num_sentences: int = 1) -> TheirState:
            return TheirState(self.toy.start(num_sentences))  # type: ignore[abstract]

        def extend_symbols(self, state: IncrementalState, symbols: Sequence[int | None]) -> IncrementalState:
            assert isinstance(state, TheirState)
            return TheirState(self.toy.extend_tokens(state.toy, symbols))  # type: ignore[abstract]

        def next_word_log_probs(self, state: IncrementalState) -> Tensor:
            assert isinstance(state, TheirState)
            return self.toy.next_word_log_probs(state.toy)

        def losses(self, batch: SentenceBatch) -> Losses:
            raise NotImplementedError

        def parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
            raise NotImplementedError

        def partial_trees(self, state: IncrementalState) -> list[Tree]:
            raise NotImplementedError


def test_a_system_that_implements_the_old_names_is_read_word_by_word_and_audited() -> None:
    theirs, toy = TheirLM(), toys.ToyLM()  # type: ignore[abstract]
    state: IncrementalState = theirs.start()
    expected: IncrementalState = toy.start()
    for word in WORDS:
        state, expected = theirs.extend(state, [word]), toy.extend(expected, [word])
    assert isinstance(state, TheirState)
    assert state.toy == expected
    assert list(state.num_tokens_read) == [4]
    assert theirs.vocabulary.token(3) == "<3>"
    assert theirs.vocabulary.spell([0, 3]) == "<0><3>"
    assert audit.check_incremental(theirs, [WORDS]).outcome == "passed"


def test_an_override_under_the_old_name_may_call_its_base_class_by_it() -> None:
    with old("extend_symbols", "extend_tokens"):

        class Counting(toys.ToyLM):
            calls = 0

            def extend_symbols(self, state: IncrementalState, symbols: Sequence[int | None]) -> IncrementalState:
                self.calls += 1
                return super().extend_symbols(state, symbols)

    class Newer(Counting):
        def extend_tokens(self, state: IncrementalState, tokens: Sequence[int | None]) -> toys.ToyState:
            found = super().extend_tokens(state, tokens)
            assert isinstance(found, toys.ToyState)
            return found

    for model in (Counting(), Newer()):
        with old("extend_symbols", "extend_tokens"):
            state = model.extend_tokens(model.start(), [2])
        assert state == toys.ToyLM().extend_tokens(model.start(), [2])
        assert model.calls == 1


def test_a_mixin_under_the_old_name_is_taken_too() -> None:
    class Mixin:
        calls = 0

        def extend_symbols(self, state: IncrementalState, symbols: Sequence[int | None]) -> IncrementalState:
            self.calls += 1
            found: IncrementalState = super().extend_symbols(state, symbols)  # type: ignore[misc]
            return found

    with old("extend_symbols", "extend_tokens"):

        class Mixed(Mixin, toys.ToyLM):
            pass

    model = Mixed()
    with old("extend_symbols", "extend_tokens"):
        model.extend_tokens(model.start(), [2])
    assert model.calls == 1


def test_a_system_may_only_list_its_columns_as_before() -> None:
    class Listing(toys.ToyLM):
        @property
        def word_columns(self) -> Any:
            return ("height",)

    with pytest.warns(DeprecationWarning, match="lists names; give a mapping"):
        assert gatherings(Listing()) == {}


def test_callers_may_use_the_old_names() -> None:
    model, vocabulary = toys.ToyLM(), WordVocabulary(["a", "b"])
    with old("ToyLM.extend_symbols", "extend_tokens"):
        state = model.extend_symbols(model.start(2), [1, None])
    with old("ToyState.num_symbols_read", "num_tokens_read"):
        assert list(state.num_symbols_read) == [1, 0]
    with old("ToyState.check_symbols", "check_tokens"):
        state.check_symbols([1, 2])
    with old("WordVocabulary.symbol", "token"):
        assert vocabulary.symbol(1) == "a"
    batch = encode_words([["a"], ["b", "a"]], vocabulary)
    with old("SentenceBatch.symbols", "tokens_of"):
        assert batch.symbols(1).tolist() == batch.tokens_of(1).tolist() == [2, 1]


def test_functions_have_their_old_names() -> None:
    from treelm.corpora.encoding import word_of_symbol

    ids, ends_word = np.array([0, 1, 2]), np.array([True, False, True])
    with old("word_of_symbol", "word_of_token"):
        assert word_of_symbol(ids, ends_word).tolist() == word_of_token(ids, ends_word).tolist() == [0, 1, 1]
    model = toys.ToyLM()
    with old("check_next_symbols", "check_next_tokens"):
        check = audit.check_next_symbols(model, [WORDS], tolerance=1e-3)
    assert check == audit.check_next_tokens(model, [WORDS], tolerance=1e-3)
    (score,) = model.score([WORDS])
    with old("next_symbol_changes", "next_token_changes"):
        changes = audit.next_symbol_changes(model, WORDS, score, "x")
    assert changes == audit.next_token_changes(model, WORDS, score, "x")


def test_scores_and_sums_have_their_old_fields() -> None:
    log_probs, words = -np.ones(3), np.array([0, 0])
    with old("SentenceScore", "word_of_token"):
        score = SentenceScore(log_probs=log_probs, word_of_symbol=words, is_lower_bound=False)  # type: ignore[call-arg]
    assert score.word_of_token is words
    with old("SentenceScore.word_of_symbol", "word_of_token"):
        assert score.word_of_symbol is words
    other = np.array([0, 1])
    with old("SentenceScore", "word_of_token"):
        assert dataclasses.replace(score, word_of_symbol=other).word_of_token is other  # type: ignore[call-arg]
    with old("LikelihoodSums", "") as said:
        sums = LikelihoodSums(symbols_nats=2.0, end_nats=1.0, num_sentences=1, num_words=1, num_symbols=2)  # type: ignore[call-arg]
    assert [str(one.message) for one in said] == [
        "LikelihoodSums(symbols_nats=...) is now tokens_nats",
        "LikelihoodSums(num_symbols=...) is now num_tokens",
    ]
    with old("LikelihoodSums.symbols_nats", "tokens_nats"):
        assert sums.symbols_nats == sums.tokens_nats == 2.0
    with old("LikelihoodSums.num_symbols", "num_tokens"):
        assert sums.num_symbols == sums.num_tokens == 2


def test_the_unit_of_minicons_has_its_old_name() -> None:
    model = toys.ToyLM()
    with old('unit="symbol"', 'unit="token"'):
        scorer = Scorer(model, unit="symbol")
    assert scorer.token_score("a b+d") == Scorer(model, unit="token").token_score("a b+d")
    assert len(Scorer(model).token_score("a b+d")[0]) == 3


def define() -> None:
    class Old(toys.ToyLM):
        def extend_symbols(self, state: IncrementalState, symbols: Sequence[int | None]) -> IncrementalState:
            raise NotImplementedError


@pytest.mark.parametrize(
    "use",
    [
        define,
        lambda: toys.ToyLM().extend_symbols(toys.ToyState(((),)), [1]),
        lambda: toys.ToyState(((),)).num_symbols_read,
        lambda: SentenceScore(log_probs=-np.ones(1), word_of_symbol=np.zeros(0), is_lower_bound=False),  # type: ignore[call-arg]
        lambda: toys.ToyLM().score([WORDS])[0].word_of_symbol,
        lambda: Scorer(toys.ToyLM(), unit="symbol"),
    ],
)
def test_a_warning_points_at_what_uses_the_old_name(use: Callable[[], object]) -> None:
    with old("", "token") as said:
        use()
    assert [one.filename for one in said] == [__file__]


def test_names_of_today_say_nothing() -> None:
    model = toys.ToyLM()
    assert torch.isfinite(model.next_word_log_probs(model.extend(model.start(), ["a"]))).all()
