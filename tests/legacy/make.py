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

from tests.systems import SMALL
from treelm.models import SYSTEMS
from treelm.models.capabilities import Parser, has

HERE = Path(__file__).parent
EXPECTED = "expected.json"
SENTENCES = (
    "The city is one of the oldest in the country .",
    "I think that she was right about this .",
    "Zyxwv barks",
)
WORDS = {"kind": "word", "min_count": 2, "max_size": 60}
WIDE = {"max_open": 40, "max_consecutive": 20}  # for trees of gum-open
STREAM, CONLLU = {"batches": "stream"}, {"format": "conllu"}
PLM = {"composition": "none", "positions": "place", "structured_heads": True}
LATENT = {"latent_size": 4, "encoder_embedding_size": 4, "encoder_hidden_size": 4, "num_draws": 2}
RUNS: dict[str, dict[str, Any]] = {
    **{system: {} for system in SYSTEMS},
    **{name: {"training": STREAM} for name in ("lstm", "on-lstm", "palm", "prpn")},
    "chart": {"vocabulary": {"kind": "affixes", "affix_rows": 64}},
    "neural-pcfg-compound": {"model": LATENT},
    "neural-pcfg-low-rank": {"model": {"rules": "low-rank", "rank": 12}},
    "neural-pcfg-simple": {"model": {"rules": "simple"}},
    "pushdown": {"model": {"max_depth": 20, "max_stack": 60}},
    "transformer-grammar": {"model": WIDE},
    "transformer-grammar-plm-mask": {"model": {**WIDE, **PLM}},
    "transformer-rotary-stream": {"model": {"positions": "rotary"}, "training": STREAM},
    "transformer-treereg": {"model": {"auxiliary": "treereg", "treereg_layer": 1, "treereg_units": 6}},
    "urnng": {"model": {"max_open": 160, "max_consecutive": 80}, "training": {"max_steps": 6}},
    "rnng": {"model": WIDE},
    "rnng-in-order-attention": {
        "model": {**WIDE, "order": "in-order", "composition": "attention"},
        "vocabulary": {"kind": "character", "min_count": 2},
    },
    "rnng-subword": {"model": {**WIDE, "composition": "none"}, "vocabulary": {"kind": "subword", "max_size": 330}},
    **{name: {"data": CONLLU} for name in ("shift-reduce", "som")},
    "som-parser": {"model": {"syntactic_size": 4, "word_loss": False}, "data": CONLLU},
}
"""Name of the folder, which begins with that of a system -> what its recipe changes of the small one. A folder that
stands here was made by what its own ``recipe.toml`` says."""
KEPT = [name for name in RUNS if (HERE / name).is_dir()]
"""Those that are there: a new system gets its own before the first release that has it."""
RESUMABLE = ("lstm", "rnng")
"""Runs that keep their last checkpoint."""


WIDTHS = {"action_beam": 20, "word_beam": 5}


def recipe_values(name: str) -> dict[str, dict[str, Any]]:
    """The recipe of a run: twenty sentences of gum-open, twenty updates."""
    changes, system = RUNS[name], max((one for one in SYSTEMS if name.startswith(one)), key=len)
    training = {
        "epochs": None,
        "max_steps": 20,
        "batch_size": 8,
        "learning_rate": 0.02,
        "seed": 7,
        "keep_checkpoints": 1,
    }
    return {
        "data": {"corpus": "gum-open", "max_sentences": 20, **changes.get("data", {})},
        "vocabulary": changes.get("vocabulary", {"unknown": "berkeley", **WORDS}),
        "model": {"system": system, **SMALL[system].model, **changes.get("model", {})},
        "training": {} if SMALL[system].is_estimated else {**training, **changes.get("training", {})},
        "search": WIDTHS,
        "evaluation": {"max_sentences": 3},
    }


SEARCHED_WIDELY = {"urnng": ("The city is old .", "I think that", "Zyxwv barks")}
"""Runs whose narrow search has found more since; a beam of 1,000 finds all trees of these sentences, a sum of each."""


def describe(run: Path) -> dict[str, Any]:
    """What a run says of the sentences: scores by token (nats) and trees, as far as the system has them."""
    import treelm
    from treelm.models.capabilities import set_search
    from treelm.models.search.config import SearchConfig

    lm = treelm.load(run)
    set_search(lm, SearchConfig(**WIDTHS))  # as then: what is searched by default may get better
    if run.name in SEARCHED_WIDELY:
        lm.search = SearchConfig(action_beam=1000, word_beam=1000, fast_track=1)
    sentences = SEARCHED_WIDELY.get(run.name, SENTENCES)
    words = [sentence.split() for sentence in sentences]
    expected: dict[str, Any] = {"sentences": list(sentences)}
    if lm.predicts_words:
        log_probs = [score.log_probs for score in lm.score(words)]
        expected["log_probs"] = [[one.sum()] if run.name in SEARCHED_WIDELY else one.tolist() for one in log_probs]
    if has(lm, Parser):
        expected["trees"] = [str(tree) for tree in lm.parse(words)]
    return expected


def make(name: str) -> None:
    """Train a run and keep what a run folder needs; checkpoints only where they are tried."""
    from treelm.training.recipe import build_recipe
    from treelm.training.trainer import train

    run = HERE / name
    shutil.rmtree(run, ignore_errors=True)
    train(build_recipe(recipe_values(name), where=name), run, quiet=True)
    if name not in RESUMABLE:
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
    (run / EXPECTED).write_text(json.dumps(describe(run), indent=1) + "\n", encoding="utf-8")


def main(names: list[str]) -> None:
    """Make the named runs anew, or those that are missing."""
    for name in names or [name for name in RUNS if not (HERE / name / EXPECTED).exists()]:
        print(name)
        make(name)


if __name__ == "__main__":
    main(sys.argv[1:])
