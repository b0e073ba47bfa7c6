"""Every system at a small size: the one table of configs that all tests over systems read.

A new system adds one line under its own name; the conformance suite (``tests/test_conformance.py``), the tests of bits,
of several processes, of other devices and of the benchmarks then run on it unasked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.training.treebanks import write_treebank
from treelm.models import system_class
from treelm.models.capabilities import Counted
from treelm.training.prepare import Setup, set_up
from treelm.training.recipe import Recipe, build_recipe


@dataclass(frozen=True, kw_only=True)
class Small:
    """A recipe at a small size, and what follows from it that cannot be asked of the network."""

    system: str
    model: Mapping[str, Any] = field(default_factory=dict)  # of [model]
    training: Mapping[str, Any] = field(default_factory=dict)  # of [training]
    vocabulary: Mapping[str, Any] = field(default_factory=dict)  # of [vocabulary]
    whole_words: bool = False  # whether its tokens must be words
    learns_from_trees: bool = False  # whether its losses need gold trees
    without_gradient: tuple[str, ...] = ()  # parameters that no loss reaches, by name; say why in a comment

    @property
    def is_estimated(self) -> bool:
        """Whether it is counted, so that it has no steps and no gradient."""
        return issubclass(system_class(self.system), Counted)


_LSTM = {"embedding_size": 8, "hidden_size": 8, "num_layers": 2}
_AWD = {
    **dict.fromkeys(("embedding_dropout", "input_dropout", "layer_dropout", "output_dropout", "weight_dropout"), 0.2),
    **dict.fromkeys(("activation_penalty", "difference_penalty"), 0.1),
}
_PALM = {**_LSTM, "attention_layer": 1, "rational_size": 4, "scorer_size": 4, "residual_size": 8, "max_span": 4}
_RNNG: dict[str, Any] = {**_LSTM, "dropout": 0.3, "max_open": 8, "max_consecutive": 4}
_URNNG: dict[str, Any] = {
    **_RNNG,
    "embedding_size": 16,
    "hidden_size": 16,
    **{f"inference_{name}_size": 8 for name in ("embedding", "hidden", "span")},
    "max_open": 40,
    "max_consecutive": 13,
    "num_samples": 4,
    "kl_warmup_steps": 3,
    "inference_steps": 4,
    "bound_samples": 4,
}
_DOCUMENT = {"context": "document", "context_tokens": 12, "context_size": 4}
_TRANSFORMER = {"size": 8, "num_layers": 2, "num_heads": 2, "max_distance": 5, "dropout": 0.2}
_TG: dict[str, Any] = {**_TRANSFORMER, "max_open": 8, "max_consecutive": 4}
_PLM = {**_TG, "composition": "none", "positions": "place"}
_GRAMMAR = {"num_nonterminals": 3, "num_preterminals": 4, "size": 8}
_LATENT = {"latent_size": 4, "encoder_embedding_size": 4, "encoder_hidden_size": 4, "num_draws": 2}
_STREAM = {"batches": "stream", "batch_size": 3, "bptt": 5, "dev_rows": 2}

SMALL: dict[str, Small] = {
    "chart": Small(
        system="chart",
        model={"embedding_size": 8, "hidden_size": 8, "span_size": 8, "tags": ("X", "other")},
        vocabulary={"kind": "affixes", "affix_rows": 64},
        learns_from_trees=True,
    ),
    "chart words": Small(
        system="chart",
        model={"embedding_size": 8, "hidden_size": 8, "span_size": 8, "tag_weight": 0.0},
        learns_from_trees=True,
    ),
    "lstm": Small(system="lstm", model=_LSTM),
    "awd-lstm": Small(system="lstm", model={**_LSTM, **_AWD}, training=_STREAM),
    "ngram": Small(system="ngram", model={"order": 3, "fallback_discounts": (0.5, 1.0, 1.5)}),
    "on-lstm": Small(system="on-lstm", model={**_LSTM, **_AWD, "chunk_size": 2, "distance_layer": 1}, training=_STREAM),
    "palm": Small(system="palm", model={**_PALM, **_AWD}, training=_STREAM),
    "palm-s": Small(system="palm", model={**_PALM, "span_weight": 0.5}, training=_STREAM),
    "pcfg": Small(system="pcfg", model={"min_parent_count": 3}, whole_words=True, learns_from_trees=True),
    "neural-pcfg": Small(system="neural-pcfg", model=_GRAMMAR, whole_words=True),
    "low-rank pcfg": Small(system="neural-pcfg", model={**_GRAMMAR, "rules": "low-rank", "rank": 12}, whole_words=True),
    "simple pcfg": Small(system="neural-pcfg", model={**_GRAMMAR, "rules": "simple"}, whole_words=True),
    "compound pcfg": Small(system="neural-pcfg", model={**_GRAMMAR, **_LATENT}, whole_words=True),
    "prpn": Small(system="prpn", model={**_LSTM, "num_slots": 4, "look_back": 2, "dropout": 0.2}, training=_STREAM),
    "prpn sentences": Small(system="prpn", model={**_LSTM, "num_slots": 4, "look_back": 2, "dropout": 0.2}),
    "prpn paper": Small(
        system="prpn",
        model={**_LSTM, "num_slots": 4, "look_back": 2, "dropout": 0.2, "variant": "paper", "norm": "layer"},
        training=_STREAM,
    ),
    "pushdown": Small(
        system="pushdown", model={**_TRANSFORMER, "max_depth": 3, "max_stack": 9}, learns_from_trees=True
    ),
    "rnng": Small(system="rnng", model=_RNNG, learns_from_trees=True),
    "rnng in-order documents": Small(
        system="rnng",
        model={**_RNNG, **_DOCUMENT, "order": "in-order", "embedding_dropout_by": "type"},
        learns_from_trees=True,
    ),
    "rnng attention": Small(system="rnng", model={**_RNNG, "composition": "attention"}, learns_from_trees=True),
    "rnng none": Small(system="rnng", model={**_RNNG, "composition": "none"}, learns_from_trees=True),
    "shift-reduce": Small(system="shift-reduce", model={"size": 8, "num_layers": 1}, learns_from_trees=True),
    "shift-reduce parser": Small(
        system="shift-reduce", model={"size": 8, "language_model": False, "oracle": "static"}, learns_from_trees=True
    ),
    "transformer": Small(system="transformer", model=_TRANSFORMER),
    "transformer learned": Small(system="transformer", model={**_TRANSFORMER, "positions": "learned"}),
    "transformer rotary": Small(system="transformer", model={**_TRANSFORMER, "positions": "rotary"}),
    "transformer treereg": Small(
        system="transformer", model={**_TRANSFORMER, "auxiliary": "treereg", "treereg_layer": 1, "treereg_units": 6}
    ),
    "transformer planting": Small(system="transformer", model={**_TRANSFORMER, "auxiliary": "tree-planting"}),
    "transformer stream": Small(system="transformer", model={**_TRANSFORMER, "memory_length": 7}, training=_STREAM),
    "som": Small(system="som", model={"size": 8, "num_slots": 5, "oracle": "dynamic"}, learns_from_trees=True),
    "som documents": Small(system="som", model={"size": 12, "num_slots": 5, **_DOCUMENT}, learns_from_trees=True),
    "urnng": Small(system="urnng", model=_URNNG),
    "transformer-grammar": Small(system="transformer-grammar", model=_TG, learns_from_trees=True),
    "tg without masking, documents": Small(
        system="transformer-grammar",
        model={**_TG, **_DOCUMENT, "masking": False, "positions": "height"},
        learns_from_trees=True,
    ),
    "tg binary": Small(
        system="transformer-grammar",
        model={**_TG, "binary": True, "max_open": 60, "composition": "external", "composer_size": 4},
        learns_from_trees=True,
    ),
    "tg bottom-up": Small(
        system="transformer-grammar",
        model={**_TRANSFORMER, "order": "bottom-up", "positions": "height"},
        learns_from_trees=True,
    ),
    "plm-mask": Small(system="transformer-grammar", model={**_PLM, "structured_heads": True}, learns_from_trees=True),
}
"""Name -> recipe; under the name of a system stands its plainest, other names are variants."""


def small_recipe(name: str, folder: Path, changes: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> Recipe:
    """The recipe of a small system, changed section by section, over a treebank that is written unless it is there."""
    small = SMALL[name]
    split = {part: str(folder / f"{part}.ptb") for part in ("train", "dev")}
    if not Path(split["train"]).exists():
        write_treebank(folder, num_train=8, num_dev=3)
    common = {} if small.is_estimated else {"batch_size": 4, "threads": 1, "device": "cpu"}
    values = {
        "data": {**split, "test": split["dev"]},
        "vocabulary": {"min_count": 1, **small.vocabulary},
        "model": {"system": small.system, **small.model, **changes.get("model", {})},
        "training": {**common, **small.training, **changes.get("training", {})},
        "batches": changes.get("batches", {}),
        "search": {"action_beam": 10, "word_beam": 4},
    }
    return build_recipe(values, where=f"tests/systems.py {name!r}")


def small_setup(name: str, folder: Path, **training: Any) -> Setup:
    """Network, batches and dev of a small system as training has them; what is counted is counted."""
    setup = set_up(small_recipe(name, folder, {"training": training}))
    if isinstance(setup.model, Counted):
        setup.model.estimate(setup.encoded)
    return setup
