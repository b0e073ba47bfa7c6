"""Surprisal tables: a row for each word of the stimuli, with what one model or several say of it, and predictors.

The same table is written by the command line and given back as a data frame (``inference.frames``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import tee
from typing import Literal, NamedTuple

from treelm.errors import InputError, choose_from
from treelm.inference.predictors import (
    DOCUMENT_POSITION,
    PREDICTORS,
    UNIGRAM,
    WORD_LENGTH,
    WORD_POSITION,
    ZIPF_FREQUENCY,
    Frequencies,
    Unigrams,
    WordsBefore,
    word_length,
)
from treelm.inference.processes import Compute
from treelm.inference.stimuli import Stimulus
from treelm.inference.stimulus_scores import Context, ScoredStimulus, score_stimuli
from treelm.inference.surprisal import CONVERGED, END_OF_SENTENCE, Totals, word_offsets
from treelm.io.tables import Cell, Row, deduplicate_names
from treelm.models.base import LanguageModel
from treelm.models.measures import ENTROPY, MEASURES, Measure, value_at_start
from treelm.models.scores import SentenceScore, WordSurprisal

Shape = Literal["plain", "wide", "long"]
"""plain: one model. wide: a row a word, columns NAME_MODEL of each model. long: a row a word and model."""

MODEL, BITS, WORD_ID, CONTEXT = "model", "surprisal_bits", "word_id", "context"
ENTROPY_REDUCTION, TREE_ENTROPY_REDUCTION = "next_entropy_reduction_bits", "entropy_reduction_bits"
_REDUCED_FROM = {ENTROPY_REDUCTION: ENTROPY, TREE_ENTROPY_REDUCTION: "entropy_bits"}
_NO_MEASURE = {CONVERGED, WORD_POSITION, DOCUMENT_POSITION}
"""Columns that are lagged only if they are named."""


@dataclass(frozen=True, kw_only=True)
class NamedModel:
    """A model in a table. ``unigrams`` are of its training corpus, ``compute`` scores elsewhere (``computing``)."""

    name: str
    lm: LanguageModel
    compute: Compute[SentenceScore] | None = None
    unigrams: Unigrams | None = None


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """What a table has besides surprisals."""

    shape: Shape = "plain"
    columns: tuple[str, ...] = ()
    frequencies: Frequencies | None = None
    lag: int = 0
    lag_columns: tuple[str, ...] = ()  # without any: surprisals and ``columns``
    lag_within: Context = "sentence"
    context: Context = "sentence"
    with_end: bool = False
    batch_size: int = 16

    @property
    def measures(self) -> list[Measure]:
        """The measures over the next word that are to be computed."""
        needed = {_REDUCED_FROM.get(name, name) for name in self.columns}
        return [one for name, one in MEASURES.items() if name in needed]

    @property
    def follows_documents(self) -> bool:
        """Tell whether something of a word depends on the words of its document before its sentence."""
        lags = self.lag and self.lag_within == "document"
        return bool(self.context == "document" or lags or DOCUMENT_POSITION in self.columns)


class SourceNames(NamedTuple):
    """The names under which keys and other columns of the stimuli's source come back."""

    keys: tuple[str, ...] = ("sentence_id",)
    word: str = "word"
    document: str = "document_id"
    kept: tuple[str, ...] = ()
    shows_document: bool = False


def check_columns(models: Mapping[str, LanguageModel], names: Sequence[str]) -> None:
    """Raise ``InputError`` for the first name that none of the models (by their names) has a column of."""
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise InputError(f"the column {twice[0]!r} twice", remedy="name each once")
    known = dict.fromkeys((*MEASURES, *sorted(name for lm in models.values() for name in columns_of(lm)), *PREDICTORS))
    for name in names:
        if name not in known:
            systems = dict.fromkeys(lm.system for lm in models.values())
            raise InputError(f"no column {name!r} from {', '.join(systems)}", remedy=choose_from(name, known))


def columns_of(lm: LanguageModel) -> tuple[str, ...]:
    """Name the columns that a model's table can have besides those of every table and ``PREDICTORS``."""
    reduced = [name for name, column in _REDUCED_FROM.items() if column in (*MEASURES, *lm.word_columns)]
    return (*MEASURES, *sorted(lm.word_columns), *reduced)


