"""Representations and equivariant maps: all elements, characters, dimensions that are known."""

import math

import pytest
import torch

from vademecum.geometry import Group, Representation, equivariant_basis


def plane(group: Group) -> Representation:
    """The turns and reflections of the plane, as matrices."""
    found = []
    for g in group:
        turn = group.turn(g)
        assert turn is not None
        angle = 2 * math.pi * turn.k / turn.n
        cos, sin = math.cos(angle), math.sin(angle)
        sign = -1 if turn.mirrored else 1
        found.append([[cos, -sign * sin], [sin, sign * cos]])
    return Representation(group, torch.tensor(found, dtype=torch.float64))


def signs(group: Group) -> Representation:
    """The determinants of the permutations."""
    found = [[[float(torch.linalg.det(m.double()).round())]] for m in group.natural().matrices()]
    return Representation(group, torch.tensor(found))


def cases() -> list[tuple[str, Representation, Representation]]:
    d4, s4, c5 = Group.dihedral(4), Group.symmetric(4), Group.cyclic(5)
    square = Group.from_matrices([torch.tensor([[0, -1], [1, 0]])])
    return [
        ("points", s4.natural(), s4.natural()),
        ("points to matrices", s4.natural(), s4.natural() * s4.natural()),
        ("regular", d4.regular(), d4.natural() + d4.trivial(2)),
        ("plane", plane(d4), plane(d4)),
        ("plane to regular", plane(c5), c5.regular()),
        ("plane and points", plane(d4) + d4.natural(), plane(d4) * plane(d4)),
        ("signs", signs(s4), s4.natural() * s4.natural()),  # none
        ("signs of three", signs(Group.symmetric(3)), Group.symmetric(3).regular()),
        ("integer matrices", square.natural(), square.regular()),
        ("nothing moves", Group.cyclic(1).trivial(2), Group.cyclic(1).trivial(3)),
    ]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[0])
def test_equivariant_basis_is_all_of_it(case):
    _, rep_in, rep_out = case
    group = rep_in.group
    basis = equivariant_basis(group, rep_in, rep_out)
    a, b = rep_in.matrices().double(), rep_out.matrices().double()
    moved = b[:, None] @ basis - basis @ a[:, None]  # (order, dimension, d_out, d_in)
    assert moved.abs().sum() < 1e-10
    back = rep_in.characters().double()[group.inverses]
    wanted = float((rep_out.characters().double() * back).mean())
    assert len(basis) == pytest.approx(wanted, abs=1e-9)
    assert not len(basis) or torch.linalg.matrix_rank(basis.flatten(1)) == len(basis)
    # the average of any map over the group is one of them
    W = torch.randn(rep_out.d, rep_in.d, dtype=torch.float64)
    mean = (b @ W @ a[group.inverses]).mean(0)
    columns = basis.flatten(1).T
    projected = columns @ torch.linalg.pinv(columns) @ mean.flatten()
    torch.testing.assert_close(projected, mean.flatten())


@pytest.mark.parametrize(("n", "vectors", "matrices"), [(2, 2, 8), (3, 2, 14), (4, 2, 15),
                                                        (5, 2, 15)])  # fmt: skip
def test_dimensions_of_the_symmetric_group(n, vectors, matrices):
    points = Group.symmetric(n).natural()
    pairs = points * points
    assert len(equivariant_basis(points.group, points, points)) == vectors
    assert len(equivariant_basis(points.group, pairs, pairs)) == matrices


def test_equivariant_basis_of_a_group_without_a_table():
    group = Group.symmetric(30)
    basis = equivariant_basis(group, group.natural(), group.natural())
    assert basis[0].equal(torch.eye(30, dtype=torch.float64))
    assert (basis[0] + basis[1]).eq(1).all()


def test_convolutions_are_all_that_shifts_allow():
    group = Group.cyclic(6)
    basis = equivariant_basis(group, group.natural(), group.natural())
    assert len(basis) == 6
    for W in basis:
        assert W.roll((1, 1), (0, 1)).equal(W)  # circulant


def test_sums_and_products_are_blocks_and_kronecker_products():
    group = Group.dihedral(3)
    for one, other in ((group.natural(), group.regular()), (plane(group), group.natural())):
        for g in group:
            a, b = one.matrix(g).double(), other.matrix(g).double()
            torch.testing.assert_close((one + other).matrix(g).double(), torch.block_diag(a, b))
            torch.testing.assert_close((one * other).matrix(g).double(), torch.kron(a, b))
    assert (group.natural() * group.natural()).exact
    assert not (plane(group) * group.natural()).exact


def test_representations_act_on_vectors_of_their_own_dtype():
    group = Group.symmetric(3)
    x = torch.randint(9, (2, 5, 3))
    for g in group:
        assert group.natural()(g, x).equal(x @ group.natural().matrix(g).T)
        y = torch.randn(2, 3, dtype=torch.float32)
        assert signs(group)(g, y[:, :1]).dtype == torch.float32
    turns = plane(Group.cyclic(5))
    v = torch.randn(4, 2, dtype=torch.float64)
    torch.testing.assert_close(turns(1, v), torch.einsum("ij,nj->ni", turns.matrix(1), v))


def test_characters_of_irreducible_representations_are_orthonormal():
    group = Group.dihedral(4)
    chi = torch.stack([plane(group).characters(), group.trivial().characters().double()])
    torch.testing.assert_close(chi @ chi.T / 8, torch.eye(2, dtype=torch.float64))
