"""Makes the run folders that stand here: one tiny run of every system, and what it says of three sentences.

``python -m tests.legacy.make [NAME ...]`` makes those that are missing, or the named ones anew. Folders that were made
by an older treelm are the point of the test: remake one only when it was wrong, never to make a test pass.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXPECTED = "expected.json"
SENTENCES = (
    "The city is one of the oldest in the country .",
    "I think that she was right about this .",
    "Zyxwv barks",
)
WORDS = {"kind": "word", "min_count": 2, "max_size": 60}
LSTM = {"embedding_size": 8, "hidden_size": 8, "num_layers": 2}
RUNS: dict[str, dict[str, Any]] = {
    "lstm": {"model": {"system": "lstm", **LSTM}, "training": {"batches": "stream"}},
    "on-lstm": {"model": {"system": "on-lstm", **LSTM, "chunk_size": 4}, "training": {"batches": "stream"}},
    "ngram": {"model": {"system": "ngram", "order": 3, "fallback_discounts": [0.5, 1.0, 1.5]}, "training": None},
    "palm": {
        "model": {"system": "palm", **LSTM, "rational_size": 4, "scorer_size": 4, "residual_size": 8, "max_span": 4},
        "training": {"batches": "stream"},
    },
    "prpn": {"model": {"system": "prpn", **LSTM, "look_back": 2, "num_slots": 4}, "training": {"batches": "stream"}},
    "rnng": {"model": {"system": "rnng", **LSTM}},
    "rnng-in-order-attention": {
        "model": {"system": "rnng", **LSTM, "order": "in-order", "composition": "attention"},
        "vocabulary": {"kind": "character", "min_count": 2},
    },
    "rnng-subword": {
        "model": {"system": "rnng", **LSTM, "composition": "none"},
        "vocabulary": {"kind": "subword", "max_size": 330},
    },
    "shift-reduce": {"model": {"system": "shift-reduce", "size": 8, "num_layers": 1}, "data": {"format": "conllu"}},
    "som": {"model": {"system": "som", "size": 8, "num_slots": 5}, "data": {"format": "conllu"}},
    "som-parser": {
        "model": {"system": "som", "size": 8, "syntactic_size": 4, "num_slots": 5, "word_loss": False},
        "data": {"format": "conllu"},
    },
}
"""Name of the folder -> what its recipe changes."""
RESUMABLE = ("lstm", "rnng")
"""Runs that keep their last checkpoint."""


def recipe_values(name: str) -> dict[str, dict[str, Any]]:
    """The recipe of a run: twenty sentences of gum-open, twenty updates."""
    changes = RUNS[name]
    training = {
        "epochs": None,
        "max_steps": 20,
        "batch_size": 8,
        "learning_rate": 0.02,
        "seed": 7,
        "keep_checkpoints": 1,
    }
    return {
        "data": {"corpus": "gum-open", "max_sentences": 20, "unknown_labels": "drop", **changes.get("data", {})},
        "vocabulary": changes.get("vocabulary", {"unknown": "berkeley", **WORDS}),
        "model": changes["model"],
        "training": {} if changes.get("training", {}) is None else {**training, **changes.get("training", {})},
        "evaluation": {"action_beam": 20, "word_beam": 5, "max_sentences": 3},
    }


def describe(run: Path) -> dict[str, Any]:
    """What a run says of the sentences: scores by symbol (nats) and trees, as far as the system has them."""
    import treelm
    from treelm.inference.loading import run_beam

    lm = treelm.load(run)
    lm.set_beam(**run_beam(run))  # of its recipe: what is searched by default may get better
    words = [sentence.split() for sentence in SENTENCES]
    expected: dict[str, Any] = {"sentences": list(SENTENCES)}
    if lm.predicts_words:
        expected["log_probs"] = [score.log_probs.tolist() for score in lm.score(words)]
    if lm.parses:
        expected["trees"] = [str(tree) for tree in lm.parse(words)]
    return expected


def make(name: str) -> None:
    """Train a run and keep what a run folder needs; checkpoints only where they are tried."""
    from treelm.training.recipe import build_recipe
    from treelm.training.run import train

    run = HERE / name
    shutil.rmtree(run, ignore_errors=True)
    train(build_recipe(recipe_values(name), where=name), run, on_terminal=False)
    if name not in RESUMABLE:
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
    (run / EXPECTED).write_text(json.dumps(describe(run), indent=1) + "\n", encoding="utf-8")


def main(names: list[str]) -> None:
    """Make the named runs anew, or those that are missing."""
    for name in names or [name for name in RUNS if not (HERE / name).exists()]:
        print(name)
        make(name)


if __name__ == "__main__":
    main(sys.argv[1:])
