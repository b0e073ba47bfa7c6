"""Files that are not what they seem: each reader says so in one line that names the file, and the line where it can."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import treelm
from tests.legacy.make import HERE as RUNS
from treelm.corpora.catalog import corpus_entry
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.preparing import prepared, split_text8
from treelm.corpora.readers import read_sentences
from treelm.corpora.tokenizer_vocabulary import TokenizerVocabulary
from treelm.corpora.vocabularies import load_vocabulary
from treelm.errors import InputError
from treelm.evaluation.minimal_pairs import read_pairs
from treelm.inference.loading import load, run_search
from treelm.io.files import read_bytes
from treelm.io.json import read_json
from treelm.io.tables import read_table
from treelm.training.metrics import read_metrics
from treelm.training.recipe import load_recipe

TREE = b"(S (N dogs) (V bark))\n"
TOKEN = b"1\tDogs\tdog\tNOUN\t_\t_\t0\troot\t_\t_\n"
ZIP = io.BytesIO()
with zipfile.ZipFile(ZIP, "w") as archive:
    archive.writestr(zipfile.ZipInfo("a"), "b")  # not of now: the time may be a byte that ends a line


def sentences(path: Path, **options: Any) -> list[object]:
    return list(read_sentences(path, **options))


def rows(path: Path) -> list[object]:
    return list(read_table(path).rows)


def catalogue(path: Path) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREELM_CATALOG", str(path))
        return corpus_entry("mine")


def mine(line: str) -> bytes:
    return f'[mine]\nlicence = "x"\n{line}'.encode()


CASES: list[tuple[Callable[[Path], object], str, bytes | None, str]] = [
    (sentences, "a.txt", None, ": no such file; check the path"),
    (sentences, "a.dat", b"a b\n", 'tells no format; give format = "brackets"'),
    *((sentences, f"a{suffix}", b"", ": no sentences") for suffix in (".ptb", ".conllu", ".txt")),
    *((sentences, f"a{suffix}", b"\xef\xbb\xbf\n \n", ": no sentences") for suffix in (".ptb", ".conllu", ".txt")),
    (sentences, "a.txt.gz", gzip.compress(b"", mtime=0), ": no sentences"),
    (sentences, "a.txt", b"ok\ncaf\xe9\n", ":2: byte 0xe9 is not UTF-8"),
    (sentences, "a.txt", b"ok\na\0b\n", ":2: a NUL character"),
    (sentences, "a.txt", b"a b\rc d\n", ":1: a line end that is CR alone"),
    (sentences, "a.txt", "a b\n".encode("utf-16"), ":1: byte 0xff is not UTF-8"),
    (sentences, "a.txt", ZIP.getvalue(), ":1: "),
    (sentences, "a.txt.gz", gzip.compress(b"a b\n" * 999, mtime=0)[:-9], ": packed data is truncated or damaged"),
    (sentences, "a.txt.xz", lzma.compress(b"a b\n" * 999)[:-9], ": packed data is truncated or damaged"),
    (sentences, "a.txt.xz", lzma.compress(b"\n"), ": no sentences"),
    (sentences, "a.txt.xz", lzma.compress(b"a" * (1 << 24)), "bytes that become"),
    (sentences, "a.txt", TREE, ":1: looks like brackets, not like text; give format ="),
    (sentences, "a.txt", b"# c\n" + TOKEN, ":2: looks like conllu, not like text"),
    (sentences, "a.ptb", TOKEN, ":1: looks like conllu, not like brackets"),
    (lambda path: sentences(path, format="conllu"), "a.psd", TREE, ":1: looks like brackets, not like conllu"),
    (sentences, "a.ptb", TREE + b"(S (N a)\n", ":2: "),
    (sentences, "a.ptb", TREE + b"no tree\n", ":2: "),
    (sentences, "a.conllu", TOKEN + b"\n1\ta\n", ":3: "),
    (sentences, "a.conllu", TOKEN.replace(b"\t0\t", b"\t1\t"), ":1: "),
    (lambda path: prepared([path], cache=path.parent), "silver.txt", TREE, ":1: looks like brackets"),
    (lambda path: split_text8(path, path.parent), "text8", b"abc 4", ": byte 0x34 at 4, where text8 has letters"),
    (rows, "a.csv", b"a,a\n", ":1: two columns of the name 'a'"),
    (rows, "a.csv", b"a,b\n1\n", ":2: 1 cells under 2 columns"),
    (rows, "a.csv", b'a,b\n"1,2\n3,4\n', ":2: not a table"),
    (rows, "a.csv", b'a,b\n"1\n2",3\n', ":2: a cell that goes on to line 3"),
    (rows, "a.csv", ZIP.getvalue(), ":1: "),
    *((rows, "a.xlsx", content, ": no workbook of Excel") for content in (b"", b"word,rt\n", ZIP.getvalue())),
    (lambda path: list(read_pairs(path)), "a.jsonl", b"{", ":1: "),
    (lambda path: read_json(path, remedy="do"), "a.json", b'{"a": ', ": not valid JSON"),
    (lambda path: read_json(path, remedy="do"), "a.json", b"[1]", ": not a JSON object; do"),
    (lambda path: read_json(path, remedy="do"), "a.json", b"[" * 100_000, ": not valid JSON (RecursionError)"),
    (load_vocabulary, "vocabulary.json", b"{}", ": not a treelm vocabulary file"),
    (TokenizerVocabulary.read, "tokenizer.json", b"{}", ": not a tokenizer file; give a tokenizer.json"),
    (catalogue, "catalog.toml", b"[mine", ": not a catalogue"),
    (catalogue, "catalog.toml", b"[mine]", " [mine]: field 'licence' is missing"),
    (catalogue, "catalog.toml", b"mine = 3", " [mine]: not a table"),
    (
        catalogue,
        "catalog.toml",
        mine('trian.text = {path = "a"}'),
        " [mine]: unknown field 'trian'; did you mean train?",
    ),
    (catalogue, "catalog.toml", mine('train = "a"'), " [mine]: train = 'a'; give a table"),
    (
        catalogue,
        "catalog.toml",
        mine('train.text = {url = "https://a.org/a.txt"}'),
        " [mine]: unknown field 'train.text.url'; known fields are",
    ),
]


@pytest.mark.parametrize(("read", "name", "content", "message"), CASES)
def test_hostile_input_is_one_line(
    read: Callable[[Path], object], name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    told = str(caught.value)
    assert message in told
    assert name in told
    assert "\n" not in told


pytestmark = [
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes"),
    pytest.mark.timeout(60),  # whoever opens a pipe waits
]
READERS: dict[str, Callable[[Path], object]] = {
    "recipe.toml": load_recipe,
    "[search] of recipe.toml": lambda path: run_search(path.parent),
    "config.json": lambda path: treelm.load(path.parent),
    "vocabulary.json": load_vocabulary,
    "model.safetensors": lambda path: treelm.load(path.parent),
    "metrics.jsonl": read_metrics,
    "meta.json": lambda path: PreparedCorpus.open(path.parent),
    "train.ptb": lambda path: prepared([path], cache=path.parent / "cache"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused_by_name(tmp_path: Path, name: str) -> None:
    run = Path(shutil.copytree(RUNS / "lstm", tmp_path / "run"))
    path = run / name.rpartition(" ")[2]
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(InputError, match="no regular file") as raised:
        READERS[name](path)
    assert path.name in str(raised.value)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_a_device_fills_no_memory() -> None:
    with pytest.raises(InputError, match="no regular file"):
        load_recipe("/dev/zero")


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
def test_a_pipe_that_a_shell_has_opened_is_read() -> None:
    read, write = os.pipe()
    os.write(write, b"content")
    os.close(write)
    try:
        assert read_bytes(Path(f"/dev/fd/{read}"), remedy="") == b"content"
    finally:
        os.close(read)


def test_settings_of_any_size_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate((1 << 25) + 1)
    with pytest.raises(InputError, match="33,554,433 bytes, where there are at most 33,554,432"):
        read_bytes(tmp_path / "config.json", remedy="give another")


def test_a_config_of_empty_lists_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(f'{{"format_version": 1, "labels": [{"[]," * 700_000}[]]}}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"config\.json: 2,100,037 bytes, where there are at most 2,097,152; "):
        load(tmp_path)
