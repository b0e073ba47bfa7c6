import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.evaluation.toys import ToyLM
from treelm.errors import InputError
from treelm.evaluation.syntaxgym.results import (
    accuracies,
    as_json,
    circuit_accuracies,
    circuits,
    overall_score,
    read_surprisals,
    references,
)
from treelm.evaluation.syntaxgym.scoring import (
    OUTCOME_COLUMNS,
    ScoredToken,
    SuiteResult,
    evaluate_suite,
    score_suites,
    write_sentences,
)
from treelm.evaluation.syntaxgym.suites import Suite, load_suites, packaged_suites
from treelm.figures.tables import circuit_table


def suite_values(**changes: Any) -> dict[str, Any]:
    def regions(*contents: str) -> list[dict[str, Any]]:
        return [{"region_number": n, "content": content} for n, content in enumerate(contents, start=1)]

    values = {
        "meta": {"name": "tiny", "metric": "sum"},
        "predictions": [{"type": "formula", "formula": "(2;%good%) < (2;%bad%)"}],
        "items": [
            {
                "item_number": 1,
                "conditions": [
                    {"condition_name": "good", "regions": regions("the dogs", "bark", "")},
                    {"condition_name": "bad", "regions": regions("the dogs", "barks", "")},
                ],
            }
        ],
    }
    return {**values, **changes}


def load(tmp_path: Path, values: dict[str, Any]) -> list[Suite]:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(values))
    return load_suites([str(path)])


def words(text: str, bits: Sequence[float], unknown: Sequence[str] = ()) -> list[ScoredToken]:
    found, position = [], 0
    for word, value in zip(text.split(), bits, strict=True):
        start = text.index(word, position)
        position = start + len(word)
        found.append(ScoredToken(start=start, end=position, surprisal_bits=value, is_unk=word in unknown))
    return found


def test_all_packaged_suites_are_read() -> None:
    suites = packaged_suites()
    assert len(suites) == 34
    assert sum(len(suite.items) for suite in suites.values()) == 842
    assert {suite.metric for suite in suites.values()} == {"sum"}


def test_all_suites_evaluate_by_hand_made_surprisals() -> None:
    """Surprisal = number of letters: every outcome follows from the words."""
    suites = load_suites()
    tokens = {text: words(text, [float(len(word)) for word in text.split()]) for text in write_sentences(suites)}
    results = {suite.name: evaluate_suite(suite, tokens) for suite in suites}
    number = packaged_suites()["number_orc"]
    for item, holds in zip(number.items, results["number_orc"].outcomes["holds"], strict=True):
        length = {c.name: len(dict(c.regions)[7].replace(" ", "")) for c in item.conditions}
        expected = length["match_sing"] < length["mismatch_sing"] and length["match_plural"] < length["mismatch_plural"]
        assert holds == expected
    assert all(len(results[suite.name].outcomes) == len(suite.items) * len(suite.formulas) for suite in suites)
    assert set(circuit_accuracies(accuracies(list(results.values())))) == set(circuits())


def test_packaged_formulas_do_not_depend_on_associativity() -> None:
    """SyntaxGym's tool binds + before -; ours goes from left to right. Brackets decide in every suite."""
    for suite in packaged_suites().values():
        for formula in suite.formulas:
            for part in formula.replace("[", "|").replace("]", "|").split("|"):
                signs = [sign for sign in part.split("%)") if sign.strip()[:1] in ("+", "-")]
                assert len(signs) <= 1


def test_unknown_words_outside_formula_regions(tmp_path: Path) -> None:
    (suite,) = load(tmp_path, suite_values())
    good, bad = write_sentences([suite])
    outside = evaluate_suite(suite, {good: words(good, [1, 1, 1], {"dogs"}), bad: words(bad, [1, 1, 2])})
    inside = evaluate_suite(suite, {good: words(good, [1, 1, 1]), bad: words(bad, [1, 1, 2], {"barks"})})
    assert (outside.num_with_unknown(), outside.accuracy_without_unknown()) == (0, 1.0)
    assert (inside.num_with_unknown(), inside.accuracy(), inside.accuracy_without_unknown()) == (1, 1.0, None)


def test_accuracy_without_unknown_words() -> None:
    regions = pd.DataFrame({"item": [1, 2], "surprisal_bits": 1.0})

    def result(suite: str, *, all_unknown: bool) -> SuiteResult:
        rows = [(1, 0, False, True), (2, 0, True, all_unknown)]
        outcomes = pd.DataFrame(rows, columns=list(OUTCOME_COLUMNS))
        return SuiteResult(suite=suite, formulas=("",), outcomes=outcomes, regions=regions)

    names = [suite for suites in circuits().values() for suite in suites]
    results = [result(name, all_unknown=False) for name in names]
    found = as_json(results)
    assert (found["sg_score"], found["sg_score_without_unknown"]) == (0.5, 1.0)
    assert found["circuits_without_unknown"] == dict.fromkeys(circuits(), 1.0)
    shown = circuit_table({"rnng": results})
    assert shown.headings[1:] == ["accuracy", "without unknown"]
    assert [row[2] for row in shown.rows] == ["100.0"] * 7
    first, *_ = circuits()
    found = as_json([result(name, all_unknown=name == circuits()[first][0]) for name in names])
    assert found["sg_score_without_unknown"] is None
    assert first not in found["circuits_without_unknown"]


