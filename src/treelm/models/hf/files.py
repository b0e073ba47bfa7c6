"""Folders of transformers, read and written by that library: no code of theirs runs, and nothing is pickled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from treelm.errors import InputError, OutOfMemory, is_out_of_memory
from treelm.io.json import read_json
from treelm.models.persistence.hub import CONFIG, EXPORTED, HUB_FOLDER, hub_name, quiet

_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
"""Fields of configs that bound the places of tokens."""


def load_parts(folder: Path) -> tuple[Any, Any, dict[str, Any]]:
    """Network in float32, tokenizer, and the fields of ``CausalConfig``.

    Raises ``InputError`` for what transformers does not read, for weights that are missing, and for an export of ours.
    """
    if read_json(folder / CONFIG, remedy=HUB_FOLDER).get("model_type") == EXPORTED:
        found = "what `treelm export` wrote for transformers"
        raise InputError(found, where=str(folder), remedy="give the run that was exported")
    with _told(folder), quiet():
        from transformers import AutoModelForCausalLM, AutoTokenizer

        safe = {"local_files_only": True, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(folder, **safe)
        network, found = AutoModelForCausalLM.from_pretrained(
            folder, use_safetensors=True, output_loading_info=True, **safe
        )
    missing = sorted(found["missing_keys"])
    if missing or network.get_output_embeddings() is None:
        what = f"weights without {missing[0]} and {len(missing) - 1} more" if missing else "a network without a softmax"
        raise InputError(what, where=str(folder), remedy="take a model with a head for language modelling")
    sizes = network.config.get_text_config()
    lengths = [getattr(sizes, name, None) for name in _LENGTHS]
    known = [length for length in lengths if isinstance(length, int) and length > 0]
    config = {"name": hub_name(folder), "architecture": type(network).__name__, "context": min(known, default=None)}
    return network.float(), tokenizer, config


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Raise what transformers raises as an ``InputError``: it has no class of its own for what it cannot read."""
    try:
        yield
    except Exception as error:  # ImportError, OSError, ValueError, KeyError, RuntimeError, safetensors' own
        if is_out_of_memory(error):
            raise OutOfMemory(str(folder)) from None
        reason = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, ImportError):
            found = f"transformers does not read this as a causal language model ({reason})"
            raise InputError(found, where=str(folder), remedy=HUB_FOLDER) from error
        if (error.name or "").partition(".")[0] == "transformers":
            found = "a model of the Hugging Face ecosystem without the transformers library"
            raise InputError(found, where=str(folder), remedy="pip install 'treelm[hf]'") from None
        raise InputError(f"a library is missing ({reason})", where=str(folder), remedy="install it") from error
