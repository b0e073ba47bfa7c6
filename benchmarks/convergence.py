"""How far ``beam_converged`` is to be trusted: surprisals of several beams beside those of one eight times as wide.

OMP_NUM_THREADS=1 python benchmarks/convergence.py rnng-gum-open tg-open-english --texts talk.txt.gz --keep found.jsonl

Kinds of text: dev of gum-open, garden paths and relative clauses of the SAP benchmark, words of these in random order,
and files. What was searched stands in the file of --keep, and is not searched again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Annotated, Any

import numpy as np
import one_line
import torch

import treelm
from treelm.cli.arguments import Positional
from treelm.corpora.data_config import DataConfig, locate_split
from treelm.corpora.readers import read_sentences
from treelm.evaluation.human import sap
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Searching, require
from treelm.models.search.config import SearchConfig

OFF_BITS = 0.1


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to search, and how."""

    runs: Annotated[tuple[str, ...], Positional("RUN")]
    """Run folders, or models of the package, that search with a beam."""
    texts: tuple[str, ...] = ()
    """Files of sentences, any format that treelm reads: a kind of text each."""
    words: int = 125
    """Of each kind, at least: sentences of 3 to 40 words, drawn at random."""
    seed: int = 0
    reference: str = "8000/800/8/12.1"
    """Action beam/word beam/fast track/threshold of the search that the others are compared with."""
    beams: tuple[str, ...] = ("1000/100/1/10", "400/40/1/9")
    """The same of the others; without the threshold, a fixed beam."""
    keep: str = ""
    """File of JSON lines for what was found."""


def main(options: Arguments) -> None:
    """Print a row of a Markdown table for each run, beam and kind of text, and one for all kinds."""
    torch.set_num_threads(1)
    kept = Path(options.keep).read_text().splitlines() if options.keep and Path(options.keep).exists() else []
    known = {tuple(key): found for key, found in map(json.loads, kept)}
    texts = dict(_texts(options))
    print("| model | beam | text | words | ms a word | off | marked | of the others, off | worst of these, bits |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for run in options.runs:
        lm = treelm.load(run)
        for beam in options.beams:
            found = []
            for kind, sentences in texts.items():
                pair = [
                    _found(lm, (run, one, kind, options.words, options.seed), sentences, known, options.keep)
                    for one in (beam, options.reference)
                ]
                found.append((kind, *pair))
                print(_row(run, beam, [found[-1]], kind), flush=True)
            print(_row(run, beam, found, "all"), flush=True)


def _texts(options: Arguments) -> Iterator[tuple[str, list[list[str]]]]:
    """Sentences by kind of text."""
    material = sap.material(("garden-path", "relative-clause"))
    stimuli = dict[Any, list[str]]()
    for sentence, word in zip(material.sentences, material.words, strict=True):
        stimuli.setdefault(sentence, []).extend([word] if word[-1] not in ".," else [word[:-1], word[-1]])
    dev = str(locate_split(DataConfig(corpus="gum-open"), "dev")[0])
    files = {Path(file).name: [list(one.words) for one in read_sentences(file)] for file in (dev, *options.texts)}
    kinds = {"gum-open" if name == Path(dev).name else name: found for name, found in files.items()}
    kinds["garden paths"] = list(stimuli.values())
    generator = np.random.default_rng(options.seed)
    everything = [word for sentences in kinds.values() for sentence in sentences[:1000] for word in sentence]
    kinds["random order"] = [generator.choice(everything, size).tolist() for size in range(5, 15) for _ in range(40)]
    for kind, sentences in kinds.items():
        fitting = [one for one in sentences if 3 <= len(one) <= 40]
        drawn = [fitting[place] for place in generator.permutation(len(fitting))]
        ends = np.cumsum([len(one) for one in drawn])
        yield kind, drawn[: int(np.searchsorted(ends, options.words)) + 1]


def _found(
    lm: LanguageModel, key: tuple[Any, ...], sentences: list[list[str]], known: dict[tuple[Any, ...], Any], keep: str
) -> dict[str, Any]:
    """Bits and flag of every word, and seconds of the processor."""
    if key not in known:
        widths = dict(zip(("action_beam", "word_beam", "fast_track", "threshold"), key[1].split("/"), strict=False))
        search = {name: float(value) if name == "threshold" else int(value) for name, value in widths.items()}
        require(lm, Searching).search = SearchConfig(**search)  # type: ignore[arg-type]
        begin = process_time()
        scores = lm.score(sentences)
        bits = [np.bincount(one.word_of_token, one.log_probs[:-1] / -np.log(2)) for one in scores]
        flags = [one.columns["beam_converged"] for one in scores]
        values = {"bits": np.concatenate(bits).tolist(), "converged": np.concatenate(flags).tolist()}
        known[key] = {**values, "seconds": process_time() - begin}
        if keep:
            with Path(keep).open("a") as file:
                file.write(json.dumps([key, known[key]]) + "\n")
    return known[key]  # type: ignore[no-any-return]


def _row(run: str, beam: str, found: list[tuple[str, dict[str, Any], dict[str, Any]]], kind: str) -> str:
    bits, wide = (np.concatenate([one[place]["bits"] for one in found]) for place in (1, 2))
    flags = np.concatenate([one["converged"] for _, one, _ in found])
    off = np.abs(bits - wide)
    milliseconds = 1000 * sum(one["seconds"] for _, one, _ in found) / len(off)
    cells = [run, beam, kind, str(len(off)), f"{milliseconds:.0f}", f"{(off > OFF_BITS).mean():.1%}"]
    if np.isnan(flags).all():
        return f"| {' | '.join(cells)} | | | |"
    others = off[flags == 1]
    wrong, worst = (f"{(others > OFF_BITS).mean():.1%}", f"{others.max():.2f}") if len(others) else ("", "")
    return f"| {' | '.join([*cells, f'{(flags == 0).mean():.1%}', wrong, worst])} |"


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
