"""The subcommands on a tiny run, as a user calls them."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from tests.cli.conftest import Treelm
from tests.legacy.make import HERE
from treelm.cli import SUBCOMMANDS
from treelm.corpora.corpus import PreparedCorpus
from treelm.errors import without_errors
from treelm.trees.brackets import read_trees

HEADER = "sentence_id\tword_id\tword\tsurprisal_bits\tis_unk\tunk_class\tnum_pieces\tchar_start\tchar_end"


def stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_every_subcommand_has_help_with_an_example(
    treelm: Treelm, subcommand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    outcome = treelm(subcommand, "--help")
    assert outcome.code == 0
    assert re.search(f"Example: .*treelm {subcommand}", outcome.out)
    assert "None}" not in outcome.out
    assert all(line.count("Example:") <= 1 for line in outcome.out.splitlines())
    assert [
        one for one in outcome.out.splitlines() if len(one) > 80 and not one.startswith(("Example:", "usage:"))
    ] == []


def test_help_imports_nothing_heavy() -> None:
    program = """
import contextlib, sys
from treelm.cli import SUBCOMMANDS, run
run(["--help"])
for subcommand in SUBCOMMANDS:
    with contextlib.suppress(SystemExit):
        run([subcommand, "--help"])
    if "torch" in sys.modules:
        sys.exit(f"treelm {subcommand} --help")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_surprisal_of_a_table_keeps_the_words_and_columns_of_the_experimenter(
    treelm: Treelm, project: Path, tmp_path: Path
) -> None:
    rows = 'word_id,text,item,rt\nA,the,1,310\nB,"dog,",1,290\nC,barks.,1,300\nA,"NA ""x""",2,1\n'
    (tmp_path / "rt.csv").write_text(rows, encoding="utf-8")
    names = ("--layout", "table", "--word-column", "text", "--sentence-column", "item")
    call = ("surprisal", project / "run", tmp_path / "rt.csv", *names, "--punctuation", "summed")
    output = tmp_path / "bits.csv"
    outcome = treelm(*call, "--output", output, "--columns", "open_nodes", "next_entropy_bits", "--end")
    assert outcome.code == 0
    assert outcome.err.startswith("2 of 4 regions (50.0%) have words that are unknown to run, such as 'dog,': ")
    found = list(csv.DictReader(io.StringIO(output.read_text(encoding="utf-8"))))
    assert [(row["item"], row["word_id"], row["text"], row["rt"]) for row in found] == [
        ("1", "A", "the", "310"),
        ("1", "B", "dog,", "290"),
        ("1", "C", "barks.", "300"),
        ("1", "NA", "</s>", "NA"),
        ("2", "A", 'NA "x"', "1"),
        ("2", "NA", "</s>", "NA"),
    ]
    assert [row["num_pieces"] for row in found] == ["1", "2", "2", "1", "4", "1"]
    assert all(float(row["next_entropy_bits"]) >= 0 for row in found if row["text"] != "</s>")
    (tmp_path / "in.txt").write_text("the dog , barks .\n")
    spaced = treelm("surprisal", project / "run", tmp_path / "in.txt", "--end")
    plain = [float(line.split("\t")[3]) for line in spaced.out.splitlines()[1:]]
    folded = [plain[0], plain[1] + plain[2], plain[3] + plain[4], plain[5]]
    assert [float(row["surprisal_bits"]) for row in found[:4]] == pytest.approx(folded, abs=1e-5)


def test_several_runs_are_in_one_table_and_what_is_said_names_each(
    treelm: Treelm, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "rt.csv").write_text("item;form\n1;the\n1;cat.\n2;the\n2;dog\n", encoding="utf-8")
    columns = ("--word-column", "form", "--sentence-column", "item")
    runs = (project / "run", HERE / "lstm")
    outcome = treelm("surprisal", *runs, "--lag", "1", tmp_path / "rt.csv", *columns, "-o", tmp_path / "out.tsv")
    assert outcome.code == 0
    assert "1 of 4 words (25.0%) are unknown to run, such as 'cat.'" in outcome.err
    assert "1 words, such as 'cat.', are written together with marks" in outcome.err
    assert "words (50.0%) are unknown to lstm" in outcome.err
    found = pandas.read_csv(tmp_path / "out.tsv", sep="\t")
    assert list(found["form"]) == ["the", "cat.", "the", "dog"]
    assert found["surprisal_bits_run_lag1"].isna().tolist() == [True, False, True, False]
    assert found["surprisal_bits_run_lag1"][1] == found["surprisal_bits_run"][0]
    assert found["item"].tolist() == [1, 1, 2, 2]
    about = json.loads((tmp_path / "out.tsv.json").read_text())
    assert {name: one["system"] for name, one in about["models"].items()} == {"run": "rnng", "lstm": "lstm"}
    alone = treelm("surprisal", runs[1], tmp_path / "rt.csv", *columns)
    bits = [float(row.split("\t")[3]) for row in alone.out.splitlines()[1:]]
    assert found["surprisal_bits_lstm"].tolist() == pytest.approx(bits, abs=1e-6)
    long = treelm("surprisal", *runs, tmp_path / "rt.csv", *columns, "--shape", "long", "--names", "a", "b")
    assert [row.split("\t")[0] for row in long.out.splitlines()] == ["model", "a", "a", "b", "b", "a", "a", "b", "b"]


