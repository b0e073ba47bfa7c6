"""Unlabelled F1 by named protocols, which differ in what they remove before spans are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from treelm.corpora.sentence import PUNCTUATION_TAGS, REMOVED_TAGS
from treelm.errors import InputError
from treelm.evaluation.evalb_files import Bracketing
from treelm.trees.span_counts import SpanCounts, add_up
from treelm.trees.transforms import binarise_left
from treelm.trees.tree import from_spans
from treelm.trees.treebanks import EMPTY_TAG

REMOVED_WORDS = frozenset(
    {"-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-", "--", "...", "``", "''", *"()[]{}.,:;?!-/'\"`$#…–—“”‘’"}
)
"""Words that count as punctuation or a currency sign where words have no tags."""

Removal = Literal["tags", "words", "nothing"]


@dataclass(frozen=True, kw_only=True)
class SpanProtocol:
    """A rule for which words, sentences and spans are left out, and how sentences without spans count."""

    name: str
    remove_punctuation: bool
    max_words: int | None = None  # counted after removal; longer sentences are left out
    drop_single_words: bool = True  # spans over one word
    drop_whole_sentence: bool = True
    duplicates: Literal["set", "multiset"] = "set"  # equal spans of unary chains: count once, or each
    without_spans: Literal["as_100", "left_out"] = "as_100"  # sentences whose gold tree has no span to find
    binarises: bool = False  # both trees are made binary from the left before they are compared

    @property
    def branching(self) -> Literal["left", "right"]:
        """Which way gold trees are made binary for the upper bound."""
        return "left" if self.binarises else "right"

    @property
    def description(self) -> str:
        """The protocol in one line."""
        dropped = [
            "punctuation and currency signs" if self.remove_punctuation else "",
            "single-word spans" if self.drop_single_words else "",
            "whole-sentence spans" if self.drop_whole_sentence else "",
            f"sentences over {self.max_words} words" if self.max_words is not None else "",
        ]
        empty = "count as 100 (0 if spans are predicted)" if self.without_spans == "as_100" else "are left out"
        removed = ", ".join(filter(None, dropped)) or "nothing"
        binary = "; both trees made binary from the left" if self.binarises else ""
        return f"removed: {removed}; spans as a {self.duplicates}; sentences without gold spans {empty}{binary}"


WSJ10 = SpanProtocol(name="wsj10", remove_punctuation=True, max_words=10)
"""The protocol of PRPN's released evaluation (Shen et al. 2018), up to 10 words. Klein's scores use another one."""
KLEIN = SpanProtocol(
    name="klein", remove_punctuation=True, max_words=10, drop_whole_sentence=False, without_spans="left_out"
)
"""The protocol of Klein's baselines on WSJ10 (Table 5, Shen et al. 2018; corpus F1): whole sentences count."""
WSJ40 = SpanProtocol(name="wsj40", remove_punctuation=True, max_words=40)
"""Protocol ``wsj10`` with sentences of up to 40 words."""
PLAIN = SpanProtocol(
    name="plain",
    remove_punctuation=False,
    drop_single_words=False,
    drop_whole_sentence=False,
    duplicates="multiset",
    without_spans="left_out",
)
"""Protocol of all constituents of the trees as they are, unary chains and whole sentences included."""
NO_PUNCTUATION = SpanProtocol(name="no-punctuation", remove_punctuation=True)
"""Sentences of any length, punctuation removed, whole sentences dropped (Table 5, Shen et al. 2021; its corpus F1)."""
BINARISED = SpanProtocol(
    name="binarised",
    remove_punctuation=False,
    drop_whole_sentence=False,
    without_spans="left_out",
    binarises=True,
)
"""Protocol of trees made binary from the left, whole sentences included (Table 2, Shen et al. 2021)."""

PROTOCOLS = {protocol.name: protocol for protocol in (WSJ10, KLEIN, WSJ40, PLAIN, NO_PUNCTUATION, BINARISED)}


