from pathlib import Path

import pytest

from tests.fuzz.harness import limits
from treelm.errors import InputError
from treelm.evaluation.evalb_files import COLLINS, find_parameters, parse_parameters, read_parameters


def test_every_keyword_is_understood() -> None:
    text = (
        "# a comment\nDEBUG 0\n\nMAX_ERROR 7\nCUTOFF_LEN 25\nLABELED 0\nDELETE_LABEL TOP\nDELETE_LABEL #\n"
        "DELETE_LABEL_FOR_LENGTH -NONE-\nQUOTE_LABEL POS\nEQ_LABEL ADVP PRT\nEQ_WORD a b\r\nDISC_ONLY 0\n"
    )
    parameters = parse_parameters(text, source="dir/mine.prm")
    assert parameters.name == "mine.prm"
    assert (parameters.max_errors, parameters.cutoff_length, parameters.labeled) == (7, 25, False)
    assert parameters.delete_labels == ("TOP", "#")
    assert parameters.delete_labels_for_length == ("-NONE-",)
    assert parameters.quote_labels == ("POS",)
    assert parameters.equal_labels == (("ADVP", "PRT"),)
    assert parameters.equal_words == (("a", "b"),)


def test_a_file_of_many_lines_is_read_in_linear_time(tmp_path: Path) -> None:
    (tmp_path / "long.prm").write_text("".join(f"DELETE_LABEL X{n}\nEQ_WORD a{n} b\n" for n in range(150_000)))
    with limits():
        assert len(read_parameters(tmp_path / "long.prm").delete_labels) == 150_000


def test_built_in_collins_says_what_its_file_says() -> None:
    text = (
        "DEBUG 0\nMAX_ERROR 10\nCUTOFF_LEN 40\nLABELED 1\nDELETE_LABEL TOP\nDELETE_LABEL -NONE-\nDELETE_LABEL ,\n"
        "DELETE_LABEL :\nDELETE_LABEL ``\nDELETE_LABEL ''\nDELETE_LABEL .\nDELETE_LABEL_FOR_LENGTH -NONE-\n"
        "EQ_LABEL ADVP PRT\n"
    )
    assert parse_parameters(text, source="collins") == COLLINS


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("DELETE_LABELS TOP", "mine.prm:2: unknown keyword 'DELETE_LABELS'"),
        ("DELETE_LABEL", "mine.prm:2: DELETE_LABEL has 0 values"),
        ("DELETE_LABEL TOP S1", "mine.prm:2: DELETE_LABEL has 2 values"),
        ("EQ_LABEL ADVP", "mine.prm:2: EQ_LABEL has 1 values"),
        ("CUTOFF_LEN forty", "mine.prm:2: value 'forty'"),
        ("LABELED 2", "mine.prm:2: value '2'"),
        ("MAX_ERROR -1", "mine.prm:2: value '-1'"),
        ("DISC_ONLY 1", "mine.prm:2: DISC_ONLY 1"),
    ],
)
def test_invalid_parameters_name_their_line(line: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        parse_parameters(f"# comment\n{line}\n", source="mine.prm")


def test_parameters_are_found_by_name_else_by_path(tmp_path: Path) -> None:
    (tmp_path / "mine.prm").write_text("\ufeffLABELED 0\n", encoding="utf-8")
    assert find_parameters("collins") is COLLINS
    assert not find_parameters(str(tmp_path / "mine.prm")).labeled


def test_equality_has_no_direction_and_is_not_transitive() -> None:
    parameters = parse_parameters("EQ_LABEL A B\nEQ_LABEL B C\n", source="p")
    assert parameters.same_label("A", "B")
    assert parameters.same_label("B", "A")
    assert not parameters.same_label("A", "C")
