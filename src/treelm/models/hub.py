"""``save_pretrained``, ``from_pretrained`` and ``push_to_hub``, as users of Hugging Face models know them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from huggingface_hub import ModelHubMixin, snapshot_download

from treelm.errors import InputError
from treelm.models.locks import hold_folder

_ELSEWHERE = "give another folder"


class Pretrained(ModelHubMixin, library_name="treelm", tags=["language-model", "syntax", "parsing", "surprisal"]):
    """A model that is saved as a folder, the same as a run folder holds, and loaded from a folder or from the hub.

    ``SyntacticLM.from_pretrained("runs/demo")`` reads a folder if there is one, else the model of that name
    in the package if there is one; otherwise the name is that of a repository on the hub.
    """

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """The model of a folder, of the package, or of the hub; ``options`` are those of the hub's downloads."""
        from treelm.models.shipped import find_run, shipped_names

        name = pretrained_model_name_or_path
        folder_or_name = find_run(name) if str(name) in shipped_names() else name
        return super().from_pretrained(folder_or_name, **options)

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write the model as a folder; ``options`` are those of the hub.

        Raises ``InputError`` for a folder of a training run, whose checkpoints would not be this model's, and while
        another process writes there.
        """
        from treelm.models.storage import MARKS_OF_TRAINING

        folder = Path(save_directory)
        with hold_folder(folder, found="another process writes in this folder", remedy=_ELSEWHERE):
            if any((folder / name).exists() for name in MARKS_OF_TRAINING):
                raise InputError("this folder holds a training run", where=str(folder), remedy=_ELSEWHERE)
            return super().save_pretrained(folder, **options)

    def _save_pretrained(self, save_directory: Path) -> None:
        from treelm.models.base import SyntacticLM
        from treelm.models.storage import save_model

        assert isinstance(self, SyntacticLM)
        save_model(self, save_directory)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **_: Any,
    ) -> Any:
        from treelm.models.storage import CONFIG, VOCABULARY, WEIGHTS, load_model

        if Path(model_id).is_dir():
            return load_model(model_id)
        folder = snapshot_download(
            model_id,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
            allow_patterns=[CONFIG, VOCABULARY, WEIGHTS],
        )
        return load_model(folder)
