"""Masks and positions from POPPED, against a stack that is walked."""

from __future__ import annotations

import pytest
import torch

from tests.models.rnng.worlds import Node, Tokens, as_batch, top_down
from tests.models.transformer_grammar.plain import Walk, begun
from tests.models.transformer_grammar.plain import binarised as plain_binarised
from tests.models.transformer_grammar.worlds import VARIANTS, trees_of
from treelm.models.layers.packed_sequences import Packing
from treelm.models.search.derivations import derive
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.positions import attention_mask, lay_out, pad

TOKENS = Tokens(9, 2)
MEASURES = ("depth", "height", "place")


def walked(tree: Node, config: TransformerGrammarConfig) -> Walk:
    walk = begun(config)
    actions = top_down(tree)
    for action in actions if config.is_bottom_up else actions[:-1]:
        walk = walk.after(config, action)
    return walk


def assert_seen_as_walked(trees: list[Node], config: TransformerGrammarConfig) -> None:
    """Every query of every head sees what a walked stack shows it, at the distances of the walk."""
    laid_out = lay_out(derive(config.rule, as_batch(trees, TOKENS), TOKENS.ends_word, 3), config)
    mask = attention_mask(pad(laid_out, Packing.of(laid_out.lengths)), config)
    assert mask.hidden is not None
    (relative,) = mask.relative
    heads = (~mask.hidden).expand(-1, config.num_heads, -1, -1)
    lowest = 0 if config.positions == "place" else -1
    for row, tree in enumerate(trees):
        positions = walked(tree, config).positions
        assert laid_out.lengths[row] == len(positions)
        for q, position in enumerate(positions):
            sees = [*position.heads, position.sees] if config.structured_heads else [position.sees] * 3
            found = [torch.nonzero(heads[row, head, q])[:, 0].tolist() for head in range(3)]
            assert found == [sorted(one) for one in sees]
            mine = getattr(position, config.positions)
            distances = [mine - getattr(positions[k], config.positions) for k in position.sees]
            expected = [min(max(one, lowest), config.max_distance) - lowest for one in distances]
            assert relative[row, q, list(position.sees)].tolist() == expected


def config_of(variant: str, **changes: object) -> TransformerGrammarConfig:
    sizes = {"size": 3, "num_heads": 3, "max_distance": 4, **VARIANTS[variant], **changes}
    return TransformerGrammarConfig(**sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("positions", MEASURES)
@pytest.mark.parametrize("variant", ["TG", "no masking", "PLM", "PLM-mask"])
def test_all_positions_see_what_a_walked_stack_shows_them(variant: str, positions: str) -> None:
    assert_seen_as_walked(trees_of(TOKENS, 100), config_of(variant, positions=positions))


@pytest.mark.parametrize("positions", ["height", "place"])
@pytest.mark.parametrize("masking", [True, False])
@pytest.mark.parametrize("variant", ["bottom-up", "external bottom-up"])
def test_bottom_up_positions_too(variant: str, masking: bool, positions: str) -> None:
    config = config_of(variant, masking=masking, positions=positions, composer_size=6)
    assert_seen_as_walked(trees_of(TOKENS, 100), config)


@pytest.mark.parametrize("positions", MEASURES)
@pytest.mark.parametrize("masking", [True, False])
@pytest.mark.parametrize("binary", [True, False])
def test_external_positions_too(binary: bool, masking: bool, positions: str) -> None:
    """Depth is the measure of the recipes zhao-1001 and zhao-1011."""
    config = config_of("external", binary=binary, masking=masking, positions=positions, composer_size=6)
    trees = trees_of(TOKENS, 100)
    assert_seen_as_walked([plain_binarised(tree, TOKENS.ends_word) for tree in trees] if binary else trees, config)


def test_masking_hides_something_and_heads_see_different_things() -> None:
    trees = trees_of(TOKENS, 20)
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
