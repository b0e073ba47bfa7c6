"""What systems can do besides giving words probabilities: small classes that a system inherits from.

``isinstance(lm, Searching)`` tells whether the class of a model has a capability, ``has(lm, Searching)`` whether the
model has it as it is configured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, final

from treelm.corpora.tokens import check_have_words, words_of_each
from treelm.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import TypeIs

    from treelm.corpora.encoding import EncodedCorpus, SentenceBatch
    from treelm.corpora.sentence import Sentence
    from treelm.corpora.stream_batches import StreamBatch
    from treelm.models.base import LanguageModel
    from treelm.models.scores import ParsedSentence, PartialAnalysis, ProbabilityMass, ScoredTree, SentenceScore
    from treelm.models.search.config import SearchConfig
    from treelm.models.states import IncrementalState
    from treelm.models.structures import AttentionWeights, Structure, UsedRule
    from treelm.trees.tree import Tree

Sentences = Sequence[Sequence[str]]
Kind = TypeVar("Kind")


def has(lm: Any, capability: type[Kind]) -> TypeIs[Kind]:
    """Tell whether a model has a capability: its class has it, and its config does not switch it off."""
    unavailable: dict[type, str] = lm.unavailable
    return isinstance(lm, capability) and capability not in unavailable


def require(lm: Any, capability: type[Kind]) -> Kind:
    """Return the model. Raises ``InputError``, which says why, if it does not have a capability."""
    if has(lm, capability):
        return lm
    raise InputError(why_not(lm, capability), remedy=_REMEDIES.get(capability, "take a run of another system"))


def why_not(lm: Any, capability: type) -> str:
    """The reason why a model does not have a capability."""
    return lm.unavailable.get(capability) or f"{lm.system} {_LACKS[capability]}"


class Parser(ABC):
    """Finds trees of sentences."""

    predicts_labels: ClassVar[bool] = True
    """Whether its constituents have labels; False if all of them have the same one."""
    preferred_batch_size: ClassVar[int] = 0
    """The number of sentences that it parses fastest at once, since it groups them by length itself. 0: any number."""
    tree_builders: ClassVar[Mapping[str, str]] = {}
    """The ways of building trees that ``tree_builder`` may name, each with the note that results get about it."""
    tree_builder: str | None = None
    """The present way of building trees, for a system that has a choice."""

    @final
    def parse(self, sentences: Sentences) -> list[Tree]:
        """The best tree of every sentence.

        Raises ``InputError`` for a model without trees, and for a sentence without words.
        """
        parser, words = require(self, Parser), words_of_each(sentences)
        check_have_words(words)
        return parser._parse(words)

    @abstractmethod
    def _parse(self, sentences: Sentences) -> list[Tree]:
        """Implement ``parse``: the sentences are lists of words, of which none is empty."""

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The best tree over the words read so far, of each sentence; open constituents are closed.

        Here it is the tree of these words as a whole sentence. Raises ``InputError`` before the first word.
        """
        from treelm.models.states import IncrementalState

        own = IncrementalState.own(state)
        own.check_begun()
        return self.parse(own.words)

    def structure(self, words: Sequence[str]) -> Structure | None:
        """The values that determine the tree of a sentence, as a record for figures; None if there are none to draw.

        Raises ``InputError`` for a sentence without words.
        """
        return None


class Searching(ABC):
    """Scores and parses by a search over partial analyses."""

    search: SearchConfig
    """The settings of the search. Setting them raises ``InputError`` for a method that the system does not know."""

    @abstractmethod
    def parse_nbest(self, sentences: Sentences, num_trees: int) -> list[list[ScoredTree]]:
        """At most ``num_trees`` trees of every sentence, the most probable first.

        There are never more than ``word_beam`` of them.
        """

    @abstractmethod
    def partial_analyses(self, state: IncrementalState, most: int = 10) -> list[list[PartialAnalysis]]:
        """The analyses of the words so far that the search has kept, at most ``most`` of each sentence.

        The most probable analysis comes first. Raises ``InputError`` before the first word.
        """


class ConfidentParser(Parser):
    """A parser that says how sure it is of each of its trees."""

    @final
    def annotate(self, sentences: Sentences) -> list[ParsedSentence]:
        """Find the trees of sentences, with tags and confidence, as silver treebanks need them."""
        return self._annotate(words_of_each(sentences))

    @abstractmethod
    def _annotate(self, sentences: Sentences) -> list[ParsedSentence]:
        """Implement ``annotate``: the sentences are lists of words."""

    @abstractmethod
    def calibrate(self, batches: Sequence[SentenceBatch]) -> str:
        """Fit what makes the confidence right on held-out sentences, after training.

        Returns one line that says what was found.
        """


