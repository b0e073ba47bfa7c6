"""``treelm syntaxgym`` and ``treelm pairs`` on a trained run."""

import csv
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Treelm, suite_of
from tests.legacy.make import HERE as RUNS
from treelm import load

SUITE = suite_of("barking", ("barks.", "dog."), ("barks", "the"))


def test_a_suite_is_scored_beside_published_models(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    path = tmp_path / "barking.json"
    path.write_text(json.dumps(SUITE))
    outcome = treelm("syntaxgym", project / "run", "--suites", path, "--json", "--references", "rnng/bllip-lg")
    figures = json.loads(outcome.out)
    barking = figures["suites"]["barking"]
    assert (outcome.code, barking["accuracy"], barking["num_items"]) == (0, 1.0, 2)
    assert 0 < figures["references"]["rnng/bllip-lg"]["sg_score"] < 1
    alone = treelm("syntaxgym", project / "run", "--suites", path, "--json", "--references", "none")
    assert json.loads(alone.out) == {**figures, "references": {}}
    wrong = treelm("syntaxgym", project / "run", "--suites", path, "--references", "rnng/bllip")
    assert (wrong.code, "no published model 'rnng/bllip'; did you mean" in wrong.err) == (2, True)
    circuit = [path.with_stem(name) for name in ("center_embed", "center_embed_mod")]
    for one in circuit:
        one.write_text(json.dumps({**SUITE, "meta": {**SUITE["meta"], "name": one.stem}}))
    shown = ["circuits" in treelm("syntaxgym", project / "run", "--suites", *circuit[:n]).out for n in (1, 2)]
    assert shown == [False, True]


def test_surprisals_of_another_program_give_the_same_result(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    path = tmp_path / "barking.json"
    path.write_text(json.dumps(SUITE))
    sentences = treelm("syntaxgym", "--sentences", "--suites", path).out.splitlines()
    assert sentences == ["the dog barks.", "the dog dog.", "the dog barks", "the dog the"]
    rows = ["sentence\tchar_start\tchar_end\tsurprisal_bits"]
    rows += [f"{text}\t0\t3\t1\n{text}\t4\t7\t1\n{text}\t8\t{len(text)}\t{'barks' not in text}" for text in sentences]
    (table := tmp_path / "other.tsv").write_text("\n".join(rows).replace("True", "9").replace("False", "2"))
    out = treelm("syntaxgym", "--surprisals", table, "--suites", path, "--json").out
    assert json.loads(out)["suites"]["barking"]["accuracy"] == 1.0


def test_pairs_of_several_runs_and_every_format_have_a_row_each(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    header, pairs = ("yes", "no", "kind"), [("the dog barks .", "dog the barks .", "a"), ("a cat .", "cat a .", "b")]
    (tmp_path / "p.csv").write_text("\n".join(";".join(row) for row in (header, *pairs)))
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps(dict(zip(header, row, strict=True))) for row in pairs))
    runs = (project / "run", RUNS / "on-lstm")  # called by its folder, as gardenpath and reading do
    columns = ("--good", "yes", "--bad", "no", "--group-by", "kind")
    tables = []
    for name in ("p.csv", "p.jsonl"):
        items = tmp_path / f"{name}.tsv"
        outcome = treelm("pairs", *runs, tmp_path / name, *columns, "--items", items, "--json")
        tables.append(items.read_text())
        figures = json.loads(outcome.out)["models"]
        assert (outcome.code, list(figures)) == (0, ["run", "on-lstm"])
        assert set(figures["on-lstm"]["groups"]["kind"]) == {"a", "b"}
    assert tables[0] == tables[1]
    rows = list(csv.DictReader(tables[0].splitlines(), delimiter="\t"))
    assert [(row["model"], row["pair"], row["kind"], row["good"]) for row in rows] == [
        (model, str(number), kind, good)
        for model in ("run", "on-lstm")
        for number, (good, _, kind) in enumerate(pairs, start=1)
    ]
    (alone,) = load(RUNS / "on-lstm").surprisal([pairs[0][0].split()])
    assert float(rows[2]["good_surprisal_bits"]) == pytest.approx(alone.total_bits, abs=1e-5)
    for row in rows:
        difference = float(row["bad_surprisal_bits"]) - float(row["good_surprisal_bits"])
        assert float(row["difference_bits"]) == pytest.approx(difference, abs=1e-5)
        assert row["is_correct"] == str(int(difference > 1e-3))
    shown = treelm("pairs", *runs, tmp_path / "p.csv", *columns).out
    assert ("kind: a" in shown, "on-lstm" in shown) == (True, True)
