"""The search whose books are tensors against that of the CPU, for any generative parser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
from torch import Tensor

from tests.devices.calls import search_calls
from treelm.models.layers.devices import computing
from treelm.models.search.config import SearchConfig
from treelm.models.search.device_particles import DeviceParticles
from treelm.models.search.model import GenerativeParser
from treelm.models.search.on_device import DeviceBeam
from treelm.models.search.sentences import search_all

SENTENCES = [[3, 1, 4, 1, 5], [9, 2], [6], [5, 3, 5, 8], [3, 1, 4, 2, 2]]


@contextmanager
def searching(*, on_device: bool) -> Iterator[None]:
    """Within this context sentences are searched as on a GPU, or as on a CPU; checks at its end that they were."""
    reads = [
        mock.patch.object(one, "read", autospec=True, side_effect=one.read) for one in (DeviceBeam, DeviceParticles)
    ]
    with computing(in_few_calls=on_device), reads[0] as of_beam, reads[1] as of_particles:
        yield
    assert (of_beam.called or of_particles.called) == on_device


def assert_same_on_device(
    model: GenerativeParser, sentences: Sequence[Sequence[int]] = SENTENCES, starts: Tensor | None = None, **sizes: Any
) -> None:
    """The same analyses in the same order, probabilities and metrics of every token."""
    searchable, settings = model.searchable(), SearchConfig(**sizes)
    tokens = [np.array(one) for one in sentences]
    results = []
    for on_device in (False, True):
        with searching(on_device=on_device):
            results.append(search_all(searchable, searchable.head(settings.heavy_words), settings, tokens, starts))
    for theirs, ours in zip(*results, strict=True):
        assert theirs.metrics.keys() == ours.metrics.keys()
        for name, values in theirs.metrics.items():
            np.testing.assert_allclose(ours.metrics[name], values, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(ours.log_probs, theirs.log_probs, atol=1e-9)
        # The order of equals depends on rounding.
        scores = [[one.log_prob for one in result.derivations] for result in (theirs, ours)]
        assert scores[1] == pytest.approx(scores[0], abs=1e-9)
        of_actions = [{one.actions: one.log_prob for one in result.derivations} for result in (theirs, ours)]
        assert of_actions[1] == pytest.approx(of_actions[0], abs=1e-9)


def waits_and_kernels(model: GenerativeParser) -> list[tuple[int, int]]:
    """How often the third word of one sentence, and of eight, waits for the device, and the kernels that it starts."""
    sentences, settings = np.array([[token, 3, 1] for token in range(8)]), SearchConfig(action_beam=8, word_beam=3)
    return [search_calls(model, sentences[:count], settings) for count in (1, 8)]
