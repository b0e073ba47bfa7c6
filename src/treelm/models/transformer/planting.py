"""Tree planting (Yoshida et al. 2024): one head's attention is taught how far the next word is from those before it.

With d(i, j) edges of the tree between words i and j, START a daughter of the root:

    t_ij = exp(-d(i, j)) / sum over j < i;   loss = sum over words i of KL(t_i || a_i)

a_i is the attention of the position that predicts word i, which has not seen it, over START and the words before it.
With several tokens a word, attention is summed over those that predict word i and over those of word j, and made to sum
to one.

Shapes: B sentences, T positions, W words of the longest sentence.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.batches import SentenceBatch
from treelm.models.layers.devices import to_device
from treelm.models.layers.gold_trees import trees_of, word_distances
from treelm.models.scores import Loss


def planted_targets(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> NDArray[np.float64]:
    """t (B, W, W + 1): of each word, shares of START and of the words before it; rows of padding are 0."""
    targets = np.zeros((len(batch), int(batch.num_words.max()), int(batch.num_words.max()) + 1))
    for row, (actions, ends) in enumerate(trees_of(batch, ends_word)):
        if len(actions):
            near = np.tril(np.exp(-word_distances(actions, ends).astype(np.float64)))
            targets[row, : len(near), : len(near) + 1] = near / near.sum(1, keepdims=True)
    return targets


def words_of_positions(batch: SentenceBatch, ends_word: NDArray[np.bool_], steps: int) -> NDArray[np.int64]:
    """(2, B, T): the number of the word that a position predicts, and of the one it reads (START is 0); -1: none."""
    found = np.full((2, len(batch), steps), -1, dtype=np.int64)
    found[1, :, 0] = 0
    for row in range(len(batch)):
        ends = ends_word[batch.tokens_of(row)]
        word = np.cumsum(np.append(0, ends[:-1])) if len(ends) else np.zeros(0, np.int64)
        found[0, row, : len(ends)] = word
        found[1, row, 1 : len(ends) + 1] = word + 1
    return found


def planting_loss(log_weights: Tensor, batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> Loss | None:
    """The loss of one head's log attention (B, T, T); None without a word of a tree that has another before it.

    The first word of a sentence has only START to look at, and no loss.
    """
    count = sum(max(0, int(ends.sum()) - 1) for actions, ends in trees_of(batch, ends_word) if len(actions))
    if not count:
        return None
    targets = to_device(planted_targets(batch, ends_word), log_weights.device)
    numbers = to_device(words_of_positions(batch, ends_word, log_weights.shape[1]), log_weights.device)
    num_words = torch.arange(targets.shape[2], device=log_weights.device)
    predicts, reads = (numbers[..., None] == num_words).double()  # (B, T, W + 1)
    attention = predicts[..., :-1].transpose(1, 2) @ log_weights.double().exp() @ reads  # (B, W, W + 1)
    seen = attention * (num_words <= num_words[:-1, None])
    tiny = torch.finfo(seen.dtype).tiny
    log_shares = seen.clamp(min=tiny).log() - seen.sum(2, keepdim=True).clamp(min=tiny).log()
    kept = targets[:, 1:]
    total = (torch.special.xlogy(kept, kept) - kept * log_shares[:, 1:]).sum()
    return Loss(sum=total, count=count)
