"""Systems that read step by step, opened by transformers: the same logits, and text that is generated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cli.conftest import Treelm, treelm  # noqa: F401
from tests.systems import small_setup
from treelm import load
from treelm.errors import InputError
from treelm.models.persistence.storage import save_model

transformers: Any = pytest.importorskip("transformers", reason="the transformers library is not installed")
TEXTS = ["the cat sees a dog", "zebra", "fish of the bird"]


@pytest.mark.parametrize("name", ["lstm", "on-lstm", "prpn", "palm", "transformer", "transformer stream"])
def test_an_export_gives_every_token_the_logits_that_the_run_gives(
    name: str,
    treelm: Treelm,  # noqa: F811
    tmp_path: Path,
) -> None:
    lm: Any = small_setup(name, tmp_path).model.eval()
    run, out = tmp_path / "run", tmp_path / "exported"
    save_model(lm, run)
    found = treelm("export", run, "--to", "transformers", "--output", out)
    assert (found.code, found.err) == (0, f"wrote {out}\n")
    model = transformers.AutoModelForCausalLM.from_pretrained(out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    scores = lm.score(TEXTS)
    for side in ("right", "left"):
        inputs = tokenizer(TEXTS, padding=True, padding_side=side, return_tensors="pt")
        with torch.no_grad():
            log_probs = model(**inputs).logits.double().log_softmax(-1)
        for row, score in enumerate(scores):
            own = inputs.attention_mask[row].bool()
            ids = [*inputs.input_ids[row][own].tolist()[1:], tokenizer.eos_token_id]
            np.testing.assert_allclose(log_probs[row][own][range(len(ids)), ids], score.log_probs, atol=1e-4)
    inputs = tokenizer(TEXTS, padding=True, padding_side="right", return_tensors="pt")
    labels = inputs.input_ids.masked_fill(inputs.attention_mask == 0, -100)
    loss = model(**inputs, labels=labels).loss
    expected = -sum(score.log_probs[:-1].sum() for score in scores) / sum(len(one.log_probs) - 1 for one in scores)
    assert loss.item() == pytest.approx(expected, rel=1e-4)


def test_an_export_that_stops_leaves_nothing_and_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from treelm.hf import TreelmTokenizer, export_model

    lm, out = small_setup("lstm", tmp_path).model, tmp_path / "folder" / "exported"

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(TreelmTokenizer, "save_pretrained", stop)
        with pytest.raises(KeyboardInterrupt):
            export_model(lm, out)
    assert list(out.parent.iterdir()) == []
    export_model(lm, out)
    assert {"model.safetensors", "treelm-vocabulary.json"} <= {path.name for path in out.iterdir()}


def test_text_is_generated_and_spelled_by_the_tokenizer(tmp_path: Path) -> None:
    from treelm.hf import export_model

    lm = load("lstm-gum-open")
    export_model(lm, tmp_path / "exported")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    begun = tokenizer("The museum", return_tensors="pt")
    ids = model.generate(**begun, max_new_tokens=3, do_sample=False, use_cache=True)[0].tolist()
    state = lm.extend(lm.extend(lm.start(), ["The"]), ["museum"])
    for token in ids[3:]:
        assert int(lm.next_word_log_probs(state).argmax()) == token
        state = lm.extend_tokens(state, [token])
    assert tokenizer.decode(ids, skip_special_tokens=True).startswith("The museum ")
    assert tokenizer.decode(ids).startswith("</s> The museum ")


@pytest.mark.parametrize("prefix", ["", "hf:"])
def test_where_a_run_is_wanted_an_export_is_told(prefix: str, treelm: Treelm, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "text.txt").write_text("The dog barks .\n")
    assert treelm("export", "lstm-gum-open", "--to", "transformers", "-o", tmp_path / "exported").code == 0
    found = treelm("surprisal", f"{prefix}{tmp_path / 'exported'}", tmp_path / "text.txt")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert found.err.endswith("`treelm export` wrote for transformers; give the run folder that was exported\n")


def test_what_has_no_logits_is_refused_and_nothing_is_written(treelm: Treelm, tmp_path: Path) -> None:  # noqa: F811
    found = treelm("export", "rnng-gum-open", "--to", "transformers", "--output", tmp_path / "out")
    assert (found.code, "does not read step by step" in found.err, found.err.count("\n")) == (2, True, 1)
    assert not (tmp_path / "out").exists()
    from treelm.hf import TreelmConfig, TreelmForCausalLM

    with pytest.raises(InputError, match="describes no model"):
        TreelmForCausalLM(TreelmConfig())


def test_a_program_that_imports_nothing_else_opens_an_export(tmp_path: Path) -> None:
    """Transformers builds networks without memory: what a system makes when it is imported must have some."""
    from treelm.hf import export_model

    export_model(load("lstm-gum-open"), tmp_path / "exported")
    code = (
        "import sys, torch, transformers, treelm.hf\n"
        "model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "print(model(torch.tensor([[1, 2]])).logits.isfinite().all().item())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "exported")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
