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
from treelm.models.search.config import SearchConfig
from treelm.models.search.options import SearchOptions


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
