"""Sentences to show a model on: of the language that it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from treelm.corpora.catalog import Split
from treelm.corpora.data_config import DataConfig, locate_split
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.tokens import words_of
from treelm.errors import InputError

OF_CORPORA: dict[str, Sequence[str]] = {
    "gum-open": (
        "The museum was built in the city in 1986 .",
        "I think that the people of this country want to know .",
        "She said that it is one of the most important cities in the world .",
    )
}
"""Chosen sentences, of words that a vocabulary of the corpus has."""
NUMBER = 3
_FEWEST_WORDS, _MOST_WORDS = 6, 15  # as many as a drawing has room for
_LOOKED_AT = 1000


def example_sentences(data: DataConfig) -> list[Sentence]:
    """Those of ``OF_CORPORA``, else the first dev sentences (or test, or train) that fit a drawing, with their trees.

    Where all are longer, they are cut and have no trees. Raises ``InputError`` if the data cannot be read any more;
    nothing is downloaded for examples.
    """
    if data.corpus in OF_CORPORA:
        texts = OF_CORPORA[data.corpus]
        return [
            Sentence(words=words_of(text), identifier=str(number), source="examples", line=number)
            for number, text in enumerate(texts, 1)
        ]
    splits: tuple[Split, ...] = ("dev", "test", "train")
    split = next((one for one in splits if data.has_split(one)), None)
    if split is None:
        raise InputError("no data to take examples from", remedy="give sentences")
    path, format = locate_split(data, split, download=False)
    read = read_sentences(path, **vars(data.read_options(format)), on_error="skip", skipped=[])
    found = [one for one in islice(read, _LOOKED_AT) if one.words]
    fitting = [one for one in found if _FEWEST_WORDS <= len(one.words) <= _MOST_WORDS]
    return [_cut(one) for one in (fitting or found)[:NUMBER]]


def _cut(sentence: Sentence) -> Sentence:
    if len(sentence.words) <= _MOST_WORDS:
        return sentence
    return replace(sentence, words=sentence.words[:_MOST_WORDS], tree=None, tags=None, text=None)
