"""Speed of systems, at a tiny size."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from tests.systems import SMALL
from treelm.errors import InputError
from treelm.evaluation.speed import BeamWidths, benchmark_recipe, measure_search, measure_stream
from treelm.models import SYSTEMS, system_class
from treelm.models.base import EstimatedLM
from treelm.models.streams import StreamLM
from treelm.training.config import Precision

STREAMS = [name for name in SYSTEMS if issubclass(system_class(name), StreamLM)]


@pytest.mark.parametrize("system", STREAMS)
@pytest.mark.parametrize("precision", get_args(Precision))
def test_whole_updates_are_measured(system: str, precision: Precision) -> None:
    recipe = benchmark_recipe(system)
    config = replace(recipe.model.config, **SMALL[system].model)
    training = replace(recipe.training, precision=precision, threads=1)
    recipe = replace(recipe, model=replace(recipe.model, config=config), training=training)
    speed = measure_stream(recipe, num_updates=2, bptt=4, vocabulary_size=50)
    assert (speed.system, speed.precision, len(speed.seconds)) == (system, precision, 2)
    assert speed.num_parameters < 300_000


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_that_is_trained_in_updates_can_be_measured(system: str) -> None:
    if issubclass(system_class(system), EstimatedLM):
        with pytest.raises(InputError, match="estimated in one go"):
            benchmark_recipe(system)
    else:
        assert benchmark_recipe(system).model.system == system


def test_a_search_is_measured_with_its_widths() -> None:
    sentences = [("I", "think", ".")] * 2
    speed = measure_search("rnng-gum-open", sentences, BeamWidths(action_beam=5, word_beam=2, fast_track=1))
    assert (speed.action_beam, speed.word_beam, speed.fast_track, speed.threads) == (5, 2, 1, 1)
    assert (speed.num_sentences, speed.words_per_sentence) == (2, 3)
