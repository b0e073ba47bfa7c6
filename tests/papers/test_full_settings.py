"""Every run of the papers' own settings starts: on ten forged sentences in the format of its data, it makes an update
with few units and is evaluated. Units are those of the paper where the network is built without memory for it."""

from __future__ import annotations

import gzip
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.rnng.worlds import Tokens
from treelm.cli import run
from treelm.corpora.catalog import SPLITS
from treelm.models import system_class
from treelm.papers.data import DataRoot, DataSet
from treelm.papers.declaration import load_paper
from treelm.papers.metrics.runs import Evaluate
from treelm.papers.metrics.shapes import Splits
from treelm.papers.plan import Job, make_plan
from treelm.papers.work import do_job, kept
from treelm.training.recipe import load_recipe

PAPERS = ("palm", "prpn", "rnng", "som")
TREES = """\
(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))
(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN dog))) (. .))
(S (NP (DT a) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))) (. .))
(S (NP (DT a) (NN cat)) (VP (VBZ sleeps)) (. .))
(S (NP (NP (DT the) (NN dog)) (PP (IN of) (NP (DT the) (NN cat)))) (VP (VBZ barks)) (. .))
"""
NUM_COPIES = 2
WORDS = [" ".join(word.rstrip(")") for word in line.split() if word.endswith(")")) for line in TREES.splitlines()]
SENTENCE = """\
1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tdog\tdog\tNOUN\tNN\t_\t3\tnsubj\t_\t_
3\tbarks\tbark\tVERB\tVBZ\t_\t0\troot\t_\t_
4\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_

"""
TEXTS = {
    ".ptb": NUM_COPIES * TREES,
    ".txt": "".join(f" {line.replace('dog', '<unk>')} \n" for line in NUM_COPIES * WORDS),  # Mikolov's
    ".tokens": "".join(f" \n = The <unk> = \n \n {line} \n" for line in NUM_COPIES * WORDS),
    ".conllu": 10 * SENTENCE,
    "text8": 5 * " ".join(WORDS).replace(".", "").replace("  ", " "),  # words seen ten times, and no sentences
}
NAMES = {"ptb-lm": "ptb.{}.txt", "wikitext-2": "wiki.{}.tokens", "text8": "{}.txt", "ptb-ud": "{}.conllu"}
"""Files of the folders that hold no brackets."""
FEW = {
    **dict.fromkeys(("embedding_size", "hidden_size", "inference_hidden_size", "inference_span_size"), 4),
    **{"size": 8, "syntactic_size": 4, "chunk_size": 2, "rational_size": 2, "scorer_size": 2, "residual_size": 2},
}
"""Units of a network, where it has that setting and the recipe does not put it to 0."""


def forge(root: Path, data: DataSet) -> None:
    """Write the files of a data set."""
    own = [file for split in SPLITS if (file := getattr(data, split))]
    name = NAMES.get(data.folder, "{}.ptb")
    splits = ("train", "valid", "test") if "." in name.partition("{}")[0] else SPLITS
    for file in own or [f"{data.folder}/{name.format(split)}" for split in splits]:
        path = root / file
        kind = data.folder if data.folder in TEXTS else Path(file.removesuffix(".gz")).suffix
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind in TEXTS:
            content = TEXTS[kind].encode()
            path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def small(job: Job, tokenizer: Path) -> Job:
    """The job with few units, one update, and two sentences evaluated by narrow beams; of a drawn network, too."""
    if not job.recipe:
        return replace(
            job, measures=[replace(one, recipe="") if isinstance(one, Splits) else one for one in job.measures]
        )
    measure = next((one for one in job.measures if isinstance(one, Evaluate)), Evaluate())
    recipe = load_recipe(job.recipe, job.settings)
    config = recipe.model.config
    settings = [
        f"model.{one.name}={FEW[one.name]}" for one in fields(config) if FEW.get(one.name) and getattr(config, one.name)
    ]
    settings += ["vocabulary.max_size=280"] if recipe.vocabulary.kind == "subword" else []
    if recipe.vocabulary.kind == "tokenizer":
        from tests.corpora.tokenizers_of_others import byte_level

        byte_level(WORDS).save(str(tokenizer))
        settings.append(f'vocabulary.file="{tokenizer}"')
    settings += ["training.batch_size=4"] if recipe.training.batches == "stream" else []
    settings += [] if recipe.model.is_estimated else ["training.max_steps=1"]
    own = (*job.settings, *settings)
    measure = replace(measure, max_sentences=2, action_beam=4, word_beam=2, fast_track=1)
    return replace(job, settings=own, untrained=False, measures=[measure])


def build_whole(job: Job) -> None:
    """Build the network at its own size, without memory for it."""
    system: Any = system_class((model := load_recipe(job.recipe, job.settings).model).system)
    if not model.is_estimated:
        with torch.device("meta"):
            system(model.config, vocabulary=Tokens(50), labels=["S", "NP"])


@pytest.mark.parametrize("paper", PAPERS)
def test_every_run_of_the_papers_settings_starts(
    paper: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt2").mkdir()
    root = DataRoot(tmp_path / "corpora")
    for data in root.sets.values():
        forge(tmp_path / "corpora", data)
    tables = load_paper(paper)
    plan = make_plan(tables, root, small=False, seeds=1)
    missing = {cell.missing for one in plan.tables for cell in one.cells if not cell.row.absent}
    assert missing <= {""}
    for job in plan.jobs.values():
        one = small(job, tmp_path / "tokenizer.json")
        if job.recipe:
            build_whole(job)
        code = do_job(one, tmp_path, root, lambda arguments: run(["train", *arguments]))
        assert code == 0, f"{job.recipe} {' '.join(one.settings)}: {capfd.readouterr().err.splitlines()[-1:]}"
        found = kept(tmp_path / "runs" / one.name, one.measures[0])
        assert found is not None
        assert found.values or found.baselines, job
