"""``treelm structure`` on tiny runs."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Treelm
from tests.legacy.make import HERE
from treelm.models.persistence.storage import load_model, save_model

TREES = """\
(S (NP (D The) (N city)) (VP (V was) (ADJP (J old) (CC and) (J big))) (. .))
(S (NP (PRP I)) (VP (V think)) (. .))
"""


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    path = tmp_path / "in.ptb"
    path.write_text(TREES)
    return path


def test_runs_of_one_system_are_seeds_of_it(treelm: Treelm, treebank: Path, tmp_path: Path) -> None:
    runs = (HERE / "prpn", HERE / "palm", shutil.copytree(HERE / "prpn", tmp_path / "prpn"))
    refused = treelm("structure", *runs, "--data", treebank)
    assert (refused.code, "is the same model as" in refused.err) == (2, True)
    seed = load_model(runs[2])
    with torch.no_grad():
        next(seed.parameters()).mul_(1 + 1e-6)  # another model with the same trees
    save_model(seed, runs[2])
    outcome = treelm("structure", *runs, "--data", treebank, "--protocol", "wsj10", "--draws", 2, "--json")
    assert outcome.code == 0, outcome.err
    (result,) = json.loads(outcome.out)
    assert (result["protocol"], result["num_sentences"], result["labels"]) == (
        "wsj10",
        2,
        {"VP": 1, "NP": 1, "ADJP": 1},
    )
    rows = {row["name"]: row for row in result["rows"]}
    several = {name for name, row in rows.items() if row["num_seeds"] == 2}
    assert {name for name in several if not name.startswith("random")} == {
        "prpn, biased builder",
        "prpn, unbiased builder",
    }
    assert {"random", "random distances, biased builder"} <= several
    assert rows["prpn, biased builder"]["agreement"]["mean"] == 100.0  # with its copy
    assert rows["palm"]["height_correlation"] is None
