"""Exact transport against linear programs, SciPy, enumeration and closed forms."""

import itertools
import math

import jaxtyping
import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import wasserstein_distance
from torch import Tensor

from vademecum.generative import Transport, wasserstein_1


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def program(x: np.ndarray, y: np.ndarray, p: np.ndarray, q: np.ndarray) -> float:
    """The least cost over all plans, by a linear program over their entries."""
    n, m = len(x), len(y)
    cost = np.linalg.norm(x[:, None] - y[None], axis=-1)
    rows = np.kron(np.eye(n), np.ones((1, m)))
    columns = np.kron(np.ones((1, n)), np.eye(m))
    found = linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, q]))
    return found.fun


def insist_on_plan(found: Transport, x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> None:
    """The marginals of the plan, and that its cost is the distance."""
    plan = torch.zeros(len(x), len(y), dtype=torch.float64)
    plan.index_put_((found.rows, found.columns), found.mass.double(), accumulate=True)
    torch.testing.assert_close(plan.sum(1), p.double(), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(plan.sum(0), q.double(), atol=1e-12, rtol=1e-12)
    a, b = (t.reshape(len(t), -1).double() for t in (x, y))
    cost = (plan * torch.cdist(a, b)).sum()
    assert float(found.distance) == pytest.approx(float(cost), rel=1e-12, abs=1e-12)
    assert (found.mass > 0).all()


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 5), (4, 7), (9, 6), (1, 8), (8, 1)])
@pytest.mark.parametrize("weighted", [(False, False), (True, False), (False, True), (True, True)])
def test_on_a_line_as_scipy_and_as_the_program(n, m, weighted):
    g = drawn(n + 10 * m)
    x, y = (torch.randn(k, generator=g, dtype=torch.float64) for k in (n, m))
    laws = [torch.rand(k, generator=g, dtype=torch.float64) for k in (n, m)]
    laws = [w / w.sum() if on else None for w, on in zip(laws, weighted, strict=True)]
    found = wasserstein_1(x, y, x_weights=laws[0], y_weights=laws[1])
    p, q = (
        w if w is not None else torch.full((k,), 1 / k, dtype=torch.float64)
        for w, k in zip(laws, (n, m), strict=True)
    )
    wanted = wasserstein_distance(x.numpy(), y.numpy(), p.numpy(), q.numpy())
    assert float(found.distance) == pytest.approx(wanted, rel=1e-12)
    program_cost = program(x.numpy()[:, None], y.numpy()[:, None], p.numpy(), q.numpy())
    assert float(found.distance) == pytest.approx(program_cost, abs=1e-7)
    insist_on_plan(found, x, y, p, q)
    column = wasserstein_1(x[:, None], y[:, None], x_weights=laws[0], y_weights=laws[1])
    assert column.distance.equal(found.distance)


@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 2), (6, 6, 3), (4, 6, 2), (6, 4, 2), (3, 7, 5)])
def test_in_more_dimensions_as_the_program(n, m, d):
    g = drawn(n + m + d)
    x, y = (torch.randn(k, d, generator=g, dtype=torch.float64) for k in (n, m))
    found = wasserstein_1(x, y)
    p, q = (torch.full((k,), 1 / k, dtype=torch.float64) for k in (n, m))
    cost = program(x.numpy(), y.numpy(), p.numpy(), q.numpy())
    assert float(found.distance) == pytest.approx(cost, abs=1e-7)
    insist_on_plan(found, x, y, p, q)


def test_as_all_permutations():
    x, y = torch.randn(2, 6, 2, generator=drawn(0), dtype=torch.float64)
    cost = torch.cdist(x, y).numpy()
    every = [cost[range(6), list(order)].mean() for order in itertools.permutations(range(6))]
    assert float(wasserstein_1(x, y).distance) == pytest.approx(min(every), rel=1e-12)


def test_ties_zero_weights_and_equal_laws():
    x = torch.tensor([1.0, 1.0, 2.0, 2.0])
    p = torch.tensor([0.5, 0.0, 0.0, 0.5])
    q = torch.tensor([0.0, 0.5, 0.5, 0.0])
    assert wasserstein_1(x, x, x_weights=p, y_weights=q).distance == 0
    assert wasserstein_1(x, x.flip(0)).distance == 0
    plane = torch.randn(7, 3, generator=drawn(1))
    assert wasserstein_1(plane, plane[torch.randperm(7, generator=drawn(2))]).distance == 0
    tenths = torch.tensor([*[0.1] * 10, 0.0], dtype=torch.float64)
    assert tenths.cumsum(0)[-1] < 1  # by rounding, which must move nothing to the last point
    far = torch.tensor([*range(10), 1e200], dtype=torch.float64)
    found = wasserstein_1(far, torch.zeros(3).double(), x_weights=tenths)
    assert float(found.distance) == pytest.approx(4.5, rel=1e-12)
    one, far = torch.zeros(1), torch.tensor([-2.0, 4.0])
    assert wasserstein_1(one, far, y_weights=torch.tensor([0.25, 0.75])).distance == 3.5


def test_many_points_on_a_line():
    """Normal laws at a distance: a shift by 3 costs 3 exactly, and dtype and order do not count."""
    x = torch.randn(100_001, generator=drawn(3), dtype=torch.float64)
    found = wasserstein_1(x, (x + 3)[torch.randperm(len(x), generator=drawn(4))])
    assert float(found.distance) == pytest.approx(3, rel=1e-12)
    y = torch.randn(70_000, generator=drawn(5), dtype=torch.float64)
    wanted = wasserstein_distance(x.numpy(), y.numpy())
    assert float(wasserstein_1(x, y).distance) == pytest.approx(wanted, rel=1e-9)
    half = wasserstein_1(x.float(), y.float())
    assert half.distance.dtype == half.mass.dtype == torch.float32
    assert float(half.distance) == pytest.approx(wanted, rel=1e-5)


