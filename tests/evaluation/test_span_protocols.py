import itertools
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.som import plain as structure
from treelm.errors import InputError
from treelm.evaluation.evalb_files import Bracketing, bracketing_of, parse_bracketing
from treelm.evaluation.span_protocols import (
    BINARISED,
    KLEIN,
    NO_PUNCTUATION,
    PLAIN,
    PROTOCOLS,
    WSJ10,
    WSJ40,
    SpanProtocol,
    SpanResult,
    find_protocol,
    left_binarised,
    score_spans,
    spans_of,
)
from treelm.trees.tree import Tree

GOLD = "(S (NP (NP (DT the) (NN dog))) (, ,) (VP (VBZ sees) (NP (PRP it))) (. .))"


def score(gold: str, predicted: str, protocol: SpanProtocol = WSJ10) -> SpanResult:
    return score_spans([parse_bracketing(gold)], [parse_bracketing(predicted)], protocol)


def counts(result: SpanResult) -> tuple[int, int, int]:
    assert not result.errors
    return result.corpus.matched, result.corpus.gold, result.corpus.predicted


def spans(protocol: SpanProtocol, keep: list[bool]) -> Counter[tuple[int, int]]:
    return spans_of(parse_bracketing(GOLD), keep, protocol)


KEEP = [True, True, False, True, True, False]


def test_spans_by_protocol() -> None:
    assert spans(WSJ10, KEEP) == {(0, 2): 1, (2, 4): 1}
    assert spans(PLAIN, [True] * 6) == {(0, 6): 1, (0, 2): 2, (3, 5): 1, (4, 5): 1}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"drop_single_words": False}, {(0, 2): 1, (2, 4): 1, (3, 4): 1}),
        ({"drop_whole_sentence": False}, {(0, 4): 1, (0, 2): 1, (2, 4): 1}),
        ({"duplicates": "multiset"}, {(0, 2): 2, (2, 4): 1}),
    ],
)
def test_protocol_switches(change: dict[str, object], expected: dict[tuple[int, int], int]) -> None:
    assert spans(replace(WSJ10, **change), KEEP) == expected  # type: ignore[arg-type]


def test_labels_do_not_matter_and_hand_counted_f1() -> None:
    result = score(GOLD, "(X (X (DT the) (NN dog)) (, ,) (X (X (VBZ sees)) (PRP it)) (. .))")
    assert counts(result) == (2, 2, 2)
    result = score(GOLD, "(X (DT the) (X (NN dog) (, ,) (X (VBZ sees) (PRP it))) (. .))")
    assert counts(result) == (1, 2, 2)
    assert result.corpus_f1 == result.sentence_f1 == 50.0


def test_whole_sentence_span_after_removal_is_dropped() -> None:
    assert counts(score("(S (X (NN a) (NN b)) (. .))", "(S (X (NN a) (NN b)) (. .))")) == (0, 0, 0)


def test_length_is_counted_after_removal() -> None:
    ten = "(S (A (NN a) (NN a))" + " (NN a)" * 8 + " (, ,) (. .))"
    eleven = ten.replace("(, ,)", "(NN a)")
    assert len(score(ten, ten).sentences) == 1
    assert len(score(eleven, eleven).sentences) == 0
    assert score(eleven, eleven).num_left_out == 1
    assert len(score(eleven, eleven, WSJ40).sentences) == 1


def test_f1_of_sentences_without_gold_spans() -> None:
    assert score("(S (NN a) (NN b))", "(S (NN a) (NN b))").sentence_f1 == 100.0
    flat, deep = "(S (NN a) (NN b) (NN c))", "(S (X (NN a) (NN b)) (NN c))"
    assert score(flat, deep).sentence_f1 == 0.0
    assert score(deep, flat).sentence_f1 == 0.0
    left_out = replace(WSJ10, without_spans="left_out")
    assert score(flat, deep, left_out).num_left_out == 1
    assert len(score(deep, flat, left_out).sentences) == 1


def test_corpus_and_sentence_f1() -> None:
    good = "(S (A (NN a) (NN b)) (B (NN c) (NN d)))"
    bad = "(S (NN a) (A (NN b) (NN c) (NN d)))"
    tiny = "(S (A (NN a) (NN b)) (NN c))"
    gold = [parse_bracketing(one) for one in (good, tiny)]
    result = score_spans(gold, [parse_bracketing(one) for one in (bad, tiny)], WSJ10)
    assert result.corpus_f1 == pytest.approx(2 * 1 / (2 + 3) * 100)
    assert result.sentence_f1 == pytest.approx(50.0)


