"""What systems can do besides giving words probabilities: small classes that a system inherits from.

``isinstance(lm, Searching)`` tells whether its class can; ``has(lm, Parser)`` whether it can as it is configured.
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

    from treelm.corpora.batches import SentenceBatch
    from treelm.corpora.encoding import EncodedCorpus
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
    """Tell whether a model can do something: its class can, and no switch of its config is against it."""
    unavailable: dict[type, str] = lm.unavailable
    return isinstance(lm, capability) and capability not in unavailable


def require(lm: Any, capability: type[Kind]) -> Kind:
    """Return the model itself; raises ``InputError`` that says why if it cannot do something."""
    if has(lm, capability):
        return lm
    raise InputError(why_not(lm, capability), remedy=_REMEDIES.get(capability, "take a run of another system"))


def why_not(lm: Any, capability: type) -> str:
    """The reason why a model cannot do something."""
    return lm.unavailable.get(capability) or f"{lm.system} {_LACKS[capability]}"


class Parser(ABC):
    """Finds trees."""

    predicts_labels: ClassVar[bool] = True
    """True if its trees have labels of their own, not one for all."""
    preferred_batch_size: ClassVar[int] = 0
    """Number of sentences that it is fastest with, as it groups those of one length itself; 0: any."""
    tree_builders: ClassVar[Mapping[str, str]] = {}
    """Ways of building trees that ``tree_builder`` may name, each with the note that results have of it."""
    tree_builder: str | None = None
    """The way of building trees, for a system that has a choice."""

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
        """``parse`` of lists of words."""

    def partial_trees(self, state: IncrementalState) -> list[Tree]:
        """The best tree over the words read so far, open constituents closed; here: the tree of these words alone.

        Raises ``InputError`` before the first word.
        """
        from treelm.models.states import IncrementalState

        own = IncrementalState.own(state)
        own.check_begun()
        return self.parse(own.words)

    def structure(self, words: Sequence[str]) -> Structure | None:
        """A record of the values that determine its tree of a sentence, for figures; None if there are none to draw.

        Raises ``InputError`` for a sentence without words.
        """
        return None


class Searching(ABC):
    """Scores and parses by a search over partial analyses."""

    search: SearchConfig
    """The search from now on. Setting it raises ``InputError`` for a method that the system does not know."""

    @abstractmethod
    def parse_nbest(self, sentences: Sentences, num_trees: int) -> list[list[ScoredTree]]:
        """At most ``num_trees`` trees of every sentence, best first; there are never more than ``word_beam``."""

    @abstractmethod
    def partial_analyses(self, state: IncrementalState, most: int = 10) -> list[list[PartialAnalysis]]:
        """The analyses of each sentence so far that the search has kept, the most probable first.

        Raises ``InputError`` before the first word.
        """


class ConfidentParser(Parser):
    """A parser that says how sure it is of each tree."""

    @final
    def annotate(self, sentences: Sentences) -> list[ParsedSentence]:
        """Trees with their tags and confidence, as silver treebanks need them."""
        return self._annotate(words_of_each(sentences))

    @abstractmethod
    def _annotate(self, sentences: Sentences) -> list[ParsedSentence]:
        """``annotate`` of lists of words."""

    @abstractmethod
    def calibrate(self, batches: Sequence[SentenceBatch]) -> str:
        """Fit, after training, what makes its confidence right on held-out sentences. Tells what was found."""


class DocumentContext(ABC):
    """Reads sentences in a row, each with those before it as its context."""

    num_preceding: int = 0
    """Tokens of its document before a sentence that batches of whole sentences should hold."""

    @final
    def score_document(self, sentences: Sentences) -> list[SentenceScore]:
        """Score sentences that follow one another; only the first has nothing before it."""
        return require(self, DocumentContext)._score_document(words_of_each(sentences))

    @final
    def start_after(self, sentences: Sentences) -> IncrementalState:
        """The state before the first word of a sentence that follows these, which follow one another."""
        return require(self, DocumentContext)._start_after(words_of_each(sentences))

    @abstractmethod
    def _score_document(self, sentences: Sentences) -> list[SentenceScore]:
        """``score_document`` of lists of words."""

    @abstractmethod
    def _start_after(self, sentences: Sentences) -> IncrementalState:
        """``start_after`` of lists of words."""


class Attention(ABC):
    """Looks back at what it has read by attention, whose weights can be had."""

    @final
    def attention(self, sentences: Sentences, *, layer: int = -1, head: int | None = None) -> list[AttentionWeights]:
        """How much each word looks at each of those before it, in one layer: of all heads, or of one.

        Layers and heads are numbered from 1, the lowest, or backwards from -1, the last. A word of several tokens looks
        as its last one does, and what it gets is the sum of theirs. Of systems that build trees it is that of the
        most probable tree; a Transformer Grammar looks at brackets, too, and from them. PaLM looks at spans, each of
        which is named by the word that it begins with; all end before the word that looks.

        Raises ``InputError`` for a model without attention, a sentence without words, and a layer or a head that there
        is not.
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
        """The positions of a sentence, and the weights (H, P, P) of each layer, the lowest first."""


