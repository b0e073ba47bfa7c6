"""What every registered system must do, whatever it computes: the suite runs over ``SYSTEMS`` unasked.

A new system adds one line to ``tests/systems.py``; what its own tests have left to say is what it computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tests.cli.conftest import Treelm, treelm  # noqa: F401
from tests.models.weights import stirred
from tests.systems import SMALL, small_recipe, small_setup
from tests.training.fitting import fit
from treelm.corpora.encoding import encode_words
from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError
from treelm.evaluation.audit import audit
from treelm.models import SYSTEMS, config_class, system_class
from treelm.models.base import LanguageModel, Losses
from treelm.models.capabilities import (
    DocumentContext,
    Enumerable,
    Parser,
    Searching,
    TreeConditioned,
    has,
    require,
    set_search,
)
from treelm.models.layers.dropout import dropout_off
from treelm.models.persistence.storage import WEIGHTS, load_model, save_model
from treelm.models.scores import NoLogProbability
from treelm.models.search.config import SearchConfig
from treelm.models.streams import StreamLM
from treelm.training.checkpoint import newest_checkpoint
from treelm.training.outcomes import NonFiniteError
from treelm.training.recipe import save_recipe
from treelm.training.updates import Batch, part_of
from treelm.trees.tree import Tree

SENTENCES = [text.split() for text in ("the cat sees fish", "a bird", "fish", "the zebra hears")]
LONG = ["the", "cat", "of"] * 3
SEEDS = range(3)
BEAM = {"action_beam": 6, "word_beam": 3, "fast_track": 1}

every_small = pytest.mark.parametrize("name", SMALL)
every_trained = pytest.mark.parametrize("name", [name for name, small in SMALL.items() if not small.is_estimated])
every_system = pytest.mark.parametrize("system", SYSTEMS)


SaidBy = Callable[[str], list[object]]


class World(NamedTuple):
    """A small system and its first batches."""

    model: LanguageModel
    batches: list[Batch]


def new_world(name: str, folder: Path, **training: Any) -> World:
    setup = small_setup(name, folder, **training)
    return World(setup.model, list(islice(setup.batches, 2)))


@pytest.fixture(scope="module")
def world_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], World]:
    """Each small system, made once; its weights are stirred, so that its predictions are far from uniform."""
    folder = tmp_path_factory.mktemp("worlds")

    @cache
    def build(name: str) -> World:
        made = new_world(name, folder)
        torch.manual_seed(1)
        stirred(made.model, 0.3)
        set_search(made.model, SearchConfig(**BEAM))
        return made

    return build


@pytest.fixture(scope="module")
def said_by(world_of: Callable[[str], World]) -> SaidBy:
    """What each small system says of the sentences in evaluation mode, asked once."""
    return cache(lambda name: say_of(world_of(name).model.eval()))


@pytest.fixture(autouse=True)
def few_strings_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What grammars over words list here are sentences of one and two words; ``tests/models/pcfg`` has longer ones."""
    monkeypatch.setattr("treelm.models.pcfg.interface._MOST_STRINGS", 250)


@pytest.fixture
def world(name: str, world_of: Callable[[str], World]) -> World:
    """The one of the test's parameter, in evaluation mode."""
    found = world_of(name)
    found.model.eval()
    return found


def scores_words(model: LanguageModel) -> bool:
    return model.predicts_words and not has(model, TreeConditioned)


def losses_of(model: LanguageModel, batches: list[Batch]) -> list[Losses]:
    found, carried = [], None
    for batch in batches:
        if isinstance(batch, StreamBatch):
            assert isinstance(model, StreamLM)
            losses, carried = model.stream_losses(batch, carried)
        else:
            losses = model.losses(batch)
        found.append(losses)
    return found


def say_of(model: LanguageModel) -> list[object]:
    """All that a model says of the sentences, to compare."""
    scores = [score.log_probs.tolist() for score in model.score(SENTENCES)] if scores_words(model) else []
    return [*scores, *(model.parse(SENTENCES) if has(model, Parser) else [])]


@every_trained
def test_a_stream_drops_nothing_under_dropout_off(name: str, tmp_path: Path) -> None:
    """The audit of training rests on it; a bare ``functional.dropout`` goes on dropping."""
    model, batches = new_world(name, tmp_path)
    if not isinstance(model, StreamLM):
        return
    with torch.no_grad(), dropout_off(model.train()):
        one, other = (losses_of(model, batches) for _ in range(2))
    assert [losses.total.item() for losses in one] == [losses.total.item() for losses in other]


