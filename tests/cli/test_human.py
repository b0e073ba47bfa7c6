"""``treelm reading`` and ``treelm gardenpath``."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Treelm


@pytest.fixture
def times(tmp_path: Path) -> Path:
    """Times of the words of some sentences in five documents; longer words take longer."""
    words = ["The", "dog", "barks", "and", "the", "museum", "was", "built", "."]
    rows = [
        f"{document},{sentence},{word},{300 + 7 * len(word) + (13 * place + 5 * sentence + document) % 11}"
        for document in range(5)
        for sentence in range(4)
        for place, word in enumerate(words[sentence:] + words[:sentence])
    ]
    path = tmp_path / "times.csv"
    path.write_text("\n".join(["text,sentence,word,rt", *rows]) + "\n")
    return path


OF_TABLE = ("--document-column", "text", "--sentence-column", "sentence")


def test_a_model_of_the_package_predicts_the_times_of_a_table(treelm: Treelm, times: Path, tmp_path: Path) -> None:
    out = tmp_path / "words.csv"
    done = treelm("reading", "ngram-gum-open", "--corpus", times, *OF_TABLE, "--export", out, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    (model,) = result["models"]
    assert (model["name"], model["num_unknown"]) == ("ngram-gum-open", 20)  # "barks"
    assert result["fold_kind"] == "documents"
    assert len(model["slopes"]) == 3
    assert result["num_words"] + sum(result["left_out"].values()) == 180
    scored = out.read_text().splitlines()
    assert len(scored) == 1 + result["num_words"]


def test_a_table_of_surprisals_stands_where_a_run_can(treelm: Treelm, times: Path, tmp_path: Path) -> None:
    bits = tmp_path / "bits.tsv"
    columns = ("--layout", "table", *OF_TABLE, "--punctuation", "summed")
    assert treelm("surprisal", "ngram-gum-open", times, *columns, "--output", bits).code == 0
    tables = treelm("reading", bits, "ngram-gum-open", "--over", "bits", "--corpus", times, *OF_TABLE)
    assert tables.code == 0, tables.err
    assert "delta log likelihood, 10^-3 nats a word" in tables.out
    assert "ngram-gum-open over bits" in tables.out
    assert "reads whole sentences" not in tables.err
    alone = treelm("reading", "ngram-gum-open", "--corpus", times, *OF_TABLE, "--context", "document")
    assert "ngram reads whole sentences: each begins from nothing" in alone.err
    both = json.loads(treelm("reading", bits, "ngram-gum-open", "--corpus", times, *OF_TABLE, "--json").out)["models"]
    assert both[0]["delta"]["nats_per_word"] == pytest.approx(both[1]["delta"]["nats_per_word"], abs=1e-6)


def test_garden_paths_of_a_run_beside_people_and_published_models(treelm: Treelm) -> None:
    done = treelm("gardenpath", "lstm-gum-open", "--subsets", "agreement")
    assert done.code == 0, done.err
    assert "hard - easy, bits (standard error)" in done.out
    row = next(line for line in done.out.splitlines() if line.startswith("agreement violated, 1"))
    assert "57.4 (44.9, 69.7)" in row
    assert "-0.22 (0.10)" in row
    assert "lstm-gum-open: items with an unknown word" in done.out
    assert "unknown" in done.err


def test_items_are_written_with_bits_beside_milliseconds(treelm: Treelm, tmp_path: Path) -> None:
    out = tmp_path / "items.csv"
    call = ("gardenpath", "ngram-gum-open", "gpt2", "--references", "none", "--subsets", "agreement", "--items", out)
    found = json.loads(treelm(*call, "--json").out)["models"]
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [row["model"] for row in rows] == ["gpt2"] * 54 + ["ngram-gum-open"] * 54  # 18 items, 3 regions
    for model in found:
        for effect in model["effects"]:
            here = (model["name"], effect["effect"], str(effect["region"]))
            own = [row for row in rows if (row["model"], row["effect"], row["region"]) == here]
            assert {row["item"]: float(row["bits"]) for row in own} == pytest.approx(effect["by_item"], abs=1e-6)
            if effect["correlation"] is not None:
                pairs = [(float(row["bits"]), float(row["people_ms"])) for row in own]
                assert np.corrcoef(np.transpose(pairs))[0, 1] == pytest.approx(effect["correlation"], abs=1e-4)
            assert all(float(row["people_ms_low"]) < float(row["people_ms_high"]) for row in own)
