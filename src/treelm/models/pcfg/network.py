"""A grammar that is induced from sentences alone: the networks that compute its probabilities, its losses and trees.

The plain form is ``tests/models/pcfg/plain.py``. Shapes: B sentences of n words, N nonterminals, T preterminals,
S = N + T symbols, V words, Z size of a latent vector.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from treelm.corpora.encoding import EncodedCorpus, SentenceBatch, encode_words
from treelm.corpora.tokens import words_of_each
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models import capabilities
from treelm.models.layers import chart
from treelm.models.layers.dropout import evaluating
from treelm.models.layers.precision import DECIMALS, lstm_states, one_thread
from treelm.models.pcfg.config import NeuralPCFGConfig
from treelm.models.pcfg.interface import GrammarLM
from treelm.models.pcfg.kernels import cells_of, log_probs, prefix_log_probs
from treelm.models.pcfg.prefixes import choose_spans
from treelm.models.pcfg.products import Grammar, ProductRules, rules_of, viterbi
from treelm.models.pcfg.rules import Array
from treelm.models.scores import Loss, Losses, SentenceScore
from treelm.models.structures import UsedRule
from treelm.trees.tree import Tree, from_spans


class Residual(nn.Module):
    """Two layers with a residual connection: relu(W2 relu(W1 x)) + x."""

    def __init__(self, size: int) -> None:
        """Draw the weights as linear layers do."""
        super().__init__()
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs (..., D) -> outputs (..., D)."""
        found: Tensor = torch.relu(self.second(torch.relu(self.first(inputs)))) + inputs
        return found


def _deep(inputs: int, size: int, outputs: int) -> nn.Sequential:
    """The network over vectors of symbols: a linear layer, two residual blocks, a linear layer."""
    return nn.Sequential(nn.Linear(inputs, size), Residual(size), Residual(size), nn.Linear(size, outputs))


