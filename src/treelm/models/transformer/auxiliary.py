"""Second losses from trees: TreeReg and tree planting.

TreeReg (Nandi, Manning & Murty 2024) makes the state at the end of a constituent independent of what precedes it. For
the hidden states h of a layer, without that of the start, and a span of tokens a to b, both included:

    SCIN(a, b) = |h_b - (h_b . u) u|,  u = h_{a-1} / |h_{a-1}|;   0 if a is the first token or stands beyond the end
    score(a, k, b) = SCIN(a, k) + SCIN(k + 1, b) + SCIN(k + 1, k + 1) + SCIN(b + 1, b + 1)
    loss of a sentence = mean over binary constituents of -log softmax over k of score(a, k, b), at their gold split

The last term of the score is the same for all k, so it is left out here: neither losses nor trees look beyond b.

Tree planting (Yoshida et al. 2024) trains the attention of one head to be larger for words that are close to the next
word in the tree. With d(i, j) edges of the tree between words i and j, where START is a daughter of the root:

    t_ij = exp(-d(i, j)) / sum over j < i;   loss = sum over words i of KL(t_i || a_i)

a_i is the attention of the position that predicts word i, which has not seen it, over START and the words before it.
With several tokens a word, attention is summed over those that predict word i and over those of word j, and made to sum
to one.

Shapes: B sentences, n tokens, d units, m constituents, K splits; T positions, W words of the longest sentence.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.encoding import SentenceBatch
from treelm.models.layers.devices import to_device
from treelm.models.layers.gold_trees import binary_splits, trees_of, word_distances
from treelm.models.scores import Loss
from treelm.trees.distances import tree_from_splits
from treelm.trees.tree import Tree


def scin_chart(states: Tensor) -> Tensor:
    """SCIN of all spans (B, n, n), from hidden states (B, n, d), by one product of all pairs.

    |h_b - (h_b . u) u|^2 = |h_b|^2 - (h_b . h_{a-1})^2 / |h_{a-1}|^2. There is no gradient where the difference is lost
    in rounding. A state of zeros, which dropout may leave, has no direction, and nothing is subtracted.
    """
    products = states @ states.transpose(1, 2)
    squares = products.diagonal(dim1=1, dim2=2)
    tiny = torch.finfo(states.dtype)
    along = products[:, :-1] ** 2 / squares[:, :-1, None].clamp(min=tiny.tiny**0.5)  # so that 1 / it can be multiplied
    least = (squares.detach() * tiny.eps).clamp(min=tiny.tiny)
    inner = torch.maximum(squares[:, None] - along, least[:, None]).sqrt()
    return torch.cat([torch.zeros_like(products[:, :1]), inner], 1)


def split_scores(chart: Tensor, a: Tensor, k: Tensor, b: Tensor, sentence: Tensor) -> Tensor:
    """score(a, k, b) without its last term: (...). ``chart`` (B, n, n) is SCIN, the other arguments have one shape."""
    return chart[sentence, a, k] + chart[sentence, k + 1, b] + chart[sentence, k + 1, k + 1]


def treereg_loss(states: Tensor, batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> Loss | None:
    """The loss of a batch from hidden states (B, n, d) of its tokens; None if no constituent has two possible splits.

    The mean over a sentence's constituents is multiplied with the number of its targets. So parts of a batch add up,
    and the term has the same weight, relative to that of words, as with means over targets.
    """
    rows, weights, count = list[tuple[int, int, int, int, int]](), list[float](), 0
    splits = list[NDArray[np.int64]]()
    for sentence, (actions, ends) in enumerate(trees_of(batch, ends_word)):
        word_ends = np.flatnonzero(ends)
        found = []
        for a, b, gold in binary_splits(actions, ends):
            possible = word_ends[(word_ends >= a) & (word_ends < b)]
            if len(possible) > 1:
                found.append((sentence, a, b, int(np.searchsorted(possible, gold)), len(possible)))
                splits.append(possible)
        rows += found
        weights += [(len(ends) + 1) / len(found)] * len(found) if found else []
        count += len(ends) + 1 if found else 0
    if not rows:
        return None
    width = max(map(len, splits))
    packed = np.zeros((len(rows), 5 + width), dtype=np.int64)
    packed[:, :5] = rows
    for row, possible in zip(packed[:, 5:], splits, strict=True):
        row[: len(possible)], row[len(possible) :] = possible, possible[0]
    moved = to_device(packed, states.device)
    (sentence_of, a_of, b_of, gold_of, number), k = moved[:, :5].T, moved[:, 5:]
    scores = split_scores(scin_chart(states), a_of[:, None], k, b_of[:, None], sentence_of[:, None])
    hidden = torch.arange(width, device=states.device) >= number[:, None]
    log_probs = scores.masked_fill(hidden, -torch.inf).log_softmax(1).gather(1, gold_of[:, None])[:, 0]
    total = -(log_probs.double() * to_device(np.array(weights), states.device)).sum()
    return Loss(sum=total, count=count)


def greedy_tree(words: tuple[str, ...], chart: NDArray[np.float64], ends_word: NDArray[np.bool_]) -> Tree:
    """The binary tree that splits from the top where the score is highest, at the leftmost of equal scores.

    ``chart`` (n, n) is SCIN of the tokens; ``ends_word`` (n,) marks those that end words.
    """
    last = np.flatnonzero(ends_word)
    begin = np.append(0, last + 1)

    def split(start: int, end: int) -> int:
        k = last[start : end - 1]
        scores = chart[begin[start], k] + chart[k + 1, last[end - 1]] + chart[k + 1, k + 1]
        return start + 1 + int(scores.argmax())

    return tree_from_splits(words, split)


def planted_targets(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The targets t (B, W, W + 1) of each word, over START and the words; 0 for later words and for padding."""
    targets = np.zeros((len(batch), int(batch.num_words.max()), int(batch.num_words.max()) + 1))
    for row, (actions, ends) in enumerate(trees_of(batch, ends_word)):
        if len(actions):
            near = np.tril(np.exp(-word_distances(actions, ends).astype(np.float64)))
            targets[row, : len(near), : len(near) + 1] = near / near.sum(1, keepdims=True)
    return targets


def words_of_positions(batch: SentenceBatch, ends_word: NDArray[np.bool_], steps: int) -> NDArray[np.int64]:
    """The word that each position predicts, and the word that it reads, where START is 0; -1 for none: (2, B, T)."""
    found = np.full((2, len(batch), steps), -1, dtype=np.int64)
    found[1, :, 0] = 0
    for row in range(len(batch)):
        ends = ends_word[batch.tokens_of(row)]
        word = np.cumsum(np.append(0, ends[:-1])) if len(ends) else np.zeros(0, np.int64)
        found[0, row, : len(ends)] = word
        found[1, row, 1 : len(ends) + 1] = word + 1
    return found


def planting_loss(log_weights: Tensor, batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> Loss | None:
    """The loss of one head's log attention (B, T, T); None if no word of a tree has another one before it.

    The first word of a sentence has no loss, as it can look at START only.
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
