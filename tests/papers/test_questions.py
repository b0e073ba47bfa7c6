"""Questions: both variants of PRPN, each difference between them from both ends, and rows whose seeds are paired."""

from typing import Any

import pytest
import torch

from tests.models.rnng.worlds import Tokens
from treelm.models import system_class
from treelm.models.prpn.config import VARIANTS
from treelm.papers.data import data_sets, paper_file
from treelm.papers.declaration import Row, Table, load_paper
from treelm.training.recipe import load_recipe

TABLES = {table.name: table for table in load_paper(paper_file("questions"), data_sets())}
FORMS = TABLES["Table 1"]
ROWS = {row.name: row for row in FORMS.rows if row.train}
NAMES = {"released": "released", "printed": "paper"}

NOT_ALIKE = {
    *("printed", "released with next distance from h_t", "printed with next distance from embeddings"),
    "PaLM-RB",
}


def differences(row: Row) -> frozenset[str]:
    """Fields in which a row is not the variant that it is named by, whatever the stand-in."""
    variant = VARIANTS[NAMES[row.name.split()[0]]]
    found = set()
    for stand_in in (None, *FORMS.stand_ins):
        config = load_recipe(*FORMS.train(row, stand_in)).model.config
        found.add(frozenset(name for name, value in variant.items() if getattr(config, name) != value))
    (same,) = found
    return same


@pytest.mark.parametrize("name", ROWS)
def test_a_form_is_at_most_one_difference_from_a_variant(name: str) -> None:
    assert len(differences(ROWS[name])) == (name not in NAMES)


@pytest.mark.parametrize(("own", "other"), [("released", "printed"), ("printed", "released")])
def test_every_difference_is_tried_from_both_ends(own: str, other: str) -> None:
    tried = [differences(row) for name, row in ROWS.items() if name.startswith(f"{own} ")]
    own_values, others = VARIANTS[NAMES[own]], VARIANTS[NAMES[other]]
    assert {name for one in tried for name in one} >= {name for name in others if own_values[name] != others[name]}
    for name, row in ROWS.items():
        for field in differences(row) if name.startswith(f"{own} ") and "layer" not in name else ():
            config = load_recipe(*FORMS.train(row)).model.config
            assert getattr(config, field) == others[field]


def drawn(table: Table, row: Row) -> dict[str, torch.Tensor]:
    """Weights of a row's network in the first stand-in before training, with one seed."""
    recipe = load_recipe(*table.train(row, table.stand_ins[0]))
    network: Any = system_class(recipe.model.system)
    torch.manual_seed(1)
    return dict(network(recipe.model.config, vocabulary=Tokens(50), labels=["X"]).state_dict())


@pytest.mark.parametrize("name", ["Table 1", "Table 2"])
def test_pairs_begin_with_the_same_weights(name: str) -> None:
    """All but those of another source of the next distance, and of PaLM-RB, which has no scorer of spans."""
    table = TABLES[name]
    rows = {row.name: row for row in table.rows}
    paired = {row.name: table.reference(row) for row in table.rows if table.reference(row)}
    assert len(paired) == len([row for row in table.rows if row.train]) - 1
    for row, other in paired.items():
        own, others = drawn(table, rows[row]), drawn(table, rows[other])
        alike = [torch.equal(own[weight], others[weight]) for weight in own if weight in others]
        assert torch.equal(own["embedding"], others["embedding"])
        assert all(alike) == (row not in NOT_ALIKE), row
