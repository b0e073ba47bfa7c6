"""The packaged treebank, read once."""

import gzip
from importlib.resources import files

import pytest

from treelm.errors import without_errors
from treelm.trees.brackets import BracketedTree, read_trees


def read_lines(name: str) -> list[str]:
    path = files("treelm") / "data" / "gum-open" / name
    return gzip.decompress(path.read_bytes()).decode("utf-8").splitlines(keepends=True)


@pytest.fixture(scope="session")
def gum_open() -> list[BracketedTree]:
    """Every tree of the packaged treebank."""
    return [
        tree
        for split in ("train", "dev", "test")
        for tree in without_errors(read_trees("".join(read_lines(f"{split}.ptb.gz"))), None)
    ]
