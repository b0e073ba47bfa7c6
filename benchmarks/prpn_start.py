"""Distances of PRPNs before training, by form and size: in how many of so many seeds they say nothing.

python benchmarks/prpn_start.py
python benchmarks/prpn_start.py --recipes prpn-ptb --seeds 5

Rows are the variants, which have batch norm, and each with layer norm. "zeros": seeds with more than half of the
distances exactly 0; "dead": with more than nine tenths; "equal": with more than half equal to the one before as far as
gates can tell, of which training warns (docs/research/prpn.md).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import one_line
import torch

from treelm.errors import InputError
from treelm.models.prpn.config import VARIANTS, PRPNConfig
from treelm.models.prpn.parsing import MOST_EQUAL, DistanceShares, ParsingNetwork, distance_shares
from treelm.training.recipe import load_recipe

FORMS = {
    "released": {**VARIANTS["released"]},
    "released, layer norm": {**VARIANTS["released"], "norm": "layer"},
    "paper": {**VARIANTS["paper"]},
    "paper, layer norm": {**VARIANTS["paper"], "norm": "layer"},
}
NUM_STEPS, NUM_ROWS, NUM_WORDS = 40, 4, 60


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to draw."""

    recipes: tuple[str, ...] = ("prpn-ptb", "prpn-ptb-char", "prpn-parsing", "prpn-demo", "prpn-small")
    """Recipes whose sizes are taken."""
    seeds: int = 20
    """Networks of each size and form."""


def main(options: Arguments) -> None:
    """Print the table."""
    configs = {name: load_recipe(name).model.config for name in options.recipes}
    print("recipe", "form", "zeros", "dead", "equal", "seeds", sep="\t")
    for name, config in configs.items():
        if not isinstance(config, PRPNConfig):
            raise InputError("no recipe of a PRPN", where=name, remedy="give those of prpn alone")
        for form, fields in FORMS.items():
            changed = replace(config, layer_dropout=0.0, **fields)
            drawn = [draw(changed, seed) for seed in range(options.seeds)]
            zeros, dead = (sum(one.zero > share for one in drawn) for share in (0.5, 0.9))
            equal = sum(one.equal > MOST_EQUAL for one in drawn)
            print(name, form, zeros, dead, equal, options.seeds, sep="\t", flush=True)


@torch.no_grad()
def draw(config: PRPNConfig, seed: int) -> DistanceShares:
    """Of a parser and embeddings as they are drawn, on random tokens."""
    torch.manual_seed(seed)
    parser = ParsingNetwork(config)
    embedding = torch.empty(NUM_WORDS, config.embedding_size).uniform_(-0.01, 0.01)
    seen = embedding[torch.randint(NUM_WORDS, (config.look_back + NUM_STEPS, NUM_ROWS))]
    seen[: config.look_back] = 0
    distances, _ = parser(seen, None)
    kind = config.closeness
    assert kind is not None
    return distance_shares(distances, None, num_slots=config.num_slots, kind=kind, temperature=config.temperature)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
