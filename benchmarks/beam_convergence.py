"""How far surprisals of several beams are from those of a wide one, and how far ``beam_converged`` is to be trusted.

OMP_NUM_THREADS=1 python benchmarks/beam_convergence.py rnng-gum-open runs/demo
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from time import process_time
from typing import Annotated, Literal

import numpy as np
import one_line
import torch
from numpy.typing import NDArray

import treelm
from treelm.cli.arguments import Positional
from treelm.corpora.data_config import DataConfig, locate_split
from treelm.corpora.readers import read_sentences
from treelm.corpora.tokens import words_of
from treelm.errors import InputError
from treelm.evaluation.syntaxgym.suites import load_suites
from treelm.models.base import LanguageModel
from treelm.models.search.config import SearchConfig

Floats = NDArray[np.float64]

FIRST = "I think that the people of this country want to know ."
ODD = (
    ". , ! ? -- ;",
    '( [ " \' " ] )',
    "1 2 3 4 5 6 7 8 9 10",
    "the the the the the the the",
    "Zorblax frindled the quonks behind a snarp .",
    "yesterday bit the dog man the letter a by .",
    "THE CITY THAT THE PEOPLE KNOW WAS BUILT IN 1986 .",
    "El perro que vive en la casa come una manzana .",
    "While the man hunted the deer ran into the woods .",
    "The horse raced past the barn fell .",
    "The cotton clothing is made of grows in Mississippi .",
    "That that is is that that is not is not .",
    "Buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo .",
    "The rat the cat the dog chased bit ate the cheese .",
    "Yes",
    "Oh no , not again , he said , and then , well , and so on , you know , and that was that , more or less .",
)
"""Unlike what models are trained on: garden paths, scrambled, foreign, of punctuation or of unknown words."""
WRONG_BITS, HALF = 0.1, 0.5


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to search, and how."""

    runs: Annotated[tuple[str, ...], Positional("RUN")]
    """Run folders, or models of the package, that search with a beam."""
    file: str | None = None
    """Sentences, any format that treelm reads; dev of gum-open unless given."""
    instead: Literal["suites", "odd"] | None = None
    """In place of a file: one sentence of each suite of SyntaxGym (garden paths and the like), or ``ODD``."""
    sentences: int = 110
    """Drawn at random; those above ``longest`` words are left out, and one known garden path is added."""
    longest: int = 60
    seed: int = 0
    reference: str = "2000/200/11"
    """Action beam/word beam/threshold (nats) of the search that the others are compared with."""
    beams: tuple[str, ...] = ("1000/100/10", "1000/100/9", "400/40/9", "400/40/inf", "100/10/inf", "10/5/inf")
    """The same of the others; inf for a fixed beam."""


def main(options: Arguments) -> None:
    """Print one line of JSON for each run and beam."""
    torch.set_num_threads(1)
    sentences = _sentences(options)
    for run in options.runs:
        lm = treelm.load(run)
        if "beam_converged" not in lm.word_columns:
            raise InputError("a model that does not search", where=run, remedy="give runs of an rnng")
        expected, _, _ = _search(lm, options.reference, sentences)
        for beam in options.beams:
            bits, converged, seconds = _search(lm, beam, sentences)
            print(json.dumps({"run": run, "beam": beam, **_compare(bits, expected, converged, seconds)}), flush=True)


def _sentences(options: Arguments) -> list[list[str]]:
    generator = np.random.default_rng(options.seed)
    if options.instead == "odd":
        return [text.split() for text in ODD]
    if options.instead == "suites":
        items = [suite.items[generator.integers(len(suite.items))] for suite in load_suites()]
        return [list(words_of(item.conditions[generator.integers(len(item.conditions))].text)) for item in items]
    path = options.file or str(locate_split(DataConfig(corpus="gum-open"), "dev")[0])
    found = [list(sentence.words) for sentence in read_sentences(path)]
    drawn = generator.permutation(len(found))[: options.sentences]
    return [FIRST.split(), *(found[index] for index in sorted(drawn) if len(found[index]) <= options.longest)]


def _search(lm: LanguageModel, beam: str, sentences: list[list[str]]) -> tuple[Floats, ...]:
    """Bits of every token that is no end, the flag of its word, and seconds of the processor."""
    action_beam, word_beam, threshold = beam.split("/")
    lm.search = SearchConfig(action_beam=int(action_beam), word_beam=int(word_beam), threshold=float(threshold))
    begin = process_time()
    scores = lm.score(sentences)
    seconds = np.array(process_time() - begin)
    bits = np.concatenate([np.bincount(s.word_of_token, -s.log_probs[:-1] / np.log(2)) for s in scores])
    return bits, np.concatenate([score.columns["beam_converged"] for score in scores]), seconds


def _compare(
    bits: Floats,
    expected: Floats,
    converged: Floats,
    seconds: Floats,
) -> dict[str, float | None]:
    difference = np.abs(bits - expected)
    wrong, flagged = difference > WRONG_BITS, converged == 0
    return {
        "num_words": len(bits),
        "ms_a_word": round(1000 * float(seconds) / len(bits), 1),
        "mean_bits": round(float(bits.mean()), 3),
        "mean_difference_bits": round(float(difference.mean()), 3),
        "wrong": round(float(wrong.mean()), 3),
        "wrong_by_half_a_bit": round(float((difference > HALF).mean()), 4),
        "flagged": round(float(flagged.mean()), 3),
        "of_the_wrong_flagged": _share(flagged, wrong),
        "of_the_flagged_wrong": _share(wrong, flagged),
        "of_the_others_wrong": _share(wrong, ~flagged),
        "of_the_others_wrong_by_half_a_bit": _share(difference > HALF, ~flagged),
    }


def _share(of: NDArray[np.bool_], among: NDArray[np.bool_]) -> float | None:
    return round(float(of[among].mean()), 3) if among.any() else None


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
