"""Output of the demo beside the comparison: each system's analyses of a sentence, and commands to try next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from treelm.figures.structures import memory_text, tape_text
from treelm.figures.terminal import draw_tree
from treelm.inference.loading import load
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser, has, structure_of
from treelm.models.scores import sentence_surprisal
from treelm.models.structures import SlotSpans, StackTape


def seen_in_sentence(run: Path, words: Sequence[str]) -> Iterator[str]:
    """Analyses of a sentence by a run: its tree with surprisals, its memory or stack. Nothing without trees."""
    lm = load(run)
    if not has(lm, Parser):
        return
    yield f"\n{lm.system} ({run})"
    yield drawn_sentence(lm, words)
    match structure_of(lm, words):
        case SlotSpans() as memory:
            yield "what each slot of the memory holds after every word\n\n" + memory_text(memory)
        case StackTape() as tape:
            yield "the stack after every word, and how many constituents hold each\n\n" + tape_text(tape)


def drawn_sentence(lm: LanguageModel, words: Sequence[str]) -> str:
    """A sentence's best tree, with the surprisal in bits under every word unless the system is a bare parser."""
    (analysis,) = lm.analyse([words])
    if analysis.score is None:
        assert analysis.tree is not None
        return f"\n{draw_tree(analysis.tree)}\n"
    surprisal = sentence_surprisal(words, analysis.score, lm.vocabulary)
    bits = [f"{word.surprisal_bits:.1f}{'*' if word.is_unk else ''}" for word in surprisal.words]
    total = f"{surprisal.total_bits:.1f} bits, of which {surprisal.end_surprisal_bits:.1f} for the end"
    drawn = "" if analysis.tree is None else draw_tree(analysis.tree, bits)
    return f"\n{drawn}\nsurprisal in bits (* unknown word); in all {total}\n"


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
