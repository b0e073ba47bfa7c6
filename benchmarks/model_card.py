"""What a shipped model says about itself: its card, from its files and the figures beside them (``figures.json``)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from human_figures import worth
from purposes import purpose

from treelm.corpora.catalog import corpus_entry
from treelm.io.atomic import write_atomically
from treelm.io.json import encode_json, read_json
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser, has
from treelm.models.persistence.storage import load_model
from treelm.training.recipe import Recipe
from treelm.training.run_folder import load_run_recipe

CARD, EXPECTED, FIGURES = "README.md", "expected.json", "figures.json"
TAUGHT = ("rnng", "transformer-grammar", "pushdown", "som", "shift-reduce", "chart", "pcfg")
"""Systems that trees teach, whatever their config says."""


class Corpus(NamedTuple):
    """What is said of a model because of the corpus that it was trained on."""

    text: str
    trees: str
    licence: str
    limits: str


BIAS = "Its probabilities repeat what its texts say, also where that is biased or wrong."
GUM = Corpus(
    text="""\
The training split of `gum-open`, which comes with treelm: English news, interviews, biographies, travel guides,
academic texts, speeches and court transcripts from the Georgetown University Multilayer corpus (Zeldes 2017),
{num_words:,} words. The dev split chose the epoch; the test split was only evaluated on.""",
    trees="Constituency trees of gum-open are the output of a parser run on gold tags, not hand-made.",
    licence="""\
CC BY-SA 4.0, as the treebank that it was trained on; authors and licences of texts: `treelm data show gum-open`.""",
    limits=f"""\
A small model of a small corpus: it is not for figures in a paper about its system, not for parsing that anything
depends on, and not for text unlike its training data: its vocabulary has {{vocabulary_size:,}} tokens, and all
other words are known only by their looks (capitals, digits, endings). Compare systems with models trained for the
purpose.
{BIAS}""",
)
OPEN_ENGLISH = Corpus(
    text="""\
The training split of `open-english`, whose text comes with treelm-english: {num_words:,} words of English prose of
open licences, three quarters novels and stories of 1883 to 1963, the rest modern. Sentences that share eight words in a
row with Natural Stories, SAP or the UCL corpus are not in it. The dev split chose the weights; the test split was only
evaluated on.""",
    trees="""\
Its trees are the output of a chart parser, none made by people (`packages/treelm-english/README.md`).""",
    licence="""\
CC BY-SA 4.0, the strictest licence of its texts; the licence of every document, and which of them are in the public
domain in the USA alone: `treelm data show open-english`.""",
    limits=f"""\
Its vocabulary has {{vocabulary_size:,}} pieces of words, and no word is unknown. It is small, and most of its text is
sixty years old or older: it is not for modern usage, nor for figures in a paper about its system beyond those that
stand here.
{BIAS}""",
)
OPEN_ENGLISH_2 = Corpus(
    text="""\
The training split of `open-english-2`, which comes with treelm-english: 31,243,914 words of English of open
licences, 13.6 million of `open-english`, three quarters of them novels and stories of 1883 to 1963, and 17.6 million of
`modern-english`: encyclopaedia, conversations, health, economics, software, textbooks and news of 1990 and after.
Sentences that share eight words in a row with Natural Stories, SAP or the UCL corpus are not in it. The dev split chose
the weights; the test split was only evaluated on.""",
    trees=OPEN_ENGLISH.trees,
    licence="""\
CC BY-SA 4.0, the strictest licence of its texts; the licence of every document, and which of them are in the public
domain in the USA alone: `treelm data show open-english` and `treelm data show modern-english`.""",
    limits=f"""\
