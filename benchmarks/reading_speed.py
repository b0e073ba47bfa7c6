"""Words a second of a run that reads sentences: surprisal alone, and with trees.

OMP_NUM_THREADS=1 python benchmarks/reading_speed.py runs/pcfg-gum-open --words 1000

Sentences of a split are drawn by a fixed seed until there are so many words. Seconds are of the processor.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Annotated, Literal

import one_line

from treelm.cli.arguments import Positional
from treelm.corpora.data_config import locate_split
from treelm.corpora.readers import read_sentences
from treelm.errors import InputError
from treelm.inference.loading import load
from treelm.models.capabilities import Parser, has
from treelm.training.run_folder import load_run_recipe

_WARM_UP = 2  # sentences that are read before, so that what is made once is there


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    run: Annotated[str, Positional("RUN")]
    """A run, or a model of the package."""
    words: int = 1000
    """Words to read, at least."""
    split: Literal["train", "dev", "test"] = "dev"
    """Split of its corpus."""
    seed: int = 1
    """Seed of the draw."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Words of the processor second; None for what the run does not have."""

    system: str
    num_sentences: int
    num_words: int
    surprisal_words_per_second: float | None
    with_trees_words_per_second: float | None


def draw(sentences: Sequence[Sequence[str]], words: int, seed: int) -> list[Sequence[str]]:
    """Draw sentences until they have so many words; all of them if there are fewer."""
    drawn = random.Random(seed).sample(sentences, len(sentences))
    totals = list(accumulate(map(len, drawn)))
    return drawn[: next((number for number, total in enumerate(totals, 1) if total >= words), len(drawn))]


def measure(options: Arguments) -> Speed:
    """Read the drawn sentences, twice if the run has trees too."""
    lm = load(options.run)
    data = load_run_recipe(options.run).data
    path, how = locate_split(data, options.split)
    read = [one.words for one in read_sentences(path, how) if one.words]
    if options.words < 1 or not read:
        raise InputError(
            f"{options.words} words of {len(read)} sentences", remedy="give 1 or more, of a split that has some"
        )
    chosen = draw(read, options.words, options.seed)
    num_words = sum(map(len, chosen))

    def rate(compute: Callable[[Sequence[Sequence[str]]], object]) -> float:
        compute(chosen[:_WARM_UP])
        begin = time.process_time()
        compute(chosen)
        return num_words / (time.process_time() - begin)

    return Speed(
        system=lm.system,
        num_sentences=len(chosen),
        num_words=num_words,
        surprisal_words_per_second=rate(lm.surprisal) if lm.predicts_words else None,
        with_trees_words_per_second=rate(lm.analyse) if has(lm, Parser) else None,
    )


def main(options: Arguments) -> None:
    """Print what was measured."""
    print(json.dumps(asdict(measure(options)), indent=2))


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