@every_system
def test_every_system_has_a_line_in_the_table(system: str) -> None:
    fields = ", ".join(config_class(system_class(system)).__dataclass_fields__)
    line = f'"{system}": Small(system="{system}", model={{...}}),  # a small size of {fields}'
    assert system in SMALL, f"add to SMALL in tests/systems.py:\n    {line}"
    assert SMALL[system].system == system


# Scores.


@every_small
def test_the_audit_finds_nothing(world: World) -> None:
    """Causality, normalisation, batch invariance, and that word by word gives the same as whole sentences."""
    model = world.model
    if not scores_words(model):
        with pytest.raises(InputError):
            model.score(SENTENCES)
        return
    enumerate_all = model.probability_mass if isinstance(model, Enumerable) else None
    sentences = SENTENCES[2:] if isinstance(model, Searching) else SENTENCES  # searches of a dozen words take seconds
    report = audit(model, sentences, num_cuts=1, tolerances={"incremental": 1e-6}, enumerate_all=enumerate_all)
    assert report.passed, report.as_text()
    figures = {check.name: check.figure for check in report.checks}
    assert figures["causality"] == figures["batch invariance"] == 0


@every_small
def test_what_is_said_of_sentences_says_itself_again(name: str, world: World, said_by: SaidBy) -> None:
    """Random numbers are left alone, and the mode of training changes neither scores nor itself."""
    model, said = world.model, said_by(name)
    before = torch.get_rng_state()
    for is_training in (False, True):
        model.train(is_training)
        assert say_of(model) == said
        assert model.training is is_training
    assert torch.equal(torch.get_rng_state(), before)


@every_small
def test_no_sentences_one_word_and_long_sentences(world: World) -> None:
    model = world.model
    if has(model, Parser):
        assert model.parse([]) == []
        one, long = model.parse([["cat"], LONG])
        assert (one.words(), long.words()) == (["cat"], LONG)
        for find in (model.parse, model.analyse):
            with pytest.raises(InputError, match="sentence 1 is without words; leave it out"):
                find([["cat"], []])
    if not scores_words(model):
        return
    assert model.score([]) == []
    for words, score in zip([["cat"], LONG], model.score([["cat"], LONG]), strict=True):
        assert len(score.log_probs) == len(words) + 1
        assert np.isfinite(score.log_probs).all()
        assert (score.log_probs <= 0).all()
        assert set(score.columns) == set(model.word_columns)
    cat, empty = model.score([["cat"], []])
    assert (empty.log_probs.shape, empty.word_of_token.shape) == ((1,), (0,))
    assert empty.log_probs[0] == model.next_word_log_probs(model.start())[0, -1]  # that of ending at once
    assert cat.log_probs[0] == pytest.approx(model.score([["cat"]])[0].log_probs[0])
    assert {name: len(values) for name, values in empty.columns.items()} == dict.fromkeys(model.word_columns, 0)


@every_small
def test_states_never_change_and_a_sentence_may_wait(world: World) -> None:
    model = world.model
    if not scores_words(model):
        return
    begin = model.start(2)
    before = model.next_word_log_probs(begin)
    assert before.shape == (2, len(model.vocabulary) + 1)
    assert before.dtype == torch.float64
    after = model.extend_tokens(begin, [3, None])
    assert torch.equal(model.next_word_log_probs(begin), before)
    assert torch.equal(model.next_word_log_probs(after)[1], before[1])
    assert tuple(after.num_tokens_read) == (1, 0)
    for words in (["cat"], "ab"):
        with pytest.raises(InputError):
            model.extend(begin, words)


@every_small
def test_words_read_after_a_document_have_their_scores_in_it(world: World) -> None:
    model = world.model
    if not (has(model, DocumentContext) and scores_words(model)):
        return
    *before, last = SENTENCES
    expected = model.score_document(SENTENCES)[-1]
    state = model.start_after(before)
    for number, word in enumerate(last):
        state, log_probs = model.extend_scored(state, [word])
        wanted = expected.log_probs[:-1][expected.word_of_token == number].sum()
        assert log_probs[0] == pytest.approx(wanted, abs=1e-6)
    if not isinstance(model, Searching):
        assert float(model.next_word_log_probs(state)[0, -1]) == pytest.approx(expected.log_probs[-1], abs=1e-6)


