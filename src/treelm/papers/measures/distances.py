"""Whether the distances of a PRPN say anything: how many are 0, equal to their neighbours, or saturate its gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import encode_words
from treelm.errors import InputError
from treelm.papers.data import DataRoot
from treelm.papers.measures.base import Measured, OnTreebank, Subject

_METRICS = {
    "zero": "distances that are 0",
    "equal": "distances equal to the one before",
    "saturated": "saturated gates",
}


@runtime_checkable
class HasDistances(Protocol):
    """A network whose parser computes distances, as PRPN's."""

    parser: Any

    def distance_shares(self, batch: SentenceBatch) -> Any:
        """Shares of useless distances, 0 to 1: ``zero``, ``equal``, ``saturated``."""


@dataclass(frozen=True, kw_only=True)
class Distances(OnTreebank):
    """Shares in percent of what is useless in the distances of the first sentences, as training would compute them."""

    max_sentences: int | None = 500

    def metrics(self) -> Sequence[str]:
        """What is useless: zeros, ties, saturated gates."""
        return tuple(_METRICS.values())

    def baselines(self) -> Sequence[str]:
        """None."""
        return ()

    def of_run(self, subject: Subject) -> Measured:
        """Find the distances of the run. Raises ``InputError`` for a network without a parser of PRPN's kind."""
        lm = subject.model({})
        if not isinstance(lm, HasDistances) or lm.parser is None:
            raise InputError(
                "no distances of PRPN", where=str(subject.run), remedy="measure runs of prpn with a parser"
            )
        sentences = self.sentences(self.config(subject.recipe.data, subject.root))
        with torch.no_grad():
            shares = lm.distance_shares(encode_words([one.words for one in sentences], lm.vocabulary))
        return Measured(values={metric: 100 * getattr(shares, name) for name, metric in _METRICS.items()})

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Nothing: data alone have no distances."""
        return Measured()
