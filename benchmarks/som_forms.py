"""How much faster SOM is than its naive form, which computes all slots at every step, on one batch of gum-open.

python benchmarks/som_forms.py --rounds 5 --json forms.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Literal

import numpy as np
import one_line
import torch
from numpy.typing import NDArray
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.models.som.all_slots import all_slots_losses

from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.data_config import DataConfig, prepared_split
from treelm.corpora.encoding import EncodedCorpus, SentenceBatch
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models.layers.binary_structure import static_labels
from treelm.models.layers.precision import MatmulPrecision, matmul_precision
from treelm.models.som.config import SOMConfig
from treelm.models.som.network import SOM, sample
from treelm.models.som.plan import lay_out

IntArray = NDArray[np.int64]
PREDICTION_ERRORS = 0.13  # 1 - accuracy of p', Table 2
Form = Literal["all slots", "lazy"]
MEASURED: tuple[tuple[Form, MatmulPrecision], ...] = (
    ("all slots", "fp32"),
    ("lazy", "fp32"),
    ("lazy", "bf16"),
)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    rounds: int = 5
    """How often all forms are measured in turns."""
    threads: int = 1
    """CPU threads."""
    json: Path | None = None
    """File to write all figures into."""


def main(options: Arguments) -> None:
    """Print form, precision, tokens a second, and the ratio's median and range."""
    torch.set_num_threads(options.threads)
    speeds = compare_forms(rounds=options.rounds)
    for one in speeds:
        ratio = f"{one.ratio:.1f}x ({min(one.ratios):.1f}-{max(one.ratios):.1f})"
        print(one.form, one.precision, f"{one.tokens_per_second:.0f}", ratio, sep="\t")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(speed) for speed in speeds], indent=2))


@dataclass(frozen=True, kw_only=True)
class FormSpeed:
    """Forward and backward of one form; ``ratios`` are to the naive form of the same round."""

    form: Form
    precision: MatmulPrecision
    tokens_per_second: float
    ratios: tuple[float, ...]  # of every round
    seconds: tuple[float, ...]  # of processor time, every round

    @property
    def ratio(self) -> float:
        """Median over rounds."""
        return median(self.ratios)


def compare_forms(
    *,
    size: int = 400,
    num_slots: int = 15,
    vocabulary_size: int = 23_815,
    batch_size: int = 64,
    num_words: tuple[int, int] = (18, 22),
    rounds: int = 5,
    forms: Sequence[tuple[Form, MatmulPrecision]] = MEASURED,
    corpus: str = "gum-open",
) -> list[FormSpeed]:
    """Measure all forms in turns on one batch of dependency trees of so many words, without dropout.

    ``vocabulary_size`` counts the boundary. Every form computes words, p and p' under gold decisions (p' with errors
    as of a trained network); the fast form also draws its samples, which are then thrown away. Figures are medians.
    """
    som, batch = _world(size, num_slots, vocabulary_size, batch_size, num_words, corpus)
    runs = _runs(som, batch)
    seconds: dict[tuple[Form, MatmulPrecision], list[float]] = {}
    for _ in range(rounds):
        for form, precision in forms:
            seconds.setdefault((form, precision), []).append(_time(som, runs[form], precision))
    num_tokens = len(batch.tokens) + len(batch)
    naive = seconds["all slots", "fp32"]
    return [
        FormSpeed(
            form=form,
            precision=precision,
            tokens_per_second=num_tokens / median(times),
            ratios=tuple(slow / fast for slow, fast in zip(naive, times, strict=True)),
            seconds=tuple(times),
        )
        for (form, precision), times in seconds.items()
    ]


def _world(
    size: int, num_slots: int, vocabulary_size: int, batch_size: int, num_words: tuple[int, int], corpus: str
) -> tuple[SOM, SentenceBatch]:
    data = prepared_split(DataConfig(corpus=corpus, format="conllu"), "train")
    labels = tuple(sorted(data.labels))
    vocabulary = _vocabulary(data, vocabulary_size - 1)
    encoded = EncodedCorpus(data, vocabulary, labels)
    fitting = np.flatnonzero((encoded.num_tokens >= num_words[0]) & (encoded.num_tokens <= num_words[1]))
    torch.manual_seed(1)
    config = SOMConfig(size=size, num_slots=num_slots, embedding_dropout=0.0, dropout=0.0, output_dropout=0.0)
    return SOM(config, vocabulary=vocabulary), encoded.batch(fitting[:batch_size])


def _vocabulary(data: PreparedCorpus, size: int) -> WordVocabulary:
    """The corpus's own words, filled up to a size with words that never occur."""
    known = WordVocabulary.build(data.form_counts(), max_size=size - 1)
    forms = [known.token(index) for index in range(known.num_unknowns, len(known))]
    return WordVocabulary(forms + [f"unused {number}" for number in range(size - len(known))])


def _runs(som: SOM, batch: SentenceBatch) -> dict[Form, Callable[[], Tensor]]:
    layout = lay_out(batch.token_offsets)
    gold = static_labels(som.gold_siblings(batch), som.config.num_slots)[0]
    chosen = _with_errors(gold, som.config.num_slots)
    by_row, choices = gold[layout.sentences], layout.pack(chosen)

    def choose(t: int, log_probs: Tensor) -> Any:
        sample(t, log_probs)
        if t < 0:
            return choices
        return by_row[: len(log_probs), t]

    def naive() -> Tensor:
        following = np.concatenate([gold[:, 1:], gold[:, -1:]], 1)
        return all_slots_losses(som, batch, decisions=gold, choices=chosen, labels=gold, next_labels=following)

    return {
        "all slots": naive,
        "lazy": lambda: som.losses(batch, choose=choose).total,
    }


def _with_errors(gold: IntArray, num_slots: int) -> IntArray:
    """Slots for prediction: the next decision, but for 13% any possible slot, as p' errs in the paper."""
    random = np.random.default_rng(1)
    following = np.concatenate([gold[:, 1:], gold[:, -1:]], 1)
    anything = random.integers(np.maximum(gold - 1, 0), num_slots)
    return np.where(random.random(gold.shape) < PREDICTION_ERRORS, anything, following)


def _time(som: SOM, loss: Callable[[], Tensor], precision: MatmulPrecision) -> float:
    som.zero_grad(set_to_none=True)
    with matmul_precision(precision):
        begin = process_time()
        loss().backward()  # type: ignore[no-untyped-call]
        return process_time() - begin


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
