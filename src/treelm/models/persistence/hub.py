"""Models of the Hugging Face hub and of folders that transformers wrote: ``hf:NAME_OR_FOLDER`` stands for one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from treelm.errors import InputError

PREFIX = "hf:"
CONFIG = "config.json"
EXPORTED = "treelm"
"""The ``model_type`` of what ``treelm export`` writes for transformers (``treelm.hf``)."""
HUB_FOLDER = "give a folder that transformers saved: config.json, weights in safetensors, and its tokenizer"
"""What to do about a folder that is not a model."""
_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.tiktoken"]
"""Files that a model may need; whatever else its repository has, code above all, is left there."""


def hub_folder(name: str) -> Path:
    """The folder of a model by its path, or by its name on the hub (``gpt2``, ``gpt2@REVISION``).

    What the cache of the hub has is taken as it is; else it is downloaded there. Raises ``InputError`` for a name that
    is none, or that cannot be downloaded, and for a folder without a model.
    """
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        if not (folder / CONFIG).exists():
            raise InputError(f"no {CONFIG} in this folder", where=f"{PREFIX}{name}", remedy=HUB_FOLDER)
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    where = f"{PREFIX}{name}"
    remedy = "give the folder of a model, or its name on the Hugging Face hub, such as hf:gpt2"
    repository, _, revision = name.partition("@")
    options: dict[str, Any] = {"revision": revision or None, "allow_patterns": _FILES, "ignore_patterns": ["*/*"]}
    for is_local in (True, False):
        try:
            found = Path(snapshot_download(repository, local_files_only=is_local, **options))
        except HFValidationError:
            raise InputError("not a folder, and not a name on the hub", where=where, remedy=remedy) from None
        except (HfHubHTTPError, OSError) as error:
            if is_local:
                continue
            reason = str(error).partition("\n")[0]
            problem = f"not a folder, not in the cache of the hub, and it cannot be downloaded ({reason})"
            remedy = f"{remedy}, and download it where there is a network: hf download NAME"
            raise InputError(problem, where=where, remedy=remedy) from None
        if (found / CONFIG).exists() and any(found.glob("*.safetensors")):  # other programs may have asked for less
            return found
    problem = "no weights in safetensors among the files of the hub, or of its cache"
    raise InputError(problem, where=where, remedy=f"{remedy}; where there is a network, an old copy is made whole")


def name_parts(folder: Path) -> tuple[str, ...]:
    """The parts of a folder's path, from which it is named; a copy in the cache of the hub has its name there.

    >>> name_parts(Path("/cache/models--openai-community--gpt2/snapshots/607a30d"))
    ('/', 'cache', 'openai-community', 'gpt2')
    """
    parts = folder.resolve().parts
    if len(parts) > 3 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
        return (*parts[:-3], *parts[-3].removeprefix("models--").split("--"))
    return parts


def save_parts(network: Any, tokenizer: Any, folder: Path) -> None:
    """Write both as transformers does."""
    with quiet():
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' notes and bars off standard error."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    from transformers.utils import logging as bars

    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()
        logger.setLevel(level)