def test_predicted_trees_may_stand_over_the_kept_words_only() -> None:
    assert counts(score(GOLD, "(X (X (DT the) (NN dog)) (X (VBZ sees) (PRP it)))")) == (2, 2, 2)


def test_traces_are_never_words() -> None:
    gold = "(S (NP (-NONE- *)) (VP (VB go) (NP (NN a) (NN b))))"
    for protocol in (WSJ10, PLAIN):
        result = score(gold, "(S (VP (VB go) (NP (NN a) (NN b))))", protocol)
        assert result.corpus_f1 == 100.0


def test_other_words_are_an_error_that_is_counted() -> None:
    result = score(GOLD, "(S (NN x))")
    assert result.sentences == ()
    assert result.errors == (
        "sentence 1: 1 predicted words are neither the gold words nor those that the protocol keeps",
    )
    assert result.corpus_f1 == result.sentence_f1 == 0.0


def test_a_malformed_tree_is_an_error_that_is_counted() -> None:
    assert "not closed" in score(GOLD, "(S (NN x)").errors[0]


def test_punctuation_by_word_list() -> None:
    tree = Tree("S", [Tree("A", ["a", "b"]), ",", Tree("B", ["c", "d"]), "."])
    result = score_spans([bracketing_of(tree)], [bracketing_of(tree)], WSJ10)
    assert counts(result) == (2, 2, 2)
    assert result.name == "wsj10 (punctuation by word list)"
    assert score(GOLD, GOLD).name == "wsj10"


@pytest.mark.parametrize(
    ("comma", "stop", "name"),
    [("$,", "$.", "wsj10"), ("PUNCT", "PUNCT", "wsj10"), ("Fc", "Fp", "wsj10 (punctuation by word list)")],
)
def test_tags_of_other_treebanks_remove_punctuation_too(comma: str, stop: str, name: str) -> None:
    tree = f"(S (A (NN a) (NN b)) ({comma} ,) (B (NN c) (NN d)) ({stop} .))"
    result = score(tree, "(S (A (X a) (X b)) (X ,) (B (X c) (X d)) (X .))")
    assert counts(result) == (2, 2, 2)
    assert result.name == name


def test_one_mistagged_comma_keeps_removal_by_tags() -> None:
    wrong = GOLD.replace("(, ,)", "(NN ,)")
    result = score_spans([parse_bracketing(GOLD), parse_bracketing(wrong)], [parse_bracketing(GOLD)] * 2, WSJ10)
    assert result.name == "wsj10"


def test_known_tags_decide_where_one_full_stop_has_another() -> None:
    gold = [parse_bracketing("(S (A (NN a) (NN b)) (PU \uff0c) (B (NN c) (NN d)) (PU \u3002))")]
    result = score_spans(
        [*gold, parse_bracketing("(S (NN a) (NN .))")], [*gold, parse_bracketing("(S (NN a) (NN .))")], WSJ10
    )
    assert (result.name, counts(result)) == ("wsj10", (2, 2, 2))


def test_tagged_apostrophe_is_kept() -> None:
    gold = "(S (A (NNS a) (POS ')) (NN b) (NN c))"
    assert counts(score(gold, gold)) == (1, 1, 1)


def test_traces_are_never_words_where_the_word_list_decides() -> None:
    gold = "(S (A (-NONE- *) (NN a) (NN b)) (NN c) (Fp .))"
    assert counts(score(gold, "(S (A (X a) (X b)) (X c) (X .))")) == (1, 1, 1)


def test_untagged_sentence_in_tagged_corpus() -> None:
    tree = Tree("S", [Tree("A", ["a", "b"]), ",", Tree("B", ["c", "d"]), "."])
    bare, tagged = bracketing_of(tree), bracketing_of(tree, tags=["X", "X", ",", "X", "X", "."])
    assert counts(score_spans([bare, tagged], [bare, tagged], WSJ10)) == (4, 4, 4)


def test_currency_signs_are_removed_by_both_means() -> None:
    tagged = "(S (NP ($ $) (CD 5)) (VP (VB a) (NN b)))"
    tree = Tree("S", [Tree("NP", ["$", "5"]), Tree("VP", ["a", "b"])])
    assert counts(score(tagged, tagged)) == (1, 1, 1)
    assert counts(score_spans([bracketing_of(tree)], [bracketing_of(tree)], WSJ10)) == (1, 1, 1)


