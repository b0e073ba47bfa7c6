"""What users ask of any model: perplexity, scores of targets, hidden states, sampled sentences, tables.

``LanguageModel`` inherits it. Of a system it asks nothing but that interface and ``_layer_states``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.encoding import encode_words
from treelm.corpora.tokens import check_have_words, words_of_each
from treelm.errors import InputError
from treelm.models.capabilities import numbered
from treelm.models.generation import Drawn, generate
from treelm.models.perplexity import Perplexity, perplexity

if TYPE_CHECKING:
    import pandas as pd

    from treelm.models.base import LanguageModel
    from treelm.models.states import IncrementalState

Sentences = Sequence[str | Sequence[str]]
Choose = Callable[[Sequence[Tensor]], Tensor]
"""A function that chooses one layer from all of them, the lowest first."""


class Usage:
    """Methods that are built on the interface of a model alone, the same for every system."""

    def perplexity(self, sentences: Sentences) -> Perplexity:
        """Perplexity per word of sentences, each by itself; the end of each sentence counts as one more word.

        The result is displayed as ``perplexity per word, with end of sentence: ≤ 38.21``; its ``value`` is the number.
        ``≤`` marks an upper bound, where a search finds a part of the probability only. Words that are not in the
        vocabulary count as unknown words, so models with different vocabularies cannot be compared. Raises
        ``InputError`` without sentences.
        """
        return perplexity(self._lm.score(sentences))

    def conditional_score(self, contexts: Sentences, targets: Sentences) -> NDArray[np.float64]:
        """log p of each target given its context, in nats: (n,).

        It is the sum over the words of the target, without the end of the sentence, as ``conditional_score`` of
        minicons (Misra 2022) is with ``reduction=lambda x: x.sum(0).item()``. A context without words is the beginning
        of a sentence. Where a search finds a part of the probability only, the result is a difference of two bounds,
        and so no bound itself.

        Raises ``InputError`` for a target without words, and unless there are as many contexts as targets.

        >>> import treelm
        >>> lm = treelm.load("ngram-gum-open")
        >>> lm.conditional_score(["The city"] * 2, ["is", "are"]).round(2).tolist()
        [-4.02, -6.25]
        """
        before, after = words_of_each(contexts), words_of_each(targets)
        if len(before) != len(after):
            found = f"{len(before)} contexts for {len(after)} targets"
            raise InputError(found, remedy="give one context for each target")
        check_have_words(after)
        scores = self._lm.score([[*context, *target] for context, target in zip(before, after, strict=True)])
        own = [score.word_of_token >= len(context) for score, context in zip(scores, before, strict=True)]
        return np.array([score.log_probs[:-1][words].sum() for score, words in zip(scores, own, strict=True)])

    def generate(
        self,
        num_sentences: int = 10,
        *,
        seed: int = 1,
        max_words: int = 60,
        temperature: float = 1.0,
        top_p: float = 1.0,
        trees: bool = False,
    ) -> list[Drawn]:
        """Sample sentences, as ``treelm generate`` does; the same seed gives the same sentences.

        Each result has ``words`` and, with ``trees``, the model's ``tree`` over them. A sentence that has not ended
        after ``max_words`` is cut there. ``temperature`` divides the log probabilities. With ``top_p`` below 1, each
        token is sampled from the most probable tokens that together have this probability (nucleus sampling, Holtzman
        et al. 2020).

        Raises ``InputError`` for values out of range, and with ``trees`` for a model that has none.
        """
        how: dict[str, Any] = {"max_words": max_words, "temperature": temperature, "top_p": top_p, "trees": trees}
        return list(generate(self._lm, num_sentences=num_sentences, seed=seed, **how))

    def surprisal_table(self, sentences: Sentences | pd.DataFrame, **settings: Any) -> pd.DataFrame:
        """A data frame with a row for each word: ``treelm.surprisal_table`` of this model alone.

        ``sentences`` are texts, lists of words, or a data frame with one word in each row. Surprisals are in bits.
        """
        import treelm  # the package knows where what stands above models is, and imports it when it is used

        return treelm.surprisal_table(self._lm, sentences, **settings)

    def hidden_states(self, sentences: Sentences, *, layer: int = -1) -> list[NDArray[np.float64]]:
        """The hidden state after each word: (num_words, size) for each sentence. It depends on no later word.

        Layers are numbered from 1, the lowest, or backwards from -1, the last. A word of several tokens has the state
        after its last token. Systems that build trees give the state at the top of the stack once the word is on it, in
        the most probable analysis so far: an RNNG and a shift-reduce parser that of the stack LSTM, a SOM that of the
        memory, and systems with attention (Transformer Grammars, pushdown layers) that of the word's position.

        Raises ``InputError`` for a sentence without words, for a model without hidden states (n-grams, grammars, chart
        parsers), and for a layer that does not exist.
        """
        words = words_of_each(sentences)
        check_have_words(words)
        with torch.no_grad():
            return self._hidden_states(words, partial(numbered, "layer", layer))

    def _hidden_states(self, sentences: Sequence[Sequence[str]], choose: Choose) -> list[NDArray[np.float64]]:
        """Implement ``hidden_states``. Here the sentences are read word by word.

        Systems that see all places of a sentence at once override this.
        """
        lm, found = self._lm, [list[NDArray[np.float64]]() for _ in sentences]
        batch, ends_word, state = encode_words(sentences, lm.vocabulary), lm.vocabulary.ends_word, None
        for tokens in zip_longest(*(batch.tokens_of(number).tolist() for number in range(len(sentences)))):
            state = lm._extend(lm._start(len(sentences)) if state is None else state, tokens)
            after_word = [number for number, token in enumerate(tokens) if token is not None and ends_word[token]]
            if after_word:
                states = choose(self._layer_states(state)).double().cpu().numpy()
                for number in after_word:
                    found[number].append(states[number])
        return [np.stack(own) for own in found]

    def _layer_states(self, state: IncrementalState) -> Sequence[Tensor]:
        """The hidden state (num_sentences, size) of each layer, the lowest first; the last predicts the next word."""
        raise InputError(f"{self._lm.system} has no hidden states", remedy="take a neural language model")

    @property
    def _lm(self) -> LanguageModel:
        return cast("LanguageModel", self)
