"""A comparison of made-up figures that has every section of a report."""

from __future__ import annotations

import math
from dataclasses import replace

from treelm.evaluation.comparison.metrics import (
    Comparison,
    F1Metric,
    GardenPathMetrics,
    LossPoint,
    PairMetrics,
    ReadingGain,
    ReadingMetrics,
    RunMetrics,
    SentenceAnalysis,
    SyntaxGymMetrics,
    WordBits,
)
from treelm.evaluation.evaluate import GUM_NOTES
from treelm.evaluation.human.garden_paths import EffectInBits
from treelm.evaluation.human.sap import EFFECTS, REGIONS
from treelm.evaluation.syntaxgym.results import circuits
from treelm.models.perplexity import Perplexity
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
        num_parameters=1_300_000,
        split="test",
        num_sentences=460,
        num_words=8_902,
        training_seconds=75.0,
        training_words_per_second=6_040.0,
        scoring_words_per_second=812.0,
        scoring_threads=1,
        loss_curve=tuple(points),
        perplexities=(
            Perplexity(
                unit="word",
                policy="with_end",
                total_bits=math.log2(perplexity) * 100,
                num_units=100,
                is_upper_bound=system == "rnng",
            ),
        ),
        unlabeled_f1=(F1Metric(protocol="plain", corpus_f1=100 * share, sentence_f1=99 * share),),
        gold_trees="constituency",
        syntaxgym=SyntaxGymMetrics(
            suites=dict.fromkeys(sorted(names), share),
            without_unknown={},
            circuits={name: share * (1 - number / 10) for number, name in enumerate(circuits())},
            sg_score=share,
            mean=share,
        ),
        pairs=(
            PairMetrics(
                file="blimp.jsonl",
                accuracy=share,
                num_pairs=670,
                num_ties=1,
                num_with_unknown=2,
                accuracy_without_unknown=None,
                groups={
                    "UID": {f"paradigm_{n}": share for n in range(5)},
                    "field": {"syntax": share, "morphology": 0.5},
                },
            ),
        ),
        reading=ReadingMetrics(
            corpus="natural-stories",
            response="mean_rt",
            num_words=6_960,
            num_unknown=12,
            ms_per_bit=(0.25, 0.5, 0.125),
            gain=gain(name, share / 50, perplexity),
            published=(gain("gpt2", 0.018, 47.0), gain("trigram", 0.012, 370.0)),
        ),
        garden_paths=GardenPathMetrics(
            effects=tuple(
                EffectInBits(
                    effect=effect.name,
                    region=region,
                    bits=4 * share - region,
                    standard_error=0.25,
                    correlation=None if region else 0.5,
                    by_item={"1": 4.5},
                    num_missing=0,
                    num_unknown=3,
                )
                for effect in EFFECTS
                for region in REGIONS
            )
        ),
        notes=(GUM_NOTES["brackets"],),
    )


def gain(name: str, nats: float, perplexity: float) -> ReadingGain:
    """What a model adds to the prediction of reading times."""
    return ReadingGain(name=name, delta_nats_per_word=nats, low=nats / 2, high=nats * 2, perplexity=perplexity)


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
