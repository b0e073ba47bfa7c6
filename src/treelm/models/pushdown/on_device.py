"""The machine of pushdown layers on a GPU (see ``search/on_device.py`` and ``search/device_attention.py``).

It does what that of ``machine.py`` does. A row has three lists: the rows of all positions so far, their depths on the
tape, and the places in which the constituents on the stack end, from the bottom. A constituent begins behind the one
below it, or behind START.

Shapes: n rows, W places of a list, D units.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from treelm.models.pushdown.machine import ITSELF, SearchWeights
from treelm.models.search.device_attention import DeviceAttention
from treelm.models.search.device_rows import IN_WORD, NUM_BEFORE, NUM_COMMON, NUM_OPEN, masked_log_softmax
from treelm.models.search.on_device import RowCounts
from treelm.trees.transitions import SHIFT

PLACE = NUM_BEFORE  # number of tokens before; START has 0
HEIGHT = NUM_COMMON  # number of constituents on the stack
TOKEN = NUM_COMMON + 1  # the token of a row that has not attached yet
NUM_COLUMNS = NUM_COMMON + 2
PATH, TAPE, ENDS = range(3)  # lists


class DeviceTape(DeviceAttention):
    """The rows of one search; a ``DeviceMachine``."""

    def __init__(self, weights: SearchWeights) -> None:
        """Read START, which is row 0."""
        self._weights, device = weights, weights.tokens.device
        super().__init__(
            weights.layers,
            weights.norm,
            num_lists=3,
            num_row_lists=1,
            num_actions=weights.config.num_actions,
            num_columns=NUM_COLUMNS,
            widths=[weights.tokens.shape[1]],  # of the key for attachments
            words=weights.words,
            tokens=weights.tokens,
        )
        self.ends_by_closing = False
        self.num_closed = torch.arange(self.num_actions, device=device) - ITSELF
        self.num_closed[[SHIFT, -1]] = 0
        self._ends_word = torch.from_numpy(weights.ends_word).to(device)
        self._num_initial = 1
        start = torch.zeros((1, NUM_COLUMNS), dtype=torch.int64, device=device)
        self._read(start, weights.start, torch.zeros((1, *self._lists.shape[1:]), dtype=torch.int64, device=device))

    def towards_end(self, tops: Tensor) -> Tensor:
        """The log probabilities (..., A) of closing all, and of FINISH; -inf for others."""
        actions = torch.arange(self.num_actions, device=tops.device)
        leads = (actions == ITSELF + self._items[:, HEIGHT][tops][..., None]) | (actions == self.num_actions - 1)
        return self.log_probs(tops).where(leads, -torch.inf)

    def shift(self, tops: Tensor, tokens: Tensor) -> Tensor:
        """The rows after SHIFT of one token each, which have not attached yet: (n,)."""
        new, lists, head = self._items[tops], self._lists[tops], self._weights.attachment
        height, continues = new[:, HEIGHT, None], new[:, IN_WORD, None]
        queries, own = head.queries(self._get(-1, tops), self._weights.tokens[tokens])
        by_distance = head.distances(queries)
        distance = (new[:, PLACE, None] + 1 - lists[:, ENDS]).clamp(0, self._weights.config.max_distance)
        at_ends = self._scores(-2, lists[:, PATH].gather(1, lists[:, ENDS]), queries) + by_distance.gather(1, distance)
        closes = torch.arange(self._weights.config.num_attachments, device=tops.device)
        logits = at_ends.gather(1, (height - closes).clamp(0, len(self._places) - 1))
        logits[:, 0] = own + by_distance[:, 0]
        ends = self._ends_word[tokens][:, None]
        least = torch.where(ends, height + 1 - self._weights.config.max_stack, 0).maximum(continues)
        valid = (closes >= least) & (closes <= torch.where(ends, height, continues))
        log_probs = self._log_probs.new_full((len(tops), self.num_actions), -torch.inf)
        log_probs[:, ITSELF:-1] = masked_log_softmax(logits, valid)
        new[:, TOKEN], new[:, IN_WORD] = tokens, (~ends[:, 0]).long()
        new[:, NUM_OPEN] += 1
        self._reserve(len(tops))
        return self._append(new, lists, log_probs)

    def apply(self, tops: Tensor, actions: Tensor, row_counts: RowCounts) -> Tensor:
        """The rows after one attachment each (m,); row 0 for action -1."""
        places = self._lengthen()
        attaches, _, rows, _ = self._chosen(actions > 0, torch.zeros_like(actions, dtype=torch.bool), row_counts)
        if len(attaches):
            tops = tops[attaches]
            new, lists = self._items[tops], self._lists[tops]
            height, ends = new[:, HEIGHT, None], lists[:, ENDS]
            left = (height[:, 0] - (actions[attaches] - ITSELF)).clamp(min=0)[:, None]  # constituents not closed
            closed = (places >= left) & (places < height)
            first = functional.pad(ends[:, :-1], (1, 0)) + 1
            begun = functional.pad(torch.zeros_like(ends), (0, 1))
            begun = begun.scatter_(1, first.where(closed, len(places)), 1)[:, :-1]
            new[:, PLACE] += 1
            new[:, HEIGHT] = new[:, NUM_OPEN] = left[:, 0] + 1
            lists[:, TAPE] += begun.cumsum(1)
            lists[:, ENDS] = ends.where(places < left, 0).where(places != left, new[:, PLACE, None])
            self._read(new, self._weights.tokens[new[:, TOKEN]], lists, closed.sum(1))
        return rows.clamp(max=self._length - 1)

    def _read(self, items: Tensor, vectors: Tensor, lists: Tensor, closed: Tensor | None = None) -> None:
        """Add positions with these integers, vectors (n, D) and lists (n, 3, W), whose paths still lack them.

        ``closed`` (n,) are the numbers of constituents that they have closed, 0 by default.
        """
        config, head, places = self._weights.config, self._weights.attachment, self._places
        own = self._length + torch.arange(len(items), device=items.device)[:, None]
        place = items[:, PLACE, None]
        lists[:, PATH] = lists[:, PATH].where(places != place, own)
        lists[:, TAPE] = lists[:, TAPE].where(places <= place, 0).clamp(0, config.max_depth)
        self._reserve(len(items))
        relative = (place - places).clamp(0, config.max_distance), lists[:, TAPE]
        outputs = self._attend(vectors, lists[:, PATH], (places > place)[:, None], relative)
        depth = torch.zeros_like(own[:, 0]) if closed is None else closed.clamp(max=config.max_depth)
        logits = self._weights.finish(outputs)[:, 0].double()
        may_end = (items[:, HEIGHT] == 1) & (items[:, IN_WORD] == 0)
        log_probs = self._log_probs.new_full((len(items), self.num_actions), -torch.inf)
        log_probs[:, SHIFT] = functional.logsigmoid(-logits).where(may_end, 0.0)
        log_probs[:, -1] = functional.logsigmoid(logits).where(may_end, -torch.inf)
        self._append(items, lists, log_probs, {-1: outputs, -2: head.key(outputs) + head.depths[depth]})
