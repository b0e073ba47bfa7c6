import io
import logging
from collections.abc import Sequence

import pytest

from treelm.cli.arguments import in_options, parse, show_warnings
from treelm.cli.parse import Arguments as Parse
from treelm.cli.reproduce import Arguments as Reproduce
from treelm.cli.train import Arguments
from treelm.errors import InputError


@pytest.mark.parametrize(
    ("given", "recipe", "changes"),
    [
        (["demo", "--set", "A=1", "--set", "B=2"], "demo", ("A=1", "B=2")),
        (["demo", "--set", "A=1", "B=2", "--quiet", "--set", "C=3"], "demo", ("A=1", "B=2", "C=3")),
        (["--set=A=1", "demo", "--set", "B=2", "--output", "x"], "demo", ("A=1", "B=2")),
        (["--set", "A=1", "--", "demo"], "demo", ("A=1",)),
        (["--set", "A=1", "--quiet", "demo"], "demo", ("A=1",)),
        (["-o", "x", "demo"], "demo", ()),
    ],
)
def test_values_of_a_repeated_option_add_up(given: Sequence[str], recipe: str, changes: tuple[str, ...]) -> None:
    found = parse(Arguments, "treelm train", given)
    assert (found.recipe, found.set) == (recipe, changes)


@pytest.mark.parametrize(
    ("call", "where", "text", "expected"),
    [
        ((Parse, ["run", "x"]), "x:3", 'skip it: on_error = "skip"', "skip it: --on-error skip"),
        ((Arguments, ["demo"]), "x:3", 'skip it: on_error = "skip"', "skip it: --set data.on_error=skip"),
        ((Reproduce, ["prpn"]), "x:3", 'skip it: on_error = "skip"', 'skip it: on_error = "skip"'),
        ((Parse, ["run", "x"]), None, 'give format = "text" or "conllu", or b', "give --format text or conllu, or b"),
        ((Parse, ["run", "x"]), None, "batch_size = -1", "--batch-size -1"),
        (
            (Parse, ["run", "x"]),
            None,
            "raise action_beam, word_beam or beam",
            "raise --action-beam, --word-beam or beam",
        ),
        ((Arguments, ["demo"]), None, "give data.empty_lines = false", "give --set data.empty_lines=false"),
        ((Arguments, ["demo"]), "r.toml [data]", 'tags = "no"', 'tags = "no"'),
        ((Reproduce, ["prpn"]), None, "small = true", "--small"),
        ((Parse, ["run", "x"]), None, "a word 'format = 3' of its model's", "a word 'format = 3' of its model's"),
        (
            (Parse, ["run", "x"]),
            None,
            "file_format = 3, x.format=3 and --format=3",
            "file_format = 3, x.format=3 and --format=3",
        ),
    ],
)
def test_settings_in_messages_are_named_as_they_are_typed(
    call: tuple[type, list[str]], where: str | None, text: str, expected: str
) -> None:
    parse(call[0], "treelm x", call[1])
    for error in (InputError(text, remedy="y", where=where), InputError("y", remedy=text, where=where)):
        assert str(in_options(error)) == str(error).replace(text, expected)


@pytest.mark.parametrize(
    ("logger", "expected"),
    [("treelm.corpora.readers", ["a.psd: --set data.treebank=penn"]), ("other", ["a.psd: treebank = penn"] * 2)],
)
def test_warnings_name_settings_as_they_are_typed_and_tell_of_data_once(
    logger: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(stream))
    for _ in range(2):  # as for two models that read the same file
        parse(Arguments, "treelm train", ["demo"])
        show_warnings()
        record = logging.LogRecord(logger, logging.WARNING, __file__, 1, "a.psd: treebank = penn", None, None)
        assert logging.lastResort is not None
        logging.lastResort.handle(record)
    assert stream.getvalue().splitlines() == expected
