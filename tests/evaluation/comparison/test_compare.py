"""What is said below a comparison: which rows must not be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.comparison.test_figures import FULL
from treelm.errors import InputError
from treelm.evaluation.comparison.compare import notes_on, row_names
from treelm.evaluation.comparison.figures import RunFigures
from treelm.evaluation.comparison.keeping import Kept

ONE = replace(FULL, name="one", vocabulary="v", text="t", notes=())


def notes(*rows: RunFigures) -> str:
    return "\n".join(notes_on(rows))


@pytest.mark.parametrize(("field", "what"), [("vocabulary", "unknown words"), ("text", "texts")])
def test_rows_with_another_vocabulary_or_text_are_named(field: str, what: str) -> None:
    other = replace(ONE, name="other", **{field: "x"})  # type: ignore[arg-type]
    assert "do not compare" not in notes(ONE, replace(ONE, name="same"))
    assert "do not compare" in notes(ONE, other)
    assert what in notes(ONE, other)
    assert "one | other" in notes(ONE, other)


def test_a_bare_parser_s_vocabulary_hurts_no_perplexity() -> None:
    parser = replace(ONE, name="parser", perplexities=(), vocabulary="x")
    assert "do not compare" not in notes(ONE, parser)


def test_f1_against_other_gold_trees_is_named() -> None:
    other = replace(ONE, name="other", gold_trees="dependencies")
    assert "F1 does not compare" in notes(ONE, other)


def test_rows_are_named_by_as_many_folders_as_tell_them_apart(tmp_path: Path) -> None:
    runs = [tmp_path / "a" / "demo", tmp_path / "b" / "demo"]
    assert list(row_names(runs).values()) == ["a/demo", "b/demo"]
    assert list(row_names(runs[:1]).values()) == ["demo"]
    with pytest.raises(InputError, match="twice"):
        row_names([runs[0], tmp_path / "b" / ".." / "a" / "demo"])


def test_kept_figures_are_those_of_the_same_origin_and_damage_is_measured_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "measured")
    kept.put("part", {"weights": "a"}, {"value": 1.5})
    assert Kept(tmp_path / "measured").get("part", {"weights": "a"}) == {"value": 1.5}
    assert kept.get("part", {"weights": "b"}) is None
    (file,) = (tmp_path / "measured").iterdir()
    file.write_text(file.read_text()[:-5])
    assert kept.get("part", {"weights": "a"}) is None
