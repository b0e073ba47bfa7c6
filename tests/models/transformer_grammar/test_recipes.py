"""Packaged recipes have the sizes that they say: every parameter counted."""

from __future__ import annotations

import pytest
import torch

from tests.models.rnng.worlds import Tokens
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.network import TransformerGrammar
from treelm.papers.data import data_sets
from treelm.papers.declaration import load_paper, paper_folder
from treelm.training.recipe import load_recipe

GUM_OPEN = 5541, 27  # words of its vocabulary, labels
BLLIP_LG = 32_000, 26
ZHAO = [f"{code:04b}" for code in range(16)]


@pytest.mark.parametrize(
    ("name", "tokens_and_labels", "expected"),
    [
        # blocks N (12 D^2 + 13 D), tables of distances and two biases a layer, embeddings of words with their bias,
        # START, brackets, the last norm, the head of actions
        ("tg-gum-open", GUM_OPEN, 3_159_040 + 4 * 34 * 256 + 5541 * 257 + 55 * 256 + 512 + 29 * 257),
        ("plm-mask-gum-open", GUM_OPEN, 3_159_040 + 4 * 66 * 256 + 5541 * 257 + 29 * 256 + 512 + 29 * 257),
        ("tg-bllip-lg", BLLIP_LG, 201_539_584 + 16 * 66 * 1024 + 32_000 * 1025 + 53 * 1024 + 2048 + 28 * 1025),
    ],
)
def test_parameters_are_as_many_as_counted(name: str, tokens_and_labels: tuple[int, int], expected: int) -> None:
    assert num_parameters(name, tokens_and_labels) == expected


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
    assert num_parameters(f"zhao-{code}", (50_257, 26)) == expected


def test_the_table_of_the_sixteen_has_each_recipe_and_a_stand_in_of_the_same_switches() -> None:
    folder = paper_folder("variants")
    (table,) = load_paper(folder, data_sets(folder))
    switches = ("order", "composition", "binary", "masking", "positions")
    recipes = [row.recipe for row in table.rows if row.recipe.startswith("zhao")]
    assert recipes == [f"zhao-{code}" for code in ZHAO]
    for name in recipes:
        small = table.stand_ins[0].recipes[name]
        configs = [load_recipe(name).model.config, load_recipe(small.recipe, small.settings).model.config]
        own, stands_in = ([getattr(config, switch) for switch in switches] for config in configs)
        assert own == stands_in


def num_parameters(name: str, tokens_and_labels: tuple[int, int]) -> int:
    num_tokens, num_labels = tokens_and_labels
    config = load_recipe(name).model.config
    labels = [f"X{label}" for label in range(num_labels)]
    with torch.device("meta"):
        network = TransformerGrammar(config, vocabulary=Tokens(num_tokens), labels=labels)
    return sum(one.numel() for one in network.parameters())
