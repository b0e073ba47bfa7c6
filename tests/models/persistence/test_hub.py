from pathlib import Path

import pytest

from tests.training.toys import toy_model
from treelm.errors import InputError
from treelm.models import SYSTEMS
from treelm.models.base import LanguageModel


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


@pytest.mark.parametrize("mark", ["recipe.toml", "checkpoints"])
def test_a_training_run_is_not_saved_over(tmp_path: Path, mark: str) -> None:
    (tmp_path / "config.json").write_text("of the run")
    (tmp_path / mark).mkdir()
    with pytest.raises(InputError, match="this folder holds a training run; give another folder"):
        toy_model().save_pretrained(tmp_path)
    assert (tmp_path / "config.json").read_text() == "of the run"
