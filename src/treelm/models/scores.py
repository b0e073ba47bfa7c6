"""Records of what a model says of a batch or a sentence: losses, scores, analyses, and the surprisal of words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.trees.tree import Tree

if TYPE_CHECKING:
    import pandas as pd

NATS_PER_BIT = math.log(2.0)
SubwordAggregation = Literal["first", "last", "sum", "min"]
"""Rule by which a word of several tokens gets its value in a column: that of its first token, of its last one (after
which the word has been read), their sum, or their minimum (a flag that holds of the word if it holds of all)."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One named term: a differentiable sum in nats, and the number of decisions that it sums over."""

    sum: Tensor
    count: int


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The terms of a batch; that of the words is ``word``. Training minimises ``total``, in nats per ``num_words``."""

    terms: Mapping[str, Loss]
    total: Tensor
    num_words: int
    num_sentences: int

    @classmethod
    def of(cls, batch: SentenceBatch, terms: Mapping[str, Loss], total: Tensor | None = None) -> Losses:
        """The losses of whole sentences; unless it is given, the total is that of all terms."""
        total = torch.stack([term.sum for term in terms.values()]).sum() if total is None else total
        return cls(terms=terms, total=total, num_words=int(batch.num_words.sum()), num_sentences=len(batch))


class NoLogProbability(InputError):
    """A value that is not a log probability: NaN, or plus infinity."""

    def __init__(self, found: str, where: str | None = None) -> None:
        """Say what was given, of which token, and of which sentence if that is known."""
        super().__init__(
            found, remedy="its weights are of no use: train again, with a lower learning_rate", where=where
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes."""
        return NoLogProbability, (self.found, self.where)


CONVERGED = "beam_converged"
"""Column of systems that search: 1 for a word of which a narrower search says the same, 0 for one of which it does not,
nan where nothing was compared: a fixed beam, particles."""


@dataclass(frozen=True, kw_only=True)
class SentenceScore:
    """log p(token | tokens before it) in nats, for every token and, last, the end of the sentence.

    ``word_of_token`` names for every token the word that it belongs to. A search that prunes gives lower bounds on
    probabilities and says so. ``columns`` holds further metrics, one a word (entropy, open nodes, ...).
    """

    log_probs: NDArray[np.float64]  # (num_tokens + 1,)
    word_of_token: NDArray[np.int64]  # (num_tokens,)
    is_lower_bound: bool
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ``NoLogProbability`` for what is none; -inf is one, of what the model holds impossible."""
        wrong = np.isnan(self.log_probs) | (self.log_probs == np.inf)
        if wrong.any():
            place = int(wrong.argmax())
            token = "the end" if place == len(self.word_of_token) else f"word {int(self.word_of_token[place]) + 1}"
            found = f"the model gives {token} a log probability of {self.log_probs[place]}"
            raise NoLogProbability(found)

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Whether each word's search has converged, of the words of which that is known (``CONVERGED``).

        Empty for systems that score without a search, for a fixed beam and for particles.
        """
        flags = self.columns.get(CONVERGED, np.empty(0))
        return np.equal(flags[~np.isnan(flags)], 1)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Result of one search over a sentence: how probable it is, word by word, and its best tree.

    A system that does not predict words (a bare parser) has no score, one that does not parse no tree.
    """

    score: SentenceScore | None
    tree: Tree | None


class Confidence(NamedTuple):
    """How right a parser expects its tree to be, from 0 to 1."""

    mean: float
    """Probability that a constituent is right, its label too: the mean over the tree."""
    expected_f1: float
    """Twice the number of constituents expected to be right over their number and the one that is expected in gold."""


class ParsedSentence(NamedTuple):
    """A tree as silver data need it. A parser may have no tags and no confidence."""

    tree: Tree
    tags: tuple[str, ...] | None = None
    confidence: Confidence | None = None


@dataclass(frozen=True, kw_only=True)
class ScoredTree:
    """A tree and log p(tree, sentence) in nats, under the model (no search has made it smaller)."""

    tree: Tree
    log_prob: float


class PartialAnalysis(NamedTuple):
    """One of the ways to read the words so far, of those that a search has kept."""

    tree: Tree
    """Constituents that hold the last word are open, all others are complete. Of a word that no constituent holds yet,
    one without a label holds it."""
    share: float
    """Its probability given the words: all that the search has kept sum to 1."""


@dataclass(frozen=True, kw_only=True)
class ProbabilityMass:
    """Sum over everything that a tiny model can say, listed; finished and unfinished together must be 1.

    ``finished`` is the probability of all (tree, sentence) pairs up to a length, ``unfinished`` that of all derivations
    that are longer or not at their end.
    """

    finished: float
    unfinished: float
    num_pairs: int
    description: str  # such as "sentences of up to 3 words over 4 tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class WordSurprisal:
    """One word of a sentence. ``columns`` holds what the system adds (entropy, open nodes, ...)."""

    word: str
    surprisal_bits: float
    is_unk: bool
    unk_class: str | None
    num_pieces: int
    columns: Mapping[str, float] = field(default_factory=dict)

    @property
    def probability(self) -> float:
        """p(word | words before it): what a cloze test estimates."""
        return math.exp2(-self.surprisal_bits)


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceSurprisal:
    """The words of a sentence and its end. All bits together are minus log2 of the sentence's probability."""

    words: tuple[WordSurprisal, ...]
    end_surprisal_bits: float

    @property
    def total_bits(self) -> float:
        """Surprisal of the whole sentence, its end included."""
        return math.fsum([*(word.surprisal_bits for word in self.words), self.end_surprisal_bits])

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with a row a word, without the end."""
        import pandas as pd

        rows = [{**asdict(word), **word.columns} for word in self.words]
        return pd.DataFrame(rows).drop(columns="columns", errors="ignore")

    def _repr_html_(self) -> str:
        """Words, and below them their bits, for a notebook."""
        import pandas as pd

        bits = [*((word.word, word.surprisal_bits) for word in self.words), ("</s>", self.end_surprisal_bits)]
        table = pd.DataFrame(bits, columns=["", "bits"]).T
        return str(table.to_html(header=False, border=0, float_format="{:.2f}".format))


def sentence_surprisal(words: Sequence[str], score: SentenceScore, vocabulary: Vocabulary) -> SentenceSurprisal:
    """Sum the surprisal of each word's tokens and name the class of each unknown word."""
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
