"""From a recipe to a run folder, with a real system."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
import torch

from tests.training.fitting import fit
from tests.training.treebanks import DATA, STREAM, write_treebank
from treelm.corpora.data_config import prepared_split
from treelm.errors import InputError
from treelm.models.persistence.storage import load_model, read_data_identity
from treelm.training.prepare import set_up
from treelm.training.recipe import Recipe, load_recipe, read_settings, save_recipe
from treelm.training.run_folder import load_run_recipe
from treelm.training.trainer import train

TRANSFORMER = f"""{DATA}
[model]
system = "transformer"
size = 8
num_layers = 1
num_heads = 2
max_distance = 8
memory_length = 4
{STREAM}"""


def transformer_recipe(folder: Path, *settings: str) -> Recipe:
    path = write_treebank(folder)
    path.write_text(TRANSFORMER)
    return load_recipe(path, settings)


def test_a_run_folder_holds_model_recipe_metrics_and_checkpoints(tmp_path: Path) -> None:
    recipe = load_recipe(write_treebank(tmp_path))
    train(recipe, tmp_path / "run", quiet=True)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    files = {"config.json", "model.safetensors", "vocabulary.json", "recipe.toml", "metrics.jsonl", "checkpoints"}
    assert names == files
    assert not any(path.suffix in {".pt", ".pkl", ".bin"} for path in tmp_path.rglob("*"))


def depth(brackets: str) -> int:
    return max(accumulate({"(": 1, ")": -1}.get(character, 0) for character in brackets))


def test_the_recipe_of_a_run_names_the_bounds_that_the_data_gave(tmp_path: Path) -> None:
    recipe = load_recipe(write_treebank(tmp_path))
    model = train(recipe, tmp_path / "run", quiet=True)
    config = load_run_recipe(tmp_path / "run").model.config
    assert config == model.config
    assert config.max_open == depth((tmp_path / "train.ptb").read_text()) - 1 + 2  # without tags, with the margin


def test_two_runs_of_a_recipe_are_equal_and_another_seed_is_not(tmp_path: Path) -> None:
    path = write_treebank(tmp_path)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        settings = [f"training.seed={seed}", "training.epochs=1"]
        train(load_recipe(path, settings), tmp_path / name, quiet=True)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize("precision", ["fp32-fast", "bf16"])
def test_lower_precision_trains_too(tmp_path: Path, precision: str) -> None:
    source, losses, weights = write_treebank(tmp_path), {}, {}
    for one in ("fp32", precision):
        recipe = load_recipe(source, [f"training.precision={one}", "training.max_steps=3"])
        weights[one] = train(recipe, tmp_path / one, quiet=True).state_dict()
        lines = [json.loads(line) for line in (tmp_path / one / "metrics.jsonl").read_text().splitlines()]
        losses[one] = next(line["loss_nats_per_word"] for line in lines if line["kind"] == "dev")
    assert all(tensor.dtype == torch.float32 for tensor in weights[precision].values())
    assert losses[precision] == pytest.approx(losses["fp32"], rel=0.02)
    if precision == "bf16":
        assert any(not torch.equal(tensor, weights["fp32"][name]) for name, tensor in weights[precision].items())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_with_a_model_that_no_recipe_made_is_not_overwritten(tmp_path: Path) -> None:
    recipe = load_recipe(write_treebank(tmp_path), ["training.epochs=1"])
    train(recipe, tmp_path / "first", quiet=True).save_pretrained(tmp_path / "saved")
    before = contents(tmp_path / "saved")
    with pytest.raises(InputError, match="already holds a model; give another run folder"):
        train(recipe, tmp_path / "saved", quiet=True)
    assert contents(tmp_path / "saved") == before


def replace_in(path: Path, old: str, new: str) -> None:
    """Change the first occurrence; size and time of the file stay."""
    text, status = path.read_text(), path.stat()
    assert old in text
    assert len(old) == len(new)
    path.write_text(text.replace(old, new, 1))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES = {
    "a word of train": ("train", "(X bird)", "(X fish)"),
    "a tree of train, with as many actions": ("train", "bird)) (VP (X likes) (NP", "bird) (VP (X likes)) (NP"),
}


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Data, and a run of one step on them."""
    train(load_recipe(write_treebank(tmp_path), ["training.max_steps=1"]), tmp_path / "run", quiet=True)
    return tmp_path


