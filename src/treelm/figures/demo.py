"""Output of the demo beside the comparison: a system's tree of a sentence, and commands to try next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from treelm.figures.terminal import draw_tree
from treelm.inference.loading import load
from treelm.models.capabilities import Parser, has
from treelm.models.scores import sentence_surprisal


def seen_in_sentence(run: Path, words: Sequence[str]) -> str:
    """A run's best tree of a sentence, with the surprisal in bits under every word unless it is a bare parser."""
    lm = load(run)
    if not has(lm, Parser):
        return ""
    (analysis,) = lm.analyse([words])
    assert analysis.tree is not None
    if analysis.score is None:
        return f"\n{lm.system} ({run})\n\n{draw_tree(analysis.tree)}\n"
    surprisal = sentence_surprisal(words, analysis.score, lm.vocabulary)
    bits = [f"{word.surprisal_bits:.1f}{'*' if word.is_unk else ''}" for word in surprisal.words]
    total = f"{surprisal.total_bits:.1f} bits, of which {surprisal.end_surprisal_bits:.1f} for the end"
    drawn = draw_tree(analysis.tree, bits)
    return f"\n{lm.system} ({run})\n\n{drawn}\nsurprisal in bits (* unknown word); in all {total}\n"


def what_next(run: Path, report: Path, words: Sequence[str], program: str) -> str:
    """The path of the report, and commands to try on the new run, with a sentence of its language."""
    said = f"echo {quote(' '.join(words))} | " if words else ""
    commands = (
        f"{said}{program} parse {run} - --show drawing",
        f"{said}{program} surprisal {run} -",
        f"{program} generate {run} --num-sentences 3",
        f"{program} audit {run}",
        f"{program} train {run}/recipe.toml --output runs/longer --set training.max_minutes=30",
    )
    return f"All systems in pictures: {report}\n\nNext:\n" + "".join(f"  {command}\n" for command in commands)