@every_small
def test_trees_have_the_words_and_a_model_without_trees_says_so(name: str, world: World, said_by: SaidBy) -> None:
    model = world.model
    if has(model, Parser):
        trees = said_by(name)[-len(SENTENCES) :]
        assert [tree.words() for tree in trees if isinstance(tree, Tree)] == SENTENCES
        assert [analysis.tree for analysis in model.analyse(SENTENCES)] == trees
    else:
        with pytest.raises(InputError, match="trees"):
            require(model, Parser)


@every_small
def test_partial_trees_are_over_the_words_so_far(world: World) -> None:
    model = world.model
    if not (has(model, Parser) and scores_words(model)):
        return
    state = model.start(1)
    with pytest.raises(InputError):
        model.partial_trees(state)
    for length, word in enumerate(SENTENCES[0], 1):
        state = model.extend(state, [word])
        assert model.partial_trees(state)[0].words() == SENTENCES[0][:length]
    if isinstance(model, Searching):
        assert model.partial_analyses(state) != [[]]


@every_small
def test_a_model_that_has_gone_wrong_gives_no_scores(name: str, tmp_path: Path) -> None:
    model = small_setup(name, tmp_path).model.eval()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.fill_(math.nan)
    if scores_words(model):
        with pytest.raises(NoLogProbability), np.errstate(invalid="ignore"):
            model.score(SENTENCES)
    save_model(model, tmp_path / "run")
    if not SMALL[name].is_estimated:
        with pytest.raises(InputError, match="finite"):
            load_model(tmp_path / "run")


# Files.


@every_small
def test_saved_and_read_again_it_says_the_same(name: str, world: World, said_by: SaidBy, tmp_path: Path) -> None:
    model = world.model
    save_model(model, tmp_path / "one")
    loaded = load_model(tmp_path / "one")
    assert (loaded.config, loaded.labels, loaded.training) == (model.config, model.labels, False)
    set_search(loaded, SearchConfig(**BEAM))
    assert say_of(loaded) == said_by(name)
    save_model(loaded, tmp_path / "two")
    assert (tmp_path / "two" / WEIGHTS).read_bytes() == (tmp_path / "one" / WEIGHTS).read_bytes()


# Training.


@every_trained
def test_gradients_are_finite_from_the_start_and_reach_every_parameter(name: str, tmp_path: Path) -> None:
    reached: set[str] = set()
    for seed in SEEDS:
        model, batches = new_world(name, tmp_path, seed=seed)
        for losses in losses_of(model.train(), batches):
            assert losses.total.isfinite()
            losses.total.backward()
        for key, parameter in model.named_parameters():
            if parameter.grad is not None and parameter.requires_grad:
                assert parameter.grad.isfinite().all(), key
                reached |= {key} if bool(parameter.grad.any()) else set()
    dead = {key for key, _ in model.named_parameters()} - reached
    declared = set(SMALL[name].without_gradient)
    assert dead == declared, "no loss reaches these: declare them with without_gradient in tests/systems.py"


