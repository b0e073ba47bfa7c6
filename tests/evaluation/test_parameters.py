"""The built-in parameters of EVALB are those of its files."""

from dataclasses import replace

import pytest

from treelm.errors import InputError
from treelm.evaluation.evalb_files import COLLINS, NEW, find_parameters


def test_parameters_are_found_by_name() -> None:
    assert find_parameters("collins") is COLLINS
    assert find_parameters("new") is NEW
    with pytest.raises(InputError, match="choose one of collins, new"):
        find_parameters("mine.prm")


def test_built_in_collins_says_what_its_file_says() -> None:
    assert COLLINS.delete_labels == ("TOP", "-NONE-", ",", ":", "``", "''", ".")
    assert COLLINS.delete_labels_for_length == ("-NONE-",)
    assert COLLINS.equal_labels == (("ADVP", "PRT"),)
    assert (COLLINS.cutoff_length, COLLINS.max_errors, COLLINS.labeled) == (40, 10, True)


def test_equality_has_no_direction_and_is_not_transitive() -> None:
    parameters = replace(COLLINS, equal_labels=(("A", "B"), ("B", "C")))
    assert parameters.same_label("A", "B")
    assert parameters.same_label("B", "A")
    assert not parameters.same_label("A", "C")
