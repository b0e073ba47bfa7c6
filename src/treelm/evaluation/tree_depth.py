"""How deep trees are for a reader that goes from left to right: the slots that its memory needs (Shen et al. 2021)."""

from __future__ import annotations

from treelm.trees.tree import Tree


def slots_needed(tree: Tree) -> int:
    """Slots of a memory in which every constituent that is open at a word has one, the root's among them.

    A word needs one more than the first word of the smallest constituent that holds it, but not as its first word; the
    boundary before the sentence needs none. Unary chains and labels do not matter.
    """
    before: dict[int, int] = {}  # first word of a child that is not the first one -> first word of its parent
    spans = {id(node): span for node, span in zip(tree.constituents(), tree.spans(), strict=True)}
    for node in tree.constituents():
        start = position = spans[id(node)].start
        for child in node.children:
            if position > start:
                before[position] = start
            position += 1 if isinstance(child, str) else spans[id(child)].end - spans[id(child)].start
    depth: list[int] = []
    root = {position for position, start in before.items() if start == 0 and position in _heads(tree)}
    for position in range(len(tree.words())):
        above = 0 if position == 0 or position in root else depth[before[position]]
        depth.append(above + 1)
    return max(depth, default=0)


def _heads(tree: Tree) -> set[int]:
    """First words of the root's children, of which the boundary, not the first word, is the first sibling."""
    node, starts, position = tree, set(), 0
    while len(node.children) == 1 and not isinstance(node.children[0], str):
        node = node.children[0]
    for child in node.children:
        starts.add(position)
        position += 1 if isinstance(child, str) else len(child.words())
    return starts
