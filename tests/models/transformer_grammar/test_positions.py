"""Masks and positions from POPPED, against a stack that is walked."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.models.rnng.worlds import Node, Tokens, as_batch, top_down
from tests.models.transformer_grammar.plain import Walk, begun
from tests.models.transformer_grammar.plain import binarised as plain_binarised
from tests.models.transformer_grammar.worlds import VARIANTS, trees_of
from treelm.models.layers.packing import Packing
from treelm.models.search.derivations import derive
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.positions import NEVER, NOT_PUSHED, Positions, attention_mask, lay_out, pad

TOKENS = Tokens(9, 2)
MEASURES = ("depth", "height", "place")


def walked(tree: Node, config: TransformerGrammarConfig) -> Walk:
    walk = begun(config)
    actions = top_down(tree)
    for action in actions if config.is_bottom_up else actions[:-1]:
        walk = walk.after(config, action)
    return walk


def num_different(
    trees: list[Node], config: TransformerGrammarConfig, change: Callable[[Positions], None] = lambda found: None
) -> int:
    """Queries whose mask is not that of the walk, after a change of what was laid out."""
    laid_out = lay_out(derive(config.rule, as_batch(trees, TOKENS), TOKENS.ends_word, 3), config)
    change(laid_out)
    mask = attention_mask(pad(laid_out, Packing.of(laid_out.lengths)), config)
    assert mask.hidden is not None
    (relative,) = mask.relative
    heads = (~mask.hidden).expand(-1, config.num_heads, -1, -1)
    lowest = 0 if config.positions == "place" else -1
    different = 0
    for row, tree in enumerate(trees):
        positions = walked(tree, config).positions
        assert laid_out.lengths[row] == len(positions)
        for q, position in enumerate(positions):
            sees = [*position.heads, position.sees] if config.structured_heads else [position.sees] * 3
            found = [torch.nonzero(heads[row, head, q])[:, 0].tolist() for head in range(3)]
            mine = getattr(position, config.positions)
            distances = [mine - getattr(positions[k], config.positions) for k in position.sees]
            expected = [min(max(one, lowest), config.max_distance) - lowest for one in distances]
            met = relative[row, q, list(position.sees)].tolist()
            different += found != [sorted(one) for one in sees] or met != expected
    return different


def config_of(variant: str, **changes: object) -> TransformerGrammarConfig:
    sizes = {"size": 3, "num_heads": 3, "max_distance": 4, **VARIANTS[variant], **changes}
    return TransformerGrammarConfig(**sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("positions", MEASURES)
@pytest.mark.parametrize("variant", ["TG", "no masking", "PLM", "PLM-mask"])
def test_all_positions_see_what_a_walked_stack_shows_them(variant: str, positions: str) -> None:
    assert num_different(trees_of(TOKENS, 100), config_of(variant, positions=positions)) == 0


@pytest.mark.parametrize("positions", ["height", "place"])
@pytest.mark.parametrize("masking", [True, False])
def test_bottom_up_positions_too(masking: bool, positions: str) -> None:
    config = config_of("bottom-up", masking=masking, positions=positions)
    assert num_different(trees_of(TOKENS, 100), config) == 0
    assert num_different(trees_of(TOKENS, 20), config, _compose_sees_the_stack) > 20
    config = config_of("external bottom-up", masking=masking, positions=positions, composer_size=6)
    assert num_different(trees_of(TOKENS, 100), config) == 0
    if masking:
        assert num_different(trees_of(TOKENS, 20), config, _popped_one_later) > 20


@pytest.mark.parametrize("positions", MEASURES)
@pytest.mark.parametrize("masking", [True, False])
@pytest.mark.parametrize("binary", [True, False])
def test_external_positions_too(binary: bool, masking: bool, positions: str) -> None:
    """Depth is the measure of the recipes zhao-1001 and zhao-1011."""
    config = config_of("external", binary=binary, masking=masking, positions=positions, composer_size=6)
    trees = trees_of(TOKENS, 100)
    walked_trees = [plain_binarised(tree, TOKENS.ends_word) for tree in trees] if binary else trees
    assert num_different(walked_trees, config) == 0
    if masking:
        assert num_different(walked_trees[:40], config, _popped_one_later) > 20
    assert num_different(walked_trees[:40], config, _start_one_further) > 20


def _popped_never(found: Positions) -> None:
    found.popped[found.popped > NOT_PUSHED] = NEVER


def _stack_pushed(found: Positions) -> None:
    found.popped[found.popped == NOT_PUSHED] = NEVER


def _compose_sees_the_stack(found: Positions) -> None:
    found.composes[:] = 0


def _compose_is_not_pushed(found: Positions) -> None:
    found.popped[found.composes == 1] = NOT_PUSHED


def _popped_one_later(found: Positions) -> None:
    found.popped[(found.popped > NOT_PUSHED) & (found.popped < NEVER)] += 1


def _closing_one_deeper(found: Positions) -> None:
    found.where[found.composes == 1] += 1


def _innermost_one_earlier(found: Positions) -> None:
    found.innermost[found.innermost > 0] -= 1


def _innermost_is_the_outermost(found: Positions) -> None:
    found.innermost[:] = 1


def _start_one_further(found: Positions) -> None:
    found.where[found.action < 0] += 1


def _stack_one_further(found: Positions) -> None:
    found.where[found.popped == NOT_PUSHED] += 1


def _stack_one_back(found: Positions) -> None:
    found.where[found.popped == NOT_PUSHED] -= 1


def _number_of_the_position(found: Positions) -> None:
    """Nothing is ever taken off the stack, and both copies of a bracket are pushed."""
    begins = np.flatnonzero(found.action < 0)
    found.where[:] = np.arange(len(found.where)) - np.repeat(begins, found.lengths)


RULES = [
    _popped_never,
    _stack_pushed,
    _compose_sees_the_stack,
    _compose_is_not_pushed,
    _popped_one_later,
    _closing_one_deeper,
]


@pytest.mark.parametrize("variant", ["TG", "no masking"])
@pytest.mark.parametrize("change", RULES)
def test_each_rule_matters(variant: str, change: Callable[[Positions], None]) -> None:
    assert num_different(trees_of(TOKENS, 20), config_of(variant), change) > 20


RULES_OF_MEASURES = [
    _closing_one_deeper,
    _start_one_further,
    _stack_one_further,
    _stack_one_back,
    _number_of_the_position,
]


@pytest.mark.parametrize(
    ("variant", "positions"),
    [*itertools.product(["TG", "no masking"], MEASURES), ("bottom-up", "height"), ("bottom-up", "place")],
)
@pytest.mark.parametrize("change", RULES_OF_MEASURES)
def test_each_rule_of_depth_height_and_place_matters(
    change: Callable[[Positions], None], variant: str, positions: str
) -> None:
    assert num_different(trees_of(TOKENS, 20), config_of(variant, positions=positions), change) > 20


@pytest.mark.parametrize("change", [_innermost_one_earlier, _innermost_is_the_outermost])
def test_each_rule_of_structured_heads_matters(change: Callable[[Positions], None]) -> None:
    assert num_different(trees_of(TOKENS, 20), config_of("PLM-mask"), change) > 20


def test_masking_hides_something_and_heads_see_different_things() -> None:
    trees = trees_of(TOKENS, 20)
    assert num_different(trees, config_of("TG")) == 0
    masks = []
    for variant in ("TG", "no masking", "PLM", "PLM-mask"):
        config = config_of(variant, positions="place")
        laid_out = lay_out(derive(config.rule, as_batch(trees, TOKENS), TOKENS.ends_word, 3), config)
        hidden = attention_mask(pad(laid_out, Packing.of(laid_out.lengths)), config).hidden
        assert hidden is not None
        masks.append(hidden)
    assert (masks[0] & ~masks[1]).sum() > 100
    assert (masks[3][:, 0] != masks[3][:, 1]).sum() > 100
    assert torch.equal(masks[3][:, 2], masks[2][:, 0])


def test_as_many_contexts_as_actions_and_none_composes() -> None:
    config, trees = config_of("TG"), trees_of(TOKENS, 30)
    derivations = derive(config.rule, as_batch(trees, TOKENS), TOKENS.ends_word, 3)
    found = lay_out(derivations, config)
    assert len(found.contexts) == len(derivations.actions) == len(np.unique(found.contexts))
    assert not found.composes[found.contexts].any()
    assert found.lengths.sum() == len(derivations.actions) + found.composes.sum()
