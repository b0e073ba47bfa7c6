"""The one interface that every system meets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import StreamBatch
from treelm.corpora.tokens import check_words, words_of_each
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.measures import chosen_measures, read_word_by_word, score_with_measures
from treelm.models.persistence.storage import Pretrained
from treelm.models.scores import (
    Analysis,
    Gathering,
    Loss,
    Losses,
    NoLogProbability,
    ParsedSentence,
    PartialAnalysis,
    ProbabilityMass,
    SentenceScore,
    SentenceSurprisal,
    sentence_surprisal,
)
from treelm.models.states import IncrementalState, TextState
from treelm.models.structures import Structure, UsedRule
from treelm.trees.tree import Tree

__all__ = ["Analysis", "IncrementalState", "LanguageModel", "Loss", "Losses", "ProbabilityMass", "SentenceScore"]


Method = TypeVar("Method", bound=Callable[..., Any])


def takes_texts(method: Method) -> Method:
    """Let a method that takes sentences, each a list of words, take texts as well: they are cut at blanks.

    A log probability that is none is told with its sentence, unless there is only one: then the caller knows it better.
    """

    @wraps(method)
    def of_words(self: Any, sentences: Sequence[str | Sequence[str]], *rest: Any, **named: Any) -> Any:
        found = words_of_each(sentences)
        try:
            return method(self, found, *rest, **named)
        except NoLogProbability as error:
            if error.where is not None or len(found) == 1:
                raise
            for number, words in enumerate(found, start=1):
                try:
                    method(self, [words], *rest, **named)
                except NoLogProbability as alone:
                    place = f"sentence {number} ({' '.join(words)})"
                    raise NoLogProbability(alone.found, where=place) from error
            raise

    return cast(Method, of_words)


def takes_a_word_each(method: Method) -> Method:
    """Let ``extend`` refuse what is not one word for each sentence, above all a text: its characters would be words."""

    @wraps(method)
    def of_checked(self: Any, state: IncrementalState, words: Sequence[str]) -> Any:
        if isinstance(words, str):
            raise InputError("one text where a list of words was expected", remedy=f"give [{words!r}]")
        if len(words) != len(state.num_tokens_read):
            found = f"{len(words)} words for {len(state.num_tokens_read)} sentences"
            raise InputError(found, remedy="give one word for each sentence")
        check_words(words)
        return method(self, state, words)

    return cast(Method, of_checked)


class LanguageModel(Pretrained, ABC):
    """A left-to-right language model with (latent, predicted or given) phrase structure."""

    predicts_labels: ClassVar[bool] = True  # True if its trees have labels of their own, not one for all
    benchmark_recipe: ClassVar[str] = ""
    """Packaged recipe of the sizes that ``benchmarks/bench.py`` measures; without one, the defaults of its config."""
    changeable: ClassVar[tuple[str, ...]] = ()
    """Attributes that may be set on a loaded model: other processes that compute for it get their values too."""
    inference_overrides: ClassVar[tuple[str, ...]] = ()
    """Fields of its config that touch no weight: ``reading`` in ``config.json`` may give a trained model others."""
    own_metric_names: ClassVar[tuple[str, ...]] = ()
    """Names of what ``own_metrics`` gives; a switch of its config may leave some out."""
    words_switch: ClassVar[str] = ""
    """Field of its config without which it is a bare parser; "": it always predicts words."""
    trains: ClassVar[bool] = True
    """False for a system of another program, whose models are only read."""
    keeps_context: bool = False
    """True if it can read sentences in a row (``score_text``), each with those before it as its context; a switch of
    its config may decide this."""
    sentences_at_once: ClassVar[int] = 0
    """Sentences that a parser likes to be given at once, to put those of one length together itself; 0: no wish."""
    has_confidence: ClassVar[bool] = False
    """True if ``annotate`` says how sure it is of each tree."""
    tree_builders: ClassVar[Mapping[str, str]] = {}
    """Ways of building trees that ``tree_builder`` may name, each with the note that results have of it."""
    tree_builder: str | None = None
    """The way of building trees, for a system that has a choice."""
    parses: bool = True
    """True if it has trees at all; a switch of its config may decide this."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a system score, parse and analyse texts as well: to Python, a text is a list."""
        super().__init_subclass__(**options)
        for name in {"score", "parse", "analyse", "annotate"} & cls.__dict__.keys():
            setattr(cls, name, takes_texts(cls.__dict__[name]))
        if "extend" in cls.__dict__:
            cls.extend = takes_a_word_each(cls.__dict__["extend"])  # type: ignore[method-assign]

    def __init__(self, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Keep what maps text to numbers; subclasses build the network from their own config."""
        super().__init__()
        self.vocabulary = vocabulary
        self.labels = tuple(labels)
        self.data_identity: dict[str, str] = {}
        """Hashes of the words and trees of each split that it was trained on. Empty if that was not noted."""

    @property
    def scoring_dtype(self) -> torch.dtype:
        """The type that scores are computed in: in less than float64 their last bits depend on the batch."""
        return torch.float64

    @property
    def tags(self) -> tuple[str, ...]:
        """The part-of-speech tags that it learns and gives: those of training data come in its batches. Here: none."""
        return ()

    @property
    def predicts_words(self) -> bool:
        """Tell whether it gives words probabilities. A bare parser refuses to score; its trees alone are evaluated."""
        return not self.words_switch or bool(getattr(self.config, self.words_switch))

    @property
    def needs_trees(self) -> bool:
        """Tell whether it predicts words only if trees are given: ``score`` refuses, ``score_given`` takes them."""
        return False

    @property
    def why_no_trees(self) -> str:
        """The reason why one that does not parse (``parses``) has no trees, for messages."""
        return f"{self.system} is a language model without trees"

    @property
    def why_no_context(self) -> str:
        """The reason why one that does not keep its context (``keeps_context``) begins from nothing, for messages."""
        return f"{self.system} reads whole sentences: each begins from nothing"

    def require_trees(self) -> None:
        """Raise ``InputError`` if it does not parse: asked before any work is done or any output written."""
        if not self.parses:
            raise InputError(
                self.why_no_trees, remedy="take a run with structure, such as one of prpn, on-lstm or rnng"
            )

    def require_words(self) -> None:
        """Raise ``InputError`` if words alone get no probabilities, for want of trees or of a language model."""
        if not self.predicts_words:
            other = f"train one with model.{self.words_switch} = true" if self.words_switch else "take another system"
            raise InputError("this parser gives words no probabilities", remedy=f"parse with it, or {other}")

    @property
    def word_columns(self) -> Mapping[str, Gathering]:
        """The ``columns`` that its scores have by name: how a word of several tokens gets its value."""
        return {}

    @property
    def num_preceding(self) -> int:
        """Tokens of its document before a sentence that batches of whole sentences should hold. Here: none."""
        return 0

    @property
    def couples_sentences(self) -> bool:
        """Tell whether the training loss of a sentence depends on its batch-mates, so that no batch can be split."""
        return False

    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Raise ``InputError`` if training on a corpus, or evaluation on it, would fail or say nothing.

        Asked before training, so that it does not stop in the middle. Here: nothing is wrong.
        """

    def structure_fault(self, batch: SentenceBatch | StreamBatch) -> str:
        """What makes the structure that it finds in a batch useless, in one line; "" if nothing does.

        For systems that learn structure from words alone, whose loss would not tell. Training asks before the first
        update and at every evaluation, and warns. Changes nothing.
        """
        return ""

    @abstractmethod
    def losses(self, batch: SentenceBatch) -> Losses:
        """Differentiable loss terms of a batch."""

    @abstractmethod
    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Log probability of every token given the tokens before it.

        Here and below, a sentence is a list of words, or a text that is cut at blanks (``treelm.corpora.tokens``).
        """

    def score_given(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        """Score by a system that needs the trees of the sentences; any other does not look at them.

        Raises ``InputError`` for a sentence without the tree that is needed.
        """
        return self.score([sentence.words for sentence in sentences])

    @takes_texts
    def score_text(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Score sentences that follow one another; only the first has nothing before it.

        Raises ``InputError`` of a system that does not keep its context.
        """
        raise InputError(f"{self.system} reads each sentence by itself", remedy="take score")

    @abstractmethod
    def parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The best tree of every sentence. Raises ``InputError`` if the system has no trees (``parses``)."""

    @takes_texts
    def annotate(self, sentences: Sequence[Sequence[str]]) -> list[ParsedSentence]:
        """Trees with what a silver treebank needs besides: tags and confidence, of parsers that have them."""
        return [ParsedSentence(tree) for tree in self.parse(sentences)]

    def calibrate(self, batches: Sequence[SentenceBatch]) -> str:
        """Fit, after training, what makes its probabilities right on held-out sentences. Tells what was found.

        Here: nothing is fitted, and "" is returned.
        """
        return ""

    def begin_update(self, number: int) -> None:
        """Hear which update of the weights comes next, from 1: for what changes in the course of training.

        It must follow from the number alone, as after a resumption no other is told. Here: nothing changes.
        """

    def structure(self, words: Sequence[str]) -> Structure | None:
        """A record of the values that determine its tree of a sentence, for figures; None if there are none to draw.

        Raises ``InputError`` for a sentence without words.
        """
        return None

    @classmethod
    def require_rules(cls) -> None:
        """Raise ``InputError`` for a system without ``used_rules``: asked before any work is done."""
        if cls.used_rules is LanguageModel.used_rules:
            raise cls._without_rules()

    @classmethod
    def _without_rules(cls) -> InputError:
        return InputError(f"{cls.system} has no rules to list", remedy="take a run of an induced grammar")

    @takes_texts
    def used_rules(self, sentences: Sequence[Sequence[str]]) -> list[UsedRule]:
        """The rules of its grammar, and how often they stand in the most probable trees of sentences, by that.

        Raises ``InputError`` for a system that is no grammar with rules of its own.
        """
        raise self._without_rules()

    def own_metrics(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """Metrics that only this system has, by name, on sentences with trees."""
        return {}

    @takes_texts
    def surprisal(self, sentences: Sequence[Sequence[str]], *, measures: Sequence[str] = ()) -> list[SentenceSurprisal]:
        """Surprisal in bits of every word and of the end; ``measures`` (``treelm.models.measures``) are columns."""
        scores = score_with_measures(self, sentences, chosen_measures(measures))
        pairs = zip(sentences, scores, strict=True)
        return [sentence_surprisal(sentence, score, self.vocabulary) for sentence, score in pairs]

    def surprisal_table(self, frame: Any, **settings: Any) -> Any:
        """Return a data frame of words with their surprisals beside it, as ``treelm.surprisal_table`` does."""
        import treelm

        return treelm.surprisal_table(self, frame, **settings)

    @takes_texts
    def analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Scores and trees together; systems whose search gives both at once override this."""
        scores = self.score(sentences) if self.predicts_words else [None] * len(sentences)
        trees = self.parse(sentences) if self.parses else [None] * len(sentences)
        return [Analysis(score=score, tree=tree) for score, tree in zip(scores, trees, strict=True)]

    def probability_mass(self) -> ProbabilityMass | None:
        """The mass of everything, enumerated, which is 1 together; None where there is too much, or no enumeration."""
        return None

    def write_arpa(self, path: Path) -> None:
        """Write a file of n-grams with back-off weights. Raises ``InputError`` for a system that has none."""
        raise InputError(f"{self.system} has no n-grams", remedy="take a run of ngram")

    @abstractmethod
    def start(self, num_sentences: int = 1) -> IncrementalState:
        """The state before the first word."""

    @takes_texts
    def start_after(self, sentences: Sequence[Sequence[str]]) -> IncrementalState:
        """The state before the first word of a sentence that follows these, which follow one another.

        Raises ``InputError`` of a system that does not keep its context.
        """
        raise InputError(f"{self.system} reads each sentence by itself", remedy="take start")

    @abstractmethod
    def extend_tokens(self, state: IncrementalState, tokens: Sequence[int | None]) -> IncrementalState:
        """The state after one more token in each sentence; None for a sentence that waits. Changes nothing."""

    @takes_a_word_each
    def extend(self, state: IncrementalState, words: Sequence[str]) -> IncrementalState:
        """The state after one more word in each sentence, token by token."""
        for tokens in self._spelled(state, words):
            state = self.extend_tokens(state, tokens)
        return state.called(words) if isinstance(state, TextState) else state

    @takes_a_word_each
    def extend_scored(
        self, state: IncrementalState, words: Sequence[str]
    ) -> tuple[IncrementalState, NDArray[np.float64]]:
        """The state after one more word in each sentence, and log p of each given the words before it, in nats: (n,).

        The numbers are those of ``score``. Raises ``InputError`` if it gives words no probabilities.
        """
        self.require_words()
        log_probs = np.zeros(len(words))
        for tokens in self._spelled(state, words):
            following = self.next_word_log_probs(state)
            log_probs += [0.0 if one is None else float(following[row, one]) for row, one in enumerate(tokens)]
            state = self.extend_tokens(state, tokens)
        return (state.called(words) if isinstance(state, TextState) else state), log_probs

    def _spelled(self, state: IncrementalState, words: Sequence[str]) -> Iterator[tuple[int | None, ...]]:
        """The tokens of the next word of each sentence, side by side; None where a word has fewer."""
        spelled = [
            self.vocabulary.encode([word], sentence_initial=num_read == 0).ids.tolist()
            for word, num_read in zip(words, state.num_tokens_read, strict=True)
        ]
        return zip_longest(*spelled)

    @abstractmethod
    def next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """log p(next token), float64 (num_sentences, len(vocabulary) + 1); the last column is the end of sentence."""

    @takes_texts
    def reduce_next_log_probs(
        self,
        sentences: Sequence[Sequence[str]],
        reduce: Callable[[Tensor, Tensor], Tensor],
        *,
        in_document: bool = False,
    ) -> list[NDArray[np.float64]]:
        """Reduce the distributions before each word and before the end to k numbers each: (num_words + 1, k).

        ``reduce`` takes log p (n, V + 1) of what may come at n places and the tokens (n,) that come there, and gives
        (n, k), as ``treelm.models.measures`` does. Sentences stand by themselves, or in a row as in ``score_text``.
        Here they are read word by word; systems that see all places of a sentence at once override this.
        """
        return read_word_by_word(self, sentences, reduce, self.start(len(sentences)))

    @abstractmethod
    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The best tree over the words read so far, what is open closed. Raises ``InputError`` if it has none."""

    def partial_analyses(self, state: IncrementalState, most: int = 10) -> list[list[PartialAnalysis]]:
        """The analyses of each sentence so far that a search has kept, the most probable first; none without a search.

        Raises ``InputError`` before the first word.
        """
        return [[] for _ in range(state.num_sentences)]


class EstimatedLM(LanguageModel):
    """A system whose parameters follow from one look at the training data: training calls ``estimate`` once.

    It has no differentiable losses, no optimiser and no checkpoints; its recipes leave ``[training]`` empty.
    """

    @abstractmethod
    def estimate(self, corpus: EncodedCorpus) -> None:
        """Set the parameters, and what of the config follows from the data (sizes), by this corpus.

        Raises ``InputError`` for data that do not determine the parameters.
        """
