"""``treelm data sections`` and ``treelm data align``, from a treebank's files to training on a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Treelm

TREES = (
    "( (S (NP-SBJ (DT The) (NN dog) ) (VP (VBD slept) (NP (CD 12) (NNS hours) )) (. .) ))",
    "( (S (NP-SBJ (DT A) (JJ peculiar) (NN cat) ) (VP (VBD slept) (NP (CD 1,000) (NNS hours) )) (. .) ))",
    "( (S (NP-SBJ (NN cat) ) (, ,) (VP (VBD slept) (S (-NONE- *) )) (. .) ))",
)
TEXT = "the dog slept N hours\n\na <unk> cat slept N hours\nthe <unk> of it\ncat slept\n"
RECIPE = """
[data]
train = "aligned.ptb"
dev = "aligned.ptb"
empty_lines = true
[vocabulary]
min_count = 1
[model]
{model}
[training]
{training}
max_steps = 2
"""
PALM = """
system = "palm"
embedding_size = 8
hidden_size = 8
rational_size = 4
scorer_size = 4
residual_size = 8
max_span = 4
span_weight = 0.01
"""
STREAM = 'batches = "stream"\nbatch_size = 2\nbptt = 5\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for section in range(25):
        path = tmp_path / f"wsj/{section:02}/wsj_{section:02}01.mrg"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(TREES) if section == 3 else f"( (S (NNP S{section}) (. .) ))\n")
    (tmp_path / "text.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "cache"))
    return tmp_path


def align(treelm: Treelm) -> str:
    assert treelm("data", "sections", "wsj", "--splits", "ptb-lm", "--output", "ptb").code == 0
    outcome = treelm("data", "align", "ptb/train.ptb", "--text", "text.txt", "--output", "aligned.ptb")
    assert outcome.code == 0
    return outcome.err


def test_a_treebank_gives_its_trees_to_a_text(folder: Path, treelm: Treelm) -> None:
    said = align(treelm)
    assert "4 lines: 3 of one tree, 0 of several, 0 in part, 1 without; 1 blank lines" in said
    assert (folder / "aligned.ptb").read_text().splitlines() == [
        "(S (NP (DT the) (NN dog)) (VP (VBD slept) (NP (CD N) (NNS hours))))",
        "",
        "(S (NP (DT a) (JJ <unk>) (NN cat)) (VP (VBD slept) (NP (CD N) (NNS hours))))",
        "(UNPARSED (X the) (X <unk>) (X of) (X it))",
        "(S (NP (NN cat)) (VP (VBD slept)))",
    ]
    assert json.loads((folder / "aligned.ptb.json").read_text())["counts"]["trees_used"] == 3


def test_a_system_that_reads_trees_alone_refuses_blank_lines(folder: Path, treelm: Treelm) -> None:
    align(treelm)
    rnng = 'system = "rnng"\nembedding_size = 8\nhidden_size = 8'
    (folder / "recipe.toml").write_text(RECIPE.format(model=rnng, training=""))
    outcome = treelm("train", "recipe.toml", "--output", "run", "--quiet")
    assert outcome.code == 2
    assert "aligned.ptb:2: a blank line" in outcome.err


def test_systems_train_on_it(folder: Path, treelm: Treelm) -> None:
    align(treelm)
    (folder / "recipe.toml").write_text(RECIPE.format(model=PALM, training=STREAM))
    assert treelm("train", "recipe.toml", "--output", "run", "--quiet").code == 0
    last = json.loads((folder / "run/metrics.jsonl").read_text().splitlines()[-1])
    structure = [name for name in last if name.startswith(("spans_nats", "parse_nats"))]
    assert structure
    assert all(last[name] > 0 for name in structure)
