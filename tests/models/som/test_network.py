"""The fast network against the naive form, and the contracts of the interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.models.gradients import assert_gradients_by_differences, assert_same_loss_and_gradients, gradients
from tests.models.som import worlds
from tests.models.som.all_slots import all_slots_losses
from treelm.corpora.encoding import SentenceBatch
from treelm.errors import InputError
from treelm.models.layers.devices import computing
from treelm.models.som.network import SOM, MemoryReading


def naive(network: SOM, batch: SentenceBatch, reading: MemoryReading) -> torch.Tensor:
    layout, num_slots = reading.layout, network.config.num_slots
    choices = reading.choices if reading.choices is not None else np.full(len(layout.times), num_slots - 1)
    first = len(layout.sentences)
    decisions = worlds.padded(reading.decisions, layout, fill=num_slots - 1)
    return all_slots_losses(
        network,
        batch,
        decisions=decisions,
        choices=worlds.padded(choices, layout, fill=num_slots - 1),
        labels=worlds.padded(reading.labels, layout, skip=first, fill=num_slots - 1),
        next_labels=worlds.padded(reading.next_labels, layout, fill=num_slots - 1),
    )


VARIANTS: list[dict[str, Any]] = [
    {},
    {"num_slots": 4},
    {"num_slots": 3},
    {"num_slots": 2},
    {"syntactic_size": 2},
    {"prediction_network": False},
    {"prediction_network": False, "word_loss": False},
    {"oracle": "static"},
    {"oracle": "printed"},
    {"oracle": "left-branching"},
]


@pytest.mark.parametrize("few_calls", [False, True])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_loss_and_all_gradients_equal_the_naive_form(variant: dict[str, Any], few_calls: bool) -> None:
    network = worlds.som(**variant)
    batch = worlds.batch(network)
    torch.manual_seed(3)
    with computing(in_few_calls=few_calls):
        losses = network.losses(batch)
        torch.manual_seed(3)
        reading = network.read(batch)
    plain = naive(network, batch, reading)
    assert_same_loss_and_gradients(network, losses.total, plain)


def test_nan_in_empty_slots_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    network = worlds.som(num_slots=5)
    batch = worlds.batch(network)
    torch.manual_seed(3)
    clean = gradients(network, network.losses(batch).total)
    empty_like, new_empty = torch.empty_like, torch.Tensor.new_empty
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: empty_like(*a, **k).fill_(torch.nan))
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: new_empty(*a, **k).fill_(torch.nan))
    torch.manual_seed(3)
    losses = network.losses(batch)
    assert torch.isfinite(losses.total)
    for name, gradient in gradients(network, losses.total).items():
        assert torch.equal(gradient, clean[name]), name


def test_probabilities_of_all_short_sentences_and_their_continuations_sum_to_one() -> None:
    network = worlds.som()
    tokens = [str(index) for index in range(worlds.VOCABULARY_SIZE)]
    start = network.next_word_log_probs(network.start())[0].exp()
    pairs = [[a, b] for a in tokens for b in tokens]
    scores = network.score(pairs)
    first = dict(zip(tokens, (s.log_probs for s in network.score([[a] for a in tokens])), strict=True))
    total = start[-1].item()  # the empty sentence
    total += sum(np.exp(log_probs.sum()) for log_probs in first.values())
    total += sum(np.exp(score.log_probs[:-1].sum()) for score in scores)  # two words, then anything
    assert total == pytest.approx(1.0, abs=1e-8)


def test_parsing_loss_never_reaches_the_semantic_units_of_a_disentangled_network() -> None:
    network = worlds.som(syntactic_size=2)
    batch = worlds.batch(network)
    terms = network.losses(batch).terms
    parsing = gradients(network, terms["parse"].sum + terms["parse_prediction"].sum)
    semantic = network.config.semantic_size
    zero = [parsing["embedding"][:, :semantic], parsing["input_norm.weight"][:semantic], parsing["cell.hidden.weight"]]
    zero += [parsing["cell.gates.weight"], parsing["cell.norm.weight"][:semantic], parsing["output_bias"]]
    assert all((part == 0).all() for part in zero)
    for name in ("cell.hidden.syntactic_weight", "cell.gates.syntactic_weight", "attachment.key.weight"):
        assert (parsing[name] != 0).any(), name
    words = gradients(network, network.losses(batch).terms["word"].sum)
    for part in (words["cell.hidden.weight"], words["cell.hidden.syntactic_weight"], words["cell.gates.weight"]):
        assert (part != 0).any()
    assert (words["attachment.key.weight"] == 0).all()


def test_semantic_inputs_change_no_syntactic_value_of_a_disentangled_network() -> None:
    network = worlds.som(syntactic_size=2).eval()
    batch = worlds.batch(network)
    semantic = network.config.semantic_size

    def syntactic_values() -> torch.Tensor:
        with torch.no_grad():
            return network.read(batch, gold=True).hidden[:, semantic:].clone()

    before = syntactic_values()
    with torch.no_grad():
        network.embedding[:, :semantic] = torch.randn_like(network.embedding[:, :semantic])
        assert torch.equal(syntactic_values(), before)
        network.embedding[:, semantic:] += torch.randn_like(network.embedding[:, semantic:])
    assert not torch.equal(syntactic_values(), before)


def lowest(log_probs: torch.Tensor) -> np.ndarray:
    """The lowest slot that is occupied, or the one above it."""
    occupied = torch.isfinite(log_probs).long().argmax(1).cpu().numpy()
    return np.minimum(occupied + np.arange(len(log_probs)) % 2, log_probs.shape[1] - 1)


@pytest.mark.parametrize("few_calls", [False, True])
@pytest.mark.parametrize("oracle", ["static", "dynamic"])
def test_gradients_under_dropout_are_those_of_finite_differences(oracle: str, few_calls: bool) -> None:
    network = worlds.som(dropout=0.3, embedding_dropout=0.2, output_dropout=0.3, oracle=oracle)
    batch = worlds.batch(network, lengths=(6, 4))

    def loss() -> torch.Tensor:
        torch.manual_seed(5)
        with computing(in_few_calls=few_calls):
            return network.losses(batch, choose=None if oracle == "static" else lowest).total

    names = ["cell.hidden.weight", "cell.gates.bias", "prediction_cell.gates.weight", "attachment.key.weight"]
    assert_gradients_by_differences(network, loss, [*names, "cell.norm.weight", "cell.hidden.bias", "embedding"])


def test_decisions_of_the_form_for_a_gpu_have_the_probabilities_of_the_loss() -> None:
    network, seen = worlds.som(dropout=0.3), list[torch.Tensor]()
    with computing(in_few_calls=True):
        log_p = network.read(worlds.batch(network), choose=lambda one: lowest(seen.append(one) or one)).log_p.detach()
    found, expected = (sorted(one.exp().tolist()) for one in (torch.cat(seen)[: len(log_p)], log_p))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("prediction_network", [True, False])
def test_a_som_that_learnt_no_words_parses_and_refuses_to_score(prediction_network: bool) -> None:
    model = worlds.som(word_loss=False, prediction_network=prediction_network).eval()
    twin = worlds.som(prediction_network=prediction_network).eval()
    assert (model.predicts_words, twin.predicts_words) == (False, True)
    twin.load_state_dict(model.state_dict())
    (sentence,) = worlds.sentences((7,))
    (analysis,) = model.analyse([sentence])
    assert analysis.score is None
    assert str(analysis.tree) == str(model.parse([sentence])[0]) == str(twin.parse([sentence])[0])
    state = model.extend(model.start(1), sentence[:1])
    for refused in (
        lambda: model.score([sentence]),
        lambda: model.surprisal([sentence]),
        lambda: model.next_word_log_probs(state),
    ):
        with pytest.raises(InputError, match="no probabilities; parse with it"):
            refused()
