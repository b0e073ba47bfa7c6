"""N-grams of treelm beside the kenlm package: log probabilities of every word and end by both.

OMP_NUM_THREADS=1 python benchmarks/kenlm_scores.py [--text FILE]

A model of each order is estimated on gum-open, written by ``treelm export --to arpa`` and read by kenlm and by treelm.
The text is gum-open's dev and test sentences and, where there is one, the first sentences of a file.
"""

from __future__ import annotations

import math
import sys
import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import one_line

from treelm.cli import run as treelm
from treelm.corpora.data_config import locate_split
from treelm.corpora.readers import read_sentences
from treelm.errors import InputError
from treelm.inference.loading import load
from treelm.models.base import LanguageModel
from treelm.training.run_folder import load_run_recipe


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to score."""

    text: str = ""
    """A text with a sentence a line, words between blanks."""
    sentences: int = 1000
    """Its first sentences are scored."""
    orders: tuple[int, ...] = (2, 3, 4, 5)
    """Lengths of the longest n-grams; kenlm reads none of 1."""


def main(options: Arguments) -> None:
    """Print a row for each order and text."""
    try:
        import kenlm
    except ImportError:
        raise InputError(
            "the kenlm package is not installed", remedy="pip install kenlm (a C++ compiler builds it)"
        ) from None
    data = load_run_recipe("ngram-gum-open").data
    splits = [read_sentences(locate_split(data, split)[0]) for split in ("dev", "test")]
    texts = {"gum-open dev, test": [one.words for sentences in splits for one in sentences]}
    if options.text:
        texts[Path(options.text).name] = [one.words for one in islice(read_sentences(options.text), options.sentences)]
    print("order\ttext\tsentences\twords and ends\tunknown\tlargest difference, run\tthe same, .arpa read (nats)")
    with tempfile.TemporaryDirectory() as name:
        for order in options.orders:
            run, arpa = f"{name}/{order}", f"{name}/{order}.arpa"
            _succeed("train", "ngram-gum-open", "--output", run, "--set", f"model.order={order}", "--quiet")
            _succeed("export", run, "--to", "arpa", "--output", arpa)
            ours, read, theirs = load(run), load(arpa), kenlm.Model(arpa)
            for text, sentences in texts.items():
                tokens = [as_tokens(ours, words) for words in sentences]
                scored = [list(theirs.full_scores(" ".join(one))) for one in tokens]
                expected = np.array([log_prob * math.log(10) for one in scored for log_prob, _, _ in one])
                differences = [
                    np.abs(np.concatenate([score.log_probs for score in found]) - expected).max()
                    for found in (ours.score(sentences), read.score(tokens))
                ]
                num_unknown = sum(
                    ours.vocabulary.unknown_class(word) is not None for words in sentences for word in words
                )
                print(
                    order,
                    text,
                    len(sentences),
                    len(expected),
                    num_unknown,
                    *(f"{one:.1e}" for one in differences),
                    sep="\t",
                )


def as_tokens(lm: LanguageModel, words: tuple[str, ...]) -> list[str]:
    """Words as the model has them: unknown ones by their class, which kenlm knows as a word."""
    initial, rest = lm.vocabulary.encode(words[:1], sentence_initial=True), lm.vocabulary.encode(words[1:])
    return [lm.vocabulary.token(int(index)) for index in (*initial.ids, *rest.ids)]


def _succeed(*arguments: str) -> None:
    if code := treelm(list(arguments)):
        raise InputError(f"treelm {arguments[0]} ended with {code}", remedy="see what it said")


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
