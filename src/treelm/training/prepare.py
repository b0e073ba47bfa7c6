"""From a recipe to what is trained: prepared data, vocabulary, network and batches."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from treelm.corpora.batches import BatchesConfig, SentenceBatches
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.data_config import prepared_split
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.stream_batches import BPTTBatches, PackedBatches
from treelm.corpora.vocabularies import build_vocabulary
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError, is_out_of_memory
from treelm.models import system_class
from treelm.models.base import LanguageModel
from treelm.models.bounds import BoundedConfig, InventoryConfig
from treelm.models.capabilities import ChecksCorpus, DocumentContext, LearnsTags, Parser, has, set_search, why_not
from treelm.models.persistence.storage import load_model
from treelm.models.persistence.tensors import check_same_tensors
from treelm.models.streams import StreamLM
from treelm.training.numerics import seed_everything
from treelm.training.recipe import AnyRecipe, ModelConfig, Recipe, load_recipe
from treelm.trees.transforms import UNPARSED
from treelm.trees.tree import Tree

_DEV_BATCH_SIZE, _DEV_ACTIONS = 64, 26_000  # whatever the batches of training: the loss is the same
_logger = logging.getLogger(__name__)

RecipeBatches = SentenceBatches | BPTTBatches | PackedBatches  # what ``training.batches`` of a recipe chooses from


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Everything that training needs, made from a recipe whose bounds are now known."""

    recipe: Recipe
    model: LanguageModel
    encoded: EncodedCorpus
    batches: RecipeBatches
    dev: RecipeBatches | None
    dev_trees: list[Tree] | None = None  # gold trees of dev, if models are selected by F1


def set_up(recipe: AnyRecipe, *, vocabulary: Vocabulary | None = None, **settings: Mapping[str, Any]) -> Setup:
    """Prepare data, build the vocabulary (unless given) and the network; seeds the random generators.

    Recipe and settings are as ``treelm.train`` takes them. With ``start_from`` of ``[training]``, vocabulary and
    weights are those of that run. The network is in training mode, so that your own loop can begin::

        setup = treelm.set_up("lstm-demo")
        optimizer = torch.optim.Adam(setup.model.parameters())
        for batch in setup.batches:
            losses = setup.model.losses(batch)
            (losses.total / losses.num_words).backward()
            optimizer.step()
            optimizer.zero_grad()

    Raises ``InputError`` for a run to start from of another system, and for a vocabulary that the system cannot
    predict.
    """
    recipe = load_recipe(recipe, settings)
    start_from = None if vocabulary else recipe.training.start_from  # a run that is resumed has begun already
    if start_from is not None:
        start = load_model(start_from)
        if start.system != recipe.model.system:
            found = f"{start_from} is a {start.system}, and [model] a {recipe.model.system}"
            raise InputError(found, where="[training] start_from", remedy="start from a run of the same system")
        vocabulary = start.vocabulary
    train_data = prepared_split(recipe.data, "train")
    vocabulary = vocabulary or build_vocabulary(recipe.vocabulary, train_data.form_counts())
    own, margin = recipe.model, recipe.model.bounds_margin
    if isinstance(own.config, InventoryConfig):  # inventories are what training trees have
        recipe = replace(recipe, model=replace(own, config=own.config.taken_from(train_data)))
    elif margin is not None:  # bounds are what they need, and the margin
        fitted = own.config.fitted_to(train_data, margin)
        recipe = replace(recipe, model=replace(own, config=fitted, bounds_margin=None))
    dev_data = prepared_split(recipe.data, "dev") if recipe.data.has_split("dev") else None
    splits = {"train": train_data, **({"dev": dev_data} if dev_data is not None else {})}
    for error in chain(*(split.skipped for split in splits.values())):  # by on_error = "skip"
        _logger.warning("left out: %s", error)
    seed_everything(recipe.training.seed)
    model = _build(recipe.model, vocabulary, sorted(train_data.labels))
    set_search(copy(model), recipe.search)  # a search that cannot be is refused now, not after training
    if model.predicts_words and not vocabulary.is_predictable:
        found = f"vocabulary.kind = {vocabulary.kind!r} with {model.system}, which predicts words"
        raise InputError(found, remedy='give vocabulary.kind = "word"')
    model.data_identity = {name: split.identity for name, split in splits.items()}
    if start_from is not None:
        weights, remedy = start.state_dict(), f"give the [model] of {start_from}"
        check_same_tensors(weights, model.state_dict(), where=start_from, remedy=remedy)
        model.load_state_dict(weights)
    encoded = _encode(train_data, model, recipe, trains=True)
    batches = _batches(encoded, model, recipe, trains=True)
    dev = None if dev_data is None else dev_batches(dev_data, model, recipe)
    dev_trees = None
    if recipe.training.select_by == "unlabeled_f1" and dev_data is not None:
        if not has(model, Parser):
            found = f'select_by = "unlabeled_f1", but {why_not(model, Parser)}'
            raise InputError(found, where="[training]", remedy='set select_by = "loss"')
        dev_trees = read_dev_trees(dev_data)
    return Setup(recipe=recipe, model=model, encoded=encoded, batches=batches, dev=dev, dev_trees=dev_trees)


