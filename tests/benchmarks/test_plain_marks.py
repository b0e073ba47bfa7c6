"""Trees of a parser that cuts hyphenated words, in the words of plain text."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from plain_marks import Arguments, main


def test_marks_are_straight_and_hyphenated_words_in_one_piece(tmp_path: Path) -> None:
    source = tmp_path / "in.ptb"
    source.write_text(
        "(S (NP (`` “) (NML (CD five) (HYPH -) (CC and) (HYPH -) (NN twentieth)) (NN o’clock) ('' ”)) (VP (VBZ ’s)))\n"
        "(NP (HYPH -) (NP (NN a)) (HYPH -))\n"
        "(S (NP (NP (NN man)) (PP (HYPH -) (PP (IN of) (NP (NN war))))) (: -) (X (X x)))\n"
    )
    main(Arguments(files=(source, source), to=tmp_path / "new" / "out.ptb"))
    lines = (tmp_path / "new" / "out.ptb").read_text().splitlines()
    assert lines[:3] == [
        """(S (NP (`` ") (NML (NN five-and-twentieth)) (NN o'clock) ('' ")) (VP (VBZ 's)))""",
        "(NP (HYPH -) (NP (NN a)) (HYPH -))",
        "(S (NP (NP (IN man-of)) (PP (PP (NP (NN war))))) (: -) (X (X x)))",
    ]
    assert lines[3:] == lines[:3]
