"""What the demo shows after training: one table with a row for each system, trees, and what to try next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from treelm.evaluation.report import EvaluationResult
from treelm.evaluation.runs import evaluate_run
from treelm.evaluation.span_protocols import PLAIN
from treelm.figures.memory_grid import grid_of_sentence
from treelm.figures.terminal import draw_tree
from treelm.inference.loading import load
from treelm.models.base import SyntacticLM
from treelm.models.som.network import SOM
from treelm.models.surprisal import sentence_surprisal
from treelm.training.metrics import FILE_NAME, read_metrics
from treelm.training.recipe import EvaluationConfig, Recipe
from treelm.training.run import load_run_recipe

SPLIT: Literal["test"] = "test"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A trained system and its figures on one split."""

    run: Path
    num_parameters: int
    training_seconds: float
    result: EvaluationResult
    gold_trees: str  # what F1 is against

    def cells(self) -> list[str]:
        """The row as text."""
        result, (minutes, seconds) = self.result, divmod(round(self.training_seconds), 60)
        perplexity = [f"{'≤ ' if one.is_upper_bound else ''}{one.value:.1f}" for one in result.perplexities]
        labelled = [f"{one.total.f1:.1f}" for one in result.bracketing if one.parameters.labeled]
        trivial = {one.name: one.corpus_f1 for one in result.baselines if one.protocol == PLAIN.name}
        bound = trivial.pop("binary upper bound", None)
        spans = [f"{one.corpus_f1:.1f}" for one in result.spans]
        return [
            result.system,
            f"{self.num_parameters / 1e6:.2f}M",
            f"{minutes}:{seconds:02d}",
            *(perplexity or ["-"]),
            *(labelled or ["-"]),
            *(spans or ["-"]),
            f"{max(trivial.values()):.1f}" if trivial else "-",
            "-" if bound is None else f"{bound:.1f}",
            self.gold_trees,
        ]


def evaluated(run: Path) -> Row:
    """Evaluate a run on the test split, with a progress bar on standard error."""
    recipe = load_run_recipe(run)
    recipe = replace(recipe, evaluation=replace(recipe.evaluation, splits=(SPLIT,)))
    console = Console(stderr=True)
    columns = (TextColumn(f"parsing {run}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("parsing", total=None)
        (judged,) = evaluate_run(run, recipe, protocols=(PLAIN,), on_sentence=lambda: progress.advance(task))
    return Row(
        run=run,
        num_parameters=sum(parameter.numel() for parameter in load(run).parameters()),
        training_seconds=_training_seconds(run),
        result=judged.result,
        gold_trees="dependencies" if recipe.data.format == "conllu" else "constituency",
    )


def _training_seconds(run: Path) -> float:
    return max((line.get("elapsed_seconds", 0.0) for line in read_metrics(run / FILE_NAME)), default=0.0)


def comparison(rows: Sequence[Row]) -> RenderableType:
    """One table for all systems, and below it what its figures mean."""
    table = Table(
        title=f"{SPLIT}: {rows[0].result.num_sentences:,} sentences", box=None, padding=(0, 2, 0, 0), pad_edge=False
    )
    for name in ("system", "size", "time", "ppl", "F1", "UF1", "trivial", "bound"):
        table.add_column(name, justify="left" if name == "system" else "right", no_wrap=name == "system")
    table.add_column("gold trees", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row.cells()))
    notes = dict.fromkeys(note for row in rows for note in row.result.all_notes())
    return Group(table, Text(LEGEND), *(Text(f"note: {note}") for note in notes))


LEGEND = (
    "size: parameters. time: of training, in minutes. ppl: perplexity per word, ends included; ≤ where a search gives "
    "an upper bound. F1: labelled, EVALB. UF1: unlabelled, nothing removed, corpus level; trivial: the best of left-, "
    "right-branching, balanced and random trees against the same gold trees; bound: the most that binary trees can. "
    "F1 of systems with other gold trees does not compare; ppl does."
)


def seen_in_sentences(run: Path, sentences: Sequence[str]) -> Iterator[str]:
    """What a run makes of sentences: trees with surprisals and, for the first one, a SOM's memory."""
    lm = load(run)
    yield f"\n{lm.system} ({run})"
    yield from parsed_sentences(lm, load_run_recipe(run), sentences)
    if isinstance(lm, SOM):
        grid = grid_of_sentence(lm, sentences[0].split())
        yield "what each slot of the memory holds after every word\n\n" + grid.as_text()


def parsed_sentences(lm: SyntacticLM, recipe: Recipe, sentences: Sequence[str]) -> Iterator[str]:
    """Each sentence's best tree, with the surprisal in bits under every word unless the system is a bare parser."""
    beam: EvaluationConfig = recipe.evaluation
    lm.set_beam(action_beam=beam.action_beam, word_beam=beam.word_beam, fast_track=beam.fast_track)
    words = [sentence.split() for sentence in sentences]
    if not lm.predicts_words:
        yield from (f"\n{draw_tree(tree)}\n" for tree in lm.parse(words))
        return
    for sentence, analysis in zip(words, lm.analyse(words), strict=True):
        assert analysis.score is not None
        surprisal = sentence_surprisal(sentence, analysis.score, lm.vocabulary)
        bits = [f"{word.surprisal_bits:.1f}{'*' if word.is_unk else ''}" for word in surprisal.words]
        total = f"{surprisal.total_bits:.1f} bits, of which {surprisal.end_surprisal_bits:.1f} for the end"
        drawn = "" if analysis.tree is None else draw_tree(analysis.tree, bits)
        yield f"\n{drawn}\nsurprisal in bits (* unknown word); in all {total}\n"


def what_next(run: Path) -> str:
    """Commands to try on the new run."""
    return (
        "Next:\n"
        f"  echo 'The people in the city are happy .' | .venv/bin/treelm parse {run} - --show drawing\n"
        f"  echo 'The people in the city are happy .' | .venv/bin/treelm surprisal {run} -\n"
        f"  .venv/bin/treelm generate {run} --num-sentences 3\n"
        f"  .venv/bin/treelm audit {run}\n"
        f"  .venv/bin/treelm train {run}/recipe.toml --out runs/longer --set training.max_minutes=30\n"
    )
