"""Folders of other people that name code, repositories or sizes: what is not data is not read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.models.hf.worlds import SENTENCES, transformers
from treelm import load
from treelm.errors import InputError

FUNCTION = "nobody/repository:function"
_KERNELS = '''
"""Stands for the library that loads code of the hub: whatever is asked of it leaves a mark."""
import os

class Anything:
    def __init__(self, *_, **__): pass
    def __call__(self, *given, **__): return given[0] if given else self
    def __getattr__(self, name): return Anything()

def get_kernel(*_, **__):
    open(os.environ["MARK"], "w").close()
    raise FileNotFoundError("no hub here")

def use_kernel_forward_from_hub(*_): return lambda one: one
use_kernelized_func = replace_kernel_forward_from_hub = use_kernel_forward_from_hub

def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return Anything
'''
FORGED: dict[str, dict[str, dict[str, Any]]] = {
    "attention": {"config.json": {"_attn_implementation": FUNCTION}},
    "attention inside": {"config.json": {"_attn_implementation_internal": FUNCTION}},
    "attention in public": {"config.json": {"attn_implementation": FUNCTION, "_attn_implementation_autoset": False}},
    "experts": {"config.json": {"_experts_implementation_internal": FUNCTION, "experts_implementation": FUNCTION}},
    "code": {"config.json": {"auto_map": {"AutoModelForCausalLM": "code.Model", "AutoConfig": "code.Config"}}},
    "code of the tokenizer": {"tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["code.T", "code.T"]}}},
    "another class": {"tokenizer_config.json": {"tokenizer_class": "RagRetriever"}},
    "another file": {"tokenizer_config.json": {"tokenizer_file": "/dev/zero", "vocab_file": "/dev/zero"}},
    "a file of tokens": {"special_tokens_map.json": {"tokenizer_file": "/dev/zero"}},
    "an adapter": {"adapter_config.json": {"base_model_name_or_path": "nobody/repository", "peft_type": "LORA"}},
    "generation": {"generation_config.json": {"custom_generate": "nobody/repository"}},
}


def forged(folder: Path, target: Path, changes: dict[str, dict[str, Any]]) -> Path:
    """A copy of a model with other settings, and code beside it."""
    shutil.copytree(folder, target)
    for name, values in changes.items():
        path = target / name
        path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **values}))
    (target / "code.py").write_text("import os\nopen(os.environ['MARK'], 'w').close()\n")
    return target


def test_no_setting_of_a_folder_brings_code_and_its_words_keep_their_bits(
    folder_of: Callable[[str], Path], tmp_path: Path, preloaded: Path
) -> None:
    library = tmp_path / "library"
    (library / "kernels" / "layer").mkdir(parents=True)
    (library / "kernels-0.99.dist-info").mkdir()
    (library / "kernels" / "__init__.py").write_text(_KERNELS)
    limits = getattr(transformers.utils.import_utils, "KERNELS_MIN_VERSION", "0.6.2")
    (library / "kernels-0.99.dist-info" / "METADATA").write_text(f"Name: kernels\nVersion: {limits}\n")
    folders = [folder_of("llama")]
    folders += [forged(folders[0], tmp_path / name, changes) for name, changes in FORGED.items()]
    code = (
        "import sys, treelm\n"
        f"sys.path.insert(0, {str(library)!r})\n"
        "assert 'transformers' not in sys.modules\n"
        "for folder in sys.argv[2:]:\n"
        f"    print(sum(float(one.log_probs.sum()) for one in treelm.load('hf:' + folder).score({SENTENCES!r})))\n"
    )
    environment = {**os.environ, "MARK": str(tmp_path / "mark"), "HF_HUB_OFFLINE": "1"}
    command = [preloaded / "python", "-c", code, *folders]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == len(folders)
    assert len(set(done.stdout.split())) == 1
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000, with weights of at most 256"),
        ({"num_hidden_layers": -1}, "num_hidden_layers = -1, with weights of"),
        ({"vocab_size": 10**12}, ""),
        ({"hidden_size": 10**9}, ""),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantised weights \(quantization_config\)"),
        ({"model_type": "nosuch"}, "transformers does not read this"),
    ],
)
def test_a_config_that_claims_any_size_or_needs_code_is_refused(
    values: dict[str, Any], message: str, folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = forged(folder_of("llama"), tmp_path / "forged", {"config.json": values})
    with pytest.raises(InputError, match=f"forged.*{message}") as raised:
        load(f"hf:{folder}")
    assert "/treelm-" not in str(raised.value)
