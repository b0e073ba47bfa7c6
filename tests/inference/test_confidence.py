"""Silver trees by a parser that says how sure it is: the table beside them, what is left out, blocks of its size."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Treelm, treelm  # noqa: F401
from tests.systems import small_setup
from treelm.corpora.readers import read_sentences
from treelm.inference import annotation
from treelm.inference.annotation import Progress, table_of
from treelm.inference.loading import load
from treelm.inference.settings import AnnotationSettings
from treelm.models.chart.network import ChartParser
from treelm.models.persistence.storage import load_model, save_model

NUM_LINES = 25
WORDS = ["the", "cat", "sees", "a", "dog", "of", "fish", "."]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chart")
    save_model(small_setup("chart", folder).model.eval(), folder / "run")
    return folder / "run"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(" ".join(WORDS[k % 3 :][: 1 + k % 5]) + "\n" for k in range(NUM_LINES)))
    return path


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChartParser, "preferred_batch_size", 10)


def annotate(text: Path, out: Path, run: Path, settings: AnnotationSettings, **how: Any) -> Progress:
    return annotation.annotate(str(text), out, load(run), settings, run=str(run), **how)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def test_every_sentence_has_its_tree_its_tags_and_a_row(run: Path, text: Path, tmp_path: Path) -> None:
    text = text.rename(tmp_path / "o\td.txt")  # a tab in its name stays in one cell
    out = tmp_path / "out.ptb"
    seen: list[Progress] = []
    described: list[dict[str, Any]] = []
    annotate(text, out, run, AnnotationSettings(), on_progress=seen.append, on_done=described.append)
    assert [one.num_read for one in seen] == [10, 20, 25]
    sentences = [line.split() for line in text.read_text().splitlines()]
    model = load_model(run)
    parsed = model.annotate(sentences)
    read = list(read_sentences(out))
    assert [one.tree for one in read] == [one.tree for one in parsed]
    assert [one.tags for one in read] == [one.tags for one in parsed]
    rows = rows_of(table_of(out))
    assert [row["place"] for row in rows] == [f"{text}:{k}" for k in range(1, NUM_LINES + 1)]
    assert [int(row["num_words"]) for row in rows] == list(map(len, sentences))
    for row, one in zip(rows, parsed, strict=True):
        assert one.confidence is not None
        assert float(row["confidence"]) == pytest.approx(one.confidence.mean, abs=2e-4)
        assert float(row["expected_f1"]) == pytest.approx(one.confidence.expected_f1, abs=2e-4)
        assert row["kept"] == "1"
    about = described[0]["confidence"]
    mean = sum(float(row["confidence"]) for row in rows) / NUM_LINES
    assert about["mean"] == pytest.approx(mean, abs=2e-4)
    assert about["num_left_out"] == 0
    assert about["mean_words"] == pytest.approx(sum(map(len, sentences)) / NUM_LINES, abs=1e-4)


def test_what_it_is_not_sure_of_is_left_out(run: Path, text: Path, tmp_path: Path) -> None:
    annotate(text, tmp_path / "all.ptb", run, AnnotationSettings())
    all_rows = rows_of(table_of(tmp_path / "all.ptb"))
    least = sorted(float(row["confidence"]) for row in all_rows)[NUM_LINES // 2] - 1e-4
    kept = AnnotationSettings(min_confidence=least)
    described: list[dict[str, Any]] = []
    progress = annotate(text, tmp_path / "out.ptb", run, kept, on_done=described.append)
    lines = (tmp_path / "all.ptb").read_text().splitlines()
    sure = [float(row["confidence"]) >= least for row in all_rows]
    assert 0 < sum(sure) < NUM_LINES
    assert (tmp_path / "out.ptb").read_text().splitlines() == [
        line for line, is_sure in zip(lines, sure, strict=True) if is_sure
    ]
    assert [row["kept"] == "1" for row in rows_of(table_of(tmp_path / "out.ptb"))] == sure
    assert (progress.num_sentences, progress.num_unsure) == (sum(sure), NUM_LINES - sum(sure))
    assert progress.num_words == sum(len(one.words) for one in read_sentences(tmp_path / "out.ptb"))
    (about,) = described
    assert about["min_confidence"] == least
    assert about["confidence"]["num_left_out"] == NUM_LINES - sum(sure)
    assert about["confidence"]["mean"] > least


class Crash(Exception):
    """Stands for anything that ends the process."""


def test_killed_between_trees_and_table_it_finishes(
    run: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def crash(path: Path, target: Path) -> Path:
        if target.name.endswith(".tsv"):
            raise Crash
        return replace(path, target)

    out = tmp_path / "out.ptb"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(Crash):
            annotate(text, out, run, AnnotationSettings())
    assert out.exists()
    assert not table_of(out).exists()
    annotate(text, out, run, AnnotationSettings())
    assert len(rows_of(table_of(out))) == NUM_LINES
    assert not (tmp_path / "out.ptb.annotating").exists()
