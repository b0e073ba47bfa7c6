"""A pipe in place of a file of a run, of settings or of a corpus is refused: nobody may ever write into it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import treelm
from tests.legacy.make import HERE as RUNS
from treelm.corpora.catalog import corpus_entry
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.preparing import prepared
from treelm.corpora.vocabularies import load_vocabulary
from treelm.errors import InputError
from treelm.evaluation.evalb_files import read_parameters
from treelm.inference.loading import run_search
from treelm.io.files import read_bytes, require_regular
from treelm.training.metrics import read_metrics
from treelm.training.recipe import load_recipe

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
    "rules.prm": read_parameters,
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


def test_a_pipe_for_a_catalogue_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "catalog.toml")
    monkeypatch.setenv("TREELM_CATALOG", str(tmp_path / "catalog.toml"))
    with pytest.raises(InputError, match=r"catalog\.toml: no regular file"):
        corpus_entry("mine")


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


def test_folders_and_missing_files_are_left_to_whoever_opens_them(tmp_path: Path) -> None:
    require_regular(tmp_path, remedy="")
    require_regular(tmp_path / "missing", remedy="")
