"""Packaged recipes have the sizes that they say: every parameter counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from tests.models.rnng.worlds import Tokens
from treelm.models import system_class
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.papers.declaration import load_paper, split_arguments
from treelm.training.recipe import load_recipe

GUM_OPEN = 5541  # words of its vocabulary
PTB = 9_999  # of Mikolov's text, <unk> included
ZHAO = [f"{code:04b}" for code in range(16)]
DEEP = 256 * 256 + 256 + 4 * (256 * 256 + 256)  # of a PCFG: the first layer and both residual blocks


def pushdown(num_layers: int, size: int, num_tokens: int, num_distances: int, num_depths: int) -> int:
    blocks = num_layers * (12 * size**2 + 13 * size)
    tables = num_layers * (num_distances + num_depths + 3) * size  # of keys, and three biases of queries
    embeddings = num_tokens * (size + 1) + size  # with the bias of the softmax, and START
    attachment = 7 * size**2 + 4 * size + (num_distances + num_depths) * size
    return blocks + tables + embeddings + attachment + 2 * size + size + 1  # the last norm, the end


def num_parameters(name: str, num_tokens: int, num_labels: int = 0, overrides: Sequence[str] = ()) -> int:
    model = load_recipe(name, overrides).model
    labels = [f"X{label}" for label in range(num_labels)]
    with torch.device("meta"):
        network = system_class(model.system)(model.config, vocabulary=Tokens(num_tokens), labels=labels)
    return sum(one.numel() for one in network.parameters())


@pytest.mark.parametrize(
    ("name", "num_tokens", "num_labels", "expected"),
    [
        # blocks N (12 D^2 + 13 D), embeddings with their bias, the last norm; tables of distances, two biases a layer
        ("transformer-gum-open", GUM_OPEN, 0, 3_159_040 + 5542 * 257 + 512 + 4 * 66 * 256),
        ("transformer-gpt2-small", 50_256, 0, 124_439_808 + 50_257),  # as its authors' code counts
        ("treereg-wt103", 32_000, 0, 50_438_144 + 32_001 * 513 + 1024 + 16 * 66 * 512),
        # the same, START, brackets, the head of actions
        ("tg-gum-open", GUM_OPEN, 27, 3_159_040 + 4 * 34 * 256 + 5541 * 257 + 55 * 256 + 512 + 29 * 257),
        ("plm-mask-gum-open", GUM_OPEN, 27, 3_159_040 + 4 * 66 * 256 + 5541 * 257 + 29 * 256 + 512 + 29 * 257),
        ("tg-bllip-lg", 32_000, 26, 201_539_584 + 16 * 66 * 1024 + 32_000 * 1025 + 53 * 1024 + 2048 + 28 * 1025),
        ("pushdown-gum-open", GUM_OPEN, 0, pushdown(4, 256, GUM_OPEN, 64, 16)),
        ("pushdown-bllip-lg", 50_257, 0, pushdown(16, 1024, 50_257, 64, 50)),
        # symbols and the top; root and words, each with its last layer; rules
        ("npcfg-ptb", PTB, 0, 91 * 256 + 2 * DEEP + 257 * (90 + PTB) + 257 * 8100),
        # a latent vector more before every first layer; embeddings, LSTM in both directions and output of the encoder
        (
            "cpcfg-ptb", PTB, 0,
            91 * 256 + 2 * (DEEP + 64 * 256) + 257 * (90 + PTB) + 321 * 8100
            + PTB * 512 + 2 * 4 * (512 * 512 * 2 + 2 * 512) + 1025 * 128,
        ),
        ("tn-pcfg-ptb", PTB, 0, 751 * 256 + 2 * DEEP + 257 * (750 + PTB) + 3 * (257 * 256 + 257 * 500)),
        ("simple-pcfg-ptb", PTB, 0, 12_289 * 512 + 2 * 5 * 513 * 512 + 513 * (12_288 + PTB) + 3 * 513 * 512),
    ],
)  # fmt: skip
def test_parameters_are_as_many_as_counted(name: str, num_tokens: int, num_labels: int, expected: int) -> None:
    assert num_parameters(name, num_tokens, num_labels) == expected


@pytest.mark.parametrize("code", ZHAO)
def test_the_sixteen_are_what_their_digits_say_with_all_parameters_counted(code: str) -> None:
    top_down, internal, n_ary, masking = (digit == "1" for digit in code)
    config = load_recipe(f"zhao-{code}").model.config
    assert isinstance(config, TransformerGrammarConfig)
    assert (config.order == "top-down", config.composition == "internal") == (top_down, internal)
    assert (not config.binary, config.masking) == (n_ary, masking)
    tables = 12 * (64 if masking else 63) * 768 + 2 * 12 * 768
    brackets = (26 if top_down else 0) + 26
    expected = 12 * (12 * 768**2 + 13 * 768) + tables + 50_257 * 769 + (1 + brackets) * 768 + 2 * 768 + 28 * 769
    if not internal:  # in and out, a norm, blocks with their tables
        block = 12 * 256**2 + 13 * 256 + (17 + 2) * 256
        expected += 768 * 256 + 256 + 256 * 768 + 768 + 512 + 4 * block
    if n_ary and not top_down:
        expected += 768 * 128 + 128 + 768 * 128 + 26 * 128
    assert num_parameters(f"zhao-{code}", 50_257, 26) == expected


def test_the_table_of_the_sixteen_has_each_recipe_and_a_stand_in_of_the_same_switches() -> None:
    (table,) = load_paper("variants")
    switches = ("order", "composition", "binary", "masking", "positions")
    recipes = [row.train for row in table.rows if row.train.startswith("zhao")]
    assert recipes == [f"zhao-{code}" for code in ZHAO]
    for name in recipes:
        small = split_arguments(table.stand_ins[0].train[name])
        configs = [load_recipe(name).model.config, load_recipe(*small).model.config]
        own, stands_in = ([getattr(config, switch) for switch in switches] for config in configs)
        assert own == stands_in
