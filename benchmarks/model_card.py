"""What a shipped model says about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from treelm import __version__
from treelm.corpora.data_config import example_sentences, prepared_split
from treelm.evaluation.report import EvaluationResult
from treelm.models.base import SyntacticLM
from treelm.training.recipe import Recipe

DATA = """\
The training split of `gum-open`, which comes with the package: English news, interviews, biographies, travel guides,
academic texts, speeches and court transcripts from the Georgetown University Multilayer corpus (Zeldes 2017),
{num_words:,} words. The dev split chose the epoch; the test split was only evaluated on.
{trees}
"""
CONSTITUENCY = "Constituency trees of gum-open are the output of a parser run on gold tags, not hand-made."
DEPENDENCIES = "The trees are constituents made from gum-open's gold dependency trees."
NO_TREES = "Training saw no trees."

LICENCE = """\
CC BY-SA 4.0, as the treebank that it was trained on; authors and licences of the texts: `treelm data show gum-open`.
"""
LIMITS = """\
A small model of a small corpus, for trying things out, teaching, tests and examples. It is not for figures in a paper
about its system, not for parsing that anything depends on, and not for text unlike its training data: its vocabulary
has {vocabulary_size:,} tokens, and all other words are known only by their looks (capitals, digits, endings). Compare
systems with models trained for the purpose. Its probabilities repeat what its texts say, also where that is biased or
wrong.
"""


@dataclass(frozen=True, kw_only=True)
class Training:
    """How long a model was trained."""

    minutes: float
    num_epochs: int
    best_epoch: int | None


def model_card(
    name: str,
    lm: SyntacticLM,
    recipe: Recipe,
    results: Sequence[EvaluationResult],
    training: Training,
    *,
    losses: Mapping[str, float],
    origin: Mapping[str, str],
) -> str:
    """The card, in Markdown. ``losses``: on dev by type of the weights. ``origin``: about, commit, command."""
    verb = "parse" if lm.parses else "surprisal"
    example = " ".join(example_sentences(recipe.data)[0].words)
    return f"""\
# {name}

{origin["about"]}

    echo {quote(example)} | treelm {verb} {name} -

## Data and licence

{DATA.format(trees=_trees(lm, recipe), num_words=prepared_split(recipe.data, "train").num_tokens)}
{LICENCE}
## How it was made

{_making(name, lm, training, losses, origin)}
## Figures

{_table(results)}
{_notes(results)}
## What it is not for

{LIMITS.format(vocabulary_size=len(lm.vocabulary))}"""


def _trees(lm: SyntacticLM, recipe: Recipe) -> str:
    """What trees training saw: systems without labels see them only if they are taught by spans or attachments."""
    if recipe.data.format == "conllu":
        return DEPENDENCIES
    taught = lm.predicts_labels or getattr(recipe.model.config, "span_weight", 0.0) > 0
    return CONSTITUENCY if taught else NO_TREES


def _making(
    name: str, lm: SyntacticLM, training: Training, losses: Mapping[str, float], origin: Mapping[str, str]
) -> str:
    num_parameters = sum(parameter.numel() for parameter in lm.parameters())
    rows = {
        "system": f"`{lm.system}`" + (f", {num_parameters:,} parameters" if num_parameters else ""),
        "recipe": f"`recipe.toml` beside this file, from the packaged recipe `{name}`",
        "source": f"treelm {__version__}, commit {origin['commit']}",
        "command": f"`{origin['command']}`",
        "training": _duration(training),
    }
    if lm.data_identity:
        rows["data"] = ", ".join(f"{split} `{identity}`" for split, identity in lm.data_identity.items())
    rows |= {f"dev loss per word, weights in {kind}": f"{value:.5f} nats" for kind, value in losses.items()}
    return "| | |\n| --- | --- |\n" + "".join(f"| {key} | {value} |\n" for key, value in rows.items())


def _duration(training: Training) -> str:
    if training.best_epoch is None:
        return f"estimated in {60 * training.minutes:.1f} s"
    return f"{training.num_epochs} epochs, the best {training.best_epoch}, {training.minutes:.1f} minutes"


def _table(results: Sequence[EvaluationResult]) -> str:
    columns = [dict(result.rows()) for result in results]
    lines = ["| figure |" + "".join(f" {result.split} |" for result in results), "| --- |" + " ---: |" * len(results)]
    for name in dict.fromkeys(name for column in columns for name in column):
        lines.append(f"| {name} |" + "".join(f" {column.get(name, '')} |" for column in columns))
    return "\n".join(lines) + "\n"


def _notes(results: Sequence[EvaluationResult]) -> str:
    notes = dict.fromkeys(note for result in results for note in result.all_notes())
    own = "Figures are of the weights as shipped, by the `[evaluation]` of the recipe; `treelm evaluate` repeats them."
    return "".join(f"* {note}\n" for note in (own, *notes))
