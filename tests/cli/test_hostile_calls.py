"""Calls that cannot be answered: one line, exit code 2, nothing written, and no sentence scored before."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.conftest import RECIPE, Outcome, Treelm
from tests.legacy.make import HERE as RUNS
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser

SRC = Path(__file__).parents[2] / "src"
TREE = "(S (NP (D The) (N city)) (VP (V was) (ADJP (J old))) (. .))\n"
CONLLU = "# text = The city\n1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\tcity\tcity\tNOUN\t_\t_\t0\troot\t_\t_\n"
TIMES = "--corpus times.csv --document-column text --sentence-column sentence"

CALLS = """
no-such-subcommand                                           | no subcommand 'no-such-subcommand'
surprisl x                                                   | did you mean surprisal?

parse                                                        | the following arguments are required: RUN
parse run --word-bem 3                                       | did you mean --word-beam? see treelm parse --help
parse run --threshold 3 --threshol 3                         | --threshol 3; see treelm parse --help
parse run in.txt out.txt                                     | unrecognized arguments: out.txt
parse run --batch-size ١٦                                    | argument --batch-size: invalid integer value:
parse '' in.txt                                              | no run given
parse rnng-gum-opn in.txt                                    | did you mean rnng-gum-open?
parse in.txt in.txt                                          | in.txt: no such run folder
parse no-weights in.txt                                      | no-weights
parse weights-dir in.txt                                     | model.safetensors
parse run binary.txt                                         | binary.txt:
parse run dir --format text                                  | dir: cannot be read (Is a directory)
parse run in.txt --output no/out.ptb                         | no folder no
parse run in.txt --output /proc/out.ptb                      | /proc/
parse run in.txt --output out.ptb.gz                         | cannot write compressed files; give a name without
parse run in.txt --figure tree.png                           | cannot draw into tree.png
parse run in.txt --batch-size 0                              | --batch-size 0
parse run in.txt --processes 0                               | --processes 0; give 1 or more
parse run in.txt --num-particles 5                           | --num-particles with search by
parse {transformer-grammar} in.txt --search released         | transformer-grammar: search by 'released', which is that
parse 'run\x1b[31mred' in.txt                               | run\\x1b[31mred: no such run folder
parse no-run link.ptb --output hard.ptb                      | hard.ptb: the output is the input
parse no-run in.ptb --figure drawn.svg                       | drawn.svg: the output is the input
parse no-run in.ptb --figure a.svg --output ./a.svg           | a.svg: trees and a figure in one file; give each

surprisal                                                    | required: RUN ... FILE
surprisal dir in.txt                                         | config.json: no such file
surprisal run run in.txt                                     | two models of the name 'run'; give --names
surprisal run in.txt --names a b                             | 2 names for 1 runs
surprisal run in.txt --names ''                              | the name ''; give names of letters
surprisal run lstm-gum-open                                  | no file, but a run: lstm-gum-open; name the file last
surprisal run in.txt --split-sentences xx                    | no rules for sentences of language 'xx'
surprisal run in.txt --columns open_node                     | did you mean open_nodes?
surprisal run in.txt --columns open_nodes open_nodes         | the column 'open_nodes' twice; name each once
surprisal run in.txt --columns distance --output out.tsv     | no column 'distance' from rnng
surprisal run in.txt --threshold nan                         | threshold is nan
surprisal run in.txt --search released --search-seed 1       | --search-seed with search by
surprisal run in.txt --frequencies wordfreq:en               | without the column 'zipf_frequency'
surprisal run latin.txt --output out.tsv                     | latin.txt:1: byte 0xe9 is not UTF-8
surprisal {ngram} dir                                        | dir: a folder
surprisal {ngram} loop.ptb                                   | levels of symbolic links
surprisal run blank.txt --output out.tsv                     | blank.txt: no sentences
surprisal no-run in.txt --output out.TSV.gz                  | file ending in .gz; end its name in .tsv, .txt, .csv
surprisal no-run in.ptb --output link.ptb                    | link.ptb: the output is the input
surprisal no-run in.ptb --output out.tsv                     | out.tsv.json: the output is the input

generate run --num-sentences -3                              | --num-sentences -3
generate run --seed 99999999999999999999                     | seed
generate {lstm} --trees                                      | lstm is a language model without trees
generate run --temperature 1e-320                            | temperature
audit run in.txt --num-sentences -1                          | --num-sentences -1
export {ngram} --to arpa --output no/x.arpa                  | no folder no
explore --port 70000                                         | --port 70000
explore ngram-gum-open ngram-gum-open                        | the same run twice
explore --max-seconds long                                   | argument --max-seconds: invalid number value: 'long'

data frob                                                    | argument ACTION: invalid choice: 'frob'
data --format text annotate in.txt                           | options before annotate; begin with treelm data annotate
data show gum-opn                                            | did you mean gum-open?
data statistics no-such-file                                 | no-such-file
data statistics in.ptb --output dir                          | --output with statistics; remove one of them
data list gum-open                                           | list takes no names; describe a corpus by treelm data
data prepare in.txt --output dir                             | dir: the directory exists
data text8 train.txt --output .                              | train.txt: the output is the input
data annotate in.txt --parser benepar --output o --action-beam 3 | a search for benepar
data annotate in.txt --parser {lstm} --output out.ptb        | lstm is a language model without trees
data sections nowhere --splits ptb-lm --output o             | no such folder
data align in.txt --text in.txt --output o                   | in.txt:1: a sentence without a tree
data align in.ptb --text in.txt --output in.txt              | the output is the input

train                                                        | no recipe; give one and --output RUN, or --resume RUN
train r.toml --resume run                                    | a recipe beside --resume run; remove one of them
train r.toml                                                 | no run folder; add --output RUN
train --resume run --output run                              | --output with --resume
train no-such-recipe --output somewhere                      | no such recipe, and no file; choose from: awd-lstm-demo,
train demo --output x --set training.epoch=3                 | did you mean epochs?
train demo --output x --set "training.start_from=''"         | no run given
train unclosed.toml --output x                               | unclosed.toml:1: not TOML
train nul.toml --output x                                    | train = 'tr.ptb\\x00' holds a NUL character; remove it
train pipe.toml --output x                                   | pipe.toml: no regular file
train loop.toml --output x                                   | levels of symbolic links
train r.toml --output run                                    | already holds a run
train --resume rum                                           | rum: no run to resume; give the folder that training
train --resume rnng-gum-open                                 | from this model: --set training.start_from=rnng
demo --recipes r.toml ./r.toml                               | two recipes of one name
demo --jobs 0                                                | --jobs 0

evaluate                                                     | cannot tell what to evaluate
evaluate run in.ptb                                          | did you mean --data in.ptb?
evaluate run --data in.ptb nothere.ptb                       | nothere.ptb: no such file
evaluate run --data in.ptb --summary no/s.tsv                | no folder no
evaluate run --data in.ptb --trees in.txt                    | in.txt: not a folder
evaluate run --data in.ptb dir/in.ptb --trees out            | two files of one name
evaluate run --data in.ptb --sentences                       | --sentences without --gold
evaluate run --data in.ptb --split train                     | --split with --data; remove one of them
evaluate run --data in.ptb --stream beside                   | rnng reads whole sentences, not streams
evaluate run --format brackets                               | --format without --data; add --data, or remove this
evaluate run --stream-rows 1                                 | --stream-rows 1 without --stream beside; add
evaluate run --stream only --protocol wsj40                  | --protocol wsj40 with --stream only; remove one of them
evaluate {lstm} --data in.ptb --protocol wsj40               | --protocol wsj40, but lstm is a language model without
evaluate {lstm} --data in.tsv --format brackets --summary in.tsv | in.tsv: the output is the input
evaluate {rnng} --data in.ptb --trees .                      | in.ptb.gold.ptb: the output is the input
evaluate --gold no-such-file --predicted no-such-file        | no-such-file
evaluate --gold in.txt --predicted in.ptb                    | no line begins with a bracket: these are no trees
evaluate --gold in.ptb --predicted in.ptb --summary s.tsv    | --summary with --gold

compare run run                                              | the same run twice
compare run dir                                              | no trained model here; give dir/comparison.json
compare run --report report.pdf                              | .html
compare run --sentences a.txt                                | --sentences without --report
compare run --report r.html --sentences no.txt               | no.txt
compare run --pairs bad.jsonl                                | bad.jsonl:2
compare run --pairs pairs.tsv --max-pairs-per-group 0        | --max-pairs-per-group 0
compare run --pairs mine.tsv                                 | there are 'yes', 'no'
compare run --pairs mine.tsv --good yes --bad wrong          | there are 'yes', 'no'
compare run --good yes                                       | --good without --pairs; add --pairs
compare run --data-format brackets                           | --data-format without --data
compare run --data in.ptb --split train                      | --split with --data; remove one of them
compare run --syntaxgym typo                                 | typo
compare run --output in.txt                                  | in.txt: not a folder
compare lstm-gum-open --reading-data .                       | --reading-data without --reading
compare lstm-gum-open --reading ucl --reading-data .         | may not be shipped
compare no-run --data in.html --report in.html               | in.html: the output is the input
compare no-run --pairs comparison.csv --output .             | comparison.csv: the output is the input

structure {prpn} {prpn} --data in.ptb                        | the same run twice
structure {lstm} --data in.ptb                               | without trees
structure {prpn} --data in.ptb --draws 0                     | --draws 0; give 1 or more
structure {palm} --data in.ptb --rules 2                     | palm: palm has no rules to list
structure {neural-pcfg} --rules -1                           | --rules -1; give 1 or more
structure {neural-pcfg} --rules 3 --json                     | --rules with --json

pairs {lstm}                                                 | no file, but a run
pairs {ngram} none.tsv --good yes --bad no                   | no pairs; give a file
pairs {lstm} cut.tsv.gz                                      | cut.tsv.gz: packed data is truncated or damaged
pairs run pairs.tsv --items pairs.tsv                        | pairs.tsv: the output is the input
syntaxgym --surprisals bits.tsv --action-beam 10             | --action-beam with --surprisals; remove one of them
syntaxgym --surprisals bits.tsv                              | bits.tsv:2: 'many' is not a number
syntaxgym --surprisals few.tsv                               | no surprisals for 'The painting that the artist painted
syntaxgym run --sentences                                    | RUN with --sentences; remove one of them
syntaxgym                                                    | cannot tell what to evaluate
syntaxgym lstm-gum-open --suites number_orcs                 | did you mean number_orc?

gardenpath --references none                                 | nothing to measure
gardenpath --references gpt9                                 | no published model 'gpt9'
gardenpath gpt3 --subsets agreement                          | gpt3: no such run folder; did you mean gpt2? give
gardenpath nowhere                                           | , or a published model: gpt2, lstm, rnng, or hf:NAME of
gardenpath nowhere.tsv:bits                                  | nowhere.tsv:bits: no such table; check the path
gardenpath run ./run                                         | two models named run
gardenpath gpt2 --items nowhere/items.csv                    | no folder nowhere
reading lstm-gum-open --corpus nothing.csv                   | no corpus 'nothing.csv'
reading --corpus natural-story                               | did you mean natural-stories? name natural-stories or ucl
reading --corpus ucl --class-column pos                      | --class-column with ucl
reading --corpus natural-stories --data .                    | may not be shipped
reading ngram-gum-open {times} --data .                      | --data with a table
reading ngram-gum-open {times} --over bits                   | no model 'bits'; choose from: ngram-gum-open
reading rts {times} --surprisal-columns rt                   | rts: no such run folder; did you mean rt? give
reading ngram-gum-open {times} --response rt2                | no response 'rt2'
reading ngram-gum-open {times} --baseline no                 | no predictor 'no'
reading ngram-gum-open {times} --export dir                  | dir: a folder; give the name of a file

reproduce                                                    | no paper is named; choose one of
reproduce prpn --table 44                                    | no 'table 44' in prpn; choose of
reproduce prpn --jobs 0                                      | --jobs 0; give 1 or more
reproduce prpn --budget -1                                   | --budget -1.0; give 0 or more minutes
reproduce prpn --data nowhere                                | nowhere: no such folder
reproduce prpn --small --only x                              | no run 'x'

models nothing                                               | no model 'nothing' in the package; it has
completion tcsh                                              | argument SHELL: invalid choice: 'tcsh'
"""
REFUSED = [tuple(map(str.strip, line.split("|"))) for line in CALLS.splitlines() if line]


@pytest.fixture
def folder(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with what the calls name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TREELM_CATALOG", str(tmp_path / "no-catalog.toml"))
    times = (f"{n // 4},{n},w{n},3{n}\n{n // 4},{n},dog,2\n" for n in range(16))
    texts = {
        **dict.fromkeys(("in.ptb", "in.tsv", "in.html", "comparison.csv", "dir/in.ptb", "dir/words.csv"), TREE),
        "in.txt": "The city was old .\nI think so .\n",
        "train.txt": "one two",
        "dir/comparison.json": "{}",
        "blank.txt": "\n \t\n\n",
        "bits.tsv": "sentence\tchar_start\tchar_end\tsurprisal_bits\nYes\t0\t3\tmany\n",
        "few.tsv": "sentence\tchar_start\tchar_end\tsurprisal_bits\nx\t0\t1\t1.0\n",
        "pairs.tsv": "grammatical\tungrammatical\nthe dog barks .\tdog the . barks\n",
        "none.tsv": "yes\tno\n",
        "mine.tsv": "yes\tno\nthe dog barks .\tdog the . barks\n",
        "bad.jsonl": '{"sentence_good": "a", "sentence_bad": "b"}\n{"sentence_good"\n',
        "times.csv": "text,sentence,word,rt\n" + "".join(times),
        "r.toml": RECIPE.replace('"train.ptb"', '"in.ptb"'),
        "unclosed.toml": "[data\n",
        "nul.toml": '[data]\ntrain = "tr.ptb\\u0000"\n[model]\nsystem = "ngram"\n',
        "loop.toml": '[data]\ntrain = "loop.ptb"\n[model]\nsystem = "ngram"\n',
    }
    (tmp_path / "dir").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.txt").write_bytes("le caf\xe9 .\nThe city was old .\n".encode("latin-1"))
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "cut.tsv.gz").write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03K")
    os.mkfifo(tmp_path / "pipe.toml")
    for loop in ("loop", "loop.ptb"):
        (tmp_path / loop).symlink_to(loop)
    (tmp_path / "link.ptb").symlink_to("in.ptb")
    for name in ("hard.ptb", "drawn.svg", "out.tsv.json", "in.ptb.gold.ptb"):
        os.link(tmp_path / "in.ptb", tmp_path / name)
    (tmp_path / "run").symlink_to(project / "run")
    without_weights = shutil.ignore_patterns("model.safetensors")
    shutil.copytree(RUNS / "rnng", tmp_path / "no-weights", ignore=without_weights)
    shutil.copytree(RUNS / "rnng", tmp_path / "weights-dir", ignore=without_weights)
    (tmp_path / "weights-dir" / "model.safetensors").mkdir()
    return tmp_path


def assert_refused(outcome: Outcome, expected: str) -> None:
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.startswith("treelm ")
    assert expected in outcome.err


def content(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*") if "cache" not in path.parts}


def named(line: str) -> str:
    """The line with the paths of old runs in the place of {name}."""
    for run in sorted(os.listdir(RUNS), reverse=True):
        line = line.replace(f"{{{run}}}", shlex.quote(str(RUNS / run)))
    return line.replace("{times}", TIMES)


@pytest.mark.parametrize(("line", "expected"), REFUSED, ids=[line for line, _ in REFUSED])
def test_calls_that_cannot_be_are_refused_before_any_work(
    line: str, expected: str, folder: Path, treelm: Treelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **options: Any) -> None:
        raise AssertionError("work before the refusal")

    for kind, method in ((LanguageModel, "score"), (LanguageModel, "analyse"), (Parser, "parse")):
        monkeypatch.setattr(kind, method, fail)
    before = content(folder)
    assert_refused(treelm(*shlex.split(named(line))), expected)
    assert content(folder) == before


def call(line: str, folder: Path, programs: Path | None = None) -> Outcome:
    """A shell line in a folder; ``treelm`` is the program, or that of the given folder, ``{name}`` an old run."""
    treelm = "" if programs else f'treelm() {{ {sys.executable} -m treelm "$@"; }}; '
    line = f"{treelm}set -o pipefail; {named(line)}"
    path = os.pathsep.join([*([str(programs)] if programs else []), os.environ["PATH"]])
    settings = {**os.environ, "PATH": path, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", line], cwd=folder, env=settings, capture_output=True, check=False)
    lines = done.stderr.decode().splitlines(keepends=True)  # on a busy machine, some say what is going on
    return Outcome(done.returncode, done.stdout.decode(), "".join(one for one in lines if not one.endswith(" ...\n")))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("treelm parse {rnng} - <&-", "standard input is closed"),
        ("treelm parse {rnng} in.txt >&-", "standard output is closed"),
    ],
)
def test_closed_streams_are_refused(line: str, expected: str, folder: Path) -> None:
    assert_refused(call(line, folder), expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("treelm surprisal {lstm} in.txt > /dev/full", "standard output: cannot"),
        ("treelm surprisal {lstm} in.txt --output /dev/full", "/dev/full: cannot"),
        ("treelm parse $'caf\\xe9' in.txt", "caf"),
        (
            "cp -r {ngram} $'caf\\xe9' && treelm surprisal $'caf\\xe9' in.txt --output out.tsv",
            r"caf\udce9/model.safetensors: not a complete safetensors file",
        ),
    ],
)
def test_streams_and_names_that_cannot_be_used_are_refused(
    line: str, expected: str, folder: Path, preloaded: Path
) -> None:
    assert_refused(call(line, folder, preloaded), expected)


def test_a_reader_that_leaves_early_ends_it_quietly(folder: Path) -> None:
    (folder / "long.txt").write_text("The city was old .\n" * 2000)
    line = "treelm surprisal {ngram} long.txt | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}"
    assert call(line, folder) == (0, "", "")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read and write anything")
@pytest.mark.parametrize("line", ["parse run in.txt", "parse run in.ptb --output dir/out.ptb"])
def test_what_may_not_be_read_or_written_is_named(folder: Path, treelm: Treelm, line: str) -> None:
    (folder / "in.txt").chmod(0)
    (folder / "dir").chmod(0o500)
    assert_refused(treelm(*line.split()), "Permission denied")


@pytest.mark.parametrize("option", ["--data", "--pairs", "--syntaxgym"])
def test_a_pipe_that_several_models_would_read_is_refused(folder: Path, treelm: Treelm, option: str) -> None:
    assert_refused(treelm("compare", "run", option, "pipe.toml"), "it can be read only once")


@pytest.mark.parametrize(("content", "format"), [(TREE, "brackets"), (CONLLU, "conllu")])
@pytest.mark.parametrize("line", ["surprisal run -", "parse run -", "data annotate - --parser run --output out.ptb"])
def test_trees_on_standard_input_are_not_taken_for_text(
    content: str, format: str, line: str, folder: Path, treelm: Treelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "given").write_text(content)
    with (folder / "given").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert_refused(treelm(*line.split()), f"give --format {format}, or --format text if")
    with (folder / "given").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert treelm(*line.split(), "--format", format).code == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize(
    "line",
    [
        "surprisal run in.txt",
        "parse run in.txt",
        "generate run",
        "evaluate run",
        "syntaxgym run",
        "pairs run pairs.tsv",
        "compare run --output new",
        "data annotate in.txt --parser run --output out.ptb",
    ],
)
def test_a_gpu_that_is_not_there_is_told(folder: Path, treelm: Treelm, line: str) -> None:
    assert_refused(treelm(*line.split(), "--device", "cuda"), "torch finds no GPU")