class DocumentContext(ABC):
    """Reads the sentences of a document in a row, each with those before it as its context."""

    num_preceding: int = 0
    """How many tokens of its document before a sentence a batch of whole sentences should hold."""

    @final
    def score_document(self, sentences: Sentences) -> list[SentenceScore]:
        """Score sentences that follow one another; only the first has nothing before it.

        Raises ``InputError`` for a model that was configured to read sentences by themselves.
        """
        return require(self, DocumentContext)._score_document(words_of_each(sentences))

    @final
    def start_after(self, sentences: Sentences) -> IncrementalState:
        """The state before the first word of a sentence that follows these sentences, which follow one another.

        Raises ``InputError`` for a model that was configured to read sentences by themselves.
        """
        return require(self, DocumentContext)._start_after(words_of_each(sentences))

    @abstractmethod
    def _score_document(self, sentences: Sentences) -> list[SentenceScore]:
        """Implement ``score_document``: the sentences are lists of words."""

    @abstractmethod
    def _start_after(self, sentences: Sentences) -> IncrementalState:
        """Implement ``start_after``: the sentences are lists of words."""


class Attention(ABC):
    """Looks back at what it has read by attention, and can return the weights."""

    @final
    def attention(self, sentences: Sentences, *, layer: int = -1, head: int | None = None) -> list[AttentionWeights]:
        """The weights by which each word attends to itself and to those before it, in one layer.

        Layers and heads are numbered from 1, the lowest, or backwards from -1, the last. Without ``head``, the result
        has the weights of all heads. A word of several tokens attends as its last token does, and the weight that it
        receives is the sum over its tokens. Systems that build trees give the attention in the most probable tree; a
        Transformer Grammar attends to brackets, too, and from them. PaLM attends to spans, each of which is named by
        the word that it begins with; all end before the word that attends.

        Raises ``InputError`` for a model without attention, for a sentence without words, and for a layer or a head
        that does not exist.
        """
        from treelm.models.structures import AttentionWeights

        model, words, found = require(self, Attention), words_of_each(sentences), list[AttentionWeights]()
        check_have_words(words)
        for tokens, layers in map(model._attention, words):
            weights = numbered("layer", layer, layers)
            weights = weights if head is None else numbered("head", head, weights)
            found.append(AttentionWeights(tokens=tokens, weights=weights))
        return found

    @abstractmethod
    def _attention(self, words: Sequence[str]) -> tuple[tuple[str, ...], Sequence[Any]]:
        """The names of the P positions of a sentence, and the weights (H, P, P) of each layer, the lowest first."""