@dataclass(frozen=True, kw_only=True)
class SpanResult:
    """Unlabelled F1 in 0..100 under one protocol, of the whole corpus and as the mean of the sentences' F1.

    It is 0 if there are no sentences.
    """

    protocol: SpanProtocol
    removal: Removal  # how punctuation was recognised
    sentences: tuple[SpanCounts, ...]
    places: tuple[int, ...]  # of these sentences among all
    num_left_out: int  # too long, without words, or (by the protocol) without spans
    errors: tuple[str, ...]  # sentences whose words do not align, and why

    @property
    def corpus(self) -> SpanCounts:
        """All spans together."""
        return add_up(self.sentences)

    @property
    def corpus_f1(self) -> float:
        """F1 of all spans together."""
        return self.corpus.f1 if self.sentences else 0.0

    @property
    def sentence_f1(self) -> float:
        """Mean of the sentences' F1."""
        return fmean(one.f1 for one in self.sentences) if self.sentences else 0.0

    @property
    def name(self) -> str:
        """The protocol's name, with how punctuation was recognised where that is not by tag."""
        return f"{self.protocol.name} (punctuation by word list)" if self.removal == "words" else self.protocol.name


def choose_removal(gold: Iterable[Bracketing], protocol: SpanProtocol) -> Removal:
    """Choose how punctuation is recognised in a corpus: by tags if they distinguish it, else by a list of words."""
    if not protocol.remove_punctuation:
        return "nothing"
    tagged = [sentence for sentence in gold if sentence.has_tags]
    tags = {tag for one in tagged for tag in one.tags}
    has_signs = any(not {",", "."}.isdisjoint(one.words) for one in tagged)
    return "tags" if tagged and (not has_signs or tags & PUNCTUATION_TAGS - {EMPTY_TAG}) else "words"


def kept_words(gold: Bracketing, removal: Removal) -> list[bool]:
    """Tell for each word of the gold tree whether it is kept.

    Punctuation is recognised by the list of words in a sentence without any tags, too.
    """
    if removal == "tags" and gold.has_tags:
        return [tag not in REMOVED_TAGS for tag in gold.tags]
    removed = REMOVED_WORDS if removal != "nothing" else frozenset[str]()
    return [tag != EMPTY_TAG and word not in removed for word, tag in zip(gold.words, gold.tags, strict=True)]


@dataclass(frozen=True, kw_only=True)
class ComparedSpans:
    """Both trees of one sentence over the words that its protocol keeps, and their spans that count."""

    gold_tree: Bracketing
    predicted_tree: Bracketing
    gold: Counter[tuple[int, int]]
    predicted: Counter[tuple[int, int]]

    @property
    def num_words(self) -> int:
        """Number of words that are kept."""
        return len(self.gold_tree.words)

    @property
    def counts(self) -> SpanCounts:
        """Matched, gold and predicted spans."""
        return count_matches(self.gold, self.predicted)


def count_matches(gold: Counter[tuple[int, int]], predicted: Counter[tuple[int, int]]) -> SpanCounts:
    """Count equal spans as often as both sides have them."""
    return SpanCounts(matched=(gold & predicted).total(), gold=gold.total(), predicted=predicted.total())


def score_spans(gold: Sequence[Bracketing], predicted: Sequence[Bracketing], protocol: SpanProtocol) -> SpanResult:
    """Compute unlabelled F1 of predicted trees, which are over all gold words or over the kept ones.

    A sentence whose words are neither is an error, which is counted. Raises ``InputError`` if the numbers of sentences
    differ.
    """
    compared = compare_spans(gold, predicted, protocol)
    scored = {place: one.counts for place, one in enumerate(compared) if isinstance(one, ComparedSpans)}
    errors = tuple(f"sentence {number}: {one}" for number, one in enumerate(compared, start=1) if isinstance(one, str))
    return SpanResult(
        protocol=protocol,
        removal=choose_removal(gold, protocol),
        sentences=(*scored.values(),),
        places=(*scored,),
        num_left_out=len(gold) - len(scored) - len(errors),
        errors=errors,
    )


