"""Groups against permutations composed by hand, brute force over triples, and known tables."""

import math
from collections import Counter
from itertools import permutations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vademecum.geometry import Group, NotAGroup
from vademecum.geometry.groups._axioms import generating

CUBE = [
    torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]]),
    torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
    torch.tensor([[-1, 0, 0], [0, 1, 0], [0, 0, 1]]),
]


def enumerated() -> list[Group]:
    return [
        Group.cyclic(1), Group.cyclic(6), Group.dihedral(1), Group.dihedral(2), Group.dihedral(5),
        Group.symmetric(1), Group.symmetric(2), Group.symmetric(4),
        Group.cyclic(2) * Group.symmetric(3), Group.dihedral(3) * Group.cyclic(4),
        Group.from_permutations([torch.tensor([1, 2, 0, 4, 3])]), Group.from_matrices(CUBE),
    ]  # fmt: skip


@pytest.mark.parametrize("group", enumerated(), ids=str)
def test_products_inverses_points_and_tables_agree(group):
    table = group.table
    assert Group.from_table(table) == group  # all axioms
    assert table.tolist() == [[group.multiply(g, h) for h in group] for g in group]
    assert all(group.multiply(g, group.inverse(g)) == group.identity for g in group)
    assert group.inverses.tolist() == [group.inverse(g) for g in group]
    for g, h in product(range(min(group.order, 8)), repeat=2):
        both = group.permutation(g)[group.permutation(h)]
        assert both.equal(group.permutation(group.multiply(g, h)))
    assert len({group.name(g) for g in group}) == group.order
    reached = generating(table, group.identity)
    assert set(reached) <= set(group)
    assert group.is_abelian == table.equal(table.T)


@pytest.mark.parametrize("group", enumerated(), ids=str)
def test_generators_generate_everything(group):
    found = {group.identity}
    while True:
        more = found | {group.multiply(s, g) for s in group.generators for g in found}
        if more == found:
            break
        found = more
    assert found == set(group)


def test_symmetric_groups_are_numbered_as_in_a_dictionary():
    group = Group.symmetric(4)
    assert [tuple(group.permutation(g).tolist()) for g in group] == list(permutations(range(4)))


def test_dihedral_groups_turn_after_reflecting():
    group = Group.dihedral(5)
    r, f = 1, 5
    assert group.multiply(f, r) == group.multiply(group.inverse(r), f)
    assert group.name(7) == "r^2 f"
    assert group.permutation(7).tolist() == [2, 1, 0, 4, 3]
    assert group.turn(7) == (2, 5, True)


def test_groups_without_a_table_are_computed_with():
    group = Group.symmetric(50) * Group.dihedral(1000)
    assert group.order == math.factorial(50) * 2000
    x, y, z = group.sample(3)
    assert group.multiply(group.multiply(x, y), z) == group.multiply(x, group.multiply(y, z))
    assert group.multiply(x, group.inverse(x)) == group.identity
    assert group.permutation(x)[group.permutation(y)].equal(group.permutation(group.multiply(x, y)))
    with pytest.raises(ValueError, match=r"at most 4096 elements for a table, got Group\.symm"):
        _ = group.table
    assert group != Group.symmetric(50)
    assert Group.symmetric(50) == Group.symmetric(50)


def test_samples_are_uniform():
    for group in (Group.symmetric(3), Group.dihedral(3), Group.from_matrices(CUBE[:2])):
        drawn = Counter(group.sample(3000, generator=torch.Generator().manual_seed(0)))
        expected = 3000 / group.order
        square = sum((drawn[g] - expected) ** 2 / expected for g in group)
        assert square < 35  # with 5 degrees of freedom, 2e-6


def test_conjugacy_classes():
    assert sorted(map(len, Group.symmetric(4).classes)) == [1, 3, 6, 6, 8]
    assert sorted(map(len, Group.dihedral(4).classes)) == [1, 1, 2, 2, 2]
    assert len(Group.cyclic(7).classes) == 7


