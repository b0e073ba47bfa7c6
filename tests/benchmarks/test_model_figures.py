"""What a model's surprisals are worth is measured by the subcommands, kept, and told in cards and on the page."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import model_figures
import pytest
from human_figures import worth
from model_card import CARD, model_card, read_figures
from model_figures import BEGIN, END, FOLDERS, PAGE, Arguments, main, tables

from treelm.cli import run as run_treelm
from treelm.errors import InputError

MODELS = [path.parent for folder in FOLDERS for path in sorted(folder.glob("*/config.json"))]
TIMES = "text,sentence,word,rt\n" + "".join(
    f"{text},{number},{word},{300 + 7 * len(word) + (13 * place + 5 * number + text) % 11}\n"
    for text in range(5)
    for number in range(4)
    for place, word in enumerate(["The", "dog", "barks", "and", "the", "museum", "was", "built", "."])
)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models without figures of people, and a page."""
    folder = tmp_path / "pretrained"
    for model in MODELS:
        if model.name in ("ngram-gum-open", "chart-gum-open"):
            shutil.copytree(model, folder / model.name)
            figures = {key: value for key, value in read_figures(model).items() if key != "measured"}
            (folder / model.name / "figures.json").write_text(json.dumps(figures))
    (tmp_path / "page.md").write_text(f"before\n{BEGIN}old\n{END}after\n")
    monkeypatch.setattr(model_figures, "FOLDERS", (folder,))
    monkeypatch.setattr(model_figures, "PAGE", tmp_path / "page.md")
    return folder


