"""The unsupervised RNNG beside its plain form: binary trees, the estimator, its start, its bounds, what it refuses."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.gradients import gradients
from tests.models.layers.binary_trees import binary_trees, spans_of_trees
from tests.models.rnng.plain import PlainRNNG
from tests.models.rnng.plain_unsupervised import all_trees, bound
from tests.models.rnng.worlds import Tokens, as_batch, random_tree
from tests.models.search.exhaustive import (
    assert_bits_are_those_of_what_is_pruned,
    assert_narrow_beam_is_that_of_the_definition,
)
from tests.systems import small_recipe
from tests.training.fitting import fit
from tests.training.treebanks import write_treebank
from treelm.corpora.encoding import SentenceBatch
from treelm.errors import InputError
from treelm.models.layers import chart
from treelm.models.persistence.storage import load_model
from treelm.models.rnng.config import UnsupervisedRNNGConfig
from treelm.models.rnng.unsupervised import (
    UnsupervisedRNNG,
    branches_one_way,
    gold_trees,
    score_function_loss,
    tree_log_probs,
    with_trees,
)
from treelm.models.search.config import SearchConfig
from treelm.training.prepare import set_up
from treelm.training.recipe import Recipe, save_recipe
from treelm.trees.tree import Tree

SIZES = {"embedding_size": 4, "hidden_size": 3, "dropout": 0.0, "num_layers": 1, "max_open": 12, "max_consecutive": 12}
SIZES |= {"inference_embedding_size": 4, "inference_hidden_size": 3, "inference_span_size": 5}
FIVE = [0, 3, 1, 2, 3]  # a sentence of five words


def build(vocabulary: Tokens | None = None, *, seed: int = 0, **config: Any) -> UnsupervisedRNNG:
    """A model in float64 whose weights are large enough for every part to matter."""
    torch.manual_seed(seed)
    settings = UnsupervisedRNNGConfig(**{**SIZES, **config})
    model = UnsupervisedRNNG(settings, vocabulary=vocabulary or Tokens(4)).double()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.9, 0.9)
    return model


def batch_of(sentences: list[list[int]], vocabulary: Tokens | None = None) -> SentenceBatch:
    return as_batch([(0, list(tokens)) for tokens in sentences], vocabulary or Tokens(4))


# Trees.


@pytest.mark.parametrize("num_unfinished", [0, 3])
def test_the_actions_of_every_tree_are_that_tree(num_unfinished: int) -> None:
    vocabulary, rng = Tokens(6, num_unfinished), random.Random(1)
    ends_word = vocabulary.ends_word
    for length in range(1, 6):
        tokens = [t for _ in range(length) for t in ([0] if num_unfinished and rng.random() < 0.5 else []) + [5]]
        trees = spans_of_trees(length)
        batch = with_trees(batch_of([tokens], vocabulary), [np.zeros(len(trees), np.int64)], [trees], ends_word)
        assert len(batch) == len(trees)
        assert batch.names == ("trees.ptb:1",) * len(trees)
        again = gold_trees(batch, np.arange(len(trees)), length, ends_word)
        assert torch.equal(again.double(), trees)
        assert (np.diff(batch.action_offsets) == (3 if length == 1 else 3 * length - 2) + len(tokens) - length).all()


def test_given_trees_keep_their_constituents_and_branch_right_between_them() -> None:
    rng, vocabulary = random.Random(0), Tokens(5)
    flat, chain = (0, [1, 1, 1, 1]), (0, [(1, [(2, [1, (0, [1, 1, 1])])])])
    batch = as_batch([flat, chain], vocabulary)
    right, other = gold_trees(batch, np.arange(2), 4, vocabulary.ends_word)
    assert branches_one_way(right[None]) == branches_one_way(other[None]) == "right"
    for _ in range(30):
        tree = random_tree(rng, vocabulary, 3, 7)
        batch = as_batch([tree], vocabulary)
        length = int(batch.num_words[0])
        found = gold_trees(batch, np.zeros(1, np.int64), length, vocabulary.ends_word)[0]
        spans = {(i, j) for i, j in found.nonzero().tolist()}
        assert spans in [set(one) for one in binary_trees(0, length)] if length < 7 else len(spans) == 2 * length - 1
        assert {(i, j) for _, i, j in Tree.parse(_text(tree)).spans()} <= spans | {(0, length)}


def _text(node: Any) -> str:
    return str(node) if isinstance(node, int) else f"(L{node[0]} {' '.join(map(_text, node[1]))})"


# Losses.


@pytest.mark.parametrize("num_unfinished", [0, 1])
@pytest.mark.parametrize("objective", ["unsupervised", "trees"])
def test_the_losses_of_one_tree_each_are_those_of_the_plain_form(objective: str, num_unfinished: int) -> None:
    vocabulary, rng = Tokens(5, num_unfinished), random.Random(3)
    model = build(vocabulary, objective=objective).eval()
    trees = [random_tree(rng, vocabulary, 1, 4) for _ in range(7)]
    trees = [tree for tree in trees if as_batch([tree], vocabulary).num_words[0] < 6]
    batch = as_batch([*trees, (0, [4])], vocabulary)
    losses = model.losses(batch)
    expected = torch.zeros((), dtype=torch.float64)
    for row in range(len(batch)):
        listed = all_trees(model, batch.tokens_of(row).tolist())
        length = int(batch.num_words[row])
        if objective == "trees":
            given = gold_trees(batch, np.array([row]), length, vocabulary.ends_word)[0]
            chosen = frozenset((i, j) for i, j in given.nonzero().tolist())
            expected = expected - listed[chosen].log_q
        else:
            chosen = max(listed, key=lambda tree: float(listed[tree].log_q.detach()))
        expected = expected - listed[chosen].log_p_actions - listed[chosen].log_p_words
    torch.testing.assert_close(losses.total, expected, rtol=0, atol=1e-10)
    found, wanted = gradients(model, losses.total), gradients(model, expected)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_the_estimate_is_right_on_average_over_a_hundred_thousand_draws() -> None:
    """The gradient by the scores of spans of minus the sum of E[reward] + H, five words, within 4 standard errors."""
    torch.manual_seed(5)
    num_rows, num_samples = 12_500, 8
    scores = torch.randn(6, 6, dtype=torch.float64).triu(1)
    trees = spans_of_trees(5)
    rewards = 3 * torch.randn(len(trees), dtype=torch.float64) - 20  # as log probabilities are: far from 0
    leaf = scores.clone().requires_grad_()
    log_q = (trees * leaf).sum((1, 2)).log_softmax(0)
    exact = torch.autograd.grad(-(log_q.exp() * rewards).sum(), leaf)[0]

    rows = scores.repeat(num_rows, 1, 1).requires_grad_()
    lengths = torch.full((num_rows,), 5)
    drawn = chart.samples(rows.detach(), lengths, num_samples)
    number = (drawn[:, :, None] == trees).all(-1).all(-1).long().argmax(-1)
    loss = score_function_loss(rows, drawn, rewards[number])
    found = torch.autograd.grad(loss, rows)[0]
    error = found.std(0) / math.sqrt(num_rows)
    assert (found.mean(0) - exact).abs().le(4 * error + 1e-12).all()
    assert exact.abs().max() > 20 * error.max()  # it would be seen

    without = torch.autograd.grad(-(rewards[number] * tree_log_probs(rows, drawn)).mean(0).sum(), rows)[0]
    assert found.var(0).sum() < 0.1 * without.var(0).sum()


def test_the_gradient_of_training_is_that_of_the_bound() -> None:
    """Of both networks, with the divergence weighted by 1/4: within 4 standard errors, 800 draws."""
    model = build(kl_warmup_steps=4, num_samples=4, seed=2).train()
    model.before_step(1)
    exact = gradients(model, -bound(model, FIVE, 1 / 4))
    batch, generator = batch_of([FIVE] * 8), torch.Generator().manual_seed(0)
    directions = {
        name: torch.randn(4, *weight.shape, generator=generator, dtype=torch.float64)
        for name, weight in model.named_parameters()
    }

    def along(found: dict[str, Tensor], is_inference: bool) -> Tensor:
        named = [name for name in found if name.startswith("inference.") is is_inference]
        return sum((found[name] * directions[name]).flatten(1).sum(1) for name in named)

    torch.manual_seed(1)
    draws, totals = [], []
    for _ in range(25):
        losses = model.losses(batch)
        totals.append(losses.total.detach() / 8)
        own = {name: value / 8 for name, value in gradients(model, losses.total).items()}
        draws.append(torch.stack([along(own, part) for part in (False, True)]))
    expected = torch.stack([along(exact, part) for part in (False, True)])
    error = torch.stack(draws).std(0) / math.sqrt(len(draws))
    assert (torch.stack(draws).mean(0) - expected).abs().le(4 * error).all()
    error = torch.stack(totals).std() / math.sqrt(len(totals))
    assert abs(torch.stack(totals).mean() + bound(model, FIVE, 1 / 4)) < 4 * error
    assert set(losses.terms) == {"action", "word", "entropy"}
    assert [losses.terms[name].count for name in ("action", "word", "entropy")] == [8 * 13, 8 * 5, 8]


def test_at_initialisation_all_trees_are_likely_and_none_is_taken_for_a_fault() -> None:
    """Over twenty seeds: the entropy is near that of all trees alike, and the best trees do not branch one way."""
    config = UnsupervisedRNNGConfig(embedding_size=8, hidden_size=8, max_open=20, max_consecutive=20, num_samples=2)
    generator = np.random.default_rng(0)
    batch = batch_of([generator.integers(0, 40, 7).tolist() for _ in range(4)], Tokens(40))
    most = math.log(math.comb(12, 6) / 7)  # all binary trees of seven words
    for seed in range(20):
        torch.manual_seed(seed)
        model = UnsupervisedRNNG(config, vocabulary=Tokens(40)).train()
        losses = model.losses(batch)
        assert losses.total.isfinite()
        assert 0.85 * most < losses.terms["entropy"].sum.item() / 4 <= most + 1e-4
        assert model.diagnose_latent_trees(batch) == ""


# Probabilities.


def test_the_probabilities_of_everything_sum_to_one() -> None:
    mass = build(Tokens(2)).eval().probability_mass()
    assert mass is not None
    assert mass.finished + mass.unfinished == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("composition", ["lstm", "attention", "none"])
def test_a_wide_search_finds_the_sum_over_all_binary_trees(composition: str) -> None:
    model = build(composition=composition).eval()
    model.search = SearchConfig(action_beam=500, word_beam=500, fast_track=5)
    for tokens in ([2], FIVE[:2], FIVE):
        with torch.no_grad():
            joint = [one.log_p_actions + one.log_p_words for one in all_trees(model, tokens).values()]
        (score,) = model.score([[str(token) for token in tokens]])
        assert score.log_probs.sum() == pytest.approx(torch.stack(joint).logsumexp(0).item(), abs=1e-9)
    best = max(all_trees(model, FIVE).values(), key=lambda one: float((one.log_p_actions + one.log_p_words).detach()))
    assert str(model.parse([list(map(str, FIVE))])[0]) == _text(best.node).replace("L0", "X")


@pytest.mark.parametrize("beams", [(6, 3, 1), (8, 8, 0), (1, 1, 1)])
@pytest.mark.parametrize("composition", ["lstm", "none"])
def test_a_narrow_beam_is_the_one_of_the_definition(composition: str, beams: tuple[int, int, int]) -> None:
    """With a beam for each group, of words in pieces too."""
    model = build(Tokens(9, 2), seed=3, composition=composition, max_open=6, max_consecutive=4).eval()
    sentences = [[3, 1, 4, 8], [0, 1, 5], [6], [5, 1, 0, 5, 7, 2, 6]]
    assert_narrow_beam_is_that_of_the_definition(model, PlainRNNG(model), sentences, *beams)
    assert_bits_are_those_of_what_is_pruned(model, PlainRNNG(model), sentences[:3], *beams, 4.0)


@pytest.mark.parametrize("seed", [2, 9, 11, 13])  # of twenty, some whose beams end early without groups
def test_a_narrow_beam_has_an_analysis_for_whatever_comes_next(seed: int) -> None:
    """A binary tree that is complete takes no further word: without groups such trees fill a beam of three."""
    model = build(seed=seed, max_open=40, max_consecutive=40).eval()
    model.search = SearchConfig(action_beam=3, word_beam=3, fast_track=1)
    rng = np.random.default_rng(seed)
    sentences = [[str(token) for token in rng.integers(0, 4, length)] for length in (1, 2, 3, 15)]
    assert all(np.isfinite(score.log_probs).all() for score in model.score(sentences))
    assert [len(tree.words()) for tree in model.parse(sentences)] == [1, 2, 3, 15]


def test_the_importance_sampled_bound_is_below_and_near_with_many_draws() -> None:
    model = build(bound_samples=1000).eval()
    sentences = [list(map(str, tokens)) for tokens in (FIVE, FIVE[:1], FIVE[:2], FIVE[:4])]
    before = torch.get_rng_state()
    found = model.log_prob_bounds(sentences)
    assert torch.equal(torch.get_rng_state(), before)
    assert found.tolist() == model.log_prob_bounds(sentences).tolist()
    with torch.no_grad():
        listed = [all_trees(model, list(map(int, words))).values() for words in sentences]
    exact = [torch.stack([one.log_p_actions + one.log_p_words for one in trees]).logsumexp(0) for trees in listed]
    assert found[1:3] == pytest.approx([exact[1].item(), exact[2].item()], abs=1e-9)  # one tree each
    assert found == pytest.approx(torch.stack(exact).numpy(), abs=0.1)
    few = build(bound_samples=1).eval()
    single = few.log_prob_bounds(sentences[:1] * 400)
    assert single.mean() + 2 * single.std() / 20 < exact[0]


# Data and runs.


def _recipe(folder: Path, **changes: Any) -> Recipe:
    recipe = small_recipe("urnng", folder, {"model": changes, "training": {"max_steps": 2}})
    data = replace(recipe.data, train=str(folder / "train.txt"), dev=str(folder / "dev.txt"), test=None)
    return replace(recipe, data=data)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Write text in place of a treebank's train and dev."""
    for part in ("train", "dev"):
        (tmp_path / f"{part}.txt").write_text("the cat sees a dog\na bird\nfish\n")
    return tmp_path


