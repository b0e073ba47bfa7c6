"""The question why the printed PRPN does not parse: both variants, and each difference between them from both ends."""

import pytest

from treelm.models.prpn.config import VARIANTS
from treelm.papers.data import DataRoot, data_sets
from treelm.papers.declaration import Row, load_table, paper_folder, recipe_of
from treelm.training.recipe import load_recipe

FOLDER = paper_folder("questions")
FORMS = load_table(FOLDER / "table1.toml", DataRoot(None, data_sets(FOLDER)).sets)
ROWS = {row.name: row for row in FORMS.rows if row.recipe}
NAMES = {"released": "released", "printed": "paper"}


def differences(row: Row) -> frozenset[str]:
    """Fields in which a row is not the variant that it is named by, whatever the stand-in."""
    variant = VARIANTS[NAMES[row.name.split()[0]]]
    found = set()
    for stand_in in (None, *FORMS.stand_ins):
        config = load_recipe(*recipe_of(FORMS, row, stand_in)).model.config
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
            config = load_recipe(*recipe_of(FORMS, row, None)).model.config
            assert getattr(config, field) == others[field]
