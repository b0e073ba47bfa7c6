"""Corpora of reading times: words, times, what else slows readers down, and published surprisals beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treelm.errors import InputError
from treelm.evaluation.human.material import MISSING, Bools, Floats, Material, Surprisals
from treelm.io.files import cache_directory, file_hash

if TYPE_CHECKING:
    import pandas as pd

MARK, END = "mark", "end"
"""Predictors: whether a word has punctuation on it, and whether it ends a sentence."""


@dataclass(frozen=True, kw_only=True)
class ReadingCorpus(Material):
    """Words with their reading times, and with predictors of these that do not come from a language model."""

    responses: Mapping[str, Floats]  # the first is the usual one; NaN: no time
    predictors: Mapping[str, Floats]  # join with their values at the words before; NaN: missing
    controls: Mapping[str, Floats]  # join with their own value alone
    lag_groups: tuple[str, ...]  # documents or sentences, within which the words before are looked for
    num_lags: int
    folds: tuple[str, ...]  # what is left out together
    fold_kind: str  # what is left out together, such as "stories"
    filters: Mapping[str, Bools] = field(default_factory=dict)  # words that one may restrict to, by name
    usable: Bools | None = None  # words whose times can be trusted
    classes: tuple[str, ...] = ()  # word class of each word; empty where none is known
    published: Mapping[str, Surprisals] = field(default_factory=dict)
    references: tuple[str, ...] = ()  # published models that are shown unless others are named
    notes: tuple[str, ...] = ()  # what must be said of it

    def content_hash(self) -> str:
        """A hash of words and times, which differs between releases of a corpus."""
        digest = hashlib.sha256("\n".join(self.words).encode())
        for name, times in self.responses.items():
            digest.update(name.encode() + times.tobytes())
        return digest.hexdigest()

    def shifted(self, values: Floats, lag: int) -> Floats:
        """The value of the word ``lag`` words before each, NaN where its group has none."""
        import pandas as pd

        found: Floats = pd.Series(values, dtype=float).groupby(pd.Series(self.lag_groups)).shift(lag).to_numpy()
        return found


def find_folder(name: str, given: str, layouts: Mapping[str, Mapping[str, str]], *, remedy: str) -> tuple[Path, str]:
    """Find a corpus that may not be shipped, and which of its layouts it has: that of the first file.

    A layout has the SHA-256 of each file by its path. The folder is the one that is given, else that in the cache.
    Raises ``InputError`` that says where to get it, and for a file that is missing or has another hash: another release
    may be aligned otherwise.
    """
    folder = Path(given) if given else cache_directory() / "human" / name
    for layout, hashes in layouts.items():
        if (folder / next(iter(hashes))).is_file():
            for path, expected in hashes.items():
                found = file_hash(folder / path, remedy="check the path")
                if found != expected:
                    problem = f"SHA-256 {found[:12]}..., expected {expected[:12]}..."
                    raise InputError(
                        problem, where=str(folder / path), remedy="take the release that docs/reading.md names"
                    )
            return folder, layout
    raise InputError(f"{name} may not be shipped, and is not here", where=str(folder), remedy=remedy)


def read_columns(path: Path, numbers: Iterable[str] = (), **options: Any) -> pd.DataFrame:
    """Read a table of known content as text, but the columns ``numbers`` as numbers, NaN where a cell is missing.

    ``options`` are those of ``pandas.read_csv``.
    """
    import pandas as pd

    frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8", **options)
    for name in numbers:
        frame[name] = frame[name].mask(frame[name].isin(MISSING), "nan").astype(float)
    return frame


def published_surprisals(bits: Mapping[str, Sequence[float]] | pd.DataFrame) -> dict[str, Surprisals]:
    """Published surprisals by model, from bits of every word; NaN where a model has none."""
    return {
        name: Surprisals(
            name=name,
            kind="published",
            bits=np.array(values, dtype=np.float64),
            is_unknown=np.zeros(len(values), dtype=bool),
        )
        for name, values in bits.items()
    }
