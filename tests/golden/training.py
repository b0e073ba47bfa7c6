"""Parts of the record that train: ten updates of every small system on the packaged treebank, and what it then says."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.golden import api
from tests.golden.record import Record, hashes_of
from tests.systems import SMALL

TEXTS = ["The city is old .", "I think that she was right .", "Zyxwv barks"]
WIDE = {"max_open": 40, "max_consecutive": 20}  # for trees of gum-open
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "rnng": {"model": WIDE},
    "transformer-grammar": {"model": WIDE},
    "urnng": {"model": {"max_open": 160, "max_consecutive": 80}, "training": {"max_steps": 4}},
    "pushdown": {"model": {"max_depth": 20, "max_stack": 60}},
    "som": {"data": {"format": "conllu"}},
    "shift-reduce": {"data": {"format": "conllu"}},
}
NOT_OF_THE_MODEL = ("seconds", "per_second")


def _recipe(name: str) -> dict[str, dict[str, Any]]:
    small, changes = SMALL[name], CHANGES.get(SMALL[name].system, {})
    model = {**small.model, **changes.get("model", {})}
    if model.get("order") == "bottom-up":
        model = {key: value for key, value in model.items() if key not in WIDE}
    elif model.get("binary"):
        model["max_open"] = 160
    trained = {"max_steps": 10, "batch_size": 4, "learning_rate": 0.02, "seed": 7, "log_every_steps": 1, "threads": 1}
    return {
        "data": {"corpus": "gum-open", "max_sentences": 24, **changes.get("data", {})},
        "vocabulary": {"kind": "word", "min_count": 2, "max_size": 60, "unknown": "berkeley"}
        if not small.vocabulary
        else dict(small.vocabulary),
        "model": {"system": small.system, **model},
        "training": {} if small.is_estimated else {**trained, **small.training, **changes.get("training", {})},
        "search": {"action_beam": 20, "word_beam": 5},
        "evaluation": {"max_sentences": 3},
    }


def _toml(recipe: dict[str, dict[str, Any]]) -> str:
    lines = []
    for section, values in recipe.items():
        lines += [f"[{section}]", *(f"{name} = {_value(value)}" for name, value in values.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def train(record: Record, names: tuple[str, ...]) -> None:
    """Losses of every update and of dev, hashes of weights, and what the trained model says of three sentences."""
    for name in names:
        short = name.replace(" ", "-").replace(",", "")
        (record.folder / f"{short}.toml").write_text(_toml(_recipe(name)))
        code, _ = record.call(f"{short}-train", f"train {short}.toml --output {short} --quiet", files=False)
        if code:
            raise RuntimeError(f"{name}: exit code {code}: {(record.out / f'{short}-train.wording').read_text()}")
        run = record.folder / short
        if (run / "metrics.jsonl").exists():
            lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
            record.json(
                f"{short}-losses",
                [{key: value for key, value in line.items() if not key.endswith(NOT_OF_THE_MODEL)} for line in lines],
            )
        record.text(f"{short}-weights.tsv", hashes_of(run / "model.safetensors"))
        record.file(f"{short}-config.json", run / "config.json")
        record.call(f"{short}-evaluate", f"evaluate {short} --split dev --json")
        lm, said = api.load(run), {}
        if api.searches(lm):
            api.adaptive(lm)
            said["adaptive"] = api.ask(lambda lm=lm: api.analyse(lm, TEXTS))
            api.by_particles(lm, 40, 3)
            said["particles"] = api.ask(lambda lm=lm: api.analyse(lm, TEXTS))
        api.narrow(lm)
        said["score"] = api.ask(lambda lm=lm: api.score(lm, [text.split() for text in TEXTS]))
        said["trees"] = api.ask(lambda lm=lm: api.parse(lm, TEXTS))
        said["nbest"] = api.ask(lambda lm=lm: api.nbest(lm, TEXTS, 3))
        said["given"] = api.ask(lambda lm=lm: api.score_given(lm, record.folder / "dev.ptb"))
        record.json(f"{short}-said", said)


_BY_SYSTEM: dict[str, list[str]] = {}
for _name, _small in SMALL.items():
    _BY_SYSTEM.setdefault(_small.system, []).append(_name)
PARTS: dict[str, Callable[[Record], None]] = {
    f"train-{system}": partial(train, names=tuple(names)) for system, names in _BY_SYSTEM.items()
}