def test_the_distance_is_differentiated_with_its_plan():
    """Against central differences, on a line and in space; a shift has the slope 1."""
    for d in (1, 3):
        x, y = torch.randn(2, 6, d, generator=drawn(6), dtype=torch.float64)
        x.requires_grad_()
        (slope,) = torch.autograd.grad(wasserstein_1(x, y).distance, x)
        v = torch.randn(6, d, generator=drawn(7), dtype=torch.float64)
        ends = [float(wasserstein_1(x.detach() + h * v, y).distance) for h in (-1e-6, 1e-6)]
        assert float((slope * v).sum()) == pytest.approx((ends[1] - ends[0]) / 2e-6, rel=1e-6)
    shift = torch.tensor(2.5, requires_grad=True, dtype=torch.float64)
    z = torch.randn(50, generator=drawn(8), dtype=torch.float64)
    (slope,) = torch.autograd.grad(wasserstein_1(z + shift, z).distance, shift)
    assert float(slope) == pytest.approx(1, rel=1e-12)


def test_rotation_translation_and_scale():
    x, y = torch.randn(2, 12, 2, generator=drawn(9), dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(2, 2, generator=drawn(10), dtype=torch.float64)).Q
    base = float(wasserstein_1(x, y).distance)
    moved = wasserstein_1(-3 * x @ turn + 1e3, -3 * y @ turn + 1e3)
    assert float(moved.distance) == pytest.approx(3 * base, rel=1e-9)


def call(*args, **options):
    return lambda: wasserstein_1(*args, **options)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("power", [-1000, -600, 600, 1000])
def test_coordinates_whose_squares_leave_the_range(d, power):
    """In another unit, a power of two, the distance is the same to the last digit."""
    x, y = torch.randn(2, 7, d, generator=drawn(11), dtype=torch.float64)
    wanted, found = wasserstein_1(x, y), wasserstein_1(x * 2.0**power, y * 2.0**power)
    assert float(found.distance) / 2.0**power == float(wanted.distance) > 0
    assert found.columns.equal(wanted.columns)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_points_of_other_sizes_than_those_that_they_go_to(size):
    """All go to one far point, or by the little that two coordinates differ beside a third."""
    near = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    far = torch.tensor([[3.0, -4.0]], dtype=torch.float64)
    small, large = (near, far * size) if size > 1 else (near * size, far)
    for given in ((small, large), (large, small)):
        assert float(wasserstein_1(*given).distance) == pytest.approx(5 * max(size, 1), rel=1e-12)
    one = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    two = one + torch.tensor([[0.0, 3e-200, 4e-200]], dtype=torch.float64)
    assert float(wasserstein_1(one, two).distance) == pytest.approx(5e-200, rel=1e-12)


X, LINE = torch.ones(4, 2), torch.ones(4)
REFUSED = {
    r"x must be a tensor, got list": call([1.0], LINE),
    r"x must be floating point, got torch.int64": call(torch.arange(3), LINE),
    r"y must be finite, got nan at \(1, 0\)": call(X, torch.tensor([[0.0, 0.0], [math.nan, 0.0]])),
    r"x must not be empty": call(torch.ones(0), LINE),
    r"\(n,\) and \(m,\), or \(n, d\) and \(m, d\), got \(4, 2\) and \(4, 3\)": (
        call(X, torch.ones(4, 3))
    ),
    r"got \(4, 2\) and \(4,\)": call(X, LINE),
    r"got \(2, 2, 2\) and \(2, 2, 2\)": call(torch.ones(2, 2, 2), torch.ones(2, 2, 2)),
    r"y must be torch.float32 on cpu like x, got torch.float64": call(LINE, LINE.double()),
    r"x must be real, got torch.complex64": call(LINE + 0j, LINE + 0j),
    r"x_weights must sum to one": call(LINE, LINE, x_weights=LINE),
    r"y_weights must have shape \(4,\), got \(3,\)": (
        call(LINE, LINE, y_weights=torch.tensor([0.5, 0.25, 0.25]))
    ),
    r"must be None off a line, .* repeat points instead, got 2 dimensions": (
        call(X, X, y_weights=torch.full((4,), 0.25))
    ),
    r"at most 5000 points off a line, got 5001 and 5001$": (
        call(torch.ones(5001, 2), torch.ones(5001, 2))
    ),
    r"got 70 and 97, whose least common multiple is 6790": (
        call(torch.ones(70, 2), torch.ones(97, 2))
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would complain first
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


def test_results_print_on_one_line():
    assert repr(wasserstein_1(LINE, LINE + 1)).startswith("Transport(distance=tensor(1.), rows=")


@pytest.mark.gpu
def test_on_a_gpu_as_on_the_cpu():
    for shapes in ((40,), (30,)), ((20, 3), (20, 3)):
        x, y = (torch.randn(shape, generator=drawn(1), dtype=torch.float64) for shape in shapes)
        found, wanted = wasserstein_1(x.cuda(), y.cuda()), wasserstein_1(x, y)
        assert all(t.is_cuda for t in found)
        assert float(found.distance) == pytest.approx(float(wanted.distance), rel=1e-12)
