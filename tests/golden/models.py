"""Parts of the record that ask loaded models, in Python: those of the package, and the old runs of all systems."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.golden import api
from tests.golden.commands import SEARCHED, WORDS
from tests.golden.record import ROOT, Record

TEXTS = ["The city is one of the oldest in the country .", "I think that she was right .", "Zyxwv barks"]
SENTENCES = [text.split() for text in TEXTS]
OLD_RUNS = ROOT / "tests" / "legacy"


def everything(lm: Any, run: str | Path, record: Record, name: str, *, more: bool) -> None:
    """Ask a model all there is to ask."""
    if api.searches(lm):
        api.adaptive(lm)
        record.json(f"{name}-adaptive", api.ask(lambda: api.score(lm, SENTENCES[1:])))
        api.by_particles(lm, 40, 3)
        record.json(f"{name}-particles", api.ask(lambda: api.analyse(lm, TEXTS)))
    api.narrow(lm)
    questions: dict[str, Callable[[], Any]] = {
        "abilities": lambda: api.abilities(lm),
        "score": lambda: api.score(lm, SENTENCES),
        "score_text": lambda: api.score_text(lm, SENTENCES),
        "score_given": lambda: api.score_given(lm, record.folder / "dev.ptb"),
        "surprisal": lambda: api.surprisal(lm, TEXTS),
        "parse": lambda: api.parse(lm, TEXTS),
        "analyse": lambda: api.analyse(lm, TEXTS),
        "nbest": lambda: api.nbest(lm, TEXTS, 3),
        "annotate": lambda: api.annotate(lm, TEXTS),
        "used_rules": lambda: api.used_rules(lm, TEXTS),
        "structure": lambda: api.structure(lm, SENTENCES[0]),
        "word_by_word": lambda: api.word_by_word(lm, SENTENCES[1]),
    }
    record.json(name, {question: api.ask(answer) for question, answer in questions.items()})
    if more:
        record.text(f"{name}-table.csv", api.ask(lambda: api.table(lm, record.folder / "words.csv")))
        record.json(f"{name}-saved", api.ask(lambda: api.saved(lm, record.folder / f"{name}-saved")))


def shipped(record: Record, models: tuple[str, ...]) -> None:
    """Models of the package."""
    for name in models:
        everything(api.load(name), name, record, name, more=True)
        if name.startswith(("lstm", "transformer", "on-lstm")):
            lm = api.load(name)
            record.json(
                f"{name}-exported", api.ask(lambda lm=lm, name=name: api.exported(lm, record.folder / name, TEXTS[1]))
            )


def old_runs(record: Record) -> None:
    """Runs that older versions wrote, one of every system."""
    for run in sorted(path.parent for path in OLD_RUNS.glob("*/config.json")):
        everything(api.load(run), run, record, run.name, more=False)


PARTS: dict[str, Callable[[Record], None]] = {
    "api-words": partial(shipped, models=(*WORDS, "chart-gum-open")),
    **{f"api-{name}": partial(shipped, models=(name,)) for name in SEARCHED},
    "api-old-runs": old_runs,
}