def read_dev_trees(corpus: PreparedCorpus) -> list[Tree]:
    """The trees of dev, without those that hold none (``UNPARSED``). Raises ``InputError`` for data without trees."""
    found = [one.tree for one in corpus.sentences() if one.tree is not None and one.tree.label != UNPARSED]
    if not found:
        remedy = 'set select_by = "loss", or give dev data with trees'
        raise InputError('no trees, which select_by = "unlabeled_f1" needs', where=corpus.source(0), remedy=remedy)
    return found


def _encode(corpus: PreparedCorpus, model: LanguageModel, recipe: Recipe, *, trains: bool) -> EncodedCorpus:
    """A corpus in tokens of the model's vocabulary.

    Sentences of dev whose trees the model cannot build are left out, with a warning. Raises ``InputError`` if the model
    cannot be trained or evaluated on the corpus.
    """
    config, others = model.config, sorted(set(corpus.labels) - set(model.labels))
    encoded = EncodedCorpus(
        corpus,
        model.vocabulary,
        model.labels if has(model, Parser) and model.predicts_labels else (*model.labels, *others),  # any will do
        tags=model.tags if isinstance(model, LearnsTags) else (),
        unknown_labels="raise" if trains else "drop",
        leave_out=slice(0) if trains or not isinstance(config, BoundedConfig) else config.beyond_bounds(corpus),
        num_preceding=model.num_preceding if isinstance(model, DocumentContext) else 0,
    )
    if isinstance(model, ChecksCorpus):
        model.check_corpus(encoded, trains=trains)
    if encoded.num_dropped:
        why = "their trees have labels that training lacks, or are beyond the bounds of [model]"
        if not len(encoded):
            found = f"all dev sentences would be left out: {why}"
            raise InputError(found, where=corpus.where(0), remedy="give dev data like those of training, or none")
        _logger.warning("the dev loss is without %d of %d sentences: %s", encoded.num_dropped, len(corpus), why)
    return encoded


def dev_batches(corpus: PreparedCorpus, model: LanguageModel, recipe: Recipe) -> RecipeBatches:
    """The batches on which a recipe evaluates a model in training: sentences, or a stream."""
    return _batches(_encode(corpus, model, recipe, trains=False), model, recipe, trains=False)


def _batches(encoded: EncodedCorpus, model: LanguageModel, recipe: Recipe, *, trains: bool) -> RecipeBatches:
    """The batches of training, in an order of their own in each epoch, or those of dev, in that of the file."""
    config = recipe.training
    if config.batches == "sentences":
        if not trains:
            return SentenceBatches(encoded, batch_size=_DEV_BATCH_SIZE, max_actions=_DEV_ACTIONS, shuffle=False)
        size, most = config.batch_size, config.max_actions
        return SentenceBatches(encoded, batch_size=size, max_actions=most, config=recipe.batches, seed=config.seed)
    if not isinstance(model, StreamLM):
        found = f'batches = "{config.batches}" with system {model.system!r}, which reads whole sentences'
        raise InputError(found, where="[training]", remedy='set batches = "sentences"')
    if recipe.batches != BatchesConfig():
        found = f'settings of sentence batches with training.batches = "{config.batches}"'
        raise InputError(found, where="[batches]", remedy="leave this section out")
    if trains:
        model.check_stream(config.bptt, config.batch_size)
    common: dict[str, Any] = {
        "batch_size": config.batch_size if trains else config.dev_rows,
        "bptt": config.bptt,
        "seed": config.seed,
        "constituents": model.reads_constituents and (trains or encoded.prepared.has_trees),
    }
    if config.batches == "packed":
        return PackedBatches(encoded, shuffle=trains, **common)
    return BPTTBatches(
        encoded,
        random_length=trains and config.bptt_random_length,
        shuffle_documents=trains and config.shuffle_documents,
        sentence_ends=config.sentence_ends,
        keep_rest=not trains,
        **common,
    )


def _build(config: ModelConfig, vocabulary: Vocabulary, labels: Sequence[str]) -> LanguageModel:
    build: Any = system_class(config.system)
    found, remedy = "a network of these sizes does not fit into memory", "make its sizes smaller"
    try:
        model: LanguageModel = build(config=config.config, vocabulary=vocabulary, labels=labels)
    except InputError as error:
        raise InputError(error.found, where=error.where or "[model]", remedy=error.remedy) from error
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(found, where="[model]", remedy=remedy) from None
    return model
