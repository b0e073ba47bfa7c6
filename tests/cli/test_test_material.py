"""``treelm syntaxgym`` and ``treelm pairs`` on a trained run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Treelm
from treelm.models.rnng.network import RNNG

SUITE: dict[str, Any] = {
    "meta": {"name": "barking", "metric": "sum"},
    "predictions": [{"type": "formula", "formula": "(2;%learned%) < (2;%odd%)"}],
    "items": [
        {
            "item_number": number,
            "conditions": [
                {
                    "condition_name": name,
                    "regions": [
                        {"region_number": 1, "content": "the dog"},
                        {"region_number": 2, "content": content},
                    ],
                }
                for name, content in (("learned", learned), ("odd", odd))
            ],
        }
        for number, (learned, odd) in enumerate([("barks.", "dog."), ("barks", "the")], start=1)
    ],
}


def test_a_suite_is_scored_beside_published_models(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    path = tmp_path / "barking.json"
    path.write_text(json.dumps(SUITE))
    outcome = treelm("syntaxgym", project / "run", "--suites", path, "--json", "--references", "rnng/bllip-lg")
    figures = json.loads(outcome.out)
    assert outcome.code == 0
    assert figures["suites"]["barking"]["accuracy"] == 1.0
    assert figures["suites"]["barking"]["num_items"] == 2
    assert 0 < figures["references"]["rnng/bllip-lg"]["sg_score"] < 1


def test_two_processes_find_the_same_as_one_and_a_second_call_scores_nothing(
    treelm: Treelm, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = json.loads(json.dumps(SUITE).replace("dog", "cat"))
    suite["items"] = [
        *SUITE["items"],
        *({**item, "item_number": number} for number, item in enumerate(suite["items"], 3)),
    ]
    path = tmp_path / "barking.json"
    path.write_text(json.dumps({**suite, "meta": {"name": "more-barking", "metric": "sum"}}))
    call = ("syntaxgym", project / "run", "--suites", path, "--json", "--batch-size", "1")
    outcomes = []
    for cache, processes in (("one", 1), ("two", 2)):
        monkeypatch.setenv("TREELM_CACHE", str(tmp_path / cache))
        outcomes.append(treelm(*call, "--processes", str(processes)))
    assert outcomes[0].code == 0
    assert outcomes[0].out == outcomes[1].out
    one, two = (sorted((tmp_path / cache).glob("syntaxgym/*.jsonl")) for cache in ("one", "two"))
    assert one[0].read_bytes() == two[0].read_bytes()

    def refuse(*_: object) -> None:
        raise AssertionError("scored again")

    monkeypatch.setattr(RNNG, "score", refuse)
    monkeypatch.setenv("TREELM_TRACEBACK", "1")
    assert treelm(*call).out == outcomes[0].out
    again = treelm(*call, "--fresh")
    assert (again.code, "scored again" in again.err) == (70, True)


def test_surprisals_of_another_program_give_the_same_result(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    path = tmp_path / "barking.json"
    path.write_text(json.dumps(SUITE))
    sentences = treelm("syntaxgym", "--sentences", "--suites", path).out.splitlines()
    assert sentences == ["the dog barks.", "the dog dog.", "the dog barks", "the dog the"]
    rows = ["sentence\tchar_start\tchar_end\tsurprisal_bits"]
    rows += [f"{text}\t0\t3\t1\n{text}\t4\t7\t1\n{text}\t8\t{len(text)}\t{'barks' not in text}" for text in sentences]
    table = tmp_path / "other.tsv"
    table.write_text("\n".join(rows).replace("True", "9").replace("False", "2"))
    outcome = treelm("syntaxgym", "--surprisals", table, "--suites", path, "--json")
    assert json.loads(outcome.out)["suites"]["barking"]["accuracy"] == 1.0


def test_a_sentence_without_surprisals_is_named(treelm: Treelm, tmp_path: Path) -> None:
    table = tmp_path / "other.tsv"
    table.write_text("sentence\tchar_start\tchar_end\tsurprisal_bits\nx\t0\t1\t1.0\n")
    outcome = treelm("syntaxgym", "--surprisals", table)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "no surprisals for 'The painting that the artist painted deteriorated'" in outcome.err


def test_table_for_people(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    path = tmp_path / "barking.json"
    path.write_text(json.dumps(SUITE))
    outcome = treelm("syntaxgym", project / "run", "--suites", path, "--references")
    assert "barking" in outcome.out
    assert "100.0" in outcome.out


def test_minimal_pairs(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("yes\tno\tkind\nthe dog barks .\tdog the barks .\torder\na cat sleeps .\ta cat cat .\tword\n")
    arguments = ("pairs", project / "run", path, "--good", "yes", "--bad", "no", "--group-by", "kind")
    outcome = treelm(*arguments, "--json")
    figures = json.loads(outcome.out)
    assert outcome.code == 0
    assert figures["overall"] == {"accuracy": 1.0, "correct": 2, "ties": 0, "pairs": 2}
    assert set(figures["groups"]["kind"]) == {"order", "word"}
    assert figures["log_probabilities_are_lower_bounds"] is True
    assert "kind: order" in treelm(*arguments).out
