"""Small vocabularies, networks and batches for the tests of SOM."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import torch

from tests.models.rnng.worlds import Tokens
from tests.models.som.plain import batch_of, random_tree
from tests.models.weights import stirred
from treelm.corpora.encoding import SentenceBatch
from treelm.models.som.config import SOMConfig
from treelm.models.som.network import SOM

VOCABULARY_SIZE = 8


def som(seed: int = 0, num_unfinished: int = 0, **config: Any) -> SOM:
    """A tiny float64 network without dropout, in training mode, with sharp decisions."""
    torch.manual_seed(seed)
    fields = {"size": 6, "num_slots": 15, "dropout": 0.0, "embedding_dropout": 0.0, "output_dropout": 0.0} | config
    network = SOM(SOMConfig(**fields), vocabulary=Tokens(VOCABULARY_SIZE, num_unfinished)).double()
    return stirred(network, 0.1, times=2)


def batch(network: SOM, lengths: tuple[int, ...] = (7, 3, 9, 1, 5), seed: int = 1) -> SentenceBatch:
    random = Random(seed)
    return batch_of([random_tree(n, random) for n in lengths], seed=seed, vocabulary=len(network.vocabulary))


def sentences(lengths: tuple[int, ...] = (7, 3, 9, 1, 5), seed: int = 1) -> list[list[str]]:
    random = Random(seed)
    return [[str(random.randrange(VOCABULARY_SIZE)) for _ in range(n)] for n in lengths]


def padded(values: Any, layout: Any, *, skip: int = 0, fill: int) -> Any:
    """Packed values (P - skipped first positions,) as (B, T), in the batch's order of sentences."""
    full = np.full((len(layout.sentences), len(layout.num_alive)), fill)
    rows, times = layout.rows, layout.times
    full[layout.sentences[rows[skip:]], times[skip:]] = values
    return full
