"""How the subcommands that score test material name what they score with."""

from __future__ import annotations

from tests.models.prpn.worlds import prpn
from tests.models.rnng.worlds import Tokens, build_model
from treelm.cli.options import in_words

BEAM = {"action_beam": 20, "word_beam": 10, "fast_track": 1}


def test_a_beam_is_named_where_there_is_a_search() -> None:
    assert in_words(build_model(Tokens(4)), BEAM) == "rnng, beam 20/10/1"
    assert in_words(prpn(), BEAM) == "prpn"
