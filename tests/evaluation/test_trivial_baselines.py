from functools import cache
from pathlib import Path

import pytest

from treelm.evaluation.evalb_files import Bracketing, parse_bracketing, read_bracketings
from treelm.evaluation.span_protocols import BINARISED, KLEIN, WSJ10, WSJ40, SpanProtocol
from treelm.evaluation.trivial_baselines import Baseline, trivial_baselines

WSJ_SAMPLE = Path(__file__).parents[2].parent / "shared" / "data" / "wsj-sample"


def rows(gold: list[Bracketing], protocol: SpanProtocol, **options: int) -> dict[str, Baseline]:
    return {row.name: row for row in trivial_baselines(gold, protocol, **options)}


@cache
def wsj_sample() -> list[Bracketing]:
    if not WSJ_SAMPLE.exists():
        pytest.skip("needs ../shared/data/wsj-sample (Penn Treebank sample, not redistributable)")
    return [one for split in ("train", "dev", "test") for one in read_bracketings(WSJ_SAMPLE / f"{split}.raw.ptb.gz")]


def test_hand_counted_rows() -> None:
    gold = [parse_bracketing("(S (NP (NP (NN a) (NN b))) (, ,) (VP (VB c) (NN d)) (. .))")]
    found = rows(gold, WSJ10)
    # Gold spans: ab and cd. Left-branching has ab and abc, right-branching bcd and cd, balanced ab and cd.
    assert [found[name].corpus_f1 for name in ("left-branching", "right-branching", "balanced")] == [50.0, 50.0, 100.0]
    assert found["binary upper bound"].corpus_f1 == 100.0


def test_upper_bound_is_made_binary_as_the_protocol_makes_gold() -> None:
    gold = [
        parse_bracketing("(S (A (NN a) (NN b) (NN c) (NN d)) (NN e) (B (NN f) (NN g) (NN h)))"),
        parse_bracketing("(S (A (NN a)) (, ,) (B (C (NN b) (NN c) (NN d))) (. .))"),
    ]
    bound = rows(gold, BINARISED)["binary upper bound"]
    assert (bound.corpus_f1, bound.sentence_f1) == (100.0, 100.0)


def test_random_is_the_mean_over_seeds_and_repeats() -> None:
    gold = [parse_bracketing("(S (NN a) (A (NN b) (B (NN c) (NN d))))")]
    single = [rows(gold, WSJ10, num_seeds=1, seed=seed)["random"].corpus_f1 for seed in (1, 2, 3)]
    mean = rows(gold, WSJ10, num_seeds=3, seed=1)["random"]
    assert mean.corpus_f1 == pytest.approx(sum(single) / 3)
    assert mean.num_seeds == 3
    assert rows(gold, WSJ10, num_seeds=3, seed=1)["random"] == mean


def test_the_two_random_rows_draw_splits_and_trees() -> None:
    gold = [parse_bracketing("(S (A (NN a) (NN b)) (B (NN c) (NN d)))")]
    found = rows(gold, WSJ10, num_seeds=400)
    # Of the five binary trees the balanced one has both gold spans, the left- and the right-branching one have one.
    assert found["random, uniform over trees"].corpus_f1 == pytest.approx((100 + 2 * 50) / 5, abs=4)
    assert found["random"].corpus_f1 == pytest.approx(100 / 3 + 2 * 50 / 6, abs=4)


def test_random_distances_respect_builder() -> None:
    gold = [parse_bracketing("(S (A (NN a) (NN b)) (B (C (NN c) (NN d)) (NN e)))")]
    found = {row.name: row for row in trivial_baselines(gold, WSJ10, num_seeds=60, random_distances=True)}
    assert found["random distances, unbiased builder"].num_seeds == 60
    assert "random distances, biased builder" not in rows(gold, WSJ10)
    # Enumerated over the 120 orders of five distances: mean F1 of either builder.
    for builder, mean in (("unbiased", 38.9), ("biased", 36.1)):
        assert found[f"random distances, {builder} builder"].sentence_f1 == pytest.approx(mean, abs=8)


def test_sentences_that_keep_no_word_are_left_out() -> None:
    gold = [parse_bracketing("(S (. .))"), parse_bracketing("(S (NN a) (NN b))")]
    assert rows(gold, WSJ10)["left-branching"].sentence_f1 == 100.0


def test_baselines_of_the_wsj_sample() -> None:
    """Sentence and corpus F1 that the released evaluation of PRPN gives for these trees (measured, to 0.1)."""
    expected = {"left-branching": (8.8, 6.6), "right-branching": (40.5, 36.8), "binary upper bound": (84.4, 84.7)}
    found = rows(wsj_sample(), WSJ40, num_seeds=1)
    for name, (sentence, corpus) in expected.items():
        assert round(found[name].sentence_f1, 1) == sentence
        assert round(found[name].corpus_f1, 1) == corpus


def test_klein_baselines_on_wsj_sample() -> None:
    """Table 5, Shen et al. 2018, after Klein 2005: other sentences of the same newspaper, so within two points."""
    found = {name: row.corpus_f1 for name, row in rows(wsj_sample(), KLEIN, num_seeds=1).items()}
    published = {"left-branching": 28.7, "right-branching": 61.7, "binary upper bound": 88.1}
    random = {"random, uniform over trees": 34.7}  # for random splits it would be 40
    assert {name: found[name] for name in published | random} == pytest.approx(published | random, abs=2)
    assert [round(found[name], 1) for name in published] == [29.3, 63.3, 88.2]
