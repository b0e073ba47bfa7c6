"""What a model's surprisals are worth is measured by the subcommands, kept, and told in cards and on the page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import model_figures
import pytest
from model_card import CARD, model_card, read_figures
from model_figures import BEGIN, END, FOLDERS, MEASURES, PAGE, Arguments, main, tables

from treelm.cli import run as run_treelm

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
    assert main(Arguments(max_sentences=20)) == 0
    assert called == ["evaluate", "evaluate", "syntaxgym", "reading", "gardenpath"]  # no files of BLiMP and EWT here
    card, page = (packages / "ngram-gum-open" / CARD).read_text(), model_figures.PAGE.read_text()
    measured = read_figures(packages / "ngram-gum-open")["measured"]
    for text in (
        f"mean of the 31 suites of six circuits | {100 * measured['syntaxgym']['sg_score']:.1f} |",
        "Natural Stories: gain in log likelihood",
        "words that it does not know | 20 of 180 |",  # "barks"
        "perplexity of modern-english, test | ",
        "words 0 spelled byte by byte, ",  # of a vocabulary of whole words
        "`treelm evaluate ngram-gum-open --corpus open-english --split test --max-sentences 20`",
        "garden path NP/Z: bits at the critical word",
        "`treelm gardenpath ngram-gum-open --subsets garden-path --references none`",
    ):
        assert text in card
    assert page.startswith(f"before\n{BEGIN}\n|")
    assert page.endswith(f"|\n\n{END}after\n")
    assert "| `chart-gum-open` | - | - | - | - | - | - | - |" in page
    assert f"| `ngram-gum-open` | - | {100 * measured['syntaxgym']['sg_score']:.1f} | - |" in page
    assert len(suites := measured["syntaxgym"]["suites"]) == 34
    assert f"\n* SyntaxGym: % of items right by suite: center_embed {100 * suites['center_embed']:.0f}, " in card
    _, note = MEASURES["syntaxgym"].tell({**measured["syntaxgym"], "search": "rnng, beam 5/1; 3% of the words"})
    assert note.startswith("SyntaxGym: beam 5/1; 3% of the words; % of items right by suite: center_embed ")

    del called[:]
    figures = read_figures(packages / "ngram-gum-open")
    del figures["measured"]["gardenpath"]
    figures["measured"]["reading"]["weights"] = "other"
    (packages / "ngram-gum-open" / "figures.json").write_text(json.dumps(figures))
    assert main(Arguments(names=("ngram-gum-open",))) == 0
    assert called == ["reading", "gardenpath"]
    assert read_figures(packages / "ngram-gum-open")["measured"]["gardenpath"] == measured["gardenpath"]


def test_cards_and_the_page_are_what_was_recorded() -> None:
    for folder in MODELS:
        assert (folder / CARD).read_text(encoding="utf-8") == model_card(folder.name, folder), folder.name
    page = PAGE.read_text(encoding="utf-8")
    assert f"{BEGIN}{tables(MODELS)}{END}" in page, "python benchmarks/model_figures.py --only-write"
