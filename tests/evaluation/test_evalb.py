import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.errors import InputError
from treelm.evaluation.evalb import BracketingResult, SentenceRow, score_bracketings, score_sentence
from treelm.evaluation.evalb_files import (
    COLLINS,
    NEW,
    Bracketing,
    Parameters,
    bracketing_of,
    parse_bracketing,
)
from treelm.evaluation.report import evalb_json, evalb_text
from treelm.trees.tree import Tree


def score(gold: str, predicted: str, parameters: Parameters = COLLINS) -> SentenceRow:
    return score_sentence(parse_bracketing(gold), parse_bracketing(predicted), parameters)


def counts(row: SentenceRow) -> tuple[int, int, int]:
    assert row.status == "valid", row.problem
    return row.matched, row.gold_brackets, row.predicted_brackets


GOLD = "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (PRP it))) (. .))"


def deleting(label: str) -> Parameters:
    return replace(COLLINS, delete_labels=(*COLLINS.delete_labels, label))


ONCE, THRICE = "(NP (NN a) (NN b))", "(NP (NP (NP (NN a) (NN b))))"
ATTACHED, ELSEWHERE = "(S (NP (NN a) (, ,)) (VP (VB b) (. .)))", "(S (NP (NN a)) (, ,) (VP (VB b)) (. .))"
TRACES = "(VP (VBD said) (SBAR (-NONE- 0) (S (-NONE- *T*-1))) (PRN (, ,)))"
ADVP, PRT = "(S (ADVP (RB a)) (NN b))", "(S (PRT (RB a)) (NN b))"


@pytest.mark.parametrize(
    ("gold", "predicted", "parameters", "expected"),  # matched, gold and predicted brackets
    [
        pytest.param(GOLD, GOLD.replace("NP", "QP"), COLLINS, (2, 4, 4), id="labels must agree"),
        pytest.param(GOLD, GOLD.replace("NP", "QP"), COLLINS.unlabeled(), (4, 4, 4), id="unlabelled"),
        pytest.param(f"(TOP {GOLD})", GOLD, COLLINS, (4, 4, 4), id="TOP is deleted, its words stay"),
        pytest.param(f"(ROOT {GOLD})", GOLD, COLLINS, (4, 5, 4), id="ROOT counts"),
        pytest.param(f"(ROOT {GOLD})", GOLD, deleting("ROOT"), (4, 4, 4), id="ROOT deleted"),
        pytest.param(ATTACHED, ELSEWHERE, COLLINS, (3, 3, 3), id="punctuation is deleted by tag"),
        pytest.param(ATTACHED, ELSEWHERE, replace(COLLINS, delete_labels=()), (1, 3, 3), id="punctuation counts"),
        pytest.param("(S (NN a) (. .))", "(S (NN a) (. !))", COLLINS, (1, 1, 1), id="deleted words may differ"),
        pytest.param(TRACES, "(VP (VBD said) (, ,))", COLLINS, (1, 1, 1), id="empty constituents are dropped"),
        pytest.param(
            "(S-CLF (NP-SBJ=2 (NN a)) (VP (VB b)))",
            "(S (NP (NN a)) (VP=1-X (VB b)))",
            COLLINS,
            (3, 3, 3),
            id="function tags and indices are cut",
        ),
        pytest.param("(S (-A (NN a)) (NN b))", "(S (-B (NN a)) (NN b))", COLLINS, (2, 2, 2), id="-A is cut to nothing"),
        pytest.param(ADVP, PRT, COLLINS, (2, 2, 2), id="equal labels"),
        pytest.param(PRT, ADVP, COLLINS, (2, 2, 2), id="equal labels are symmetric"),
        pytest.param(ADVP, "(S (RB a) (NN b))", deleting("PRT"), (1, 1, 1), id="equal to a deleted label"),
        pytest.param(
            "(S (NN a))", "(S (NN b))", replace(COLLINS, equal_words=(("a", "b"),)), (1, 1, 1), id="equal words"
        ),
        pytest.param("(S (NN -LSB-a-RSB-))", "(S (NN [a]))", COLLINS, (1, 1, 1), id="escaped brackets"),
        pytest.param(ONCE, THRICE, COLLINS, (1, 1, 3), id="each bracket matches once"),
        pytest.param(THRICE, ONCE, COLLINS, (1, 3, 1), id="each gold bracket matches once"),
        pytest.param(THRICE, THRICE, COLLINS, (3, 3, 3), id="equal brackets match as often as both have them"),
        pytest.param(
            "(S (VP (NN a) (NN b)))", "(VP (S (NN a) (NN b)))", COLLINS, (2, 2, 2), id="unary chains in any order"
        ),
    ],
)
def test_brackets_are_counted(
    gold: str, predicted: str, parameters: Parameters, expected: tuple[int, int, int]
) -> None:
    assert counts(score(gold, predicted, parameters)) == expected