def test_groups_from_generators():
    square = Group.from_permutations([torch.tensor([1, 2, 3, 0]), torch.tensor([0, 3, 2, 1])])
    assert (square.order, square.degree, square.name(square.generators[0])) == (8, 4, "(0 1 2 3)")
    assert sorted(map(len, square.classes)) == [1, 1, 2, 2, 2]
    assert Group.from_matrices(CUBE).order == 48
    angle = torch.tensor(2 * math.pi / 7)
    turn = torch.stack([torch.stack([angle.cos(), -angle.sin()]),
                        torch.stack([angle.sin(), angle.cos()])])  # fmt: skip
    seven = Group.from_matrices([turn])
    assert seven.order == 7
    assert seven.is_abelian
    traces = seven.natural().characters()
    torch.testing.assert_close(traces.sum(), torch.zeros_like(traces[0]), atol=1e-6, rtol=0)


def turn_by(angle: float, dtype: torch.dtype) -> torch.Tensor:
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64).to(dtype)


def test_rounded_generators_close_up_as_far_as_their_rounding_goes():
    flip = torch.tensor([[1.0, 0.0], [0.0, -1.0]])
    for n, dtype in ((200, torch.float32), (199, torch.float64), (5, torch.bfloat16)):
        group = Group.from_matrices([turn_by(2 * math.pi / n, dtype)])
        assert group.order == n
        assert group.is_abelian
    assert Group.from_matrices([turn_by(3 * math.pi / 25, torch.float32), flip]).order == 100
    basis = torch.linalg.qr(torch.randn(40, 40, dtype=torch.float64)).Q
    cycle = basis @ torch.eye(40, dtype=torch.float64).roll(1, 0) @ basis.T
    assert Group.from_matrices([cycle.float()]).order == 40  # determinant -1 up to rounding


def test_elements_closer_than_rounding_are_refused_for_that_reason():
    with pytest.raises(ValueError, match="generators must be more precise, or of a smaller group"):
        Group.from_matrices([turn_by(2 * math.pi / 60, torch.float16)])
    with pytest.raises(ValueError, match="elements differ by 2e-06 and rounding may make 1e-06"):
        Group.from_matrices([turn_by(2e-6, torch.float64)])


def broken(table: list[list[int]]) -> set[str]:
    n = range(len(table))
    found = set()
    if any(table[table[a][b]][c] != table[a][table[b][c]] for a, b, c in product(n, repeat=3)):
        found.add("associative")
    units = [e for e in n if all(table[e][g] == g == table[g][e] for g in n)]
    if not units:
        return found | {"identity"}
    if any(not any(table[g][h] == units[0] == table[h][g] for h in n) for g in n):
        found.add("inverses")
    return found


@given(st.integers(1, 4).flatmap(lambda n: st.lists(
    st.lists(st.integers(0, n - 1), min_size=n, max_size=n), min_size=n, max_size=n)))  # fmt: skip
def test_random_tables_are_refused_for_what_they_break(table):
    try:
        Group.from_table(torch.tensor(table))
        found = set()
    except NotAGroup as error:
        found = set(error.axioms)
    assert found == broken(table)


@given(st.integers(0, 2**32))
def test_latin_squares_of_order_six_are_refused_for_what_they_break(seed):
    """Isotopes of S_3 with the identity put back: they have inverses, and mostly no brackets."""
    draw = torch.Generator().manual_seed(seed)
    rows, columns, names = (torch.randperm(6, generator=draw) for _ in range(3))
    table = names[Group.symmetric(3).table[rows][:, columns]]
    table = table[table[:, 0].argsort()]
    table = table[:, table[0].argsort()]  # the identity is 0 now
    try:
        assert Group.from_table(table).order == 6
        found = set()
    except NotAGroup as error:
        found = set(error.axioms)
    assert found == broken(table.tolist())
