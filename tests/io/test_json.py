"""Values that were altered are not taken for those that were sealed."""

from __future__ import annotations

import json

from treelm.io.json import json_hash, line_with_checksum, line_without_checksum, with_checksum, without_checksum

VALUES = {"b": [1, 2.5], "a": {"é": None}}


def test_sealed_values_come_back() -> None:
    assert without_checksum(with_checksum(VALUES)) == VALUES
    assert line_without_checksum(line_with_checksum(VALUES)) == VALUES


def test_what_is_infinite_is_null_to_every_reader_and_old_lines_with_a_word_for_it_are_whole() -> None:
    values = {"bits": [1.5, float("inf"), float("-inf"), float("nan")]}
    assert line_without_checksum(line_with_checksum(values)) == {"bits": [1.5, None, None, None]}
    old = {"bits": [1.5, float("inf")]}
    line = (json.dumps({**old, "sha256": json_hash(old)}) + "\n").encode()
    assert b"Infinity" in line
    assert line_without_checksum(line) == old


def test_values_with_numbers_for_names_come_back_as_json_has_them() -> None:
    assert line_without_checksum(line_with_checksum({"counts": {10: 1, 9: 2}})) == {"counts": {"10": 1, "9": 2}}


def test_every_other_line_is_none() -> None:
    line = line_with_checksum(VALUES)
    assert line_without_checksum(line[:-1]) is None
    for place in range(len(line)):
        altered = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
        assert line_without_checksum(altered) in (None, VALUES)  # an escaped letter may be written in two ways
    assert without_checksum([VALUES]) is None
    assert without_checksum(VALUES) is None
