"""Words a second of the searches at equal widths, and their memory: untrained models of the sizes for gum-open.

OMP_NUM_THREADS=1 python benchmarks/search_speed.py --beams 10 100 --words 200

Each system has a process of its own, so that its peak of memory is its own. Seconds are of the processor. Nothing of an
untrained model is improbable, so its beams are always full: the figures are those of the widths.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from time import process_time
from typing import Any

import one_line
import torch

from treelm.corpora.data_config import locate_split
from treelm.corpora.readers import read_sentences
from treelm.models.layers.devices import process_peak_mb, restart_peak
from treelm.models.search.config import SearchConfig
from treelm.training.prepare import set_up
from treelm.training.recipe import load_recipe

_SHARE = 10  # words that are kept between words are a tenth of those between actions


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    recipes: tuple[str, ...] = ("rnng-gum-open", "tg-gum-open", "plm-gum-open", "pushdown-gum-open")
    """Recipes of systems that search."""
    beams: tuple[int, ...] = (10, 100)
    """Analyses between actions; between words a tenth of them, at least 5."""
    words: int = 200
    """Words to read, at least, of dev's first sentences."""
    joined: bool = False
    """Read exactly so many words, as one sentence."""


def measure(name: str, beam: int, words: int, joined: bool) -> dict[str, Any]:
    """The speed and the memory of one search."""
    torch.set_num_threads(1)
    recipe = load_recipe(name)
    lm = set_up(recipe).model.eval()
    settings = {"action_beam": beam, "word_beam": max(5, beam // _SHARE), "fast_track": 1}
    lm.search = SearchConfig(**settings)
    sentences, num_words = list[list[str]](), 0
    for sentence in read_sentences(locate_split(recipe.data, "dev")[0]):
        if num_words >= words:
            break
        sentences.append(list(sentence.words))
        num_words += len(sentence.words)
    if joined:
        sentences = [[word for sentence in sentences for word in sentence][:words]]
    lm.score([sentences[0][:20]])  # the first search of a process tries products
    restart_peak()
    before, begin = process_peak_mb(), process_time()
    lm.score(sentences)
    seconds = process_time() - begin
    num_words = sum(map(len, sentences))
    speed = {"num_words": num_words, "seconds": round(seconds, 1), "words_per_second": round(num_words / seconds, 1)}
    memory = {"peak_mb": round(process_peak_mb()), "of_search_mb": round(process_peak_mb() - before)}
    return {"recipe": name, **settings, **speed, **memory}


def main(options: Arguments) -> None:
    """Print one line of JSON for each system and width."""
    for name in options.recipes:
        for beam in options.beams:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
                print(json.dumps(one.submit(measure, name, beam, options.words, options.joined).result()), flush=True)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
