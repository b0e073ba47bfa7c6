"""Rules of induced grammars equal their plain form: dense, low-rank and simple ones, tight and loose."""

from __future__ import annotations

from dataclasses import replace
from decimal import Context, Decimal, localcontext
from operator import mul

import numpy as np
import pytest

from tests.models.pcfg.induced import KINDS, grammar_from, logits_of
from tests.models.pcfg.plain import written_out
from tests.models.pcfg.worlds import assert_constituents_are_the_derivative
from treelm.errors import InputError
from treelm.models.pcfg.interface import read_tokens
from treelm.models.pcfg.products import ProductRules, TableRules, rules_of

FACTORS = ("of_head", "of_left", "of_right")
SENTENCES = ([1, 0, 2, 2], [0], [2, 1, 1, 0, 0])


def drawn(kind: str, seed: int = 0, lean: float = 2.0) -> ProductRules:
    """Three nonterminals, four tags, five words; rules lean towards tags, or away from them."""
    return rules_of(grammar_from(logits_of(kind, seed, lean)))


def exact_mass(rules: ProductRules) -> list[float]:
    """The least fixed point by Newton's method with 120 digits, of rules that sum to 1 in all of them."""
    with localcontext(Context(prec=120)):
        head, left, right = (
            [[Decimal(x) / sum(map(Decimal, row)) for x in row] for row in part.tolist()]
            for part in (rules.of_head, rules.of_left, rules.of_right)
        )
        num, ranks = len(head), range(len(left))
        mass = [Decimal(0)] * num + [Decimal(1)] * (len(left[0]) - num)
        for _ in range(400):
            lefts, rights = ([sum(map(mul, row, mass)) for row in part] for part in (left, right))
            rows = []
            for a in range(num):
                row = [
                    (a == b) - sum(head[a][r] * (left[r][b] * rights[r] + lefts[r] * right[r][b]) for r in ranks)
                    for b in range(num)
                ]
                rows.append([*row, sum(head[a][r] * lefts[r] * rights[r] for r in ranks) - mass[a]])
            for a in range(num):  # Gauss and Jordan
                own = [x / rows[a][a] for x in rows[a]]
                rows = [[x - row[a] * y for x, y in zip(row, own, strict=True)] for row in rows]
                rows[a] = own
            mass[:num] = [x + row[num] for row, x in zip(rows, mass, strict=False)]
            if all(abs(row[num]) <= Decimal("1e-40") * x for row, x in zip(rows, mass, strict=False)):
                break
        return [float(x) for x in mass]


def sharp(seed: int, scale: float) -> ProductRules:
    """Rules of any sizes; the greater the scale, the more nearly certain, down to 1e-100 for the others."""
    generator = np.random.default_rng(seed)
    num, tags, rank = (int(generator.integers(1, 6)) for _ in range(3))

    def shares(*shape: int) -> np.ndarray:
        logits = generator.normal(size=shape) * scale
        return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)

    factors = (shares(num, rank), shares(rank, num + tags), shares(rank, num + tags))
    return ProductRules(root=shares(num + tags), words=shares(tags, 3), **dict(zip(FACTORS, factors, strict=True)))


@pytest.mark.parametrize("scale", [1, 10, 60])
def test_mass_of_finite_trees_keeps_its_digits_where_rules_are_nearly_certain(scale: float) -> None:
    for seed in range(40):
        rules = sharp(seed, scale)
        np.testing.assert_allclose(rules.mass(), exact_mass(rules), rtol=1e-13, err_msg=str(seed))
        conditioned, _ = rules.consistent()
        np.testing.assert_allclose(conditioned.mass(), 1, rtol=1e-12, err_msg=str(seed))
        assert read_tokens([conditioned], [0, 1])[1].next_words().sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("is_table", [False, True])
def test_symbols_without_finite_trees_are_in_none_and_a_grammar_of_them_alone_is_refused(is_table: bool) -> None:
    unit = np.eye(4)  # two nonterminals, the second of which is its own first child, and two tags
    left, right = np.stack([(unit[1] + unit[2]) / 2, unit[1]]), np.stack([unit[3], unit[3]])
    root, words = np.array([0.5, 0.5, 0, 0]), np.full((2, 3), 1 / 3)
    rules = ProductRules(root=root, words=words, of_head=np.eye(2), of_left=left, of_right=right)
    if is_table:
        rules = TableRules.of(root, np.einsum("ab,ac->abc", left, right), words)
    np.testing.assert_array_equal(rules.mass(), [0.5, 0, 1, 1])
    conditioned, log_mass = rules.consistent()
    assert log_mass == pytest.approx(np.log(0.25))
    np.testing.assert_array_equal(conditioned.mass(), 1)
    found, prefix = read_tokens([conditioned], [0, 1])
    np.testing.assert_allclose(np.exp(found), [1 / 3, 1 / 3, 1], atol=1e-8)  # two words, and then the end
    assert prefix.next_words().sum() == pytest.approx(1, abs=1e-12)
    with pytest.raises(InputError, match="no tree of the grammar is finite"):
        replace(rules, root=unit[1]).consistent()


every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_constituents_are_the_derivative_of_the_plain_form(kind: str) -> None:
    rules, _ = drawn(kind).consistent()
    assert_constituents_are_the_derivative(rules, SENTENCES)


@every_kind
def test_loose_rules_are_conditioned_and_trees_keep_their_shares(kind: str) -> None:
    loose = drawn(kind, seed=3, lean=-1.5)
    conditioned, log_mass = loose.consistent()
    assert log_mass < -0.1
    np.testing.assert_allclose(conditioned.mass(), 1, atol=1e-10)
    before, after = written_out(loose), written_out(conditioned)
    for words in SENTENCES:
        change = before.probability(words).log() - after.probability(words).log()
        assert change.item() == pytest.approx(log_mass, abs=1e-10)
