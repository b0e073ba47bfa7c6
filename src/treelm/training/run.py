"""Training by a recipe: prepare data, build vocabulary and network, train, and keep it all in a run folder."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from treelm.corpora.batches import SentenceBatches
from treelm.corpora.corpus import PreparedCorpus, merge_labels
from treelm.corpora.data_config import DataConfig, prepared_split
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.grouping import BatchesConfig
from treelm.corpora.packed_batches import PackedBatches
from treelm.corpora.stream_batches import BPTTBatches
from treelm.corpora.vocabularies import build_vocabulary, load_vocabulary, save_vocabulary
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError, is_out_of_memory
from treelm.models import system_class
from treelm.models.base import EstimatedLM, LanguageModel
from treelm.models.bounds import InventoryConfig
from treelm.models.configs import to_plain
from treelm.models.persistence.shipped import find_run
from treelm.models.persistence.storage import (
    VOCABULARY,
    WEIGHTS,
    load_model,
    load_weights,
    read_system,
    save_model,
    weight_files,
)
from treelm.models.streams import StreamLM
from treelm.training.checkpoints import RESUME, check_new_run, check_resumable, lock_folder
from treelm.training.config import LIMITS_OF_TIME
from treelm.training.dev import DevTrees
from treelm.training.estimation import check_estimated, estimate
from treelm.training.loop import check_without_dev, fit_locked
from treelm.training.numerics import seed_everything
from treelm.training.progress import show_progress
from treelm.training.ranks import Ranks
from treelm.training.recipe import FILE_NAME, ModelConfig, Recipe, load_recipe, save_recipe
from treelm.training.state import check_unchanged

_DEV_BATCH_SIZE, _DEV_ACTIONS = 64, 26_000  # whatever the batches of training: the loss is the same
_logger = logging.getLogger(__name__)


RecipeBatches = SentenceBatches | BPTTBatches | PackedBatches
"""What ``training.batches`` of a recipe chooses from."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Everything that ``fit`` or ``estimate`` needs, made from a recipe whose bounds are now known."""

    recipe: Recipe
    model: LanguageModel
    encoded: EncodedCorpus
    batches: RecipeBatches
    dev: RecipeBatches | None
    dev_trees: DevTrees | None = None  # if models are selected by F1


def train(
    recipe: Recipe, run_directory: Path | str, *, resume: bool = False, on_terminal: bool = True
) -> LanguageModel:
    """Train by a recipe and return the best model, as it was saved in the run folder.

    ``resume`` goes on with the run in ``run_directory``; use ``load_run_recipe`` to get its recipe. ``on_terminal``
    shows progress on standard error; without it only warnings are logged, one of them when a limit of time ends it. Of
    several processes the first one prepares data and vocabulary, writes and shows; they need a file system in common.
    Raises what ``fit`` raises.
    """
    run = Path(run_directory)
    ranks = Ranks.connect(recipe.training)
    with ExitStack() as stack:  # from the first look at the folder to the last: what was seen there stays true
        ranks.on_main(lambda: stack.enter_context(lock_folder(run)))
        setup = _set_up_together(recipe, run, resume=resume, ranks=ranks)
        model = setup.model
        if isinstance(model, EstimatedLM):
            dev = setup.dev if isinstance(setup.dev, SentenceBatches) else None
            ranks.on_main(partial(estimate, model, setup.encoded, dev, run))
        else:
            _fit(setup, run, resume=resume, ranks=ranks, on_terminal=on_terminal)
            ranks.on_main(partial(_calibrate, setup, run))
        return load_model(run)


def _calibrate(setup: Setup, run: Path) -> None:
    """Let the model that was kept fit itself to dev, where its system does so."""
    if type(setup.model).calibrate is LanguageModel.calibrate or not isinstance(setup.dev, SentenceBatches):
        return
    batches = list(setup.dev)
    if batches:
        model = load_model(run)
        _logger.info("%s", model.calibrate(batches))
        save_model(model, run)


