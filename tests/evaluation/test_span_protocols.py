import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.corpora.readers import read_sentences
from treelm.errors import InputError
from treelm.evaluation.evalb_files import Bracketing, bracketing_of, gold_bracketing, parse_bracketing
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
    kept_words,
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


KEEP = [True, True, False, True, True, False]


@pytest.mark.parametrize(
    ("protocol", "keep", "expected"),
    [
        (WSJ10, KEEP, {(0, 2): 1, (2, 4): 1}),
        (PLAIN, [True] * 6, {(0, 6): 1, (0, 2): 2, (3, 5): 1, (4, 5): 1}),
        (KLEIN, KEEP, {(0, 4): 1, (0, 2): 1, (2, 4): 1}),
        (replace(WSJ10, drop_single_words=False), KEEP, {(0, 2): 1, (2, 4): 1, (3, 4): 1}),
        (replace(WSJ10, drop_whole_sentence=False), KEEP, {(0, 4): 1, (0, 2): 1, (2, 4): 1}),
        (replace(WSJ10, duplicates="multiset"), KEEP, {(0, 2): 2, (2, 4): 1}),
    ],
)
def test_spans_by_protocol(protocol: SpanProtocol, keep: list[bool], expected: dict[tuple[int, int], int]) -> None:
    assert spans_of(parse_bracketing(GOLD).over(keep), protocol) == expected


RIGHT = "(X (DT the) (X (NN dog) (, ,) (X (VBZ sees) (PRP it))) (. .))"
NO_SPANS, TWO_WORDS, FLAT = "(S (X (NN a) (NN b)) (. .))", "(S (NN a) (NN b))", "(S (NN a) (NN b) (NN c))"
APOSTROPHE, CURRENCY = "(S (A (NNS a) (POS ')) (NN b) (NN c))", "(S (NP ($ $) (CD 5)) (VP (VB a) (NN b)))"
TRACE, PRONOUNCED = "(S (NP (-NONE- *)) (VP (VB go) (NP (NN a) (NN b))))", "(S (VP (VB go) (NP (NN a) (NN b))))"
OTHER_TAGS = "(S (A (-NONE- *) (NN a) (NN b)) (NN c) (Fp .))"
OLD_DOG, FLAT_DOG = (
    "(S (NP (DT the) (JJ old) (NN dog)) (VBZ barks) (. .))",
    "(X (X (X the) (X old) (X dog)) (X barks) (X .))",
)
THIRTY = "(S " + "(NP (NN a) (NN b)) " * 30 + "(. .))"


@pytest.mark.parametrize(
    ("gold", "predicted", "protocol", "expected"),  # matched, gold and predicted spans
    [
        pytest.param(
            GOLD, "(X (X (DT the) (NN dog)) (, ,) (X (X (VBZ sees)) (PRP it)) (. .))", WSJ10, (2, 2, 2), id="no labels"
        ),
        pytest.param(GOLD, RIGHT, WSJ10, (1, 2, 2), id="by hand"),
        pytest.param(GOLD, RIGHT, KLEIN, (2, 3, 3), id="Klein counts the whole sentence"),
        pytest.param(NO_SPANS, NO_SPANS, WSJ10, (0, 0, 0), id="whole sentence after removal"),
        pytest.param("(S (NN a) (. .))", "(S (NN a) (. .))", KLEIN, (0, 0, 0), id="one word"),
        pytest.param(TWO_WORDS, TWO_WORDS, KLEIN, (1, 1, 1), id="two words"),
        pytest.param(
            GOLD, "(X (X (DT the) (NN dog)) (X (VBZ sees) (PRP it)))", WSJ10, (2, 2, 2), id="over the kept words only"
        ),
        pytest.param(TRACE, PRONOUNCED, WSJ10, (1, 1, 1), id="traces are no words"),
        pytest.param(TRACE, PRONOUNCED, PLAIN, (3, 3, 3), id="nor by another protocol"),
        pytest.param(OTHER_TAGS, "(S (A (X a) (X b)) (X c) (X .))", WSJ10, (1, 1, 1), id="nor by the word list"),
        pytest.param(APOSTROPHE, APOSTROPHE, WSJ10, (1, 1, 1), id="a tagged apostrophe is kept"),
        pytest.param(CURRENCY, CURRENCY, WSJ10, (1, 1, 1), id="currency signs are removed"),
        pytest.param(THIRTY, THIRTY, NO_PUNCTUATION, (30, 30, 30), id="sentences of any length"),
        pytest.param(
            OLD_DOG, "(X (X (X (X (X the) (X old)) (X dog)) (X barks)) (X .))", BINARISED, (4, 4, 4), id="binarised"
        ),
        pytest.param(OLD_DOG, FLAT_DOG, BINARISED, (4, 4, 4), id="flat trees are binarised too"),
    ],
)
def test_spans_are_counted(gold: str, predicted: str, protocol: SpanProtocol, expected: tuple[int, int, int]) -> None:
    result = score(gold, predicted, protocol)
    assert counts(result) == expected
    if result.corpus.gold:
        assert result.corpus_f1 == pytest.approx(200 * expected[0] / (expected[1] + expected[2]))