class TableOfRules(nn.Module):
    """p(A -> B C) = softmax over B, C of a linear layer of A's vector (Kim, Dyer & Rush 2019)."""

    def __init__(self, config: NeuralPCFGConfig) -> None:
        """Make the layer, which has S^2 outputs."""
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
        """Make a network of two layers for each of the three factors."""
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
        """Make a layer for parents, left children and right children each."""
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
    """Vectors of symbols, and the networks that map them to probabilities.

    In a compound PCFG a latent vector is appended to each vector of a symbol.
    """

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
        """One grammar or, with latent vectors (B, Z), one for each; softmaxes are computed in ``dtype``, if given."""
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
        """Sentences (B, n), of which shorter ones are filled up with any tokens -> means and log variances (B, Z)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        is_own = (places < lengths[:, None])[..., None]
        reversed_tokens = tokens.gather(1, (lengths[:, None] - 1 - places).clamp_min(0))
        ahead, back = self.embedding[tokens], self.embedding[reversed_tokens]
        states = (lstm_states(self.ahead, ahead), lstm_states(self.back, back))
        highest = torch.cat([one.masked_fill(~is_own, -torch.inf).amax(1) for one in states], 1)
        mean, log_variance = self.output(highest).chunk(2, -1)
        return mean, log_variance


_NUM_WORDS = 3  # most probable words in the name of a preterminal


def nonterminal_name(number: int) -> str:
    """The label of a nonterminal in trees and rules."""
    return f"NT{number + 1}"


UNLABELLED = "X"  # the label of a span that no nonterminal is expected over
_MOST_CELLS = 40_000  # of sentences that are parsed together


class NeuralPCFG(GrammarLM[ProductRules], capabilities.Grammar, capabilities.ChecksCorpus):
    """A neural PCFG (Kim, Dyer & Rush 2019) or a compound one, with dense, low-rank or simple rules.

    It is trained on -log p(words), summed over all trees. A compound PCFG is trained on a bound (ELBO): the grammar of
    each sentence depends on a latent vector from a normal distribution, which an encoder infers from the sentence. As a
    language model it is a mixture of the grammars of ``num_draws`` vectors, which are drawn once. That is exact
    and causal, but not the model whose probability is bounded in training.
    """

    system: ClassVar[str] = "neural-pcfg"
    config: NeuralPCFGConfig
    predicts_labels: ClassVar[bool] = False
    runtime_settings: ClassVar[tuple[str, ...]] = ("tree_builder",)
    tree_builders: ClassVar[Mapping[str, str]] = {
        "mbr": "trees have the most spans that are expected to be right (minimum Bayes risk)",
        "viterbi": "trees are the most probable ones, their labels included (Viterbi)",
    }
    tree_builder: str | None = "mbr"

    def __init__(self, config: NeuralPCFGConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        self.network = GrammarNetwork(config, len(vocabulary))
        self.encoder = LatentEncoder(config, len(vocabulary)) if config.latent_size else None
        if config.latent_size:
            self.register_buffer("draws", torch.randn(config.num_draws, config.latent_size))

    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Raise ``InputError`` for a sentence without words: a grammar has no tree for it."""
        empty = np.flatnonzero(corpus.num_tokens == 0)
        if len(empty):
            found = "a sentence without words, which has no tree"
            raise InputError(found, where=corpus.name(int(empty[0])), remedy="give data.empty_lines = false")

    # Probabilities.

    def latents(self) -> list[Tensor | None]:
        """The latent vector of each grammar of the mixture, (1, Z); a single None without latent vectors."""
        return [None] if self.encoder is None else [one[None] for one in self.get_buffer("draws")]

    def make_grammars(self) -> list[ProductRules]:
        """The grammars of the mixture, from the networks."""
        return [rules_of(self._shared(latent, torch.float64)) for latent in self.latents()]

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sums of nats: the term ``word``, -log p of words and ends or, for a compound PCFG in training, the bound.

        The bound has the terms ``reconstruction``, -log p(words | latent vector) for one vector drawn from the
        encoder's distribution, and ``divergence``, KL of this distribution from the prior. In evaluation the grammars
        are conditioned on finite trees, as in ``score``; in training they are not, which favours grammars without
        infinite trees.
        """
        tokens, lengths = (one.to(self.network.symbols.device) for one in padded(batch))
        num_decisions = len(batch.tokens) + len(batch)
        if self.training and self.encoder is not None:
            mean, log_variance = self.encoder(tokens, lengths)
            latent = mean + (log_variance / 2).exp() * torch.randn_like(mean)
            nats = -self._log_probs(latent, tokens, lengths).sum()
            divergence = (log_variance.exp() + mean**2 - log_variance - 1).sum() / 2
            terms = {
                "reconstruction": Loss(sum=nats, count=num_decisions),
                "divergence": Loss(sum=divergence, count=len(batch)),
            }
            return Losses.of(batch, terms)
        each = torch.stack([self._log_probs(latent, tokens, lengths) for latent in self.latents()])
        if not self.training:
            each = each - each.new_tensor(self.log_masses())[:, None]
        return Losses.of(batch, {"word": Loss(sum=-log_mean_exp(each).sum(), count=num_decisions)})

    def _log_probs(self, latent: Tensor | None, tokens: Tensor, lengths: Tensor) -> Tensor:
        """log p(words) (B,) by the grammar of one latent vector or none, or of one vector for each sentence.

        If a probability is too small for float32, as may be that of a sentence of one word, it is computed in float64.
        """
        for dtype in (None, torch.float64):
            grammar = self._shared(latent, dtype)
            found = log_probs(grammar, tokens, lengths)
            if not torch.isneginf(found).any():
                break
        return found

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        if not sentences:
            return []
        batch, grammars = encode_words(sentences, self.vocabulary, needs_words=True), self.grammars()
        found: list[SentenceScore | None] = [None] * len(sentences)
        with torch.no_grad(), one_thread():
            for rows, tokens, lengths in groups(batch):
                pairs = [prefix_log_probs(one, tokens, lengths) for one in grammars]
                prefixes, wholes = (log_mean_exp(torch.stack(each)) for each in zip(*pairs, strict=True))
                for row, length, prefix, whole in zip(rows, lengths.tolist(), prefixes, wholes, strict=True):
                    log_probs = torch.cat([prefix[: length + 1], whole[None]]).diff().numpy().round(DECIMALS)
                    found[row] = SentenceScore(
                        log_probs=log_probs, word_of_token=np.arange(length), is_lower_bound=False
                    )
        return [score for score in found if score is not None]

    def _shared(self, latent: Tensor | None, dtype: torch.dtype | None = None) -> Grammar:
        """The grammar of one latent vector or none, which all sentences share; with several vectors one for each."""
        found: Grammar = self.network(latent, dtype)
        return found.of(0) if latent is not None and len(latent) == 1 else found

    # Trees.

    def _parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The tree with the most spans expected to be right, or the most probable one (``tree_builder``).

        The grammar of a compound PCFG is that of the mean of the encoder's distribution for the sentence.
        """
        if not sentences:
            return []
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        found: list[Tree | None] = [None] * len(sentences)
        with evaluating(self), one_thread():
            for rows, *tensors in groups(batch):
                tokens, lengths = (one.to(self.network.symbols.device) for one in tensors)
                grammar = self._inferred(tokens, lengths)
                trees: Iterator[list[tuple[int, int, int]]]
                if self.tree_builder == "viterbi":
                    trees = (viterbi(rules, words)[1] for rules, words in _read_with(grammar, tokens, lengths))
                else:
                    trees = _most_expected(grammar, tokens, lengths)
                for row, spans in zip(rows, trees, strict=True):
                    found[row] = self._tree(sentences[row], spans)
        return [tree for tree in found if tree is not None]

    def _inferred(self, tokens: Tensor, lengths: Tensor) -> Grammar:
        """The grammar or, for a compound PCFG, that of each sentence by the mean of the encoder's distribution."""
        latent = None if self.encoder is None else self.encoder(tokens, lengths)[0]
        found: Grammar = self.network(latent, torch.float64)
        return found

    def used_rules(self, sentences: Sequence[Sequence[str]]) -> list[UsedRule]:
        """The rules of the most probable trees, the most frequent first; a compound PCFG has a grammar for each."""
        batch = encode_words(words_of_each(sentences), self.vocabulary, needs_words=True)
        counts: Counter[tuple[int, int, int]] = Counter()
        first: ProductRules | None = None  # whose words and probabilities are named
        with evaluating(self), one_thread():
            for _, *tensors in groups(batch):
                for rules, words in _read_with(self._inferred(*tensors), *tensors):
                    first = first or rules
                    spans = {(i, j): symbol for i, j, symbol in viterbi(rules, words)[1]}
                    for (i, j), symbol in spans.items():
                        if j - i > 1:
                            k = next(k for k in range(i + 1, j) if (i, k) in spans and (k, j) in spans)
                            counts[symbol, spans[i, k], spans[k, j]] += 1
        return [
            UsedRule(
                parent=nonterminal_name(parent),
                children=(self._symbol_name(first, left), self._symbol_name(first, right)),
                count=count,
                probability=float(first.of_head[parent] @ (first.of_left[:, left] * first.of_right[:, right])),
            )
            for (parent, left, right), count in counts.most_common()
            if first is not None
        ]

    def _symbol_name(self, rules: ProductRules, symbol: int) -> str:
        """The name of a nonterminal, or of a preterminal with its most probable words."""
        if symbol < rules.num_nonterminals:
            return nonterminal_name(symbol)
        number = symbol - rules.num_nonterminals
        words = rules.words[number].argsort()[::-1][:_NUM_WORDS].tolist()
        return f"T{number + 1} ({', '.join(map(self.vocabulary.shown, words))})"

    def decode(self, words: Sequence[str], expected: Array) -> Tree:
        """The binary tree with the largest sum of expected spans, each labelled by its most probable nonterminal."""
        of_nonterminals = expected[..., : self.config.num_nonterminals]
        gains = of_nonterminals.sum(2)
        numbers = np.where(gains > 0, of_nonterminals.argmax(2), -1)
        return self._tree(words, [(i, j, int(numbers[i, j])) for i, j in choose_spans(gains)])

    def _tree(self, words: Sequence[str], spans: Sequence[tuple[int, int, int]]) -> Tree:
        """The tree of spans with their nonterminals, -1 for none; those of single words are left out."""
        wide = [
            (i, j, (nonterminal_name(number) if number >= 0 else UNLABELLED,)) for i, j, number in spans if j - i > 1
        ]
        return from_spans(words, wide or [(0, len(words), (UNLABELLED,))])


