"""How many CUDA graphs the training of an RNNG captures, and how much its levels are padded; counted on a CPU.

python benchmarks/gpu_forms.py --corpora gum-open open-english-2-silver --splits train dev
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import chain

import one_line

from treelm.corpora.batches import SentenceBatches
from treelm.corpora.data_config import DataConfig, prepared_split
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models.layers.devices import computing
from treelm.models.layers.graphs import cuda_graphs
from treelm.models.rnng.captured import Form, Forms
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.network import RNNG


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to count. Units are few: forms do not depend on them."""

    corpora: tuple[str, ...] = ("gum-open",)
    """Names of corpora with trees."""
    splits: tuple[str, ...] = ("train",)
    """Of each corpus."""
    batch_sizes: tuple[int, ...] = (64, 512)
    """Sentences in an update, at most."""
    max_actions: int = 26_000
    """Actions in an update, at most."""
    epochs: int = 1
    """In the order of training."""


class CountedForms(Forms):
    """Forms that remember what they were found for."""

    def __init__(self) -> None:
        """Start without forms."""
        super().__init__()
        self.found: list[tuple[Form, Form]] = []

    def find(self, plan: Form) -> Form:
        """The same, with a note of both."""
        form = super().find(plan)
        self.found.append((plan, form))
        return form


def main(options: Arguments) -> None:
    """Print one line of JSON for each corpus and size of a batch."""
    for name, split in zip(options.corpora, options.splits, strict=True):
        data = prepared_split(DataConfig(corpus=name), split)
        corpus = EncodedCorpus(data, WordVocabulary.build(data.form_counts(), min_count=2), sorted(data.labels))
        for batch_size in options.batch_sizes:
            config = RNNGConfig(embedding_size=2, hidden_size=2)
            model = RNNG(config, vocabulary=corpus.vocabulary, labels=corpus.labels)
            model._forms = forms = CountedForms()
            batches = SentenceBatches(corpus, batch_size=batch_size, max_actions=options.max_actions, seed=1)
            with computing(in_few_calls=True), cuda_graphs():
                for batch in chain.from_iterable(iter(batches) for _ in range(options.epochs)):
                    model._plan(batch)
            rows, filled = (sum(pair[number].num_rows for pair in forms.found) for number in (0, 1))
            levels, more = (sum(len(p[n].stack) + len(p[n].steps) for p in forms.found) for n in (0, 1))
            counts = {"updates": len(forms.found), "captures": len({form for _, form in forms.found})}
            ratios = {"rows": round(filled / rows, 2), "levels": round(more / levels, 2)}
            what = {"corpus": name, "split": split, "batch_size": batch_size}
            print(json.dumps({**what, **counts, **ratios}), flush=True)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
