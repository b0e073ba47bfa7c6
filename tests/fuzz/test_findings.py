"""What hostile files have found, each by the name of what was wrong."""

import gzip
import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import treelm
from tests.fuzz import seeds
from tests.legacy.make import HERE as RUNS
from treelm.corpora.arrays import map_array
from treelm.corpora.catalog import corpus_entry
from treelm.corpora.preparing import split_text8
from treelm.corpora.readers import read_sentences
from treelm.corpora.vocabularies import load_vocabulary
from treelm.errors import InputError
from treelm.evaluation.evalb_files import read_bracketings
from treelm.evaluation.minimal_pairs import read_pairs
from treelm.evaluation.syntaxgym.formula import parse_formula
from treelm.evaluation.syntaxgym.results import read_surprisals
from treelm.evaluation.syntaxgym.suites import load_suites
from treelm.inference.loading import run_search
from treelm.io.atomic import write_atomically
from treelm.io.terminal import log
from treelm.models.persistence.storage import load_model, save_model
from treelm.models.persistence.tensors import read_tensors
from treelm.training.checkpoint import newest_checkpoint
from treelm.training.metrics import read_metrics
from treelm.training.recipe import load_recipe

HEADER = "sentence\tchar_start\tchar_end\tsurprisal_bits\n"
DEEP = "[" * 100_000
LONG_NUMBER = "1" * 5000  # Python reads no more than 4300 digits
PAIRS = "grammatical\tungrammatical\tgroup\n"


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run as it is written today."""
    save_model(load_model(RUNS / "som"), tmp_path / "run")
    return tmp_path / "run"


def change(path: Path, *changes: tuple[str, Any]) -> None:
    """Set values deep inside a JSON file."""
    values = json.loads(path.read_text())
    for place, value in changes:
        inner = values
        *parents, last = place.split(".")
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
    path.write_text(json.dumps(values))


# Messages.


def test_a_message_is_one_line_whatever_the_file_says() -> None:
    error = InputError("a\nb\x1b[31m\u202e", where="x\r\u2028y", remedy="do\x85it\ud800")
    assert str(error) == r"x\r\u2028y: a\nb\x1b[31m\u202e; do\x85it\ud800"


@pytest.mark.parametrize("sign", ["x", "\x1b", "\u202e", "\U000e0001"])
def test_a_message_is_no_longer_than_can_be_read(sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where signs become ten characters each, and where it is no error but a note."""
    assert len(str(InputError(sign * 100_000, where=sign * 100_000, remedy=sign * 100_000))) < 5000
    log(f"word: {sign * 2_000_000}\nend")
    told = capsys.readouterr().err
    assert (len(told) <= 5001, told[:-1].isprintable(), told[:6], told[-6:]) == (True, True, "word: ", "\\nend\n")


# Files of users.


