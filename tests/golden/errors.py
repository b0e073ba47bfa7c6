"""The part of the record with odd and hostile input: exit codes, which count, and messages, which may change."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.golden.record import ROOT, WORDING, Record, run_command

RECIPE = """\
[data]
train = "dev.ptb"
dev = "dev.ptb"
[vocabulary]
min_count = 1
[model]
system = "lstm"
embedding_size = 4
hidden_size = 4
num_layers = 1
[training]
epochs = 1
threads = 1
"""
FILES: dict[str, bytes] = {
    "empty.txt": b"",
    "spaces.txt": b" \n\t\n",
    "binary.bin": bytes(range(256)) * 4,
    "latin.txt": b"The city was old .\nle caf\xe9 .\n",
    "utf16.txt": "The city was old .\n".encode("utf-16-le"),
    "unbalanced.ptb": b"(S (NP (D The) (N city)) (VP (V was)))\n(S (NP (D The\n(S (N It)))\n",
    "one.ptb": b"(S (NP (D The) (N city)) (VP (V was)))\n",
    "nan.csv": b"sentence_id,word,rt\n1,The,300\n1,NaN,nan\n1,,3\n",
    "duplicate.csv": b"sentence_id,word,word\n1,The,the\n",
    "ragged.csv": b"sentence_id,word\n1,The\n1,dog,barks,loud\n1\n",
    "cut.tsv.gz": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03K",
    "bits.tsv": b"sentence\tchar_start\tchar_end\tsurprisal_bits\nYes\t0\t3\tmany\n",
    "suite.json": b'{"meta": {"metric": "sum"}, "predictions": [], "items": [{}]}',
    "crossing.conllu": b"1\tIt\tit\tX\tX\t_\t9\troot\t_\t_\n2\tis\tbe\tX\tX\t_\tx\troot\t_\t_\n\n",
    "unclosed.toml": b"[data\n",
    "unknown.toml": RECIPE.replace("epochs", "epoks").encode(),
    "system.toml": RECIPE.replace('"lstm"', '"lstn"').encode(),
    "negative.toml": RECIPE.replace("hidden_size = 4", "hidden_size = -4").encode(),
    "no-data.toml": RECIPE.replace("dev.ptb", "no.ptb").encode(),
    "good.toml": RECIPE.encode(),
}


def errors(record: Record) -> None:
    """One line a call: its exit code; beside it, what was said."""
    folder, runs = record.folder, ROOT / "tests" / "legacy"
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "dir").mkdir()
    for name, run in (("no-weights", "rnng"), ("mixed", "rnng"), ("damaged", "lstm"), ("lstm-old", "lstm")):
        shutil.copytree(runs / run, folder / name)
    (folder / "no-weights" / "model.safetensors").unlink()
    shutil.copy(runs / "lstm" / "config.json", folder / "mixed")
    for state in (folder / "damaged" / "checkpoints").glob("*/state.json"):
        state.write_bytes(state.read_bytes()[:100])
    codes, said = [], []
    for line in (Path(__file__).parent / "errors.txt").read_text(encoding="utf-8").splitlines():
        code, out, err = run_command(shlex.split(line))
        codes.append(f"{code}\t{len(out.splitlines())} lines\ttreelm {line}\n")
        said.append(f"$ treelm {line}\n{err}")
    record.text("codes.txt", "".join(codes))
    record.text(f"messages{WORDING}", "".join(said))


PARTS: dict[str, Callable[[Record], None]] = {"errors": errors}
