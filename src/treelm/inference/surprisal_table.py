"""Surprisal tables: a row for each word of the stimuli.

Sentences are scored in a stream and become data frames in chunks, so that memory does not grow with the input.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat, tee
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from treelm.configs import from_keywords
from treelm.corpora.tokens import words_of_each
from treelm.errors import InputError, OnError, check_choice, choose_from
from treelm.inference.batching import Compute, chunks, in_process
from treelm.inference.predictors import (
    DOCUMENT_POSITION,
    PREDICTORS,
    UNIGRAM,
    WORD_LENGTH,
    WORD_POSITION,
    ZIPF_FREQUENCY,
    Frequencies,
    Unigrams,
    word_length,
)
from treelm.inference.sentence_rows import Columns
from treelm.inference.settings import LOG_BASES, PER_BIT, TableSettings
from treelm.inference.stimuli import Punctuation, Stimulus, check_documents, table_stimuli, word_offsets
from treelm.inference.stimulus_advice import LONGEST_SENTENCE, ReadWords, advice
from treelm.inference.surprisal import BITS, context_of, end_bits, score_stimuli, word_frame
from treelm.io.tables import PROBABILITY, deduplicate_names
from treelm.models.base import LanguageModel
from treelm.models.measures import ENTROPY, MEASURES, Measure, value_at_start
from treelm.models.scores import CONVERGED, SentenceScore

if TYPE_CHECKING:
    import pandas as pd

MODEL, WORD_ID, CONTEXT, END_OF_SENTENCE = "model", "word_id", "context", "</s>"
ENTROPY_REDUCTION, TREE_ENTROPY_REDUCTION = "next_entropy_reduction_bits", "entropy_reduction_bits"
_REDUCED_FROM = {ENTROPY_REDUCTION: ENTROPY, TREE_ENTROPY_REDUCTION: "entropy_bits"}
_NOT_LAGGED = {CONVERGED, WORD_POSITION, DOCUMENT_POSITION}
COMMON_COLUMNS = (BITS, "is_unk", "unk_class", "num_pieces")  # columns that every model gives for every word, in order
_CHUNK = 128  # sentences that become a frame together
_FRAME, _LINE = "data frame", "\0line"  # the source of rows that are given in Python, and a column with their numbers


@dataclass(frozen=True, kw_only=True)
class NamedModel:
    """A model in a table, where it computes, and the counts of the words in its training data."""

    name: str
    lm: LanguageModel
    compute: Compute = in_process
    unigrams: Unigrams | None = None


def check_columns(models: Mapping[str, LanguageModel], names: Sequence[str]) -> None:
    """Raise ``InputError`` for a column that none of the models has, or that is named twice.

    ``models`` are the models by their names in the table.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"the column {twice[0]!r} twice", remedy="name each once")
    known = dict.fromkeys([*(name for lm in models.values() for name in columns_of(lm)), *PREDICTORS])
    for name in names:
        if name not in known:
            systems = dict.fromkeys(lm.system for lm in models.values())
            raise InputError(f"no column {name!r} from {', '.join(systems)}", remedy=choose_from(name, known))


def _of_expectation(lm: LanguageModel) -> list[str]:
    """The columns that say how much a word was expected: its surprisal, the parts of it, and measures of that place."""
    parts = [name for name, rule in lm.word_columns.items() if rule == "part"]
    return [BITS, PROBABILITY, *parts, *(name for name, one in MEASURES.items() if one.at == "before")]


def columns_of(lm: LanguageModel) -> tuple[str, ...]:
    """The names of the columns that a model's table may have, besides those of every table and ``PREDICTORS``."""
    reduced = [name for name, column in _REDUCED_FROM.items() if column in (*MEASURES, *lm.word_columns)]
    return (*MEASURES, PROBABILITY, *sorted(lm.word_columns), *reduced)


def measures_of(columns: Sequence[str]) -> list[Measure]:
    """The measures over the next word from which these columns are computed."""
    needed = {_REDUCED_FROM.get(name, name) for name in columns}
    return [one for name, one in MEASURES.items() if name in needed]


