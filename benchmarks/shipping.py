"""A trained run as a model that comes with the package: narrow weights, expected scores, a model card.

Matrices are stored in int8 with a step for each row, which changes a surprisal by some hundredths of a bit.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from model_card import CARD, CORPORA, EXPECTED, FIGURES, read_figures, write_figures

from treelm import __version__
from treelm.corpora.data_config import DataConfig, example_sentences, prepared_split
from treelm.corpora.tokens import words_of
from treelm.errors import InputError
from treelm.evaluation.evaluate import evaluate_run
from treelm.evaluation.span_protocols import PLAIN
from treelm.io.atomic import write_atomically
from treelm.io.json import encode_json, read_json
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Counted, set_search
from treelm.models.persistence.hub import CONFIG
from treelm.models.persistence.storage import WEIGHTS, load_model, read_overrides, save_model
from treelm.models.persistence.tensors import NARROWED, STEPS, encode_tensors, read_tensors
from treelm.models.search.config import SearchConfig
from treelm.training.config import TrainingConfig
from treelm.training.distributed import ProcessGroup
from treelm.training.metrics import FILE_NAME as METRICS
from treelm.training.metrics import read_metrics
from treelm.training.prepare import dev_batches
from treelm.training.recipe import FILE_NAME as RECIPE
from treelm.training.recipe import Recipe
from treelm.training.run_folder import load_run_recipe
from treelm.training.updates import dev_loss

__all__ = ["CARD", "EXPECTED", "Origin", "differences", "ship"]

TOLERANCE_NATS = 1e-3
"""How far a log probability may be from the expected one: other processors round otherwise."""
FEW_COLUMNS = 16
"""A matrix of so few gains nothing from a step for each row."""
CURVE = ("step", "epoch", "cpu_seconds", "loss_nats_per_word", "loss_perplexity_per_word", "is_best")
"""What is kept of an evaluation on dev in the course of training."""
Words = Sequence[str]
UNKNOWN = "Which books did the zorblaxes of Zanzibar read ?"
"""A sentence with words that no training text has."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What the run folder does not say about how a model was made."""

    about: str
    """What the model is, in a sentence or two."""
    commit: str
    """Version of the source."""
    command: str
    """What to type to make it again."""
    recipe: str = ""
    """Where its recipe is from, in words."""


