"""A grammar that is induced from sentences alone, its probabilities given by networks, behind the common interface."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import EncodedCorpus, encode_words
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.layers import chart
from treelm.models.layers.dropout import evaluating
from treelm.models.layers.precision import one_thread
from treelm.models.pcfg.decoding import choose_spans
from treelm.models.pcfg.inside import Grammar, cells_of, log_probs
from treelm.models.pcfg.interface import GrammarLM
from treelm.models.pcfg.networks import GrammarNetwork, LatentEncoder
from treelm.models.pcfg.neural_config import NeuralPCFGConfig
from treelm.models.pcfg.products import ProductRules, TableRules
from treelm.models.pcfg.rules import Array
from treelm.models.scores import Analysis, Loss, Losses
from treelm.trees.tree import Tree, from_spans

UNLABELLED = "X"  # the label of a span that no nonterminal is expected over
_MOST_CELLS = 40_000  # of sentences that are parsed together


class NeuralPCFG(GrammarLM):
    """A neural PCFG (Kim, Dyer & Rush 2019) or a compound one, with dense, low-rank or simple rules.

    It is trained on -log p(words), summed over all trees. A compound one is trained on a bound: the grammar of each
    sentence depends on a latent vector, drawn from a normal distribution, which an encoder infers from the whole
    sentence (its ELBO). As a language model it is a mixture of the grammars of ``num_draws`` vectors, drawn once: exact
    and causal, and another one than the bound is of.
    """

    system: ClassVar[str] = "neural-pcfg"
    predicts_labels: ClassVar[bool] = False

    def __init__(self, config: NeuralPCFGConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._config = config
        self.network = GrammarNetwork(config, len(vocabulary))
        self.encoder = LatentEncoder(config, len(vocabulary)) if config.latent_size else None
        if config.latent_size:
            self.register_buffer("draws", torch.randn(config.num_draws, config.latent_size))

    @property
    def config(self) -> NeuralPCFGConfig:
        """The sizes that it was built from."""
        return self._config

    def check_corpus(self, corpus: EncodedCorpus, *, trains: bool) -> None:
        """Raise ``InputError`` for a sentence without words: a grammar has no tree for it."""
        empty = np.flatnonzero(corpus.num_tokens == 0)
        if len(empty):
            found = "a sentence without words, which has no tree"
            raise InputError(found, where=corpus.name(int(empty[0])), remedy="set data.empty_lines = false")

    # Probabilities.

    def latents(self) -> list[Tensor | None]:
        """The latent vectors of the grammars that it is a mixture of, (1, Z) each; one None if it has none."""
        return [None] if self.encoder is None else [one[None] for one in self.get_buffer("draws")]

    def make_grammars(self) -> list[ProductRules]:
        """The grammars of the mixture, as the networks give them."""
        return [rules_of(self.network(latent, torch.float64)) for latent in self.latents()]

    def losses(self, batch: SentenceBatch) -> Losses:
        """Sums of nats. In evaluation, or without latent vectors: ``word``, -log p of words and ends.

        Of a compound PCFG in training: the two parts of the bound, ``reconstruction``, -log p(words | latent) for one
        latent vector drawn by the encoder, and ``divergence``, KL of its distribution from the prior. In evaluation the
        grammars are consistent, as in ``score``; training rewards grammars that are so by themselves.
        """
        tokens, lengths = (one.to(self.network.symbols.device) for one in padded(batch))
        num_decisions = len(batch.tokens) + len(batch)
        if self.training and self.encoder is not None:
            mean, log_variance = self.encoder(tokens, lengths)
            latent = mean + (log_variance / 2).exp() * torch.randn_like(mean)
            nats = -log_probs(self.network(latent), tokens, lengths).sum()
            divergence = (log_variance.exp() + mean**2 - log_variance - 1).sum() / 2
            terms = {
                "reconstruction": Loss(sum=nats, count=num_decisions),
                "divergence": Loss(sum=divergence, count=len(batch)),
            }
            total = nats + divergence
        else:
            each = torch.stack([log_probs(one, tokens, lengths) for one in map(self._shared, self.latents())])
            if not self.training:
                each = each - each.new_tensor(self.log_masses())[:, None]
            total = (math.log(len(each)) - each.logsumexp(0)).sum()
            terms = {"word": Loss(sum=total, count=num_decisions)}
        return Losses(terms=terms, total=total, num_words=int(batch.num_words.sum()), num_sentences=len(batch))

    def _shared(self, latent: Tensor | None) -> Grammar:
        """The grammar of one latent vector, for any number of sentences."""
        found: Grammar = self.network(latent)
        if latent is None:
            return found
        return Grammar(found.root[0], found.log_words[0], tuple(one[0] for one in found.rules))

    # Trees.

    def parse(self, sentences: Sequence[Sequence[str]]) -> list[Tree]:
        """The tree with the most spans expected to be right; of a compound PCFG, by the mean of its encoder."""
        if not sentences:
            return []
        batch = encode_words(sentences, self.vocabulary, needs_words=True)
        found: list[Tree | None] = [None] * len(sentences)
        with evaluating(self), one_thread():
            for rows, tokens, lengths in self._groups(batch):
                latent = None if self.encoder is None else self.encoder(tokens, lengths)[0]
                cells = cells_of(self.network(latent, torch.float64), tokens, lengths)
                spans = cells.down(torch.ones_like(cells.log_probs), spans=True).spans
                assert spans is not None, "they were asked for"
                chosen = chart.best_trees(spans.sum(-1), lengths)
                labels = spans.argmax(-1)
                for place, row in enumerate(rows):
                    own = chosen[place].nonzero().tolist()
                    names = [self._name(int(labels[place, i, j])) for i, j in own]
                    found[row] = _tree(sentences[row], own, names)
        return [tree for tree in found if tree is not None]

    def analyse(self, sentences: Sequence[Sequence[str]]) -> list[Analysis]:
        """Scores, and the trees of ``parse``."""
        pairs = zip(self.score(sentences), self.parse(sentences), strict=True)
        return [Analysis(score=score, tree=tree) for score, tree in pairs]

    def _groups(self, batch: SentenceBatch) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Sentences of similar length: their rows, tokens and lengths."""
        order = np.argsort(batch.num_words, kind="stable")
        start = 0
        while start < len(order):
            stop = start + 1
            while stop < len(order) and (stop + 1 - start) * int(batch.num_words[order[stop]] + 1) ** 2 <= _MOST_CELLS:
                stop += 1
            rows = order[start:stop].tolist()
            tokens, lengths = padded(batch, rows)
            device = self.network.symbols.device
            yield rows, tokens.to(device), lengths.to(device)
            start = stop

    def decode(self, words: Sequence[str], expected: Array) -> Tree:
        """The binary tree with the largest sum of expected spans, each labelled by its most probable nonterminal."""
        of_nonterminals = expected[..., : self.config.num_nonterminals]
        gains = of_nonterminals.sum(2)
        chosen = [span for span in choose_spans(gains) if span[1] - span[0] > 1]
        names = [self._name(int(of_nonterminals[span].argmax())) if gains[span] else UNLABELLED for span in chosen]
        return _tree(words, chosen, names)

    def _name(self, nonterminal: int) -> str:
        return f"NT{nonterminal + 1}"


