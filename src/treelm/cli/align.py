"""``treelm data align``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from treelm.cli.arguments import Positional
from treelm.cli.files import check_not_input, open_output, write_metadata
from treelm.cli.options import Output
from treelm.io.terminal import log


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Trees put on a text that was made from the same sentences, such as Mikolov's Penn Treebank or WikiText.

    One tree a line of the text, word for word its words: perplexities are those of the text. Words of trees are left
    out or replaced as the text has it; order and gaps do not matter. A line of several trees has them under ROOT, one
    that no tree belongs to is (UNPARSED (X word) ...), a blank one stays blank (data.empty_lines = true counts it).
    OUTPUT.json counts them.

    Example: treelm data align ptb/train.ptb --text ptb-lm/ptb.train.txt --output ptb-lm-trees/train.ptb
    Example: treelm data align wiki-parsed.ptb --text wiki.train.tokens --output wikitext-2-trees/train.ptb
    """

    trees: Annotated[tuple[str, ...], Positional("TREES")]
    """Files of trees (brackets or CoNLL-U; .gz too) that hold the sentences of the text, and may hold more."""
    text: str
    """The text: a sentence or a paragraph a line, words separated by spaces."""
    output: Output
    """Bracket file to make."""
    format: Literal["auto", "brackets", "conllu"] = "auto"
    """Format of the trees. auto: by their names."""
    tags: Literal["present", "absent"] = "present"
    """Presence of a part-of-speech tag over each word in brackets."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.corpora.alignment import align
    from treelm.corpora.readers import read_sentences
    from treelm.trees.brackets import format_tree

    check_not_input([options.output, f"{options.output}.json"], [*options.trees, options.text])
    trees = [one for file in options.trees for one in read_sentences(file, format=options.format, tags=options.tags)]
    lines = list(read_sentences(options.text, format="text", empty_lines=True))
    aligned, counts = align(trees, lines)
    with open_output(options.output) as out:
        for line in aligned:
            out.write("\n" if line.tree is None else f"{format_tree(line.tree, line.tags)}\n")
    write_metadata(options.output, {"text": options.text, "trees": list(options.trees), "counts": counts})
    log("{trees_used:,} of {trees:,} trees".format(**counts))
    having = "{lines:,} lines: {lines_of_one_tree:,} of one tree, {lines_of_several_trees:,} of several"
    lacking = "{lines_in_part:,} in part, {lines_without_tree:,} without; {blank_lines:,} blank lines"
    log(f"{having}, {lacking}".format(**counts))
    return 0
