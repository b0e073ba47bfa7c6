"""``treelm compare`` over systems with and without trees, words and searches."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import RECIPE, Treelm, suite_of
from treelm.cli import run as run_treelm
from treelm.evaluation.comparison import measure
from treelm.models.persistence.storage import load_model, save_model
from treelm.training.run_folder import load_run_recipe

SYSTEMS = {
    "counts": 'system = "ngram"\norder = 2\nfallback_discounts = [0.5, 1.0, 1.5]\n',
    "parser": 'system = "shift-reduce"\nsize = 12\nlanguage_model = false\n',
}


@pytest.fixture(scope="module")
def runs(project: Path) -> list[str]:
    start, _, rest = RECIPE.replace("epochs = 30", "epochs = 2").partition("[model]")
    training = "[training]" + rest.partition("[training]")[2]
    for name, model in SYSTEMS.items():
        recipe = f"{start}[model]\n{model}{'' if name == 'counts' else training}"
        (project / f"{name}.toml").write_text(recipe, encoding="utf-8")
        assert run_treelm(["train", str(project / f"{name}.toml"), "--output", str(project / name), "--quiet"]) == 0
    (project / "suite.json").write_text(json.dumps(suite_of("mine", ("barks", "zzz"))), encoding="utf-8")
    (project / "pairs.tsv").write_text("grammatical\tungrammatical\nthe dog barks .\tdog the . barks\n")
    return [str(project / name) for name in ("run", "counts", "parser")]


def test_seeds_are_runs_of_their_own_in_one_table_and_go_on_where_they_stopped(
    treelm: Treelm, project: Path, runs: list[str], tmp_path: Path
) -> None:
    command = ("train", project / "parser.toml", "--output", tmp_path / "out", "--quiet", "--seeds")
    assert treelm(*command, "1").code == 0
    first = (tmp_path / "out" / "seed-1" / "model.safetensors").stat()
    outcome = treelm(*command, "1", "2")
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "out" / "seed-1" / "model.safetensors").stat() == first
    assert [load_run_recipe(tmp_path / "out" / f"seed-{seed}").training.seed for seed in (1, 2)] == [1, 2]
    kept = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [row["name"] for row in kept["runs"]] == ["seed-1", "seed-2"]
    assert "mean of 2 seeds" in outcome.out
    assert "±" in outcome.out
    for arguments, expected in (
        ([*command, "1", "1"], "give each seed once"),
        (["train", project / "parser.toml", "--seeds", "1"], "add --output FOLDER"),
        (["train", "--resume", runs[0], "--seeds", "1"], "--seeds with --resume"),
        (["train", project / "counts.toml", "--output", tmp_path / "n", "--seeds", "1", "2"], "estimated"),
    ):
        refused = treelm(*arguments)
        assert refused.code == 2
        assert expected in refused.err
    assert not (tmp_path / "n").exists()


def test_every_run_is_a_row_with_what_its_system_has(treelm: Treelm, runs: list[str], tmp_path: Path) -> None:
    project, out = Path(runs[0]).parent, tmp_path / "out"
    options = ["--syntaxgym", str(project / "suite.json"), "--pairs", str(project / "pairs.tsv")]
    outcome = treelm("compare", *runs, *options, "--format", "csv", "--output", str(out))
    assert outcome.code == 0, outcome.err
    rnng, counts, parser = csv.DictReader(outcome.out.splitlines())
    assert (rnng["is_upper_bound"], counts["is_upper_bound"], parser["is_upper_bound"]) == ("1", "0", "")
    assert float(rnng["labeled_f1, evalb (collins, labelled)"]) > 0
    assert not counts["unlabeled_f1, plain"]
    assert parser["unlabeled_f1, plain"]
    assert rnng["suite, mine"] == counts["suite, mine"] == "1.0"
    assert rnng["minimal_pairs, pairs.tsv"]
    assert not parser["minimal_pairs, pairs.tsv"]
    assert float(counts["training_words_per_second"]) > 0
    assert float(rnng["scoring_words_per_second"]) > 0
    evaluated = json.loads(treelm("evaluate", runs[0], "--split", "test", "--json").out)
    assert float(rnng["perplexity"]) == pytest.approx(evaluated[0]["perplexities"][0]["perplexity"], rel=1e-9)
    assert {"comparison.json", "comparison.md", "comparison.csv", "comparison.tex"} <= {p.name for p in out.iterdir()}


def test_a_comparison_goes_on_with_what_is_kept(
    treelm: Treelm, runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = str(Path(runs[0]).parent / "suite.json")
    first = treelm("compare", *runs[:2], "--syntaxgym", suite, "--format", "json", "--output", str(tmp_path / "out"))
    for name in ("evaluate_run", "load", "score_suites"):
        monkeypatch.delattr(measure, name)
    again = treelm("compare", *runs[:2], "--syntaxgym", suite, "--format", "json", "--output", str(tmp_path / "out"))
    assert again.code == 0, again.err
    assert json.loads(again.out) == json.loads(first.out)


def test_figures_are_not_kept_for_weights_that_changed_meanwhile(
    treelm: Treelm, runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(runs[0], tmp_path / "run", ignore=lambda *_: ["measured"]))
    original = measure.evaluate_run

    def evaluate_and_train_on(*arguments: object, **options: object) -> object:
        result = original(*arguments, **options)  # type: ignore[arg-type]
        lm = load_model(run)
        lm.word_bias.data += 0.01
        save_model(lm, run)
        return result

    monkeypatch.setattr(measure, "evaluate_run", evaluate_and_train_on)
    outcome = treelm("compare", str(run))
    assert outcome.code == 2
    assert "the model changed while it was measured; wait until its training is over" in outcome.err
    assert not (run / "measured").exists()


def test_a_report_is_written_and_drawn_again_without_models(treelm: Treelm, runs: list[str], tmp_path: Path) -> None:
    page, sentences = tmp_path / "report.html", tmp_path / "chosen.txt"
    sentences.write_text("the dog sees the cat .\n", encoding="utf-8")
    outcome = treelm("compare", *runs, "--report", str(page), "--sentences", str(sentences))
    assert outcome.code == 0, outcome.err
    text = page.read_text(encoding="utf-8")
    assert "the dog sees the cat ." in text
    assert all(f"tree of {name}" in text for name in ("run", "parser"))
    assert all(name in text for name in ("date", "machine", "torch", f"--report {page}"))
    assert ": the beam, word by word" in text
    again = treelm("compare", str(tmp_path / "report.json"), "--report", str(tmp_path / "again.html"))
    assert again.code == 0, again.err
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == text


def test_a_report_does_not_draw_another_model_that_lies_where_the_row_s_was(
    treelm: Treelm, runs: list[str], tmp_path: Path
) -> None:
    run, sentences = tmp_path / "run", tmp_path / "chosen.txt"
    shutil.copytree(runs[0], run)
    sentences.write_text("the dog sees the cat .\n", encoding="utf-8")
    assert treelm("compare", run, "--output", tmp_path / "out").code == 0
    shutil.rmtree(run)
    shutil.copytree(runs[1], run)
    kept = tmp_path / "out" / "comparison.json"
    outcome = treelm("compare", kept, "--report", tmp_path / "r.html", "--sentences", sentences)
    assert outcome.code == 2
    assert "another model than the one that run was measured with" in outcome.err


def test_rows_of_a_kept_comparison_stand_beside_new_ones(treelm: Treelm, runs: list[str], tmp_path: Path) -> None:
    treelm("compare", runs[1], "--output", str(tmp_path))
    outcome = treelm("compare", str(tmp_path / "comparison.json"), runs[2], "--format", "csv")
    assert [row["run"] for row in csv.DictReader(outcome.out.splitlines())] == ["counts", "parser"]