@dataclass(kw_only=True)
class Findings:
    """What a table has found of a model: sums, and how many words are doubtful."""

    totals: Totals = field(default_factory=Totals)
    contexts: set[str] = field(default_factory=set)
    num_doubtful: int = 0  # words whose search has not converged

    def add(self, one: ScoredStimulus) -> None:
        """Take in a sentence."""
        self.totals = self.totals.plus(one.scored)
        self.num_doubtful += sum(word.columns.get(CONVERGED) == 0 for word in one.scored.surprisal.words)
        self.contexts.add(one.context)


@dataclass(frozen=True, slots=True)
class _Place:
    """A row of some models: word ``index`` of a sentence, or, after the last word, its end."""

    stimulus: Stimulus
    offsets: Sequence[tuple[int, int] | None]
    models: Sequence[NamedModel]
    found: Sequence[ScoredStimulus | None]  # of each model; None if it could not score the sentence
    index: int

    @property
    def is_end(self) -> bool:
        return self.index == len(self.stimulus.sentence.words)

    @property
    def shown(self) -> str:
        return END_OF_SENTENCE if self.is_end else self.stimulus.sentence.words[self.index]

    def word(self, model: int, back: int = 0) -> WordSurprisal | None:
        """What a model says of this word, or of one before it; None of an end, and where it says nothing."""
        found, place = self.found[model], self.index - back
        return None if found is None or self.is_end or place < 0 else found.scored.surprisal.words[place]


class _Column(NamedTuple):
    name: str
    value: Callable[[_Place], Cell]
    base: str = ""  # the name without that of a model