def _most_expected(grammar: Grammar, tokens: Tensor, lengths: Tensor) -> Iterator[list[tuple[int, int, int]]]:
    """The spans of minimum Bayes risk of each sentence (Goodman 1996), each with its most probable nonterminal."""
    cells = cells_of(grammar, tokens, lengths)
    spans = cells.down(torch.ones_like(cells.log_probs), spans=True).spans
    assert spans is not None, "they were asked for"
    labels = spans.argmax(-1)
    for chosen, own in zip(chart.best_trees(spans.sum(-1), lengths), labels, strict=True):
        yield [(i, j, int(own[i, j])) for i, j in chosen.nonzero().tolist()]


def _read_with(grammar: Grammar, tokens: Tensor, lengths: Tensor) -> Iterator[tuple[ProductRules, list[int]]]:
    """For each sentence its rules, and its tokens."""
    shared = None if grammar.is_of_each else rules_of(grammar)
    for row, length in enumerate(lengths.tolist()):
        yield shared or rules_of(grammar.of(row)), tokens[row, :length].tolist()


def log_mean_exp(of_grammars: Tensor) -> Tensor:
    """log of the mean over grammars, the first dimension, of probabilities that are given as logs."""
    return of_grammars.logsumexp(0) - math.log(len(of_grammars))


def groups(batch: SentenceBatch) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Groups of sentences of similar length: their rows, and the tokens and lengths that ``padded`` returns."""
    order = np.argsort(batch.num_words, kind="stable")
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * int(batch.num_words[order[stop]] + 1) ** 2 <= _MOST_CELLS:
            stop += 1
        rows = order[start:stop].tolist()
        yield rows, *padded(batch, rows)
        start = stop


def padded(batch: SentenceBatch, rows: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
    """The tokens of sentences (B, n), of which shorter ones are filled up with 0, and their lengths (B,).

    Raises ``InputError`` for a sentence without words.
    """
    chosen = np.arange(len(batch)) if rows is None else np.asarray(rows, np.int64)
    starts = batch.token_offsets[chosen]
    lengths = batch.token_offsets[chosen + 1] - starts
    if not lengths.all():
        raise InputError("a sentence without words", where=batch.names[int(lengths.argmin())], remedy="leave it out")
    places = np.arange(lengths.max())
    is_own = places < lengths[:, None]
    tokens = np.where(is_own, batch.tokens[np.minimum(starts[:, None] + places, len(batch.tokens) - 1)], 0)
    return torch.from_numpy(tokens), torch.from_numpy(lengths)
