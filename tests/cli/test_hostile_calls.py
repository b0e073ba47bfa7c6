"""Bad input through the program itself: one line, the documented exit code, and nothing else lost."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.legacy.make import HERE as RUNS

SRC = Path(__file__).parents[2] / "src"
TREE = "(S (NP (D The) (N city)) (VP (V was) (ADJP (J old))) (. .))\n"
RECIPE = """\
[data]
train = "train.ptb"
dev = "train.ptb"
[vocabulary]
min_count = {min_count}
[model]
system = "lstm"
embedding_size = 4
hidden_size = 4
num_layers = 1
[training]
epochs = 1
threads = 1
"""
BAD_INPUT = 2


class Outcome(NamedTuple):
    """What a call left."""

    code: int
    out: bytes
    err: str


def call(line: str, folder: Path, *, stdin: bytes = b"", is_real: bool = False, **environment: str) -> Outcome:
    """A shell line in a folder, in which ``treelm`` is the program and ``{name}`` an old run.

    It starts by a fork (``tests.preloaded``), unless it ``is_real``: its streams are strange, or its environment.
    """
    for run in sorted(os.listdir(RUNS), reverse=True):
        line = line.replace(f"{{{run}}}", shlex.quote(str(RUNS / run)))
    program = [sys.executable, "-m", "treelm"] if is_real or environment else [str(folder / ".treelm")]
    line = f'treelm() {{ {shlex.join(program)} "$@"; }}; set -o pipefail; {line}'
    settings = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "TREELM_CACHE": str(folder / "cache")}
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, input=stdin, env=settings | environment, capture_output=True, check=False
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode())


def assert_refused(outcome: Outcome, expected: str) -> None:
    assert outcome.code == BAD_INPUT, outcome
    assert outcome.err.count("\n") == 1, outcome.err
    assert expected in outcome.err
    assert outcome.err.startswith("treelm ")


@pytest.fixture
def folder(tmp_path: Path, preloaded: Path) -> Path:
    """A folder with what the calls below name."""
    (tmp_path / ".treelm").symlink_to(preloaded / "treelm")
    (tmp_path / "dir").mkdir()
    (tmp_path / "train.ptb").write_text(TREE * 3)
    (tmp_path / "in.txt").write_text("The city was old .\nI think so .\n")
    (tmp_path / "latin.txt").write_bytes("The city was old .\nle caf\xe9 .\n".encode("latin-1"))
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "cut.tsv.gz").write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03K")
    (tmp_path / "bits.tsv").write_text("sentence\tchar_start\tchar_end\tsurprisal_bits\nYes\t0\t3\tmany\n")
    (tmp_path / "r.toml").write_text(RECIPE.format(min_count=1))
    (tmp_path / "unknown.toml").write_text(RECIPE.format(min_count=1).replace("epochs", "epoks"))
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "unclosed.toml").write_text("[data\n")
    shutil.copytree(RUNS / "rnng", tmp_path / "no-weights", ignore=shutil.ignore_patterns("model.safetensors"))
    shutil.copytree(RUNS / "rnng", tmp_path / "mixed")
    shutil.copy(RUNS / "lstm" / "config.json", tmp_path / "mixed")
    shutil.copytree(RUNS / "rnng", tmp_path / "weights-dir", ignore=shutil.ignore_patterns("model.safetensors"))
    (tmp_path / "weights-dir" / "model.safetensors").mkdir()
    shutil.copytree(RUNS / "lstm", tmp_path / "damaged")
    for state in (tmp_path / "damaged" / "checkpoints").glob("*/state.json"):
        state.write_bytes(state.read_bytes()[:100])
    return tmp_path


REFUSED = {
    "a folder in place of text": ("treelm parse {rnng} dir --format text", "dir: cannot be read (Is a directory)"),
    "a folder in place of a recipe": ("treelm train dir --output run", "dir: cannot be read (Is a directory)"),
    "a folder in place of weights": ("treelm parse weights-dir in.txt", "model.safetensors"),
    "a folder in place of gold trees": ("treelm evaluate --gold dir --predicted train.ptb", "Is a directory"),
    "a file in place of a run": ("treelm parse in.txt in.txt", "in.txt: no such run folder"),
    "a folder that is no run": ("treelm surprisal dir in.txt", "config.json: no such file"),
    "a run without weights": ("treelm parse no-weights in.txt", "no-weights"),
    "a config of another system": ("treelm parse mixed in.txt", "mixed"),
    "an unknown key in a recipe": (
        "treelm train unknown.toml --output run",
        "unknown field 'epoks'; did you mean epochs?",
    ),
    "a recipe that is no TOML": ("treelm train unclosed.toml --output run", "unclosed.toml:1: not TOML"),
    "text that is not UTF-8": (
        "treelm surprisal {rnng} latin.txt --output out.tsv",
        "latin.txt:2: byte 0xe9 is not UTF-8",
    ),
    "a binary file": ("treelm parse {rnng} binary.txt", "binary.txt:"),
    "an empty file": ("treelm parse {rnng} empty.txt", "empty.txt: no sentences"),
    "an output folder that is not there": ("treelm parse {rnng} in.txt --output no/out.ptb", "no folder no"),
    "no folder of a picture": ("treelm parse {rnng} in.txt --figure no/tree.svg", "no folder no"),
    "no folder of n-grams": ("treelm export {ngram} --to arpa --output no/x.arpa", "no folder no"),
    "an output that is a folder": ("treelm parse {rnng} in.txt --output dir", "dir: a folder"),
    "a full disk behind a pipe of words": ("treelm surprisal {lstm} in.txt > /dev/full", "standard output: cannot"),
    "a full disk behind an output file": ("treelm surprisal {lstm} in.txt --output /dev/full", "/dev/full: cannot"),
    "closed standard input": ("treelm parse {rnng} - <&-", "standard input is closed"),
    "damaged gzip": ("treelm pairs {lstm} cut.tsv.gz", "cut.tsv.gz: gzip data is truncated or damaged"),
    "options of a run beside a table of bits": (
        "treelm syntaxgym --surprisals bits.tsv --action-beam 10",
        "--action-beam with --surprisals; leave it out",
    ),
    "a surprisal that is a word": ("treelm syntaxgym --surprisals bits.tsv", "bits.tsv:2: 'many' is not a number"),
    "a run that is there already": ("cp -r {lstm} run && treelm train r.toml --output run", "already holds a run"),
    "two runs of one name": ("treelm demo --recipes r.toml ./r.toml --output runs", "two recipes of one name"),
    "a pipe in place of a recipe": ("treelm train pipe.toml --output run", "pipe.toml: no regular file"),
    "a corpus that is there already": ("treelm data prepare in.txt --output dir", "dir: the directory exists"),
    "checkpoints that are all damaged": ("treelm train --resume damaged --quiet", "none of 1 checkpoints is usable"),
    "a name with control characters": ("treelm parse $'run\\n\\e[31mred' in.txt", r"run\n\x1b[31mred"),
    "a name that is not UTF-8": ("treelm parse $'caf\\xe9' in.txt", "caf"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_line_and_exit_code_2(name: str, folder: Path) -> None:
    line, expected = REFUSED[name]
    before = {path for path in folder.rglob("*") if "cache" not in path.parts}
    outcome = call(line, folder, is_real="<&-" in line or "/dev/full" in line)
    if name == "checkpoints that are all damaged":  # each is reported before the end
        outcome = outcome._replace(err=outcome.err.splitlines(keepends=True)[-1])
    assert_refused(outcome, expected)
    made = {path for path in folder.rglob("*") if "cache" not in path.parts} - before
    assert not [path for path in made if not path.is_relative_to(folder / "run") and "damaged-" not in str(path)]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read and write anything")
@pytest.mark.parametrize("line", ["treelm parse {rnng} in.txt", "treelm parse {rnng} train.ptb --output dir/out.ptb"])
def test_what_may_not_be_read_or_written_is_named(folder: Path, line: str) -> None:
    (folder / "in.txt").chmod(0)
    (folder / "dir").chmod(0o500)
    assert_refused(call(line, folder), "Permission denied")


def test_a_reader_that_leaves_early_ends_it_quietly(folder: Path) -> None:
    (folder / "long.txt").write_text("The city was old .\n" * 2000)
    assert call(
        "treelm surprisal {ngram} long.txt | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}", folder, is_real=True
    ) == (
        0,
        b"",
        "",
    )


UNKNOWN = r"\d of \d words \([\d.]+%\) are unknown to [^\n]*\n"


def test_an_output_that_is_a_pipe_is_written_to_and_stays_one(folder: Path) -> None:
    outcome = call(
        "mkfifo pipe; cat pipe & treelm surprisal {ngram} in.txt --output pipe && wait && test -p pipe", folder
    )
    assert outcome.code == 0
    assert re.fullmatch(UNKNOWN, outcome.err)
    assert outcome.out.count(b"\n") == 1 + 5 + 4
    assert not (folder / "pipe.json").exists()


@pytest.mark.parametrize(
    "line",
    [
        "treelm surprisal {ngram} <(cat in.txt) --format text",
        "cat in.txt | treelm surprisal {ngram} /dev/stdin --format text",
        "mkfifo in; cat in.txt > in & treelm surprisal {ngram} in --format text",
        "cat in.txt | treelm surprisal {ngram} -",
    ],
)
def test_an_input_may_be_a_pipe(folder: Path, line: str) -> None:
    outcome = call(line, folder, is_real="<(" in line)
    assert outcome.code == 0
    assert re.fullmatch(UNKNOWN, outcome.err)
    assert outcome.out.count(b"\n") == 1 + 5 + 4


def test_a_recipe_may_be_what_a_command_writes(folder: Path) -> None:
    outcome = call("treelm train <(sed s#train.ptb#$PWD/train.ptb# r.toml) --output run --quiet", folder, is_real=True)
    assert outcome.code == 0, outcome.err


def test_a_vocabulary_without_any_word_trains_and_says_all_are_unknown(folder: Path) -> None:
    (folder / "r.toml").write_text(RECIPE.format(min_count=1000))
    assert call("treelm train r.toml --output run --quiet", folder).code == 0
    outcome = call("treelm surprisal run in.txt", folder)
    assert outcome.code == 0, outcome.err
    rows = [row.split("\t") for row in outcome.out.decode().splitlines()[1:]]
    assert [row[4] for row in rows] == ["1"] * 9


@pytest.mark.parametrize("run", ["rnng", "som"])
def test_a_long_sentence_and_sentences_of_one_lose_no_word(folder: Path, run: str) -> None:
    (folder / "sizes.txt").write_text("city " * 200 + "\n.\nOh\n")
    widths = "--action-beam 4 --word-beam 2" if run == "rnng" else ""
    outcome = call(f"treelm parse {{{run}}} sizes.txt {widths}", folder)
    assert (outcome.code, outcome.err) == (0, "")
    trees = outcome.out.decode().splitlines()
    assert [len(re.findall(r"\(X [^\s()]+\)", tree)) for tree in trees] == [200, 1, 1]


WORDS = [
    "\U0001f469\u200d\U0001f4bb",
    "e\u0301te\u0301",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u202eabc",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "a\u00a0b",
    "\ufeff",
]


def test_words_of_any_script_come_out_as_they_went_in(folder: Path) -> None:
    (folder / "words.txt").write_text(" ".join(WORDS) + "\n", encoding="utf-8")
    outcome = call("treelm surprisal {rnng-in-order-attention} words.txt --action-beam 4 --word-beam 2", folder)
    assert outcome.code == 0
    assert re.fullmatch(UNKNOWN + r"([^\n]*left-out\)\n)?(\d of 7 words not converged: [^\n]*\n)?", outcome.err)
    assert [row.split("\t")[2] for row in outcome.out.decode().splitlines()[1:]] == WORDS


def test_words_that_a_search_has_lost_are_counted(folder: Path) -> None:
    narrow = "--action-beam 1 --word-beam 1 --fast-track 0 --output out.tsv"
    outcome = call(f"treelm surprisal {{rnng-in-order-attention}} in.txt {narrow}", folder)
    assert outcome.code == 0
    num_infinite = (folder / "out.tsv").read_text().count("\tinf\t")
    assert num_infinite > 0
    assert outcome.err.startswith(f"{num_infinite} of 9 words have inf bits")
    metadata = json.loads((folder / "out.tsv.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert (metadata["num_impossible_words"], metadata["word_surprisal_bits"]) == (num_infinite, None)


def test_pairs_and_suites_that_a_search_has_lost_are_counted(folder: Path) -> None:
    narrow = "{rnng-in-order-attention} --action-beam 1 --word-beam 1 --fast-track 0"
    (folder / "pairs.tsv").write_text("grammatical\tungrammatical\nthe dog barks\tthe dog bark\n")
    run, *_ = narrow.split()
    outcome = call(f"treelm pairs {narrow.replace(run, run + ' pairs.tsv')} --json", folder)
    assert json.loads(outcome.out)["num_pairs_with_impossible_sentences"] == 1
    assert "1 of 1 pairs have sentences of inf bits" in outcome.err
    assert "try a wider beam" in outcome.err
    outcome = call(f"treelm syntaxgym {narrow} --suites center_embed --json --references", folder)
    found = json.loads(outcome.out)["suites"]["center_embed"]
    assert 0 < found["num_impossible"] <= found["num_items"]
    assert f"{found['num_impossible']} of {found['num_items']} items have regions of inf bits" in outcome.err


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_that_cannot_show_a_sign_gets_another(folder: Path, encoding: str) -> None:
    outcome = call("treelm evaluate {rnng} --data train.ptb", folder, PYTHONIOENCODING=encoding)
    assert (outcome.code, outcome.err) == (0, "")
    assert b"perplexity" in outcome.out


def test_a_run_whose_name_is_not_utf_8_is_refused_by_that_name(folder: Path) -> None:
    outcome = call("cp -r {ngram} $'caf\\xe9' && treelm surprisal $'caf\\xe9' in.txt --output out.tsv", folder)
    assert_refused(outcome, r"caf\udce9/model.safetensors: not a complete safetensors file")


def test_metadata_may_name_an_input_that_is_not_utf_8(folder: Path) -> None:
    outcome = call("cp in.txt $'caf\\xe9.txt' && treelm surprisal {ngram} $'caf\\xe9.txt' --output out.tsv", folder)
    assert outcome.code == 0
    assert re.fullmatch(UNKNOWN, outcome.err)
    assert json.loads((folder / "out.tsv.json").read_text())["num_sentences"] == 2
