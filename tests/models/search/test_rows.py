"""Growable matrices."""

from __future__ import annotations

import numpy as np

from treelm.models.search.rows import IntRows


def test_rows_that_follow_for_a_look_are_not_kept_and_a_beginning_stays_where_it_is() -> None:
    rows, first = IntRows(2, capacity=3), np.arange(8).reshape(4, 2)
    rows.append(first[:3])
    assert rows.followed_by(first[3:]).tolist() == first.tolist()
    assert rows.all.tolist() == first[:3].tolist()
    assert rows.append(-first).tolist() == [3, 4, 5, 6]
    rows.keep(np.array([False, True, False, True, True]), 2)
    assert rows.all.tolist() == [*first[:2].tolist(), [0, -1], [-4, -5], [-6, -7]]
    rows.keep(np.array([4, 0]))
    assert rows.all.tolist() == [[-6, -7], [0, 1]]
