"""What a model returns for a batch or a sentence: losses, scores, analyses, and the surprisal of words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.encoding import SentenceBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.trees.tree import Tree

if TYPE_CHECKING:
    import pandas as pd

NATS_PER_BIT = math.log(2.0)
SubwordAggregation = Literal["first", "last", "sum", "part", "min"]
"""The rule by which a word of several tokens gets its value in a column: that of its first token, that of its last
token (after which the word has been read), their sum (``part`` if it is a part of the word's surprisal), or their
minimum (for a flag that holds for a word if it holds for all of its tokens)."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One term of a loss: a differentiable sum in nats, and the number of decisions that it sums over."""

    sum: Tensor
    count: int


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The terms of the loss of a batch; the one of the words has the name ``word``.

    Training minimises ``total``, in nats, divided by ``num_words``.
    """

    terms: Mapping[str, Loss]
    total: Tensor
    num_words: int
    num_sentences: int

    @classmethod
    def of(cls, batch: SentenceBatch, terms: Mapping[str, Loss], total: Tensor | None = None) -> Losses:
        """The losses of a batch of whole sentences. Without ``total``, the total is the sum of all terms."""
        total = torch.stack([term.sum for term in terms.values()]).sum() if total is None else total
        return cls(terms=terms, total=total, num_words=int(batch.num_words.sum()), num_sentences=len(batch))


class NoLogProbability(InputError):
    """A model gave a value that is not a log probability: NaN, or plus infinity."""

    def __init__(self, found: str, where: str | None = None) -> None:
        """Say what was given for which token and, if that is known, in which sentence."""
        super().__init__(
            found, remedy="its weights are of no use: train again, with a lower learning_rate", where=where
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Make the error picklable, so that other processes can raise it."""
        return NoLogProbability, (self.found, self.where)


CONVERGED = "beam_converged"
"""The name of a column of systems that search: 1 for a word to which a narrower search gives the same figures, 0 for
one to which it gives others, and NaN where nothing was compared, as with a fixed beam or with particles."""


@dataclass(frozen=True, kw_only=True)
class SentenceScore:
    """log p(token | tokens before it) in nats, for every token and, last, for the end of the sentence.

    ``word_of_token`` has the number of the word that each token belongs to. A search that prunes finds lower bounds of
    the probabilities, and ``is_lower_bound`` says so. ``columns`` holds further values, one for each word, such as
    entropies.
    """

    log_probs: NDArray[np.float64]  # (num_tokens + 1,)
    word_of_token: NDArray[np.int64]  # (num_tokens,)
    is_lower_bound: bool
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ``NoLogProbability`` if a value is not a log probability.

        -inf is one: that of what the model holds to be impossible.
        """
        wrong = np.isnan(self.log_probs) | (self.log_probs == np.inf)
        if wrong.any():
            place = int(wrong.argmax())
            token = "the end" if place == len(self.word_of_token) else f"word {int(self.word_of_token[place]) + 1}"
            found = f"the model gives {token} a log probability of {self.log_probs[place]}"
            raise NoLogProbability(found)

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Whether the search has converged, for each of the words about which the column ``CONVERGED`` says so.

        It is empty for systems that score without a search, for a fixed beam, and for particles.
        """
        flags = self.columns.get(CONVERGED, np.empty(0))
        return np.equal(flags[~np.isnan(flags)], 1)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The score of a sentence and its best tree, as one search finds them.

    A mere parser, which gives words no probabilities, has no score; a system that does not parse has no tree.
    """

    score: SentenceScore | None
    tree: Tree | None


class Confidence(NamedTuple):
    """How much of a tree its parser expects to be right, from 0 to 1."""

    mean: float
    """The probability that a constituent is right, its label included: the mean over the tree."""
    expected_f1: float
    """Twice the number of constituents that are expected to be right, divided by the sum of their number and the number
    that is expected in the gold tree."""


class ParsedSentence(NamedTuple):
    """A tree with its tags and the confidence of the parser, as silver treebanks need it. A parser may give neither."""

    tree: Tree
    tags: tuple[str, ...] | None = None
    confidence: Confidence | None = None


@dataclass(frozen=True, kw_only=True)
class ScoredTree:
    """A tree and log p(tree, sentence) in nats under the model. No search makes this number smaller."""

    tree: Tree
    log_prob: float


class PartialAnalysis(NamedTuple):
    """One of the analyses of the words so far that a search has kept."""

    tree: Tree
    """The constituents that contain the last word are open, all others are complete. A word that is in no constituent
    yet is in one without a label."""
    share: float
    """Its probability given the words: the shares of all analyses that the search has kept sum to 1."""


@dataclass(frozen=True, kw_only=True)
class ProbabilityMass:
    """The probability of everything that a tiny model can generate, enumerated.

    ``finished`` is the probability of all pairs of a tree and a sentence up to some length, ``unfinished`` that of all
    derivations that are longer or have not ended. Together they must be 1.
    """

    finished: float
    unfinished: float
    num_pairs: int
    description: str  # such as "sentences of up to 3 words over 4 tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class WordSurprisal:
    """The surprisal of a word of a sentence. ``columns`` holds what the system adds, such as entropies."""

    word: str
    surprisal_bits: float
    is_unk: bool
    unk_class: str | None
    num_pieces: int
    columns: Mapping[str, float] = field(default_factory=dict)

    @property
    def probability(self) -> float:
        """p(word | words before it), which a cloze test estimates."""
        return math.exp2(-self.surprisal_bits)


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceSurprisal:
    """The surprisal of the words of a sentence and of its end.

    All bits together are -log2 of the probability of the sentence.
    """

    words: tuple[WordSurprisal, ...]
    end_surprisal_bits: float

    @property
    def total_bits(self) -> float:
        """The surprisal of the whole sentence, its end included."""
        return math.fsum([*(word.surprisal_bits for word in self.words), self.end_surprisal_bits])

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with a row for each word, without the end of the sentence."""
        import pandas as pd

        rows = [{**asdict(word), **word.columns} for word in self.words]
        return pd.DataFrame(rows).drop(columns="columns", errors="ignore")

    def _repr_html_(self) -> str:
        """The words with their bits below them, as a table in a notebook."""
        import pandas as pd

        bits = [*((word.word, word.surprisal_bits) for word in self.words), ("</s>", self.end_surprisal_bits)]
        table = pd.DataFrame(bits, columns=["", "bits"]).T
        return str(table.to_html(header=False, border=0, float_format="{:.2f}".format))


def sentence_surprisal(words: Sequence[str], score: SentenceScore, vocabulary: Vocabulary) -> SentenceSurprisal:
    """Compute the surprisal of each word as the sum over its tokens, and name the class of each unknown word."""
    bits = score.log_probs / -NATS_PER_BIT + 0.0  # a certain end has no bits, not minus none
    by_word = np.bincount(score.word_of_token, weights=bits[:-1], minlength=len(words))
    num_pieces = np.bincount(score.word_of_token, minlength=len(words))
    rows = []
    for position, word in enumerate(words):
        unknown = vocabulary.unknown_class(word, sentence_initial=position == 0)
        rows.append(
            WordSurprisal(
                word=word,
                surprisal_bits=float(by_word[position]),
                is_unk=unknown is not None,
                unk_class=unknown,
                num_pieces=int(num_pieces[position]),
                columns={name: float(values[position]) for name, values in score.columns.items()},
            )
        )
    return SentenceSurprisal(words=tuple(rows), end_surprisal_bits=float(bits[-1]))
