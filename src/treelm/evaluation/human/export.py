"""A regression for other programs: its table, scripts for R's lme4 and mgcv, and predictors in REPLICA's form.

Their statistics are not built again here. REPLICA (replicaverse on PyPI) reads predictors as rows of a stimulus, the
number of a unit in it from 0, and log p in nats under the name ``log_p_observed``.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from treelm.errors import InputError
from treelm.evaluation.human.reading import Regression
from treelm.models.persistence.files import write_atomically

TABLE, PREDICTORS = "words.csv", "replica-predictors.csv"
SCRIPTS = ("lme4.R", "mgcv.R", "replica_models.py")
_ABOUT = ("word", "sentence", "fold", "class", "time")
"""Columns of every table, after the keys, of which one may be the sentence."""
_READER = "participant"
_REPLICA_NAMES = {"natural-stories": ("natural_stories", "ns_")}
"""What REPLICA calls a corpus, and what stands before the ids of its stimuli."""


def export(regression: Regression, folder: Path) -> list[str]:
    """Write everything into a folder, and give the names of the files.

    The table has the words that are compared, with times, predictors and surprisals at all lags, no two columns of one
    name. Raises ``InputError`` as ``check_folder`` does.
    """
    check_folder(folder)
    lagged = [f"{name}_{lag}" for name in regression.models for lag in range(regression.num_lags + 1)]
    keys = list(regression.corpus.key_names)
    columns = iter(r_names([*keys, *_about(keys), _READER, *regression.columns, *lagged]))
    own_keys, about = [next(columns) for _ in keys], [next(columns) for _ in _about(keys)]
    next(columns)  # what the scripts call readers
    predictors = {name: next(columns) for name in regression.columns}
    models = {name: [next(columns) for _ in range(regression.num_lags + 1)] for name in regression.models}
    filled = {
        "@BASELINE@": _r_vector(predictors.values()),
        "@MODELS@": ",\n  ".join(f"{json.dumps(name)} = {_r_vector(own)}" for name, own in models.items()),
        "@KEYS@": _r_vector(own_keys),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / TABLE, _csv(_table(regression, [*own_keys, *about], predictors, models)))
    write_atomically(folder / PREDICTORS, _csv(_predictors(regression)))
    names = _names()
    for name in SCRIPTS:
        text = files("treelm.evaluation.human").joinpath("scripts", f"{name}.template").read_text(encoding="utf-8")
        for mark, content in filled.items():
            text = text.replace(mark, content)
        write_atomically(folder / name, text.encode())
    return names


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


def _csv(rows: Iterator[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _cell(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "NA"


def _about(keys: Sequence[str]) -> list[str]:
    return [name for name in _ABOUT if name not in keys]


def _table(
    regression: Regression, head: Sequence[str], predictors: dict[str, str], models: dict[str, list[str]]
) -> Iterator[Sequence[str]]:
    corpus = regression.corpus
    yield [*head, *predictors.values(), *(column for own in models.values() for column in own)]
    numbers = [regression.columns[name] for name in predictors]
    bits = [values[:, lag] for values in regression.lagged_bits.values() for lag in range(values.shape[1])]
    times = corpus.responses[regression.response]
    for row in regression.kept.nonzero()[0]:
        word_class = corpus.classes[row] if corpus.classes else "NA"
        values = (corpus.words[row], corpus.sentences[row], corpus.folds[row], word_class, _cell(times[row]))
        found = dict(zip(_ABOUT, values, strict=True))
        about = [found[name] for name in _about(corpus.key_names)]
        yield [*corpus.keys[row], *about, *(_cell(values[row]) for values in (*numbers, *bits))]


def _predictors(regression: Regression) -> Iterator[Sequence[str]]:
    corpus = regression.corpus
    dataset, before = _REPLICA_NAMES.get(corpus.name, (r_names([corpus.name])[0], ""))
    units = [unit for _, group in groupby(corpus.documents) for unit, _ in enumerate(group)]
    yield ["tag", "stimulus_id", "unit_index", "predictor", "value", "text_unit"]
    for model in regression.models.values():
        tag = f"{r_names([model.name])[0]}_surprisal_{dataset}"
        for row, unit in enumerate(units):
            bits = model.bits[row]
            nats = f"{-bits * math.log(2):.6f}" if math.isfinite(bits) else "NA"
            yield [tag, f"{before}{corpus.documents[row]}", str(unit), "log_p_observed", nats, corpus.words[row]]
