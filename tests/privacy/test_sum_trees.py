"""The two trees of VFB² Algorithm 1: exact sums, and who can compute what, against plain linear algebra."""

from __future__ import annotations

from itertools import combinations, product
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InputError
from evenhand.privacy.sum_trees import Tree, coalition_learns, leaks, protects, two_trees

SIZES = range(3, 65)


def _inner_sets(tree: Tree) -> set[frozenset[int]]:
    return {tree.covered(party) for party in tree.inner}


def _added_up(tree: Tree, values: np.ndarray) -> np.ndarray:
    """What each party passes on, one message at a time."""
    sums = values.copy()
    for party in tree.order:
        if tree.parent[party] >= 0:
            sums[tree.parent[party]] += sums[party]
    return sums


def _random_tree(draw: st.DrawFn, parties: int) -> Tree:
    """Any tree: each party in a random order hangs below an earlier one."""
    labels = draw(st.permutations(range(parties)))
    parent = [-1] * parties
    for place in range(1, parties):
        parent[labels[place]] = labels[draw(st.integers(0, place - 1))]
    return Tree.from_parents(parent)


@st.composite
def _two_any_trees(draw: st.DrawFn) -> tuple[Tree, Tree]:
    parties = draw(st.integers(2, 6))
    first = _random_tree(draw, parties)
    # The protocol gives both trees one root: relabel the second.
    second = _random_tree(draw, parties)
    swap = {first.root: second.root, second.root: first.root}
    parent = [-1] * parties
    for party, above in enumerate(second.parent):
        parent[swap.get(party, party)] = swap.get(int(above), int(above))
    return first, Tree.from_parents(parent)


def _view(first: Tree, second: Tree, coalition: tuple[int, ...]) -> np.ndarray:
    """Everything a coalition knows, as rows over (x, δ): messages in, its own values, the total."""
    parties = first.parties
    rows = [np.concatenate([np.ones(parties), np.zeros(parties)])]
    for member in coalition:
        rows += [np.eye(2 * parties)[member], np.eye(2 * parties)[parties + member]]
        for child in first.children(member):
            heard = np.isin(np.arange(parties), list(first.covered(child)))
            rows.append(np.concatenate([heard, heard]).astype(float))
        for child in second.children(member):
            heard = np.isin(np.arange(parties), list(second.covered(child)))
            rows.append(np.concatenate([np.zeros(parties), heard]))
    return np.array(rows)


def _computable(view: np.ndarray, subset: tuple[int, ...]) -> bool:
    """Whether the unmasked sum over `subset` is a combination of the view's rows."""
    target = np.zeros(view.shape[1])
    target[list(subset)] = 1.0
    return np.linalg.matrix_rank(np.vstack([view, target])) == np.linalg.matrix_rank(view)


@pytest.mark.parametrize("parties", SIZES)
def test_no_inner_set_is_shared_from_any_root(parties: int) -> None:
    for root in range(parties):
        first, second = two_trees(parties, root)
        assert first.root == second.root == root
        others = frozenset(range(parties)) - {root}
        assert not _inner_sets(first) & _inner_sets(second)
        assert not {others - covered for covered in _inner_sets(first)} & _inner_sets(second)
        assert not set(first.inner) & set(second.inner)


@pytest.mark.parametrize("parties", SIZES)
def test_neither_one_nor_two_parties_learn_more_than_the_total(parties: int) -> None:
    # Other roots give the same trees with the parties renamed: the next test.
    first, second = two_trees(parties, 0)
    assert leaks(first, second) == {}
    for pair in combinations(range(parties), 2):
        assert len(coalition_learns(first, second, pair)) == 1


@pytest.mark.parametrize("parties", [3, 4, 5, 11, 64])
def test_another_root_renames_the_parties(parties: int) -> None:
    for tree, moved in zip(two_trees(parties, 0), two_trees(parties, 2), strict=True):
        for party in range(1, parties):
            assert moved.parent[(party + 2) % parties] == (tree.parent[party] + 2) % parties


@pytest.mark.parametrize("parties", [1, 2, *SIZES])
def test_depth_is_logarithmic(parties: int) -> None:
    allowed = 3 if parties == 4 else ceil(log2(parties))
    assert all(tree.depth <= allowed for tree in two_trees(parties, parties - 1))


@given(parties=st.integers(1, 64), data=st.data())
def test_both_trees_add_up_exactly(parties: int, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, parties - 1))
    values = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=parties, max_size=parties))
    for tree in two_trees(parties, root):
        sums = _added_up(tree, np.array(values, dtype=np.uint64)[:, None])[:, 0]
        assert int(sums[root]) == sum(values) % 2**64
        for party in range(parties):
            assert int(sums[party]) == sum(values[below] for below in tree.covered(party)) % 2**64
        assert sorted(tree.order) == list(range(parties))
        assert tree.order[-1] == root