def _fit(setup: Setup, run: Path, *, resume: bool, ranks: Ranks, on_terminal: bool) -> None:
    config = setup.recipe.training
    steps = fit_locked(
        setup.model,
        setup.batches,
        setup.dev,
        config,
        run,
        resume=resume,
        dev_trees=setup.dev_trees,
        ranks=ranks,
        recipe=setup.recipe,
    )
    if on_terminal and ranks.is_main:
        steps = show_progress(steps, config, steps_per_epoch=len(setup.batches), evaluates=setup.dev is not None)
    for number, step in enumerate(steps):
        if resume and number == 0 and ranks.is_main:
            save_recipe(setup.recipe, run / FILE_NAME)  # it was accepted, and may be longer than before
        if not on_terminal and ranks.is_main and (step.stopped_because or "").startswith(LIMITS_OF_TIME):
            _logger.warning("training ended after step %d: %s", step.step, step.stopped_because)


def _set_up_together(recipe: Recipe, run: Path, *, resume: bool, ranks: Ranks) -> Setup:
    """The first process makes what is kept on disk; then the others find it there."""
    setups: list[Setup] = []

    def first() -> None:
        if not resume:
            _check_free(run, recipe)
        elif not (run / FILE_NAME).exists():
            remedy = "give the folder of a run; a model of the package can be finetuned: start_from in [training]"
            raise InputError("no run to resume", where=str(run), remedy=remedy)
        elif not recipe.model.is_estimated:
            check_resumable(run)
        if not recipe.model.is_estimated and not recipe.data.has_split("dev"):
            check_without_dev(recipe.training)  # before the folder holds anything
        kept = run / VOCABULARY
        setup = set_up(recipe, vocabulary=load_vocabulary(kept) if resume and kept.exists() else None)
        if isinstance(setup.model, EstimatedLM):
            check_estimated(setup.model, setup.recipe.training, resume=resume)
        if not resume:
            _begin(setup, run)
        setups.append(setup)

    def others() -> None:
        if not ranks.is_main:
            _logger.setLevel(logging.ERROR)  # the first one has warned
            setups.append(set_up(recipe, vocabulary=load_vocabulary(run / VOCABULARY)))

    ranks.on_main(first)
    ranks.together(others)
    return setups[0]


def _check_free(run: Path, recipe: Recipe) -> None:
    """Raise ``InputError`` for a folder with anything that was trained, or with a run that can be resumed."""
    check_new_run(run)
    if has_run(run, recipe):
        raise InputError("this folder already holds a run", where=str(run), remedy=RESUME)


def has_run(run_directory: Path | str, recipe: Recipe) -> bool:
    """Tell whether there is a run to go on with; systems that are estimated in one go begin again."""
    return (Path(run_directory) / FILE_NAME).exists() and not recipe.model.is_estimated


def is_estimated(run_directory: Path | str, recipe: Recipe) -> bool:
    """Tell whether a system that is estimated in one go already is."""
    return recipe.model.is_estimated and (Path(run_directory) / WEIGHTS).exists()


def load_run_recipe(
    run_directory: Path | str, overrides: tuple[str, ...] = (), *, same_as: Recipe | None = None
) -> Recipe:
    """The recipe of a run (a folder, or a model that ships with the package), for evaluating or resuming it.

    With ``same_as``, training is as long, and on as many machines, as that recipe says. Raises ``InputError`` when the
    folder holds no run, and for an override, or a recipe, by which its data or vocabulary would have been others.
    """
    path = find_run(run_directory) / FILE_NAME
    if not path.exists():
        raise InputError("no run to resume: it has no recipe.toml", where=str(run_directory), remedy="check the path")
    recipe = load_recipe(path, overrides)
    for present in (recipe, same_as):  # model and training are compared with the checkpoint
        for section in ("data", "vocabulary", "batches") if present is not None else ():
            saved = to_plain(getattr(load_recipe(path), section))
            check_unchanged(saved, to_plain(getattr(present, section)), what=section, where=str(path))
    if same_as is None:
        return recipe
    _check_model(recipe.model, same_as.model, where=str(path))
    return replace(recipe, training=same_as.training)


