"""The scheduler against a node-by-node count."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from treelm.models.layers.levels import earliest_levels, schedule


@st.composite
def graphs(draw: st.DrawFn) -> np.ndarray:
    """Acyclic graphs whose nodes stand in no helpful order; rows may name a predecessor twice."""
    num_nodes, width = draw(st.integers(1, 30)), draw(st.integers(1, 3))
    ranks = draw(st.permutations(range(num_nodes)))
    by_rank = np.argsort(ranks)
    rows = [draw(st.lists(st.integers(-1, rank - 1), min_size=width, max_size=width)) for rank in ranks]
    return np.array([[int(by_rank[rank]) if rank >= 0 else -1 for rank in row] for row in rows])


@given(graphs())
def test_a_level_is_one_more_than_the_highest_before(predecessors: np.ndarray) -> None:
    levels = earliest_levels(predecessors)
    for node, row in enumerate(predecessors):
        assert levels[node] == 1 + max((levels[p] for p in row if p >= 0), default=-1)


@given(graphs())
def test_a_schedule_lists_levels_one_after_the_other(predecessors: np.ndarray) -> None:
    found = schedule(predecessors)
    levels = earliest_levels(predecessors)
    for level in range(found.num_levels):
        nodes = found.order[found.offsets[level] : found.offsets[level + 1]]
        assert nodes.tolist() == np.flatnonzero(levels == level).tolist()
    assert found.order[found.position].tolist() == list(range(len(predecessors)))
