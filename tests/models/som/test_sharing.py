from __future__ import annotations

import numpy as np

from treelm.models.som.sweep import share


def test_vectors_stand_in_the_order_of_their_first_use_and_belong_to_that_level() -> None:
    numbers = np.array([7, 3, 7, 9, 3, 1])
    shared = share(numbers, np.array([0, 2, 4, 6]))
    assert shared.vectors.tolist() == [7, 3, 9, 1]
    assert shared.offsets == [0, 2, 3, 4]
    assert shared.place is not None
    assert shared.vectors[shared.place].tolist() == numbers.tolist()


def test_nothing_is_shared_where_all_vectors_are_different() -> None:
    shared = share(np.array([4, 2, 8]), np.array([0, 1, 3]))
    assert shared.place is None
    assert (shared.vectors.tolist(), shared.offsets) == ([4, 2, 8], [0, 1, 3])
