"""A paper of one small table, which declares everything that a table can."""

from pathlib import Path

import pytest

from tests.cli.conftest import TREES
from treelm.papers.data import DataRoot
from treelm.papers.declaration import Table, load_paper

RECIPE = """\
[data]
corpus = "tiny"
[vocabulary]
min_count = 1
[model]
system = "prpn"
embedding_size = 6
hidden_size = 6
[training]
epochs = 2
batch_size = 4
"""
TABLE = """\
paper = "Nobody 2000"

["Table 1"]
title = "Two systems"
data = "large"
notes = ["a note on the table"]

["Table 1".measures]
words = { kind = "evaluate", split = "test" }
trees = { kind = "evaluate", split = "test", protocols = ["plain"] }

["Table 1".columns]
"test ppl" = { measure = "words", metric = "perplexity_per_word_with_end" }
"UF1" = { measure = "trees", metric = "unlabeled_f1_corpus, plain" }

["Table 1".rows]
"whole" = { printed = "61.98 50", train = "small.toml" }
"without attention" = { train = "small.toml --set model.read_attention=false", note = "a note on the row" }
"right-branching" = { printed = "- 40.7", baseline = "right-branching", metrics = { "test ppl" = "" } }
"another system" = { printed = "57.3 -", absent = "not a system of treelm" }

["Table 1".stand_ins.tiny]
label = "tiny, 6 units"
data = "tiny"
seeds = 2
set = "training.epochs=1"
"""
DATA = """\
[tiny]
what = "four sentences"
source = "written here"
folder = "tiny"
is_parsed = true

[large]
what = "many sentences"
source = "the publisher"
folder = "large"
"""


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of declarations in a folder of its own, with a recipe, descriptions of data, and a folder of corpora."""
    monkeypatch.setattr("treelm.papers.data.FOLDER", tmp_path)
    (tmp_path / "small.toml").write_text(RECIPE)
    (tmp_path / "paper.toml").write_text(TABLE)
    (tmp_path / "data.toml").write_text(DATA)
    (tmp_path / "corpora" / "tiny").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (tmp_path / "corpora" / "tiny" / f"{split}.ptb").write_text(TREES)
    return tmp_path / "paper.toml"


@pytest.fixture
def root(paper: Path) -> DataRoot:
    """The corpora of the paper."""
    return DataRoot(paper.parent / "corpora")


@pytest.fixture
def table(paper: Path) -> Table:
    """The table, read."""
    (table,) = load_paper(paper.stem)
    return table
