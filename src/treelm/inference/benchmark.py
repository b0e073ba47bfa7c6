"""How fast a model searches and how much memory that takes, on this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from time import perf_counter

from treelm.inference.loading import load
from treelm.models.layers.devices import process_peak_mb


@dataclass(frozen=True, kw_only=True)
class Beam:
    """Widths of a word-synchronous search."""

    action_beam: int
    word_beam: int
    fast_track: int


@dataclass(frozen=True, kw_only=True)
class SearchSpeed:
    """Speed of scoring and parsing in one search."""

    action_beam: int
    word_beam: int
    fast_track: int
    batch_size: int
    threads: int
    num_sentences: int
    words_per_sentence: float
    seconds_per_sentence: float
    words_per_second: float
    peak_memory_mb: float  # above what the process held with the model loaded


def measure_search(run: str, sentences: Sequence[Sequence[str]], beam: Beam) -> SearchSpeed:
    """Search all sentences side by side, once to warm up and once measured; memory is right only in a fresh process."""
    lm = load(run)
    lm.set_beam(action_beam=beam.action_beam, word_beam=beam.word_beam, fast_track=beam.fast_track)
    before = process_peak_mb()
    lm.analyse(sentences)
    begin = perf_counter()
    lm.analyse(sentences)
    seconds = perf_counter() - begin
    num_words = sum(map(len, sentences))
    return SearchSpeed(
        action_beam=beam.action_beam,
        word_beam=beam.word_beam,
        fast_track=beam.fast_track,
        batch_size=len(sentences),
        threads=1,  # of every search
        num_sentences=len(sentences),
        words_per_sentence=num_words / len(sentences),
        seconds_per_sentence=seconds / len(sentences),
        words_per_second=num_words / seconds,
        peak_memory_mb=process_peak_mb() - before,
    )


def compare_beams(run: str, sentences: Sequence[Sequence[str]], beams: Sequence[Beam]) -> Iterator[SearchSpeed]:
    """Measure every beam, each in a fresh process."""
    for beam in beams:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool.submit(measure_search, run, sentences, beam).result()
