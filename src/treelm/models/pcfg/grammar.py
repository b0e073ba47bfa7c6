"""The probabilities of a grammar as tensors, of one grammar or of one for every sentence."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Grammar(NamedTuple):
    """The probabilities of one grammar or, with a first dimension B more, of one for every sentence of a batch."""

    root: Tensor  # (S,) p(symbol at the top): N nonterminals, then T preterminals
    log_words: Tensor  # (T, V) log p(word | preterminal)
    rules: tuple[Tensor, ...]
    """All rules (N, S, S); or left and right factors, (N, S) each; or heads (N, R) and factors (R, S)."""

    @property
    def num_nonterminals(self) -> int:
        """N."""
        return self.root.shape[-1] - self.log_words.shape[-2]

    @property
    def is_of_each(self) -> bool:
        """Whether there is one for every sentence."""
        return self.root.dim() == 2

    def of(self, row: int) -> Grammar:
        """The grammar of one sentence."""
        return Grammar(self.root[row], self.log_words[row], tuple(one[row] for one in self.rules))

    def emissions(self, tokens: Tensor) -> Tensor:
        """Log p(word | preterminal) of tokens (B, n): (B, n, T)."""
        if not self.is_of_each:
            return self.log_words.T[tokens]
        places = tokens[:, None].expand(-1, self.log_words.shape[1], -1)
        return self.log_words.gather(2, places).transpose(1, 2)
