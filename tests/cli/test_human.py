"""``treelm reading`` and ``treelm gardenpath``."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pandas
import pytest

from tests.cli.conftest import Treelm
from tests.shipped import need
from treelm.io.tables import binary_table


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


def test_a_document_in_two_parts_is_refused_by_tables_that_follow_documents(treelm: Treelm, tmp_path: Path) -> None:
    table = tmp_path / "parts.csv"
    table.write_text("text,item,word\na,1,The\na,1,dog\nb,1,The\na,2,barks\n")
    columns = ("--sentence-column", "item", "--document-column", "text")
    assert treelm("surprisal", "ngram-gum-open", table, *columns).code == 0
    done = treelm("surprisal", "ngram-gum-open", table, *columns, "--context", "document")
    assert (done.code, done.out) == (2, "")
    assert "parts.csv:5: more of document 'a' after another one; put the rows of a document together" in done.err


def test_of_several_columns_of_times_the_one_that_is_predicted_is_named(treelm: Treelm, times: Path) -> None:
    rows = times.read_text().splitlines()
    times.write_text("\n".join([f"{rows[0]},ffd", *(f"{row},{place % 9}" for place, row in enumerate(rows[1:], 1))]))
    several = ("reading", "ngram-gum-open", "--corpus", times, *OF_TABLE, "--response-columns", "rt", "ffd", "--json")
    first, named = treelm(*several), treelm(*several, "--response", "ffd")
    assert [json.loads(one.out)["response"] for one in (first, named)] == ["rt", "ffd"]
    said = "rt is predicted, the first of 2 columns of times; --response names another"
    assert [said in one.err for one in (first, named)] == [True, False]


def test_a_document_may_tell_its_sentences_apart_from_others(treelm: Treelm, tmp_path: Path) -> None:
    table = tmp_path / "numbered-anew.csv"
    table.write_text("text,item,word\na,1,The\na,1,dog\na,2,Yes\nb,1,The\nb,1,cat\n")
    wrong = treelm("surprisal", "ngram-gum-open", table, "--sentence-column", "item")
    assert (wrong.code, ": --sentence-column item text" in wrong.err) == (2, True)
    both = ("--sentence-column", "text", "item", "--document-column", "text")
    done = treelm("surprisal", "ngram-gum-open", table, *both)
    assert done.code == 0, done.err
    names = done.out.splitlines()[0].split("\t")
    assert (names[:2], names.count("text"), names[-1]) == (["text", "item"], 1, "context")


def test_json_has_null_where_there_is_no_number(treelm: Treelm, times: Path) -> None:
    classes = times.read_text().replace("rt\n", "rt,pos\n").splitlines()
    rows = [classes[0], *(f"{row},{'DT' if row.startswith('0,') else 'NN'}" for row in classes[1:])]
    times.write_text("\n".join(rows) + "\n")
    done = treelm("reading", "ngram-gum-open", "--corpus", times, *OF_TABLE, "--class-column", "pos", "--json")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    (model,) = json.loads(done.out, parse_constant=refuse)["models"]
    assert model["by_class"]["DT"]["low"] is None


def test_a_table_that_says_nothing_of_unknown_words_is_told_of(treelm: Treelm, times: Path, tmp_path: Path) -> None:
    bits = tmp_path / "bits.tsv"
    rows = times.read_text().splitlines()[1:]
    bits.write_text("word\tbits\n" + "".join(f"{row.split(',')[2]}\t{place % 7}\n" for place, row in enumerate(rows)))
    done = treelm("reading", f"{bits}:bits", "--corpus", times, *OF_TABLE, "--known-only")
    assert "bits: its table has no column is_unk, so all of its words count as known" in done.err


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


def test_tables_of_many_models_fit_the_terminal_and_are_one_if_wide(
    treelm: Treelm, times: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"bits_of_a_model_with_a_name_{number}" for number in range(6)]
    head, *rows = times.read_text().splitlines()
    scored = [",".join([row, *(str(place * (place + n) % 11) for n in range(6))]) for place, row in enumerate(rows)]
    times.write_text("\n".join([",".join([head, *names]), *scored]) + "\n")
    calls: dict[tuple[str | Path, ...], str] = {
        ("gardenpath", "ngram-gum-open", "--subsets", "agreement"): "hard - easy, bits (standard error)",
        ("reading", *names, "--over", names[0], "--corpus", times, *OF_TABLE, "--surprisal-columns", *names): (
            "one model over another, 10^-3 nats a word"
        ),
    }
    for call, title in calls.items():
        narrow, wide = treelm(*call), treelm(*call, "--wide")
        assert (narrow.code, wide.code) == (0, 0), narrow.err
        assert max(map(len, narrow.out.splitlines())) <= 80
        assert max(map(len, wide.out.splitlines())) > 80
        assert [f"{title}, continued" in one.out for one in (narrow, wide)] == [True, False]
        numbers = [{word for word in one.out.split() if word[0] in "+-"} for one in (narrow, wide)]
        assert numbers[0] == numbers[1]


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


def test_cells_of_several_words_are_counted(treelm: Treelm, times: Path) -> None:
    times.write_text(times.read_text().replace("museum", "old museum"))
    done = treelm("reading", "ngram-gum-open", "--corpus", times, *OF_TABLE)
    assert "ngram-gum-open: ngram; 180 words, 20 of several words in one cell, 20 unknown" in done.err


def test_stimuli_are_scored_elsewhere_and_come_back_as_a_table(treelm: Treelm, tmp_path: Path) -> None:
    subset = ("--subsets", "agreement")
    stimuli = tmp_path / "stimuli.csv"
    stimuli.write_text(treelm("gardenpath", "--stimuli", *subset).out)
    rows = list(csv.DictReader(io.StringIO(stimuli.read_text())))
    assert len({row["sentence_id"] for row in rows}) == 36
    bits = tmp_path / "bits.tsv"
    assert (
        treelm(
            "surprisal", "ngram-gum-open", stimuli, "--layout", "table", "--punctuation", "summed", "--output", bits
        ).code
        == 0
    )
    alone = ("--references", "none", "--json", *subset)
    found = json.loads(treelm("gardenpath", bits, "ngram-gum-open", *alone).out)["models"]
    assert [model["name"] for model in found] == ["bits", "ngram-gum-open"]
    for one, other in zip(found[0]["effects"], found[1]["effects"], strict=True):
        assert one["bits"] == pytest.approx(other["bits"], abs=1e-5)


def test_a_sweep_gives_the_effects_of_each_beam_and_what_it_lost(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    run, subset = project / "run", ("--subsets", "agreement")
    done = treelm("gardenpath", run, *subset, "--beam-sweep", 1, 20, "--json")
    assert done.code == 0, done.err
    (swept,) = json.loads(done.out)["models"]
    narrow, wide = swept["beams"]
    assert swept["name"] == str(run)
    assert (narrow["widths"], wide["widths"]) == ([1, 1, 1], [20, 2, 1])
    stimuli, bits = tmp_path / "stimuli.csv", tmp_path / "bits.tsv"
    stimuli.write_text(treelm("gardenpath", "--stimuli", *subset).out)
    widths = ("--action-beam", 20, "--word-beam", 2, "--fast-track", 1, "--columns", "beam_loss_bits")
    table = ("--layout", "table", "--punctuation", "summed")
    assert treelm("surprisal", run, stimuli, *table, *widths, "--output", bits).code == 0
    alone = json.loads(treelm("gardenpath", bits, "--references", "none", "--json", *subset).out)["models"][0]
    for one, other in zip(wide["effects"]["effects"], alone["effects"], strict=True):
        assert one["bits"] == pytest.approx(other["bits"], abs=1e-5)
    rows = list(csv.DictReader(io.StringIO(bits.read_text()), delimiter="\t"))
    lost = sum(float(row["beam_loss_bits"]) for row in rows if row["condition"] == "UNAGREE") / 18
    up_to_there = wide["effects"]["effects"][2]["lost_bits"][0]
    assert 0 < up_to_there < lost
    shown = treelm("gardenpath", run, *subset, "--beam-sweep", 2).out
    assert "lost: the sum over words of what each word's search dropped" in " ".join(shown.split())


def test_an_experiment_is_read_from_a_workbook_and_its_items_are_left_out_together(
    treelm: Treelm, times: Path, tmp_path: Path
) -> None:
    need("lstm-open-english")
    rows = [row.split(",") for row in times.read_text().replace("barks", "🙂").splitlines()]
    with binary_table(str(tmp_path / "t.xlsx"), rows[0]) as write:
        write(pandas.DataFrame(rows[1:], columns=rows[0]))
    as_text = tmp_path / "t.csv"
    as_text.write_text("\n".join(map(";".join, rows)).replace("30", "3,0") + "\n")
    sentences = ("--sentence-column", "text", "sentence", "--document-column", "text", "--lag-within", "sentence")
    done = treelm("reading", "lstm-open-english", "--corpus", tmp_path / "t.xlsx", *sentences, "--json")
    assert done.code == 0, done.err
    assert "read byte by byte, as by spelling: 🙂" in done.err
    found = json.loads(done.out)
    assert (found["fold_kind"], found["controls"]) == ("documents", ["position_in_sentence"])
    assert found["left_out"] == {"without a word before": 20, "without 2 words before": 20}
    keyed = ("--sentence-column", "text", "sentence", "--lag", 1, "--lag-columns", "rt", "--output", tmp_path / "o.tsv")
    assert treelm("surprisal", "ngram-gum-open", tmp_path / "t.xlsx", *keyed).code == 0
    written = list(csv.DictReader((tmp_path / "o.tsv").read_text().splitlines(), delimiter="\t"))
    assert [row["rt"] for row in written] == [row[-1] for row in rows[1:]]
    assert [row["rt_lag1"] for row in written[:2]] == ["NA", rows[1][-1]]
    done = treelm("surprisal", "ngram-gum-open", "lstm-gum-open", as_text, *keyed, "--context", "document")
    assert f"{as_text}: decimal commas (rt) are passed on as they stand" in done.err
    assert "ngram-gum-open: ngram reads whole sentences" in done.err


def test_a_report_may_stand_in_the_folder_of_its_comparison(treelm: Treelm, tmp_path: Path) -> None:
    out = tmp_path / "new"
    call = ("compare", "ngram-gum-open", "--max-sentences", 2, "--output", out, "--report", out / "report.html")
    done = treelm(*call, "--gardenpath")
    assert done.code == 0, done.err
    page = (out / "report.html").read_text()
    assert "on a logarithmic scale" in page
    assert "of relative clauses verb, determiner, noun" in page
    done = treelm("compare", "ngram-gum-open", "--output", out, "--report", tmp_path / "other" / "report.html")
    assert (done.code, "no folder" in done.err) == (2, True)


def test_a_comparison_has_the_effects_and_keeps_them(treelm: Treelm, tmp_path: Path) -> None:
    out = tmp_path / "comparison"
    call = ("compare", "ngram-gum-open", "--max-sentences", 2, "--gardenpath", "--format", "csv", "--output", out)
    (row,) = csv.DictReader(io.StringIO(treelm(*call).out))
    found = json.loads(treelm("gardenpath", "ngram-gum-open", "--references", "none", "--json").out)["models"][0]
    for effect in found["effects"]:
        name = f"effect_bits, {effect['effect']}, {effect['region']}"
        assert float(row[name]) == pytest.approx(effect["bits"])
    assert "garden paths: done" not in treelm(*call).err