@pytest.fixture
def called(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subcommands that were called; they are run in this process, on a table in the place of Natural Stories."""
    (tmp_path / "times.csv").write_text(TIMES)
    columns = ["--corpus", str(tmp_path / "times.csv"), "--document-column", "text", "--sentence-column", "sentence"]
    names: list[str] = []

    def run(arguments: Sequence[str]) -> Any:
        names.append(arguments[0])
        given = [*arguments[:2], *columns] if arguments[0] == "reading" else arguments
        assert run_treelm([*given, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    monkeypatch.setattr(model_figures, "_json_of", run)
    return names


def test_each_figure_is_measured_once_for_the_same_weights(packages: Path, called: list[str]) -> None:
    assert main(Arguments()) == 0
    assert called == ["syntaxgym", "reading", "gardenpath"]  # no BLiMP here; the chart parser predicts no words
    card, page = (packages / "ngram-gum-open" / CARD).read_text(), model_figures.PAGE.read_text()
    measured = read_figures(packages / "ngram-gum-open")["measured"]
    for text in (
        f"mean of 31 suites | {100 * measured['syntaxgym']['sg_score']:.1f} |",
        "Natural Stories: gain in log likelihood",
        "words that it does not know | 20 of 180 |",  # "barks"
        "garden path NP/Z: bits at the critical word",
        "`treelm gardenpath ngram-gum-open --subsets garden-path --references none`",
    ):
        assert text in card
    assert page.startswith(f"before\n{BEGIN}\n|")
    assert page.endswith(f"|\n\n{END}after\n")
    assert "| `chart-gum-open` | - | - | - | - | - | - |" in page
    assert f"| `ngram-gum-open` | {100 * measured['syntaxgym']['sg_score']:.1f} | - |" in page
    suites = measured["syntaxgym"]["suites"]
    assert len(suites) == 34
    assert f"; by suite: center_embed {100 * suites['center_embed']:.0f}, " in card

    del called[:]
    figures = read_figures(packages / "ngram-gum-open")
    del figures["measured"]["gardenpath"]
    figures["measured"]["reading"]["weights"] = "other"
    (packages / "ngram-gum-open" / "figures.json").write_text(json.dumps(figures))
    assert main(Arguments(names=("ngram-gum-open",))) == 0
    assert called == ["reading", "gardenpath"]
    assert read_figures(packages / "ngram-gum-open")["measured"]["gardenpath"] == measured["gardenpath"]


def pair(paradigm: str, term: str, field: str, good: str, bad: str) -> dict[str, str]:
    groups = {"UID": paradigm, "linguistics_term": term, "field": field}
    return {"sentence_good": good, "sentence_bad": bad, **groups}


PAIRS = [
    pair("a", "argument_structure", "syntax", "The museum was built .", "The museum was zzyx ."),
    pair("a", "argument_structure", "syntax", "The zzyx was .", "The museum was built in the city ."),
    pair("b", "s-selection", "syntax", "The city .", "The city ."),
    pair("c", "binding", "syntax/semantics", "The city was built .", "The city the was built ."),
    pair("d", "binding", "syntax_semantics", "The city was built .", "The city city was built ."),
]


def test_blimp_is_told_by_field_and_term_as_its_paper_counts_them(
    packages: Path, called: list[str], tmp_path: Path
) -> None:
    (tmp_path / "blimp").mkdir()
    lines = "".join(f"{json.dumps(one)}\n" for one in PAIRS)
    (tmp_path / "blimp" / "blimp.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    options = {"names": ("ngram-gum-open",), "blimp": str(tmp_path / "blimp"), "measures": ("blimp",)}
    assert main(Arguments(**options)) == 0
    assert called == ["pairs"]
    record = read_figures(packages / "ngram-gum-open")["measured"]["blimp"]
    assert record["command"] == "treelm pairs ngram-gum-open blimp.jsonl.gz"
    assert {name: one["num_pairs"] for name, one in record["terms"].items()} == {"argument_structure": 3, "binding": 2}
    assert {name: one["num_pairs"] for name, one in record["fields"].items()} == {"syntax": 3, "syntax_semantics": 2}
    right = sum(one["accuracy"] * one["num_pairs"] for one in record["fields"].values())
    assert record["accuracy"] == pytest.approx(right / 5)
    assert record["terms"]["binding"]["accuracy"] == 1.0
    assert (record["num_ties"], record["num_with_unknown"], record["most_pairs_of_a_paradigm"]) == (1, 2, 2)
    card = (packages / "ngram-gum-open" / CARD).read_text()
    assert f"| BLiMP: % of pairs right | {100 * record['accuracy']:.1f} |" in card
    assert "|   syntax and semantics | 100.0 |" in card
    assert "|   binding | 100.0 |" in card
    assert "BLiMP: 5 pairs, up to 2 of each of 4 paradigms; search: ngram; 2 have an unknown word; 1 are ties" in card
    assert f"| - | {100 * record['accuracy']:.1f} of 5 | - |" in model_figures.PAGE.read_text()

    assert main(Arguments(**options, max_pairs_per_group=1, again=True)) == 0
    record = read_figures(packages / "ngram-gum-open")["measured"]["blimp"]
    assert record["command"] == "treelm pairs ngram-gum-open blimp.jsonl.gz --max-pairs-per-group 1"
    assert (record["num_pairs"], record["most_pairs_of_a_paradigm"]) == (4, 1)


def test_a_name_that_is_none_is_told_before_anything_is_measured(packages: Path, called: list[str]) -> None:
    with pytest.raises(InputError, match="did you mean ngram-gum-open"):
        main(Arguments(names=("ngram-gum-opn",)))
    assert called == []


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(1e-3, 3e-3, "add to"), (-3e-3, -1e-3, "take away from"), (-1e-3, 1e-3, "were not shown to add to")],
)
def test_the_card_says_no_more_than_the_interval_does(low: float, high: float, said: str) -> None:
    delta = {"nats_per_word": (low + high) / 2, "low": low, "high": high}
    origin = {"command": "treelm", "date": "today"}
    counts = {"num_words": 9, "num_unknown": 0, "num_words_of_corpus": 10}
    effects = {
        name: {"bits": bits, "interval": 0.5, "num_items": 24, "num_unknown": 0}
        for name, bits in (("MVRR", -1.0), ("NP/S", 0.4), ("NP/Z", 0.6))
    }
    text = worth(
        {"reading": {**origin, "delta": delta, "beside": {}, **counts}, "gardenpath": {**origin, "effects": effects}}
    )
    assert f"Surprisals {said} the prediction" in text
    assert "Led up the garden path, as people are: NP/Z (" in text
    assert "| garden path MVRR: bits at the critical word, 95 % interval | -1.00 (-1.50 to -0.50) |" in text


def test_cards_and_the_page_are_what_was_recorded() -> None:
    for folder in MODELS:
        assert (folder / CARD).read_text(encoding="utf-8") == model_card(folder.name, folder), folder.name
    page = PAGE.read_text(encoding="utf-8")
    assert f"{BEGIN}{tables(MODELS)}{END}" in page, "python benchmarks/model_figures.py --only-write"
