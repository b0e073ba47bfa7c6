"""The Transformer's block against its plain form: masks and places from outside, packed rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.layers.plain_attention import Place, block
from tests.models.weights import stirred
from treelm.models.layers import attention
from treelm.models.layers.attention import AttentionBlock, AttentionMask, Rotary, rotated

SIZE, HEADS, STEPS = 12, 3, 7
DISTANCE: Place = lambda t, s: min(t - s, 4)  # noqa: E731
DEPTHS = [0, 1, 1, 2, 3, 2, 1]
DEPTH: Place = lambda t, s: min(max(DEPTHS[t] - DEPTHS[s], -1), 2) + 1  # noqa: E731
CAUSAL = [list(range(t + 1)) for t in range(STEPS)]
# Seen on a stack: 3 takes 1 and 2 off, and what comes later does not see them; 4 sees 3 and itself alone.
STACK = [[0], [0, 1], [0, 1, 2], [1, 2, 3], [3, 4], [0, 3, 5], [0, 3, 5, 6]]
FORMS = {
    "causal": (CAUSAL, [], False),
    "distance": (CAUSAL, [DISTANCE], False),
    "stack and depth": (STACK, [DEPTH], False),
    "two kinds": (STACK, [DISTANCE, DEPTH], False),
    "rotary": (CAUSAL, [], True),
    "rotary on a stack": (STACK, [], True),
}
every_form = pytest.mark.parametrize("form", FORMS)


def make(form: str, *, size: int = SIZE, heads: int = HEADS, seed: int = 0) -> AttentionBlock:
    torch.manual_seed(seed)
    return stirred(AttentionBlock(size, heads, num_layers=2, kinds=[5 for _ in FORMS[form][1]]).double(), 0.3)


def attention_mask(form: str) -> AttentionMask:
    sees, kinds, rotary = FORMS[form]
    hidden = torch.ones(STEPS, STEPS, dtype=torch.bool)
    for t, seen in enumerate(sees):
        hidden[t, seen] = False
    relative = [
        torch.tensor([[kind(t, s) if s <= t else 0 for s in range(STEPS)] for t in range(STEPS)]) for kind in kinds
    ]
    places = torch.arange(STEPS)[None]
    return AttentionMask(
        None if form == "causal" else hidden[None, None],
        tuple(one[None] for one in relative),
        Rotary(places, places) if rotary else None,
    )


def plain(made: AttentionBlock, form: str, units: Tensor) -> Tensor:
    sees, kinds, rotary = FORMS[form]
    rows = block(dict(made.named_parameters()), list(units), sees, num_heads=made.num_heads, kinds=kinds, rotary=rotary)
    return torch.stack(rows)


@pytest.mark.parametrize("most", [1, 40, 100, 250])
@every_form
def test_attention_in_pieces_is_the_whole(form: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gradient: few weights are computed at once, so that a long sentence fits into memory."""
    made, units = make(form), torch.randn(3, STEPS, SIZE, dtype=torch.float64)
    monkeypatch.setattr(attention, "MOST_WEIGHTS", most)
    widest, logits = list[int](), AttentionBlock._logits

    def told(block: AttentionBlock, *parts: Any) -> Tensor:
        found = logits(block, *parts)
        widest.append(found.numel())
        return found

    monkeypatch.setattr(AttentionBlock, "_logits", told)
    with torch.no_grad():
        found = made(units, attention_mask(form))
    assert max(widest, default=0) <= max(most, HEADS * STEPS)
    expected = torch.stack([plain(made, form, one) for one in units])
    torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-12)


def test_the_weights_of_one_head_are_those_that_mix_the_values() -> None:
    for form in FORMS:
        made, units, found = make(form), torch.randn(STEPS, SIZE, dtype=torch.float64), list[list[Tensor]]()
        sees, kinds, rotary = FORMS[form]
        block(
            dict(made.named_parameters()),
            list(units),
            sees,
            num_heads=HEADS,
            kinds=kinds,
            rotary=rotary,
            found=found,
        )
        query, key, _ = made.heads(units[None])
        weights = made.logits(query, key, attention_mask(form))[1].softmax(-1)
        for t, seen in enumerate(sees):
            torch.testing.assert_close(weights[0, t, seen], found[t * HEADS + 1][0], rtol=0, atol=1e-12)
            assert weights[0, t].sum().item() == pytest.approx(1)


def test_turned_vectors_meet_by_their_distance_alone() -> None:
    torch.manual_seed(1)
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    products = [
        (rotated(query, torch.tensor([[t + 3]])) * rotated(key, torch.tensor([[t]]))).sum() for t in (0, 5, 100)
    ]
    torch.testing.assert_close(products[0].expand(3), torch.stack(products), rtol=0, atol=1e-12)