class TreeConditioned(ABC):
    """Predicts the words of a sentence only if its tree is given."""

    @abstractmethod
    def score_given(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        """Score sentences given their trees.

        Raises ``InputError`` for a sentence without the tree that is needed.
        """


class Grammar(ABC):
    """Has a grammar, whose rules can be listed."""

    @abstractmethod
    def used_rules(self, sentences: Sentences) -> list[UsedRule]:
        """The rules in the most probable trees of sentences, those that are used most first."""


class Counted(ABC):
    """Has parameters that are counted in one pass over the training data: training calls ``estimate`` once.

    It has no differentiable losses, no optimizer and no checkpoints; its recipes leave ``[training]`` empty.
    """

    @abstractmethod
    def estimate(self, corpus: EncodedCorpus) -> None:
        """Set the parameters by this corpus, and the fields of the config, such as sizes, that follow from it.

        Raises ``InputError`` for data that do not determine the parameters.
        """


class BackoffNGrams(ABC):
    """Can be written as n-grams with back-off weights."""

    @abstractmethod
    def write_arpa(self, path: Path) -> None:
        """Write an ARPA file, which KenLM and other programs read."""


class Enumerable(ABC):
    """Can be summed over all sentences and trees that it may generate, if it is tiny."""

    @abstractmethod
    def probability_mass(self) -> ProbabilityMass | None:
        """The probability of everything that it may generate, which must be 1; None if that is too much."""


class LatentTrees(ABC):
    """Learns trees from words alone, so that its loss does not show when the trees have become useless."""

    @abstractmethod
    def diagnose_latent_trees(self, batch: SentenceBatch | StreamBatch) -> str:
        """Say in one line what makes the structure that it finds in a batch useless; "" if nothing does.

        Training asks before the first update and at every evaluation, and warns. The model stays as it is.
        """


class StepScheduled(ABC):
    """Changes in the course of training."""

    @abstractmethod
    def before_step(self, number: int) -> None:
        """Prepare for an optimizer step; the first has the number 1.

        What changes must follow from the number alone: when training is resumed, nothing else is known.
        """


class ChecksCorpus(ABC):
    """Can learn from, or be evaluated on, some corpora only."""

    @abstractmethod
    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Raise ``InputError`` if training on a corpus, or evaluation on it, would fail or give meaningless numbers.

        It is asked before training, so that training does not stop in the middle.
        """


class LearnsTags(ABC):
    """Learns part-of-speech tags: batches of its training data have them."""

    @property
    @abstractmethod
    def tags(self) -> tuple[str, ...]:
        """The tags that it knows; empty if its training data had none."""


class PlansBatches(ABC):
    """Computes by a plan that follows from a batch, and that can be made while a device computes the batch before."""

    @abstractmethod
    def plan_ahead(self, batch: SentenceBatch | StreamBatch) -> None:
        """Begin to plan the next batch, while a device computes the present one."""

    @property
    @abstractmethod
    def has_fused_kernels(self) -> bool:
        """Tell whether ``layers/fused.py`` can compute its LSTMs."""


class CouplesSentences:
    """Has a training loss in which sentences of a batch depend on one another, so that no batch can be split."""


class OwnMetrics(ABC):
    """Has metrics that no other system has."""

    @abstractmethod
    def own_metrics(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """Compute these metrics, by name, on sentences with trees."""


def numbered(name: str, number: int, choices: Any) -> Any:
    """Choose a layer, or a head, by its number: from 1, the lowest, or backwards from -1, the last.

    Raises ``InputError`` for a number that does not exist; ``name`` says what of.
    """
    if not isinstance(number, int) or not 1 <= abs(number) <= len(choices):
        found = f"{name} = {number!r} of a model with {len(choices)}"
        raise InputError(found, remedy="count from 1, the lowest, or from -1, the last")
    return choices[number - (number > 0)]


_LACKS: dict[type, str] = {
    Attention: "has no attention whose weights could be had",
    Parser: "is a language model without trees",
    DocumentContext: "reads whole sentences: each begins from nothing",
    Grammar: "has no rules to list",
    BackoffNGrams: "has no n-grams",
    Searching: "scores without a search",
    ConfidentParser: "says nothing of tags, nor of how sure it is of trees",
}
_REMEDIES: dict[type, str] = {
    Attention: "take a model of transformer, transformer-grammar, pushdown, palm or hf",
    Parser: "take a run with structure, such as one of prpn, on-lstm or rnng",
    DocumentContext: "score each sentence by itself",
    Grammar: "take a run of an induced grammar",
    BackoffNGrams: "take a run of ngram",
}


class UnavailableError(InputError, AttributeError):
    """A model was asked for what only models of other systems can do. ``hasattr`` gives False."""


def check_available(lm: LanguageModel, name: str) -> None:
    """Raise ``UnavailableError`` for the name of a method or field of a capability that a model's system lacks."""
    for capability, lacks in _LACKS.items():
        if not name.startswith("_") and (name in vars(capability) or name in capability.__annotations__):
            remedy = _REMEDIES.get(capability, "take a run of another system")
            raise UnavailableError(f"{lm.system} {lacks}, so it has no {name!r}", remedy=remedy)


def set_search(lm: LanguageModel, config: SearchConfig) -> None:
    """Set the search of a model, if it searches.

    Raises ``InputError`` if a system that scores without a search is asked for another method than a beam, or for half
    precision.
    """
    if isinstance(lm, Searching):
        lm.search = config
    elif config.method != "beam" or config.precision != "full":
        asked = config.method if config.method != "beam" else config.precision
        raise InputError(f"search by {asked!r}, but {lm.system} scores without a search", remedy="remove this option")


def score_with_trees(lm: LanguageModel, sentences: Sequence[Sentence]) -> list[SentenceScore]:
    """Score sentences, given their trees where the model needs them."""
    return lm.score_given(sentences) if has(lm, TreeConditioned) else lm.score([one.words for one in sentences])


def structure_of(lm: LanguageModel, words: Sequence[str]) -> Structure | None:
    """``Parser.structure`` of a sentence; None for a model without trees."""
    return lm.structure(words) if has(lm, Parser) else None
