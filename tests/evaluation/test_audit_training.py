from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.evaluation import toys
from tests.models.prpn.worlds import prpn
from treelm.cli import run
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.evaluation.audit import audit_training, training_log_probs
from treelm.models.persistence.storage import save_model
from treelm.models.prpn.config import PRPNConfig
from treelm.models.prpn.network import PRPN

SENTENCES = [list("1234567"), list("20"), list("7"), list("55512034")]
DROPOUT = {"dropout": 0.5, "layer_dropout": 0.4, "recurrent_dropout": 0.3}


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_layer_norm_is_causal_in_training_too(variant: str) -> None:
    report = audit_training(prpn(variant=variant, norm="layer", **DROPOUT), SENTENCES)
    assert report.passed, report.as_text()
    assert [check.figure for check in report.checks] == [0.0, 0.0]


def test_batch_norm_sees_later_words_and_other_sentences() -> None:
    report = audit_training(prpn(norm="batch", **DROPOUT), SENTENCES)
    assert [check.outcome for check in report.checks] == ["failed", "failed"]
    assert all(check.figure is not None and check.figure > 1e-3 for check in report.checks)
    assert "causality of the training loss" in report.as_text()


def test_the_audit_changes_nothing() -> None:
    network = prpn(norm="batch").eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    audit_training(network, SENTENCES)
    assert not network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_training_mode_equals_scores_with_layer_norm() -> None:
    network = prpn(**DROPOUT)
    for one, other in zip(training_log_probs(network, SENTENCES), network.score(SENTENCES), strict=True):
        assert abs(one - other.log_probs).max() < 1e-8


def test_other_systems_are_a_user_error() -> None:
    with pytest.raises(InputError, match="cannot be audited"):
        audit_training(toys.ToyLM(), SENTENCES)


@pytest.mark.parametrize(("norm", "code"), [("layer", 0), ("batch", 1)])
def test_the_subcommand_tells_by_its_exit_code(
    norm: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    config = PRPNConfig(embedding_size=6, hidden_size=6, num_layers=1, norm=norm)  # type: ignore[arg-type]
    save_model(PRPN(config, vocabulary=WordVocabulary([*".,", "the", "of", "a", "is"])), tmp_path / "run")
    (tmp_path / "text.txt").write_text("the a of\na is the\n")
    assert run(["audit", str(tmp_path / "run"), str(tmp_path / "text.txt"), "--training-mode"]) == code
    assert "causality of the training loss" in capsys.readouterr().out


def test_words_that_look_the_same_are_a_user_error() -> None:
    network = PRPN(PRPNConfig(embedding_size=6, hidden_size=6), vocabulary=WordVocabulary(["known"]))
    with pytest.raises(InputError, match="look the same"):
        audit_training(network, [["one", "two"], ["three"]])
