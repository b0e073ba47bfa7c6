"""Small models of other people, made here, with tokenizers trained on a few words, saved as folders of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.corpora.tokenizers_of_others import (
    END,
    TEXT,
    Tokenizer,
    byte_level,
    decoders,
    metaspace,
    models,
    normalizers,
    trainers,
)
from tests.models.weights import stirred

transformers: Any = pytest.importorskip("transformers", reason="the transformers library is not installed")

SENTENCES = [
    ["the", "dog", "saw", "the", "unbelievable", "cats", ";"],
    ["dogs"],
    ["Zürich's", "moon", "didn't", "bark", "at", "1984", "dogs,", "state-of-the-art", "cats", "saw"],
    ["a", "dog", "is", "believed", "to", "be", "seen", "."],
]
CONTEXT = 60
_SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def sentencepiece_bpe() -> Any:
    """BPE over a whole text, blanks as ▁ and unknown characters as bytes: Llama 2."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([word for text in TEXT for word in text.split()] * 2, trainer)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(parts)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = content["added_tokens"][:3]  # bytes are tokens as others
    return Tokenizer.from_str(json.dumps(content))


def _wrapped(tokenizer: Any, **special: str) -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def gpt2() -> tuple[Any, Any]:
    tokenizer = _wrapped(byte_level(), bos_token=END, eos_token=END, unk_token=END)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=CONTEXT, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config), tokenizer


def pythia() -> tuple[Any, Any]:
    """Its softmax is wider than its tokenizer, and there is no beginning of sequence."""
    tokenizer = _wrapped(byte_level(), eos_token=END)
    config = transformers.GPTNeoXConfig(vocab_size=len(tokenizer) + 7, max_position_embeddings=CONTEXT, **_SIZES)
    return transformers.GPTNeoXForCausalLM(config), tokenizer


def llama() -> tuple[Any, Any]:
    tokenizer = _wrapped(sentencepiece_bpe(), bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=CONTEXT, num_key_value_heads=1, **_SIZES
    )
    return transformers.LlamaForCausalLM(config), tokenizer


def unigram() -> tuple[Any, Any]:
    """A Llama over a unigram model, which has a token for what it cannot write."""
    own = metaspace()
    own.add_special_tokens(["<s>", "</s>"])
    tokenizer = _wrapped(own, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
    config = transformers.LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=CONTEXT, **_SIZES)
    return transformers.LlamaForCausalLM(config), tokenizer


def mamba() -> tuple[Any, Any]:
    """A state in the place of keys and values, and no bound of places."""
    tokenizer = _wrapped(byte_level(), eos_token=END)
    config = transformers.MambaConfig(
        vocab_size=len(tokenizer), hidden_size=16, state_size=4, num_hidden_layers=2, use_mambapy=False
    )
    return transformers.MambaForCausalLM(config), tokenizer


MAKERS = {"gpt2": gpt2, "pythia": pythia, "llama": llama, "unigram": unigram, "mamba": mamba}


def write(name: str, folder: Path) -> Path:
    """A model with weights far from uniform, as its library writes it."""
    torch.manual_seed(7)
    model, tokenizer = MAKERS[name]()
    stirred(model, 0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
