"""The networks that give an induced grammar its probabilities, and infer a latent vector from a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from treelm.corpora.vocabulary import Vocabulary
from treelm.models.pcfg.neural_config import NeuralPCFGConfig
from treelm.models.pcfg.products import Grammar, ProductRules, viterbi
from treelm.models.structures import UsedRule


class Residual(nn.Module):
    """Two layers beside a shortcut: relu(W2 relu(W1 x)) + x."""

    def __init__(self, size: int) -> None:
        """Allocate both layers."""
        super().__init__()
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, inputs: Tensor) -> Tensor:
        """Add what both layers make of the inputs to these."""
        found: Tensor = torch.relu(self.second(torch.relu(self.first(inputs)))) + inputs
        return found


def _deep(inputs: int, size: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, size), Residual(size), Residual(size), nn.Linear(size, outputs))


class TableOfRules(nn.Module):
    """p(A -> B C) = softmax over B, C of a linear layer of A's vector (Kim, Dyer & Rush 2019)."""

    def __init__(self, config: NeuralPCFGConfig) -> None:
        """Allocate the layer, with S^2 outputs."""
        super().__init__()
        self._num = config.num_nonterminals
        self.rules = nn.Linear(config.size + config.latent_size, (self._num + config.num_preterminals) ** 2)

    def forward(self, vectors: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Vectors of symbols (..., S, D) -> rules (..., N, S, S)."""
        size = vectors.shape[-2]
        logits = self.rules(vectors[..., : self._num, :]).to(dtype)
        return (logits.softmax(-1).unflatten(-1, (size, size)),)


class LowRankRules(nn.Module):
    """p(A -> B C) = sum over r of p(r | A) p(B | r) p(C | r), each by a layer of its own (Yang et al. 2021)."""

    def __init__(self, config: NeuralPCFGConfig) -> None:
        """Allocate the three networks."""
        super().__init__()
        self._num = config.num_nonterminals
        size, inputs = config.size, config.size + config.latent_size
        self.head, self.left, self.right = (
            nn.Sequential(nn.Linear(inputs, size), nn.ReLU(), nn.Linear(size, config.rank)) for _ in range(3)
        )

    def forward(self, vectors: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Vectors of symbols (..., S, D) -> heads (..., N, R), left and right factors (..., R, S)."""
        head = self.head(vectors[..., : self._num, :]).to(dtype).softmax(-1)
        left, right = (layer(vectors).to(dtype).transpose(-1, -2).softmax(-1) for layer in (self.left, self.right))
        return head, left, right


class SimpleRules(nn.Module):
    """p(A -> B C) = p(B | A) p(C | A), by products of vectors of parents, left and right children (Liu et al. 2023)."""

    def __init__(self, config: NeuralPCFGConfig) -> None:
        """Allocate a layer for each of the three."""
        super().__init__()
        self._num, self._size = config.num_nonterminals, config.size
        inputs = config.size + config.latent_size
        self.parent, self.left, self.right = (nn.Linear(inputs, config.size) for _ in range(3))

    def forward(self, vectors: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Vectors of symbols (..., S, D) -> left and right factors (..., N, S)."""
        own = vectors[..., : self._size]
        nonterminals = slice(0, self._num)
        parents = torch.relu(self.parent(vectors[..., nonterminals, :])) + own[..., nonterminals, :]
        left, right = (
            (parents @ (torch.relu(layer(vectors)) + own).transpose(-1, -2)).to(dtype).softmax(-1)
            for layer in (self.left, self.right)
        )
        return left, right


_RULES = {"dense": TableOfRules, "low-rank": LowRankRules, "simple": SimpleRules}


class GrammarNetwork(nn.Module):
    """Vectors of symbols, and what makes probabilities of them; a latent vector is appended to every one."""

    def __init__(self, config: NeuralPCFGConfig, num_words: int) -> None:
        """Draw vectors of symbols and matrices by Xavier's uniform distribution."""
        super().__init__()
        num, num_tags, size = config.num_nonterminals, config.num_preterminals, config.size
        self._num = num
        self.symbols = nn.Parameter(torch.empty(num + num_tags, size))
        self.top = nn.Parameter(torch.empty(1, size))
        inputs = size + config.latent_size
        self.root = _deep(inputs, size, num + num_tags)
        self.words = _deep(inputs, size, num_words)
        self.rules = _RULES[config.rules](config)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, latent: Tensor | None = None, dtype: torch.dtype | None = None) -> Grammar:
        """One grammar or, from latent vectors (B, Z), one of each; normalised in this type, else in that of weights."""
        dtype = dtype or self.symbols.dtype
        symbols: Tensor = self.symbols
        top: Tensor = self.top
        if latent is not None:
            symbols, top = (
                torch.cat([own.expand(len(latent), *own.shape), latent[:, None].expand(-1, len(own), -1)], 2)
                for own in (symbols, top)
            )
        return Grammar(
            root=self.root(top).to(dtype).softmax(-1).squeeze(-2),
            log_words=self.words(symbols[..., self._num :, :]).to(dtype).log_softmax(-1),
            rules=self.rules(symbols, dtype),
        )


class LatentEncoder(nn.Module):
    """q(latent | words), a normal distribution: an LSTM in both directions, maxima over words, a linear layer."""

    def __init__(self, config: NeuralPCFGConfig, num_words: int) -> None:
        """Draw the parameters by Xavier's uniform distribution."""
        super().__init__()
        hidden = config.encoder_hidden_size
        self.embedding = nn.Parameter(torch.empty(num_words, config.encoder_embedding_size))
        self.ahead, self.back = (nn.LSTM(config.encoder_embedding_size, hidden, batch_first=True) for _ in range(2))
        self.output = nn.Linear(2 * hidden, 2 * config.latent_size)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Sentences (B, n), filled up with any tokens -> means and log variances, (B, Z) each."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        is_own = (places < lengths[:, None])[..., None]
        reversed_tokens = tokens.gather(1, (lengths[:, None] - 1 - places).clamp_min(0))
        states = (self.ahead(self.embedding[tokens])[0], self.back(self.embedding[reversed_tokens])[0])
        highest = torch.cat([one.masked_fill(~is_own, -torch.inf).amax(1) for one in states], 1)
        mean, log_variance = self.output(highest).chunk(2, -1)
        return mean, log_variance


_NUM_WORDS = 3  # of a preterminal, to tell it by


def nonterminal_name(number: int) -> str:
    """How trees and rules call a nonterminal."""
    return f"NT{number + 1}"


def used_rules(sentences: Iterable[tuple[ProductRules, Sequence[int]]], vocabulary: Vocabulary) -> list[UsedRule]:
    """The rules of sentences, each with its grammar, the most used first; probabilities are of the first grammar."""
    counts: Counter[tuple[int, int, int]] = Counter()
    first: ProductRules | None = None
    for rules, words in sentences:
        first = first or rules
        spans = {(i, j): symbol for i, j, symbol in viterbi(rules, words)[1]}
        for (i, j), symbol in spans.items():
            if j - i > 1:
                k = next(k for k in range(i + 1, j) if (i, k) in spans and (k, j) in spans)
                counts[symbol, spans[i, k], spans[k, j]] += 1
    if first is None:
        return []
    rules, num = first, first.num_nonterminals

    def name(symbol: int) -> str:
        if symbol < num:
            return nonterminal_name(symbol)
        words = rules.words[symbol - num].argsort()[::-1][:_NUM_WORDS].tolist()
        return f"T{symbol - num + 1} ({', '.join(map(vocabulary.token, words))})"

    return [
        UsedRule(
            parent=name(parent),
            children=(name(left), name(right)),
            count=count,
            probability=float(rules.of_head[parent] @ (rules.of_left[:, left] * rules.of_right[:, right])),
        )
        for (parent, left, right), count in counts.most_common()
    ]