def go_on(folder: Path) -> None:
    """One more step."""
    train(resume=folder / "run", quiet=True, training={"max_steps": 2})


@pytest.mark.parametrize("change", CHANGES)
def test_data_that_changed_are_named_on_resume(begun: Path, change: str) -> None:
    split, old, new = CHANGES[change]
    path, before = begun / f"{split}.ptb", contents(begun / "run")
    text = path.read_text()
    replace_in(path, old, new)
    with pytest.raises(InputError, match=rf"/{split}\.ptb: the {split} data are not those that this run was begun"):
        go_on(begun)
    assert contents(begun / "run") == before
    path.write_text(text)
    go_on(begun)


def test_another_dev_file_is_refused_on_resume_and_the_same_one_elsewhere_is_not(begun: Path) -> None:
    recipe, other = begun / "run" / "recipe.toml", begun / "other.ptb"
    recipe.write_text(recipe.read_text().replace("dev.ptb", "other.ptb"))
    other.write_text((begun / "train.ptb").read_text())
    with pytest.raises(InputError, match=r"other\.ptb: the dev data are not those"):
        go_on(begun)
    (begun / "dev.ptb").rename(other)
    go_on(begun)


def test_what_data_a_model_saw_is_in_its_config_and_stays_with_it(begun: Path) -> None:
    expected = {name: prepared_split(load_run_recipe(begun / "run").data, name).identity for name in ("train", "dev")}
    assert json.loads((begun / "run" / "config.json").read_text())["data_identity"] == expected
    load_model(begun / "run").save_pretrained(begun / "saved")
    assert load_model(begun / "saved").data_identity == expected == read_data_identity(begun / "saved")


def test_vocabulary_of_another_run_is_refused_on_resume(begun: Path) -> None:
    train(load_recipe(begun / "my.toml", ["vocabulary.max_size=5"]), begun / "other", quiet=True)
    shutil.copyfile(begun / "other" / "vocabulary.json", begun / "run" / "vocabulary.json")
    with pytest.raises(InputError, match=r"run/vocabulary\.json: not the vocabulary that this run was begun with"):
        go_on(begun)


@pytest.mark.parametrize(
    ("system", "settings", "kept"),
    [
        ("rnng", {"bounds_margin": 2, "hidden_size": 8, "embedding_size": 8}, 8),
        ("transformer-grammar", {"bounds_margin": 2, "size": 8, "num_heads": 2}, 8),
        ("pushdown", {"bounds_margin": 0, "size": 8, "num_heads": 2}, 9),
        ("chart", {"hidden_size": 8, "span_size": 8}, 9),
        ("lstm", {"hidden_size": 8, "embedding_size": 8}, 10),
    ],
)
def test_dev_trees_that_a_model_cannot_build_are_left_out_of_its_loss_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, system: str, settings: dict[str, int], kept: int
) -> None:
    path = write_treebank(tmp_path)
    with (tmp_path / "dev.ptb").open("a") as file:
        file.write("(S (QP (X two)))\n" + "(NP " * 30 + "(X dog) (X cat)" * 20 + ")" * 30 + "\n")
    lines = [f"{name} = {value}" for name, value in settings.items()]
    path.write_text("\n".join([DATA, "[model]", f'system = "{system}"', *lines]))
    setup = set_up(load_recipe(path))
    assert setup.dev is not None
    assert sum(len(batch) for batch in setup.dev) == kept
    assert setup.encoded.labels[: len(setup.model.labels)] == setup.model.labels  # numbers of labels are the model's
    assert (f"the dev loss is without {10 - kept} of 10 sentences" in caplog.text) == (kept < 10)


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("vocabulary.min_count=2", "vocabulary: min_count = 2 now"),
        ("batches.scheme=sample-in-groups", "batches: scheme = 'sample-in-groups' now"),
    ],
)
def test_other_data_vocabulary_or_batches_are_refused_on_resume(tmp_path: Path, override: str, found: str) -> None:
    path = write_treebank(tmp_path)
    train(load_recipe(path, ["training.max_steps=2"]), tmp_path / "run", quiet=True)
    with pytest.raises(InputError, match=rf"recipe\.toml: {found}, but the run was started with"):
        train(resume=tmp_path / "run", quiet=True, **read_settings((override,)))


