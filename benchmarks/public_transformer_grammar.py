"""The public code of Transformer Grammars (Sartran et al. 2022), in JAX: network, chunks, masks and updates.

It reads sentences in chunks of a fixed length with a memory of the same. Each row of a batch goes on with the next
chunk of its sentence, or begins with the next sentence, so that batches are not those of ours. Masks are made by its
C++ code. Every update is that of its own training program, clipping and the norms that it logs included.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from public_codes import Training, Update, import_public, stand_in

from treelm.corpora.encoding import SentenceBatch
from treelm.models.layers.gold_trees import trees_of
from treelm.models.transformer_grammar.network import TransformerGrammar
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT

FOLDER = "transformer_grammars"
START, NUM_RESERVED = 1, 4


def training(
    code: Path, ours: TransformerGrammar, batches: Iterable[SentenceBatch], batch_size: int, chunk: int
) -> Training:
    """Its network at the sizes of ours, otherwise as its published configuration, and updates of chunks."""
    os.environ.update(NPROC="1", XLA_FLAGS="--xla_cpu_multi_thread_eigen=false")  # one thread, as ours has
    stand_in("tensorflow", "tensorflow.compat", "tensorflow.compat.v1", "tensorflow_datasets")  # its reader of files
    train: Any = import_public(code, FOLDER, "transformer_grammars.training.train")
    jax, num_words, num_labels = train.jax, len(ours.vocabulary), len(ours.labels)
    jax.lax.tie_in = lambda like, value: value  # as JAX had it in the end
    settings = import_public(code, FOLDER, "configs.config_tg").get_config()
    config, rate = ours.config, ours.config.dropout
    settings.model.update(d_model=config.size, num_layers=config.num_layers, num_heads=config.num_heads)
    settings.model.update(ffw_hidden_size=4 * config.size, sequence_length=chunk, memory_length=chunk)
    settings.model.update(embedding_dropout=rate, core_dropout=rate, core_output_dropout=rate)
    ranges = train.masking_utils.TokenTypeRanges.from_dictionary_metadata(
        num_reserved=NUM_RESERVED,
        num_terminals=num_words,
        num_opening_non_terminals=num_labels,
        num_closing_non_terminals=num_labels,
        extra_untyped_closing_non_terminal=False,
    )
    rules = train.common.build_maskrules(settings.model)
    ends_word = np.asarray(ours.vocabulary.ends_word)
    sentences = (
        numbers_of(actions, batch.tokens_of(row), num_words, num_labels)
        for batch in batches
        for row, (actions, _) in enumerate(trees_of(batch, ends_word))
    )
    chunks = train.preprocessing.get_chunks_from_dataset(sentences, rules, ranges, (1, batch_size), multithread=False)
    first = next(chunks)
    generator = jax.random.split(jax.random.PRNGKey(0))
    weights, memory = train._initialize_model(settings.model, rules, ranges, generator[:1], first)
    begin, _ = train._optimizer(settings.training.optimizer, 0.0)
    state = train.TrainingState(
        rng=generator[1:],
        step=train.jnp.zeros(1, dtype="int32"),
        params=weights,
        state=memory,
        opt_state=jax.pmap(begin)(weights),
    )
    compiled = jax.pmap(train._build_update(settings, rules, ranges), axis_name="i")
    num_parameters = sum(one.size for one in jax.tree_util.tree_leaves(weights))
    return Training(num_parameters=num_parameters, updates=_updates(jax, compiled, state, chunks, num_words))


def _updates(jax: Any, compiled: Any, state: Any, chunks: Iterator[Any], num_words: int) -> Iterator[Update]:
    def run(chunk: Any) -> float:
        nonlocal state
        state, found = jax.block_until_ready(compiled(state, chunk))
        return float(found["loss"][0])

    for chunk in chunks:
        is_word = (chunk.labels >= NUM_RESERVED) & (chunk.labels < NUM_RESERVED + num_words)
        filled = float((chunk.inputs > 0).mean())
        yield Update(words=int(is_word.sum()), run=partial(run, chunk), filled=filled)


def numbers_of(
    actions: NDArray[np.int64], tokens: NDArray[np.int64], num_words: int, num_labels: int
) -> NDArray[np.int32]:
    """START, words and both brackets of constituents, numbered as it does: reserved ones, words, opening, closing."""
    words, numbers, open_labels = iter(tokens.tolist()), [START], list[int]()
    for action in actions.tolist():
        if action == SHIFT:
            numbers.append(NUM_RESERVED + next(words))
        elif action == REDUCE:
            numbers.append(NUM_RESERVED + num_words + num_labels + open_labels.pop())
        else:
            open_labels.append(action - FIRST_NT)
            numbers.append(NUM_RESERVED + num_words + open_labels[-1])
    return np.array(numbers, dtype=np.int32)