@dataclass(kw_only=True)
class Findings:
    """What a table has found about a model: sums over its words, and how they were read."""

    num_sentences: int = 0
    num_words: int = 0
    num_unknown_words: int = 0
    num_impossible_words: int = 0  # to which the model, or what its search found, gives probability 0
    word_surprisal_bits: float = 0.0
    end_surprisal_bits: float = 0.0
    num_unconverged: int = 0  # words whose search has not converged
    words: ReadWords = field(default_factory=Counter)

    def add(self, stimuli: Sequence[Stimulus], words: pd.DataFrame, ends: NDArray[np.float64]) -> None:
        """Add sentences, their words (``word_frame``), and the bits of their ends."""
        self.num_sentences += len(stimuli)
        self.num_words += len(words)
        self.num_unknown_words += int(words["is_unk"].sum())
        self.num_impossible_words += int(np.isinf(words[BITS]).sum())
        self.word_surprisal_bits += float(words[BITS].sum())
        self.end_surprisal_bits += float(ends.sum())
        self.num_unconverged += int((words[CONVERGED] == 0).sum()) if CONVERGED in words else 0
        shown = (word for one in stimuli for word in one.sentence.words)
        # ``tokens`` are the treebank tokens (clitics, marks) of a stimulus word, not subwords.
        are_cut = (len(own) > 1 for one in stimuli for own in one.tokens)
        self.words.update(zip(shown, words["is_unk"].astype(bool), are_cut, strict=True))

    def to_json(self) -> dict[str, object]:
        """The sums by their names, as JSON values."""
        return {name: value for name, value in vars(self).items() if name not in ("num_unconverged", "words")}


