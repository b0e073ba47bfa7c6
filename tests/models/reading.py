"""Reading word by word, in a vocabulary whose words may have several tokens."""

from __future__ import annotations

import numpy as np
import pytest

from treelm.models.base import LanguageModel


def assert_reads_word_by_word_as_all_at_once(model: LanguageModel) -> None:
    """Of a model over ``Tokens(8, 2)``: the tokens 0 and 1 go on, and 0+1+2 is one word."""
    texts = [["1+3", "5", "0+1+2", "7", "3"], ["2", "0+4", "6", "6", "1+1+7"]]
    scores = model.score(texts)
    state = model.start(2)
    found: list[list[float]] = [[], []]
    for words in zip(*texts, strict=True):
        log_probs = model.next_word_log_probs(state)
        for row, word in enumerate(words):
            found[row].append(log_probs[row, int(word.split("+")[0])].item())
        state = model.extend(state, words)
    end = model.next_word_log_probs(state)[:, -1]
    for row, score in enumerate(scores):
        is_first = np.append(True, np.diff(score.word_of_token) > 0)
        np.testing.assert_allclose(found[row], score.log_probs[:-1][is_first], atol=1e-8, rtol=0)
        assert end[row].item() == pytest.approx(score.log_probs[-1], abs=1e-8)
    assert [str(t) for t in model.partial_trees(state)] == [str(t) for t in model.parse(texts)]
    assert [str(analysis.tree) for analysis in model.analyse(texts)] == [str(t) for t in model.parse(texts)]
