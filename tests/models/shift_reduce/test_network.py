"""The parser against its plain form, the oracle by brute force, and the contracts of the interface."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.gradients import assert_gradients_by_differences, assert_same_loss_and_gradients
from tests.models.rnng.worlds import Tokens
from tests.models.shift_reduce import plain
from tests.models.som import plain as structure
from tests.models.weights import stirred
from treelm.corpora.encoding import SentenceBatch
from treelm.errors import InputError
from treelm.models.layers.devices import computing
from treelm.models.shift_reduce.machine import ParserStacks
from treelm.models.shift_reduce.network import ShiftReduce, ShiftReduceConfig

VOCABULARY_SIZE = 8
TOLERANCE = {"rtol": 0, "atol": 1e-10}


def network(seed: int = 0, num_unfinished: int = 0, **config: Any) -> ShiftReduce:
    """A tiny float64 network without dropout, in training mode, with sharp decisions."""
    torch.manual_seed(seed)
    fields = {"size": 6, "dropout": 0.0, "embedding_dropout": 0.0, "output_dropout": 0.0} | config
    built = ShiftReduce(ShiftReduceConfig(**fields), vocabulary=Tokens(VOCABULARY_SIZE, num_unfinished)).double()
    return stirred(built, 0.3, times=2)


def batch_of(lengths: tuple[int, ...] = (7, 3, 9, 1, 5), seed: int = 1) -> SentenceBatch:
    random = Random(seed)
    trees = [structure.random_tree(n, random) for n in lengths]
    return structure.batch_of(trees, seed=seed, vocabulary=VOCABULARY_SIZE)


def siblings_of(batch_seed: int, lengths: tuple[int, ...]) -> list[list[int]]:
    random = Random(batch_seed)
    trees = [structure.with_boundary(structure.random_tree(n, random)) for n in lengths]
    return [structure.siblings_of(tree, n + 1) for tree, n in zip(trees, lengths, strict=True)]


def tokens_of(batch: SentenceBatch) -> list[list[int]]:
    bounds = itertools.pairwise(batch.token_offsets)
    return [batch.tokens[a:b].tolist() for a, b in bounds]


VARIANTS: list[dict[str, Any]] = [
    {},
    {"oracle": "static"},
    {"num_layers": 1},
    {"language_model": False},
    {"language_model": False, "oracle": "static", "num_layers": 3},
]


@pytest.mark.parametrize("few_calls", [False, True])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_loss_and_all_gradients_equal_the_plain_form(variant: dict[str, Any], few_calls: bool) -> None:
    model = network(**variant)
    lengths = (7, 3, 9, 1, 5, 2, 8)
    batch = batch_of(lengths)

    def odd(logits: torch.Tensor, best: np.ndarray) -> np.ndarray:
        """Greedy, but against the oracle where the logits' digits say so: off the gold path, and reproducible."""
        return np.array([contrary(float(p), bool(b)) for p, b in zip(logits.sigmoid(), best, strict=True)])

    def contrary(p: float, is_best: bool) -> bool:
        return is_best ^ (int(p * 1e4) % 3 == 0)

    follows = variant.get("oracle") == "static"
    with computing(in_few_calls=few_calls):
        losses = model.losses(batch) if follows else model.losses(batch, choose=odd)
    outcomes = [
        plain.read(model, tokens, siblings, (lambda p, best: best) if follows else contrary)
        for tokens, siblings in zip(tokens_of(batch), siblings_of(1, lengths), strict=True)
    ]
    assert losses.terms["parse"].count == sum(outcome.num_decisions for outcome in outcomes)
    total = torch.stack([outcome.parse + outcome.word for outcome in outcomes]).sum()
    assert_same_loss_and_gradients(model, losses.total, total)
    assert ("word" in losses.terms) == model.predicts_words


def test_evaluation_acts_greedily_and_is_judged_on_its_own_history() -> None:
    lengths = (7, 3, 9, 1, 5)
    model = network(oracle="static").eval()
    batch = batch_of(lengths)
    with torch.no_grad():
        found = model.losses(batch)
    outcomes = [
        plain.read(model, tokens, siblings, lambda p, best: p > 0.5)
        for tokens, siblings in zip(tokens_of(batch), siblings_of(1, lengths), strict=True)
    ]
    parse = torch.stack([outcome.parse for outcome in outcomes]).sum()
    word = torch.stack([outcome.word for outcome in outcomes]).sum()
    torch.testing.assert_close(found.terms["parse"].sum, parse.detach(), **TOLERANCE)
    torch.testing.assert_close(found.terms["word"].sum, word.detach(), **TOLERANCE)
    texts = [[str(token) for token in tokens] for tokens in tokens_of(batch)]
    trees = model.parse(texts)
    for outcome, tokens, tree in zip(outcomes, tokens_of(batch), trees, strict=True):
        expected = {(max(a, 1) - 1, b) for a, b in plain.spans(outcome.actions, len(tokens) + 1)}
        expected = {(a, b) for a, b in expected if b - a > 1} | {(0, len(tokens))}
        assert {(span.start, span.end) for span in tree.spans()} == expected


