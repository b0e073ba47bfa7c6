"""Tables of one model and several are the same figures, laid out otherwise."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.legacy.make import HERE as RUNS
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.loading import load
from treelm.inference.predictors import Frequencies, Unigrams, lagged
from treelm.inference.processes import here, score
from treelm.inference.stimuli import Columns, Stimulus, check_documents, read_table, stimulus
from treelm.inference.surprisal_table import NamedModel, SourceNames, SurprisalTable, TableSettings
from treelm.io.tables import Cell, Row
from treelm.models.measures import ENTROPY, value_at_start

TABLE = "story,item,rt,form\na,1,300,I\na,1,310,think\na,2,200,The\na,2,220,city\na,2,240,was\nb,1,99,Old\n"


@pytest.fixture(scope="module")
def models() -> list[NamedModel]:
    return [NamedModel(name=name, lm=load(RUNS / name)) for name in ("lstm", "rnng")]


def stimuli() -> list[Stimulus]:
    texts = ("I think", "The city was", "Old")
    found = []
    for number, text in enumerate(texts, start=1):
        sentence = Sentence(words=tuple(text.split()), identifier=str(number), source="in.txt", line=number)
        found.append(stimulus(sentence, "as-given", document="b" if number == 3 else "a"))
    return found


def made(
    models: Sequence[NamedModel],
    settings: TableSettings,
    source: SourceNames | None = None,
    skipped: list | None = None,
) -> tuple[tuple[str, ...], list[Row]]:
    table = SurprisalTable(models, settings, source)
    return table.names, [row for rows in table.rows(stimuli(), skipped) for row in rows]


def column(names: Sequence[str], rows: Sequence[Row], name: str) -> list[Cell]:
    return [row[names.index(name)] for row in rows]


COLUMNS = (ENTROPY, "word_length", "word_position", "document_position")


def test_wide_and_long_tables_have_the_figures_of_each_model_alone(models: list[NamedModel]) -> None:
    alone = [made([one], TableSettings(columns=COLUMNS, lag=1, with_end=True)) for one in models]
    names, rows = made(models, TableSettings(columns=COLUMNS, lag=1, with_end=True, shape="wide"))
    for model, (own, table) in zip(models, alone, strict=True):
        for name in own:
            base, _, lag = name.partition("_lag")
            whose = f"{base}_{model.name}{_ and '_lag'}{lag}"
            assert column(names, rows, whose if whose in names else name) == column(own, table, name), name
    names, rows = made(models, TableSettings(columns=COLUMNS, lag=1, with_end=True, shape="long"))
    for model, (own, table) in zip(models, alone, strict=True):
        mine = [row for row in rows if row[names.index("model")] == model.name]
        for name in own:
            assert column(names, mine, name) == column(own, table, name), name
    assert "beam_converged" in names
    lstm = [row for row in rows if row[0] == "lstm"]
    assert set(column(names, lstm, "beam_converged")) == {None}


def test_predictors_are_those_of_the_words_as_they_were_shown(models: list[NamedModel]) -> None:
    frequencies = Frequencies.of_counts({"the": 9, "city": 1}, source="mine")
    unigrams = Unigrams({"I": 3, "think": 1})
    settings = TableSettings(
        columns=("word_length", "zipf_frequency", "unigram_surprisal_bits", "word_position", "document_position"),
        frequencies=frequencies,
        with_end=True,
    )
    names, rows = made([NamedModel(name="lstm", lm=models[0].lm, unigrams=unigrams)], settings)
    assert column(names, rows, "word_length") == [1, 5, None, 3, 4, 3, None, 3, None]
    assert column(names, rows, "word_position") == [1, 2, None, 1, 2, 3, None, 1, None]
    assert column(names, rows, "document_position") == [1, 2, None, 3, 4, 5, None, 1, None]
    assert column(names, rows, "zipf_frequency")[3] == frequencies.of("the")
    assert column(names, rows, "unigram_surprisal_bits")[:2] == [unigrams.bits(["I"]), unigrams.bits(["think"])]


@pytest.mark.parametrize(("within", "groups"), [("sentence", [1, 1, 2, 2, 2, 3]), ("document", [1, 1, 1, 1, 1, 2])])
def test_lags_end_with_the_sentence_or_the_document(
    models: list[NamedModel], within: str, groups: list[int], tmp_path: Path
) -> None:
    (tmp_path / "rt.csv").write_text(TABLE)
    table = read_table(str(tmp_path / "rt.csv"), Columns("form", ("item",), "story"), "as-given")
    source = SourceNames(("item",), "form", "story", table.names, True)
    settings = TableSettings(lag=2, lag_columns=("rt", "surprisal_bits"), lag_within=within)  # type: ignore[arg-type]
    made_of = SurprisalTable(models[:1], settings, source)
    rows = [row for some in made_of.rows(table.stimuli) for row in some]
    for name in ("rt", "surprisal_bits"):
        values = column(made_of.names, rows, name)
        for lag in (1, 2):
            assert column(made_of.names, rows, f"{name}_lag{lag}") == lagged(values, groups, lag)
    assert column(made_of.names, rows, "story") == ["a"] * 5 + ["b"]
    assert column(made_of.names, rows, "item") == ["1", "1", "2", "2", "2", "1"]
    assert column(made_of.names, rows, "form") == ["I", "think", "The", "city", "was", "Old"]


def test_reductions_of_entropy_add_up(models: list[NamedModel]) -> None:
    settings = TableSettings(columns=(ENTROPY, "next_entropy_reduction_bits", "entropy_bits", "entropy_reduction_bits"))
    names, rows = made([models[1]], settings)
    rows = rows[2:5]  # the second sentence
    total = value_at_start(models[1].lm, ENTROPY) - column(names, rows, ENTROPY)[-1]  # type: ignore[operator]
    assert sum(column(names, rows, "next_entropy_reduction_bits")) == pytest.approx(total)  # type: ignore[arg-type]
    last = column(names, rows, "entropy_bits")[-1]
    assert sum(column(names, rows, "entropy_reduction_bits")) == pytest.approx(-last)  # type: ignore[arg-type, operator]


def test_the_first_word_of_a_later_sentence_has_no_reduction_where_the_document_counts(
    models: list[NamedModel],
) -> None:
    settings = TableSettings(columns=("next_entropy_reduction_bits",), context="document")
    names, rows = made([models[0]], settings)
    assert [value is None for value in column(names, rows, "next_entropy_reduction_bits")] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]


def failing(lm: NamedModel) -> NamedModel:
    """The model, which cannot score the second sentence."""

    def compute(sentences: Sequence[Sequence[str]]) -> list:
        if any("city" in words for words in sentences):
            raise InputError("too hard", remedy="give another")
        return score(lm.lm, sentences)

    return NamedModel(name=lm.name, lm=lm.lm, compute=here(compute))


def test_what_one_model_cannot_score_is_missing_beside_the_other_and_breaks_its_lags(models: list[NamedModel]) -> None:
    skipped: list[InputError] = []
    lstm, rnng = models
    settings = TableSettings(lag=1, lag_within="document", lag_columns=("surprisal_bits",), shape="wide")
    names, rows = made([lstm, failing(rnng)], settings, skipped=skipped)
    assert [value is None for value in column(names, rows, "surprisal_bits_rnng")] == [False] * 2 + [True] * 3 + [False]
    assert None not in column(names, rows, "surprisal_bits_lstm")
    assert [error.found for error in skipped] == ["too hard"]
    names, rows = made([failing(lstm)], TableSettings(lag=1, lag_within="document"), skipped=[])
    assert column(names, rows, "word") == ["I", "think", "Old"]
    assert column(names, rows, "surprisal_bits_lag1")[2] is None
    names, rows = made([failing(lstm), rnng], TableSettings(shape="long"), skipped=[])
    assert column(names, rows, "model") == ["lstm"] * 2 + ["rnng"] * 2 + ["rnng"] * 3 + ["lstm", "rnng"]


def test_lags_of_a_long_table_do_not_leap_over_what_its_model_could_not_score(models: list[NamedModel]) -> None:
    lstm, rnng = models
    table = SurprisalTable([failing(lstm), rnng], TableSettings(lag=1, lag_within="document", shape="long"))
    one_document = [replace(one, document="a") for one in stimuli()]
    rows = [row for some in table.rows(one_document, []) for row in some]
    last = {row[0]: row for row in rows if "Old" in row}
    place = table.names.index("surprisal_bits_lag1")
    assert last["lstm"][place] is None
    assert last["rnng"][place] is not None


def test_a_document_that_goes_on_after_another_is_refused_where_documents_count() -> None:
    shuffled = [replace(one, document="aba"[place]) for place, one in enumerate(stimuli())]
    with pytest.raises(InputError, match=r"in.txt:3: more of document 'a' after another one"):
        check_documents(shuffled)
    check_documents(stimuli())
    for settings in (
        {"context": "document"},
        {"lag": 1, "lag_within": "document"},
        {"columns": ("document_position",)},
    ):
        assert TableSettings(**settings).follows_documents
    assert not TableSettings(lag=1).follows_documents


def test_an_error_comes_after_all_rows_before_it(models: list[NamedModel]) -> None:
    def broken() -> Iterator[Stimulus]:
        yield from stimuli()
        raise InputError("a bad line", remedy="correct it")

    for shape in ("wide", "long"):
        table = SurprisalTable(models, TableSettings(shape=shape, batch_size=1))  # type: ignore[arg-type]
        rows: list[Row] = []
        with pytest.raises(InputError, match="a bad line"):
            rows.extend(row for some in table.rows(broken()) for row in some)
        assert len(rows) == 6 * (2 if shape == "long" else 1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (TableSettings(columns=("open_node",)), r"no column 'open_node' from lstm, rnng; did you mean open_nodes\?"),
        (TableSettings(columns=("zipf_frequency",)), "without frequencies; give frequencies: wordfreq:en"),
        (
            TableSettings(lag=1, lag_columns=("surprisal",)),
            r"no column 'surprisal' to lag; did you mean surprisal_bits",
        ),
    ],
)
def test_columns_that_cannot_be_had_are_named(models: list[NamedModel], settings: TableSettings, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        SurprisalTable(models, settings)


def test_a_word_id_of_the_source_takes_the_place_of_ours_and_its_measures_step_aside(models: list[NamedModel]) -> None:
    table = SurprisalTable(models[:1], TableSettings(), SourceNames(kept=("word_id", "surprisal_bits", "rt")))
    assert table.names.count("word_id") == 1
    assert table.names[-3:] == ("word_id", "own_surprisal_bits", "rt")
    assert table.renamed == {"surprisal_bits": "own_surprisal_bits"}
