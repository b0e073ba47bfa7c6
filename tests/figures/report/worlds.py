"""A comparison of made-up figures that has every section of a report."""

from __future__ import annotations

import math
from dataclasses import replace

from treelm.evaluation.comparison.metrics import (
    Comparison,
    LossPoint,
    RunMetrics,
    SentenceAnalysis,
    WordBits,
)
from treelm.evaluation.evaluate import GUM_NOTES
from treelm.evaluation.human.sap import EFFECTS, REGIONS
from treelm.evaluation.syntaxgym.results import circuits
from treelm.models.som.network import slot_spans
from treelm.models.structures import Distances, SpanWeights
from treelm.trees.trivial import left_branching, right_branching

HOSTILE = "</script><b>&'\""
WORDS = ("I", "think", "<unk>", HOSTILE, "barks", ".")
GOLD = f"(S (NP I) (VP think (SBAR (NP <unk> {HOSTILE}) (VP barks))) .)"


def run(name: str, system: str, perplexity: float) -> RunMetrics:
    """A row with all figures that any system has; they differ between perplexities."""
    share = min(1.0, 40 / perplexity)
    names = {suite for suites in circuits().values() for suite in suites}
    points = (
        LossPoint(
            kind="dev",
            step=10 * epoch,
            epoch=epoch,
            seconds=12.5 * epoch,
            loss_nats_per_word=math.log(perplexity) + 2 / epoch + 0.5,
            word_nats=math.log(perplexity) + 2 / epoch,
        )
        for epoch in range(1, 6)
    )
    return RunMetrics(
        name=name,
        run=f"runs/{name}",
        system=system,
        split="test",
        num_sentences=460,
        num_words=8_902,
        scoring_threads=1,
        loss_curve=tuple(points),
        is_upper_bound=system == "rnng",
        gold_trees="constituency",
        values={
            "parameters": 1_300_000,
            "training_seconds": 75.0,
            "training_words_per_second": 6_040.0,
            "scoring_words_per_second": 812.0,
            "perplexity": perplexity,
            "unlabeled_f1, plain": 100 * share,
            "unlabeled_f1_sentence, plain": 99 * share,
            "sg_score": share,
            "mean_over_suites": share,
            "num_suites": len(names),
            **{f"circuit, {circuit}": share * (1 - number / 10) for number, circuit in enumerate(circuits())},
            **{f"suite, {suite}": share for suite in sorted(names)},
            "minimal_pairs, blimp.jsonl": share,
            "num_pairs, blimp.jsonl": 670,
            **gain(share / 50, perplexity),
            **{f"effect_bits, {one.name}, {region}": 4 * share - region for one in EFFECTS for region in REGIONS},
        },
        pair_groups={
            "blimp.jsonl": {
                "UID": {f"paradigm_{n}": share for n in range(5)},
                "field": {"syntax": share, "morphology": 0.5},
            }
        },
        published={"gpt2": gain(0.018, 47.0), "trigram": gain(0.012, 370.0)},
        notes=(GUM_NOTES["brackets"],),
    )


def gain(nats: float, perplexity: float) -> dict[str, float]:
    """What a model adds to the prediction of reading times."""
    values = {"delta_nats_per_word": nats, "low": nats / 2, "high": nats * 2}
    values |= {"perplexity": perplexity, "num_words": 6_960}
    return {f"reading_{name}, natural-stories": value for name, value in values.items()}


def analysis(words: tuple[str, ...] = WORDS, shift: float = 0.0) -> SentenceAnalysis:
    """An analysis with everything that any system has."""
    count = len(words)
    memory = slot_spans(("<s>", *words), [5, *([3, 4] * count)[:count]], 6)
    weights = tuple(tuple(1 / row for _ in range(row)) if row else () for row in range(count + 2))
    return SentenceAnalysis(
        words=words,
        gold=GOLD if words == WORDS else None,
        tree=str(right_branching(words) if shift < 1 else left_branching(words)),
        bits=WordBits(
            surprisal_bits=tuple(3.25 + shift + (5 * position) % 7 for position in range(count)),
            end_surprisal_bits=0.5,
            is_unk=tuple(word == "<unk>" for word in words),
            is_upper_bound=shift == 0.0,
        ),
        structures=(
            Distances(tokens=words, values=tuple(float(one % 3) for one in range(count)), begins_word=(True,) * count),
            SpanWeights(tokens=("<s>", *words, "<s>"), weights=weights, reach=(3,) * (count + 2)),
            memory,
        ),
    )


SYSTEMS = ("rnng", "som", "prpn", "on-lstm", "palm", "lstm", "ngram", "shift-reduce", "awd-lstm")


def full() -> Comparison:
    """Nine runs, more than there are colours."""
    rows = [
        replace(run(system, system, 90.0 + 37 * number), sentences=(analysis(shift=number / 2),))
        for number, system in enumerate(SYSTEMS)
    ]
    return Comparison(runs=tuple(rows), notes=(GUM_NOTES["brackets"], f"a note with {HOSTILE}"))