def recipe_of_model(run: Path | str) -> Recipe:
    """The recipe of a run, for evaluating it; that of a model which was not trained here has nothing but defaults.

    Such a one has no data of its own: files must be given.
    """
    folder = find_run(run)
    if (folder / FILE_NAME).exists() or not weight_files(folder):
        return load_run_recipe(run)
    return Recipe(data=DataConfig(), model=ModelConfig(system=read_system(folder).system, config=None))


def _check_model(kept: ModelConfig, given: ModelConfig, *, where: str) -> None:
    """Raise ``InputError`` unless a recipe's model is that of the run, but for bounds that the run has found."""
    saved, present = (to_plain(one.config) for one in (kept, given))
    if given.bounds_margin is not None:
        for values in (saved, present):
            for name in given.bounds:
                values.pop(name, None)
    if isinstance(given.config, InventoryConfig):
        for name in given.config.inventories:
            if not present[name]:  # it is found in the training data
                del saved[name], present[name]
    check_unchanged({"system": kept.system, **saved}, {"system": given.system, **present}, what="model", where=where)


def set_up(recipe: Recipe, *, vocabulary: Vocabulary | None = None) -> Setup:
    """Prepare data, build the vocabulary (unless given) and the network; seeds the random generators.

    With ``start_from``, vocabulary and weights are those of that run.

    Raises ``InputError`` for a run to start from of another system, and for a vocabulary that the system cannot
    predict.
    """
    start_from = None if vocabulary else recipe.training.start_from  # a run that is resumed has begun already
    if start_from is not None:
        start = load_model(start_from)
        if start.system != recipe.model.system:
            found = f"{start_from} is a {start.system}, and [model] a {recipe.model.system}"
            raise InputError(found, where="[training] start_from", remedy="start from a run of the same system")
        vocabulary = start.vocabulary
    train_data = prepared_split(recipe.data, "train")
    vocabulary = vocabulary or build_vocabulary(recipe.vocabulary, train_data.form_counts())
    recipe = replace(recipe, model=resolve_bounds(recipe.model, train_data))
    labels = merge_labels([train_data])
    dev_data = prepared_split(recipe.data, "dev") if recipe.data.has_split("dev") else None
    for corpus in (train_data, dev_data):
        for error in corpus.skipped if corpus else ():  # by on_error = "skip"
            _logger.warning("left out: %s", error)
    seed_everything(recipe.training.seed)
    model = _build(recipe.model, vocabulary, labels)
    copy(model).set_beam(**recipe.evaluation.beam)  # a search that cannot be is refused now, not after training
    splits = {"train": train_data, "dev": dev_data}
    if model.predicts_words and not vocabulary.is_predictable:
        found = f"vocabulary.kind = {vocabulary.kind!r} with {model.system}, which predicts words"
        raise InputError(found, remedy='set vocabulary.kind = "word"')
    model.data_identity = {name: split.identity for name, split in splits.items() if split is not None}
    if start_from is not None:
        load_weights(model, find_run(start_from) / WEIGHTS, remedy=f"give the [model] of {start_from}")
    encoded = EncodedCorpus(train_data, vocabulary, labels, tags=model.tags, num_preceding=model.num_preceding)
    model.check_corpus(encoded, trains=True)
    batches = _train_batches(encoded, model, recipe)
    dev = None if dev_data is None else dev_batches(dev_data, model, recipe)
    trees = _dev_trees(recipe, model)
    return Setup(recipe=recipe, model=model, encoded=encoded, batches=batches, dev=dev, dev_trees=trees)


def _dev_trees(recipe: Recipe, model: LanguageModel) -> DevTrees | None:
    if recipe.training.select_by != "unlabeled_f1" or not recipe.data.has_split("dev"):
        return None
    if not model.parses:
        found = f'select_by = "unlabeled_f1", but {model.why_no_trees}'
        raise InputError(found, where="[training]", remedy='set select_by = "loss"')
    return DevTrees.read(recipe.data)


