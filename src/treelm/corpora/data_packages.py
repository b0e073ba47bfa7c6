"""Data packages: distributions with corpora and models too large for treelm itself, used where they are installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class DataPackage:
    """A distribution with a folder for each corpus in its module, and one for its models."""

    distribution: str  # its name, by which it is installed
    module: str  # the module that holds its files
    corpora: tuple[str, ...]  # names of its corpora
    made_corpora: Mapping[str, str]
    """Names of corpora that its models were trained on and that are made of its own: each with the corpus of this
    distribution that has their sentences, and may have more. Of such a corpus it has what models are measured on; users
    make the rest, and name it in a catalogue."""
    models: Mapping[str, str]
    """Names of its models, each with what it is for; first those to take first. This is what a treelm without the
    distribution knows of them. The figures behind it are in docs/pretrained.md."""

    @property
    def folder(self) -> Path | None:
        """The folder of its files; None if it is not installed."""
        spec = find_spec(self.module)
        return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None

    @property
    def install(self) -> str:
        """What to do to have what is missing: it may be there in an older release."""
        return f"pip install {'' if self.folder is None else '--upgrade '}{self.distribution}"


DATA_PACKAGES = (
    DataPackage(
        distribution="treelm-english",
        module="treelm_english",
        corpora=("open-english-2", "modern-english"),
        made_corpora=dict.fromkeys(("open-english-2-silver", "open-english", "open-english-silver"), "open-english-2"),
        models={
            "rnng-open-english": "reading times and syntax, with trees: the first choice; slow (beam search)",
            "lstm-open-english": "reading times, without trees: fast",
            "transformer-open-english": "reading times, without trees: a lower perplexity than lstm-open-english",
            "transformer-open-english-2": "text of today, without trees: the lowest perplexity",
            "lstm-open-english-2": "text of today, without trees: fast",
            "rnng-open-english-2": "text of today and syntax, with trees; slow (beam search)",
            "tg-open-english": "syntax in a Transformer; slow (beam search)",
            "tg-open-english-2": "text of today, syntax in a Transformer; slow (beam search)",
            "som-open-english": "trees and exact word probabilities: fast",
            "prpn-open-english": "unsupervised trees",
            "on-lstm-open-english": "unsupervised trees, with a lower perplexity than prpn-open-english",
            "ngram-pruned-open-english-2": "a small baseline of modern and older text, without syntax",
            "chart-gum-open": "parsing: the best trees and tags; no surprisals",
            "pushdown-open-english": "comparisons: a Transformer with a stack; slow (beam search)",
            "palm-open-english": "comparisons: an LSTM with attention over spans",
        },
    ),
)


def package_of(corpus: str) -> DataPackage | None:
    """The distribution that has a corpus of this name, or text of which one is made."""
    return next((one for one in DATA_PACKAGES if corpus in (*one.corpora, *one.made_corpora)), None)
