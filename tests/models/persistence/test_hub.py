from pathlib import Path

import pytest
import torch

from tests.training.toys import toy_model
from treelm.errors import InputError
from treelm.models import SYSTEMS
from treelm.models.base import LanguageModel
from treelm.training.run_folder import lock_folder


def test_saved_and_loaded_from_a_folder_it_is_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")
    model = toy_model()
    model.save_pretrained(tmp_path / "model")
    loaded = LanguageModel.from_pretrained(str(tmp_path / "model"))
    assert type(loaded) is type(model)
    for one, other in zip(model.state_dict().values(), loaded.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("mark", ["recipe.toml", "checkpoints"])
def test_a_training_run_is_not_saved_over(tmp_path: Path, mark: str) -> None:
    (tmp_path / "config.json").write_text("of the run")
    (tmp_path / mark).mkdir()
    with pytest.raises(InputError, match="this folder holds a training run; give another folder"):
        toy_model().save_pretrained(tmp_path)
    assert (tmp_path / "config.json").read_text() == "of the run"


def test_two_do_not_save_in_one_folder_at_a_time(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(InputError, match="another process writes in this folder"):
        toy_model().save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_of_the_hub_only_the_files_of_a_model_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_model().save_pretrained(tmp_path / "model")
    asked = {}

    def download(name: str, **options: object) -> str:
        asked.update(options, name=name)
        return str(tmp_path / "model")

    monkeypatch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    LanguageModel.from_pretrained("someone/model", revision="v1")
    assert (asked["name"], asked["revision"]) == ("someone/model", "v1")
    assert sorted(asked["allow_patterns"]) == ["config.json", "model.safetensors", "vocabulary.json"]
