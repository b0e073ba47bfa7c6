"""How well PaLM's attention fits gold spans: cross-entropy on the dev split of a run's recipe, in nats.

python benchmarks/palm_spans.py RUN [RUN ...]

Dev is read as in training, in a row, and places count where a constituent ends that is in reach. Beside each run stand
the two bounds: weights spread evenly over the spans in reach, and the least that any attention could have where several
gold spans end at one place.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import one_line
import torch
import tyro
from torch import Tensor

from treelm.corpora.corpus import merge_labels
from treelm.corpora.data_config import prepared_split
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.stream_batches import BPTTBatches
from treelm.errors import InputError
from treelm.models.palm.network import PaLM
from treelm.models.palm.supervision import given_weights, gold_spans, span_cross_entropy
from treelm.models.persistence.storage import load_model
from treelm.training.run import load_run_recipe


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Whose attention."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run folders, or models of the package."""


def main(options: Arguments) -> None:
    """Print a row a run."""
    print("run\tplaces\tattention\tuniform\tleast")
    for run in options.runs:
        places, *figures = measure(run)
        print(f"{run}\t{places}\t" + "\t".join(f"{value:.4f}" for value in figures))


@torch.no_grad()
def measure(run: str) -> tuple[int, float, float, float]:
    """Places with a gold span, and the mean cross-entropy there: of the attention, uniform, and the least."""
    model = load_model(run).eval()
    if not isinstance(model, PaLM) or model.needs_trees:
        raise InputError("no attention of its own", where=run, remedy="give a run of palm whose attention is not given")
    carried, num_places, sums = None, 0, torch.zeros(3, dtype=torch.float64)
    for batch in _dev(run, model):
        inputs = torch.from_numpy(batch.inputs.copy())
        reading = model.read(inputs, model.begin(inputs.shape[1]) if carried is None else carried)
        carried, weights, available = reading.carried, reading.structure["span_weights"], reading.structure["available"]
        assert batch.constituents is not None
        gold = gold_spans(torch.from_numpy(batch.constituents), tuple(weights.shape))
        mask = None if batch.mask is None else torch.from_numpy(batch.mask)
        for number, each in enumerate(
            (weights, _uniform(available, weights), given_weights(gold, available, weights.dtype))
        ):
            loss = span_cross_entropy(each.log(), available, gold, mask)
            sums[number] += loss.sum
        num_places += loss.count
    attention, uniform, least = (sums / num_places).tolist()
    return num_places, attention, uniform, least


def _uniform(available: Tensor, like: Tensor) -> Tensor:
    return (1 / available.clamp(min=1))[..., None].expand_as(like)


def _dev(run: str, model: PaLM) -> BPTTBatches:
    recipe = load_run_recipe(run)
    corpus = prepared_split(recipe.data, "dev")
    config = recipe.training
    return BPTTBatches(
        EncodedCorpus(corpus, model.vocabulary, merge_labels([corpus])),
        batch_size=config.dev_rows,
        bptt=config.bptt,
        sentence_ends=config.sentence_ends,
        keep_rest=True,
        constituents=True,
    )


if __name__ == "__main__":
    sys.exit(one_line.run(main, tyro.cli(Arguments, description=__doc__)))
