from dataclasses import replace

from treelm.evaluation.evalb import score_bracketings
from treelm.evaluation.evalb_files import parse_bracketing
from treelm.evaluation.report import EvaluationResult, summary_row
from treelm.evaluation.span_protocols import PLAIN, WSJ10, score_spans
from treelm.evaluation.trivial_baselines import trivial_baselines
from treelm.models.perplexity import Coverage, Perplexity

GOLD = [parse_bracketing("(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (PRP it))) (. .))")]
PREDICTED = [parse_bracketing("(S (NP (DT the) (NN dog)) (VP (VBZ sees)) (NP (PRP it)) (. .))")]
NOTE = "the trees of this corpus are parser output over gold tags"


def result(split: str, *, is_lower_bound: bool = True) -> EvaluationResult:
    return EvaluationResult(
        system="toy",
        split=split,
        num_sentences=1,
        num_words=5,
        num_skipped=2,
        unknown_labels={"FRAG": 3},
        perplexities=(Perplexity(total_bits=18.0, num_units=6, is_upper_bound=is_lower_bound),),
        bracketing=(score_bracketings(GOLD, PREDICTED),),
        spans=(score_spans(GOLD, PREDICTED, WSJ10), score_spans(GOLD, PREDICTED, PLAIN)),
        baselines=tuple(trivial_baselines(GOLD, WSJ10, num_seeds=1)),
        coverage=Coverage(num_words=5, num_unknown=1, num_spelled=2, num_unconverged=3),
        own={"sampled_perplexity_bound": 7.0, "accuracy": 0.5},
        notes=(NOTE,),
    )


def test_every_row_names_unit_or_protocol() -> None:
    rows = dict(result("dev").rows())
    assert rows["perplexity per word, with end of sentence"] == "≤ 8.00"
    assert rows["F1, evalb (collins, labelled)"] == "75.00"
    assert rows["unlabelled F1, wsj10, corpus / sentence"] == "66.7 / 66.7"
    assert rows["  right-branching, wsj10"] == "50.0 / 50.0"
    assert rows["sentences skipped when read"] == "2"
    assert rows["gold constituents with unknown labels"] == "3"
    assert (rows["sampled_perplexity_bound"], rows["accuracy"]) == ("≤ 7.000", "0.500")


def test_beside_a_perplexity_stand_words_unknown_and_not_converged_and_beside_f1_its_sentences() -> None:
    names = [*dict(result("dev").rows())]
    shares = {"  unknown words": "20.0%", "  words spelled by bytes": "40.0%"}
    shares["  words whose search has not converged"] = "60.0%"
    assert dict(result("dev").rows()).items() >= shares.items()
    assert names[1:4] == [*shares], "next to the perplexity"
    fixed = replace(result("dev"), coverage=Coverage(num_words=5, num_unknown=1))
    assert dict(fixed.rows())["  words whose search has not converged"] == "not known"
    f1 = names.index("unlabelled F1, wsj10, corpus / sentence")
    assert names[f1 + 1] == "  sentences scored, wsj10"
    row = summary_row(result("dev"))
    assert (row["is_upper_bound"], row["unknown_words"], row["sentences_scored, wsj10"]) == (1, 0.2, 1)
    assert result("dev").to_json()["num_unconverged"] == 3