def compare_spans(
    gold: Sequence[Bracketing], predicted: Sequence[Bracketing], protocol: SpanProtocol
) -> list[ComparedSpans | str | None]:
    """For each sentence the spans of both trees, or what is wrong with it, or None if the protocol leaves it out.

    Raises ``InputError`` if the numbers of sentences differ.
    """
    if len(gold) != len(predicted):
        raise InputError(
            f"{len(gold)} gold trees but {len(predicted)} predicted ones",
            remedy="give one predicted tree for each gold tree",
        )
    removal = choose_removal(gold, protocol)
    return [_compare(one, other, protocol, removal) for one, other in zip(gold, predicted, strict=True)]


def _compare(
    gold: Bracketing, predicted: Bracketing, protocol: SpanProtocol, removal: Removal
) -> ComparedSpans | str | None:
    if gold.problem or predicted.problem:
        return str(gold.problem or predicted.problem)
    keep = kept_words(gold, removal)
    if not 0 < sum(keep) <= (len(keep) if protocol.max_words is None else protocol.max_words):
        return None
    predicted_keep = _align(gold, predicted, keep)
    if predicted_keep is None:
        return f"{len(predicted.words)} predicted words are neither the gold words nor those that the protocol keeps"
    gold, predicted = gold.over(keep), predicted.over(predicted_keep)
    gold_spans, predicted_spans = spans_of(gold, protocol), spans_of(predicted, protocol)
    if protocol.binarises:
        gold_spans, predicted_spans = (Counter(left_binarised(spans)) for spans in (gold_spans, predicted_spans))
    if not gold_spans and protocol.without_spans == "left_out":
        return None
    return ComparedSpans(gold_tree=gold, predicted_tree=predicted, gold=gold_spans, predicted=predicted_spans)


def _align(gold: Bracketing, predicted: Bracketing, keep: Sequence[bool]) -> list[bool] | None:
    """Which predicted words stay; None if they are neither the gold words, with or without empty elements, nor the
    kept ones.
    """
    pronounced = [i for i, tag in enumerate(gold.tags) if tag != EMPTY_TAG]
    if list(predicted.words) == [gold.words[i] for i in pronounced]:
        return [keep[i] for i in pronounced]
    if list(predicted.words) == [word for word, kept in zip(gold.words, keep, strict=True) if kept]:
        return [True] * len(predicted.words)
    return [*keep] if predicted.words == gold.words else None


def spans_of(kept: Bracketing, protocol: SpanProtocol) -> Counter[tuple[int, int]]:
    """The spans that count of a tree over kept words."""
    spans = Counter(span for span, _ in labelled_spans(kept, protocol))
    return Counter(spans.keys()) if protocol.duplicates == "set" else spans


def labelled_spans(kept: Bracketing, protocol: SpanProtocol) -> Iterator[tuple[tuple[int, int], str]]:
    """The constituents of a tree over kept words whose spans count, each with its label.

    Those of unary chains are all there, whatever the protocol.
    """
    for label, start, end in kept.spans:
        is_single, is_whole = end - start == 1, end - start == len(kept.words)
        if not (protocol.drop_single_words and is_single) and not (protocol.drop_whole_sentence and is_whole):
            yield (start, end), label


def left_binarised(spans: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Make nested spans binary from the left: every span gets those of its first two, three, ... children.

    The longest span holds all others. Spans of single words are left out.
    """
    chains = [(start, end, ["X"]) for start, end in set(spans) if end - start > 1]
    if not chains:
        return set()
    tree = from_spans(["x"] * max(end for _, end, _ in chains), chains)
    return {(start, end) for _, start, end in binarise_left(tree, "").spans()}
