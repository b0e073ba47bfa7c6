"""Surprisal of words from transformers itself, straight from Pimentel & Meister (2024): tokens of the text, and sums.

It shares nothing with the package: words are found by the places of tokens in the text, and the tokens that begin words
by their names.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import transformers


def load(folder: Path) -> tuple[Any, Any]:
    loading: Any = transformers.AutoModelForCausalLM
    return loading.from_pretrained(folder).eval(), transformers.AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def word_bits(folder: Path, words: list[str]) -> tuple[list[float], float]:
    """Bits of each word of a text, and of its end."""
    model, tokenizer = load(folder)
    ids = tokenizer(" ".join(words), add_special_tokens=False)["input_ids"]
    begin = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    log_probs = model(torch.tensor([[begin, *ids]])).logits[0].double().log_softmax(1)
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    marked = torch.zeros(log_probs.shape[1], dtype=torch.bool)
    unmarked = torch.ones(log_probs.shape[1], dtype=torch.bool)
    for index, name in enumerate(names):
        is_blank = name[0] in "ĠĉĊċČč▁" or name in ("<0x20>", "<0x09>", "<0x0A>", "<0x0B>", "<0x0C>", "<0x0D>")
        is_control = (name in tokenizer.all_special_tokens and name != "<unk>") or name == tokenizer.eos_token
        marked[index] = is_blank or is_control
        unmarked[index] = (not is_blank and not is_control) or index == tokenizer.eos_token_id
    starts_marked = bool(marked[ids[0]])
    bits, of_word = [0.0] * len(words), -1
    for place, token in enumerate(ids):
        if place == 0 or marked[token]:
            of_word += 1
            allowed = marked if place or starts_marked else unmarked
            bits[of_word] += float(log_probs[place][allowed].logsumexp(0))
        bits[of_word] -= float(log_probs[place, token])
        if place + 1 == len(ids) or marked[ids[place + 1]]:
            bits[of_word] -= float(log_probs[place + 1][marked].logsumexp(0))
    assert of_word + 1 == len(words)
    end = log_probs[-1][marked].logsumexp(0) - log_probs[-1, tokenizer.eos_token_id]
    return [value / math.log(2) for value in bits], float(end) / math.log(2)
