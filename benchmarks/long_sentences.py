"""What a word costs in one long sentence, beside the same words in short ones: processor time of the RNNG's search.

OMP_NUM_THREADS=1 python benchmarks/long_sentences.py --run rnng-gum-open --rounds 3
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from time import process_time

import one_line
import torch

import treelm
from treelm.corpora.data_config import DataConfig, locate_split
from treelm.corpora.readers import read_sentences
from treelm.models.base import LanguageModel
from treelm.models.search.config import SearchConfig


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    run: str = "rnng-gum-open"
    short: int = 80
    long: int = 640
    rounds: int = 3
    action_beam: int = 100
    word_beam: int = 10


def main(options: Arguments) -> None:
    """Print one line of JSON for each round; short and long take turns."""
    torch.set_num_threads(1)
    lm = treelm.load(options.run)
    lm.search = SearchConfig(action_beam=options.action_beam, word_beam=options.word_beam, fast_track=1)
    path = locate_split(DataConfig(corpus="gum-open"), "dev")[0]
    words = list(islice((word for sentence in read_sentences(path) for word in sentence.words), options.long))
    parts = [words[start : start + options.short] for start in range(0, len(words), options.short)]
    _seconds(lm, parts[:1])  # the first search of a process tries products
    for _ in range(options.rounds):
        short, long = (1000 * _seconds(lm, sentences) / len(words) for sentences in (parts, [words]))
        print(json.dumps({"ms_a_word": {options.short: short, options.long: long}, "ratio": long / short}), flush=True)


def _seconds(lm: LanguageModel, sentences: Sequence[Sequence[str]]) -> float:
    """One sentence at a time."""
    begin = process_time()
    for sentence in sentences:
        lm.score([sentence])
    return process_time() - begin


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
