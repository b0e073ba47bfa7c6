"""Sentences of suites are scored in groups of neighbours, by several processes, and kept."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.syntaxgym.test_suites import load, suite_values
from tests.evaluation.toys import Searches, ToyLM
from tests.models.rnng.worlds import Tokens, build_model
from treelm.evaluation.syntaxgym.scoring import ScoreCache, score_suites, score_texts
from treelm.models.perplexity import unconverged_note
from treelm.models.search.config import SearchConfig

TEXTS = ["b+d a c", "a c", "a b+d a", "a b+d", "c"]


def counted(lm: ToyLM, seen: list[str], stop_after: int = 99) -> Any:
    """Scores like the model, but notes what it scores, and is interrupted after some groups."""

    def score(groups: Iterable[Sequence[Sequence[str]]]) -> Iterator[Any]:
        for number, group in enumerate(groups):
            if number == stop_after:
                raise KeyboardInterrupt
            seen.extend(" ".join(words) for words in group)
            yield lm.score(group)

    return score


def test_texts_are_scored_in_dictionary_order() -> None:
    lm, seen = ToyLM(), list[str]()
    found = score_texts(lm, TEXTS, tokenisation="whitespace", group_size=2, score_groups=counted(lm, seen))
    by_text = {one.text: one for one in found}
    assert seen == sorted(TEXTS)
    for text, expected in zip(TEXTS, lm.surprisal(TEXTS), strict=True):
        assert by_text[text].surprisal_bits == tuple(word.surprisal_bits for word in expected.words)
        assert by_text[text].end_bits == expected.end_surprisal_bits
        assert [text[start:end] for start, end in by_text[text].spans] == text.split()


def test_scoring_resumes_after_interrupt(tmp_path: Path) -> None:
    lm, first, second = ToyLM(), list[str](), list[str]()
    cache = ScoreCache(tmp_path / "kept.jsonl")
    options: dict[str, Any] = {"tokenisation": "whitespace", "group_size": 2}
    with pytest.raises(KeyboardInterrupt):
        list(score_texts(lm, TEXTS, cache=cache, score_groups=counted(lm, first, 1), **options))
    with (tmp_path / "kept.jsonl").open("a") as stream:
        stream.write('\n{"text": "c", "spans": [[0')  # killed while it wrote
    resumed = list(score_texts(lm, TEXTS, cache=cache, score_groups=counted(lm, second), **options))
    assert (first, second) == (sorted(TEXTS)[:2], sorted(TEXTS)[2:])
    plain = list(score_texts(lm, TEXTS, **options))
    assert sorted(resumed, key=lambda one: one.text) == sorted(plain, key=lambda one: one.text)


def test_other_spans_are_scored_again(tmp_path: Path) -> None:
    lm, seen = ToyLM(), list[str]()
    cache = ScoreCache(tmp_path / "kept.jsonl")
    of_other_words = list(score_texts(lm, ["a cc"], tokenisation="whitespace", group_size=2))
    cache.add([replace(one, text=text) for one, text in zip(of_other_words * 2, ("a c c", "a cc"), strict=True)])
    options: dict[str, Any] = {"tokenisation": "whitespace", "group_size": 2}
    found = list(score_texts(lm, ["a c c", "a cc"], cache=cache, score_groups=counted(lm, seen), **options))
    assert seen == ["a c c"]
    assert {one.text: len(one.spans) for one in found} == {"a c c": 3, "a cc": 2}


def test_cache_keeps_infinite_bits(tmp_path: Path) -> None:
    cache = ScoreCache(tmp_path / "kept.jsonl")
    (scored,) = score_texts(ToyLM(), ["a c"], tokenisation="whitespace", group_size=2)
    scored = replace(scored, surprisal_bits=(1.0, math.inf), end_bits=math.inf)
    cache.add([scored])
    assert cache.read() == {"a c": scored}


def test_words_that_have_not_converged_are_counted_by_suite_and_kept(tmp_path: Path) -> None:
    contents = [{"region_number": 1, "content": "a"}, {"region_number": 2, "content": "b c"}]
    conditions = [{"condition_name": "one", "regions": contents}]
    (suite,) = load(
        tmp_path,
        suite_values(
            predictions=[{"type": "formula", "formula": "(1;%one%) < (2;%one%)"}],
            items=[{"item_number": 1, "conditions": conditions}],
        ),
    )
    cache = ScoreCache(tmp_path / "kept.jsonl")
    for lm in (Searches(), ToyLM()):  # scored, then read
        (result,) = score_suites(lm, [suite], tokenisation="whitespace", cache=cache)
        assert unconverged_note(result.converged) == ("66.7% of the words have not converged",)
    (plain,) = score_suites(ToyLM(), [suite], tokenisation="whitespace")
    assert unconverged_note(plain.converged) == ()


def test_score_cache_key_depends_on_search_words_and_weights() -> None:
    lm, other = (build_model(Tokens(5), seed=seed) for seed in (1, 2))
    beam = SearchConfig(action_beam=1, word_beam=1)
    kept = []
    for model, search, how in (
        (lm, beam, "whitespace"),
        (lm, beam, "treebank"),
        (lm, replace(beam, word_beam=2), "whitespace"),
        (other, beam, "whitespace"),
    ):
        model.search = search
        kept.append(ScoreCache.of(model, tokenisation=how))
    assert len({one.path for one in kept}) == 4
    lm.search = replace(beam, batch_size=1)  # speed only
    assert ScoreCache.of(lm, tokenisation="whitespace").path == kept[0].path
