"""Programs that measure, at tiny sizes in this process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import plain_marks
import prpn_start
import pytest
import reading_speed
import som_forms
import two_checkouts
from reading_speed import draw
from som_forms import MEASURED, compare_forms

from tests.legacy.make import HERE
from treelm.errors import InputError

# How many PRPNs are dead before training: counts over forms and seeds, of recipes of a PRPN alone.


def test_dead_starts_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    prpn_start.main(prpn_start.Arguments(recipes=("prpn-demo",), seeds=2))
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[1] for row in rows] == list(prpn_start.FORMS)
    assert rows[0][2:] == ["0", "0", "0", "2"]
    assert all(int(zeros) >= int(dead) for _, _, zeros, dead, *_ in rows)


@pytest.mark.parametrize(
    ("recipe", "found"), [("palm-u-demo", "palm-u-demo: no recipe of a PRPN"), ("nope", "no such recipe")]
)
def test_starts_are_those_of_prpns(recipe: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=found):
        prpn_start.main(prpn_start.Arguments(recipes=(recipe,), seeds=2))
    assert "prpn" not in capsys.readouterr().out


# The comparison of SOM's forms, at a tiny size: that all are measured and compute the same loss.


def test_all_forms_are_measured_in_one_run() -> None:
    speeds = compare_forms(size=8, vocabulary_size=50, batch_size=2, num_words=(5, 6), rounds=1)
    assert [(one.form, one.precision) for one in speeds] == list(MEASURED)
    assert speeds[0].ratio == 1.0
    assert all(one.tokens_per_second > 0 for one in speeds)


def test_all_forms_compute_the_same_loss() -> None:
    som, batch = som_forms._world(8, 15, 50, 3, (5, 7), "gum-open")
    losses = [run().item() for run in som_forms._runs(som, batch).values()]
    assert losses == pytest.approx([losses[0]] * 2, rel=1e-5)


# The benchmark of reading: what it draws, and that it reads.


def test_sentences_are_drawn_until_there_are_so_many_words() -> None:
    sentences = [["w"] * length for length in (3, 1, 4, 2)]
    drawn = draw(sentences, 5, seed=1)
    assert 5 <= sum(map(len, drawn)) < 5 + len(drawn[-1])
    assert draw(sentences, 5, seed=1) == drawn
    assert len(draw(sentences, 1000, seed=1)) == 4


def test_a_run_is_read() -> None:
    speed = reading_speed.measure(reading_speed.Arguments(run=str(HERE / "ngram"), words=20))
    assert speed.system == "ngram"
    assert speed.num_words >= 20
    assert speed.surprisal_words_per_second is not None
    assert speed.surprisal_words_per_second > 0
    assert speed.with_trees_words_per_second is None


# Work of two checkouts in turns.


def test_both_take_turns_and_ratios_are_of_pairs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def seconds(python: str, _: str) -> float:
        asked.append(python)
        return {"before": 3.0, "after": 2.0}[python]

    monkeypatch.setattr(two_checkouts, "_seconds", seconds)
    two_checkouts.main(two_checkouts.Arguments(before="before", after="after", rounds=2))
    found: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["work"] for one in found] == list(two_checkouts.WORK)
    assert {one["ratio"] for one in found} == {1.5}
    assert asked[:4] == ["before", "after", "before", "after"]


def test_a_program_counts_from_its_begin() -> None:
    program = "sum(range(3_000_000))\nbegin = time.process_time()\nsum(range(300_000))\n"
    assert two_checkouts._seconds(sys.executable, program) > 0
    for one in two_checkouts.WORK.values():
        compile(one, "work", "exec")
        assert one.count("begin = time.process_time()") == 1


# Trees of a parser that cuts hyphenated words, in the words of plain text.


def test_marks_are_straight_and_hyphenated_words_in_one_piece(tmp_path: Path) -> None:
    source = tmp_path / "in.ptb"
    source.write_text(
        "(S (NP (`` “) (NML (CD five) (HYPH -) (CC and) (HYPH -) (NN twentieth)) (NN o’clock) ('' ”)) (VP (VBZ ’s)))\n"
        "(NP (HYPH -) (NP (NN a)) (HYPH -))\n"
        "(S (NP (NP (NN man)) (PP (HYPH -) (PP (IN of) (NP (NN war))))) (: -) (X (X x)))\n"
    )
    plain_marks.main(plain_marks.Arguments(files=(source, source), to=tmp_path / "new" / "out.ptb"))
    lines = (tmp_path / "new" / "out.ptb").read_text().splitlines()
    assert lines[:3] == [
        """(S (NP (`` ") (NML (NN five-and-twentieth)) (NN o'clock) ('' ")) (VP (VBZ 's)))""",
        "(NP (HYPH -) (NP (NN a)) (HYPH -))",
        "(S (NP (NP (IN man-of)) (PP (PP (NP (NN war))))) (: -) (X (X x)))",
    ]
    assert lines[3:] == lines[:3]
