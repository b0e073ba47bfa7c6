"""A small made-up treebank and a recipe for it."""

from __future__ import annotations

import random
from pathlib import Path

DATA = """
[data]
train = "train.ptb"
dev = "dev.ptb"
[vocabulary]
min_count = 1
"""
STREAM = """
[training]
batches = "stream"
batch_size = 4
bptt = 12
bptt_random_length = true
dev_rows = 2
epochs = 4
learning_rate = 0.01
log_every_steps = 2
checkpoint_every_steps = 3
threads = 1
"""
RECIPE = f"""{DATA}
[model]
system = "rnng"
bounds_margin = 2
embedding_size = 8
hidden_size = 8
dropout = 0.3
[training]
epochs = 3
batch_size = 6
micro_batch_size = 4
learning_rate = 0.05
schedule = "plateau"
log_every_steps = 2
threads = 1
"""


def write_treebank(folder: Path, *, num_train: int = 24, num_dev: int = 8) -> Path:
    """Write train.ptb, dev.ptb and recipe.toml; returns the path of the recipe."""
    source = random.Random(0)
    for name, number in (("train", num_train), ("dev", num_dev)):
        (folder / f"{name}.ptb").write_text("".join(f"{sentence(source)}\n" for _ in range(number)))
    (folder / "my.toml").write_text(RECIPE)
    return folder / "my.toml"


def sentence(source: random.Random) -> str:
    return f"(S {noun_phrase(source, 2)} (VP (X {source.choice(['sees', 'hears', 'likes'])}) {noun_phrase(source, 2)}))"


def noun_phrase(source: random.Random, depth: int) -> str:
    phrase = f"(NP (X {source.choice(['the', 'a'])}) (X {source.choice(['cat', 'dog', 'bird', 'fish'])}))"
    if depth and source.random() < 0.4:
        phrase = f"(NP {phrase} (PP (X {source.choice(['of', 'with'])}) {noun_phrase(source, depth - 1)}))"
    return phrase
