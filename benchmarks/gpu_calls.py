"""Kernels that an update of each system would start on a GPU, losses and gradient, or a search, counted on a CPU.

python benchmarks/gpu_calls.py --batch-size 512 --systems rnng "rnng attention"
python benchmarks/gpu_calls.py --batch-size 64 --search --systems rnng transformer-grammar pushdown
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import one_line

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.devices.calls import num_calls, search_calls
from tests.systems import SMALL, small_recipe

from treelm.corpora.data_config import DataConfig
from treelm.models.layers.few_calls import FusedKernels, fused_kernels
from treelm.models.search.config import SearchConfig
from treelm.models.search.model import GenerativeParser
from treelm.training.prepare import Setup, set_up

WORDS, BEAM = 8, SearchConfig(action_beam=20, word_beam=5)  # of a search


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to count. Units and words are few, as in the tests: calls do not depend on them."""

    systems: tuple[str, ...] = ("rnng", "rnng attention", "som", "shift-reduce")
    """Names of ``tests/systems.py``."""
    corpus: str = "gum-open"
    """Name of a corpus, or path of a folder with train.ptb."""
    batch_size: int = 512
    """Sentences in a step, at most; of the recipes' actions at most. Or rows of a stream, of 35 tokens."""
    fused_kernels: FusedKernels = "none"
    """As the setting of [training]."""
    cuda_graphs: bool = False
    """As the setting of [training]; counted when graphs are replayed."""
    draws: int = 1
    """How often to count; the mean is printed. What acts by its own draws, as a SOM, starts other numbers each time."""
    search: bool = False
    """Count a word of beam search, the eighth of as many sentences as ``batch_size``, with books on either side."""


def main(options: Arguments) -> None:
    """Print one line of JSON for each system, of the batch with the most tokens among the first three."""
    for name in options.systems:
        with tempfile.TemporaryDirectory() as folder:
            stream = {"bptt": 35} if SMALL[name].training.get("batches") == "stream" else {}
            depth: dict[str, int] = {"max_open": 200, "max_consecutive": 200} if "max_open" in SMALL[name].model else {}
            depth |= {"max_stack": 400, "max_depth": 50} if SMALL[name].system == "pushdown" else {}
            sizes = {"num_slots": 15} if SMALL[name].system in ("som", "prpn") else {}
            training = {"batch_size": options.batch_size, **stream}
            recipe = small_recipe(name, Path(folder), {"training": training, "model": {**depth, **sizes}})
            setup = set_up(replace(recipe, data=DataConfig(corpus=options.corpus)))
            if options.search:
                count_search(name, setup, options.batch_size)
                continue
            batches = islice(iter(setup.batches), 3)
            batch = max(batches, key=lambda one: one.num_targets if stream else len(one.tokens))
            with fused_kernels(options.fused_kernels):
                model = setup.model.train()
                calls = [num_calls(model, batch, captured=options.cuda_graphs) for _ in range(options.draws)]
        print(json.dumps({"system": name, "sentences": len(batch), "kernel_starts": round(np.mean(calls))}), flush=True)


def count_search(name: str, setup: Setup, num_sentences: int) -> None:
    """Print one line of JSON for each place of the books."""
    model = setup.model.eval()
    assert isinstance(model, GenerativeParser)
    batch = next(iter(setup.batches))
    begins = batch.token_offsets[:-1][np.diff(batch.token_offsets) >= WORDS][:num_sentences]
    sentences = batch.tokens[begins[:, None] + np.arange(WORDS)]
    for on_device in (True, False):
        waits, calls = search_calls(model, sentences, BEAM, on_device=on_device)
        found = {"system": name, "sentences": len(sentences), "waits": waits, "kernel_starts": calls}
        print(json.dumps({**found, "books": "device" if on_device else "host"}), flush=True)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