@pytest.mark.parametrize(
    ("gold", "predicted", "status", "problem"),
    [
        ("(S (NN a) (. .))", "(S (NN a) (NN .))", "error", "1 gold words but 2 predicted ones after deletion"),
        ("(S (NN a))", "(S (NN b))", "error", "gold word 'a' but predicted word 'b'"),
        (GOLD, "(S (NN a)", "error", "the predicted tree cannot be read: 1 brackets are not closed"),
        ("(S (. .))", "(S (NN a))", "error", "0 gold words but 1 predicted ones after deletion"),
        (GOLD, "", "skipped", "the predicted tree has no words after deletion"),
        (GOLD, "(S (. .))", "skipped", "the predicted tree has no words after deletion"),
    ],
)
def test_sentences_that_are_not_scored(gold: str, predicted: str, status: str, problem: str) -> None:
    row = score(gold, predicted)
    assert (row.status, row.problem) == (status, problem)


def test_crossing_counts_predicted_brackets() -> None:
    gold = "(S (A (NN a) (NN b)) (B (NN c) (NN d)))"
    predicted = "(S (NN a) (X (Y (NN b) (NN c)) (NN d)))"
    row = score(gold, predicted)
    assert row.crossing == 2  # Y(1,3) and X(1,4) both cross A(0,2)
    assert score(gold, gold).crossing == 0


def test_a_sentence_of_five_thousand_words_is_scored() -> None:
    num_words = 5_000
    right = parse_bracketing("(A (NN a) " * num_words + "(NN a)" + ")" * num_words)
    left = parse_bracketing("(A " * num_words + "(NN a)" + " (NN a))" * num_words)
    row = score_sentence(right, left)
    assert (row.matched, row.gold_brackets, row.crossing) == (1, num_words, num_words - 1)


def test_length_counts_punctuation_but_no_traces() -> None:
    assert score("(S (NN a) (-NONE- *) (. .))", "(S (NN a) (. .))").length == 2


def test_tagging_accuracy() -> None:
    row = score("(S (NN a) (ADVP b) (NN c) (. .))", "(S (VB a) (PRT b) (NN c) (. .))")
    assert (row.words, row.correct_tags) == (3, 2)


def test_misquoted_word_is_kept_by_new_rules() -> None:
    gold, predicted = "(NP (NNS dogs) (POS '))", "(NP (NNS dogs) ('' '))"
    assert score(gold, predicted).status == "error"
    row = score(gold, predicted, NEW)
    assert counts(row) == (1, 1, 1)
    assert (row.words, row.correct_tags) == (2, 1)
    assert counts(score(predicted, gold, NEW)) == (1, 1, 1)


def corpus(pairs: list[tuple[str, str]], parameters: Parameters = COLLINS) -> BracketingResult:
    gold = [parse_bracketing(one) for one, _ in pairs]
    return score_bracketings(gold, [parse_bracketing(other) for _, other in pairs], parameters)


PAIRS = [
    (GOLD, GOLD),
    (GOLD, "(S (NP (DT the) (NN dog)) (VP (VBZ sees)) (NP (PRP it)) (. .))"),
    (GOLD, "(S (NP (DT a) (NN dog)) (VP (VBZ sees) (NP (PRP it))) (. .))"),
    (GOLD, ""),
    ("(S (NN a) (NN b) (NN c) (NN d) (NN e) (NN f))", "(S (X (NN a) (NN b)) (NN c) (NN d) (NN e) (NN f))"),
]


def test_totals_leave_out_errors_and_skips_and_count_them() -> None:
    total = corpus(PAIRS).total
    assert (len(total.rows), total.count("valid"), total.count("error"), total.count("skipped")) == (5, 3, 1, 1)
    assert (total.matched, total.gold_brackets, total.predicted_brackets) == (8, 9, 10)
    assert total.recall == pytest.approx(100 * 8 / 9)
    assert total.precision == 80.0
    assert total.f1 == pytest.approx(2 * 8 / 19 * 100)
    assert total.sentence_f1 == pytest.approx((100 + 75 + 200 / 3) / 3)
    assert total.complete_match == pytest.approx(100 / 3)
    assert total.no_crossing == total.two_or_less_crossing == 100.0


def test_cut_off_takes_sentences_up_to_the_length() -> None:
    result = corpus(PAIRS, replace(COLLINS, cutoff_length=5))
    assert [row.number for row in result.total_up_to_cutoff.rows] == [1, 2, 3, 4]
    assert (result.total_up_to_cutoff.matched, result.total_up_to_cutoff.gold_brackets) == (7, 8)
    assert len(corpus(PAIRS, replace(COLLINS, cutoff_length=4)).total_up_to_cutoff.rows) == 0


