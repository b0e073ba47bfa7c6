"""The machine of a top-down Transformer Grammar: it applies actions to many stacks and scores what may come next."""

from __future__ import annotations

import numpy as np

from treelm.models.layers.devices import to_device
from treelm.models.search.analyses import Analyses, Candidates
from treelm.models.search.machine import closed_by_reduce, closing_actions, groups_of_binary_trees, num_binary_groups
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.validity import (
    CONSTITUENT,
    OPEN,
    Configuration,
    spread,
    valid_actions,
)
from treelm.models.transformer_grammar import stacks as at
from treelm.models.transformer_grammar.machine import KeyValueMachine
from treelm.models.transformer_grammar.stacks import NOTHING, Composing
from treelm.trees.transitions import FIRST_NT, REDUCE


class TopDownMachine(KeyValueMachine):
    """Stacks on which NT, SHIFT and REDUCE act."""

    @property
    def num_actions(self) -> int:
        """SHIFT, REDUCE, and NT(X) for each label."""
        return FIRST_NT + self.weights.num_labels

    @property
    def num_closed(self) -> Ints:
        """REDUCE closes one."""
        return closed_by_reduce(self.num_actions)

    @property
    def ends_by_closing(self) -> bool:
        """Tell whether REDUCE of the root ends a sentence."""
        return True

    def start(self, num_sentences: int) -> Analyses:
        """One analysis a sentence, before the first action."""
        return self._scored(self._started(num_sentences))

    def shift(self, analyses: Candidates, tokens: Ints) -> Analyses:
        """SHIFT one token on each of these stacks; scores already count it."""
        new = self._pushed_on(analyses.top, self.stacks.items(analyses.top))
        new[:, at.NUM_CHILDREN] += self.weights.ends_word[tokens]
        new[:, at.NUM_NEEDED] -= new[:, at.IN_WORD] == 0
        return self._scored(self._shifted(analyses, new, tokens))

    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        """The successors of ``analyses[sources]`` by actions other than SHIFT, with their scores."""
        top = analyses.top[sources]
        old = self.stacks.items(top)
        new = self._pushed_on(top, old)
        opens, closes = np.flatnonzero(actions != REDUCE), np.flatnonzero(actions == REDUCE)
        new[opens, at.OPENED], new[opens, at.LABEL] = len(self.stacks) + opens, actions[opens] - FIRST_NT
        new[opens, at.NUM_OPEN] += 1
        new[opens, at.NUM_CONSECUTIVE] += 1
        new[opens, at.TOP], new[opens, at.NUM_CHILDREN] = OPEN, 0
        new[opens, at.NUM_NEEDED] += 1
        new[closes] = self._closed(old[closes], new[closes])
        new[:, at.IN_WORD] = 0
        mark = 1 + actions - FIRST_NT  # START is the first
        mark[closes] = 1 + self.weights.num_labels + (old[closes, at.LABEL] if self.weights.config.composes else 0)
        vectors = self._rows_of(self.weights.marks, mark)
        taking = self._composing(closes, top[closes], old[closes])
        if self.weights.composer is not None:
            index = to_device(closes, vectors.device)
            composed = self.stacks.composed(taking.tops, taking.num_parts - 1, vectors.index_select(0, index))
            vectors, taking = vectors.index_copy(0, index, composed), NOTHING
        new_top = self.stacks.push(new, vectors, taking)
        history = self.histories.append(analyses.history[sources], actions)
        sentence, shortfall = analyses.sentence[sources], analyses.shortfall[sources]
        return self._scored(Candidates(sentence, score, shortfall, new_top, history))

    def _composing(self, closes: Ints, tops: Ints, old: Ints) -> Composing:
        """REDUCEs, which take all down to the open nonterminal off these stacks, if any are composed."""
        if not self.weights.config.composes:
            return NOTHING
        opened = self.stacks.items(old[:, at.OPENED])
        return Composing(closes, tops, old[:, at.HEIGHT] - opened[:, at.HEIGHT] + 1)

    @staticmethod
    def _pushed_on(top: Ints, old: Ints) -> Ints:
        """The integers of a row on each of these, as a SHIFT or NT pushes it."""
        new = KeyValueMachine._pushed_on(top, old)
        new[:, at.DEPTH] = old[:, at.NUM_OPEN] + 1
        return new

    def _closed(self, old: Ints, new: Ints) -> Ints:
        """The rows that REDUCE pushes, from those on top and what ``_pushed_on`` makes of them."""
        outer = self._put_on(new, self.stacks.items(old[:, at.OPENED])[:, at.BELOW])
        new[:, at.OPENED], new[:, at.LABEL] = outer[:, at.OPENED], outer[:, at.LABEL]
        new[:, at.NUM_OPEN], new[:, at.DEPTH] = old[:, at.NUM_OPEN] - 1, old[:, at.NUM_OPEN]
        new[:, at.NUM_CONSECUTIVE], new[:, at.TOP] = 0, CONSTITUENT
        new[:, at.NUM_CHILDREN] = outer[:, at.NUM_CHILDREN] + 1
        return new

    def _scored(self, new: Candidates) -> Analyses:
        """Analyses with what may come next."""
        items, outputs = self.stacks.items(new.top), self.stacks.outputs(new.top)
        configuration = Configuration(
            num_open=items[:, at.NUM_OPEN],
            num_consecutive=items[:, at.NUM_CONSECUTIVE],
            top=items[:, at.TOP],
            in_word=items[:, at.IN_WORD] == 1,
            only_child=items[:, at.NUM_CHILDREN] == 1,
        )
        rule = self.weights.config.rule
        valid = spread(valid_actions(rule, configuration), rule, self.weights.num_labels)
        log_probs = self._action_log_probs(outputs, valid)
        return Analyses(**vars(new), items=items, outputs=outputs[: len(new)], log_probs=log_probs)

    @property
    def num_groups(self) -> int:
        """Of binary trees several; see ``groups_of_binary_trees``."""
        return num_binary_groups(self.weights.config.rule)

    def groups(self, tops: Ints) -> Ints:
        """The group of stacks with these tops: (n,)."""
        items = self.stacks.items(tops)
        return groups_of_binary_trees(items[:, at.NUM_NEEDED] + items[:, at.IN_WORD], self.num_groups)

    def towards_end(self, analyses: Analyses) -> Bools:
        """Mark the actions after which the sentence may end without another SHIFT: (n, A)."""
        return closing_actions(self, analyses)
