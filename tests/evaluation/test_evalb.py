import json
from dataclasses import replace
from pathlib import Path

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
    read_bracketings,
)
from treelm.evaluation.report import evalb_json, evalb_text
from treelm.trees.tree import Tree


def score(gold: str, predicted: str, parameters: Parameters = COLLINS) -> SentenceRow:
    return score_sentence(parse_bracketing(gold), parse_bracketing(predicted), parameters)


def counts(row: SentenceRow) -> tuple[int, int, int]:
    assert row.status == "valid", row.problem
    return row.matched, row.gold_brackets, row.predicted_brackets


GOLD = "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (PRP it))) (. .))"


def test_hand_counted_sentence() -> None:
    row = score(GOLD, "(S (NP (DT the) (NN dog)) (VP (VBZ sees)) (NP (PRP it)) (. .))")
    assert counts(row) == (3, 4, 4)  # S, NP(0,2), NP(3,4) match; VP(2,4) against VP(2,3) does not
    assert row.precision == row.recall == row.f1 == 75.0


def test_labels_must_agree_unless_the_rules_are_unlabelled() -> None:
    predicted = GOLD.replace("NP", "QP")
    assert counts(score(GOLD, predicted)) == (2, 4, 4)
    assert counts(score(GOLD, predicted, COLLINS.unlabeled())) == (4, 4, 4)


def test_deleted_constituent_label_drops_the_bracket_and_keeps_its_words() -> None:
    assert counts(score(f"(TOP {GOLD})", GOLD)) == (4, 4, 4)
    assert counts(score(f"(ROOT {GOLD})", GOLD)) == (4, 5, 4)
    assert counts(score(f"(ROOT {GOLD})", GOLD, COLLINS.deleting("ROOT"))) == (4, 4, 4)


def test_punctuation_is_deleted_by_tag_so_its_attachment_does_not_matter() -> None:
    gold = "(S (NP (NN a) (, ,)) (VP (VB b) (. .)))"
    predicted = "(S (NP (NN a)) (, ,) (VP (VB b)) (. .))"
    assert counts(score(gold, predicted)) == (3, 3, 3)
    bare = replace(COLLINS, delete_labels=())
    assert counts(score(gold, predicted, bare)) == (1, 3, 3)


def test_deleted_words_need_not_be_the_same_words() -> None:
    assert counts(score("(S (NN a) (. .))", "(S (NN a) (. !))")) == (1, 1, 1)


def test_a_tag_that_only_one_side_deletes_is_a_length_error() -> None:
    row = score("(S (NN a) (. .))", "(S (NN a) (NN .))")
    assert row.status == "error"
    assert row.problem == "1 gold words but 2 predicted ones after deletion"


def test_constituents_left_empty_by_deletion_are_dropped() -> None:
    gold = "(VP (VBD said) (SBAR (-NONE- 0) (S (-NONE- *T*-1))) (PRN (, ,)))"
    assert counts(score(gold, "(VP (VBD said) (, ,))")) == (1, 1, 1)


def test_function_tags_and_indices_are_cut() -> None:
    assert counts(score("(S-CLF (NP-SBJ=2 (NN a)) (VP (VB b)))", "(S (NP (NN a)) (VP=1-X (VB b)))")) == (3, 3, 3)


def test_a_label_that_begins_with_a_hyphen_is_cut_to_nothing() -> None:
    assert counts(score("(S (-A (NN a)) (NN b))", "(S (-B (NN a)) (NN b))")) == (2, 2, 2)


def test_equal_labels_match_in_both_directions_and_are_symmetric() -> None:
    assert counts(score("(S (ADVP (RB a)) (NN b))", "(S (PRT (RB a)) (NN b))")) == (2, 2, 2)
    assert counts(score("(S (PRT (RB a)) (NN b))", "(S (ADVP (RB a)) (NN b))")) == (2, 2, 2)


def test_a_label_equal_to_a_deleted_one_is_deleted_too() -> None:
    assert counts(score("(S (ADVP (RB a)) (NN b))", "(S (RB a) (NN b))", COLLINS.deleting("PRT"))) == (1, 1, 1)


