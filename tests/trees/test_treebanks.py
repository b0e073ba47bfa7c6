"""Annotation of treebanks is no text: it is known by its signs, left out and counted."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest

from treelm.corpora.readers import read_sentences
from treelm.errors import InputError
from treelm.trees.treebanks import AUTO, TREEBANKS

# Made up, in the form of each treebank.
FILES = {
    "icepahc": """
( (IP-MAT (NP-SBJ (N-N hundur$-hundur) (D-N $inn-hinn))
\t  (VBPI geltir-gelta)
\t  (CP-ADV (WADVP-1 0) (C 0) (IP-SUB (NP-SBJ *con*-N) (ADVP *T*-1) (NP-OB1 *) (VBPI sér-sjá)))
\t  (NUM-N 0-0)
\t  (. ---))
  (ID 1888.GRIMUR.NAR-FIC,.1))

( (CODE <P_2>) (ID 1888.GRIMUR.NAR-FIC,.2))

( (IP-MAT (CODE (X a) (Y b)) (NP-SBJ (N-N köttur-köttur)) (. .-.)) (ID 1888.GRIMUR.NAR-FIC,.3))
""",
    "ppche": """
( (CODE <P_1>))
( (IP-MAT (NP-SBJ (D +te) (N dogge)) (VBP barketh) (CP-ADV (C 0) (IP-SUB (NP-SBJ *con*) (NUM 0))) (. .))
  (ID CMDOG,1.1))
""",
    "keyaki": """
( (IP-MAT (NP-SBJ *speaker*) (PP (NP;*OB1* (N 犬)) (P を)) (NP-OB1 *を*) (VB 見) (AX る) (PU 。))
  (ID 1_made_up;JP))
""",
    "ctb": """<DOC>
<DOCID> CHTB_0001 </DOCID>
<S ID=1>
( (IP-HLN (NP-SBJ (-NONE- *pro*)) (VP (VV 看见) (NP-OBJ (NN 狗))) (PU 。)) )
</S>
</DOC>
""",
    "switchboard": """*x*x*x*x*x*
*x*  Made up (1992)  *x*
*x*x*x*x*x*

( (CODE (SYM SpeakerA1) (. .) ))
( (S (EDITED (RM (-DFL- \\[) ) (NP (PRP I) ) (IP (-DFL- \\+) )) (NP-SBJ (PRP I) ) (RS (-DFL- \\]) ) (VP (VBP bark) )
  (. .) (-DFL- E_S) ))
