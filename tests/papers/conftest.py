"""A paper of one small table, which declares everything that a table can."""

from pathlib import Path

import pytest

from tests.cli.conftest import TREES
from treelm.papers.data import DataRoot, data_sets
from treelm.papers.declaration import Table, load_table

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
title = "Two systems"
source = "Table 1, Nobody 2000"
data = "large"
notes = ["a note on the table"]

[measures.words]
kind = "evaluate"
split = "test"

[measures.trees]
kind = "evaluate"
split = "test"
protocols = ["plain"]

[[columns]]
name = "words"
heading = "test ppl"
metric = "perplexity_per_word_with_end"

[[columns]]
name = "trees"
heading = "UF1"
metric = "unlabeled_f1_corpus, plain"

[[rows]]
name = "whole"
recipe = "small.toml"
published = { words = 61.98, trees = 50 }

[[rows]]
name = "without attention"
recipe = "small.toml"
settings = ["model.read_attention=false"]
note = "a note on the row"

[[rows]]
name = "right-branching"
baseline = "right-branching"
metrics = { words = "" }
published = { trees = 40.7 }

[[rows]]
name = "another system"
absent = "not a system of treelm"
published = { words = 57.3 }

[[stand_ins]]
label = "tiny, 6 units"
data = "tiny"
seeds = 2
settings = ["training.epochs=1"]
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
def paper(tmp_path: Path) -> Path:
    """A folder with declarations, and beside it one with corpora."""
    folder = tmp_path / "paper"
    folder.mkdir()
    (folder / "small.toml").write_text(RECIPE)
    (folder / "table1.toml").write_text(TABLE)
    (folder / "data.toml").write_text(DATA)
    (tmp_path / "corpora" / "tiny").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (tmp_path / "corpora" / "tiny" / f"{split}.ptb").write_text(TREES)
    return folder


@pytest.fixture
def root(paper: Path) -> DataRoot:
    """The corpora of the paper."""
    return DataRoot(paper.parent / "corpora", data_sets(paper))


@pytest.fixture
def table(paper: Path, root: DataRoot) -> Table:
    """The table, read."""
    return load_table(paper / "table1.toml", root.sets)