def test_equal_words() -> None:
    assert score("(S (NN a))", "(S (NN b))").problem == "gold word 'a' but predicted word 'b'"
    assert counts(score("(S (NN a))", "(S (NN b))", replace(COLLINS, equal_words=(("a", "b"),)))) == (1, 1, 1)


def test_escaped_brackets_are_the_words_that_they_stand_for() -> None:
    assert counts(score("(S (NN -LSB-a-RSB-))", "(S (NN [a]))")) == (1, 1, 1)


def test_equal_brackets_match_as_often_as_both_sides_have_them() -> None:
    once, thrice = "(NP (NN a) (NN b))", "(NP (NP (NP (NN a) (NN b))))"
    assert counts(score(once, thrice)) == (1, 1, 3)
    assert counts(score(thrice, once)) == (1, 3, 1)
    assert counts(score(thrice, thrice)) == (3, 3, 3)


def test_a_unary_chain_matches_in_any_order() -> None:
    assert counts(score("(S (VP (NN a) (NN b)))", "(VP (S (NN a) (NN b)))")) == (2, 2, 2)


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


def test_tagging_accuracy_counts_words_after_deletion_and_equal_labels() -> None:
    row = score("(S (NN a) (ADVP b) (NN c) (. .))", "(S (VB a) (PRT b) (NN c) (. .))")
    assert (row.words, row.correct_tags) == (3, 2)


def test_a_predicted_tree_without_words_is_skipped_and_a_gold_one_is_an_error() -> None:
    assert score(GOLD, "").status == "skipped"
    assert score(GOLD, "(S (. .))").status == "skipped"
    assert score("(S (. .))", "(S (NN a))").status == "error"


def test_a_malformed_line_is_an_error_sentence() -> None:
    row = score(GOLD, "(S (NN a)")
    assert row.status == "error"
    assert "not closed" in str(row.problem)


def test_a_misquoted_word_is_kept_on_both_sides_under_the_new_rules() -> None:
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
    assert (len(total.rows), len(total.valid), total.count("error"), total.count("skipped")) == (5, 3, 1, 1)
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


def test_a_predicted_side_without_tags_gets_the_gold_tags_and_the_result_says_so() -> None:
    gold = parse_bracketing("(S (NP (NN a) (-NONE- *)) (VP (VB b)) (. .))")
    untagged = bracketing_of(Tree("S", [Tree("NP", ["a"]), Tree("VP", ["b"]), "."]))
    result = score_bracketings([gold], [untagged])
    assert counts(result.total.rows[0]) == (3, 3, 3)
    assert result.predicted_tags == "gold"
    assert "gold tags" in result.notes[0]
    assert score_bracketings([gold], [untagged], predicted_tags="own").total.rows[0].status == "error"


def test_a_counted_outer_bracket_is_noted() -> None:
    assert any("outer bracket" in note for note in corpus([(f"(ROOT {GOLD})", GOLD)]).notes)
    assert corpus([(f"(TOP {GOLD})", GOLD)]).notes == ()


def test_more_errors_than_evalb_allows_are_noted_and_nothing_is_lost() -> None:
    result = corpus([(GOLD, "(S (NN x))")] * 11 + [(GOLD, GOLD)])
    assert len(result.total.valid) == 1
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
def test_unlabelled_matches_are_no_fewer_and_labels_are_deleted_alike(pair: tuple[Bracketing, Bracketing]) -> None:
    labeled, unlabeled = score_sentence(*pair), score_sentence(*pair, COLLINS.unlabeled())
    assert unlabeled.matched >= labeled.matched
    assert unlabeled.gold_brackets == labeled.gold_brackets


def test_packaged_treebank_scores_100_against_itself() -> None:
    path = Path(__file__).parents[2] / "src/treelm/data/gum-open/dev.ptb.gz"
    sentences = read_bracketings(path, layout="free")  # empty lines divide its documents
    total = score_bracketings(sentences, sentences).total
    assert (len(total.rows), total.count("error")) == (474, 0)
    assert total.f1 == total.tagging_accuracy == 100.0
