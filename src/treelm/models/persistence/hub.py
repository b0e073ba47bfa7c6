"""Models of the Hugging Face hub, and of folders that transformers wrote: ``hf:NAME_OR_FOLDER`` names one."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from treelm.errors import InputError, import_extra
from treelm.io.files import require_regular
from treelm.io.json import read_json

PREFIX = "hf:"
CONFIG = "config.json"
EXPORTED = "treelm"
"""The ``model_type`` of the folders that ``treelm export`` writes for transformers (``treelm.hf``)."""
HUB_FOLDER = "give a folder that transformers saved: config.json, weights in safetensors, and its tokenizer"
"""What to do about a folder that is not a model."""
_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.tiktoken"]
"""The files that a model may need. Whatever else its repository has, above all code, is not downloaded."""
_SETTINGS = ("config.json", "tokenizer_config.json", "special_tokens_map.json", "model.safetensors.index.json")
"""Files of settings, of which ``_plain`` keeps what is data. Other files of settings, above all those of adapters, are
not used."""
_OTHER_SETTINGS = re.compile(r".*(config|template).*\.json")
_TOKENS = re.compile(r"\w+_(tokens?|tokens_decoder)")
"""Keys whose strings are tokens, which may be any text."""
_ELSEWHERE = re.compile(r"auto_map|custom|adapter|backbone|implementation|template|kernel|name_or|path|file|repo|url")
"""Parts of keys whose strings name code, a repository or another file."""
_NOT_A_NAME = re.compile(r"[/\\:@]")  # a repository, a function of one, a path
_TOKENIZER = re.compile(r"\w*(Token|Backend)\w*")
_QUANTIZED = ("quantization_config", "compression_config")


def hub_folder(name: str) -> Path:
    """The folder of a model, by its path or by its name on the hub (``gpt2``, ``gpt2@REVISION``).

    A model in the cache of the hub is used as it is; any other is downloaded there. Raises ``InputError`` for what is
    neither a folder nor a name, for a model that cannot be downloaded, and for a folder without a model.
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


@contextmanager
def plain_copy(folder: Path) -> Iterator[Path]:
    """Yield a copy of a model's folder, to read it from, in which no setting names code or a repository.

    It lacks whatever transformers would import or download because of a setting, such as ``auto_map``, the
    ``base_model_name_or_path`` of an adapter, or ``_attn_implementation = "owner/repository:function"``. Weights and
    vocabularies are links. The copy is removed at the end. Raises ``InputError`` for quantised weights, which need code
    outside transformers.
    """
    with tempfile.TemporaryDirectory(prefix="treelm-") as name:
        for file in sorted({file for pattern in _FILES for file in folder.glob(pattern)}):
            copy = Path(name) / file.name
            require_regular(file, remedy=HUB_FOLDER)
            if file.name in _SETTINGS:
                settings = read_json(file, remedy=HUB_FOLDER)
                if quantized := next(filter(settings.get, _QUANTIZED), None):
                    remedy = "take the model as it was before it was quantised"
                    raise InputError(f"quantised weights ({quantized})", where=str(file), remedy=remedy)
                copy.write_text(json.dumps(_plain(settings)), encoding="utf-8")
            elif not _OTHER_SETTINGS.fullmatch(file.name):
                try:
                    copy.symlink_to(file.resolve())
                except OSError:  # on a system that lets only administrators make links
                    shutil.copyfile(file, copy)
        yield Path(name)


def _plain(settings: Any, are_tokens: bool = False) -> Any:
    """Settings, at any depth, without what could name code, a repository or a file.

    Numbers, tokens and plain names stay.

    >>> _plain({"act": "gelu", "eos_token": "</s>", "auto_map": {"AutoModel": "code.Model"}, "x": "a/b:c"})
    {'act': 'gelu', 'eos_token': '</s>'}
    """
    if isinstance(settings, list):
        return [_plain(value, are_tokens) for value in settings if are_tokens or _is_plain("", value)]
    if not isinstance(settings, dict):
        return settings
    keys = {key: are_tokens or _TOKENS.fullmatch(key) is not None for key in settings}
    return {key: _plain(settings[key], free) for key, free in keys.items() if free or _is_plain(key, settings[key])}


def _is_plain(key: str, value: Any) -> bool:
    """Tell whether a setting is kept. transformers' private settings are not."""
    if key.startswith("_"):
        return False
    if key == "tokenizer_class":
        return isinstance(value, str) and _TOKENIZER.fullmatch(value) is not None
    if not isinstance(value, str | list | dict):
        return True
    return not _ELSEWHERE.search(key) and not (isinstance(value, str) and _NOT_A_NAME.search(value))


def name_parts(folder: Path) -> tuple[str, ...]:
    """The parts of the path of a folder, from which it is named.

    A copy in the cache of the hub has its name on the hub there.

    >>> name_parts(Path("/cache/models--openai-community--gpt2/snapshots/607a30d"))
    ('/', 'cache', 'openai-community', 'gpt2')
    """
    parts = folder.resolve().parts
    if len(parts) > 3 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
        return (*parts[:-3], *parts[-3].removeprefix("models--").split("--"))
    return parts


def save_parts(network: Any, tokenizer: Any, folder: Path) -> None:
    """Write a network and its tokenizer as transformers does."""
    with quiet():
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the messages and progress bars of transformers off standard error."""
    os.environ.setdefault("USE_HUB_KERNELS", "0")  # kernels of the hub are code that some models would download
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # its errors print whole configs
    bars = import_extra("transformers.utils.logging", "hf")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()
        logger.setLevel(level)