def test_no_brackets_at_all_is_zero_not_an_exception() -> None:
    total = corpus([("(TOP (NN a))", "(TOP (NN a))")]).total
    assert (total.f1, total.recall, total.complete_match) == (0.0, 0.0, 100.0)


def test_different_numbers_of_trees_are_refused() -> None:
    with pytest.raises(InputError, match="1 gold trees but 2 predicted ones"):
        score_bracketings([parse_bracketing(GOLD)], [parse_bracketing(GOLD)] * 2)


def test_untagged_predictions_get_gold_tags() -> None:
    gold = parse_bracketing("(S (NP (NN a) (-NONE- *)) (VP (VB b)) (. .))")
    untagged = bracketing_of(Tree("S", [Tree("NP", ["a"]), Tree("VP", ["b"]), "."]))
    result = score_bracketings([gold], [untagged])
    assert counts(result.total.rows[0]) == (3, 3, 3)
    assert result.predicted_tags == "gold"
    assert "gold tags" in result.notes[0]


def test_a_counted_outer_bracket_is_noted() -> None:
    assert any("outer bracket" in note for note in corpus([(f"(ROOT {GOLD})", GOLD)]).notes)
    assert corpus([(f"(TOP {GOLD})", GOLD)]).notes == ()


def test_more_errors_than_evalb_allows_are_noted() -> None:
    result = corpus([(GOLD, "(S (NN x))")] * 11 + [(GOLD, GOLD)])
    assert result.total.count("valid") == 1
    assert "MAX_ERROR" in result.notes[0]


def test_text_has_evalbs_columns() -> None:
    lines = evalb_text(corpus(PAIRS)).splitlines()
    assert lines[3] == "   1    5    0  100.00 100.00     4      4    4      0      4     4   100.00"
    assert lines[5] == "   3    5    1    0.00   0.00     0      0    0      0      0     0     0.00"
    assert lines[9] == "                 88.89  80.00      8     9    10      0     14    14   100.00"
    assert "Bracketing FMeasure       =  84.21" in lines
    assert "-- len<=40 --" in lines
    assert "protocol: evalb (collins, labelled)" in lines
    assert "error: sentence 3: gold word 'the' but predicted word 'a'" in lines


def test_json_holds_the_same_figures() -> None:
    result = corpus(PAIRS)
    values = json.loads(json.dumps(evalb_json(result)))
    assert values["all"]["f1"] == result.total.f1
    assert values["all"]["num_skipped"] == 1
    assert [row["status"] for row in values["sentences"]] == ["valid", "valid", "error", "skipped", "valid"]
    assert values["protocol"] == "evalb (collins, labelled)"
    assert "sentences" not in evalb_json(result, sentences=False)


LABELS = st.sampled_from(["S", "NP", "VP", "ADVP", "PRT", "TOP", "NP-SBJ"])
TAGS = st.sampled_from(["NN", "VB", ",", ".", "-NONE-"])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Bracketing, Bracketing]:
    tags = draw(st.lists(TAGS, min_size=1, max_size=7))
    words = [f"w{i}" for i in range(len(tags))]

    def tree(start: int, end: int) -> Tree | str:
        if end - start == 1 and draw(st.booleans()):
            return words[start]
        label, cut = draw(LABELS), draw(st.integers(start, end - 1))
        parts = [(start, cut), (cut, end)] if cut > start else [(start, end)]
        if parts == [(start, end)]:
            return Tree(label, words[start:end])
        return Tree(label, [tree(*part) for part in parts])

    def root() -> Tree:
        node = tree(0, len(words))
        return node if isinstance(node, Tree) else Tree("S", [node])

    return bracketing_of(root(), tags=tags), bracketing_of(root(), tags=tags)


@given(pairs())
def test_a_tree_scores_100_against_itself(pair: tuple[Bracketing, Bracketing]) -> None:
    row = score_sentence(pair[0], pair[0])
    assert row.matched == row.gold_brackets == row.predicted_brackets
    assert row.crossing == 0
    assert row.correct_tags == row.words


@given(pairs())
def test_swapping_the_sides_swaps_precision_and_recall(pair: tuple[Bracketing, Bracketing]) -> None:
    one, other = score_sentence(*pair), score_sentence(*reversed(pair))
    assert (one.precision, one.recall, one.matched) == (other.recall, other.precision, other.matched)


@given(pairs())
def test_unlabelled_matches_at_least_labelled(pair: tuple[Bracketing, Bracketing]) -> None:
    labeled, unlabeled = score_sentence(*pair), score_sentence(*pair, COLLINS.unlabeled())
    assert unlabeled.matched >= labeled.matched
    assert unlabeled.gold_brackets == labeled.gold_brackets
