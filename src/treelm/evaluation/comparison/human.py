"""What human data say of one run, for a comparison: reading times and garden paths."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from treelm.corpora.running_text import normalise
from treelm.evaluation.human import natural_stories, sap, ucl
from treelm.evaluation.human.babylm import BabyLMScore, reading_score
from treelm.evaluation.human.corpora import ReadingCorpus
from treelm.evaluation.human.garden_paths import EffectInBits, measure_effects
from treelm.evaluation.human.material import Material, Surprisals, score_material
from treelm.evaluation.human.reading import ModelResult, measure_reading
from treelm.evaluation.human.regression import require_library
from treelm.models.base import LanguageModel


@dataclass(frozen=True, kw_only=True)
class ReadingGain:
    """How well one model predicts reading times, and the words themselves."""

    name: str
    delta_nats_per_word: float  # over the baseline, held out
    low: float  # of the 95 % interval
    high: float
    perplexity: float  # per word, over the words that are compared, without ends of sentences

    @classmethod
    def of(cls, result: ModelResult) -> ReadingGain:
        """Take what a figure shows from the result of a model."""
        delta = result.delta
        perplexity = math.exp(result.mean_bits * math.log(2))
        return cls(
            name=result.name,
            delta_nats_per_word=delta.nats_per_word,
            low=delta.low,
            high=delta.high,
            perplexity=perplexity,
        )


@dataclass(frozen=True, kw_only=True)
class ReadingMetrics:
    """Reading times of a corpus by a run's surprisals, and by published ones on the same words."""

    corpus: str
    response: str
    num_words: int  # those of which the run and all published models have a surprisal
    num_unknown: int  # words of the corpus that the run reads as unknown ones
    ms_per_bit: tuple[float, ...]  # by lag
    gain: ReadingGain
    published: tuple[ReadingGain, ...]
    babylm: BabyLMScore | None = None  # of the UCL corpus alone


@dataclass(frozen=True, kw_only=True)
class GardenPathMetrics:
    """Effects of the SAP benchmark in bits, those that have a finite mean."""

    effects: tuple[EffectInBits, ...]

    def bits(self, effect: str, region: int) -> float | None:
        """The mean effect at a region, if it was measured."""
        found = (one.bits for one in self.effects if (one.effect, one.region) == (effect, region))
        return next(found, None)


def load_corpus(name: str, folder: str) -> ReadingCorpus:
    """Load a corpus by its name from a folder; raises ``InputError`` for a missing library."""
    require_library()
    return {natural_stories.NAME: natural_stories.load, ucl.NAME: ucl.load}[name](folder)


def reading_metrics(
    lm: LanguageModel, name: str, corpus: ReadingCorpus, on_sentence: Callable[[], None]
) -> ReadingMetrics:
    """Score a corpus by a model and compare it with the published ones, in the corpus' own design."""
    own = _score(lm, name, corpus, on_sentence)
    published = [corpus.published[reference] for reference in corpus.references if reference != name]
    result = measure_reading(corpus, [*published, own])
    *others, found = result.models
    return ReadingMetrics(
        corpus=result.corpus,
        response=result.response,
        num_words=result.num_words,
        num_unknown=found.num_unknown,
        ms_per_bit=tuple(slope.ms_per_bit for slope in found.slopes),
        gain=ReadingGain.of(found),
        published=tuple(map(ReadingGain.of, others)),
        babylm=reading_score(corpus, own) if corpus.name == ucl.NAME else None,
    )


def garden_path_metrics(lm: LanguageModel, name: str, on_sentence: Callable[[], None]) -> GardenPathMetrics:
    """Score the SAP benchmark by a model."""
    found = measure_effects(_score(lm, name, sap.material(), on_sentence)).effects
    return GardenPathMetrics(effects=tuple(one for one in found if math.isfinite(one.bits)))


def _score(lm: LanguageModel, name: str, material: Material, on_sentence: Callable[[], None]) -> Surprisals:
    return score_material(lm, material, name=name, normalise=normalise, on_sentence=on_sentence)
