"""The PRPN as a language model: scores, trees, word by word, in sentences and streams, saved and loaded."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.prpn.worlds import prpn
from tests.models.test_streams import stream_batch
from treelm.configs import from_plain, to_plain
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.evaluation.audit import audit
from treelm.models.capabilities import Parser, has
from treelm.models.prpn.config import PRPNConfig
from treelm.models.prpn.network import PRPN
from treelm.trees.distances import tree_from_distances

SENTENCES = [list("1234567"), list("20"), list("7"), list("55512034")]
SMALL: dict[str, Any] = {"embedding_size": 16, "hidden_size": 16, "num_slots": 5, "look_back": 2}
CALM: dict[str, Any] = {"dropout": 0.0, "layer_dropout": 0.0, "recurrent_dropout": 0.0}
KINDS: list[dict[str, Any]] = [
    {"variant": "released", "num_blocks": 1},
    {"attention": "paper"},
    {"read_attention": False},
    {"predict_attention": False, "tied": False},
    {"parsing_network": False},
]


@pytest.mark.parametrize("config", KINDS)
def test_the_audit_finds_nothing_in_evaluation(config: dict[str, Any]) -> None:
    report = audit(prpn(dropout=0.5, **config).float(), SENTENCES)
    assert report.passed, report.as_text()
    figures = {check.name: check.figure for check in report.checks}
    assert figures["causality"] == figures["batch invariance"] == 0


def test_all_strings_together_have_probability_one() -> None:
    torch.manual_seed(0)
    network = PRPN(PRPNConfig(**SMALL), vocabulary=WordVocabulary(["a", "b"])).double()
    with torch.no_grad():
        network.output_bias[-1] += 3.0
    words = [network.vocabulary.token(token) for token in range(len(network.vocabulary))]
    finished, unfinished = 0.0, 0.0
    for length in range(4):
        strings = [list(string) for string in itertools.product(words, repeat=length)]
        for score in network.score(strings):
            finished += math.exp(score.log_probs.sum())
            unfinished += math.exp(score.log_probs[:-1].sum()) if length == 3 else 0.0
            unfinished -= math.exp(score.log_probs.sum()) if length == 3 else 0.0
    assert finished + unfinished == pytest.approx(1.0, abs=1e-6)
    assert 0.5 < finished < 1


@pytest.mark.parametrize("builder", ["unbiased", "biased"])
def test_trees_are_built_from_the_distances_before_words(builder: Any) -> None:
    network = prpn(num_unfinished=3)  # the tokens 0 to 2 go on
    network.tree_builder = builder
    words = ["3", "0+1+4", "5", "2+6", "7"]
    (distances,) = network.distances([words])
    assert len(distances) == 8
    (tree,) = network.parse([words])
    assert tree == tree_from_distances(words, distances[[0, 1, 4, 5, 7]], builder=builder)


def test_distances_of_a_sentence_do_not_depend_on_others() -> None:
    network = prpn()
    together = network.distances(SENTENCES)
    for words, values in zip(SENTENCES, together, strict=True):
        np.testing.assert_array_equal(network.distances([words])[0], values)
    assert any(np.ptp(values) > 0 for values in together if len(values) > 1)


def test_distances_see_what_is_near_only() -> None:
    one, other = prpn(look_back=2).distances([list("1234567"), list("7654567")])
    np.testing.assert_array_equal(one[5:], other[5:])
    assert (one[:3] != other[:3]).any()


def test_without_a_parsing_network_parsing_is_a_user_error() -> None:
    network = prpn(parsing_network=False)
    assert not has(network, Parser)
    with pytest.raises(InputError, match="without trees"):
        network.parse(SENTENCES)
    assert network.analyse(SENTENCES)[0].tree is None


def test_segments_of_a_stream_are_one_pass() -> None:
    network = prpn().eval()
    tokens = np.array([[*range(8), 8, 3, 1, 4, 1, 5, 8, 2]])
    whole, _ = network.stream_losses(stream_batch(tokens, start=0, stop=16), None)
    first, carried = network.stream_losses(stream_batch(tokens, start=0, stop=7), None)
    second, _ = network.stream_losses(stream_batch(tokens, start=7, stop=16), carried)
    assert abs(whole.total - first.total - second.total).item() < 1e-10
    assert not any(tensor.requires_grad for tensor in carried.values())


def test_a_variant_decides_what_is_left_open() -> None:
    config = PRPNConfig(variant="released", norm="layer")
    assert (config.distances, config.norm, config.zero_state) == ("sigmoid", "layer", True)
    assert from_plain(PRPNConfig, to_plain(config), where="here") == config
    assert PRPNConfig(variant="paper").norm == "batch"


@pytest.mark.parametrize(
    "field",
    [
        {"hidden_size": 1},
        {"look_back": -1},
        {"num_slots": 0},
        {"temperature": 0.0},
        {"dropout": 1.0},
        {"norm": "group"},
        {"hidden_size": 7, "variant": "released"},
    ],
)
def test_impossible_configs_are_user_errors(field: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(field))):
        PRPNConfig(**field)


def test_statistics_of_one_token_are_a_user_error() -> None:
    network = prpn(norm="batch")
    with pytest.raises(InputError, match="no statistics"):
        network.forward(torch.zeros(1, 1, dtype=torch.int64), network.init_state(1))
