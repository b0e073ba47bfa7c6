"""Scores, trees and search on another device are what they are on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.devices.pretended import DEVICE, pretended_device
from tests.devices.worlds import VARIANTS, build_world

SENTENCES = [["the", "cat"], ["a", "fish", "of"]]
WORDS = [["the", "cat"], ["fish"]]  # few, as a search is thousands of calls
SCORING = [one for one in VARIANTS if one not in ("shift-reduce parser", "prpn sentences", "awd-lstm")]


@pytest.mark.parametrize("variant", SCORING)
def test_scores_and_trees_on_another_device_are_the_same(variant: str, tmp_path: Path) -> None:
    model = build_world(variant, tmp_path).model.eval()
    here, in_document = model.analyse(WORDS), model.score_document(WORDS) if "documents" in variant else []
    with pretended_device():
        elsewhere = model.to(DEVICE).analyse(WORDS)
        in_document_there = model.score_document(WORDS) if in_document else []
    for ours, theirs in zip(elsewhere, here, strict=True):
        assert (ours.score is None) == (theirs.score is None) == (not model.predicts_words)
        if ours.score is not None and theirs.score is not None:
            np.testing.assert_allclose(ours.score.log_probs, theirs.score.log_probs, atol=1e-5)
        assert ours.tree == theirs.tree
    for ours, theirs in zip(in_document_there, in_document, strict=True):
        np.testing.assert_allclose(ours.log_probs, theirs.log_probs, atol=1e-5)


@pytest.mark.parametrize("variant", ["lstm", "prpn", "som", "rnng", "transformer-grammar", "pushdown"])
def test_reading_word_by_word_on_another_device_is_the_same(variant: str, tmp_path: Path) -> None:
    model = build_world(variant, tmp_path).model.eval()

    def distribution() -> list[float]:
        state = model.start(1)
        for word in SENTENCES[1]:
            state = model.extend(state, [word])
        found: list[float] = model.next_word_log_probs(state).cpu().flatten().tolist()
        return found

    here = distribution()
    with pretended_device():
        model.to(DEVICE)
        assert distribution() == pytest.approx(here, abs=1e-5)


def test_a_beam_waits_for_the_device_a_bounded_number_of_times_a_step(tmp_path: Path) -> None:
    model = build_world("rnng", tmp_path).model.eval()
    counts = []
    for sentences in (SENTENCES[:1], SENTENCES[:1] * 16):
        with pretended_device() as traffic:
            model.to(DEVICE)
            traffic.counts.clear()
            model.score(sentences)
            counts.append(traffic.num_waits)
    assert counts[1] <= 1.5 * counts[0]  # sentences are searched side by side