Its vocabulary has {{vocabulary_size:,}} pieces of words, and no word is unknown; signs that stand on keyboards are
pieces of their own, but `< > @ \\ ^ {{{{ | }}}} ~` are not in the text, so that their surprisals, 30 bits and more,
mean nothing. It is small; a third of its text is fiction of 1883 to 1963, a quarter encyclopaedia, a fifth talk
and writing about software: it is not for figures in a paper about its system beyond those that stand here.
{BIAS}""",
)
CORPORA = {"gum-open": GUM, "open-english": OPEN_ENGLISH, "open-english-silver": OPEN_ENGLISH}
CORPORA |= {"open-english-2": OPEN_ENGLISH_2, "open-english-2-silver": OPEN_ENGLISH_2}
DEPENDENCIES = "The trees are constituents made from gum-open's gold dependency trees."
NO_TREES = "Training saw no trees."
MISSING = "-"
MOST_POINTS = 12
"""Lines of a training curve in a card."""


def read_figures(folder: Path) -> dict[str, Any]:
    """What is recorded: ``origin``, ``training``, ``curve``, ``num_words``, ``dev_loss``, ``results``, ``measured``.

    ``curve_is_of_second_run`` says that the curve is of another run, which came to the same weights.
    """
    found: dict[str, Any] = read_json(folder / FIGURES, remedy="ship the model again")
    return found


def write_figures(folder: Path, figures: Mapping[str, Any], *, name: str = "") -> None:
    """Write the figures of a model, and its card from them; its name is that of the folder unless it is given."""
    write_atomically(folder / FIGURES, encode_json(figures))
    write_atomically(folder / CARD, model_card(name or folder.name, folder).encode())


def model_card(name: str, folder: Path) -> str:
    """The card, in Markdown, from what the folder holds."""
    lm, recipe, figures = load_model(folder), load_run_recipe(folder), read_figures(folder)
    words = json.loads((folder / EXPECTED).read_text(encoding="utf-8"))["sentences"][0]["words"]
    corpus = CORPORA.get(recipe.data.corpus or "") or _of_other(recipe)
    parts = [
        f"# {name}",
        figures["origin"]["about"],
        f"    echo {quote(' '.join(words))} | treelm {'parse' if has(lm, Parser) else 'surprisal'} {name} -",
        "## Data and licence",
        f"{corpus.text.format(num_words=figures['num_words'])}{_part(recipe, figures)}\n{_trees(lm, recipe, corpus)}",
        corpus.licence,
        "## How it was made",
        _making(name, lm, recipe, figures),
        *([_curve(figures, is_taught=_is_taught(lm, recipe))] if figures.get("curve") else []),
        "## Figures",
        f"{_table(figures['results'])}\n\n{_notes(name, figures)}",
        *(["## What its surprisals are worth", worth(figures["measured"])] if figures.get("measured") else []),
        "## What it is for, and what not",
        purpose(lm, figures["results"], figures.get("measured", {})),
        corpus.limits.format(vocabulary_size=len(lm.vocabulary)),
    ]
    return "\n\n".join(parts) + "\n"


def _of_other(recipe: Recipe) -> Corpus:
    """What can be said of any other corpus, and of files."""
    named = recipe.data.corpus
    text = f"The training split of `{named}`" if named else f"`{Path(recipe.data.train or '').name}`"
    licence = corpus_entry(named).licence if named else "not stated"
    return Corpus(
        text=f"{text}, {{num_words:,}} words.",
        trees="Training saw its trees.",
        licence=f"The licence of the text that it was trained on: {licence}.",
        limits=f"Its vocabulary has {{vocabulary_size:,}} tokens. {BIAS}",
    )


def _part(recipe: Recipe, figures: Mapping[str, Any]) -> str:
    """How much of the training split a run was given, if not all."""
    if not (most := recipe.data.max_sentences):
        return ""
    return f"\nThe model was trained on its first {most:,} sentences alone: {figures['num_words']:,} words."


def _is_taught(lm: LanguageModel, recipe: Recipe) -> bool:
    """Tell whether trees taught the model."""
    config = recipe.model.config
    by_config = getattr(config, "span_weight", 0.0) > 0 or getattr(config, "auxiliary", "none") != "none"
    return lm.system in TAUGHT or by_config


def _trees(lm: LanguageModel, recipe: Recipe, corpus: Corpus) -> str:
    """What trees training saw: some systems see them only if their config says so."""
    if not _is_taught(lm, recipe):
        return NO_TREES
    return DEPENDENCIES if recipe.data.format == "conllu" and corpus is GUM else corpus.trees


def _reading(lm: LanguageModel, trained: Recipe) -> str:
    """The fields that it is read with otherwise than its recipe says, in words."""
    values = {name: getattr(lm.config, name) for name in getattr(lm.config, "inference_overrides", ())}
    others = {name: value for name, value in values.items() if value != getattr(trained.model.config, name)}
    return ", ".join(f"`{name} = {value}`" for name, value in others.items())


def _making(name: str, lm: LanguageModel, trained: Recipe, figures: Mapping[str, Any]) -> str:
    num_parameters = sum(parameter.numel() for parameter in lm.parameters())
    origin = figures["origin"]
    rows = {
        "system": f"`{lm.system}`" + (f", {num_parameters:,} parameters" if num_parameters else ""),
        "recipe": f"`recipe.toml` beside this file{origin.get('recipe') and ', '}{origin.get('recipe')}",
        "source": f"treelm {origin['treelm']}, commit {origin['commit']}",
        "command": f"`{origin['command']}`",
        "training": duration(figures["training"]),
    }
    if others := _reading(lm, trained):
        rows["read with"] = f"{others}, set after training: `reading` in `config.json`"
    if lm.data_identity:
        rows["data"] = ", ".join(f"{split} `{identity}`" for split, identity in lm.data_identity.items())
    losses = figures["dev_loss"]
    rows |= {f"dev loss per word, weights in {kind}": f"{value:.5f} nats" for kind, value in losses.items()}
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {key} | {value} |" for key, value in rows.items())


def duration(training: Mapping[str, Any], *, brief: bool = False) -> str:
    """How long it was trained, in words; ``brief`` without steps, and by the clock only where no CPU time is known."""
    of_processor = training.get("cpu_minutes")
    if training["best_epoch"] is None:
        said = f"estimated in {60 * training['minutes']:.1f} s"
        return f"{said} (CPU {60 * of_processor:.1f})" if of_processor else said
    read = training.get("num_words_read")  # the first cards have none
    within = f"{read:,} words of the first epoch" if read else "ended within the first epoch"  # by steps or a time
    parts = {0: [within], 1: ["1 epoch"]}.get(training["num_epochs"])
    parts = parts or [f"{training['num_epochs']} epochs", f"the best {training['best_epoch']}"]
    if brief and of_processor:
        return ", ".join([*parts, f"{of_processor:.1f} CPU minutes"])
    parts += [f"{training['num_steps']:,} steps"] if training.get("num_steps") else []  # the first cards have none
    parts += [f"{training['minutes']:.1f} minutes"]
    return ", ".join(parts) + (f" (CPU {of_processor:.1f})" if of_processor else "")


def _curve(figures: Mapping[str, Any], *, is_taught: bool) -> str:
    """The course of training as a table, of a long one some evaluations; the last of the best has the weights."""
    curve: Sequence[Mapping[str, Any]] = figures["curve"]
    best = max((place for place, point in enumerate(curve) if point["is_best"]), default=None)
    rows = []
    for place in chosen_places(len(curve), best):
        point = curve[place]
        minutes, nats, perplexity = (
            MISSING if point.get(name) is None else f"{point[name] / unit:,.{digits}f}"
            for name, unit, digits in (
                ("cpu_seconds", 60, 1),
                ("loss_nats_per_word", 1, 4),
                ("loss_perplexity_per_word", 1, 1),
            )
        )
        shown = f"{nats}, these weights" if place == best else nats
        rows.append(f"| {point['step']:,} | {point['epoch']} | {minutes} | {shown} | {perplexity} |")
    counted = "words and trees together" if is_taught else "words"
    some = f"; {len(rows)} of {len(curve)} evaluations" if len(rows) < len(curve) else ""
    head = "| step | epochs | minutes of processor time | dev loss, nats a word | its perplexity |\n"
    again = ", in a second run, which gave the same weights" if figures.get("curve_is_of_second_run") else ""
    said = f"The loss that training minimises, of {counted}{some}{again}:"
    return f"{said}\n\n{head}| ---: | ---: | ---: | ---: | ---: |\n" + "\n".join(rows)


def chosen_places(number: int, kept: int | None, most: int = MOST_POINTS) -> list[int]:
    """At most so many places of a sequence, evenly apart, with its first and last, and with ``kept``."""
    if number <= most:
        return list(range(number))
    places = {round(step * (number - 1) / (most - 1)) for step in range(most)}
    if kept is not None and kept not in places:
        between = places - {0, number - 1}
        places = places - {min(between, key=lambda place: abs(place - kept))} | {kept}
    return sorted(places)


def _table(results: Sequence[Mapping[str, Any]]) -> str:
    columns = [result["rows"] for result in results]
    lines = [
        "| figure |" + "".join(f" {result['split']} |" for result in results),
        "| --- |" + " ---: |" * len(results),
    ]
    for name in dict.fromkeys(name for column in columns for name in column):
        lines.append(f"| {name} |" + "".join(f" {column.get(name, '')} |" for column in columns))
    return "\n".join(lines)


def _notes(name: str, figures: Mapping[str, Any]) -> str:
    """How the figures are made again, and what ``evaluate`` notes."""
    results = figures["results"]
    splits: dict[str, list[str]] = {}
    for result in results:
        for note in result["notes"]:
            splits.setdefault(note, []).append(result["split"])
    notes = (note if len(of) == len(results) else f"{', '.join(of)}: {note}" for note, of in splits.items())
    own = f"Figures are of the weights as shipped; `treelm evaluate {name}` repeats them."
    return "\n".join(f"* {note}" for note in (own, *notes))
