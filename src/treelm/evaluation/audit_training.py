"""Audit of the training loss: checks that the network, in training mode without dropout, predicts from the past alone.

A network that is causal in evaluation need not be in training: batch normalisation takes its statistics over all steps
and rows of a batch, so that what is learnt at one place depends on later words and on other sentences. Scores are not
affected, but the training loss is not a negative log likelihood then.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from treelm.corpora.encoding import encode_words
from treelm.errors import InputError
from treelm.evaluation.audit import AuditReport, Change, Check, make_check
from treelm.models.base import LanguageModel
from treelm.models.layers.dropout import dropout_off
from treelm.models.layers.precision import DECIMALS
from treelm.models.streams import StreamLM

Sentences = Sequence[Sequence[str]]
FloatArray = NDArray[np.float64]
Pool = dict[tuple[int, ...], str]
"""Words by their tokens: all different to the model."""

NUM_CHECKS = 2
EXPLANATION = (
    "a training loss that sees later words or other sentences is not a negative log likelihood; scores, which are "
    "computed in evaluation mode, are not concerned (treelm audit without --training-mode)"
)


def audit_training(
    model: LanguageModel,
    sentences: Sentences,
    *,
    seed: int = 1,
    num_cuts: int = 3,
    on_check: Callable[[], None] = lambda: None,
) -> AuditReport:
    """Check that log p in training mode, without dropout, depends on earlier words of the same sentence only.

    All sentences are read in one batch, in float64; words after a cut, or other sentences, are replaced by as many
    others. The model itself is not changed. ``on_check`` is called after each of the ``NUM_CHECKS``. Raises
    ``InputError`` without words, for words that are all the same to the model, and for systems other than streams.
    """
    if not isinstance(model, StreamLM):
        found = f"the training loss of {model.system} cannot be audited"
        raise InputError(found, remedy="audit it in evaluation mode, or take a system that reads streams, such as prpn")
    if not sentences or not all(sentences):
        raise InputError("no words to audit with", remedy="give at least one sentence, none of them empty")
    generator = random.Random(seed)
    pool = _distinct_words(model, sentences)
    causality = _causality(model, sentences, pool, generator, num_cuts)
    on_check()
    others = _other_sentences(model, sentences, pool, generator)
    on_check()
    return AuditReport(system=model.system, num_sentences=len(sentences), seed=seed, checks=(causality, others))


@torch.no_grad()
def training_log_probs(model: StreamLM, sentences: Sentences) -> list[FloatArray]:
    """log p of every token and end, in nats, by a float64 copy of the network in training mode without dropout."""
    network = copy.deepcopy(model.exact()).train()
    batch = encode_words(sentences, model.vocabulary)
    inputs, targets, mask = network.pad(batch)
    with dropout_off(network):
        outputs = network.forward(inputs, network.init_state(len(sentences)), mask=None if mask.all() else mask).outputs
    log_probs = network.target_log_probs(outputs, targets).cpu().numpy().round(DECIMALS)
    lengths = np.diff(batch.token_offsets)
    return [log_probs[: length + 1, row] for row, length in enumerate(lengths.tolist())]


def _causality(model: StreamLM, sentences: Sentences, pool: Pool, generator: random.Random, num_cuts: int) -> Check:
    """Change what follows a cut in one sentence; what stands before it must keep its log p."""
    original = training_log_probs(model, sentences)
    changes = []
    for row, words in enumerate(sentences):
        for cut in sorted(generator.sample(range(1, len(words) + 1), min(num_cuts, len(words)))):
            other = [*words[:cut], *_others(model, words[cut:], pool, generator)]
            changed = training_log_probs(model, [*sentences[:row], other, *sentences[row + 1 :]])
            num_tokens = len(encode_words([words[:cut]], model.vocabulary).tokens)
            where = f"sentence {row + 1} with other words after word {cut}"
            changes.append(_change(original[row][:num_tokens], changed[row][:num_tokens], where))
    return make_check("causality of the training loss", changes, 0.0, "nats", EXPLANATION)


def _other_sentences(model: StreamLM, sentences: Sentences, pool: Pool, generator: random.Random) -> Check:
    """Change all sentences but one; it must keep its log p."""
    original = training_log_probs(model, sentences)
    changes = []
    for row, words in enumerate(sentences):
        others = [words if i == row else _others(model, one, pool, generator) for i, one in enumerate(sentences)]
        changed = training_log_probs(model, others)
        changes.append(_change(original[row], changed[row], f"sentence {row + 1} among other sentences"))
    return make_check("batch invariance of the training loss", changes, 0.0, "nats", EXPLANATION)


def _distinct_words(model: StreamLM, sentences: Sentences) -> Pool:
    words = sorted({word for words in sentences for word in words})
    pool = {_tokens(model, word): word for word in words}
    if len(pool) < 2:
        raise InputError("all words look the same to this model", remedy="audit with words that are in its vocabulary")
    return pool


def _tokens(model: StreamLM, word: str) -> tuple[int, ...]:
    return tuple(model.vocabulary.encode([word]).ids.tolist())


def _others(model: StreamLM, words: Sequence[str], pool: Pool, generator: random.Random) -> list[str]:
    spelled = [_tokens(model, word) for word in words]
    return [generator.choice([other for tokens, other in pool.items() if tokens != own]) for own in spelled]


def _change(one: FloatArray, other: FloatArray, where: str) -> Change:
    return Change(float(np.abs(one - other).max(initial=0.0)), where)
