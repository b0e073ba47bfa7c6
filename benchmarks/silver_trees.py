"""A parser that says how sure it is: its F1, whether its confidence orders sentences, and how many it parses a second.

OMP_NUM_THREADS=1 python benchmarks/silver_trees.py chart-gum-open --split dev

Seconds are of the processor. Forms that the vocabulary has met are forgotten before each measurement.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from one_line import run

from treelm.cli.arguments import Positional
from treelm.corpora.data_config import locate_split
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.evalb import score_bracketings
from treelm.evaluation.evalb_files import bracketing_of
from treelm.inference.loading import load
from treelm.models.capabilities import ConfidentParser
from treelm.models.scores import ParsedSentence
from treelm.training.run_folder import load_run_recipe

QUARTERS, BLOCKS = 4, (64, 512, 4096)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    run: Annotated[str, Positional("RUN")]
    """A run, or a model of the package."""
    split: Literal["dev", "test"] = "dev"
    """Split of its corpus for F1 and confidence."""
    data: str = ""
    """A treebank to take instead."""
    speed: bool = True
    """Parse the training split by blocks of several sizes."""


def main(options: Arguments) -> int:
    """Print tables."""
    lm = load(options.run)
    if not isinstance(lm, ConfidentParser):
        raise InputError(f"{options.run} does not say how sure it is of its trees", remedy="take a run of chart")
    data = load_run_recipe(options.run).data
    sentences = list(read_sentences(options.data or locate_split(data, options.split)[0]))
    parsed = lm.annotate([sentence.words for sentence in sentences])
    report_trees(sentences, parsed)
    if options.speed:
        words = [sentence.words for sentence in read_sentences(locate_split(data, "train")[0])]
        for size in BLOCKS:
            lm = load(options.run)
            lm.annotate(words[:10])
            begin = time.process_time()
            for start in range(0, len(words), size):
                lm.annotate(words[start : start + size])
            seconds = time.process_time() - begin
            num_words = sum(map(len, words))
            print(f"blocks of {size}: {len(words) / seconds:.0f} sentences, {num_words / seconds:,.0f} words a second")
    return 0


def report_trees(sentences: Sequence[Sentence], parsed: Sequence[ParsedSentence]) -> None:
    """F1 of all and of quarters by confidence, and the accuracy of tags."""
    print(f"F1 (EVALB, COLLINS, labelled, corpus): {f1_of(sentences, parsed):.2f} of {len(sentences)} sentences")
    both = [(gold.tags, one.tags) for gold, one in zip(sentences, parsed, strict=True) if gold.tags and one.tags]
    right = [tag == found for gold, tags in both for tag, found in zip(gold, tags, strict=True)]
    if right:
        print(f"tags right: {100 * sum(right) / len(right):.2f} %")
    sure = [one.confidence.mean for one in parsed if one.confidence is not None]
    order = sorted(range(len(sure)), key=sure.__getitem__)
    print("quarter, least sure first\tconfidence\texpected F1\tF1\twords a sentence")
    for quarter in range(QUARTERS):
        part = order[len(order) * quarter // QUARTERS : len(order) * (quarter + 1) // QUARTERS]
        found = [parsed[number].confidence for number in part]
        expected = sum(one.expected_f1 for one in found if one is not None) / len(part)
        f1 = f1_of([sentences[number] for number in part], [parsed[number] for number in part])
        length = sum(len(sentences[number].words) for number in part) / len(part)
        mean = sum(sure[number] for number in part) / len(part)
        print(f"{quarter + 1}\t{mean:.3f}\t{expected:.3f}\t{f1:.2f}\t{length:.1f}")


def f1_of(sentences: Sequence[Sentence], parsed: Sequence[ParsedSentence]) -> float:
    """Labelled F1 of the corpus by EVALB's rules, with gold tags."""
    gold, found = [], []
    for sentence, one in zip(sentences, parsed, strict=True):
        if sentence.tree is None:
            raise InputError("a sentence without a tree", where=sentence.where, remedy="give a treebank")
        gold.append(bracketing_of(sentence.tree, tags=sentence.tags))
        found.append(bracketing_of(one.tree))
    return score_bracketings(gold, found).total.f1


if __name__ == "__main__":
    sys.exit(run(main, Arguments))
