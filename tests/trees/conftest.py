"""The packaged treebank, read once."""

import gzip
from importlib.resources import files


def read_lines(name: str) -> list[str]:
    path = files("treelm") / "data" / "gum-open" / name
    return gzip.decompress(path.read_bytes()).decode("utf-8").splitlines(keepends=True)