def _train_batches(encoded: EncodedCorpus, model: LanguageModel, recipe: Recipe) -> RecipeBatches:
    config = recipe.training
    if config.batches == "sentences":
        return SentenceBatches(
            encoded,
            batch_size=config.batch_size,
            max_actions=config.max_actions,
            config=recipe.batches,
            seed=config.seed,
        )
    if not isinstance(model, StreamLM):
        found = f'batches = "{config.batches}" with system {model.system!r}, which reads whole sentences'
        raise InputError(found, where="[training]", remedy='set batches = "sentences"')
    if recipe.batches != BatchesConfig():
        found = f'settings of sentence batches with training.batches = "{config.batches}"'
        raise InputError(found, where="[batches]", remedy="leave this section out")
    model.check_stream(config.bptt, config.batch_size)
    if config.batches == "packed":
        return PackedBatches(
            encoded,
            batch_size=config.batch_size,
            bptt=config.bptt,
            seed=config.seed,
            constituents=model.reads_constituents,
        )
    return BPTTBatches(
        encoded,
        batch_size=config.batch_size,
        bptt=config.bptt,
        random_length=config.bptt_random_length,
        seed=config.seed,
        sentence_ends=config.sentence_ends,
        constituents=model.reads_constituents,
        shuffle_documents=config.shuffle_documents,
    )


def _build(config: ModelConfig, vocabulary: Vocabulary, labels: Sequence[str]) -> LanguageModel:
    build: Any = system_class(config.system)
    try:
        model: LanguageModel = build(config=config.config, vocabulary=vocabulary, labels=labels)
    except InputError as error:
        raise InputError(error.found, where=error.where or "[model]", remedy=error.remedy) from error
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        found = "a network of these sizes does not fit into memory"
        raise InputError(found, where="[model]", remedy="make its sizes smaller") from None
    return model


def resolve_bounds(model: ModelConfig, train_data: PreparedCorpus) -> ModelConfig:
    """The model with its bounds set to what training trees need plus the margin, its inventories to what they have."""
    if isinstance(model.config, InventoryConfig):
        return replace(model, config=model.config.taken_from(train_data))
    if model.bounds_margin is None:
        return model
    return replace(model, config=model.config.fitted_to(train_data, model.bounds_margin), bounds_margin=None)


def dev_batches(corpus: PreparedCorpus, model: LanguageModel, recipe: Recipe) -> RecipeBatches:
    """The batches on which a recipe evaluates a model in training: sentences, or a stream."""
    labels = model.labels if model.predicts_labels else merge_labels([corpus])  # else any label will do
    unknown_labels = recipe.data.unknown_labels
    encoded = EncodedCorpus(
        corpus,
        model.vocabulary,
        labels,
        tags=model.tags,
        unknown_labels=unknown_labels,
        num_preceding=model.num_preceding,
    )
    model.check_corpus(encoded, trains=False)
    config = recipe.training
    constituents = isinstance(model, StreamLM) and model.reads_constituents and corpus.has_trees
    if config.batches == "packed":
        return PackedBatches(
            encoded, batch_size=config.dev_rows, bptt=config.bptt, shuffle=False, constituents=constituents
        )
    if config.batches == "stream":
        return BPTTBatches(
            encoded,
            batch_size=config.dev_rows,
            bptt=config.bptt,
            sentence_ends=config.sentence_ends,
            keep_rest=True,
            constituents=constituents,
        )
    if encoded.num_dropped:
        _logger.warning("%d dev sentences have labels that training lacks and are left out", encoded.num_dropped)
    return SentenceBatches(encoded, batch_size=_DEV_BATCH_SIZE, max_actions=_DEV_ACTIONS, shuffle=False)


def _begin(setup: Setup, run: Path) -> None:
    run.mkdir(parents=True, exist_ok=True)
    save_vocabulary(setup.model.vocabulary, run / VOCABULARY)
    save_recipe(setup.recipe, run / FILE_NAME)