def suite(*changes: tuple[str, str]) -> str:
    text = seeds.SUITES[0].decode()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def safetensors(header: bytes, body: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header + body


def conllu(word_id: object, head: object) -> str:
    return f"{word_id}\tx\t_\t_\t_\t_\t{head}\t_\t_\t_\n"


def pair(good: str) -> str:
    return f'{{"sentence_good": {good}, "sentence_bad": "b"}}'


READ: dict[str, Callable[[Path], object]] = {
    "x.conllu": lambda path: list(read_sentences(path)),
    "t.tsv": read_surprisals,
    "pairs.tsv": lambda path: list(read_pairs(path, group_by=("group",))),
    "p.jsonl": lambda path: list(read_pairs(path)),
    "s.json": lambda path: load_suites([str(path)]),
    "r.toml": load_recipe,
    "recipe.toml": lambda path: run_search(path.parent),
    "vocabulary.json": load_vocabulary,
    "bad.safetensors": lambda path: read_tensors(path, remedy="do"),
    "metrics.jsonl": read_metrics,
}
_RECIPE = '[data]\ncorpus = "gum-open"\n[model]\nsystem = "rnng"\n'
_ONE = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
HOSTILE: list[tuple[str, str | bytes, str]] = [
    ("x.conllu", conllu(LONG_NUMBER, 0), r":1: word id"),
    ("x.conllu", conllu(1, LONG_NUMBER), r":1: head"),
    ("t.tsv", HEADER + "a\t0\t1\n", r":2: 3 cells under 4 columns"),
    ("t.tsv", "sentence\t" + HEADER, r":1: two columns of the name 'sentence'"),
    ("t.tsv", HEADER + "a b\t2\t3\t1\na b\t0\t1\t1\n", r":3: a token before the one above"),
    ("t.tsv", HEADER + "a b\t2\t9\t1\n", r":2: characters 2 to 9 of a sentence of 3"),
    ("t.tsv", HEADER + "x" * 200_000 + "\t0\t1\t1\n", r":2: not a table \(field larger"),
    ("t.tsv", HEADER + "y\t0\t1\t1\n" + '"y\t0\t1\t1\ny\t0\t1\t1\n', r":3: .*(goes on|not a table)"),
    ("pairs.tsv", PAIRS + '"a\tb\nc"\td\te\n', r":2: a cell that goes on to line 3"),
    *(
        ("p.jsonl", one, "")
        for one in (DEEP, pair(DEEP), pair(LONG_NUMBER), pair('["a"]'), pair("7"), pair('"\\ud800"'))
    ),
    ("s.json", '{"a": ' + DEEP, "not JSON"),
    ("s.json", suite(('"region_number": 2', f'"region_number": {LONG_NUMBER}')), "not JSON"),
    ("s.json", suite(('"region_number": 2', '"region_number": 1')), r"regions \[1, 1"),
    ("s.json", suite(('"condition_name": "bad"', '"condition_name": "good"')), "two conditions of one name"),
    ("s.json", suite(("barks", "\\ud800")), "half a character"),
    ("r.toml", f"[data]\nx = {DEEP}", ""),
    ("r.toml", f"{_RECIPE}dropout = {'9' * 400}", ""),
    ("r.toml", f"{_RECIPE}[training]\nepochs = {2**70}", ""),
    ("r.toml", '[data]\ntrain = "a\\u0000b"\n[model]\nsystem = "rnng"', ""),
    *(("recipe.toml", f"[evaluation]\nword_beam = {one}\n", "") for one in ("inf", "nan", "2.5", "true", '"7"', DEEP)),
    ("vocabulary.json", DEEP, ""),
    ("vocabulary.json", f'{{"format": {LONG_NUMBER}}}', ""),
    ("bad.safetensors", b"", ""),
    ("bad.safetensors", (2**60).to_bytes(8, "little") + b"{}", ""),
    ("bad.safetensors", safetensors(_ONE.replace(b"[1]", b"[1152921504606846976]"), b"1234"), ""),
    ("bad.safetensors", safetensors(_ONE.replace(b",4]", b",4611686018427387904]"), b"1234"), ""),
    ("bad.safetensors", safetensors(b'{"__metadata__":{"treelm":"[]"},' + _ONE[1:], b"1234"), ""),
    ("bad.safetensors", safetensors(b'{"__metadata__":{"treelm":"{\\"a\\": 1}"}}'), ""),
    ("bad.safetensors", safetensors(b'{"__metadata__":{"treelm":"' + DEEP.encode() + b'"}}'), ""),
    ("bad.safetensors", safetensors(b'{"a":' + DEEP.encode()), ""),
    *(
        ("metrics.jsonl", b'{"step": 1}\n' + line + b"\n", ":2: not a JSON object")
        for line in (b"[1]", b"{", DEEP.encode(), LONG_NUMBER.encode(), b'{"a": 1} x', b'{"\xed\xa0\x80": 1}')
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), HOSTILE, ids=[name for name, *_ in HOSTILE])
def test_files_without_end_and_files_that_would_lose_something_are_refused(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(InputError, match=rf"{re.escape(name)}.*{message}"):
        READ[name](path)


@pytest.mark.parametrize("blank", [" ", "\v", "\f"])
def test_a_blank_inside_a_word_of_conllu_becomes_a_no_break_space(tmp_path: Path, blank: str) -> None:
    row = f"1\ta{blank}b\t_\t_\t_\t_\t0\t_\t_\t_\n"
    (sentence,) = read_sentences(written(tmp_path, "x.conllu", row))
    assert sentence.words == ("a\u00a0b",)


@pytest.mark.parametrize("content", [b"a" * (1 << 21), b"a " * (1 << 20)], ids=["word", "words"])
def test_gzip_that_would_fill_the_memory_is_refused(tmp_path: Path, content: bytes) -> None:
    """Whoever reads it, whole or line by line; what text is packed by is no tenth of that."""
    path = written(tmp_path, "bomb.txt.gz", gzip.compress(content, mtime=0))
    for read in (read_pairs, read_sentences, lambda path: load_suites([str(path)])):
        with pytest.raises(
            InputError, match=r"bomb\.txt\.gz: [\d,]+ bytes that become [\d,]+ or more when unpacked; unpack it"
        ):
            list(read(path))


# Test suites.


@pytest.mark.parametrize(
    "formula",
    [
        "(" * 1000 + "1 < 2" + ")" * 1000,
        "-" * 5000 + "1 < 2",
        "1" + " + 1" * 5000 + " < 2",
        f"({LONG_NUMBER};%a%) < 2",
        "(٣;%a%) < (²;%a%)",
    ],
)
def test_formulas_without_end_are_refused(formula: str) -> None:
    with pytest.raises(InputError):
        parse_formula(formula)


# Recipes and catalogues.


@pytest.mark.parametrize("file", ['{url = "http://a.b"}', "{path = 7}", DEEP])
def test_catalogue_entries_that_cannot_be_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    text = f'[mine]\nlicence = "CC0"\ntrain.text = {file}\n'
    monkeypatch.setenv("TREELM_CATALOG", str(written(tmp_path, "catalog.toml", text)))
    with pytest.raises(InputError, match=r"catalog\.toml"):
        corpus_entry("mine")


# Runs.


def test_a_config_that_was_altered_is_not_taken_for_the_one_that_was_saved(run: Path) -> None:
    change(run / "config.json", ("config.dropout", 0.5))
    with pytest.raises(InputError, match=r"config\.json: not the config that model\.safetensors was trained with"):
        treelm.load(run)


@pytest.mark.parametrize(
    ("system", "name", "value"),
    [
        ("som", "size", 2**40),
        ("som", "size", 2**62),
        ("som", "num_slots", 10**9),
        ("rnng", "num_layers", 10**12),
        ("rnng", "embedding_size", 50_000),
        ("prpn", "num_blocks", 10**10),
        ("lstm", "hidden_size", 10**6),
        ("palm", "max_span", 10**15),
    ],
)
def test_a_config_that_claims_any_size_fills_no_memory(tmp_path: Path, system: str, name: str, value: int) -> None:
    run = Path(shutil.copytree(RUNS / system, tmp_path / "run"))
    change(run / "config.json", (f"config.{name}", value))
    try:
        lm = treelm.load(run)
    except InputError:
        return
    assert sum(parameter.numel() for parameter in lm.parameters()) < 10_000  # it is no size of a tensor


@pytest.mark.parametrize("value", [10**400, 2**64, [10**400], "9" * 5000])
def test_numbers_beyond_all_bounds_in_a_config_are_refused(tmp_path: Path, value: Any) -> None:
    run = Path(shutil.copytree(RUNS / "rnng", tmp_path / "run"))
    change(run / "config.json", ("config.dropout", value))
    with pytest.raises(InputError):
        treelm.load(run)


def test_labels_that_cannot_be_written_are_refused(run: Path) -> None:
    change(run / "config.json", ("labels", ["\ud800"]))
    with pytest.raises(InputError, match="labels"):
        treelm.load(run)


@pytest.mark.parametrize("forms", ["abc", [1, 2], ["\ud800"], {"a": 1}, None])
def test_a_vocabulary_of_anything_but_strings_is_refused(tmp_path: Path, forms: Any) -> None:
    for name, field in (("rnng", "forms"), ("rnng-in-order-attention", "characters")):
        path = Path(shutil.copy(RUNS / name / "vocabulary.json", tmp_path))
        change(path, (f"vocabulary.{field}", forms))
        path.write_bytes(seeds.seal_vocabulary(path.read_bytes()))
        with pytest.raises(InputError, match=r"vocabulary\.json"):
            load_vocabulary(path)


def test_damaged_subwords_are_found_before_sentencepiece_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(RUNS / "rnng-subword" / "vocabulary.json", tmp_path))
    change(path, ("vocabulary.model", "AAAA"))
    monkeypatch.setattr("sentencepiece.SentencePieceProcessor", None)
    with pytest.raises(InputError, match="changed after it was written"):
        load_vocabulary(path)


class Bomb:
    """What an attacker puts into a pickle."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("kind", ["zip", "pickle", "legacy"])
def test_a_pickle_in_place_of_weights_is_refused_and_not_opened(run: Path, tmp_path: Path, kind: str) -> None:
    import pickle

    if kind == "pickle":
        (run / "model.safetensors").write_bytes(pickle.dumps(Bomb(tmp_path / "harm")))
    else:
        torch.save(
            {"a": Bomb(tmp_path / "harm")}, run / "model.safetensors", _use_new_zipfile_serialization=kind == "zip"
        )
    with pytest.raises(InputError, match="not a complete safetensors file") as raised:
        treelm.load(run)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "descr", ["{'descr': '<i4', 'fortran_order': False, 'shape': (1152921504606846976,)}", "{'a'\n(", "((((", "'|O'"]
)
def test_arrays_with_headers_that_lie_are_refused(tmp_path: Path, descr: str) -> None:
    head = descr.ljust(118).encode()[:118]
    path = written(tmp_path, "a.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    with pytest.raises(ValueError, match=r".") as raised:
        map_array(path)
    assert type(raised.value) is ValueError


def test_an_array_of_objects_is_not_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([Bomb(tmp_path / "harm")]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"Python objects|pickle"):
        map_array(tmp_path / "a.npy")
    assert not (tmp_path / "harm").exists()


# Names of new files.


def test_writers_follow_no_link_that_lies_in_wait(tmp_path: Path) -> None:
    """The old names of new files held the process id alone, so that anybody could foresee them."""
    victim = written(tmp_path, "victim", "mine")
    for suffix in ("tmp", "partial"):
        (tmp_path / f".out.{os.getpid()}.{suffix}").symlink_to(victim)
    write_atomically(tmp_path / "out", b"new")
    assert (victim.read_bytes(), (tmp_path / "out").read_bytes()) == (b"mine", b"new")


def test_two_savers_at_once_leave_one_whole_model_and_nothing_else(tmp_path: Path) -> None:
    lm = load_model(RUNS / "som")
    problems: list[BaseException] = []

    def save() -> None:
        try:
            for _ in range(10):
                save_model(lm, tmp_path / "run")
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=save) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "config.json",
        "model.safetensors",
        "vocabulary.json",
    ]
    treelm.load(tmp_path / "run")


def test_files_have_the_permissions_that_the_user_asks_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "out", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


CUT = gzip.compress(b"abc " * 99, mtime=0)[:20]


WRONG_SUM = gzip.compress(b"abc", mtime=0)[:-8] + bytes(8)


@pytest.mark.parametrize("packed", [CUT, WRONG_SUM], ids=["cut", "wrong sum"])
def test_damaged_gzip_is_refused_by_whoever_reads_a_file_whole(tmp_path: Path, packed: bytes) -> None:
    path = written(tmp_path, "file.gz", packed)
    for read in (
        lambda: split_text8(path, tmp_path / "out"),
        lambda: list(read_pairs(path)),
        lambda: load_suites([str(path)]),
        lambda: read_bracketings(path),
    ):
        with pytest.raises(InputError, match=r"file\.gz: packed data is truncated or damaged"):
            read()


@pytest.mark.parametrize(
    "change_of",
    [("tensors", ["../../weights"]), ("tensors", 7), ("format_version", 99), ("state", 7), ("state", {"step": "20"})],
)
def test_a_state_that_vouches_for_itself_but_is_no_state_is_refused(tmp_path: Path, change_of: tuple[str, Any]) -> None:
    step = tmp_path / "checkpoints" / "step-00000020.0"
    shutil.copytree(RUNS / "lstm" / "checkpoints" / step.name, step)
    change(step / "state.json", change_of)
    (step / "state.json").write_bytes(seeds.seal_state((step / "state.json").read_bytes()))
    with pytest.raises(InputError, match="none of 1 checkpoints is usable"):
        newest_checkpoint(tmp_path)


def test_a_checkpoint_that_is_damaged_twice_is_put_aside_twice(tmp_path: Path) -> None:
    step = tmp_path / "checkpoints" / "step-00000020.0"
    for _ in range(2):
        shutil.copytree(RUNS / "lstm" / "checkpoints" / step.name, step)
        (step / "state.json").write_text("{}")
        with pytest.raises(InputError, match="none of 1"):
            newest_checkpoint(tmp_path)
    assert len(list(step.parent.glob("damaged-*"))) == 2
