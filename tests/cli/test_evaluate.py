"""What ``treelm evaluate`` judges: the command line before the recipe, and every figure with what it is of."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import TREES, Treelm
from treelm.cli import run as run_treelm

RECIPE = """\
[data]
train = "train.ptb"
dev = "train.ptb"
[vocabulary]
min_count = 1
[model]
embedding_size = 4
hidden_size = 4
num_layers = 2
SYSTEM
[training]
batches = "stream"
batch_size = 2
max_steps = 1
[evaluation]
splits = ["dev"]
stream_rows = 5
"""
PALM = 'system = "palm"\nrational_size = 2\nscorer_size = 2\nresidual_size = 2\nmax_span = 3'
SYSTEMS = {"palm": PALM, "given": f'{PALM}\nattention = "given"', "lstm": 'system = "lstm"'}
ALONE, IN_A_ROW = "each sentence by itself", "in a stream of 5 rows"
GIVEN = "words are predicted with the trees of the file"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each of ``SYSTEMS``, whose recipes say nothing of streams."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "train.ptb").write_text(TREES, encoding="utf-8")
    for name, system in SYSTEMS.items():
        (folder / "recipe.toml").write_text(RECIPE.replace("SYSTEM", system), encoding="utf-8")
        assert run_treelm(["train", str(folder / "recipe.toml"), "--output", str(folder / name), "--quiet"]) == 0
    return folder


def with_stream(run: Path, stream: str) -> Path:
    """The same run, in whose recipe the stream is judged in this way."""
    path = run / "recipe.toml"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("stream = ")]
    at = lines.index("[evaluation]") + 1
    path.write_text("\n".join([*lines[:at], f'stream = "{stream}"', *lines[at:]]), encoding="utf-8")
    return run


def contexts(treelm: Treelm, run: Path, *options: str) -> list[str]:
    outcome = treelm("evaluate", run, "--json", *options)
    assert outcome.code == 0, outcome.err
    (result,) = json.loads(outcome.out)
    return [one["context"] for one in result["perplexities"]]


@pytest.mark.parametrize(
    ("recipe", "options", "judged"),
    [
        ("only", (), [IN_A_ROW]),
        ("only", ("--stream", "beside"), [ALONE, IN_A_ROW]),
        ("only", ("--stream", "no"), [ALONE]),
        ("only", ("--protocol", "plain"), [ALONE, IN_A_ROW]),
        ("only", ("--protocol", "plain", "--stream", "no"), [ALONE]),
        ("beside", ("--stream", "only"), [IN_A_ROW]),
        ("no", ("--stream", "beside"), [ALONE, IN_A_ROW]),
    ],
)
def test_the_command_line_wins_over_the_recipe(
    treelm: Treelm, runs: Path, recipe: str, options: tuple[str, ...], judged: list[str]
) -> None:
    assert contexts(treelm, with_stream(runs / "palm", recipe), *options) == judged


def test_a_protocol_and_a_folder_for_trees_bring_them_where_the_recipe_wants_the_stream_alone(
    treelm: Treelm, runs: Path, tmp_path: Path
) -> None:
    run = with_stream(runs / "palm", "only")
    call = ("evaluate", run, "--data", runs / "train.ptb", "--preprocess", "prpn", "--protocol", "wsj40")
    (result,) = json.loads(treelm(*call, "--json").out)
    assert [one["protocol"] for one in result["unlabeled_f1"]] == ["wsj40"]
    assert {"left-branching", "right-branching", "random"} <= {one["name"] for one in result["baselines"]}
    assert treelm("evaluate", run, "--trees", tmp_path / "trees").code == 0
    written = {path.name: len(path.read_text().splitlines()) for path in (tmp_path / "trees").iterdir()}
    assert written == {"dev.gold.ptb": 4, "dev.predicted.ptb": 4}


@pytest.mark.parametrize(
    "options",
    [("--stream", "only"), ("--stream", "only", "--cache-weight", "0.1"), ("--stream", "beside"), ("--stream", "no")],
)
def test_given_trees_are_named_beside_every_figure_that_they_made(
    treelm: Treelm, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    run, summary = with_stream(runs / "given", "beside"), tmp_path / "rows.tsv"
    assert treelm("evaluate", run, *options, "--summary", summary).out.count(GIVEN) == 1
    (result,) = json.loads(treelm("evaluate", run, *options, "--json").out)
    assert sum(GIVEN in one for one in result["notes"]) == 1
    with summary.open() as file:
        (row,) = csv.DictReader(file, delimiter="\t")
    assert row["notes"].count(GIVEN) == 1


def test_a_text_shorter_than_its_rows_is_refused(treelm: Treelm, runs: Path, tmp_path: Path) -> None:
    run = with_stream(runs / "palm", "beside")
    (tmp_path / "short.ptb").write_text("(S (NP (D the) (N dog)) (V barks))\n")
    files = ("--data", tmp_path / "short.ptb", runs / "train.ptb")
    refused = treelm("evaluate", run, *files)
    assert refused.code == 2
    assert f"{tmp_path}/short.ptb: a stream of 4 tokens for 5 rows; lower --stream-rows" in refused.err
    assert contexts(treelm, run, "--stream-rows", "4", *map(str, files[:2]))[1] == "in a stream of 4 rows"


def test_a_file_whose_name_tells_no_format_is_read_as_one_says(treelm: Treelm, runs: Path, tmp_path: Path) -> None:
    nameless, run = tmp_path / "trees", with_stream(runs / "palm", "beside")
    nameless.write_text(TREES)
    outcome = treelm("evaluate", run, "--data", nameless)
    assert "give --format" in outcome.err
    (named,) = json.loads(treelm("evaluate", run, "--data", runs / "train.ptb", "--json").out)
    (found,) = json.loads(treelm("evaluate", run, "--data", nameless, "--format", "brackets", "--json").out)
    assert {**found, "split": ""} == {**named, "split": ""}
    stream = json.loads(treelm("evaluate", run, "--stream", "only", "--split", "dev", "--json").out)[0]
    for notes in (named["notes"], stream["notes"]):
        assert notes[0].startswith("all sentences were in the training data")
    compared = treelm("compare", run, "--data", nameless, "--data-format", "brackets", "--format", "json")
    (row,) = json.loads(compared.out)["runs"]
    assert row["values"]["unlabeled_f1, plain"]


CANNOT_PARSE = 'the attention of this run is set by given trees (attention = "given"), so it cannot parse'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("evaluate given --stream beside --trees out", f"--trees out, but {CANNOT_PARSE}"),
        ("parse given in.txt --output out", CANNOT_PARSE),
        ("data annotate in.txt --parser given --output out", CANNOT_PARSE),
        ("train given/recipe.toml --output out --set training.select_by=unlabeled_f1", CANNOT_PARSE),
        ("surprisal given in.txt --output out", "given"),
        ("generate given --output out", "given"),
    ],
)
def test_what_a_run_with_given_trees_cannot_do_is_refused_before_any_output(
    treelm: Treelm, runs: Path, line: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    Path("in.txt").write_text("the dog barks .\n")
    outcome = treelm(*line.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert expected in outcome.err
    assert "in.txt" not in outcome.err
    assert not Path("out").exists()


def test_another_corpus_is_judged_by_its_name_or_folder(treelm: Treelm, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("the dog barks\n", encoding="utf-8")
    found = [
        json.loads(treelm("evaluate", runs / "lstm", "--corpus", corpus, "--split", "test", "--json", *more).out)[0]
        for corpus, more in ((tmp_path, ()), ("gum-open", ("--max-sentences", "3")))
    ]
    assert [(one["split"], one["num_sentences"], one["num_words"]) for one in found] == [
        ("test", 1, 3),
        ("test", 3, 21),
    ]
    by_data = json.loads(treelm("evaluate", runs / "lstm", "--data", tmp_path / "test.txt", "--json").out)[0]
    assert found[0]["perplexities"] == by_data["perplexities"]
    assert "no corpus 'gumopen'" in treelm("evaluate", runs / "lstm", "--corpus", "gumopen").err
    both = treelm("evaluate", runs / "lstm", "--corpus", "gum-open", "--data", tmp_path / "test.txt")
    assert (both.code, both.err) == (2, "treelm evaluate: --corpus with --data; remove one of them\n")


def test_splits_that_nobody_named_and_that_are_not_there_are_a_note(treelm: Treelm, runs: Path, tmp_path: Path) -> None:
    """What training says to do next works, whatever the recipe has."""
    run = tmp_path / "run"
    shutil.copytree(runs / "lstm", run)
    recipe = (run / "recipe.toml").read_text(encoding="utf-8")
    assert '    "dev",\n]' in recipe
    (run / "recipe.toml").write_text(recipe.replace('    "dev",\n]', '    "dev",\n    "test",\n]'), encoding="utf-8")
    outcome = treelm("evaluate", run, "--json")
    assert outcome.code == 0, outcome.err
    (result,) = json.loads(outcome.out)
    assert result["split"] == "dev"
    assert "the recipe has no test data" in result["notes"]
    assert "no test data" in treelm("evaluate", run, "--split", "test").err
