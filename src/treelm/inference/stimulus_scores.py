"""Surprisal and entropy of stimuli: a model's tokens scored, and gathered into the experimenter's words."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.batching import in_batches
from treelm.inference.processes import Compute, here
from treelm.inference.stimuli import Stimulus
from treelm.inference.surprisal import ScoredSentence, word_offsets
from treelm.models.base import LanguageModel
from treelm.models.measures import MEASURES, Measure, score_with_measures
from treelm.models.scores import Gathering, SentenceScore, SentenceSurprisal, WordSurprisal, sentence_surprisal

Context = Literal["sentence", "document"]
"""Context that a model has before a sentence: nothing, or the sentences of the document before it."""

_GATHERED: dict[Gathering, Callable[[Sequence[float]], float]] = {
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "sum": sum,
    "least": min,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredStimulus:
    """A stimulus with the values of its words, and the context that the model really had."""

    stimulus: Stimulus
    scored: ScoredSentence
    context: Context


def score_stimuli(
    lm: LanguageModel,
    stimuli: Iterable[Stimulus],
    *,
    context: Context = "sentence",
    measures: Sequence[Measure] = (),
    batch_size: int = 16,
    skipped: list[InputError] | None = None,
    compute: Compute[SentenceScore] | None = None,
) -> Iterator[ScoredStimulus]:
    """Score stimuli in their order; ``skipped`` collects those that cannot be (see ``in_batches``).

    With ``context="document"`` a model that can (``keeps_context``) reads the sentences of a document in a row;
    any other begins every sentence from nothing, and each result says so. ``measures`` add a column each. ``compute``
    (see ``computing``, with ``score_with_measures``) scores sentences in other processes.
    """
    if context == "document" and lm.keeps_context:
        for _, group in groupby(stimuli, key=lambda one: one.document):
            document = list(group)
            scores = score_with_measures(lm, [one.as_read.words for one in document], measures, in_document=True)
            for one, read in zip(document, scores, strict=True):
                yield _gathered(lm, one, read, "document")
        return
    waiting = deque[Stimulus]()

    def as_read() -> Iterator[Sentence]:
        for one in stimuli:
            waiting.append(one)
            yield one.as_read

    compute = compute or here(partial(score_with_measures, lm, measures=measures))
    for _, found in in_batches(as_read(), compute, batch_size=batch_size, skipped=skipped):
        one = waiting.popleft()
        if found is not None:
            yield _gathered(lm, one, found, "sentence")


def _gathered(lm: LanguageModel, stimulus: Stimulus, score: SentenceScore, context: Context) -> ScoredStimulus:
    tokens = sentence_surprisal(stimulus.as_read.words, score, lm.vocabulary)
    scored = ScoredSentence(
        sentence=stimulus.sentence,
        surprisal=gather(
            stimulus, tokens, {**{one.name: one.gathering for one in MEASURES.values()}, **lm.word_columns}
        ),
        offsets=word_offsets(stimulus.sentence),
    )
    return ScoredStimulus(stimulus=stimulus, scored=scored, context=context)


def gather(stimulus: Stimulus, tokens: SentenceSurprisal, columns: Mapping[str, Gathering]) -> SentenceSurprisal:
    """Make the values of the experimenter's words from those of the tokens that were read in their place.

    ``columns`` says how, as ``word_columns`` does.
    """
    remaining = iter(tokens.words)
    words = []
    for word, own, counts in zip(stimulus.sentence.words, stimulus.tokens, stimulus.counts, strict=True):
        words.append(_word(word, [next(remaining) for _ in own], counts, columns))
    return SentenceSurprisal(words=tuple(words), end_surprisal_bits=tokens.end_surprisal_bits)


def _word(
    word: str, tokens: Sequence[WordSurprisal], counts: Sequence[bool], columns: Mapping[str, Gathering]
) -> WordSurprisal:
    counted = [token for token, counts_in in zip(tokens, counts, strict=True) if counts_in]
    unknown = [token.unk_class for token in counted if token.is_unk]
    return WordSurprisal(
        word=word,
        surprisal_bits=sum(token.surprisal_bits for token in counted),
        is_unk=bool(unknown),
        unk_class=unknown[0] if unknown else None,
        num_pieces=sum(token.num_pieces for token in counted),
        columns={
            name: _GATHERED[columns[name]]([token.columns[name] for token in counted]) for name in tokens[0].columns
        },
    )
