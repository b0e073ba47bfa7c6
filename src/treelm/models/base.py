"""The one interface that every system meets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.tokens import check_have_words, check_words, words_of_each
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.io.atomic import hold_folder
from treelm.models.capabilities import Parser, TreeConditioned, check_available, has, require
from treelm.models.measures import chosen_measures, read_word_by_word, score_with_measures
from treelm.models.persistence.hub import CONFIG
from treelm.models.persistence.shipped import is_shipped_name
from treelm.models.persistence.storage import VOCABULARY, WEIGHTS, load_model, save_model
from treelm.models.scores import (
    Analysis,
    Loss,
    Losses,
    NoLogProbability,
    ProbabilityMass,
    SentenceScore,
    SentenceSurprisal,
    SubwordAggregation,
    sentence_surprisal,
)
from treelm.models.states import IncrementalState
from treelm.models.usage import Usage

__all__ = ["Analysis", "IncrementalState", "LanguageModel", "Loss", "Losses", "ProbabilityMass", "SentenceScore"]


Found = TypeVar("Found")


class LanguageModel(nn.Module, Usage, ABC):
    """A left-to-right language model, whose sentences may have latent, predicted or given phrase structure.

    A system implements ``losses`` and the methods that begin with an underscore, which the public ones call once they
    have checked their input. What else it can do, such as to parse, follows from the capabilities that it inherits from
    (``treelm.models.capabilities``). A sentence is a list of words, or a text that is split on whitespace.
    """

    system: ClassVar[str]
    """Its name in recipes and run folders."""
    config: Any
    """The frozen dataclass that it was built from; its constructor sets it."""
    runtime_settings: ClassVar[tuple[str, ...]] = ()
    """Attributes that users may set on a loaded model. Worker processes get their current values."""

    def __init__(self, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Keep what maps text to numbers; subclasses build the network from their own config."""
        super().__init__()
        self.vocabulary = vocabulary
        self.labels = tuple(labels)
        self.data_identity: dict[str, str] = {}
        """Hashes of the words and trees of each split that it was trained on. Empty if that was not noted."""
        self.unavailable: dict[type, str] = {}
        """Capabilities of its class that its config switches off, each with the reason. A mere parser has the key
        ``LanguageModel``, and for a reason what else to take, such as to train it with another config."""

    def __getattr__(self, name: str) -> Tensor | nn.Module:
        """Parameters and parts, as of any network; what its system cannot do is an error that says so."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            check_available(self, name)
            raise

    # What a system implements.

    @abstractmethod
    def losses(self, batch: SentenceBatch) -> Losses:
        """Differentiable loss terms of a batch."""

    @abstractmethod
    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """``score`` of lists of words."""

    @abstractmethod
    def _start(self, num_sentences: int) -> IncrementalState:
        """``start`` of any number of sentences."""

    @abstractmethod
    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> IncrementalState:
        """``extend_tokens`` of a token, or None, for each sentence. Changes nothing."""

    @abstractmethod
    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """``next_word_log_probs`` of a model that predicts words."""

    # What a system may say otherwise.

    @property
    def scoring_dtype(self) -> torch.dtype:
        """The type that scores are computed in: in less than float64 their last bits depend on the batch."""
        return torch.float64

    @property
    def predicts_words(self) -> bool:
        """Tell whether it gives words probabilities. A bare parser refuses to score; its trees alone are evaluated."""
        return LanguageModel not in self.unavailable

    @property
    def word_columns(self) -> Mapping[str, SubwordAggregation]:
        """Names of the further columns of its scores, each with the rule that merges the values of a word's parts."""
        return {}

    def _analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """``analyse`` of lists of words by a parser; systems that find both at once override this."""
        scores = self._score(sentences) if self.predicts_words else [None] * len(sentences)
        trees = require(self, Parser).parse(sentences)
        return [Analysis(score=score, tree=tree) for score, tree in zip(scores, trees, strict=True)]

    def _extend_scored(
        self, state: IncrementalState, words: Sequence[str]
    ) -> tuple[IncrementalState, NDArray[np.float64]]:
        """``extend_scored``, token by token."""
        log_probs = np.zeros(len(words))
        for tokens in _spelled(self, state, words):
            following = self._next_word_log_probs(state)
            log_probs += [0.0 if one is None else float(following[row, one]) for row, one in enumerate(tokens)]
            state = self._extend(state, tokens)
        return state.called(words), log_probs

    def _reduce_next_log_probs(
        self,
        sentences: Sequence[Sequence[str]],
        reduce: Callable[[Tensor, Tensor], Tensor],
        *,
        in_document: bool,
    ) -> list[NDArray[np.float64]]:
        """``reduce_next_log_probs`` word by word; systems that see all places of a sentence at once override this."""
        return read_word_by_word(self, sentences, reduce, self._start(len(sentences)))

    # What users call.

    def require_words(self) -> None:
        """Raise ``InputError`` if words alone get no probabilities, for want of trees or of a language model."""
        if not self.predicts_words:
            remedy = f"parse with it, or {self.unavailable[LanguageModel]}"
            raise InputError("this parser gives words no probabilities", remedy=remedy)
        if has(self, TreeConditioned):
            remedy = "give trees (`treelm evaluate` and `treelm compare` read them), or take another run"
            raise InputError(f"this {self.system} predicts words given their trees, and there are none", remedy=remedy)

    @final
    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Log probability of every token given the tokens before it.

        Each result has ``log_probs`` (num_tokens + 1,) in nats, the end of the sentence last. A generative model of
        trees sums over trees, exactly or as far as its search goes (``is_lower_bound``). A sentence without words has
        the probability of ending at once: 0 (-inf) where every sentence has a tree.

        Raises ``InputError`` for a model that gives words no probabilities, or none without their trees.
        """
        self.require_words()
        words = words_of_each(sentences)
        scores = iter(naming_sentence(self._score, [one for one in words if one]))
        return [next(scores) if one else _score_of_end(self) for one in words]

    @final
    def analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Scores and trees together, as far as a model has them.

        Raises ``InputError`` for a sentence without words if it has trees.
        """
        if not has(self, Parser):
            return [Analysis(score=score, tree=None) for score in self.score(sentences)]
        words = words_of_each(sentences)
        check_have_words(words)
        return naming_sentence(self._analyse, words)

    @final
    def surprisal(self, sentences: Sequence[Sequence[str]], *, measures: Sequence[str] = ()) -> list[SentenceSurprisal]:
        """Surprisal in bits of every word and of the end; ``measures`` (``treelm.models.measures``) are columns."""
        words = words_of_each(sentences)
        scores = score_with_measures(self, words, chosen_measures(measures))
        return [sentence_surprisal(own, score, self.vocabulary) for own, score in zip(words, scores, strict=True)]

    @final
    def reduce_next_log_probs(
        self,
        sentences: Sequence[Sequence[str]],
        reduce: Callable[[Tensor, Tensor], Tensor],
        *,
        in_document: bool = False,
    ) -> list[NDArray[np.float64]]:
        """Reduce the distributions before each word and before the end to k numbers each: (num_words + 1, k).

        ``reduce`` takes log p (n, V + 1) of what may come at n places and the tokens (n,) that come there, and gives
        (n, k), as ``treelm.models.measures`` does. Sentences are independent or, with ``in_document``, each is read
        after those before it (``score_document``).
        """
        self.require_words()
        return self._reduce_next_log_probs(words_of_each(sentences), reduce, in_document=in_document)

    @final
    def start(self, num_sentences: int = 1) -> IncrementalState:
        """The state before the first word of sentences side by side. Raises ``InputError`` for a number below 0."""
        if not isinstance(num_sentences, int) or num_sentences < 0:
            raise InputError(f"num_sentences = {num_sentences!r}", remedy="give a whole number, 0 or more")
        return self._start(num_sentences)

    @final
    def extend_tokens(self, state: IncrementalState, tokens: Sequence[int | None]) -> IncrementalState:
        """The state after one more token in each sentence; None for a sentence that waits. Changes nothing."""
        state.check_tokens(tokens)
        return self._extend(state, tokens)

    @final
    def extend(self, state: IncrementalState, words: Sequence[str]) -> IncrementalState:
        """The state after one more word in each sentence, token by token."""
        _check_a_word_each(state, words)
        return extend_words(self, state, words)

    @final
    def extend_scored(
        self, state: IncrementalState, words: Sequence[str]
    ) -> tuple[IncrementalState, NDArray[np.float64]]:
        """The state after one more word in each sentence, and log p of each given those before: (num_sentences,).

        In nats; the numbers are those of ``score``. Raises ``InputError`` if it gives words no probabilities.
        """
        self.require_words()
        _check_a_word_each(state, words)
        return self._extend_scored(state, words)

    @final
    def next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """log p(next token), float64 (num_sentences, len(vocabulary) + 1); the last column is the end of sentence.

        Raises ``InputError`` if it gives words no probabilities.
        """
        self.require_words()
        return self._next_word_log_probs(state)

    @classmethod
    def from_pretrained(cls, name: str | Path, **options: Any) -> Any:
        """The model of a folder, of the package, or else of a repository on the hub of that name.

        ``options`` are those of ``huggingface_hub.snapshot_download``, such as ``revision`` and ``token``.

        >>> lm = LanguageModel.from_pretrained("ngram-gum-open")
        >>> [word.word for word in lm.surprisal(["The dog barks ."])[0].words]
        ['The', 'dog', 'barks', '.']
        """
        if Path(name).is_dir() or is_shipped_name(str(name)):
            return load_model(name)
        import huggingface_hub

        files = [CONFIG, VOCABULARY, WEIGHTS]
        return load_model(huggingface_hub.snapshot_download(str(name), allow_patterns=files, **options))

    def save_pretrained(self, directory: str | Path) -> None:
        """Write the model as a folder, the same as a run folder holds.

        Raises ``InputError`` for a folder of a training run, whose checkpoints would not be this model's, and while
        another process writes there.
        """
        folder, remedy = Path(directory), "give another folder"
        with hold_folder(folder, found="another process writes in this folder", remedy=remedy):
            if any((folder / name).exists() for name in ("recipe.toml", "checkpoints")):
                raise InputError("this folder holds a training run", where=str(folder), remedy=remedy)
            self._save(folder)

    def _save(self, folder: Path) -> None:
        save_model(self, folder)


