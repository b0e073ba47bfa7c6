"""What the demo shows beside the comparison: what each system makes of a few sentences, and what to try next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from treelm.figures.memory_grid import grid_of_sentence
from treelm.figures.terminal import draw_tree
from treelm.inference.loading import load
from treelm.models.base import SyntacticLM
from treelm.models.som.network import SOM
from treelm.models.surprisal import sentence_surprisal
from treelm.training.recipe import EvaluationConfig, Recipe
from treelm.training.run import load_run_recipe


def seen_in_sentences(run: Path, sentences: Sequence[str]) -> Iterator[str]:
    """What a run makes of sentences: trees with surprisals and, for the first one, a SOM's memory.

    Nothing if its system has no trees.
    """
    lm = load(run)
    if not lm.parses:
        return
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
