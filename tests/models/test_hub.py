from pathlib import Path

import pytest
import torch

from tests.training.toys import toy_model
from treelm.models import SYSTEMS
from treelm.models.base import SyntacticLM


def test_saved_and_loaded_from_a_folder_it_is_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")
    model = toy_model()
    model.save_pretrained(tmp_path / "model")
    loaded = SyntacticLM.from_pretrained(str(tmp_path / "model"))
    assert type(loaded) is type(model)
    for one, other in zip(model.state_dict().values(), loaded.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_what_is_saved_names_the_library_for_the_hub(tmp_path: Path) -> None:
    toy_model().save_pretrained(tmp_path)
    assert "library_name: treelm" in (tmp_path / "README.md").read_text()
