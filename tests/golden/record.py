"""One folder of a record: commands called in this process, what they print and write, and what is masked of it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INPUTS = Path(__file__).parent / "inputs"
WORDING = ".wording"
"""Suffix of files with what is said to people on standard error: they may differ."""
_PRIVATE = (
    r"seconds|per_second|elapsed|duration|timestamp|date|created|started|finished|treelm|treelm_version|torch|python"
    r"|numpy|platform|machine|host|processor|cpu\w*|threads|commit|memory_\w*|\w*mebibytes|\w*_ms|pid"
)
_MASKS = [
    (re.compile(rf'("(?:\w+_)?(?:{_PRIVATE})(?:_\w+)?": )("[^"]*"|[-+.\w]+)'), r"\1<MASKED>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?([+-]\d\d:\d\d|Z)?)?"), "<DATE>"),
    (re.compile(r"\btreelm \d+\.\d+\.\d+\w*"), "treelm <VERSION>"),
    (re.compile(r"\b\d+(\.\d+)?(e-?\d+)? ?(ms|s|seconds?|min|minutes?|h|hours?|words/s|sentences/s)\b"), "<TIME>"),
    (re.compile(r"\b\d+:\d\d(:\d\d)?\b"), "<TIME>"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "<COMMIT>"),
]


class Record:
    """Writes one part into its folder; commands run in a folder of their own that has copies of ``inputs``."""

    def __init__(self, out: Path, folder: Path) -> None:
        self.out, self.folder = out, folder
        self.hidden: set[str] = set()  # speeds, as tables show them

    def text(self, name: str, content: str) -> None:
        """Keep a text, masked."""
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.masked(content), encoding="utf-8")

    def json(self, name: str, value: Any) -> None:
        """Keep a value: floats in full, keys in order of the alphabet."""
        self.text(f"{name}.json", json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

    def masked(self, text: str) -> str:
        """Replace what is of this machine, this moment and this folder."""
        for place, name in (
            (self.folder, "<DIR>"),
            (self.folder.parent, "<HOME>"),
            (ROOT, "<REPO>"),
            (_english(), "<ENGLISH>"),
        ):
            text = text.replace(str(place), name)
        for shown in self.hidden:
            text = re.sub(rf"(?<![\d.])(?<!\d,){re.escape(shown)}(?![\d.])", "<SPEED>", text)
        for pattern, replacement in _MASKS:
            text = pattern.sub(replacement, text)
        return text

    def call(self, name: str, line: str, *, stdin: str = "", files: bool = True, shown: bool = True) -> tuple[int, str]:
        """Call ``treelm LINE`` and keep exit code, standard output and files that it wrote; its code and output."""
        before = _written(self.folder)
        code, out, err = run_command(shlex.split(line), stdin)
        said = _as_json(out) if shown else "\n"
        self.text(f"{name}.txt", f"treelm {line}\nexit code {code}\n{said}")
        self.text(f"{name}{WORDING}", err if shown else "")
        for path, state in sorted(_written(self.folder).items()) if files else ():
            if before.get(path) != state:
                self.file(f"{name}/{path}", self.folder / path)
        return code, out

    def file(self, name: str, path: Path) -> None:
        """Keep a file: texts as such, of pages their text, of weights hashes."""
        if path.suffix == ".safetensors":
            self.text(f"{name}.tsv", hashes_of(path))
            return
        content = path.read_bytes()
        with suppress(OSError, EOFError):
            content = gzip.decompress(content) if path.suffix == ".gz" else content
        try:
            text = content.decode()
        except UnicodeDecodeError:
            self.text(f"{name}.sha256", hashlib.sha256(content).hexdigest())
            return
        if path.suffix in (".html", ".svg"):
            text = re.sub(r"(?s)<(script|style)\b.*?</\1>", "", text)
            text = re.sub(r"\s*\n\s*", "\n", re.sub(r"<[^>]*>", "\n", text))
        self.text(name, _as_json(text))


def hashes_of(weights: Path) -> str:
    """One line a tensor: name, type, shape, SHA-256 of its bytes."""
    from safetensors.torch import load_file

    lines = []
    for name, tensor in sorted(load_file(weights).items()):
        digest = hashlib.sha256(tensor.contiguous().flatten().view(-1).numpy().tobytes()).hexdigest()
        lines.append(f"{name}\t{tensor.dtype}\t{list(tensor.shape)}\t{digest}\n")
    return "".join(lines)


def _english() -> Path:
    try:
        import treelm_english
    except ImportError:
        return Path("/no/english")
    return Path(treelm_english.__file__ or "").parent


def _as_json(text: str) -> str:
    """JSON in one form, also of one object a line; other text as it is."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    for parts in ([text], text.splitlines()):
        with suppress(ValueError):
            return "".join(
                json.dumps(json.loads(part), indent=1, sort_keys=True, ensure_ascii=False) + "\n" for part in parts
            )
    return text


def _written(folder: Path) -> dict[str, tuple[int, int]]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != "cache"]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def run_command(arguments: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a subcommand that is called in this process."""
    from treelm.cli import run

    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        source.write(stdin.encode("utf-8", "surrogateescape"))
        source.seek(0)
        with _streams(source.fileno(), out.fileno(), err.fileno()):
            try:
                code = run(list(arguments))
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(bool(end.code))
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "backslashreplace"))
    return code, texts[0], texts[1]


@contextmanager
def _streams(*files: int) -> Iterator[None]:
    """Point the three standard streams, Python's and the system's, at files."""
    kept, python = [os.dup(number) for number in range(3)], (sys.stdin, sys.stdout, sys.stderr)
    sys.stdout.flush(), sys.stderr.flush()
    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = python
        for number, file in enumerate(kept):
            os.dup2(file, number)
            os.close(file)


@contextmanager
def working_folder() -> Iterator[Path]:
    """A folder to work in, with a copy of the inputs; nothing is kept of it."""
    with tempfile.TemporaryDirectory(prefix="golden-", dir="/tmp") as name:
        folder = Path(name) / "work"
        shutil.copytree(INPUTS, folder)
        os.environ.update(COLUMNS="200", TREELM_CACHE=f"{name}/cache", HOME=name)
        os.chdir(folder)
        yield folder
        os.chdir("/")
