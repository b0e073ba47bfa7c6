"""What treelm keeps for itself between two calls: never taken for something that it did not write."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.fuzz.harness import Reader
from treelm.evaluation.comparison.cache import MetricCache
from treelm.evaluation.syntaxgym.scoring import ScoreCache, ScoredText
from treelm.inference.annotation import Journal, Progress
from treelm.io.json import encode_json, line_with_checksum, line_without_checksum, with_checksum

_SETTINGS = {"parser": "toy", "seed": 1}
_STATE = Progress(num_read=4, digest="cd", num_bytes=90, num_sentences=3, num_words=20, num_errors=1)
_SCORES = tuple(
    ScoredText(text=text, spans=((0, 3), (4, 8)), surprisal_bits=(1.25, bits), is_unk=(False, True), end_bits=0.5)
    for text, bits in (("The dogs", 3.5), ("The cats", 4.75))
)
_KEPT_SCORES = b"".join(b"\n" + line_with_checksum(asdict(one)) for one in _SCORES)
_FIGURES: dict[str, Any] = {"perplexity": 101.5, "by_length": {"10": [1, 2.5]}}
_ORIGIN: dict[str, Any] = {"weights": "abc", "beam": 10}


def read_progress(path: Path) -> None:
    """It goes on from a state that was written, or refuses."""
    assert Journal(path.parent, _SETTINGS, packed=False).progress == _STATE


def read_scores(path: Path) -> None:
    """Damaged lines are left out, and scored again."""
    found = ScoreCache(path).read()
    assert set(found.values()) <= set(_SCORES)
    whole = {line for line in path.read_bytes().splitlines(keepends=True) if line_without_checksum(line) is not None}
    assert len(found) == len({str(line_without_checksum(line)) for line in whole})


def read_figures(path: Path) -> None:
    """Damaged figures are measured again."""
    kept = MetricCache(path.parent)
    path.replace(kept.path("part", _ORIGIN))
    assert kept.get("part", _ORIGIN) in (None, _FIGURES)


READERS = (
    Reader(
        name="annotation progress",
        file="progress.json",
        read=read_progress,
        seeds=lambda: (line_with_checksum({"settings": _SETTINGS, "progress": asdict(_STATE)}),),
    ),
    Reader(name="kept scores", file="kept.jsonl", read=read_scores, seeds=lambda: (_KEPT_SCORES,)),
    Reader(
        name="kept figures",
        file="figures.json",
        read=read_figures,
        seeds=lambda: (encode_json(with_checksum({"origin": _ORIGIN, "figures": _FIGURES})),),
    ),
)