def test_length_is_counted_after_removal() -> None:
    ten = "(S (A (NN a) (NN a))" + " (NN a)" * 8 + " (, ,) (. .))"
    eleven = ten.replace("(, ,)", "(NN a)")
    scored = [
        len(score(tree, tree, protocol).sentences) for tree in (ten, eleven) for protocol in (WSJ10, KLEIN, WSJ40)
    ]
    assert scored == [1, 1, 1, 0, 0, 1]
    assert score(eleven, eleven).num_left_out == 1


def test_f1_of_sentences_without_gold_spans() -> None:
    assert score(TWO_WORDS, TWO_WORDS).sentence_f1 == 100.0
    deep = "(S (X (NN a) (NN b)) (NN c))"
    assert score(FLAT, deep).sentence_f1 == 0.0
    assert score(deep, FLAT).sentence_f1 == 0.0
    left_out = replace(WSJ10, without_spans="left_out")
    assert score(FLAT, deep, left_out).num_left_out == 1
    assert len(score(deep, FLAT, left_out).sentences) == 1


def test_corpus_and_sentence_f1() -> None:
    good = "(S (A (NN a) (NN b)) (B (NN c) (NN d)))"
    bad = "(S (NN a) (A (NN b) (NN c) (NN d)))"
    tiny = "(S (A (NN a) (NN b)) (NN c))"
    gold = [parse_bracketing(one) for one in (good, tiny)]
    result = score_spans(gold, [parse_bracketing(one) for one in (bad, tiny)], WSJ10)
    assert result.corpus_f1 == pytest.approx(2 * 1 / (2 + 3) * 100)
    assert result.sentence_f1 == pytest.approx(50.0)


def test_sentences_that_cannot_be_compared_are_errors_that_are_counted() -> None:
    result = score(GOLD, "(S (NN x))")
    neither = "sentence 1: 1 predicted words are neither the gold words nor those that the protocol keeps"
    assert (result.sentences, result.errors) == ((), (neither,))
    assert result.corpus_f1 == result.sentence_f1 == 0.0
    assert "not closed" in score(GOLD, "(S (NN x)").errors[0]
    with pytest.raises(InputError, match="1 gold trees but 0"):
        score_spans([parse_bracketing(GOLD)], [], WSJ10)


UNTAGGED = Tree("S", [Tree("A", ["a", "b"]), ",", Tree("B", ["c", "d"]), "."])


def test_punctuation_and_currency_signs_by_word_list() -> None:
    currency = Tree("S", [Tree("NP", ["$", "5"]), Tree("VP", ["a", "b"])])
    for tree, expected in ((UNTAGGED, (2, 2, 2)), (currency, (1, 1, 1))):
        result = score_spans([bracketing_of(tree)], [bracketing_of(tree)], WSJ10)
        assert (counts(result), result.name) == (expected, "wsj10 (punctuation by word list)")
    assert score(GOLD, GOLD).name == "wsj10"