class SurprisalTable:
    """The columns of a table, and its rows as stimuli are read."""

    def __init__(
        self,
        models: Sequence[NamedModel],
        settings: TableSettings,
        source: Columns | None = None,
        frequencies: Frequencies | None = None,
    ) -> None:
        """Lay out the columns; ``frequencies`` replace those that the settings name.

        Raises ``InputError`` for columns that the models or the source do not have.
        """
        check_columns({one.name: one.lm for one in models}, settings.columns)
        self.models, self.settings, self.source = models, settings, source or Columns()
        self._frequencies = frequencies or (Frequencies.named(settings.frequencies) if settings.frequencies else None)
        if ZIPF_FREQUENCY in settings.columns and self._frequencies is None:
            remedy = "give frequencies = 'wordfreq:en', or a table with the columns word and count"
            raise InputError(f"the column {ZIPF_FREQUENCY!r} without frequencies", remedy=remedy)
        if settings.frequencies and ZIPF_FREQUENCY not in settings.columns:
            found = f"frequencies = {settings.frequencies!r} without the column {ZIPF_FREQUENCY!r}"
            raise InputError(found, remedy=f"add columns = {ZIPF_FREQUENCY!r}, or remove this option")
        self._is_wide = settings.shape == "wide" or (settings.shape == "auto" and len(models) > 1)
        self._shows_document = settings.context == "document" or bool(self.source.document)
        self.findings = [Findings() for _ in models]
        self.long_sentences: list[Stimulus] = []  # of more words than LONGEST_SENTENCE, so far
        self._start_entropies = [
            value_at_start(one.lm, ENTROPY) if ENTROPY_REDUCTION in settings.columns else math.nan for one in models
        ]
        self._document = self.source.document or "document_id"
        self._num_words: defaultdict[str, int] = defaultdict(int)  # of documents, so far
        self._last_words: dict[int, pd.DataFrame] = {}  # of the chunk before, with their documents
        self.names: tuple[str, ...] = self._layout()

    def _layout(self) -> tuple[str, ...]:
        """The columns in their order.

        Sets ``own``, ``renamed`` and the columns of which there are lags.
        """
        source, settings = self.source, self.settings
        keys, places = [*source.sentence, WORD_ID, source.word], ["char_start", "char_end"]
        predictors = [name for name in settings.columns if name in PREDICTORS and name != UNIGRAM]
        context = [CONTEXT] if self._shows_document else []
        document = [self._document] if self._shows_document and self._document not in source.sentence else []

        def shown(names: Iterable[str], ending: str = "") -> dict[str, str]:
            return {f"{self._in_unit(name)}{ending}": name for name in names}

        if self._is_wide:
            own = ([*COMMON_COLUMNS, *self._chosen_columns([model]), *context] for model in self.models)
            each = (shown(names, f"_{model.name}") for names, model in zip(own, self.models, strict=True))
            model_columns = dict(chain.from_iterable(one.items() for one in each))
            columns, context = [*keys, *places, *predictors, *model_columns], []
        else:
            common, chosen = shown(COMMON_COLUMNS), shown(self._chosen_columns(self.models))
            model_columns, model = common | chosen, [MODEL] if settings.shape == "long" else []
            columns = [*model, *keys, *common, *places, *chosen, *predictors]
        self.own = deduplicate_names(
            source.kept, taken=[name for name in columns if name != WORD_ID or settings.text_column]
        )
        """The names of the source's other columns: own_NAME for one of the same name as a computed one."""
        self.renamed = {name: new for name, new in zip(source.kept, self.own, strict=True) if name != new}
        columns = [name for name in columns if name not in self.own]  # a word_id of the source's own
        lagged = {BITS, *settings.columns} - _NOT_LAGGED if settings.lag else set()
        self._lagged = [name for name in columns if model_columns.get(name, name) in lagged]
        lags = [f"{name}_lag{lag}" for name in self._lagged for lag in range(1, settings.lag + 1)]
        names = (*columns, *lags, *self.own, *document, *context)
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            remedy = "give the column or the model another name"
            raise InputError(f"two columns of the name {twice[0]!r}", remedy=remedy)
        return names

    def _in_unit(self, name: str) -> str:
        """The name of a model's column, in the unit that was asked for."""
        return f"{name[:-4]}{LOG_BASES[self.settings.log_base]}" if name.endswith("_bits") else name

    def _chosen_columns(self, models: Sequence[NamedModel]) -> list[str]:
        """The columns that any of these models has, besides ``COMMON_COLUMNS``, in their order."""
        known = {name for model in models for name in (*columns_of(model.lm), UNIGRAM)}
        searches = any(CONVERGED in model.lm.word_columns for model in models)
        chosen = [name for name in self.settings.columns if name in known]
        return list(dict.fromkeys([CONVERGED, *chosen] if searches else chosen))

    def frames(
        self,
        stimuli: Iterable[Stimulus],
        skipped: list[InputError] | None = None,
        on_sentence: Callable[[], None] = lambda: None,
    ) -> Iterator[pd.DataFrame]:
        """Yield the rows of the stimuli, those of ``_CHUNK`` sentences at a time.

        ``skipped`` collects the errors of sentences that cannot be scored; without it, the first one is raised, after
        all rows before it. Where one of several models cannot score a sentence, its cells are missing (in a table with
        one row for each word), or it has no rows (in one with a row for each model). ``on_sentence`` is called after
        each sentence.
        """
        settings = self.settings
        streams = [
            score_stimuli(
                model.lm,
                own,
                context=settings.context,
                measures=measures_of(settings.columns),
                batch_size=settings.batch_size,
                skipped=skipped,
                compute=model.compute,
            )
            for model, own in zip(self.models, tee(stimuli, len(self.models)), strict=True)
        ]

        def scored() -> Iterator[tuple[Stimulus, list[SentenceScore | None]]]:
            for found in zip(*streams, strict=True):
                if any(score is not None for _, score in found):
                    on_sentence()
                yield found[0][0], [score for _, score in found]

        for chunk in chunks(scored(), repeat(_CHUNK)):
            yield self._frame([one for one, _ in chunk], list(zip(*(scores for _, scores in chunk), strict=True)))

    def _frame(self, stimuli: Sequence[Stimulus], scores: Sequence[Sequence[SentenceScore | None]]) -> pd.DataFrame:
        """The rows of stimuli, of which each model has scores, or None.

        The index is the number of the sentence (from 0) and of the word (from 1); the end comes after the last word.
        """
        import pandas as pd

        sizes = [(k, len(one.sentence.words)) for k, one in enumerate(stimuli)]
        self.long_sentences += [stimuli[k] for k, size in sizes if size > LONGEST_SENTENCE]
        # Of every word, (sentence, word); of every row of the table, which with ``end`` has one more a sentence.
        word_index = pd.MultiIndex.from_tuples([(k, n) for k, size in sizes for n in range(1, size + 1)])
        row_index = word_index
        if self.settings.end:
            row_index = pd.MultiIndex.from_tuples([(k, n) for k, size in sizes for n in range(1, size + 2)])
        source, names = self._of_source(stimuli, word_index, row_index), list(self.names)
        found = [self._of_model(place, stimuli, own, word_index, row_index) for place, own in enumerate(scores)]
        scored = [[k for k, score in enumerate(own) if score is not None] for own in scores]
        if self._is_wide:
            suffixed = [own.add_suffix(f"_{model.name}") for own, model in zip(found, self.models, strict=True)]
            found, scored = [pd.concat(suffixed, axis=1)], [sorted(set().union(*scored))]
        views = [self._with_lags(n, stimuli, word_index, source.join(own))[names] for n, own in enumerate(found)]
        frame = pd.concat([view[row_index.isin(own, level=0)] for view, own in zip(views, scored, strict=True)])
        hidden = {(k, n) for k, one in enumerate(stimuli) for n, is_shown in enumerate(one.shown, 1) if not is_shown}
        frame = frame[[place not in hidden for place in frame.index]]
        return frame.iloc[np.argsort(frame.index.get_level_values(0), kind="stable")]

    def _of_source(
        self, stimuli: Sequence[Stimulus], word_index: pd.MultiIndex, row_index: pd.MultiIndex
    ) -> pd.DataFrame:
        """The columns that do not depend on a model."""
        import pandas as pd

        source, frequencies, before = self.source, self._frequencies, list[int]()
        for one in stimuli:
            before.append(self._num_words[one.document])
            self._num_words[one.document] += len(one.sentence.words)
        sentence, num = row_index.get_level_values(0), row_index.get_level_values(1)
        shown = [word for one in stimuli for word in one.sentence.words]
        starts, ends = zip(*(offset for one in stimuli for offset in word_offsets(one.sentence)), strict=True)
        predictors: dict[str, Callable[[], tuple[Iterable[float | None], str]]] = {
            WORD_LENGTH: lambda: (map(word_length, shown), "Int64"),
            ZIPF_FREQUENCY: lambda: (map(frequencies.of, shown) if frequencies else (), "float64"),
            WORD_POSITION: lambda: (word_index.get_level_values(1), "Int64"),
            DOCUMENT_POSITION: lambda: ((before[k] + n for k, n in word_index), "Int64"),
        }
        kept = zip(*(cells for one in stimuli for cells in one.kept), strict=True)
        columns: dict[str, tuple[Iterable[Any], str]] = {
            source.word: (shown, "object"),
            "char_start": (starts, "Int64"),
            "char_end": (ends, "Int64"),
            **{name: predictors[name]() for name in self.settings.columns if name in predictors},
            **{name: (cells, "object") for name, cells in zip(self.own, kept, strict=True)},
        }
        series = {name: pd.Series(list(values), word_index, dtype) for name, (values, dtype) in columns.items()}
        frame = pd.DataFrame(series).reindex(row_index)
        frame[source.word] = frame[source.word].where(row_index.isin(word_index), END_OF_SENTENCE)
        of_rows = {
            self._document: pd.Series([stimuli[k].document for k in sentence], row_index, object),
            **{
                name: pd.Series([stimuli[k].keys[n] for k in sentence], row_index, object)
                for n, name in enumerate(source.sentence)
            },
            WORD_ID: pd.Series(num, row_index, "Int64"),
        }
        return frame.assign(**{name: values for name, values in of_rows.items() if name not in frame})

    def _of_model(
        self,
        place: int,
        stimuli: Sequence[Stimulus],
        scores: Sequence[SentenceScore | None],
        word_index: pd.MultiIndex,
        row_index: pd.MultiIndex,
    ) -> pd.DataFrame:
        """The columns of a model, for the sentences that it could score."""
        model, known = self.models[place], {k: score for k, score in enumerate(scores) if score is not None}
        own, ends = [stimuli[k] for k in known], end_bits(list(known.values()))
        columns = self._chosen_columns([model] if self._is_wide else self.models)
        needed = {_REDUCED_FROM.get(name, name): None for name in columns}
        found = word_frame(model.lm, own, list(known.values()), needed)
        self.findings[place].add(own, found, ends)
        found.index = word_index[word_index.isin(list(known), level=0)]
        for name in columns:
            if name in _REDUCED_FROM:
                found[name] = self._reduction(found[_REDUCED_FROM[name]], place)
        if PROBABILITY in columns:
            found[PROBABILITY] = np.exp2(-found[BITS])
        if UNIGRAM in columns and model.unigrams is not None:
            pairs = [zip(*both, strict=True) for one in own for both in zip(one.tokens, one.counts, strict=True)]
            found[UNIGRAM] = [model.unigrams.bits(token for token, counts in pair if counts) for pair in pairs]
        found = found[[*COMMON_COLUMNS, *columns]].reindex(row_index)
        is_there = row_index.isin(list(known), level=0)
        is_end = is_there & ~row_index.isin(word_index)
        found.loc[is_end, ["is_unk", "num_pieces"]] = [0, 1]
        found.loc[is_end, BITS] = ends if self.settings.end else []
        if self.settings.omit_first:
            is_first = found.index.get_level_values(1) == 1
            found.loc[is_first, found.columns.isin(_of_expectation(model.lm))] = math.nan
        for name in found.columns[found.columns.str.endswith("_bits")]:
            found[name] *= PER_BIT[LOG_BASES[self.settings.log_base]]
        found = found.rename(columns=self._in_unit)
        if self._shows_document:
            found.loc[is_there, CONTEXT] = context_of(model.lm, self.settings.context)
        return found.assign(**{MODEL: model.name}) if self.settings.shape == "long" else found

    def _reduction(self, after: pd.Series, place: int) -> pd.Series:
        """The entropy before each word minus the entropy after it, in bits; unlike in Hale (2006), it may be negative.

        It is missing for the first word of a sentence in a document, where the entropy before the word is not known.
        """
        before, is_first = after.shift(1), after.index.get_level_values(1) == 1
        if after.name != ENTROPY:
            return before.mask(is_first, 0.0) - after  # there is one analysis before the first word
        in_document = context_of(self.models[place].lm, self.settings.context) == "document"
        return before.mask(is_first, math.nan if in_document else self._start_entropies[place]) - after

    def _with_lags(
        self, number: int, stimuli: Sequence[Stimulus], word_index: pd.MultiIndex, view: pd.DataFrame
    ) -> pd.DataFrame:
        """A view with the values of the words before each word, those of the chunk before among them."""
        import pandas as pd

        if not self._lagged:
            return view
        in_document, num_lags = self.settings.lag_within == "document", self.settings.lag
        own = view.loc[word_index, self._lagged]
        own.index = pd.Index([stimuli[k].document if in_document else k for k in word_index.get_level_values(0)])
        together = pd.concat([self._last_words[number], own]) if number in self._last_words else own
        if in_document:
            self._last_words[number] = together.tail(num_lags)
        groups = together.groupby(level=0, sort=False)
        lags = [(lag, groups.shift(lag).tail(len(own)).set_axis(word_index)) for lag in range(1, num_lags + 1)]
        return view.join([values.add_suffix(f"_lag{lag}") for lag, values in lags])