class TreeConditioned(ABC):
    """Predicts words only if their trees are given."""

    @abstractmethod
    def score_given(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        """Score sentences with trees. Raises ``InputError`` for a sentence without the tree that is needed."""


class Grammar(ABC):
    """Has rules that can be listed."""

    @abstractmethod
    def used_rules(self, sentences: Sentences) -> list[UsedRule]:
        """The rules of the most probable trees of sentences, the most used first."""


class Counted(ABC):
    """Has parameters that follow from one look at the training data: training calls ``estimate`` once.

    It has no differentiable losses, no optimizer and no checkpoints; its recipes leave ``[training]`` empty.
    """

    @abstractmethod
    def estimate(self, corpus: EncodedCorpus) -> None:
        """Set the parameters, and what of the config follows from the data (sizes), by this corpus.

        Raises ``InputError`` for data that do not determine the parameters.
        """


class BackoffNGrams(ABC):
    """Can be written as n-grams with back-off weights."""

    @abstractmethod
    def write_arpa(self, path: Path) -> None:
        """Write an ARPA file, which KenLM and others read."""


class Enumerable(ABC):
    """Can be summed over everything that it might say, if it is tiny."""

    @abstractmethod
    def probability_mass(self) -> ProbabilityMass | None:
        """The mass of everything, enumerated, which is 1 together; None where there is too much."""


class LatentTrees(ABC):
    """Learns structure from words alone, whose loss would not tell if the structure has become useless."""

    @abstractmethod
    def diagnose_latent_trees(self, batch: SentenceBatch | StreamBatch) -> str:
        """What makes the structure that it finds in a batch useless, in one line; "" if nothing does.

        Training asks before the first update and at every evaluation, and warns. Changes nothing.
        """


class StepScheduled(ABC):
    """Changes in the course of training."""

    @abstractmethod
    def before_step(self, number: int) -> None:
        """Called before each optimizer step, of which the first is 1.

        What changes must follow from the number alone, as after a resumption no other is given.
        """


class ChecksCorpus(ABC):
    """Cannot learn from, or be evaluated on, every corpus."""

    @abstractmethod
    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Raise ``InputError`` if training on a corpus, or evaluation on it, would fail or give meaningless numbers.

        Asked before training, so that it does not stop in the middle.
        """


class LearnsTags(ABC):
    """Learns part-of-speech tags: batches of its training data have them."""

    @property
    @abstractmethod
    def tags(self) -> tuple[str, ...]:
        """The tags that it knows; empty if its training data had none."""


class PlansBatches(ABC):
    """Computes by a plan that follows from a batch, which can be made while a device computes the batch before."""

    @abstractmethod
    def plan_ahead(self, batch: SentenceBatch | StreamBatch) -> None:
        """Begin to plan the next batch."""

    @property
    @abstractmethod
    def has_fused_kernels(self) -> bool:
        """Tell whether ``layers/fused.py`` can compute its LSTMs."""


class CouplesSentences:
    """Has a training loss in which a sentence depends on its batch-mates, so that no batch can be split."""


class OwnMetrics(ABC):
    """Has metrics that no other system has."""

    @abstractmethod
    def own_metrics(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """The metrics by name, on sentences with trees."""


def numbered(name: str, number: int, choices: Any) -> Any:
    """What has this number, from 1, or backwards from -1. Raises ``InputError`` for one that there is not."""
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
    """What a model of another system could do was asked of this one; ``hasattr`` is False."""


def check_available(lm: LanguageModel, name: str) -> None:
    """Raise ``UnavailableError`` for a name that is of a capability which the system of a model lacks."""
    for capability, lacks in _LACKS.items():
        if not name.startswith("_") and (name in vars(capability) or name in capability.__annotations__):
            remedy = _REMEDIES.get(capability, "take a run of another system")
            raise UnavailableError(f"{lm.system} {lacks}, so it has no {name!r}", remedy=remedy)


def set_search(lm: LanguageModel, config: SearchConfig) -> None:
    """Have a model search so, if it searches.

    Raises ``InputError`` for what no system without a search may be asked: another method than a beam, half precision.
    """
    if isinstance(lm, Searching):
        lm.search = config
    elif config.method != "beam" or config.precision != "full":
        asked = config.method if config.method != "beam" else config.precision
        raise InputError(f"search by {asked!r}, but {lm.system} scores without a search", remedy="remove this option")


def score_with_trees(lm: LanguageModel, sentences: Sequence[Sentence]) -> list[SentenceScore]:
    """Scores of sentences, given their trees where a model needs them."""
    return lm.score_given(sentences) if has(lm, TreeConditioned) else lm.score([one.words for one in sentences])


def structure_of(lm: LanguageModel, words: Sequence[str]) -> Structure | None:
    """``Parser.structure`` of a sentence; None for a model without trees."""
    return lm.structure(words) if has(lm, Parser) else None
