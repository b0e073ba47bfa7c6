"""A counted grammar equals its plain form; its probabilities of prefixes are those of all that they begin."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from tests.models.pcfg.plain import PlainCounts, nodes_of, written_out
from tests.models.pcfg.worlds import TREEBANK, TREES, assert_constituents_are_the_derivative, branching, counted
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.evaluation.audit import audit
from treelm.models.pcfg.config import TreebankPCFGConfig
from treelm.models.pcfg.interface import read_tokens
from treelm.models.pcfg.rules import MarkovRules
from treelm.models.pcfg.treebank import TreebankPCFG

VARIANTS = [(0, 0), (1, 0), (2, 0), (0, 2), (1, 2), (2, 2), (2, 100)]


@pytest.fixture(params=VARIANTS, ids=str)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> TreebankPCFG:
    history, parents = request.param
    return counted(tmp_path, history=history, min_parent_count=parents)


def names_of(model: TreebankPCFG) -> list[str]:
    """Symbols as the plain counts call them."""
    labels = [*model.labels, "TOP"]
    own = [labels[a] if b < 0 else f"{labels[a]}^{labels[b]}" for a, b in model.table.constituents.tolist()]
    return [*model.tag_names, *own]


def test_rules_are_those_of_the_plain_counts(model: TreebankPCFG) -> None:
    history = model.config.history
    plain = PlainCounts(TREES, history, model.config.min_parent_count)
    names, grammar = names_of(model), written_out(model.make_grammars()[0])
    num_known, num_tags = len(names), len(model.tag_names)
    rows = [(constituent, ("<",)) for constituent in names[num_tags:]]
    for constituent, *known in model.table.states.tolist():
        rows.append((names[num_tags + constituent], tuple(names[k] if k >= 0 else "<" for k in known if k > -2)))
    checked = 0
    for row, (constituent, known) in enumerate(rows, start=num_tags):
        if constituent == "TOP":
            continue
        known = known[max(0, len(known) - history) :] if history else ()
        for child in range(num_known):
            step, ending = grammar.binary[row, child].sum(), grammar.unary[row, child]
            for found, is_last in ((step, False), (ending, True)):
                expected = plain.probability(constituent, known, (names[child], is_last))
                assert found.item() == pytest.approx(expected, abs=1e-12), (constituent, known, names[child], is_last)
                checked += expected > 0
    assert checked > 30
    totals = grammar.binary.sum((1, 2)) + grammar.unary.sum(1)
    torch.testing.assert_close(totals[num_tags:], torch.ones_like(totals[num_tags:]), atol=1e-12, rtol=0)


def test_the_makeshift_has_its_share_and_children_as_frequent_as_anywhere(tmp_path: Path) -> None:
    model = counted(tmp_path, history=1, min_parent_count=0, makeshift=0.25)
    names, grammar = names_of(model), written_out(model.make_grammars()[0])
    tops = Counter(str(tree[0]) for tree in TREES)
    expected = {name: 0.75 * tops[name] / len(TREES) for name in names} | {"TOP": 0.25}
    assert dict(zip(names, grammar.root.tolist(), strict=False)) == pytest.approx(expected, abs=1e-12)
    nodes = [node for tree in TREES for node, _ in nodes_of(tree)]
    children = Counter(child if isinstance(child, str) else str(child[0]) for node in nodes for child in node[1:])  # type: ignore[index]
    assert set(children) <= set(names)
    number = {name: children[name] + 1 for name in names if name != "TOP"}
    last = (len(nodes) + 1) / (children.total() + 2)
    row = names.index("TOP")
    for child, times in number.items():
        share = times / sum(number.values())
        assert grammar.unary[row, names.index(child)].item() == pytest.approx(share * last, abs=1e-12)
        found = grammar.binary[row, names.index(child)].sum().item()
        assert found == pytest.approx(share * (1 - last), abs=1e-12)


def test_words_of_tags_are_smoothed_with_all_words(tmp_path: Path) -> None:
    """Method C: (c(word, tag) + kinds p(word)) / (c(tag) + kinds), p(word) with 1 added to every count."""
    model = counted(tmp_path)
    seen = Counter(re.findall(r"\((\w) (\w+)\)", TREEBANK))
    words = Counter(word for pair in seen.elements() for word in pair[1:])
    tags = model.tag_names
    for tag, row in zip(tags, model.make_grammars()[0].words, strict=True):
        own = {word: times for (other, word), times in seen.items() if other == tag}
        for word in words:
            lower = (words[word] + 1) / (words.total() + len(model.vocabulary))
            wanted = (own.get(word, 0) + len(own) * lower) / (sum(own.values()) + len(own))
            (token,) = model.vocabulary.encode([word]).ids
            assert row[token] == pytest.approx(wanted, abs=1e-12)
        assert row.sum() == pytest.approx(1, abs=1e-12)


def test_prefixes_are_those_of_the_textbook(model: TreebankPCFG) -> None:
    (rules,) = model.grammars()
    plain = written_out(rules)
    for words in ([4, 1, 3], [1, 1, 2, 4, 3], [3], [2, 4, 1, 2]):
        found, prefix = read_tokens([rules], words)
        expected = [plain.prefix(words[:length]).log() for length in range(len(words) + 1)]
        expected.append(plain.probability(words).log())
        np.testing.assert_allclose(found, torch.stack(expected).diff().numpy(), atol=1e-9)
        every = torch.stack([plain.prefix([*words, word]) for word in range(5)]) / plain.prefix(words)
        np.testing.assert_allclose(prefix.next_words()[:-1], every, atol=1e-10)
        assert prefix.next_words().sum() == pytest.approx(1, abs=1e-10)


def test_the_parts_of_surprisal_are_expected_values_over_the_tags_of_the_textbook(model: TreebankPCFG) -> None:
    """A tag as one more word, that has no other tag, gives its probability after what was read."""
    (rules,) = model.grammars()
    plain, num_tags, num_words = written_out(rules), len(model.tags), len(model.vocabulary)
    assert num_tags > 1
    tags = torch.zeros(len(plain.root), num_tags, dtype=torch.float64)
    tags[rules.tags] = torch.eye(num_tags, dtype=torch.float64)
    plain = replace(plain, words=torch.cat([plain.words, tags], 1))
    words = [4, 1, 3, 2]
    (score,) = model.score([[model.vocabulary.token(word) for word in words]])
    for place, word in enumerate(words):
        before = plain.prefix(words[:place])
        of_tags = [float(plain.prefix([*words[:place], num_words + tag]) / before) for tag in range(num_tags)]
        of_words = [float(rules.words[tag, word]) for tag in range(num_tags)]
        total = sum(p * q for p, q in zip(of_tags, of_words, strict=True))
        shares = [p * q / total for p, q in zip(of_tags, of_words, strict=True)]
        for name, parts in (("tag_bits", of_tags), ("word_given_tag_bits", of_words)):
            expected = -sum(share * np.log2(part) for share, part in zip(shares, parts, strict=True) if share)
            assert score.columns[name][place] == pytest.approx(expected, abs=1e-8)
        entropy = -sum(share * np.log2(share) for share in shares if share)
        both = score.columns["tag_bits"][place] + score.columns["word_given_tag_bits"][place]
        assert both == pytest.approx(-score.log_probs[place] / np.log(2) + entropy, abs=1e-8)


def test_prefixes_are_the_sum_of_all_that_begin_with_them() -> None:
    rules, log_mass = branching(0.3).consistent()
    assert log_mass == pytest.approx(0, abs=1e-12)
    prefix = read_tokens([rules], [1, 0])[1]
    found = np.exp(read_tokens([rules], [1, 0])[0][:2].sum())
    longest, total, left = 7, 0.0, 1.0
    for length in range(1, longest + 1):
        for words in itertools.product(range(2), repeat=length):
            probability = np.exp(read_tokens([rules], words)[0].sum())
            left -= probability
            total += probability if words[:2] == (1, 0) else 0
    assert 0 < left < 0.05
    assert 0 < found - total < left
    # every sentence of this length has so much, in closed form: the words are independent of the tree
    catalan = [1.0]
    for n in range(1, 400):
        catalan.append(catalan[-1] * 2 * (2 * n - 1) / (n + 1))
    exact = sum(catalan[n - 1] * 0.3 ** (n - 1) * 0.7**n for n in range(2, 400)) * 0.7 * 0.3
    assert found == pytest.approx(exact, abs=1e-10)
    assert prefix.next_words().sum() == pytest.approx(1, abs=1e-10)


def test_constituents_are_the_derivative_of_the_plain_form(model: TreebankPCFG) -> None:
    (rules,) = model.grammars()
    assert_constituents_are_the_derivative(rules, [[4, 1, 3], [1], [3, 4, 2, 1]])


def test_what_only_an_improbable_symbol_can_make_is_exact_too(tmp_path: Path) -> None:
    """Two words here are under the makeshift alone: nothing may leak into it from chains of unary rules above it."""
    unary = "(NP (NP (NP (S (D the)))))\n(NP (S (S (D the))))"
    model = counted(tmp_path, unary, history=1, min_parent_count=0, makeshift=1e-9)
    (rules,) = model.grammars()
    for words in ([0], [0, 1], [0, 1, 2, 2]):
        assert read_tokens([rules], words)[1].next_words().sum() == pytest.approx(1, abs=1e-13)


class Loose(TreebankPCFG):
    """A grammar that loses two thirds of its trees to infinity, and is read as it is, or conditioned."""

    share: ClassVar[float] = 0.6

    def make_grammars(self) -> list[MarkovRules]:
        rules = branching(self.share)
        return [rules]


class Broken(Loose):
    def grammars(self) -> tuple[MarkovRules, ...]:
        return tuple(self.make_grammars())


def test_a_loose_grammar_is_found_by_enumeration_and_conditioned() -> None:
    config, vocabulary = TreebankPCFGConfig(), WordVocabulary(["a"])
    sentences = [["a"], ["a", "b", "a"], ["b", "a"]]
    reports = []
    for kind in (Broken, Loose):
        model = kind(config, vocabulary=vocabulary)
        assert model.log_masses()[0] == pytest.approx(np.log(2 / 3), abs=1e-9)
        reports.append(audit(model, sentences, enumerate_all=model.probability_mass))
    outcomes = [{check.name: check.outcome for check in report.checks} for report in reports]
    assert outcomes[0]["enumeration"] == "failed"
    assert outcomes[0]["normalisation"] == outcomes[0]["causality"] == outcomes[0]["incremental"] == "passed"
    assert reports[1].passed, reports[1].as_text()
    conditioned, _ = branching(0.6).consistent()
    np.testing.assert_allclose(conditioned.mass(), 1, atol=1e-12)
    plain, loose = written_out(conditioned), written_out(branching(0.6))
    for words in ([0], [1, 0, 0, 1]):
        share = loose.probability(words) / plain.probability(words)
        assert share.item() == pytest.approx(2 / 3, abs=1e-9)


def test_partial_trees_have_what_is_closed_under_a_top(tmp_path: Path) -> None:
    model = counted(tmp_path, history=1, min_parent_count=0)
    state, found = model.start(1), []
    for word in ("the", "cat", "sees"):
        state = model.extend(state, [word])
        found.append(str(model.partial_trees(state)[0]))
    assert found[:2] == ["(NP the)", "(NP the cat)"]
    assert found[2].startswith("(S (NP the cat)")