def extend_words(lm: LanguageModel, state: IncrementalState, words: Sequence[str]) -> IncrementalState:
    """``extend`` of words that were checked."""
    for tokens in _spelled(lm, state, words):
        state = lm._extend(state, tokens)
    return state.called(words)


def _spelled(lm: LanguageModel, state: IncrementalState, words: Sequence[str]) -> Iterator[tuple[int | None, ...]]:
    """The tokens of the next word of each sentence, side by side; None where a word has fewer."""
    spelled = [
        lm.vocabulary.encode([word], sentence_initial=num_read == 0).ids.tolist()
        for word, num_read in zip(words, state.num_tokens_read, strict=True)
    ]
    return zip_longest(*spelled)


def _score_of_end(lm: LanguageModel) -> SentenceScore:
    """The score of a sentence without words."""
    end = float(lm._next_word_log_probs(lm._start(1))[0, -1])
    columns = {name: np.zeros(0) for name in lm.word_columns}
    nowhere = np.zeros(0, np.int64)
    return SentenceScore(log_probs=np.array([end]), word_of_token=nowhere, is_lower_bound=False, columns=columns)


def naming_sentence(find: Callable[[Sequence[Sequence[str]]], Found], sentences: Sequence[Sequence[str]]) -> Found:
    """Return ``find(sentences)``; add the number and text of the sentence to a ``NoLogProbability`` error.

    The sentences are tried one by one to find it. The error stays as it is if it names a place or there is only one
    sentence.
    """
    try:
        return find(sentences)
    except NoLogProbability as error:
        if error.where is not None or len(sentences) == 1:
            raise
        for number, words in enumerate(sentences, start=1):
            try:
                find([words])
            except NoLogProbability as alone:
                raise NoLogProbability(alone.found, where=f"sentence {number} ({' '.join(words)})") from error
        raise


def _check_a_word_each(state: IncrementalState, words: Sequence[str]) -> None:
    """Raise ``InputError`` for what is not a word for each sentence, such as a text."""
    if not isinstance(state, IncrementalState):
        raise InputError(f"{type(state).__name__} where a state was expected", remedy="give one of lm.start()")
    if isinstance(words, str):
        raise InputError("one text where a list of words was expected", remedy=f"give [{words!r}]")
    if not isinstance(words, Sequence):
        raise InputError(f"{type(words).__name__} where a list of words was expected", remedy="give a word a sentence")
    if len(words) != len(state.num_tokens_read):
        found = f"{len(words)} words for {len(state.num_tokens_read)} sentences"
        raise InputError(found, remedy="give one word for each sentence")
    check_words(words)