class SurprisalTable:
    """The columns of a table, and its rows as stimuli are read."""

    def __init__(
        self,
        models: Sequence[NamedModel],
        settings: TableSettings,
        source: SourceNames | None = None,
        on_sentence: Sequence[Callable[[ScoredStimulus], None]] = (),
    ) -> None:
        """Lay out the columns. ``on_sentence`` is called, one of each model, with what it finds of every sentence.

        Raises ``InputError`` for columns that cannot be had.
        """
        source = source or SourceNames()
        check_columns({one.name: one.lm for one in models}, settings.columns)
        if ZIPF_FREQUENCY in settings.columns and settings.frequencies is None:
            remedy = "give frequencies: wordfreq:en, or a table with the columns word and count"
            raise InputError(f"the column {ZIPF_FREQUENCY!r} without frequencies", remedy=remedy)
        self.models, self.settings, self.source = models, settings, source
        self.findings = [Findings() for _ in models]
        self._on_sentence = [[one.add, *on_sentence[place : place + 1]] for place, one in enumerate(self.findings)]
        self._start_entropies: dict[str, float] = {}
        self._views = [range(len(models))] if settings.shape == "wide" else [[number] for number in range(len(models))]
        columns = self._columns()
        taken = [column.name for column in columns if column.name != WORD_ID]
        own = deduplicate_names([name for name in source.kept], taken=taken)
        columns = [column for column in columns if column.name not in own]  # a word_id of the source's own
        kept = [_Column(name, _kept(place), name) for place, name in enumerate(own)]
        shown = source.shows_document and source.document not in source.keys
        document = [_Column(source.document, lambda row: row.stimulus.document)] if shown else []
        about = document + ([] if settings.shape == "wide" else self._contexts(0, ""))
        self.own = tuple(own)
        self._lagged = self._chosen([*columns, *kept]) if settings.lag else []
        self._head, self._tail = columns, [*kept, *about]
        lags = tuple(f"{one.name}_lag{lag}" for one in self._lagged for lag in range(1, settings.lag + 1))
        self.names: tuple[str, ...] = (*_names(self._head), *lags, *_names(self._tail))
        twice = [name for name in dict.fromkeys(self.names) if self.names.count(name) > 1]
        if twice:
            raise InputError(
                f"two columns of the name {twice[0]!r}", remedy="give the column or the model another name"
            )
        self.renamed = {name: new for name, new in zip(source.kept, own, strict=True) if name != new}

    def _columns(self) -> list[_Column]:
        """All but those of the source and of words before, in order."""
        source, shape = self.source, self.settings.shape
        keys = [_Column(name, _key(place)) for place, name in enumerate(source.keys)]
        keys += [_Column(WORD_ID, lambda row: row.index + 1), _Column(source.word, lambda row: row.shown)]
        places = [_Column("char_start", _offset(0)), _Column("char_end", _offset(1))]
        chosen = dict.fromkeys(self.settings.columns)
        common = [self._predictor(name) for name in chosen if name in PREDICTORS and name != UNIGRAM]
        if shape == "wide":
            own = [
                column
                for number, model in enumerate(self.models)
                for column in self._of_model(number, [model], f"_{model.name}")
            ]
            return [*keys, *places, *common, *own]
        first, rest = _split(self._of_model(0, self.models, ""), 4)
        model = [_Column(MODEL, lambda row: row.models[0].name)] if shape == "long" else []
        return [*model, *keys, *first, *places, *rest, *common]

    def _of_model(self, number: int, models: Sequence[NamedModel], suffix: str) -> list[_Column]:
        """Columns of the model at ``number`` of a row, as far as one of these models has them."""
        values: dict[str, Callable[[_Place], Cell]] = {
            BITS: lambda row: _bits(row, number),
            "is_unk": lambda row: 0 if row.is_end else _of(row.word(number), lambda word: int(word.is_unk)),
            "unk_class": lambda row: _of(row.word(number), lambda word: word.unk_class),
            "num_pieces": lambda row: 1 if row.is_end else _of(row.word(number), lambda word: word.num_pieces),
        }
        known = {name for model in models for name in (*columns_of(model.lm), UNIGRAM)}
        searches = any(CONVERGED in model.lm.word_columns for model in models)
        for name in (*((CONVERGED,) if searches else ()), *self.settings.columns):
            if name in known:
                values[name] = self._measure(name, number)
        columns = [_Column(f"{name}{suffix}", value, name) for name, value in values.items()]
        return columns + (self._contexts(number, suffix) if suffix else [])

    def _contexts(self, number: int, suffix: str) -> list[_Column]:
        if not self.source.shows_document:
            return []
        return [_Column(f"{CONTEXT}{suffix}", lambda row: None if (one := row.found[number]) is None else one.context)]

    def _measure(self, name: str, number: int) -> Callable[[_Place], Cell]:
        if name == UNIGRAM:
            return lambda row: _unigram_bits(row, number)
        if name in _REDUCED_FROM:
            return lambda row: self._reduction(row, number, _REDUCED_FROM[name])
        if name == CONVERGED or (name in MEASURES and MEASURES[name].is_whole):
            return lambda row: _of(row.word(number), lambda word: _whole(word.columns.get(name)))
        return lambda row: _of(row.word(number), lambda word: word.columns.get(name))

    def _reduction(self, row: _Place, number: int, column: str) -> Cell:
        """The value of a column before the word minus that after it; missing where the one before is not known."""
        word, found = row.word(number), row.found[number]
        if word is None or found is None or column not in word.columns:
            return None
        before = row.word(number, back=1)
        if before is not None:
            return before.columns[column] - word.columns[column]
        if column != ENTROPY:
            return -word.columns[column]  # there is one analysis before the first word
        if found.context == "document":
            return None
        model = row.models[number]
        if model.name not in self._start_entropies:
            self._start_entropies[model.name] = value_at_start(model.lm, ENTROPY)
        return self._start_entropies[model.name] - word.columns[column]

    def _predictor(self, name: str) -> _Column:
        frequencies = self.settings.frequencies
        values: dict[str, Callable[[_Place], Cell]] = {
            WORD_LENGTH: lambda row: word_length(row.shown),
            ZIPF_FREQUENCY: lambda row: frequencies.of(row.shown) if frequencies else None,
            WORD_POSITION: lambda row: row.index + 1,
            DOCUMENT_POSITION: lambda row: row.stimulus.num_words_before + row.index + 1,
        }
        return _Column(name, lambda row: None if row.is_end else values[name](row), name)

    def _chosen(self, columns: Sequence[_Column]) -> list[_Column]:
        """The columns of which there are lags."""
        if not self.settings.lag_columns:
            measures = {BITS, *self.settings.columns} - _NO_MEASURE
            return [column for column in columns if column.base in measures]
        found = []
        for name in self.settings.lag_columns:
            those = [column for column in columns if name in (column.name, column.base)]
            if not those:
                remedy = choose_from(name, [column.name for column in columns])
                raise InputError(f"no column {name!r} to lag", remedy=remedy)
            found += [column for column in those if column not in found]
        return found

    def rows(self, stimuli: Iterable[Stimulus], skipped: list[InputError] | None = None) -> Iterator[list[Row]]:
        """Give the rows of each sentence; ``skipped`` collects what cannot be scored.

        A model that cannot score a sentence has missing values beside those that can, and no rows of its own.
        """
        windows = [WordsBefore[Sequence[Cell]](self.settings.lag) for _ in self._views if self.settings.lag]
        last = -1
        for found in self._side_by_side(stimuli, skipped):
            some = next(one for one in found if one is not None).stimulus
            if some.number != last + 1:
                for window in windows:
                    window.forget()
            last = some.number
            for calls, one in zip(self._on_sentence, found, strict=True):
                if one is not None:
                    for call in calls:
                        call(one)
            yield [
                row
                for number, view in enumerate(self._views)
                for row in self._of_sentence(number, view, some, found, windows)
            ]

    def _of_sentence(
        self,
        number: int,
        view: Sequence[int],
        stimulus: Stimulus,
        found: Sequence[ScoredStimulus | None],
        windows: Sequence[WordsBefore[Sequence[Cell]]],
    ) -> Iterator[Row]:
        scored = [found[place] for place in view]
        if all(one is None for one in scored):
            if windows:
                windows[number].forget()  # of words that this model has not read
            return
        models, offsets = [self.models[place] for place in view], word_offsets(stimulus.sentence)
        group = (stimulus.document, None if self.settings.lag_within == "document" else stimulus.number)
        for index in range(len(stimulus.sentence.words) + self.settings.with_end):
            place = _Place(stimulus, offsets, models, scored, index)
            before: list[Sequence[Cell] | None] = [None] * self.settings.lag
            if windows and not place.is_end:
                before = windows[number].shift([column.value(place) for column in self._lagged], group)
            lags = [None if one is None else one[k] for k in range(len(self._lagged)) for one in before]
            yield [column.value(place) for column in self._head] + lags + [one.value(place) for one in self._tail]

    def _side_by_side(
        self, stimuli: Iterable[Stimulus], skipped: list[InputError] | None
    ) -> Iterator[list[ScoredStimulus | None]]:
        """What each model finds of each stimulus that any of them can score, in their order."""
        streams = [
            score_stimuli(
                model.lm,
                own,
                context=self.settings.context,
                measures=self.settings.measures,
                batch_size=self.settings.batch_size,
                skipped=skipped,
                compute=model.compute,
            )
            for model, own in zip(self.models, tee(numbered(stimuli), len(self.models)), strict=True)
        ]
        heads = [next(stream, None) for stream in streams]
        while any(heads):
            first = min(one.stimulus.number for one in heads if one is not None)
            found = [one if one is not None and one.stimulus.number == first else None for one in heads]
            yield found
            heads = [
                head if one is None else next(stream, None)
                for head, one, stream in zip(heads, found, streams, strict=True)
            ]


