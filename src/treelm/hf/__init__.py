"""Models of treelm in transformers: ``import treelm.hf`` registers the classes that open what ``treelm export`` writes.

Needs ``pip install 'treelm[hf]'``.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from treelm.errors import import_extra
from treelm.io.atomic import atomic_directory
from treelm.models.persistence.hub import save_parts

if TYPE_CHECKING:
    from treelm.models.base import LanguageModel

import_extra("transformers", "hf")
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from treelm.hf.classes import TreelmConfig, TreelmForCausalLM, TreelmTokenizer  # noqa: E402

__all__ = ["TreelmConfig", "TreelmForCausalLM", "TreelmTokenizer", "export_model"]

AutoConfig.register(TreelmConfig.model_type, TreelmConfig, exist_ok=True)
AutoModelForCausalLM.register(TreelmConfig, TreelmForCausalLM, exist_ok=True)
AutoTokenizer.register(TreelmConfig, slow_tokenizer_class=TreelmTokenizer, exist_ok=True)


def export_model(lm: LanguageModel, folder: Path) -> None:
    """Write a model as a folder that transformers reads, with its tokenizer; a new folder appears when it is complete.

    Raises ``InputError`` for a model that does not read step by step.
    """
    network, tokenizer = TreelmForCausalLM.of(lm), TreelmTokenizer.of(lm.vocabulary)
    path = Path(folder)
    with nullcontext(path) if path.is_dir() else atomic_directory(path) as new:
        save_parts(network, tokenizer, new)
