"""Programs that measure, at tiny sizes in this process."""

from __future__ import annotations

from pathlib import Path

import plain_marks
import prpn_start
import pytest
import reading_speed
import som_forms

from tests.legacy.make import HERE

# How many PRPNs are dead before training: counts over forms and seeds, of recipes of a PRPN alone.


def test_dead_starts_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    prpn_start.main(prpn_start.Arguments(recipes=("prpn-demo",), seeds=2))
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[1] for row in rows] == list(prpn_start.FORMS)
    assert rows[0][2:] == ["0", "0", "0", "2"]
    assert all(int(zeros) >= int(dead) for _, _, zeros, dead, *_ in rows)


# The comparison of SOM's forms, at a tiny size: that all are measured and compute the same loss.


def test_all_forms_compute_the_same_loss() -> None:
    som, batch = som_forms._world(8, 15, 50, 3, (5, 7), "gum-open")
    losses = [run().item() for run in som_forms._runs(som, batch).values()]
    assert losses == pytest.approx([losses[0]] * 2, rel=1e-5)


# The benchmark of reading: what it draws, and that it reads.


def test_a_run_is_read() -> None:
    speed = reading_speed.measure(reading_speed.Arguments(run=str(HERE / "ngram"), words=20))
    assert speed.system == "ngram"
    assert speed.num_words >= 20
    assert speed.surprisal_words_per_second is not None
    assert speed.surprisal_words_per_second > 0
    assert speed.with_trees_words_per_second is None


# Work of two checkouts in turns.


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
