"""The rules that stand in the most probable trees of sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from treelm.corpora.vocabulary import Vocabulary
from treelm.models.pcfg.products import ProductRules
from treelm.models.pcfg.viterbi import viterbi
from treelm.models.structures import UsedRule

_NUM_WORDS = 3  # of a preterminal, to tell it by


def nonterminal_name(number: int) -> str:
    """How trees and rules call a nonterminal."""
    return f"NT{number + 1}"


def used_rules(sentences: Iterable[tuple[ProductRules, Sequence[int]]], vocabulary: Vocabulary) -> list[UsedRule]:
    """The rules of sentences, each with its grammar, the most used first; probabilities are of the first grammar."""
    counts: Counter[tuple[int, int, int]] = Counter()
    first: ProductRules | None = None
    for rules, words in sentences:
        first = first or rules
        spans = {(i, j): symbol for i, j, symbol in viterbi(rules, words)[1]}
        for (i, j), symbol in spans.items():
            if j - i > 1:
                k = next(k for k in range(i + 1, j) if (i, k) in spans and (k, j) in spans)
                counts[symbol, spans[i, k], spans[k, j]] += 1
    if first is None:
        return []
    rules, num = first, first.num_nonterminals

    def name(symbol: int) -> str:
        if symbol < num:
            return nonterminal_name(symbol)
        words = rules.words[symbol - num].argsort()[::-1][:_NUM_WORDS].tolist()
        return f"T{symbol - num + 1} ({', '.join(map(vocabulary.token, words))})"

    return [
        UsedRule(
            parent=name(parent),
            children=(name(left), name(right)),
            count=count,
            probability=float(rules.of_head[parent] @ (rules.of_left[:, left] * rules.of_right[:, right])),
        )
        for (parent, left, right), count in counts.most_common()
    ]
