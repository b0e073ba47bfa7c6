"""Options of searching, and how subcommands name what they score with."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Treelm
from tests.models.prpn.worlds import prpn
from tests.models.rnng.worlds import Tokens, build_model
from treelm.cli.options import described
from treelm.errors import InputError
from treelm.inference.loading import run_search
from treelm.models.capabilities import set_search
from treelm.models.search.config import SearchConfig
from treelm.models.search.options import SearchOptions

LEGACY = Path(__file__).parents[1] / "legacy"
CHART, GRAMMAR = LEGACY / "chart", LEGACY / "transformer-grammar"


def test_a_beam_is_named_where_there_is_a_search() -> None:
    assert described(prpn()) == "prpn"
    model = build_model(Tokens(4))
    for search, name in (
        (SearchConfig(), "adaptive beam 1000/100/1, threshold 10"),
        (SearchConfig(threshold=9, word_beam=50), "adaptive beam 1000/50/1, threshold 9"),
        (SearchConfig(action_beam=20), "beam 20/10/1"),
        (SearchConfig(action_beam=20, method="released"), "released beam 20/10/1"),
        (SearchConfig(method="particles"), "1000 particles"),
        (SearchConfig(method="particles", num_particles=30, precision="fp16"), "30 particles, fp16"),
    ):
        model.search = search
        assert described(model) == f"rnng, {name}"


def test_the_search_of_a_recipe_is_that_of_its_run(project: Path, tmp_path: Path) -> None:
    assert run_search(project / "run") == SearchConfig(action_beam=20, word_beam=5)
    run = Path(shutil.copytree(project / "run", tmp_path / "run"))
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.replace("[search]", '[search]\nmethod = "particles"'))
    assert run_search(run) == SearchConfig(action_beam=20, word_beam=5, method="particles")
    (run / "recipe.toml").write_text(recipe.replace("[search]", "[search]\nmethod = 3"))
    with pytest.raises(InputError, match=r"\[search\]: method = 3; give 'beam', 'particles'"):
        run_search(run)


def test_the_search_of_an_older_recipe_stands_under_evaluation(tmp_path: Path) -> None:
    older = '[evaluation]\naction_beam = 7\nsearch = "particles"\nsearch_seed = 3\nstream = "no"\n'
    (tmp_path / "recipe.toml").write_text(older)
    assert run_search(tmp_path) == SearchConfig(action_beam=7, method="particles", seed=3)
    (tmp_path / "recipe.toml").write_text("[evaluation]\naction_beam = 7\n")  # written by hand
    assert run_search(tmp_path) == SearchConfig(action_beam=7)


@pytest.mark.parametrize(
    "record",
    [
        "[evaluation]\naction_beam = 100\nword_beam = 10\nfast_track = 1\nstream_rows = 10\n",
        '[search]\nmethod = "beam"\naction_beam = 50\nword_beam = 5\nthreshold = inf\nmax_rows = 2048\n',
    ],
)
def test_widths_that_an_older_version_wrote_down_were_not_asked_for(record: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(record)
    assert run_search(tmp_path) == SearchConfig()


def test_what_is_asked_for_beside_a_recipe() -> None:
    """Widths change the recipe's beam, a threshold takes its place; sizes that nobody gives are as usual."""
    adaptive, fixed = SearchConfig(), SearchConfig(action_beam=20, word_beam=5)
    for config, options, beam in (
        (adaptive, {}, (1000, 100, 1, 10.0)),
        (adaptive, {"action_beam": 40}, (40, 10, 1, math.inf)),
        (adaptive, {"search": "released"}, (100, 10, 1, math.inf)),
        (adaptive, {"threshold": 9.0}, (1000, 100, 1, 9.0)),
        (fixed, {"action_beam": 40}, (40, 5, 1, math.inf)),
        (fixed, {"threshold": 9.0}, (1000, 100, 1, 9.0)),
        (fixed, {"threshold": 9.0, "word_beam": 4}, (1000, 4, 1, 9.0)),
        (SearchConfig(threshold=9.0), {"search": "particles"}, (100, 10, 1, math.inf)),
    ):
        assert SearchOptions(**options).changed(config).beam == beam  # type: ignore[arg-type]


def test_particles_released_scores_and_half_precision_are_flags(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    def perplexity(*flags: str) -> tuple[float, bool]:
        outcome = treelm("evaluate", project / "run", "--split", "dev", "--json", *flags)
        assert outcome.code == 0, outcome.err
        figure = json.loads(outcome.out)[0]["perplexities"][0]
        return figure["perplexity"], figure["is_upper_bound"]

    beam, is_bound = perplexity()
    assert is_bound
    for flags in (("--search", "particles"), ("--search-precision", "fp16"), ("--search-precision", "bf16")):
        value, is_bound = perplexity(*flags)
        assert value != beam
        assert value == pytest.approx(beam, rel=0.2)
        assert not is_bound
    few = ("--search", "particles", "--num-particles", "2")
    assert perplexity(*few) == perplexity(*few) != perplexity(*few, "--search-seed", "1")
    assert perplexity("--search", "released")[0] < beam  # the end of a sentence costs nothing there

    table = tmp_path / "words.tsv"
    flags = ("--search", "particles", "--num-particles", "50", "--output", str(table))
    assert treelm("surprisal", project / "run", project / "train.ptb", *flags).code == 0
    described = json.loads((tmp_path / "words.tsv.json").read_text())
    assert (described["search"], described["num_particles"], described["threshold"]) == ("particles", 50, None)


def test_widths_of_no_search_are_told_of(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    """A run that scores without a search says so, once; one that searches says nothing."""
    (text := tmp_path / "text.txt").write_text("The dog barks .\n", encoding="utf-8")
    widths = ("--action-beam", "5", "--word-beam", "2")
    for command in (("surprisal", "lstm-gum-open", text), ("evaluate", "lstm-gum-open", "--data", text)):
        told = "lstm-gum-open: lstm scores without a search, so --action-beam and --word-beam change nothing\n"
        assert treelm(*command, *widths).err.count(told) == 1
        assert "without a search" not in treelm(*command).err
    told = "lstm-gum-open: lstm scores without a search, so --threshold changes nothing\n"
    assert treelm("surprisal", "lstm-gum-open", text, "--threshold", "5").err.count(told) == 1
    annotate = ("data", "annotate", text, "--parser", CHART, "--output", tmp_path / "out.ptb")
    assert f"{CHART}: chart scores without a search" in treelm(*annotate, *widths).err
    assert "without a search" not in treelm("surprisal", project / "run", text, *widths).err


def test_a_model_without_a_search_has_no_particles() -> None:
    with pytest.raises(InputError, match="search by 'particles', but prpn scores without a search; remove this option"):
        set_search(prpn(), SearchConfig(method="particles"))
    with pytest.raises(InputError, match="search by 'fp16'"):
        set_search(prpn(), SearchConfig(precision="fp16"))