def ship(run: Path, destination: Path, origin: Origin, *, recipe_file: bytes | None = None) -> None:
    """Make the folder of a shipped model from a run: it is there in full, or as it was before.

    Figures and expected scores are those of the narrow weights, as users will load them. ``recipe_file`` stands in the
    place of the run's own. A run that is itself the folder of a shipped model is stored again: how it was made stays,
    and what was measured of its weights before goes.

    Raises ``InputError`` for a run without a model, and for a recipe with other data.
    """
    partial = destination.with_name(f".{destination.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    wide = load_model(run)
    kind = storage_type(wide)
    save_model(wide, partial)
    narrow_weights(partial / WEIGHTS, kind)
    _keep_overrides(destination, partial)
    (partial / RECIPE).write_bytes(recipe_file or (run / RECIPE).read_bytes())
    recipe, narrowed = load_run_recipe(partial), load_model(partial)
    before = read_figures(run) if (run / FIGURES).exists() else {}
    if not before:
        check_data(wide, recipe)
    losses = before.get("dev_loss") or {"float32": dev_nats_per_word(wide, recipe)}
    losses[kind] = dev_nats_per_word(narrowed, recipe)
    results = evaluate_run(partial, recipe, protocols=(PLAIN,))
    write_atomically(partial / EXPECTED, encode_json(expected_scores(narrowed, _sentences(recipe.data))))
    figures = {
        **({name: value for name, value in before.items() if name != "measured"} or _made(run, recipe, origin)),
        "dev_loss": {kind: loss for kind, loss in losses.items() if not math.isnan(loss)},
        "results": [
            {"split": result.split, "rows": dict(result.rows()), "notes": list(result.all_notes())}
            for result in results
        ],
    }
    write_figures(partial, figures, name=destination.name)
    shutil.rmtree(destination, ignore_errors=True)
    partial.rename(destination)


def _made(run: Path, recipe: Recipe, origin: Origin) -> dict[str, Any]:
    """How a run was made, as figures."""
    metrics = read_metrics(run / METRICS) if (run / METRICS).exists() else []
    return {
        "origin": {**vars(origin), "treelm": __version__},
        "training": training_of(metrics),
        **({"curve": curve} if (curve := curve_of(metrics)) else {}),
        "num_words": prepared_split(recipe.data, "train").num_tokens,
    }


def _keep_overrides(before: Path, now: Path) -> None:
    """Let a model that is made again be read as the one in its place: with the ``reading`` of its ``config.json``."""
    if reading := read_overrides(before):
        config = read_json(now / CONFIG, remedy="make the model again")
        write_atomically(now / CONFIG, encode_json({**config, "reading": reading}))


def narrow_weights(path: Path, kind: str) -> None:
    """Store a file of weights as ``kind``, and int64 as int32 where all values fit.

    With int8, matrices become int8 with a step for each row, and other floats float16. Raises ``InputError`` for
    weights beyond the range of the type, which would become infinite.
    """
    tensors, note = read_tensors(path, remedy="save the model again")
    narrowed = {}
    for name, tensor in tensors.items():
        if kind == "int8" and tensor.is_floating_point() and tensor.dim() == 2 and tensor.size(1) > FEW_COLUMNS:
            narrowed[name], narrowed[name + STEPS] = to_int8(tensor)
        else:
            narrowed[name] = _narrow(name, tensor, torch.float16 if kind == "int8" else getattr(torch, kind))
    write_atomically(path, encode_tensors(narrowed, {**note, NARROWED: kind}))


def to_int8(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix rounded to 127 steps of either sign, and the steps of its rows, (rows, 1)."""
    steps = matrix.abs().amax(1, keepdim=True).float() / 127
    return (matrix / steps.where(steps > 0, 1)).round().to(torch.int8), steps


def _narrow(name: str, tensor: torch.Tensor, floats: torch.dtype) -> torch.Tensor:
    if tensor.dtype == torch.int64:
        narrowed = tensor.to(torch.int32)
        return narrowed if torch.equal(narrowed.to(torch.int64), tensor) else tensor
    if not tensor.is_floating_point() or tensor.element_size() <= floats.itemsize:
        return tensor
    narrowed = tensor.to(floats)
    if not torch.equal(torch.isfinite(narrowed), torch.isfinite(tensor)):
        found = f"tensor {name!r} has values beyond {str(floats).removeprefix('torch.')}"
        raise InputError(found, remedy="keep this model in float32")
    return narrowed


def storage_type(lm: LanguageModel) -> str:
    """How weights are stored: estimated probabilities must add up to one more exactly than narrow types can."""
    return "float32" if isinstance(lm, Counted) else "int8"


def check_data(lm: LanguageModel, recipe: Recipe) -> None:
    """Raise ``InputError`` if the recipe's data are not those that the model was trained on, by their identity."""
    for split, identity in lm.data_identity.items():
        found = prepared_split(recipe.data, split).identity  # type: ignore[arg-type]
        if found != identity:
            problem = f"{split} of {recipe.data.corpus or 'the recipe'} is {found}, but it was trained on {identity}"
            raise InputError(problem, remedy="have the same corpus here, under this name")


def dev_nats_per_word(lm: LanguageModel, recipe: Recipe) -> float:
    """The loss that training minimises, on dev; NaN without dev data."""
    has_dev = recipe.data.has_split("dev")
    batches = dev_batches(prepared_split(recipe.data, "dev"), lm, recipe) if has_dev else ()
    config = TrainingConfig(device="cpu")
    loss = dev_loss(lm, batches, config, ProcessGroup(config))
    lm.eval()
    return loss.nats_per_word


def _sentences(data: DataConfig) -> list[Words]:
    """Sentences of the model's language, and unknown words where the language is known."""
    unknown = [words_of(UNKNOWN)] if data.corpus in CORPORA else []
    return [*(sentence.words for sentence in example_sentences(data)), *unknown]


def expected_scores(lm: LanguageModel, sentences_in_words: Sequence[Words]) -> dict[str, Any]:
    """Log probabilities of all tokens and trees of a few sentences, each by itself, as plain values.

    By a beam of one size, which a change of the default search leaves as it is.
    """
    set_search(lm, SearchConfig(action_beam=100, word_beam=10))
    sentences = []
    for words in sentences_in_words:
        (found,) = lm.analyse([words])
        one: dict[str, Any] = {"words": list(words)}
        if found.score is not None:
            one["log_probs_nats"] = [float(value) for value in found.score.log_probs]
        if found.tree is not None:
            one["tree"] = str(found.tree)
        sentences.append(one)
    return {"system": lm.system, "tolerance_nats": TOLERANCE_NATS, "sentences": sentences}


def differences(lm: LanguageModel, folder: Path) -> list[str]:
    """Where a model's scores and trees are not the expected ones of its folder; nothing if it is as it was shipped."""
    expected = read_json(folder / EXPECTED, remedy="make the model again")
    found = expected_scores(lm, [one["words"] for one in expected["sentences"]])
    tolerance = expected["tolerance_nats"]
    return [
        text
        for before, now in zip(expected["sentences"], found["sentences"], strict=True)
        for text in _differences(before, now, tolerance)
    ]


def _differences(before: dict[str, Any], now: dict[str, Any], tolerance: float) -> list[str]:
    if set(before) != set(now):
        return [f"{sorted(before)} expected, {sorted(now)} found"]
    texts = []
    pairs = list(zip(before.get("log_probs_nats", []), now.get("log_probs_nats", []), strict=True))
    if pairs and not (worst := max(abs(one - other) for one, other in pairs)) <= tolerance:
        texts.append(f"{' '.join(before['words'])}: log probabilities differ by {worst:.2g} nats")
    if before.get("tree") != now.get("tree"):
        texts.append(f"{before['tree']} expected, {now['tree']} found")
    return texts


def training_of(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Epochs, updates and minutes of a run, from its log: by the clock, and of processor time."""
    best = [entry["epoch"] for entry in metrics if entry["kind"] == "dev" and entry.get("is_best")]
    return {
        "minutes": max((entry["elapsed_seconds"] for entry in metrics), default=0.0) / 60,
        "cpu_minutes": max((entry["cpu_seconds"] for entry in metrics if "cpu_seconds" in entry), default=0.0) / 60,
        "num_epochs": max((entry["epoch"] for entry in metrics), default=0),
        "num_steps": max((entry["step"] for entry in metrics), default=0),
        "num_words_read": sum(entry["num_words"] for entry in metrics if entry["kind"] == "train"),
        "best_epoch": best[-1] if best else None,
    }


def curve_of(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every evaluation on dev in the course of training; none of a model that was estimated at once."""
    return [
        {name: entry[name] for name in CURVE if name in entry}
        for entry in metrics
        if entry["kind"] == "dev" and "is_best" in entry
    ]