def surprisal_table(
    models: LanguageModel | Mapping[str, LanguageModel],
    frame: pd.DataFrame | Sequence[str | Sequence[str]],
    *,
    word: str = "word",
    sentence: str | Sequence[str] = "sentence_id",
    document: str = "",
    fill_down: bool = False,
    on_error: OnError = "raise",
    punctuation: Punctuation = "as-given",
    frequencies: Frequencies | str = "",
    unigrams: Unigrams | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Return a data frame of words or sentences with surprisals in bits beside it.

    ``frame`` has a word in each row, and the rows of a sentence stand together; or it is a sequence of sentences, each
    a text or a list of words, which stand for the frame of their words with the columns sentence_id and word_id.
    ``models`` is one model, or several by their names: these get columns NAME_MODEL (``shape="wide"``), or a row for
    each model (``"long"``, with the column model). A model without a name goes by the name of its system. ``sentence``
    names the column, or columns, whose equal cells make rows one sentence, ``document`` the column of documents. With
    ``fill_down``, an empty cell in these columns is that of the row above. ``unigrams`` counts the words of the
    training data. The other arguments are those of ``treelm surprisal`` (``TableSettings``). A column with the name of
    a computed one becomes own_NAME. Where rows are not those of the frame (``text_column`` without a target,
    ``sum_by``, ``end``, punctuation apart), the result is the table that ``treelm surprisal`` writes.

    Warns about words that the model reads otherwise than they are written (unknown, split), and about rows that may not
    be one sentence (``sentence_rows``). Raises ``InputError`` for columns, words and frames that cannot be read. With
    ``on_error="skip"``, the values of such a sentence are missing instead, and a warning says why.
    """
    import pandas as pd

    if isinstance(frame, Sequence):
        words = [(k, n, one) for k, own in enumerate(words_of_each(frame), 1) for n, one in enumerate(own, 1)]
        frame = pd.DataFrame(words, columns=["sentence_id", WORD_ID, "word"])
    if not isinstance(frame, pd.DataFrame):
        found = f"{type(frame).__name__} where a data frame of pandas was expected"
        raise InputError(found, remedy="give one (frame.to_pandas() of polars), or read a file by treelm surprisal")
    named = {models.system: models} if isinstance(models, LanguageModel) else dict(models)
    if not named:
        raise InputError("no model", remedy="give one, or several by their names")
    named_file, given = (frequencies, None) if isinstance(frequencies, str) else ("", frequencies)
    usual = {"shape": "auto" if isinstance(models, LanguageModel) else "wide", "frequencies": named_file}
    asked = from_keywords(TableSettings, {**usual, **settings}, where="surprisal_table")
    wrong = [name for name in frame.columns if not isinstance(name, str)]
    if wrong:
        raise InputError(f"a column of the name {wrong[0]!r}, which is no string", where=_FRAME, remedy="rename it")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"two columns of the name {twice!r}", where=_FRAME, remedy="rename or remove one")
    if UNIGRAM in asked.columns and unigrams is None:
        raise InputError(f"the column {UNIGRAM!r} without counts", remedy="give unigrams = Unigrams(counts of words)")
    keys = (sentence,) if isinstance(sentence, str) else tuple(sentence)
    names = Columns(word, keys, document, rows=asked)
    check_choice("on_error", on_error, get_args(OnError))
    skipped: list[InputError] | None = [] if on_error == "skip" else None
    cells = frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)
    rows = ((f"{_FRAME}:{number}", dict(zip(frame, row, strict=True))) for number, row in enumerate(cells, start=1))
    how: dict[str, Any] = {"source": _FRAME, "line_name": _LINE, "fill_down": fill_down, "skipped": skipped}
    read = table_stimuli(list(frame), rows, names, punctuation, language=asked.split_sentences, **how)
    if asked.follows_documents:
        check_documents(read.stimuli)
    for lm in named.values():
        lm.require_words()
    shown = [NamedModel(name=name, lm=lm, unigrams=unigrams) for name, lm in named.items()]
    table = SurprisalTable(shown, asked, read.columns, given)
    frames = list(table.frames(read.stimuli, skipped))
    found = pd.concat(frames)
    for line in (*read.notes, *(f"left out: {error}" for error in skipped or ())):
        warnings.warn(line, stacklevel=2)
    for (name, lm), said in zip(named.items(), table.findings, strict=True):
        for line in advice(said.words, lm.vocabulary, "the model" if lm is models else name):
            warnings.warn(line, stacklevel=2)
    has_targets = all(one.shown for one in read.stimuli)
    if asked.end or asked.sum_by or punctuation == "apart" or (asked.text_column and not has_targets):
        return pd.DataFrame({name: _plain(found[name]) for name in table.names if name != _LINE})
    added = [name for name in table.names if name not in ({*names.all} & {*frame}).union(table.own)]
    frame = frame.set_axis(deduplicate_names(list(frame), taken=added), axis=1)
    views = {name: found[found[MODEL] == name] for name in named} if asked.shape == "long" else {"": found}
    whole = {name: view.set_axis(view[_LINE]).reindex(range(1, len(frame) + 1)) for name, view in views.items()}
    filled = ({one: name if one == MODEL else _plain(view[one]) for one in added} for name, view in whole.items())
    return pd.concat([frame.assign(**own) for own in filled])


def _plain(values: pd.Series) -> Any:
    """The values of a column as NumPy types: whole numbers become floats if some are missing."""
    if values.dtype == "Int64":
        return values.to_numpy("float64", na_value=math.nan) if values.hasnans else values.to_numpy("int64")
    return values.infer_objects().array
