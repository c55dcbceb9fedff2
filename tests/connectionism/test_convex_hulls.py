"""The shortest vector between hulls: by hand, by its optimality conditions, in any arithmetic."""

import inspect
import math

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism import convex_hulls
from vademecum.connectionism._affine_hull import AffineHull
from vademecum.connectionism.convex_hulls import nearest_point


def test_a_hull_that_changes_is_the_hull_made_anew():
    rng = np.random.default_rng(0)
    hull = AffineHull(rng.normal(size=9))
    for step in range(300):
        if len(hull.points) > 1 and rng.random() < 0.4:
            hull.drop(int(rng.integers(len(hull.points))))
        else:
            size = 10.0 ** rng.integers(-2, 3)  # also beyond what the scale so far can take
            room = len(hull.points) < 10
            assert hull.add(size * rng.normal(size=9)) == room
            if step % 3 == 0:
                count = len(hull.points)
                inside = rng.dirichlet(np.ones(count)) @ np.stack(hull.points)
                assert not hull.add(inside)
                assert len(hull.points) == count
        s = np.stack(hull.points)
        weights, vector = hull.shortest()
        assert weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(weights @ s, vector, atol=1e-9 * np.abs(s).max())
        # the shortest one: orthogonal to the affine hull
        assert np.abs((s - s[0]) @ vector).max() <= 1e-10 * np.linalg.norm(s, axis=1).max() ** 2


def test_nearest_point_between_hulls():
    square = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).double()
    found = nearest_point(square + torch.tensor([3.0, 0.5]), square)
    assert found.point.tolist() == pytest.approx([2.0, 0.0])
    assert found.gap <= 1e-12
    for weights in (found.weights, found.others):
        assert float(weights.sum()) == pytest.approx(1.0)
        assert (weights >= 0).all()
    ends = found.weights @ (square + torch.tensor([3.0, 0.5])), found.others @ square
    torch.testing.assert_close(ends[0] - ends[1], found.point)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (5, 3), (40, 3), (30, 30), (10, 50)])
def test_nearest_point_is_optimal(n, d):
    torch.manual_seed(n)
    p = torch.randn(n, d, dtype=torch.float64) + 1
    found = nearest_point(p)
    torch.testing.assert_close(found.weights @ p, found.point)
    if found.point.norm() > 1e-9:  # then every point of the hull lies beyond the plane through it
        assert float((p @ found.point).min()) >= float(found.point @ found.point) * (1 - 1e-9)
    else:
        assert found.gap <= found.point.norm() * (1 + 1e-6) + 1e-12


def test_nearest_point_inside():
    corners = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]]).double()
    assert nearest_point(corners).point.norm() < 1e-15
    with pytest.warns(ConvergenceWarning, match="reached: the vector is too long by 0.447 at most"):
        cut = nearest_point(corners, max_iter=1)  # on the way, with a corner behind it
    assert not cut.converged
    assert cut.point.tolist() == pytest.approx([0.2, 0.4])
    assert cut.gap == pytest.approx(math.sqrt(0.2))  # so nothing is known but its length


@pytest.mark.parametrize("candidates", [1, 2, 7, 1000])
def test_the_points_looked_at_do_not_matter(candidates, monkeypatch):
    torch.manual_seed(0)
    w, x = torch.randn(8).double(), torch.randn(300, 8).double()
    side = x @ w
    x = x + 0.1 * side.sign()[:, None] * w / w.norm()
    p, q = x[side > 0], x[side < 0]
    expected = nearest_point(p, q)
    monkeypatch.setattr(convex_hulls, "CANDIDATES", candidates)
    found = nearest_point(p, q)
    assert found.gap <= 1e-12
    torch.testing.assert_close(found.point, expected.point, rtol=0, atol=1e-11)
    torch.testing.assert_close(found.weights, expected.weights, rtol=0, atol=1e-9)
    assert nearest_point(p, q, tol=0.0).gap <= 1e-12  # ends, by rounding
    assert found.converged
    with pytest.warns(ConvergenceWarning, match="max_iter=3 reached"):
        assert nearest_point(p, q, max_iter=3).n_iter == 3


@pytest.mark.parametrize("scale", [2.0**-600, 2.0**-40, 2.0**40, 2.0**600, 2.0**1010])
def test_scaled_points_give_the_scaled_vector_to_the_bit(scale):
    torch.manual_seed(3)
    p = torch.randn(30, 4, dtype=torch.float64) + 2
    dtype = torch.float32 if 2.0**-100 < scale < 2.0**100 else torch.float64
    small, large = nearest_point(p.to(dtype) / 2.0**31), nearest_point(p.to(dtype) * scale)
    assert torch.equal(large.point / scale, small.point * 2.0**31)
    assert torch.equal(large.weights, small.weights)
    assert large.gap / scale == small.gap * 2.0**31


def test_duplicates_and_a_zero():
    twice = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 1.0]]).double()
    assert nearest_point(twice, twice - torch.tensor([5.0, 0.0])).point.tolist() == [5.0, 0.0]
    zero = nearest_point(torch.zeros(3, 2))
    assert (zero.point.tolist(), zero.gap, float(zero.weights.sum())) == ([0.0, 0.0], 0.0, 1.0)
    strided = nearest_point(twice.T.contiguous().T.requires_grad_())
    assert strided.point.tolist() == pytest.approx([2.0, 0.0])


X = torch.ones(3, 2)
ERRORS = [
    ((X[0],), "p must have 2 axes"),
    ((X, torch.ones(1, 3)), "q must be 2 wide"),
    ((X, X.double()), "q must be torch.float32 on cpu, got torch.float64"),
    ((X.half(),), "p must be float32 or float64, got torch.float16"),
    ((X.to(torch.complex64),), "p must be float32 or float64, got torch.complex64"),
    ((X, X * math.nan), "q must be finite, got nan"),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(nearest_point)(*arguments)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    torch.manual_seed(0)
    p, q = torch.randn(300, 5).double() + 2, torch.randn(200, 5).double() - 2
    there, here = nearest_point(p.cuda(), q.cuda()), nearest_point(p, q)
    assert there.point.is_cuda
    torch.testing.assert_close(there.point.cpu(), here.point)
    torch.testing.assert_close(there.others.cpu(), here.others)