CONSTANT = ("data.dev=none", "training.schedule=constant")


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (("data.dev=none",), 'schedule = "plateau" without dev data'),
        ((*CONSTANT, "training.optimizer=nt-asgd"), 'optimizer = "nt-asgd" without dev data'),
        ((*CONSTANT, "training.stop_after=2"), "stop_after without dev data"),
        ((*CONSTANT, "training.select_by=unlabeled_f1"), 'select_by = "unlabeled_f1" without dev data'),
        (("training.cuda_graphs=true", "training.device=cpu"), "cuda_graphs = true without a GPU"),
        (("data.train=plain.txt",), r"plain\.txt:1: a sentence without a tree"),
        (("model.system=prpn", "search.method=released"), "prpn scores without a search"),
        (("search.method=released", "search.action_beam=1"), "action_beam of at least 2"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_there_is_a_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], found: str
) -> None:
    """So that the same folder can be given once the recipe is right."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.txt").write_text("no trees here\n")
    with pytest.raises(InputError, match=found):
        train(load_recipe(write_treebank(tmp_path), settings), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("batches", ["sentences", "packed"])
def test_a_memory_that_no_machine_has_is_named_before_a_run_begins(tmp_path: Path, batches: str) -> None:
    fixed = () if batches == "stream" else ("training.bptt_random_length=false", "training.dev_rows=4")
    settings = ("model.memory_length=1000000000000", f"training.batches={batches}", *fixed)
    recipe = transformer_recipe(tmp_path, *settings)
    with pytest.raises(InputError, match=r"\[model\]: memory_length = 1000000000000, which takes"):
        train(recipe, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_to_be_read_as_its_config_says(tmp_path: Path) -> None:
    """Training that goes on saves its model anew, and must not undo what somebody wrote there."""
    recipe = transformer_recipe(tmp_path, "training.epochs=1")
    train(recipe, tmp_path / "run", quiet=True)
    path = tmp_path / "run" / "config.json"
    reading = {"memory_length": 2, "sink_tokens": 1}
    path.write_text(json.dumps({**json.loads(path.read_text()), "reading": reading}))
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    longer = replace(recipe, training=replace(recipe.training, epochs=4))
    train(longer, tmp_path / "run", resume_if_present=True, quiet=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() != before
    assert json.loads(path.read_text())["reading"] == reading
    assert load_model(tmp_path / "run").config.sink_tokens == 1  # type: ignore[attr-defined]
    path.write_text('{"damaged')  # as before, training writes it anew
    train(resume=tmp_path / "run", quiet=True, training={"epochs": 8})
    assert load_model(tmp_path / "run").config == recipe.model.config


def test_a_run_without_a_model_yet_is_not_overwritten_by_a_system_that_is_estimated(tmp_path: Path) -> None:
    recipe = load_recipe(write_treebank(tmp_path))
    setup = set_up(recipe)
    steps = fit(setup.model, setup.batches, setup.dev, recipe.training, tmp_path / "run")
    next(steps)
    steps.close()
    save_recipe(setup.recipe, tmp_path / "run" / "recipe.toml")
    before = contents(tmp_path / "run")
    assert "model.safetensors" not in before
    with pytest.raises(InputError, match="already holds a run"):
        train(load_recipe("ngram-demo", ["data.max_sentences=50"]), tmp_path / "run", quiet=True)
    assert contents(tmp_path / "run") == before


def test_a_run_whose_checkpoints_are_gone_is_not_begun_anew_by_resuming_it(tmp_path: Path) -> None:
    train(load_recipe(write_treebank(tmp_path), ["training.epochs=1"]), tmp_path / "run", quiet=True)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    before = contents(tmp_path / "run")
    with pytest.raises(InputError, match=r"a model, but no checkpoints to resume from; .*training\.start_from=.*run"):
        train(resume=tmp_path / "run", quiet=True)
    assert contents(tmp_path / "run") == before