@pytest.mark.parametrize(
    ("comma", "stop", "name"),
    [("$,", "$.", "wsj10"), ("PUNCT", "PUNCT", "wsj10"), ("Fc", "Fp", "wsj10 (punctuation by word list)")],
)
def test_tags_of_other_treebanks_remove_punctuation_too(comma: str, stop: str, name: str) -> None:
    tree = f"(S (A (NN a) (NN b)) ({comma} ,) (B (NN c) (NN d)) ({stop} .))"
    result = score(tree, "(S (A (X a) (X b)) (X ,) (B (X c) (X d)) (X .))")
    assert (counts(result), result.name) == ((2, 2, 2), name)


def test_tags_decide_where_some_are_known() -> None:
    wrong = GOLD.replace("(, ,)", "(NN ,)")
    assert (
        score_spans([parse_bracketing(GOLD), parse_bracketing(wrong)], [parse_bracketing(GOLD)] * 2, WSJ10).name
        == "wsj10"
    )
    chinese = parse_bracketing("(S (A (NN a) (NN b)) (PU \uff0c) (B (NN c) (NN d)) (PU \u3002))")
    both = [chinese, parse_bracketing("(S (NN a) (NN .))")]
    result = score_spans(both, both, WSJ10)
    assert (result.name, counts(result)) == ("wsj10", (2, 2, 2))
    bare, tagged = bracketing_of(UNTAGGED), bracketing_of(UNTAGGED, tags=["X", "X", ",", "X", "X", "."])
    assert counts(score_spans([bare, tagged], [bare, tagged], WSJ10)) == (4, 4, 4)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Bracketing, Bracketing]:
    words = [f"w{i}" for i in range(draw(st.integers(1, 8)))]

    def tree(start: int, end: int) -> Tree:
        if end - start == 1:
            return Tree("X", words[start:end])
        cuts = sorted({start, end, *draw(st.lists(st.integers(start + 1, end - 1), min_size=1, max_size=3))})
        return Tree("X", [tree(*part) for part in itertools.pairwise(cuts)])

    return bracketing_of(tree(0, len(words))), bracketing_of(tree(0, len(words)))


@pytest.mark.parametrize(("xpos", "name"), [("_", "wsj10"), ("NN", "wsj10 (punctuation by word list)")])
def test_punctuation_of_a_treebank_without_xpos_is_known_by_upos(xpos: str, name: str, tmp_path: Path) -> None:
    words = (("ja", "INTJ", 0), ("¡", "PUNCT", 1), (",", "PUNCT", 1))  # one of them is in no word list
    rows = (f"{i}\t{word}\t_\t{upos}\t{xpos}\t_\t{head}\tdep\t_\t_" for i, (word, upos, head) in enumerate(words, 1))
    (tmp_path / "x.conllu").write_text("\n".join(rows) + "\n\n", encoding="utf-8")
    gold = [gold_bracketing(one) for one in read_sentences(tmp_path / "x.conllu")]
    result = score_spans(gold, gold, WSJ10)
    assert result.name == name
    assert kept_words(gold[0], result.removal) == [True, xpos != "_", False]


@given(pairs(), st.sampled_from([*PROTOCOLS.values()]))
def test_a_tree_scores_100_against_itself_under_every_protocol(
    pair: tuple[Bracketing, Bracketing], protocol: SpanProtocol
) -> None:
    result = score_spans(pair[:1], pair[:1], protocol)
    assert result.num_left_out or result.corpus_f1 == result.sentence_f1 == 100.0


@given(pairs(), st.sampled_from([*PROTOCOLS.values()]))
def test_swapping_the_sides_swaps_precision_and_recall(
    pair: tuple[Bracketing, Bracketing], protocol: SpanProtocol
) -> None:
    one = score_spans(pair[:1], pair[1:], protocol).corpus
    other = score_spans(pair[1:], pair[:1], protocol).corpus
    assert (one.matched, one.gold, one.predicted) == (other.matched, other.predicted, other.gold)