def test_empty_region_has_no_mean(tmp_path: Path) -> None:
    values = suite_values(meta={"name": "tiny", "metric": "mean"})
    values["predictions"] = [{"type": "formula", "formula": "(3;%good%) < (2;%bad%)"}]
    (suite,) = load(tmp_path, values)
    good, bad = write_sentences([suite])
    with pytest.raises(InputError, match="region 3 of 'good' is empty: it has no mean"):
        evaluate_suite(suite, {good: words(good, [1, 1, 1]), bad: words(bad, [1, 1, 2])})


def test_a_model_is_scored_and_its_end_counts_on_demand(tmp_path: Path) -> None:
    values = suite_values()
    for condition, word in zip(values["items"][0]["conditions"], ("b+d", "c"), strict=True):
        condition["regions"] = [{"region_number": 1, "content": "a a"}, {"region_number": 2, "content": word}]
    (suite,) = load(tmp_path, values)
    lm = ToyLM()
    (plain,), (end,) = (score_suites(lm, [suite], tokenisation="whitespace", with_end=end) for end in (False, True))
    surprisals = lm.surprisal(["a a b+d", "a a c"])
    last = [one.words[-1].surprisal_bits for one in surprisals]
    ends = [one.end_surprisal_bits for one in surprisals]
    assert plain.accuracy() == (last[0] < last[1])
    assert end.accuracy() == (last[0] + ends[0] < last[1] + ends[1])


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"predictions": [{"formula": "(2;%good%) < (2;%worse%)"}]}, "no region 2 in condition 'worse'"),
        ({"predictions": [{"formula": "(2;%good%) <"}]}, "cannot be read"),
        ({"predictions": []}, "no items or no predictions"),
        ({"meta": {"metric": "total"}}, "metric 'total'"),
        ({"items": "x"}, "not a test suite"),
    ],
)
def test_bad_suite_is_one_line(tmp_path: Path, changes: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, suite_values(**changes))
    assert part in str(error.value)
    assert "tiny.json" in str(error.value)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 1], r"item 1: regions \[1, 2\] in condition 'bad', where others have \[1, 2, 3\]; .*\"content\": \"\""),
        ([1, 0, 2], r"item 1: regions \[2, 1, 3\] in condition 'bad'"),
    ],
)
def test_every_condition_has_all_regions_in_order(tmp_path: Path, order: list[int], message: str) -> None:
    values = suite_values()
    condition = values["items"][0]["conditions"][1]
    condition["regions"] = [condition["regions"][place] for place in order]
    with pytest.raises(InputError, match=message):
        load(tmp_path, values)


def test_published_scores() -> None:
    known = references()
    assert len(known) == 33
    gpt2 = known["gpt-2-xl-pretrained/pretrained"]
    assert gpt2.accuracies["fgd_hierarchy"] == pytest.approx(0.7083)
    assert overall_score(known["1gram/bllip-lg"].accuracies) == 0.0
    assert overall_score(gpt2.accuracies) == pytest.approx(0.8, abs=0.2)


def test_surprisals_of_another_program(tmp_path: Path) -> None:
    (suite,) = load(tmp_path, suite_values())
    rows = ["sentence\tchar_start\tchar_end\tsurprisal_bits\tis_unk"]
    for text in write_sentences([suite]):
        for token in words(text, [1.0, 2.0, float(len(text))]):
            rows.append(f"{text}\t{token.start}\t{token.end}\t{token.surprisal_bits}\t0")
    table = tmp_path / "other.tsv"
    table.write_text("\n".join(rows) + "\n")
    assert evaluate_suite(suite, read_surprisals(table)).accuracy() == 1.0
    spreadsheet = tmp_path / "other.csv"  # where a comma is the decimal point
    spreadsheet.write_text(
        "\n".join(re.sub(r"\t(\d+)\.(\d+)", r"\t\1,\2", row).replace("\t", ";") for row in rows) + "\n"
    )
    assert read_surprisals(spreadsheet) == read_surprisals(table)


def test_every_region_is_a_row(tmp_path: Path) -> None:
    (suite,) = load(tmp_path, suite_values())
    good, bad = write_sentences([suite])
    result = evaluate_suite(suite, {good: words(good, [1, 2, 3]), bad: words(bad, [4, 5, 6], {bad.split()[0]})})
    frame = result.regions
    assert frame["surprisal_bits"].sum() == 21
    assert len(frame) == sum(len(condition.regions) for condition in suite.conditions())
    assert set(frame["is_correct"]) == {int(result.accuracy() == 1)}
    assert frame["has_unk"].sum() == 1
