"""Reading times that are made up, so that what surprisal adds is known."""

import numpy as np

from treelm.evaluation.human.corpora import ReadingCorpus, published_surprisals
from treelm.evaluation.human.material import Surprisals


def made_up(num_stories: int = 6, length: int = 120, *, curve: float = 0.0, seed: int = 3) -> ReadingCorpus:
    """Times of 300 + 10 length + 4 bits of this word + 2 bits of the one before, with noise of 5 ms."""
    generator = np.random.default_rng(seed)
    size = num_stories * length
    stories = tuple(str(row // length) for row in range(size))
    letters = generator.integers(1, 10, size).astype(float)
    bits = generator.gamma(3.0, 2.0, size)
    is_first = np.arange(size) % length == 0
    before = np.where(is_first, np.nan, np.append(np.nan, bits[:-1]))
    times = 300 + 10 * letters + 4 * bits + 2 * before + curve * bits**2 + generator.normal(0, 5, size)
    return ReadingCorpus(
        name="made-up",
        key_names=("story", "position"),
        keys=tuple((story, str(row % length)) for row, story in enumerate(stories)),
        words=tuple(f"w{row}" for row in range(size)),
        sentences=tuple(f"{story}-{row % length // 10}" for row, story in enumerate(stories)),
        documents=stories,
        responses={"rt": times},
        predictors={"length": letters},
        controls={"position": np.arange(size) % length + 1.0},
        lag_groups=stories,
        num_lags=1,
        folds=stories,
        fold_kind="stories",
        classes=tuple("even" if row % 2 == 0 else "odd" for row in range(size)),
        published=published_surprisals({"true": bits.tolist(), "noise": generator.gamma(3.0, 2.0, size).tolist()}),
        references=("true",),
    )


def surprisals(name: str, bits: np.ndarray, unknown: tuple[int, ...] = ()) -> Surprisals:
    is_unknown = np.zeros(len(bits), dtype=bool)
    is_unknown[list(unknown)] = True
    return Surprisals(name=name, kind="run", bits=bits, is_unknown=is_unknown)