def completions(heights: ParserStacks, siblings: list[int], length: int) -> Iterator[tuple[list[bool], list[bool]]]:
    """All ways on from a state: the choices that are made, and those that the oracle would make."""
    position = int(heights.num_read[0])
    row = np.zeros(1, np.int64)
    if position == length:
        yield [], []
        return
    if heights.heights[0] < 2:
        heights.step(row, np.array([False]))
        yield from completions(heights, siblings, length)
        return
    best = bool(heights.best_action(row, np.array([siblings[position]]))[0])
    for reduces in (False, True):
        after = heights.copy()
        after.step(row, np.array([reduces]))
        for made, advised in completions(after, siblings, length):
            yield [reduces, *made], [best, *advised]


@pytest.mark.parametrize("seed", range(12))
def test_the_dynamic_oracle_is_optimal_from_every_state_by_brute_force(seed: int) -> None:
    length = 6
    tree = structure.with_boundary(structure.random_tree(length - 1, Random(seed)))
    siblings = structure.siblings_of(tree, length)
    gold = structure.spans_of(structure.binarised(tree))
    recovered: dict[tuple[bool, ...], int] = {}
    advice: dict[tuple[bool, ...], bool] = {}
    for made, advised in completions(ParserStacks(1), siblings, length):
        value = len(plain.spans(made, length) & gold)
        for cut in range(len(made) + 1):
            state = tuple(made[:cut])
            recovered[state] = max(recovered.get(state, 0), value)
            if cut < len(made):
                advice[state] = advised[cut]
    assert recovered[()] == len(gold)
    for state, best in advice.items():
        assert recovered[(*state, best)] == recovered[state], state


def test_where_a_word_attaches_depends_on_that_word_and_on_none_after_it() -> None:
    model = network()
    attached: set[int] = set()
    for last in range(VOCABULARY_SIZE):
        state = model.extend(model.extend(model.extend(model.start(), ["1"]), ["2"]), [str(last)])
        attached.add(state.stacks.shifted_at[0][-1])
        longer = model.extend(model.extend(state, ["5"]), ["6"])
        assert longer.stacks.shifted_at[0][:4] == state.stacks.shifted_at[0]
    assert len(attached) > 1  # one word of look-ahead


def test_a_bare_parser_parses_word_by_word_and_refuses_to_score() -> None:
    model = network(language_model=False)
    state = model.start(2)
    for words in (["1", "4"], ["2", "5"], ["3", "6"]):
        state = model.extend(state, words)
    assert [str(t) for t in model.partial_trees(state)] == [str(t) for t in model.parse([["1", "2", "3"], list("456")])]
    (analysis,) = model.analyse([["1", "2"]])
    assert analysis.score is None
    assert str(analysis.tree) == str(model.parse([["1", "2"]])[0])
    for refused in (
        lambda: model.score([["1"]]),
        lambda: model.surprisal([["1"]]),
        lambda: model.next_word_log_probs(state),
    ):
        with pytest.raises(InputError, match="no probabilities; parse with it"):
            refused()


def every_second(logits: torch.Tensor, best: np.ndarray) -> np.ndarray:
    return np.arange(len(best)) % 2 == 0


@pytest.mark.parametrize("few_calls", [False, True])
@pytest.mark.parametrize("oracle", ["static", "dynamic"])
def test_gradients_under_dropout_are_those_of_finite_differences(oracle: str, few_calls: bool) -> None:
    model = network(dropout=0.3, embedding_dropout=0.2, output_dropout=0.3, oracle=oracle)
    batch = batch_of((6, 4))

    def loss() -> torch.Tensor:
        torch.manual_seed(5)
        with computing(in_few_calls=few_calls):
            return model.losses(batch, choose=None if oracle == "static" else every_second).total

    names = "composition.weight", "stack.0.weight_hidden", "action_hidden.weight", "embedding"
    assert_gradients_by_differences(model, loss, names)