""",
}
TREES = {
    "icepahc": ["(IP (NP hundur$ $inn) geltir (CP (IP sér)) 0 -)", "(IP (NP köttur) .)"],
    "ppche": ["(IP (NP +te dogge) barketh (CP (IP 0)) .)"],
    "keyaki": ["(IP (PP (NP 犬) を) 見 る 。)"],
    "ctb": ["(IP (VP 看见 (NP 狗)) 。)"],
    "switchboard": ["(S (EDITED (NP I)) (NP I) (VP bark) .)"],
}
LEFT_OUT = {
    "icepahc": "lemmas 8, traces 5, (ID ...) 3, (CODE ...) 2, trees without words 1",
    "ppche": "traces 2, (CODE ...) 1, trees without words 1, (ID ...) 1",
    "keyaki": "traces 2, (ID ...) 1",
    "ctb": "lines of markup 5, traces 1",
    "switchboard": "(-DFL- ...) 4, lines of markup 3, (CODE ...) 1, trees without words 1",
}


def trees_of(content: bytes, **options: Any) -> list[str]:
    return [str(one.tree) for one in read_sentences(io.BytesIO(content), format="brackets", **options)]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "utf-16"])
def test_a_treebank_is_known_by_its_signs_and_gives_its_text_alone(
    name: str, encoding: str, caplog: pytest.LogCaptureFixture
) -> None:
    content = FILES[name].encode(encoding)
    how = {} if name == "ctb" and encoding == "gb18030" else {"encoding": encoding}  # as its first releases are
    assert trees_of(content, **how) == TREES[name]
    (line,) = caplog.messages
    assert f"signs of {name}" in line
    assert LEFT_OUT[name] in line
    caplog.clear()
    assert trees_of(gzip.compress(content, mtime=0), treebank=name, **how) == TREES[name]
    assert not caplog.messages  # what was asked for needs no telling


@pytest.mark.parametrize(
    "line", ["# by hand", "%(S", "; x", "// x", "*x*x*", "( @0y0012sx-a-11/CD )", "( @0y CD )", "(END_OF_TEXT_UNIT)"]
)
@pytest.mark.parametrize("name", [AUTO, *TREEBANKS])
def test_lines_of_comments_and_headers_between_trees_are_no_trees(line: str, name: str) -> None:
    content = f"{line}\n( (S (A a)\n  (B #)))\n{line}\n( (S (A b)))\n"
    assert trees_of(content.encode(), treebank=name) == ["(S a #)", "(S b)"]


@pytest.mark.parametrize(
    ("options", "content", "said"),
    [
        (
            {},
            "(VROOT (S/CD (NP/SB (N x)) (VP/HD (V y))))",
            "3 of 4 labels seem to have a function, such as S/CD: label_s",
        ),
        ({}, "(VROOT (S/CD (NP/SB (N x)) (VP/HD (V y))))", 'label_separators = "/-=" cuts it off'),
        ({"label_separators": "/"}, "(VROOT (S/CD (NP/SB (N x))))", ""),
        ({"strip_functions": False}, "(VROOT (S/CD (NP/SB (N x))))", ""),
        ({}, "(S (NP-SBJ (N x/y)) (VP (VP (V/V y)) (VP (V z))))", ""),
        ({}, "(S" + 10 * " (VP (V x))" + " (PRT|ADVP (RP y)))", ""),
    ],
)
def test_labels_with_functions_of_another_treebank_are_told_of(
    options: dict[str, Any], content: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    trees_of(content.encode(), **options)
    assert said in "".join(caplog.messages)
    assert bool(said) == bool(caplog.messages)


def test_traces_in_a_file_without_signs_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    content = b"(S (NP (XX *-1)) (VP (VB go) (NP (XX *RNR*-2) (SYM *) (UH *sigh*))))\n"
    assert trees_of(content) == ["(S (NP *-1) (VP go (NP *RNR*-2 * *sigh*)))"]
    assert "2 words look like traces, such as *T*-1: treebank = ppche" in caplog.text
    caplog.clear()
    assert trees_of(content, treebank="ppche") == ["(S (VP go))"]
    assert not caplog.messages


@pytest.mark.parametrize(("treebank", "documents"), [("icepahc", [0, 0]), ("switchboard", [0, 1])])
def test_blank_lines_between_numbered_trees_divide_no_documents(treebank: str, documents: list[int]) -> None:
    content = b"( (IP (N dogs)))\n\n( (IP (N cats)))\n"
    found = read_sentences(io.BytesIO(content), format="brackets", treebank=treebank)
    assert [one.document for one in found] == documents


def test_annotation_is_text_where_it_is_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    assert trees_of(FILES["keyaki"].encode(), treebank="penn") == [
        "(ROOT (IP *speaker* (PP (NP;*OB1* 犬) を) *を* 見 る 。) 1_made_up;JP)"
    ]
    assert not caplog.messages


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "(A*B (C|D x) (E:F y) (G#H z))"),
        ({"label_separators": "*|:#"}, "(A (C x) (E y) (G z))"),
        ({"label_separators": "-*"}, "(A (C|D=1 x) (E:F y) (G#H z))"),
        ({"label_separators": "*", "strip_functions": False}, "(A*B-1 (C|D=1 x) (E:F-G y) (G#H z))"),
    ],
)
def test_labels_are_cut_at_the_characters_that_are_named(options: dict[str, Any], expected: str) -> None:
    assert trees_of(b"(A*B-1 (C|D=1 (X x)) (E:F-G (X y)) (G#H (X z)))", **options) == [expected]


@pytest.mark.parametrize(
    ("encoding", "content", "message"),
    [
        ("", "(S (X é))".encode("latin-1"), "2: byte 0xe9 is not UTF-8.*; convert .* or .*encoding = .latin-1"),
        ("", "\ufeff(S (X ab))".encode("utf-16-le"), '2: byte 0xff is not UTF-8.*; .*or "utf-16"'),
        ("", "(S (X ab))".encode("utf-16-le"), '2: a NUL character; .*or "utf-16"'),
        ("ascii", "(S (X é))".encode(), "2: byte .*not in the encoding given; .*encoding = "),
        ("gb18030", b"(S (X \x81 ))", "2: byte .*not in the encoding given"),
        ("utf-16", b"(S (X ab))", "not in utf-16 .*BOM"),
        ("utf-32", b"(S (X a))", "not in utf-32"),
        ("hex", b"(S (X a))", "no encoding 'hex'; give its encoding, such as"),
        ("klingon", b"(S (X a))", "no encoding 'klingon'"),
    ],
)
def test_what_is_not_of_an_encoding_is_named_by_its_line(encoding: str, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trees_of(b"(S (X a))\n" + content, encoding=encoding)


BRACKETS = [
    ("(S (PRP (Dia)) (NNP Solano(r)))", ["(Dia)", "Solano(r)"]),
    ("(S (-LRB- () (NN a) (-RRB- )))", ["(", "a", ")"]),
    ("(S (NFP :() (NN f()) (NN (s)he(n)))", [":(", "f()", "(s)he(n)"]),
    ("(S (NN ((a))) (NN b))", ["((a))", "b"]),
]


@pytest.mark.parametrize(("line", "expected"), BRACKETS)
def test_unescaped_brackets_are_named_as_the_cause_and_can_be_repaired(line: str, expected: list[str]) -> None:
    with pytest.raises(InputError, match=r"unescaped bracket of the text is the likely cause.*repair_brackets = true"):
        trees_of(line.encode())
    content = f"(S\n{line[3:]}\n(S (X a))\n".encode()
    first, second = read_sentences(io.BytesIO(content), format="brackets", repair_brackets=True)
    assert list(first.words) == expected
    assert str(second.tree) == "(S a)"


@pytest.mark.parametrize("line", ["(S (NP(DT the)(NN dog)) (VP (V barks)))", "( (S (X a)))", "(X (NP\n(N a)\n)\n)"])
def test_repair_leaves_sound_trees_alone(line: str) -> None:
    assert trees_of(line.encode(), repair_brackets=True) == trees_of(line.encode())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("( (IP (N Jón-jón) (V fór-fara) (N lá-liggja) (P hann-hann)) (ID A,.1))", "Jón fór lá hann"),
        ("( (IP (N E-mail-e-mail) (N saga-saga) (V kom-koma) (X --) (. .-.)) (ID A,.1))", "E-mail saga kom -- ."),
        ("( (IP (ADV til-og-frá-til-og-frá) (N a-a) (V kom-koma) (N b-b)))", "til-og-frá a kom b"),
        (
            "( (IP (J well-known) (N decision-making) (N dogs) (V bark)) (ID A,.1))",
            "well-known decision-making dogs bark",
        ),
        ("(S (J well-known) (N decision-making))", "well-known decision-making"),
    ],
)
def test_lemmas_are_known_by_what_stands_behind_most_words(content: str, expected: str) -> None:
    (found,) = read_sentences(io.BytesIO(content.encode()), format="brackets")
    assert " ".join(found.words) == expected