def test_protocols_are_found_by_name_and_described() -> None:
    assert find_protocol("wsj40") is WSJ40
    assert set(PROTOCOLS) == {"wsj10", "klein", "wsj40", "plain", "no-punctuation", "binarised"}
    assert "over 10 words" in WSJ10.description
    assert PLAIN.description.startswith("removed: nothing")
    with pytest.raises(InputError, match="wsj10, klein, wsj40, plain"):
        find_protocol("wsj20")


def test_different_numbers_of_trees_are_refused() -> None:
    with pytest.raises(InputError, match="1 gold trees but 0"):
        score_spans([parse_bracketing(GOLD)], [], WSJ10)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Bracketing, Bracketing]:
    words = [f"w{i}" for i in range(draw(st.integers(1, 8)))]

    def tree(start: int, end: int) -> Tree:
        if end - start == 1:
            return Tree("X", words[start:end])
        cuts = sorted({start, end, *draw(st.lists(st.integers(start + 1, end - 1), min_size=1, max_size=3))})
        return Tree("X", [tree(*part) for part in itertools.pairwise(cuts)])

    return bracketing_of(tree(0, len(words))), bracketing_of(tree(0, len(words)))


SYMMETRIC = [protocol for protocol in PROTOCOLS.values() if not protocol.binarises_gold]  # both sides alike


@given(pairs(), st.sampled_from(SYMMETRIC))
def test_a_tree_scores_100_against_itself_under_every_protocol(
    pair: tuple[Bracketing, Bracketing], protocol: SpanProtocol
) -> None:
    result = score_spans(pair[:1], pair[:1], protocol)
    assert result.num_left_out or result.corpus_f1 == result.sentence_f1 == 100.0


@given(pairs(), st.sampled_from(SYMMETRIC))
def test_swapping_the_sides_swaps_precision_and_recall(
    pair: tuple[Bracketing, Bracketing], protocol: SpanProtocol
) -> None:
    one = score_spans(pair[:1], pair[1:], protocol).corpus
    other = score_spans(pair[1:], pair[:1], protocol).corpus
    assert (one.matched, one.gold, one.predicted) == (other.matched, other.predicted, other.gold)


def test_binarised_protocol() -> None:
    gold = "(S (NP (DT the) (JJ old) (NN dog)) (VBZ barks) (. .))"
    exact = "(X (X (X (X (X the) (X old)) (X dog)) (X barks)) (X .))"
    assert counts(score(gold, exact, BINARISED)) == (4, 4, 4)
    flat = "(X (X (X the) (X old) (X dog)) (X barks) (X .))"
    assert counts(score(gold, flat, BINARISED)) == (2, 4, 2)
    assert "binary from the left" in BINARISED.description


def test_no_punctuation_protocol() -> None:
    gold = "(S " + "(NP (NN a) (NN b)) " * 30 + "(. .))"
    assert counts(score(gold, gold, NO_PUNCTUATION)) == (30, 30, 30)


def test_klein_protocol() -> None:
    assert spans(KLEIN, KEEP) == {(0, 4): 1, (0, 2): 1, (2, 4): 1}
    right = "(X (DT the) (X (NN dog) (, ,) (X (VBZ sees) (PRP it))) (. .))"
    assert counts(score(GOLD, right, KLEIN)) == (2, 3, 3)
    assert counts(score(GOLD, right, WSJ10)) == (1, 2, 2)
    assert counts(score("(S (NN a) (. .))", "(S (NN a) (. .))", KLEIN)) == (0, 0, 0)
    assert score("(S (NN a) (. .))", "(S (NN a) (. .))", KLEIN).num_left_out == 1
    assert counts(score("(S (NN a) (NN b))", "(S (NN a) (NN b))", KLEIN)) == (1, 1, 1)
    eleven = "(S" + " (NN a)" * 11 + ")"
    assert score(eleven, eleven, KLEIN).num_left_out == 1


@given(st.integers(1, 9), st.integers(0, 2**32))
def test_left_binarised_spans_are_those_of_the_binarised_tree(num_words: int, seed: int) -> None:
    tree = random_tree(num_words, Random(seed))
    expected = {(start, end + 1) for start, end in structure.spans_of(structure.binarised(tree))}
    spans = {(span.start, span.end) for span in as_tree(tree).spans()}
    assert {span for span in left_binarised(spans) if span[1] - span[0] > 1} == expected


def random_tree(num_words: int, random: Random) -> structure.Nested:
    return structure.random_tree(num_words, random) if num_words > 1 else [0]


def as_tree(node: structure.Nested) -> Tree:
    return Tree("X", [as_tree(child) if isinstance(child, list) else str(child) for child in node])
