r"""Training by the public codes of pushdown layers and of Transformer Grammars beside ours: updates in turns.

Prints a line of JSON for each size of batches: words a processor second of both, the ratio over all updates, and the
median of the ratios of rounds with the smallest and the largest.

git clone https://github.com/MurtyShikhar/Pushdown-Layers CODE/Pushdown-Layers
OMP_NUM_THREADS=1 python benchmarks/transformers_public.py --code CODE --system pushdown --batch-sizes 16

git clone https://github.com/google-deepmind/transformer_grammars CODE/transformer_grammars
OMP_NUM_THREADS=1 python benchmarks/transformers_public.py --code CODE --system transformer-grammar --block 5

Both take sentences and sizes of the packaged recipes (pushdown-gum-open, tg-gum-open), in float32 on one thread. Ours
lays trees out while it is timed; theirs have trees, labels, tapes and masks ready. Compilation is left out. Nothing of
theirs is here but names, and no file of theirs is changed: what they are told and what newer releases ask of them is in
``public_pushdown.py`` (nltk, transformers) and ``public_transformer_grammar.py``. The second wants, beside treelm,

pip install jax dm-haiku optax chex dm-tree einshape ml_collections more-itertools pybind11

and its masks, built by its install.sh or, where Eigen and Abseil are (apt install libeigen3-dev libabsl-dev), by this
in CODE/transformer_grammars/transformer_grammars/models/masking:

g++ -O3 -shared -fPIC -std=c++17 $(python -m pybind11 --includes) $(pkg-config --cflags eigen3) *.cc \
    -o cpp_masking$(python -m pybind11 --extension-suffix) $(pkg-config --libs absl_flat_hash_map absl_statusor)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Literal

import one_line
import public_pushdown
import public_transformer_grammar
import torch
from public_codes import Training, Update
from transformer_training import update

from treelm.corpora.encoding import SentenceBatch
from treelm.errors import InputError
from treelm.models.base import LanguageModel
from treelm.training.numerics import numerics
from treelm.training.prepare import set_up
from treelm.training.recipe import load_recipe

RECIPES = {"pushdown": "pushdown-gum-open", "transformer-grammar": "tg-gum-open"}
FOLDERS = {"pushdown": public_pushdown.FOLDER, "transformer-grammar": public_transformer_grammar.FOLDER}
WARM_UP = 2
"""Updates before those that count; JAX compiles in both."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    code: Path
    """Folder with clones of the public codes."""
    system: Literal["pushdown", "transformer-grammar"]
    """Which one."""
    batch_sizes: tuple[int, ...] = (16, 64)
    """Sentences a step."""
    chunk: int = 256
    """Positions that the public Transformer Grammar reads at once; 256 is the published number."""
    max_words: int | None = None
    """Leave out batches with a longer sentence."""
    rounds: int = 20
    """Turns of each."""
    block: int = 1
    """Updates of a turn. Batches of the public Transformer Grammar are not ours, so that single ones say little."""


@dataclass(kw_only=True)
class Count:
    """What updates have taken."""

    seconds: float = 0.0
    words: int = 0
    filled: float = 0.0
    """Sum of the shares of updates."""
    updates: int = 0

    def add(self, one: Update) -> None:
        """Do an update. Raises ``ArithmeticError`` if its loss is no number."""
        began = process_time()
        loss = one.run()
        self.seconds += process_time() - began
        self.words += one.words
        self.filled += one.filled
        self.updates += 1
        if not isfinite(loss):
            raise ArithmeticError(f"a loss of {loss} after {self.updates} updates")

    def __add__(self, other: Count) -> Count:
        """Both together."""
        return Count(
            seconds=self.seconds + other.seconds,
            words=self.words + other.words,
            filled=self.filled + other.filled,
            updates=self.updates + other.updates,
        )

    @property
    def words_per_second(self) -> float:
        """Speed."""
        return self.words / self.seconds


def main(options: Arguments) -> None:
    """Print one line of JSON for each size of batches."""
    folder = options.code / FOLDERS[options.system]
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder), remedy="clone the public code there")
    for batch_size in options.batch_sizes:
        changes = (f"training.batch_size={batch_size}", "training.precision=fp32", "training.device=cpu")
        setup = set_up(load_recipe(RECIPES[options.system], changes))
        model: Any = setup.model.train()
        batches = first_batches(setup.batches, WARM_UP + options.rounds * options.block, options.max_words)
        about: dict[str, Any] = {"system": options.system, "batch_size": batch_size}
        with numerics(setup.recipe.training):
            if options.system == "pushdown":
                public = public_pushdown.training(options.code, model, batches)
            else:
                about["chunk"] = options.chunk
                public = public_transformer_grammar.training(options.code, model, batches, batch_size, options.chunk)
            print(
                json.dumps({**about, **in_turns(public, our_training(model, batches), options.rounds, options.block)})
            )
            sys.stdout.flush()


def first_batches(batches: Any, count: int, max_words: int | None) -> list[SentenceBatch]:
    """So many batches of an epoch without longer sentences; ``InputError`` where it has fewer."""
    found = list(islice((one for one in batches if max_words is None or one.num_words.max() <= max_words), count))
    if len(found) < count:
        raise InputError(f"{len(found)} batches of {count} in an epoch", remedy="fewer --rounds, or a smaller --block")
    return found


def our_training(model: LanguageModel, batches: Sequence[SentenceBatch]) -> Training:
    """Updates of ours, as ``transformer_training.py`` makes them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def run(batch: SentenceBatch) -> float:
        return float(update(model, optimizer, lambda one: model.losses(one).total, batch))

    updates = (Update(words=int(batch.num_words.sum()), run=partial(run, batch)) for batch in batches)
    return Training(num_parameters=sum(one.numel() for one in model.parameters()), updates=updates)


def in_turns(public: Training, ours: Training, rounds: int, block: int) -> dict[str, float]:
    """Figures of both, after some updates that do not count."""
    both = {"public": public.updates, "ours": ours.updates}
    for updates in both.values():
        counted(updates, WARM_UP)
    turns: dict[str, list[Count]] = {name: [] for name in both}
    for _ in range(rounds):
        for name, updates in both.items():
            turns[name].append(counted(updates, block))
    sums = {name: sum(counts, Count()) for name, counts in turns.items()}
    speeds = [[count.words_per_second for count in counts] for counts in turns.values()]
    ratios = [fast / slow for slow, fast in zip(*speeds, strict=True)]
    return {
        "public_parameters": public.num_parameters,
        "our_parameters": ours.num_parameters,
        "filled": round(sums["public"].filled / sums["public"].updates, 3),
        "public_words_per_second": round(sums["public"].words_per_second, 1),
        "our_words_per_second": round(sums["ours"].words_per_second, 1),
        "ratio_of_sums": round(sums["ours"].words_per_second / sums["public"].words_per_second, 3),
        "median_ratio": round(median(ratios), 3),
        "smallest_ratio": round(min(ratios), 3),
        "largest_ratio": round(max(ratios), 3),
        "rounds": rounds,
        "block": block,
    }


def counted(updates: Iterator[Update], number: int) -> Count:
    """Do the next so many updates."""
    count = Count()
    for one in islice(updates, number):
        count.add(one)
    return count


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
