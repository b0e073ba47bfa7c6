"""Lines of code of each package may only fall."""

from __future__ import annotations

from scripts import line_ratchet


def test_comments_and_docstrings_are_no_code() -> None:
    source = '"""A module."""\n\n# why\nx = [\n    1,  # one\n]\n\n\ndef f():\n    """Say."""\n    return """a\nb"""\n'
    assert line_ratchet.code_lines(source) == 6


def test_a_package_that_grows_or_has_no_limit_is_named() -> None:
    assert line_ratchet.faults({"cli": 10, "io": 3}, {"cli": 10, "io": 3}) == []
    grown, new = line_ratchet.faults({"cli": 11, "io": 3}, {"cli": 10})
    assert grown.startswith("cli: 11 lines of code, limit 10")
    assert new.startswith("io: 3 lines of code and no limit")
