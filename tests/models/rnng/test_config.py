"""What makes no network is refused."""

from typing import Any

import pytest

from treelm.errors import InputError
from treelm.models.rnng.config import RNNGConfig


@pytest.mark.parametrize(
    "values",
    [
        {"embedding_size": 0},
        {"dropout": 1.0},
        {"order": "bottom-up"},
        {"embedding_dropout_by": "sentence"},
        {"composition": "sum"},
        {"max_open": 0},
        {"embedding_size": 5, "composition": "attention"},
    ],
)
def test_a_bad_value_is_named(values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(values))} = {next(iter(values.values()))!r}"):
        RNNGConfig(**values)