def test_it_trains_on_text_and_a_start_by_trees_needs_them(text: Path, tmp_path: Path) -> None:
    setup = set_up(_recipe(text, max_open=6, max_consecutive=6))
    steps = list(fit(setup.model, setup.batches, setup.dev, setup.recipe.training, tmp_path / "run"))
    assert steps[-1].dev is not None
    with pytest.raises(InputError, match=r"without a tree.*") as caught:
        set_up(_recipe(text, objective="trees"))
    assert caught.value.where == f"{text / 'train.txt'}:1"


def test_an_unsupervised_run_goes_on_from_one_on_trees(tmp_path: Path) -> None:
    write_treebank(tmp_path, num_train=8, num_dev=3)
    first = set_up(small_recipe("urnng", tmp_path, {"model": {"objective": "trees"}, "training": {"max_steps": 2}}))
    list(fit(first.model, first.batches, first.dev, first.recipe.training, tmp_path / "first"))
    save_recipe(first.recipe, tmp_path / "first" / "recipe.toml")
    second = small_recipe("urnng", tmp_path, {"training": {"max_steps": 2, "start_from": str(tmp_path / "first")}})
    setup = set_up(second)
    kept = load_model(tmp_path / "first")
    for name, weight in kept.named_parameters():
        assert torch.equal(weight, dict(setup.model.named_parameters())[name]), name
    steps = list(fit(setup.model, setup.batches, setup.dev, setup.recipe.training, tmp_path / "second"))
    assert steps[-1].step == 2


def test_the_inference_network_rests_when_it_is_told() -> None:
    model = build(inference_steps=3).train()
    for number, learns in ((3, True), (4, False)):
        model.before_step(number)
        model.zero_grad()
        model.losses(batch_of([FIVE])).total.backward()
        assert all((weight.grad is not None) is learns for weight in model.inference.parameters())
        assert model.word_embedding.grad is not None


def test_trees_that_branch_one_way_whatever_the_words_are_named() -> None:
    model = build()
    with torch.no_grad():
        for parameter in model.inference.parameters():
            parameter.zero_()
    assert "right-branching" in model.diagnose_latent_trees(batch_of([FIVE, FIVE[:4], FIVE[:1]]))
    assert model.diagnose_latent_trees(batch_of([FIVE[:2]])) == ""