def numbered(stimuli: Iterable[Stimulus]) -> Iterator[Stimulus]:
    """Number stimuli, and say how many words of its document each has before it."""
    words = defaultdict[str, int](int)
    for number, one in enumerate(stimuli):
        yield replace(one, number=number, num_words_before=words[one.document])
        words[one.document] += len(one.sentence.words)


def _names(columns: Sequence[_Column]) -> list[str]:
    return [column.name for column in columns]


def _split(columns: list[_Column], count: int) -> tuple[list[_Column], list[_Column]]:
    return columns[:count], columns[count:]


def _of(word: WordSurprisal | None, value: Callable[[WordSurprisal], Cell]) -> Cell:
    return None if word is None else value(word)


def _whole(value: float | None) -> Cell:
    return None if value is None or value != value else int(value)


def _bits(row: _Place, number: int) -> Cell:
    found = row.found[number]
    if found is None:
        return None
    surprisal = found.scored.surprisal
    return surprisal.end_surprisal_bits if row.is_end else surprisal.words[row.index].surprisal_bits


def _unigram_bits(row: _Place, number: int) -> Cell:
    unigrams = row.models[number].unigrams
    if unigrams is None or row.is_end:
        return None
    own = zip(row.stimulus.tokens[row.index], row.stimulus.counts[row.index], strict=True)
    return unigrams.bits(token for token, counts in own if counts)


def _key(place: int) -> Callable[[_Place], Cell]:
    return lambda row: row.stimulus.keys[place]


def _kept(place: int) -> Callable[[_Place], Cell]:
    return lambda row: None if row.is_end else row.stimulus.kept[row.index][place]


def _offset(side: int) -> Callable[[_Place], Cell]:
    def of(row: _Place) -> Cell:
        place = None if row.is_end else row.offsets[row.index]
        return None if place is None else place[side]

    return of
