"""Runs that older versions wrote: they load, and say what they said then."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import treelm
from tests.legacy.make import EXPECTED, HERE, KEPT, RESUMABLE, describe
from treelm.configs import to_plain
from treelm.errors import InputError
from treelm.models.persistence.storage import CONFIG, FORMAT_VERSION, describe_model
from treelm.training.config import TrainingConfig
from treelm.training.metrics import FILE_NAME as METRICS
from treelm.training.run_folder import check_same_run, load_run_recipe
from treelm.training.trainer import train

TOLERANCE = 1e-5  # nats
MOST_BYTES = 1 << 20


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of a run that may be changed."""
    return Path(shutil.copytree(HERE / "rnng", tmp_path / "run"))


def change_config(run: Path, **changes: Any) -> None:
    path = run / CONFIG
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("name", KEPT)
def test_an_old_run_gives_its_old_scores_and_trees(name: str) -> None:
    expected = json.loads((HERE / name / EXPECTED).read_text(encoding="utf-8"))
    found = describe(HERE / name)
    assert found.keys() == expected.keys()
    assert found.get("trees") == expected.get("trees")
    for now, then in zip(found.get("log_probs", []), expected.get("log_probs", []), strict=True):
        assert now == pytest.approx(then, abs=TOLERANCE)


@pytest.mark.parametrize("name", KEPT)
def test_the_recipe_of_an_old_run_is_read(name: str) -> None:
    recipe = load_run_recipe(HERE / name)
    assert recipe.model.system == json.loads((HERE / name / CONFIG).read_text())["system"]


@pytest.mark.parametrize("name", RESUMABLE)
def test_an_old_run_is_resumed(name: str, tmp_path: Path) -> None:
    run = Path(shutil.copytree(HERE / name, tmp_path / "run"))
    before = (run / METRICS).read_text().splitlines()
    train(resume=run, quiet=True, training={"max_steps": 21})
    after = (run / METRICS).read_text().splitlines()
    assert after[: len(before)] == before
    assert json.loads(after[-1])["step"] == 21
    newest = json.loads((max((run / "checkpoints").iterdir()) / "state.json").read_text())
    assert newest["model"]["data_identity"].keys() == {"train", "dev"}  # from now on they are noted


def test_old_runs_are_small_and_name_no_place() -> None:
    assert len(KEPT) >= 24, "an old run was lost"
    files = [path for name in KEPT for path in (HERE / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        if path.suffix in (".json", ".toml", ".jsonl"):
            assert str(Path.home()) not in path.read_text(encoding="utf-8")
            assert "/work" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, "2", None, 1.5, True])
def test_a_newer_format_is_refused_in_one_line(run: Path, version: Any) -> None:
    change_config(run, format_version=version, treelm="9.9.9")
    with pytest.raises(InputError, match=r"format_version = .*this treelm .* reads") as raised:
        treelm.load(run)
    assert "\n" not in str(raised.value)
    assert "9.9.9" in str(raised.value)


def test_weights_without_a_hash_of_their_config_are_read(run: Path) -> None:
    """As the first runs had them: these folders are such runs, and stay so."""
    change_config(run, treelm="0.0.1")
    treelm.load(run)


@pytest.mark.parametrize("name", ["palm", "transformer-grammar"])
def test_a_run_with_fields_that_are_no_more_goes_on_if_they_had_the_value_that_is_left(name: str) -> None:
    model = treelm.load(HERE / name)
    config = {**to_plain(model.config), **type(model.config).retired}
    saved, recipe = {"model": {**describe_model(model), "config": config}, "training": {}}, load_run_recipe(HERE / name)
    recipe = replace(recipe, training=TrainingConfig())
    check_same_run(saved, model, recipe, HERE / name, where="state.json")
    for field in type(model.config).retired:
        other = {**saved, "model": {**describe_model(model), "config": {**config, field: "other"}}}
        with pytest.raises(InputError, match=f"{field} = None now, but the run was started with 'other'"):
            check_same_run(other, model, recipe, HERE / name, where="state.json")
