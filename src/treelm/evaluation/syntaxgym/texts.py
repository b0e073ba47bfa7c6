"""The sentences of suites, scored by a model: neighbours together, and kept as they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from treelm.corpora.outputs import cache_directory
from treelm.corpora.tokens import Tokenisation, token_spans
from treelm.evaluation.syntaxgym.regions import ScoredToken
from treelm.inference.batching import batched
from treelm.models.sealed import sealed_line, unsealed_line
from treelm.models.surprisal import sentence_surprisal

if TYPE_CHECKING:
    from treelm.models.base import SyntacticLM
    from treelm.models.scores import SentenceScore

Words = Sequence[str]
ScoreGroups = Callable[[Iterable[Sequence[Words]]], Iterator[Sequence["SentenceScore"]]]
"""Scores groups of sentences one after the other."""


@dataclass(frozen=True, kw_only=True)
class ScoredText:
    """A sentence with the places of its tokens, the bits of each, and those of its end."""

    text: str
    spans: tuple[tuple[int, int], ...]
    surprisal_bits: tuple[float, ...]
    is_unk: tuple[bool, ...]
    end_bits: float

    def tokens(self, *, with_end: bool) -> list[ScoredToken]:
        """What regions are made of; the bits of the end, if they count, are the last token's."""
        bits = list(self.surprisal_bits)
        if with_end:
            bits[-1] += self.end_bits
        return [
            ScoredToken(start=start, end=end, surprisal_bits=value, is_unk=unknown)
            for (start, end), value, unknown in zip(self.spans, bits, self.is_unk, strict=True)
        ]


def score_texts(
    lm: SyntacticLM,
    texts: Sequence[str],
    *,
    tokenisation: Tokenisation,
    group_size: int,
    score_groups: ScoreGroups | None = None,
    kept: KeptScores | None = None,
) -> Iterator[ScoredText]:
    """Score different texts, in an order of its own: groups of neighbours in the dictionary's order.

    A search then does what they begin with once. In ``kept`` each group is written down before it is given.
    """
    known = kept.read() if kept else {}
    yield from (known[text] for text in texts if text in known)
    spans = {text: tuple(token_spans(text, tokenisation)) for text in texts if text not in known}
    words = {text: tuple(text[start:end] for start, end in places) for text, places in spans.items()}
    groups = list(batched(sorted(words, key=lambda text: words[text]), group_size))
    sentences = ([words[text] for text in group] for group in groups)
    scores = score_groups(sentences) if score_groups else map(lm.score, sentences)
    for group, found in zip(groups, scores, strict=True):
        scored = [_scored(lm, text, spans[text], words[text], score) for text, score in zip(group, found, strict=True)]
        if kept:
            kept.add(scored)
        yield from scored


def _scored(
    lm: SyntacticLM, text: str, spans: tuple[tuple[int, int], ...], words: Words, score: SentenceScore
) -> ScoredText:
    surprisal = sentence_surprisal(words, score, lm.vocabulary)
    return ScoredText(
        text=text,
        spans=spans,
        surprisal_bits=tuple(word.surprisal_bits for word in surprisal.words),
        is_unk=tuple(word.is_unk for word in surprisal.words),
        end_bits=surprisal.end_surprisal_bits,
    )


class KeptScores:
    """Scored sentences in a file of JSON lines. A stopped program loses the group that it was scoring, no more."""

    def __init__(self, path: Path) -> None:
        """``path`` need not exist."""
        self.path = path

    @classmethod
    def of(cls, lm: SyntacticLM, settings: Mapping[str, int], *, tokenisation: Tokenisation) -> KeptScores:
        """The place, among what treelm keeps for itself, of what this model says under these settings."""
        from treelm import __version__
        from treelm.models.storage import describe_model

        digest = hashlib.sha256()
        described = {**describe_model(lm), "settings": dict(settings), "words": tokenisation, "version": __version__}
        digest.update(json.dumps(described, sort_keys=True, default=str).encode())
        for name, tensor in sorted(lm.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return cls(cache_directory() / "syntaxgym" / f"{digest.hexdigest()[:32]}.jsonl")

    def read(self) -> dict[str, ScoredText]:
        """What is kept, by text; a line that is not as it was written is left out."""
        if not self.path.is_file():
            return {}
        found = {}
        for line in self.path.read_bytes().splitlines(keepends=True):
            if (values := unsealed_line(line)) is not None:
                spans = tuple((start, end) for start, end in values["spans"])
                found[values["text"]] = ScoredText(
                    text=values["text"],
                    spans=spans,
                    surprisal_bits=tuple(values["surprisal_bits"]),
                    is_unk=tuple(values["is_unk"]),
                    end_bits=values["end_bits"],
                )
        return found

    def add(self, scored: Iterable[ScoredText]) -> None:
        """Write down some more; quietly not, where nothing can be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as stream:  # a line end first: the line before may not be whole
                stream.write(b"\n" + b"".join(sealed_line(asdict(one)) for one in scored))
        except OSError:
            return

    def forget(self) -> None:
        """Keep nothing from before."""
        self.path.unlink(missing_ok=True)