@given(trees=_two_any_trees(), data=st.data())
def test_what_a_coalition_learns_is_what_linear_algebra_says(trees: tuple[Tree, Tree], data: st.DataObject) -> None:
    parties = trees[0].parties
    coalition = tuple(data.draw(st.sets(st.integers(0, parties - 1), min_size=1)))
    blocks = coalition_learns(*trees, coalition)
    view = _view(*trees, coalition)
    others = [party for party in range(parties) if party not in coalition]
    assert sorted(party for block in blocks for party in block) == others
    for size in range(1, len(others) + 1):
        for subset in combinations(others, size):
            whole_blocks = all(block <= set(subset) or block.isdisjoint(subset) for block in blocks)
            assert _computable(view, subset) == whole_blocks
    # Not only sums over sets: the unmasked combinations have one dimension for each block and each member.
    masks_only = view[:, parties:]
    unmasked = np.linalg.matrix_rank(view) - np.linalg.matrix_rank(masks_only)
    assert unmasked == len(blocks) + len(coalition)


@pytest.mark.parametrize("parties", [3, 4])
def test_uniform_masks_hide_all_but_the_blocks(parties: int) -> None:
    """Perfectly, not just from linear attacks: every view, counted over all masks modulo 4."""
    first, second = two_trees(parties, 0)
    modulus = 4
    masks = np.array(list(product(range(modulus), repeat=parties)))
    scores = masks
    for coalition in [(0,), (1,), (0, 1), (1, 2), (2,), (0, 2)]:
        view = _view(first, second, coalition).astype(int)
        blocks = coalition_learns(first, second, coalition)
        seen: dict[tuple[int, ...], bytes] = {}
        for score in scores:
            known = tuple(score[list(coalition)]) + tuple(sum(score[list(block)]) % modulus for block in blocks)
            heard = (view[:, :parties] @ score + masks @ view[:, parties:].T) % modulus
            distribution = heard[np.lexsort(heard.T)].tobytes()
            assert seen.setdefault(known, distribution) == distribution


def test_trees_that_only_look_different_leak() -> None:
    star = Tree.from_parents([-1, 0, 0, 0])
    assert leaks(star, star)[0] == (frozenset({1}), frozenset({2}), frozenset({3}))
    # Different trees, no inner set in common, and yet party 3 is a leaf below the root in both.
    first, second = Tree.from_parents([-1, 0, 1, 0]), Tree.from_parents([-1, 0, 0, 0])
    assert not _inner_sets(first) & _inner_sets(second)
    assert leaks(first, second) == {0: (frozenset({1, 2}), frozenset({3}))}


def test_three_colluders_can_unmask_a_party() -> None:
    first, second = two_trees(5, 0)
    exposed = [trio for trio in combinations(range(5), 3) if len(coalition_learns(first, second, trio)) > 1]
    assert len(exposed) == 2
    for trio in exposed:
        assert any(len(block) == 1 for block in coalition_learns(first, second, trio))


def test_two_parties_cannot_be_protected() -> None:
    assert [protects(parties) for parties in (1, 2, 3, 64)] == [False, False, True, True]
    first, second = two_trees(2, 1)
    assert coalition_learns(first, second, (0,)) == (frozenset({1}),)
    assert coalition_learns(first, second, (1,)) == (frozenset({0}),)


def test_three_parties_know_the_sum_of_the_other_two_only() -> None:
    for root in range(3):
        first, second = two_trees(3, root)
        for party in range(3):
            assert coalition_learns(first, second, (party,)) == (frozenset(range(3)) - {party},)


@pytest.mark.parametrize(("parties", "root"), [(0, 0), (3, 3), (3, -1)])
def test_a_root_that_is_no_party_is_refused(parties: int, root: int) -> None:
    with pytest.raises(InputError, match="root"):
        two_trees(parties, root)


@pytest.mark.parametrize("parent", [[], [-1, -1], [-1, 2, 1], [-1, 5], [0]])
def test_parents_that_are_no_tree_are_refused(parent: list[int]) -> None:
    with pytest.raises(InputError, match="no tree"):
        Tree.from_parents(parent)


def test_a_coalition_of_strangers_is_refused() -> None:
    with pytest.raises(InputError, match="coalition"):
        coalition_learns(*two_trees(3, 0), (3,))
