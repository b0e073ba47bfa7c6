"""``treelm generate``."""

from __future__ import annotations

from dataclasses import dataclass

from treelm.cli.files import open_output
from treelm.cli.options import ModelOptions, Output, RunFolder
from treelm.io.terminal import progress_bar


@dataclass(frozen=True, kw_only=True)
class Arguments(ModelOptions):
    """Draw sentences from a model, one a line; the same seed gives the same sentences.

    Example: treelm generate runs/demo --num-sentences 5 --seed 7
    """

    run: RunFolder
    num_sentences: int = 10
    """Number of sentences."""
    seed: int = 1
    """Seed of the random choices."""
    max_words: int = 60
    """A sentence that has not ended is cut here."""
    temperature: float = 1.0
    """Below 1: likelier words only. 1 draws from the model itself."""
    top_p: float = 1.0
    """Below 1: draw from the likeliest tokens that together have this probability."""
    trees: bool = False
    """Write the model's tree over each sentence instead of its words."""
    output: Output = "-"
    """File to write; - is standard output."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.models.generation import generate
    from treelm.trees.brackets import format_tree

    drawn = generate(
        options.load(options.run),
        num_sentences=options.num_sentences,
        seed=options.seed,
        max_words=options.max_words,
        temperature=options.temperature,
        top_p=options.top_p,
        trees=options.trees,
    )
    bar = progress_bar("drawing", options.num_sentences, shares_terminal=options.output == "-")
    with bar as advance, open_output(options.output) as out:
        for words, tree in drawn:
            print(format_tree(tree) if tree else " ".join(words), file=out, flush=True)
            advance()
    return 0
