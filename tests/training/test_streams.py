"""Training on streams: the state is carried, saved and resumed; optimisers of stream models."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.training.fitting import fit
from tests.training.runs import assert_same_weights, metrics
from tests.training.treebanks import DATA, STREAM
from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError
from treelm.models.persistence.storage import load_model
from treelm.models.streams import StreamLM
from treelm.training.config import TrainingConfig
from treelm.training.optimizers import WeightAverages, build_optimizer
from treelm.training.prepare import Setup, set_up
from treelm.training.recipe import load_recipe, save_recipe
from treelm.training.state import AveragingStart
from treelm.training.trainer import Step, train

RECIPE = f"""{DATA.replace(".ptb", ".txt")}
[model]
system = "lstm"
embedding_size = 6
hidden_size = 8
num_layers = 2
embedding_dropout = 0.1
layer_dropout = 0.2
weight_dropout = 0.3
activation_penalty = 1.0
difference_penalty = 1.0
{STREAM}"""
SETTINGS: dict[str, list[str]] = {
    "adam": [],
    "shuffled documents": ["shuffle_documents=true"],
    "packed": ["batches=packed", "bptt_random_length=false"],
    "schedule in shares": [
        "schedule=warmup",
        "warmup=0.2",
        "decay=cosine",
        "adam_epochs=2",
        "optimizer=adam-then-asgd",
    ],
    "adam with groups": ["weight_decay=0.1", "no_weight_decay=['*bias', 'embedding']", "coupled_weight_decay=true"],
    "sgd": ["optimizer=sgd", "learning_rate=2.0", "weight_decay=1e-3", "schedule=plateau", "gradient_clip=0.25"],
    "asgd": ["optimizer=asgd", "learning_rate=2.0"],
    "nt-asgd": ["optimizer=nt-asgd", "learning_rate=10.0", "nonmonotone_interval=1"],
    "adam-then-asgd": ["optimizer=adam-then-asgd", "adam_epochs=2", "asgd_learning_rate=2.0"],
}


def write_text(folder: Path) -> Path:
    source = random.Random(0)
    for name, number in (("train", 40), ("dev", 12)):
        lines = (" ".join(source.choices("abcdefg", k=source.randrange(1, 9))) for _ in range(number))
        text = "".join(line + ("\n\n" if place % 5 == 4 else "\n") for place, line in enumerate(lines))
        (folder / f"{name}.txt").write_text(text)
    (folder / "my.toml").write_text(RECIPE)
    return folder / "my.toml"


def prepare(folder: Path, *settings: str) -> Setup:
    return set_up(load_recipe(write_text(folder), [f"training.{one}" for one in settings]))


def begin(setup: Setup, run: Path, *, resume: bool = False) -> Iterator[Step]:
    return fit(setup.model, setup.batches, setup.dev, setup.recipe.training, run, resume=resume)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_resumed_in_mid_epoch_equals_the_undisturbed_one_bit_for_bit(tmp_path: Path, name: str) -> None:
    undisturbed = prepare(tmp_path, *SETTINGS[name])
    steps = list(begin(undisturbed, tmp_path / "undisturbed"))
    assert steps[-1].step > 12
    late = steps[-1].step // 3 * 3 - 3
    for stop_at in (9, late) if "asgd" in name else (late,):  # before weights are averaged, and after
        run = tmp_path / f"run-{stop_at}"
        for step in begin(prepare(tmp_path, *SETTINGS[name]), run):
            if step.step == stop_at:
                break
        torch.manual_seed(99)
        resumed = prepare(tmp_path, *SETTINGS[name])
        assert next(iter(list(begin(resumed, run, resume=True)))).step == stop_at + 1
        assert_same_weights(undisturbed.model, resumed.model)
        assert_same_weights(load_model(tmp_path / "undisturbed"), load_model(run))
        assert metrics(run) == metrics(tmp_path / "undisturbed")
        assert (steps[-1].learning_rate == 0) == (name == "schedule in shares")  # though epochs differ in length


def test_a_stream_that_carries_nothing_is_resumed(tmp_path: Path) -> None:
    """Of a Transformer without memory."""
    data = RECIPE[: RECIPE.index("[model]")]
    model = '[model]\nsystem = "transformer"\nsize = 8\nnum_layers = 1\nnum_heads = 2\nmax_distance = 5\n'
    write_text(tmp_path)
    (tmp_path / "my.toml").write_text(data + model + STREAM)
    recipe = load_recipe(tmp_path / "my.toml", [])
    undisturbed, resumed = set_up(recipe), set_up(recipe)
    list(begin(undisturbed, tmp_path / "undisturbed"))
    for step in begin(set_up(recipe), tmp_path / "run"):
        if step.step == 5:
            break
    list(begin(resumed, tmp_path / "run", resume=True))
    assert_same_weights(undisturbed.model, resumed.model)


def test_segments_of_training_go_on_where_the_one_before_stopped(tmp_path: Path) -> None:
    bare = ["embedding_dropout", "layer_dropout", "weight_dropout", "activation_penalty", "difference_penalty"]
    recipe = load_recipe(
        write_text(tmp_path), [f"model.{name}=0.0" for name in bare] + ["training.learning_rate=1e-12"]
    )
    setup = set_up(recipe)
    model, batches = setup.model, setup.batches
    assert isinstance(model, StreamLM)
    expected, carried = [], None
    for batch in batches:
        losses, carried = model.stream_losses(batch, carried)  # type: ignore[arg-type]
        expected.append(losses.total.item())
    again = set_up(recipe)
    found = [step.loss.total for step in begin(again, tmp_path / "run")][: len(expected)]
    assert found == pytest.approx(expected, rel=1e-5)
    segments = [batch for batch in set_up(recipe).batches if isinstance(batch, StreamBatch)]
    apart = [model.stream_losses(batch, model.init_state(len(batch)))[0].total.item() for batch in segments]
    assert apart[0] == pytest.approx(expected[0], rel=1e-5)
    assert apart != pytest.approx(expected, rel=1e-5)


def test_dev_is_read_in_a_stream_over_all_its_tokens(tmp_path: Path) -> None:
    setup = prepare(tmp_path, "max_steps=2")
    dev = list(begin(setup, tmp_path / "run"))[-1].dev
    words = [line.split() for line in (tmp_path / "dev.txt").read_text().splitlines() if line]
    assert dev.terms["word"][1] == dev.num_words == sum(map(len, words)) + len(words)
    assert dev.num_sentences == len(words)
    model = load_model(tmp_path / "run")
    carried, total = None, 0.0
    for batch in setup.dev:
        losses, carried = model.stream_losses(batch, carried)
        total += losses.total.item()
    assert dev.total == pytest.approx(total, rel=1e-6)
    figures = metrics(tmp_path / "run", "dev")
    assert figures[-1]["loss_perplexity_per_word"] == pytest.approx(math.exp(total / dev.num_words))


def test_sgd_adds_weight_decay_to_the_clipped_gradient_but_for_the_parameters_without(tmp_path: Path) -> None:
    settings = ["optimizer=sgd", "learning_rate=0.5", "weight_decay=0.1", "gradient_clip=0.01", "max_steps=1"]
    setup = prepare(tmp_path, *settings, "no_weight_decay=['embedding']")
    model = setup.model
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    (step,) = begin(setup, tmp_path / "run")
    for name, parameter in model.named_parameters():
        gradient = parameter.grad  # as it was clipped
        decay = 0.0 if name == "embedding" else 0.1
        expected = before[name] - step.learning_rate * (gradient + decay * before[name])
        torch.testing.assert_close(parameter.detach(), expected)
    norm = math.sqrt(sum(parameter.grad.square().sum().item() for parameter in model.parameters()))
    assert norm == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("losses", "interval", "triggers_after"),
    [
        ([5, 4, 3, 2, 1], 2, None),  # always better
        ([5, 4, 3, 3.5, 3.5, 3.5], 2, 6),  # 3.5 > 3, which only then is older than two evaluations
        ([5, 4, 3, 3.5, 3.5, 2.9, 3.5], 2, 7),
        ([1, 2], 1, None),  # all but the last one: nothing yet
        ([1, 1, 2], 1, 3),
        ([3, 2, 1, 2, 1, 1], 5, None),  # not above 3
        ([3, 2, 1, 2, 1, 1, 3.5], 5, 7),
    ],
)
def test_averaging_begins_when_dev_is_worse_than_the_best_but_for_the_last_ones(
    losses: list[float], interval: int, triggers_after: int | None
) -> None:
    config = TrainingConfig(optimizer="nt-asgd", nonmonotone_interval=interval)
    start = AveragingStart()
    found = None
    for number, loss in enumerate(losses, 1):
        start.observe(loss, 10 * number, config)
        if start.after_step is not None and found is None:
            found = number
    assert found == triggers_after
    assert start.after_step == (None if found is None else 10 * found)


def test_what_asgd_saves_is_the_mean_of_the_weights_after_the_trigger(tmp_path: Path) -> None:
    setup = prepare(tmp_path, *SETTINGS["nt-asgd"])
    history: list[dict[str, torch.Tensor]] = []
    for _ in begin(setup, tmp_path / "run"):
        history.append({name: parameter.detach().clone() for name, parameter in setup.model.named_parameters()})
    dev = metrics(tmp_path / "run", "dev")
    averaged = [line.get("num_averaged_steps") for line in dev]
    assert averaged[0] is None
    assert averaged[-1] is not None
    last_averages = WeightAverages()
    model = setup.model
    for weights in history[-averaged[-1] :]:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name])
        last_averages.add(model)
    for name, mean in last_averages.means.items():
        stacked = torch.stack([weights[name] for weights in history[-averaged[-1] :]])
        torch.testing.assert_close(mean, stacked.mean(0))
    with last_averages.in_place(model):
        losses, carried = 0.0, None
        model.eval()
        for batch in setup.dev:
            part, carried = model.stream_losses(batch, carried)
            losses += part.total.item()
    assert dev[-1]["loss_nats_per_word"] == pytest.approx(losses / setup.dev.stream.tokens.size, rel=1e-6)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, history[-1][name])  # training went on with its own weights


def test_adam_hands_over_to_asgd_with_its_own_learning_rate(tmp_path: Path) -> None:
    setup = prepare(tmp_path, *SETTINGS["adam-then-asgd"], "bptt_random_length=false")
    rates = {}
    for step in begin(setup, tmp_path / "run"):
        rates.setdefault(step.learning_rate, step.step)
    assert list(rates) == [0.01, 2.0]
    dev = metrics(tmp_path / "run", "dev")
    assert [line.get("num_averaged_steps") is None for line in dev] == [True, True, False, False]


def test_finetuning_starts_from_the_weights_and_the_vocabulary_of_a_run(tmp_path: Path) -> None:
    first = load_recipe(write_text(tmp_path), ["training.epochs=1"])
    train(first, tmp_path / "first", quiet=True)
    changes = [f"training.start_from={tmp_path / 'first'}", "vocabulary.min_count=50", "model.layer_dropout=0.0"]
    recipe = load_recipe(tmp_path / "my.toml", [*changes, "training.optimizer=asgd", "training.learning_rate=0.1"])
    assert recipe.training.start_from == str(tmp_path / "first")
    setup = set_up(recipe)
    start = load_model(tmp_path / "first")
    assert setup.model.vocabulary.fingerprint() == start.vocabulary.fingerprint()
    assert_same_weights(start, setup.model)
    train(recipe, tmp_path / "second", quiet=True)
    assert load_model(tmp_path / "second").config.layer_dropout == 0.0
    save_recipe(recipe, tmp_path / "kept.toml")
    assert load_recipe(tmp_path / "kept.toml") == recipe


def test_batch_normalisation_takes_whole_batches(tmp_path: Path) -> None:
    sizes = ["model.norm=batch", "model.embedding_size=6", "model.hidden_size=8"]
    text = RECIPE[: RECIPE.index("[model]")] + "[model]\n" + RECIPE[RECIPE.index("[training]") :]
    write_text(tmp_path)
    (tmp_path / "prpn.toml").write_text(text.replace("[model]", '[model]\nsystem = "prpn"'))
    setup = set_up(load_recipe(tmp_path / "prpn.toml", [*sizes, "training.shards=2"]))
    with pytest.raises(InputError, match="2 shards of a batch that prpn normalises as a whole"):
        list(fit(setup.model, setup.batches, setup.dev, setup.recipe.training, tmp_path / "run"))


def test_the_learning_rate_follows_the_length_of_the_same_segment(tmp_path: Path) -> None:
    setup = prepare(tmp_path, "optimizer=sgd", "learning_rate=0.5", "epochs=1")
    lengths = [len(batch.inputs) for batch in prepare(tmp_path).batches]
    assert len(set(lengths)) > 1
    rates = [step.learning_rate for step in begin(setup, tmp_path / "run")]
    assert rates == pytest.approx([0.5 * length / 12 for length in lengths])


def test_coupled_weight_decay_of_adam_is_part_of_the_gradient(tmp_path: Path) -> None:
    setup = prepare(tmp_path)
    for coupled, expected in ((True, torch.optim.Adam), (False, torch.optim.AdamW)):
        config = TrainingConfig(weight_decay=0.1, coupled_weight_decay=coupled)
        optimizer = build_optimizer(setup.model, config, epoch=0)
        assert type(optimizer) is expected
        assert optimizer.param_groups[0]["weight_decay"] == 0.1


def test_a_pattern_that_fits_no_parameter_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    recipe = load_recipe(write_text(tmp_path), ['training.no_weight_decay=["bia*"]'])
    with pytest.raises(InputError, match=r"no_weight_decay = 'bia\*' fits no parameter"):
        train(recipe, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "recipe.toml").exists()
    train(load_recipe(tmp_path / "my.toml", ["training.max_steps=1"]), tmp_path / "run", quiet=True)


def test_finetuning_with_other_sizes_is_a_user_error(tmp_path: Path) -> None:
    train(load_recipe(write_text(tmp_path), ["training.max_steps=1"]), tmp_path / "first", quiet=True)
    recipe = load_recipe(tmp_path / "my.toml", [f"training.start_from={tmp_path / 'first'}", "model.hidden_size=9"])
    with pytest.raises(InputError, match=r"give the \[model\] of"):
        set_up(recipe)


def test_finetuning_from_another_system_is_a_user_error(tmp_path: Path) -> None:
    recipe = load_recipe(write_text(tmp_path), ["training.start_from=ngram-gum-open"])
    with pytest.raises(
        InputError, match=r"ngram-gum-open is a ngram, and \[model\] a \S+; start from a run of the same"
    ):
        set_up(recipe)
