"""The interface that every system implements."""

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

from treelm.corpora.encoding import SentenceBatch
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
    """The name of the system in recipes and run folders."""
    config: Any
    """The frozen dataclass that the model was built from. The constructor of a system sets it."""
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
        """Return a parameter or a part, as of any network.

        Raises ``UnavailableError``, which says why, for what another system could do (``treelm.models.capabilities``).
        """
        try:
            return super().__getattr__(name)
        except AttributeError:
            check_available(self, name)
            raise

    # What a system implements.

    @abstractmethod
    def losses(self, batch: SentenceBatch) -> Losses:
        """The differentiable terms of the loss of a batch, as sums in nats."""

    @abstractmethod
    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Implement ``score``: the sentences are lists of words, of which none is empty."""

    @abstractmethod
    def _start(self, num_sentences: int) -> IncrementalState:
        """Implement ``start``."""

    @abstractmethod
    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> IncrementalState:
        """Implement ``extend_tokens``: read one token, or none (None), in each sentence.

        The state that is given stays as it is.
        """

    @abstractmethod
    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """Implement ``next_word_log_probs``; asked only of a model that predicts words."""

    # What a system may say otherwise.

    @property
    def scoring_dtype(self) -> torch.dtype:
        """The type that scores are computed in.

        With a type narrower than float64, the last bits of a score depend on the other sentences of its batch.
        """
        return torch.float64

    @property
    def predicts_words(self) -> bool:
        """Whether the model gives words probabilities.

        A mere parser does not: ``score`` refuses, and evaluation looks at its trees alone.
        """
        return LanguageModel not in self.unavailable

    @property
    def word_columns(self) -> Mapping[str, SubwordAggregation]:
        """The names of the columns that its scores have besides log probabilities.

        Each has the rule by which a word gets one value from those of its tokens.
        """
        return {}

    def _analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Implement ``analyse`` for a parser: the sentences are lists of words, of which none is empty.

        Here scores and trees are found one after the other. Systems that find both at once override this.
        """
        scores = self._score(sentences) if self.predicts_words else [None] * len(sentences)
        trees = require(self, Parser).parse(sentences)
        return [Analysis(score=score, tree=tree) for score, tree in zip(scores, trees, strict=True)]

    def _extend_scored(
        self, state: IncrementalState, words: Sequence[str]
    ) -> tuple[IncrementalState, NDArray[np.float64]]:
        """Implement ``extend_scored``. Here the tokens of the words are read one after the other."""
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
        """Implement ``reduce_next_log_probs``. Here the sentences are read word by word.

        Systems that see all places of a sentence at once override this.
        """
        return read_word_by_word(self, sentences, reduce, self._start(len(sentences)))

    # What users call.

    def require_words(self) -> None:
        """Raise ``InputError`` if the model gives no probabilities to sentences of words alone.

        It may be a mere parser, or predict words only if the trees of their sentences are given.
        """
        if not self.predicts_words:
            remedy = f"parse with it, or {self.unavailable[LanguageModel]}"
            raise InputError("this parser gives words no probabilities", remedy=remedy)
        if has(self, TreeConditioned):
            remedy = "give trees (`treelm evaluate` and `treelm compare` read them), or take another run"
            raise InputError(f"this {self.system} predicts words given their trees, and there are none", remedy=remedy)

    @final
    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Score sentences: the log probability of every token given the tokens before it.

        Each result has ``log_probs`` (num_tokens + 1,) in nats, of which the last is that of the end of the sentence. A
        generative model of trees sums over trees, exactly or as far as its search goes (``is_lower_bound``). A sentence
        without words has the log probability of ending at once: -inf for a model in which every sentence has a tree.

        Raises ``InputError`` for a model that gives words no probabilities, or none without their trees.
        """
        self.require_words()
        words = words_of_each(sentences)
        scores = iter(naming_sentence(self._score, [one for one in words if one]))
        return [next(scores) if one else _score_of_end(self) for one in words]

    @final
    def analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Find the score and the best tree of every sentence, as far as the model has them.

        Raises ``InputError`` for a sentence without words if the model parses.
        """
        if not has(self, Parser):
            return [Analysis(score=score, tree=None) for score in self.score(sentences)]
        words = words_of_each(sentences)
        check_have_words(words)
        return naming_sentence(self._analyse, words)

    @final
    def surprisal(self, sentences: Sequence[Sequence[str]], *, measures: Sequence[str] = ()) -> list[SentenceSurprisal]:
        """Compute the surprisal in bits of every word and of the end of every sentence.

        ``measures`` are names of measures over the next word (``treelm.models.measures``); each becomes a column.
        Raises ``InputError`` for an unknown measure, and as ``score`` does.
        """
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
        """Reduce the distribution over what comes next to k numbers, before each word and before the end.

        ``reduce`` takes log p (n, V + 1) of what may come next at n places and the tokens (n,) that do come there, and
        gives values (n, k), as the measures of ``treelm.models.measures`` do. Sentences are independent or, with
        ``in_document``, each is read after those before it (``score_document``). The result of each sentence is
        (num_words + 1, k).

        Raises ``InputError`` for a model that gives words no probabilities.
        """
        self.require_words()
        return self._reduce_next_log_probs(words_of_each(sentences), reduce, in_document=in_document)

    @final
    def start(self, num_sentences: int = 1) -> IncrementalState:
        """Begin to read sentences word by word: the state before the first word of each of them.

        Raises ``InputError`` for a number of sentences that is not a whole number, or below 0.
        """
        if not isinstance(num_sentences, int) or num_sentences < 0:
            raise InputError(f"num_sentences = {num_sentences!r}", remedy="give a whole number, 0 or more")
        return self._start(num_sentences)

    @final
    def extend_tokens(self, state: IncrementalState, tokens: Sequence[int | None]) -> IncrementalState:
        """Read one more token in each sentence, or none where ``tokens`` has None, and return the new state.

        The given state stays as it is. Raises ``InputError`` unless there is one token, or None, for each sentence.
        """
        state.check_tokens(tokens)
        return self._extend(state, tokens)

    @final
    def extend(self, state: IncrementalState, words: Sequence[str]) -> IncrementalState:
        """Read one more word in each sentence, and return the new state. The given state stays as it is.

        Raises ``InputError`` unless there is one word for each sentence.
        """
        _check_a_word_each(state, words)
        return extend_words(self, state, words)

    @final
    def extend_scored(
        self, state: IncrementalState, words: Sequence[str]
    ) -> tuple[IncrementalState, NDArray[np.float64]]:
        """Read one more word in each sentence; return the new state and log p of each word (num_sentences,) in nats.

        The log probabilities, given the words before, are those of ``score``. Raises ``InputError`` for a model that
        gives words no probabilities, and unless there is one word for each sentence.
        """
        self.require_words()
        _check_a_word_each(state, words)
        return self._extend_scored(state, words)

    @final
    def next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """Log probabilities of the next token: float64 (num_sentences, len(vocabulary) + 1), in nats.

        The last column is the end of the sentence. Raises ``InputError`` for a model that gives words no probabilities.
        """
        self.require_words()
        return self._next_word_log_probs(state)

    @classmethod
    def from_pretrained(cls, name: str | Path, **options: Any) -> Any:
        """Load a model: from a folder, by its name in the package, or else from a repository of that name on the hub.

        ``options`` are those of ``huggingface_hub.snapshot_download``, such as ``revision`` and ``token``. Raises
        ``InputError`` for a folder that holds no complete model.

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
        """Write the model into a folder, with the files that a run folder has.

        Raises ``InputError`` for the folder of a training run, whose checkpoints would not be this model's, and while
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
    """The tokens of the next word of each sentence, one tuple for each step; None where a word has fewer tokens."""
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
    """Return ``find(sentences)``, with the sentence named in a ``NoLogProbability`` error.

    To find the sentence that causes the error, the sentences are tried one by one. The error stays as it is if it names
    a place already, or if there is only one sentence.
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
    """Raise ``InputError`` unless ``words`` is a list with one word for each sentence of a state."""
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
