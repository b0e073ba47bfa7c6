"""A regression for other programs: its table, scripts for R's lme4 and mgcv, and predictors in REPLICA's form.

Their statistics are not built again here. REPLICA (replicaverse on PyPI) reads predictors as rows of a stimulus, the
number of a unit in it from 0, and log p in nats under the name ``log_p_observed``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from treelm.errors import InputError
from treelm.evaluation.human.reading import Regression
from treelm.io.atomic import write_atomically

if TYPE_CHECKING:
    import pandas as pd

TABLE, PREDICTORS = "words.csv", "replica-predictors.csv"
SCRIPTS = ("lme4.R", "mgcv.R", "replica_models.py")
_READER = "participant"
_REPLICA_NAMES = {"natural-stories": ("natural_stories", "ns_")}
"""What REPLICA calls a corpus, and what stands before the ids of its stimuli."""


def export(regression: Regression, folder: Path) -> list[str]:
    """Write everything into a folder, and give the names of the files.

    The table has the words that are compared, with times, predictors and surprisals at all lags, no two columns of one
    name. Raises ``InputError`` as ``check_folder`` does.
    """
    check_folder(folder)
    table, keys, predictors, models = _table(regression)
    filled = {
        "@BASELINE@": _r_vector(predictors),
        "@MODELS@": ",\n  ".join(f"{json.dumps(name)} = {_r_vector(own)}" for name, own in models.items()),
        "@KEYS@": _r_vector(keys),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / TABLE, _csv(table, "%.6g"))
    write_atomically(folder / PREDICTORS, _csv(_predictors(regression), "%.6f"))
    for name in SCRIPTS:
        text = files("treelm.evaluation.human").joinpath("scripts", f"{name}.template").read_text(encoding="utf-8")
        for mark, content in filled.items():
            text = text.replace(mark, content)
        write_atomically(folder / name, text.encode())
    return _names()


def check_folder(folder: Path) -> None:
    """Raise ``InputError`` for a folder that has files of these names already, and for a file in its place."""
    if folder.exists() and not folder.is_dir():
        raise InputError("not a folder", where=str(folder), remedy="give the name of a folder")
    for name in _names():
        if (folder / name).exists():
            raise InputError(f"{name} is there already", where=str(folder), remedy="give another folder, or remove it")


def _names() -> list[str]:
    return [TABLE, *SCRIPTS[:2], PREDICTORS, SCRIPTS[2]]


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


def _r_vector(names: Iterable[str]) -> str:
    return f"c({', '.join(json.dumps(name) for name in names)})"


def _csv(table: pd.DataFrame, numbers: str) -> bytes:
    finite = table.replace([np.inf, -np.inf], np.nan)
    text: str = finite.to_csv(index=False, float_format=numbers, na_rep="NA", lineterminator="\n")
    return text.encode()


def _table(regression: Regression) -> tuple[pd.DataFrame, list[str], list[str], dict[str, list[str]]]:
    """The words that are compared; the names of its columns of keys, of predictors and, by model, of surprisals."""
    import pandas as pd

    corpus, models = regression.corpus, regression.lagged_bits
    about = {
        "word": corpus.words,
        "sentence": corpus.sentences,
        "fold": corpus.folds,
        "class": corpus.classes or ["NA"] * len(corpus),
        "time": corpus.responses[regression.response],
    }
    about = {name: values for name, values in about.items() if name not in corpus.key_names}
    bits = [(f"{name}_{lag}", values[:, lag]) for name, values in models.items() for lag in range(values.shape[1])]
    columns = [*zip(corpus.key_names, zip(*corpus.keys, strict=True), strict=True), *about.items()]
    columns += [(_READER, np.zeros(len(corpus))), *regression.columns.items(), *bits]
    names = r_names([name for name, _ in columns])
    table = pd.DataFrame({name: list(values) for name, (_, values) in zip(names, columns, strict=True)})
    keys, rest = names[: len(corpus.key_names)], names[len(corpus.key_names) + len(about) :]
    reader, *rest = rest  # a name that the scripts take for theirs
    predictors, rest = rest[: len(regression.columns)], rest[len(regression.columns) :]
    num_lags = regression.num_lags + 1
    of_models = {name: rest[place * num_lags : (place + 1) * num_lags] for place, name in enumerate(models)}
    return table[regression.kept].drop(columns=reader), keys, predictors, of_models


def _predictors(regression: Regression) -> pd.DataFrame:
    """The surprisals of all words in REPLICA's form: of each model one after the other."""
    import pandas as pd

    corpus = regression.corpus
    dataset, before = _REPLICA_NAMES.get(corpus.name, (r_names([corpus.name])[0], ""))
    words = pd.DataFrame({"stimulus_id": [f"{before}{document}" for document in corpus.documents]})
    words["unit_index"] = [unit for _, group in groupby(corpus.documents) for unit, _ in enumerate(group)]
    words["predictor"] = "log_p_observed"
    tables = [
        words.assign(value=-model.bits * math.log(2), text_unit=corpus.words, tag=f"{name}_surprisal_{dataset}")
        for model in regression.models.values()
        for name in r_names([model.name])
    ]
    names = ["tag", *words.columns, "value", "text_unit"]
    return pd.concat(tables)[names] if tables else pd.DataFrame(columns=names)
