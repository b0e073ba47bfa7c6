"""The initial weights of PaLM's public code: their scales, and trees that do not branch all one way."""

from __future__ import annotations

import math
from statistics import stdev
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.rnng.worlds import Tokens
from treelm.models.palm.config import PaLMConfig
from treelm.models.palm.network import PaLM
from treelm.papers.metrics.shapes import split_shares, untrained
from treelm.training.recipe import ModelConfig

SIZES: dict[str, Any] = {
    "embedding_size": 24,
    "hidden_size": 48,
    "rational_size": 12,
    "scorer_size": 16,
    "residual_size": 20,
}


def assert_uniform(weight: Tensor, bound: float) -> None:
    assert bound * 0.9 < weight.abs().max() <= bound
    assert weight.square().mean().item() == pytest.approx(bound**2 / 3, rel=0.2)


def test_every_weight_is_drawn_as_in_the_public_code() -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        network = PaLM(PaLMConfig(**SIZES, initialisation="released"), vocabulary=Tokens(50))
        assert_uniform(network.embedding, math.sqrt(3 / 24))
        for layer in network.stack.layers:
            for weight in (layer.weights.weight_input, layer.weights.weight_hidden):
                for gate in weight.chunk(4):
                    product = gate @ gate.T if gate.shape[0] <= gate.shape[1] else gate.T @ gate
                    torch.testing.assert_close(product, torch.eye(len(product)), rtol=0, atol=1e-5)
        found = dict(network.span_attention.named_parameters())
        assert_uniform(found["rational.forget_weight"], 5 / 3 * math.sqrt(6 / (48 + 12)))
        assert_uniform(found["rational.update_weight"], 5 / 3 * math.sqrt(6 / (48 + 12)))
        assert_uniform(found["scorer.span_weight"], math.sqrt(6 / (48 + 24 + 16)))
        assert_uniform(found["scorer.hidden_weight"], math.sqrt(6 / (48 + 24 + 16)))
        assert found["scorer.output_weight"].abs().max() <= math.sqrt(6 / (16 + 1))
        assert_uniform(found["residual.gate_weight"], math.sqrt(6 / (48 + 24 + 48)))
        assert_uniform(found["residual.hidden_weight"], math.sqrt(6 / (48 + 24 + 20)))
        assert_uniform(found["residual.output_weight"], math.sqrt(6 / (20 + 48)))
        biases = [parameter for name, parameter in network.named_parameters() if name.endswith("bias")]
        assert len(biases) == 3 + 1 + 1 + 3 + 1  # LSTM, rational RNN, scorer, gate and MLP, softmax
        assert not any(bias.any() for bias in biases)


def test_trees_depend_on_words_from_the_start_and_not_on_the_seed_alone() -> None:
    """Twenty seeds: with small word vectors and biases, lengths of spans alone decide, so a seed branches all one way.

    (Table 4, Peng et al. 2019: deviations of 10.5 and 8.8 over 25 seeds.)
    """
    generator = np.random.default_rng(1)
    sentences = [[f"w{word}" for word in generator.integers(0, 60, size=size)] for size in range(7, 14)]
    spread = {}
    for initialisation in ("uniform", "released"):
        config = PaLMConfig(**SIZES, initialisation=initialisation)
        build = untrained(ModelConfig(system="palm", config=config), sentences)
        shares = [split_shares(build(seed).parse(sentences)) for seed in range(20)]
        spread[initialisation] = [stdev(one[f"{side}, all"] for one in shares) for side in ("left", "right")]
    assert max(spread["released"]) < 18
    assert min(spread["uniform"]) > 22
