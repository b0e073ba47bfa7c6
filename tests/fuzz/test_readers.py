"""Some hostile files for every reader; ``make fuzz`` tries thousands."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.edits import EDITS, TOKENS, Edit
from tests.fuzz.harness import Reader, check, hostile
from tests.fuzz.readers import READERS

CASES = int(os.environ.get("FUZZ_CASES", "25"))  # of each reader
edit = st.builds(
    Edit,
    kind=st.sampled_from(sorted(EDITS)),
    place=st.floats(0, 1),
    length=st.integers(0, 512),
    token=st.integers(0, len(TOKENS) - 1),
)
readers = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


@readers
def test_a_hostile_file_is_read_in_full_or_refused_in_one_line(reader: Reader, tmp_path: Path) -> None:
    reader.company(tmp_path)

    @settings(max_examples=CASES, derandomize="FUZZ_CASES" not in os.environ, suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 9), edits=st.lists(edit, min_size=1, max_size=4), sealed=st.booleans())
    def cases(seed: int, edits: list[Edit], sealed: bool) -> None:
        check(reader, tmp_path, hostile(reader, seed, edits, sealed=sealed))

    cases()


@readers
def test_the_files_that_hostile_ones_are_made_of_are_good(reader: Reader, tmp_path: Path) -> None:
    reader.company(tmp_path)
    assert check(reader, tmp_path, reader.seeds()[0])
