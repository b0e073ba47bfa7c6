"""What people type without looking: short flags, near misses, the tab key."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Treelm
from treelm import __version__


def test_the_version_has_a_short_flag(treelm: Treelm) -> None:
    assert treelm("-V").out == treelm("--version").out == f"treelm {__version__}\n"


def test_files_to_write_have_one_name_and_a_short_one(treelm: Treelm, tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("The dog barks .\n")
    for number, flag in enumerate(("--output", "-o")):
        assert treelm("parse", "ngram-gum-open", text, flag, tmp_path / "x").code == 2  # it has no trees
        assert treelm("surprisal", "ngram-gum-open", text, flag, tmp_path / f"{number}.tsv").code == 0
    assert (tmp_path / "0.tsv").read_text() == (tmp_path / "1.tsv").read_text()


WRITES = ["train", "demo", "compare", "reproduce", "data", "surprisal", "parse", "generate", "export"]


@pytest.mark.parametrize("subcommand", WRITES)
def test_help_can_be_read(treelm: Treelm, subcommand: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = treelm(subcommand, "--help").out
    assert "None}" not in shown
    assert "--output" in shown
    assert "-o " in shown
    assert all(line.count("Example:") <= 1 for line in shown.splitlines())
    assert [line for line in shown.splitlines() if len(line) > 80 and not line.startswith(("Example:", "usage:"))] == []


def test_completion_of_bash_knows_subcommands_and_options(treelm: Treelm) -> None:
    script = treelm("completion", "bash").out
    call = """
    {script}
    COMP_WORDS=(treelm {words}); COMP_CWORD={place}; _shtab_treelm; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    for words, place_of, expected in (("sur", 1, "surprisal"), ("surprisal --spl", 2, "--split-sentences")):
        typed = call.format(script=script, words=words, place=place_of)
        done = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=False)
        assert expected in done.stdout.split(), done.stderr
