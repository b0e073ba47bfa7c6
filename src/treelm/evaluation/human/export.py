"""A regression for R: its table, and scripts for lme4 and mgcv, whose statistics are not built again here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from treelm.errors import InputError
from treelm.evaluation.human.reading import Regression
from treelm.io.atomic import write_atomically

FILES = ("words.csv", "lme4.R", "mgcv.R")


def export(regression: Regression, folder: Path) -> None:
    """Write the files into a folder.

    The table has the words that are compared, with times, predictors and surprisals at all lags, no two columns of one
    name. Raises ``InputError`` as ``check_folder`` does.
    """
    import pandas as pd

    check_folder(folder)
    corpus = regression.corpus
    about = {
        "word": corpus.words,
        "sentence": corpus.sentences,
        "fold": corpus.folds,
        "class": corpus.classes or ["NA"] * len(corpus),
        "time": corpus.responses[regression.response],
    }
    groups: list[list[tuple[str, Iterable[Any]]]] = [
        [*zip(corpus.key_names, zip(*corpus.keys, strict=True), strict=True)],
        [(name, values) for name, values in about.items() if name not in corpus.key_names],
        [("participant", ())],  # the scripts take this name for theirs
        [*regression.columns.items()],
        *([(f"{name}_{lag}", own) for lag, own in enumerate(bits.T)] for name, bits in regression.lagged_bits.items()),
    ]
    names = iter(r_names([name for group in groups for name, _ in group]))
    keys, others, _, predictors, *models = ([(next(names), list(own)) for _, own in group] for group in groups)
    columns = [*keys, *others, *predictors, *(column for own in models for column in own)]
    table = pd.DataFrame(dict(columns))[regression.kept].replace([np.inf, -np.inf], np.nan)
    own_columns = (
        f"{json.dumps(name)} = {_r_vector(own)}" for name, own in zip(regression.models, models, strict=True)
    )
    filled = {"@KEYS@": _r_vector(keys), "@BASELINE@": _r_vector(predictors), "@MODELS@": ",\n  ".join(own_columns)}
    folder.mkdir(parents=True, exist_ok=True)
    text = table.to_csv(index=False, float_format="%.6g", na_rep="NA", lineterminator="\n")
    write_atomically(folder / FILES[0], text.encode())
    for name in FILES[1:]:
        script = files("treelm.evaluation.human").joinpath("scripts", f"{name}.template").read_text(encoding="utf-8")
        for mark, content in filled.items():
            script = script.replace(mark, content)
        write_atomically(folder / name, script.encode())


def check_folder(folder: Path) -> None:
    """Raise ``InputError`` for a folder that has files of these names already, and for a file in its place."""
    if folder.exists() and not folder.is_dir():
        raise InputError("not a folder", where=str(folder), remedy="give the name of a folder")
    for name in FILES:
        if (folder / name).exists():
            raise InputError(f"{name} is there already", where=str(folder), remedy="give another folder, or remove it")


def r_names(names: Sequence[str]) -> list[str]:
    """Names as R and its formulas take them, no two alike: ``5-gram`` becomes ``x5_gram``."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = plain if plain[:1].isalpha() else f"x{plain}"
        while plain in found:
            plain += "_"
        found.append(plain)
    return found


def _r_vector(columns: Iterable[tuple[str, object]]) -> str:
    return f"c({', '.join(json.dumps(name) for name, _ in columns)})"
