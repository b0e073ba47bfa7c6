"""The public code of pushdown layers (Murty et al. 2023): network, labels, tapes and updates.

Trees become binary as its own preparation makes them so: chains of one are one constituent, longer constituents branch
to the right. What its network is told of a sentence is computed by its own functions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from public_codes import Training, Update, import_public, stand_in
from torch import nn

from treelm.corpora.encoding import SentenceBatch
from treelm.models.layers.gold_trees import trees_of
from treelm.models.pushdown.network import Pushdown
from treelm.trees.transitions import from_actions

FOLDER = "Pushdown-Layers"
MAX_DEPTH = 50
"""Kinds of depths, as it has them unless told otherwise; longer constituents than its corpus has go beyond."""


def training(code: Path, ours: Pushdown, batches: Iterable[SentenceBatch]) -> Training:
    """Its network at the sizes of ours, with the settings of its command for BLLIP, and an update for each batch."""
    stand_in("datasets", "wandb", "plot")  # its loggers, the first of which calls home when it is imported
    utils, helpers = import_public(code, FOLDER, "training_utils"), import_public(code, FOLDER, "transformer_helpers")
    config, rate = ours.config, ours.config.dropout
    with redirect_stdout(sys.stderr):
        network = helpers.PushdownLM(  # what its create_lm does, which leaves its eight heads to every network
            len(ours.vocabulary) + 2,  # padding is 0, <eos> the last
            config.size,
            4,  # times the units: those of its feed-forward nets
            nhead=config.num_heads,
            num_encoder_layers=config.num_layers,
            use_stack_tape=True,
            recursive_layer_args={
                "rec_layers": [*range(config.num_layers)],
                "stack_pred_layer": config.num_layers,
                "attachment_decisions": True,
                "compose_keys_and_stack_info": True,
                "stack_type_vocab": MAX_DEPTH,
            },
            tied_embedding=True,
            embedding_init="xavier",
            scale_mode="opennmt",
            pos_embedding=lambda x, offset: x,
            dropout=rate,
            embedding_dropout=rate,
            output_dropout=rate,
        )
    num_parameters = sum(one.numel() for one in network.parameters())
    interface = helpers.create_model_interface(network.train())
    optimizer = utils.get_opt(1e-4, interface)
    update = partial(_update, interface, optimizer, utils.get_scheduler(optimizer, 300_000))
    return Training(num_parameters=num_parameters, updates=_updates(code, ours, batches, update))


def _updates(code: Path, ours: Pushdown, batches: Iterable[SentenceBatch], update: Any) -> Iterator[Update]:
    collate = import_public(code, FOLDER, "collate").VarLengthCollate(None)
    text = import_public(code, FOLDER, "data_utils.text_helpers")
    ends_word = np.asarray(ours.vocabulary.ends_word)
    for batch in batches:
        sentences = list[dict[str, Any]]()
        for row, (actions, _) in enumerate(trees_of(batch, ends_word)):
            tokens = batch.tokens_of(row)
            tree = binary_tree(actions, len(tokens))
            found = text.compute_attachment_labels_text(tree, text.flatten(tree, add_eos=True))
            labels, starts = found["attachment_labels"], found["cstart_info"]
            tape = text.compute_stack_tape(labels, starts, with_depth_info=True)
            sentence = {
                "in": torch.from_numpy(np.append(tokens, len(ours.vocabulary)) + 1),
                "in_len": len(tokens) + 1,
                "attachment_labels": torch.tensor(labels[1:]),
                "stack_tape": torch.from_numpy(tape).float().clamp(max=MAX_DEPTH - 1),
            }
            sentences.append(sentence)
        data = collate(sentences)
        filled = float(data["in_len"].sum() / data["in"].numel())
        yield Update(words=int(batch.num_words.sum()), run=partial(update, data), filled=filled)


def binary_tree(actions: NDArray[np.int64], num_words: int) -> Any:
    """The ``nltk.Tree`` of top-down actions, words numbered from 0, each under a label of its own; binary."""
    from nltk.tree import Tree

    labels = [str(number) for number in range(int(actions.max()))]
    tree = from_actions(actions, [str(place) for place in range(num_words)], labels).to_nltk()
    for position in tree.treepositions("leaves"):
        tree[position] = Tree("word", [tree[position]])
    tree.collapse_unary(collapsePOS=True, collapseRoot=True)
    tree.chomsky_normal_form()
    return tree


def _update(interface: Any, optimizer: Any, scheduler: Any, data: dict[str, Any]) -> float:
    """What its loop does with a batch, without adding gradients of several ones up."""
    interface.model.zero_grad()
    found = interface(data)
    loss = found["lm_out"].loss + found["attachment_loss"]
    loss.backward()
    nn.utils.clip_grad_norm_(interface.model.parameters(), 3)
    optimizer.step()
    scheduler.step()
    return float(loss.detach())
