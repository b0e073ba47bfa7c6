"""Whether a model is evaluated on data that it was trained on: figures of such data say what it remembers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np

from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.data_config import DataConfig, prepared_split
from treelm.corpora.preparing import prepared
from treelm.corpora.readers import ReadOptions
from treelm.errors import InputError
from treelm.models.base import LanguageModel

LEAST_SHARE = 0.01
"""Below this share of the words, sentences that stand in both are those that stand everywhere, such as ``Yes .``."""


def training_note(
    lm: LanguageModel, data: DataConfig, path: Path, options: ReadOptions, sentences: Sequence[Sequence[str]]
) -> tuple[str, ...]:
    """A note if the model was trained on sentences of this file, on all of them or on a part; else nothing.

    ``data`` are those of the run. Where they are at hand and have not changed since training, each sentence is looked
    up in them; else it is only known whether the whole file is what was read in training.
    """
    identity, train = lm.data_identity.get("train"), None
    with suppress(InputError):  # of data that are not here
        train = prepared_split(data, "train")
    if train is not None and identity in (None, train.identity):  # older models did not note it
        seen = stand_in(train, sentences)
    elif identity is None:
        return ()
    else:
        seen = [False] * len(sentences)
        with suppress(InputError):  # of what can be read once only, or not be kept
            corpus = prepared([path], options=options, on_error="skip", max_sentences=data.max_sentences)
            seen = [corpus.identity == identity] * len(sentences)
    num_words = sum(len(words) for words, is_seen in zip(sentences, seen, strict=True) if is_seen)
    share = num_words / max(1, sum(map(len, sentences)))
    if share < LEAST_SHARE:
        return ()
    part = "all sentences" if all(seen) else f"{sum(seen):,} of {len(seen):,} sentences, {share:.0%} of the words,"
    return (f"{part} were in the training data: these figures measure memorisation, not performance on new text",)


def stand_in(corpus: PreparedCorpus, sentences: Sequence[Sequence[str]]) -> list[bool]:
    """Tell for each sentence whether the corpus has a sentence of the same words."""
    numbers = {form: number for number, form in enumerate(corpus.forms.to_list())}
    coded = [np.array([numbers.get(word, -1) for word in words], corpus.words.dtype).tobytes() for words in sentences]
    own = np.asarray(corpus.words)
    found = {*coded}.intersection(own[start:end].tobytes() for start, end in pairwise(corpus.word_offsets.tolist()))
    return [one in found for one in coded]
