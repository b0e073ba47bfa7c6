"""Files of other tokenizers: a Hugging Face ``tokenizer.json``, or GPT-2's ``vocab.json`` and ``merges.txt``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treelm.errors import InputError
from treelm.io.files import read_text
from treelm.io.json import read_json

TOKENIZER, VOCABULARY, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
REMEDY = f"give a {TOKENIZER}, or a folder with it or with {VOCABULARY} and {MERGES}"
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def read_tokenizer(path: Path) -> dict[str, Any]:
    """The content of a tokenizer file, or of one that says what GPT-2's two files in a folder do.

    Raises ``InputError`` for a file that is missing or damaged.
    """
    if not path.is_dir():
        return read_json(path, remedy=REMEDY)
    if (path / TOKENIZER).exists() or not (path / VOCABULARY).exists():
        return read_json(path / TOKENIZER, remedy=REMEDY)
    return _byte_level(path / VOCABULARY, path / MERGES)


def _byte_level(vocabulary: Path, merges: Path) -> dict[str, Any]:
    """Byte-level BPE from its tokens with their ids, and its merges in the order of their priority.

    Tokens that no merge makes and that are more than one character are those of control, such as ``<|endoftext|>``.
    """
    ids = read_json(vocabulary, remedy=REMEDY)
    if not ids or not all(isinstance(index, int) for index in ids.values()):
        raise InputError("not a table of tokens and their ids", where=str(vocabulary), remedy=REMEDY)
    pairs, made = [], {token for token in ids if len(token) == 1}
    for number, line in enumerate(read_text(merges).split("\n"), start=1):  # other ends of lines may be tokens
        parts = line.rstrip("\r").split(" ")
        if parts == [""] or (number == 1 and line.startswith("#version")):
            continue
        if len(parts) != 2 or not {*parts, "".join(parts)} <= ids.keys():
            found = f"{line!r} is no merge of two tokens into a third"
            raise InputError(found, where=f"{merges}:{number}", remedy=f"give the {MERGES} that {vocabulary} is of")
        pairs.append(parts)
        made.add("".join(parts))
    control = [{"id": index, "content": token, "special": True} for token, index in ids.items() if token not in made]
    return {
        "added_tokens": control,
        "pre_tokenizer": _BYTE_LEVEL,
        "decoder": _BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": ids, "merges": pairs},
    }