@every_small
def test_nothing_is_dropped_in_evaluation(world: World) -> None:
    before = torch.get_rng_state()
    with torch.no_grad():
        one, other = (losses_of(*world) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert [losses.total.item() for losses in one] == [losses.total.item() for losses in other]


@every_small
def test_the_loss_of_words_in_evaluation_is_that_of_the_scores(world: World) -> None:
    """What is trained is what is reported. A search is left out: its losses are of one tree, its scores of all."""
    model, batch = world.model, world.batches[0]
    if not scores_words(model) or isinstance(model, Searching):
        return
    if isinstance(batch, StreamBatch):
        batch = encode_words(SENTENCES, model.vocabulary)
    batch = replace(batch, preceding=None, preceding_offsets=None)  # scores are of each sentence by itself
    sentences = [list(map(model.vocabulary.token, batch.tokens_of(row).tolist())) for row in range(len(batch))]
    with torch.no_grad():
        (losses,) = losses_of(model, [batch])
    expected = -sum(score.log_probs.sum() for score in model.score(sentences))
    assert losses.terms["word"].sum.item() == pytest.approx(expected, rel=1e-5)


@every_small
def test_a_loss_is_the_sum_over_the_parts_of_a_batch(world: World) -> None:
    model, batch = world.model, world.batches[0]
    ends_word, cut = model.vocabulary.ends_word, len(batch) // 2
    parts = [part_of(batch, rows, ends_word) for rows in (slice(0, cut), slice(cut, len(batch)))]
    with torch.no_grad():
        (whole,) = losses_of(model, [batch])
        cut_up = [losses_of(model, [part])[0] for part in parts]
    assert whole.total.item() == pytest.approx(sum(one.total.item() for one in cut_up), rel=1e-5)
    assert whole.num_words == sum(one.num_words for one in cut_up)
    assert whole.num_sentences == sum(one.num_sentences for one in cut_up)
    for key, term in whole.terms.items():
        assert term.sum.item() == pytest.approx(sum(one.terms[key].sum.item() for one in cut_up), rel=1e-4, abs=1e-4)
        assert term.count == sum(one.terms[key].count for one in cut_up)


@every_trained
def test_a_run_that_is_resumed_is_the_run_that_never_stopped(name: str, tmp_path: Path) -> None:
    weights = []
    for number, stops in enumerate([(4,), (3, 4)]):
        for stop in stops:
            setup = small_setup(name, tmp_path, max_steps=stop, evaluate_every_steps=2)
            run = tmp_path / str(number)
            config = setup.recipe.training
            steps = list(fit(setup.model, setup.batches, setup.dev, config, run, resume=stop != stops[0]))
            assert steps[-1].step == stop
        weights.append((run / WEIGHTS).read_bytes())
        checkpoint = newest_checkpoint(run)
        assert checkpoint is not None
        weights.append(b"".join(tensor.numpy().tobytes() for tensor in checkpoint.tensors["weights"].values()))
    assert weights[:2] == weights[2:]


@every_trained
def test_an_update_that_would_not_be_finite_is_not_made(name: str, tmp_path: Path) -> None:
    setup = small_setup(name, tmp_path, max_steps=2, epochs=None)
    config, run = setup.recipe.training, tmp_path / "run"
    steps = fit(setup.model, setup.batches, None, config, run)
    next(steps)
    with torch.no_grad():
        for parameter in setup.model.parameters():
            parameter.fill_(math.nan)
    with pytest.raises(NonFiniteError, match="step 2"):
        next(steps)
    assert not (run / WEIGHTS).exists()


@every_trained
def test_without_dropout_it_learns_three_sentences_by_heart(name: str, tmp_path: Path) -> None:
    model, batches = new_world(name, tmp_path)
    batch = part_of(batches[0], slice(0, 3), model.vocabulary.ends_word)
    optimizer, curve = torch.optim.Adam(model.parameters(), lr=0.05), list[float]()
    with dropout_off(model.train()):
        while len(curve) < 40 and not (curve and curve[-1] < 0.65 * curve[0]):
            optimizer.zero_grad()
            (losses,) = losses_of(model, [batch])
            (losses.total / len(batch)).backward()
            optimizer.step()
            curve.append(losses.total.item())
    assert curve[-1] < 0.65 * curve[0]


# The command line.


@every_system
def test_the_command_line_works_on_it(system: str, treelm: Treelm, tmp_path: Path) -> None:  # noqa: F811
    length = {} if SMALL[system].is_estimated else {"max_steps": 2}
    save_recipe(small_recipe(system, tmp_path, {"training": length}), tmp_path / "small.toml")
    run, text = tmp_path / "run", tmp_path / "text.txt"
    text.write_text("".join(" ".join(words) + "\n" for words in SENTENCES[1:3]))
    assert treelm("train", tmp_path / "small.toml", "--output", run, "--quiet").code == 0
    model = load_model(run)
    assert treelm("evaluate", run, "--split", "test", "--json").code == 0
    if scores_words(model):
        table = treelm("surprisal", run, text)
        assert table.code == 0
        assert len(table.out.splitlines()) > sum(map(len, SENTENCES[1:3]))
        assert treelm("audit", run, text).code == 0
    if has(model, Parser):
        parsed = treelm("parse", run, text)
        assert [Tree.parse(line).words() for line in parsed.out.splitlines()] == SENTENCES[1:3]