def test_no_two_columns_of_a_table_have_one_name(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    header = "word,sentence_id,surprisal_bits,own_surprisal_bits,open_nodes,rt"
    (tmp_path / "rt.csv").write_text(f"{header}\nthe,1,a,b,c,d\n")
    call = ("surprisal", project / "run", tmp_path / "rt.csv", "--layout", "table", "--columns", "open_nodes")
    outcome = treelm(*call)
    assert outcome.code == 0
    names, row = (line.split("\t") for line in outcome.out.splitlines())
    assert len(set(names)) == len(names)
    own = {"own_own_surprisal_bits": "a", "own_surprisal_bits": "b", "own_open_nodes": "c", "rt": "d"}
    assert own.items() <= dict(zip(names, row, strict=True)).items()


def test_surprisal_is_a_table_with_one_row_a_word(
    treelm: Treelm, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin(monkeypatch, "the dog  barks .\n\na zebra sleeps .\n")
    outcome = treelm("surprisal", project / "run", "-", "--threshold", "10")
    lines = outcome.out.splitlines()
    assert (outcome.code, outcome.err) == (
        0,
        "1 of 8 words (12.5%) are unknown to run, such as 'zebra': their bits are those of a class of words; leave out "
        "rows with is_unk 1, or take a model over subwords\n",
    )
    assert lines[0] == f"{HEADER}\tbeam_converged"
    rows = [line.split("\t") for line in lines[1:]]
    assert [row[:3] for row in rows[:5]] == [
        ["1", "1", "the"],
        ["1", "2", "dog"],
        ["1", "3", "barks"],
        ["1", "4", "."],
        ["3", "1", "a"],
    ]
    assert rows[2][7:9] == ["9", "14"]  # two blanks before it
    assert [row[4] for row in rows] == ["0", "0", "0", "0", "0", "1", "0", "0"]
    assert all(float(row[3]) >= 0 for row in rows)


def test_parse_writes_one_tree_a_line_in_input_order(
    treelm: Treelm, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin(monkeypatch, "a cat sees the dog .\n\nthe dog barks .\n")
    outcome = treelm("parse", project / "run", "-")
    lines = outcome.out.split("\n")
    assert outcome.code == 0
    assert lines[1] == ""
    words = [[tree.tree.words() for tree in without_errors(read_trees(line), None)] for line in (lines[0], lines[2])]
    assert words == [[["a", "cat", "sees", "the", "dog", "."]], [["the", "dog", "barks", "."]]]


def test_one_bad_tree_does_not_lose_the_others(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    good = (project / "train.ptb").read_text().splitlines()
    run, bad, found = project / "run", tmp_path / "bad.ptb", list[str]()
    bad.write_text("\n".join([good[0], "(S (NP (D the)", good[1]]) + "\n")
    for call in (("surprisal", run, bad), ("evaluate", run, "--json", "--data", bad)):
        stopped = treelm(*call)
        assert stopped.code == 2
        assert stopped.err.count("\n") == 1
        assert "bad.ptb:2" in stopped.err
        skipped = treelm(*call, "--on-error", "skip")
        assert skipped.code == 3
        assert "bad.ptb:2" in skipped.err
        found.append(skipped.out)
    assert len(found[0].splitlines()) == 1 + 4 + 6
    assert json.loads(found[1])[0]["num_sentences"] == 2


def test_generate_is_reproducible_and_uses_the_models_words(treelm: Treelm, project: Path) -> None:
    once, again, other = (
        treelm("generate", project / "run", "--num-sentences", "4", "--seed", seed).out for seed in ("3", "3", "4")
    )
    assert once == again != other
    known = set((project / "train.ptb").read_text().replace(")", " ").split()) | {"<unk>"}
    assert set(once.split()) <= known


def test_audit_reads_the_first_words_of_long_sentences_and_names_what_it_leaves_out(
    treelm: Treelm, tmp_path: Path
) -> None:
    (tmp_path / "some.ptb").write_text("(S (X Who) (X knows\n(S" + " (X dogs)" * 15 + ")\n(S (X cats))\n")
    outcome = treelm("audit", HERE / "ngram", tmp_path / "some.ptb", "--on-error", "skip", "--json")
    assert outcome.code == 3
    assert json.loads(outcome.out)["num_sentences"] == 2
    assert "cut after 12 words: 1 of 2 sentences" in outcome.err
    assert "skipped: " in outcome.err
    assert "some.ptb:1" in outcome.err


CONLLU = """\
1\tdogs\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_
2\tbark\t_\tVERB\t_\t_\t0\troot\t_\t_
3\tat\t_\tADP\t_\t_\t4\tcase\t_\t_
4\tcats\t_\tNOUN\t_\t_\t2\tobl\t_\t_
"""


def test_statistics_and_prepared_corpora_know_labels_of_dependencies(treelm: Treelm, tmp_path: Path) -> None:
    file = tmp_path / "a.conllu"
    file.write_text(CONLLU)
    for labels, number in (("plain", 1), ("upos", 2)):
        out = treelm("data", "statistics", file, "--dependency-labels", labels).out
        assert next(line for line in out.splitlines() if "labels" in line).split()[-1] == str(number)
        outcome = treelm("data", "prepare", file, "--dependency-labels", labels, "--output", tmp_path / labels)
        assert outcome.code == 0, outcome.err
        assert len(PreparedCorpus.open(tmp_path / labels).labels) == number


def test_what_a_prepared_corpus_leaves_out_is_named(treelm: Treelm, tmp_path: Path) -> None:
    file = tmp_path / "a.ptb"
    file.write_text("(S (N a))\n(S (N a)))\n(S (N b))\n")
    for call in (("prepare", file, "--output", tmp_path / "out"), ("statistics", file)):
        assert treelm("data", *call).code == 2
        outcome = treelm("data", *call, "--on-error", "skip")
        assert outcome.code == 3
        assert "a.ptb:2: a closing bracket that closes nothing" in outcome.err
        assert "1 sentence left out" in outcome.err
    assert len(PreparedCorpus.open(tmp_path / "out")) == 2


def test_evaluate_writes_gold_and_predicted_trees(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    outcome = treelm(
        "evaluate", project / "run", "--split", "dev", "--max-sentences", "2", "--trees", tmp_path / "trees", "--json"
    )
    (result,) = json.loads(outcome.out)
    assert result["num_sentences"] == 2
    gold, predicted = (tmp_path / "trees" / f"dev.{kind}.ptb" for kind in ("gold", "predicted"))
    assert gold.read_text().splitlines() == (project / "train.ptb").read_text().splitlines()[:2]
    again = json.loads(treelm("evaluate", "--gold", gold, "--predicted", predicted, "--json").out)
    assert again["all"]["f1"] == result["bracketing"][0]["all"]["f1"]


def test_surprisal_searches_by_the_recipe_or_the_flags_and_says_which_words_did_not_converge(
    treelm: Treelm, project: Path, tmp_path: Path
) -> None:
    said = dict[str, str]()

    def bits(name: str, *flags: str) -> dict[str, float]:
        out = tmp_path / f"{name}.tsv"
        outcome = treelm("surprisal", project / "run", project / "train.ptb", "--output", out, *flags)
        assert outcome.code == 0
        said[name] = outcome.err
        metadata: dict[str, float] = json.loads(out.with_name(f"{name}.tsv.json").read_text())
        return metadata

    widths = ("--action-beam", "1", "--word-beam", "1", "--fast-track", "0")
    fixed, narrow = bits("fixed", *widths), bits("narrow", *widths, "--threshold", "7")
    names = ("action_beam", "word_beam", "fast_track", "threshold")
    assert [bits("default")[name] for name in names] == [20, 5, 1, None]  # as in the recipe
    assert [fixed[name] for name in names] == [1, 1, 0, None]
    wide = bits("wide", "--threshold", "10")
    assert [wide[name] for name in names] == [1000, 100, 1, 10.0]
    assert [bits("one", "--word-beam", "4")[name] for name in names] == [20, 4, 1, None]  # others as in the recipe
    assert [bits("both", "--word-beam", "4", "--threshold", "7")[name] for name in names] == [1000, 4, 1, 7.0]
    with (tmp_path / "narrow.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    doubtful = [row["beam_converged"] for row in rows].count("0")
    assert doubtful > 0
    assert f"{doubtful} of {len(rows)} words not converged" in said["narrow"]
    wider = "--threshold 8 --action-beam 4 --word-beam 4"
    assert wider in said["narrow"]
    bits("wider", *wider.split())
    assert int(re.search(r"(\d+) of \d+ words not conv|$", said["wider"])[1] or 0) < doubtful, "advice that helps"
    assert narrow["word_surprisal_bits"] > wide["word_surprisal_bits"]
    assert "not converged" not in said["fixed"]
    assert "beam 1/1/0: nothing says which words have converged (an adaptive beam does" in said["fixed"]
    with (tmp_path / "fixed.tsv").open() as file:
        assert {row["beam_converged"] for row in csv.DictReader(file, delimiter="\t")} == {"NA"}


@pytest.mark.parametrize("name", ["rnng-subword", "rnng-in-order-attention"])
def test_generate_spells_whole_words(treelm: Treelm, name: str) -> None:
    """Over pieces of words, and over characters."""
    options = ("--num-sentences", "2", "--max-words", "3", "--seed", "5")
    words, trees = (treelm("generate", HERE / name, *options, *more) for more in ((), ("--trees",)))
    assert (words.code, trees.code) == (0, 0), words.err + trees.err
    plain = [line.split(" ") for line in words.out.split("\n")[:-1]]
    assert len(plain) == 2
    assert not any("▁" in word or "</w>" in word for line in plain for word in line)
    assert [one.tree.words() for one in without_errors(read_trees(trees.out), None)] == plain


def test_trees_are_made_binary_and_written_as_json(treelm: Treelm, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("It is not here .\n\n")
    command = ("parse", "chart-gum-open", tmp_path / "in.txt", "--show", "json", "--binarise")
    found = {}
    for how in ("no", "left", "right"):
        first, empty = (json.loads(line) for line in treelm(*command, how).out.splitlines())
        assert empty is None
        assert first["words"] == ["It", "is", "not", "here", "."]
        assert len(first["tags"]) == 5
        (tree,) = without_errors(read_trees(first["tree"]), None)
        assert [[*span] for span in tree.tree.spans()] == first["spans"]
        found[how] = {(start, end) for _, start, end in first["spans"]}
    assert found["no"] == {(0, 5), (0, 1), (1, 4), (3, 4)}
    assert found["left"] - found["no"] == {(0, 4), (1, 3)}
    assert found["right"] - found["no"] == {(1, 5), (2, 4)}


def test_a_text_that_is_read_as_one_sentence_is_told_and_can_be_split(
    treelm: Treelm, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("The dog barks. " * 51 + "\n")
    run = HERE / "ngram"
    told = treelm("surprisal", run, tmp_path / "in.txt").err
    assert "in.txt:1: a sentence has more than 150 words, 153, read as one; if it is a text" in told
    assert "--split-sentences en" in told
    split = treelm("surprisal", run, tmp_path / "in.txt", "--split-sentences", "en")
    assert "more than 150" not in split.err
    rows = [row.split("\t") for row in split.out.splitlines()]
    assert rows[0][:4] == ["sentence_id", "sentence_number", "word_id", "word"]
    assert [row[1:4] for row in rows[4:7]] == [["2", "1", "The"], ["2", "2", "dog"], ["2", "3", "barks."]]


def test_surprisal_in_documents_says_what_the_system_had_in_mind(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the dog barks .\na cat sleeps .\n\nthe cat\n")
    call = ("surprisal", project / "run", tmp_path / "in.txt", "--columns", "document_position")
    outcome = treelm(*call, "--context", "document")
    lines = [line.split("\t") for line in outcome.out.splitlines()]
    assert lines[0][-3:] == ["document_position", "document_id", "context"]
    assert {tuple(line[-2:]) for line in lines[1:]} == {("1", "sentence"), ("2", "sentence")}
    assert [row.split("\t")[-1] for row in treelm(*call).out.splitlines()] == [line[-3] for line in lines]
    assert "this rnng was trained on sentences by themselves" in outcome.err