def _tree(words: Sequence[str], spans: Sequence[Sequence[int]], names: Sequence[str]) -> Tree:
    """The tree of labelled spans of two words or more; one word has a constituent of its own."""
    wide = [(i, j, (name,)) for (i, j), name in zip(spans, names, strict=True) if j - i > 1]
    return from_spans(words, wide or [(0, len(words), (UNLABELLED,))])


def rules_of(grammar: Grammar) -> ProductRules:
    """A grammar, of one latent vector or none, as it is read word by word."""
    root, words, *rules = (
        one.detach().cpu().double().numpy() for one in (grammar.root, grammar.log_words.exp(), *grammar.rules)
    )
    if root.ndim == 2:
        root, words, *rules = (one[0] for one in (root, words, *rules))
    if len(rules) == 1:
        return TableRules.of(root, rules[0], words)
    head = np.eye(len(rules[0])) if len(rules) == 2 else rules[0]
    return ProductRules(root=root, words=words, of_head=head, of_left=rules[-2], of_right=rules[-1])


def padded(batch: SentenceBatch, rows: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
    """Tokens of sentences (B, n), the shorter ones filled up with 0, and their lengths (B,)."""
    chosen = np.arange(len(batch)) if rows is None else np.asarray(rows, np.int64)
    starts = batch.token_offsets[chosen]
    lengths = batch.token_offsets[chosen + 1] - starts
    if not lengths.all():
        raise InputError("a sentence without words", where=batch.names[int(lengths.argmin())], remedy="leave it out")
    places = np.arange(lengths.max())
    is_own = places < lengths[:, None]
    tokens = np.where(is_own, batch.tokens[np.minimum(starts[:, None] + places, len(batch.tokens) - 1)], 0)
    return torch.from_numpy(tokens), torch.from_numpy(lengths)
