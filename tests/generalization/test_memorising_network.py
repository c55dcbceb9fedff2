"""A network that fits any labels, against dense triangular systems and the sum of all its units."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular

from vademecum.generalization import memorising_network
from vademecum.testing import check_part


def written_out(net, x):
    """All units, one by one."""
    a, b, w = (p.detach() for p in net.parameters())
    return ((x.double() @ a)[:, None] - b).relu() @ w


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "d", "shape"), [(1, 3, ()), (2, 1, ()), (50, 1, (2,)), (80, 6, ())])
def test_memorising_network_fits_any_labels(n, d, shape, dtype):
    x, y = torch.randn(n, d).to(dtype), 10 * torch.randn(n, *shape)
    net = memorising_network(x, y)
    assert sum(p.numel() for p in net.parameters()) == n + d + y.numel()
    with torch.no_grad():
        torch.testing.assert_close(net(x), y.double(), rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(written_out(net, x), y.double(), rtol=1e-7, atol=1e-7)
        new = 3 * torch.randn(40, d)
        torch.testing.assert_close(net(new), written_out(net, new), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(net(new.view(8, 5, d)).view(40, *shape), net(new))


def test_the_weights_solve_the_triangular_system():
    x, y = torch.randn(30, 4).double(), torch.randn(30).double()
    net = memorising_network(x, y)
    a, b, w = (p.detach().numpy() for p in net.parameters())
    t = x.numpy() @ a
    order = t.argsort()
    A = np.maximum(t[order][:, None] - b, 0)
    assert (np.triu(A, 1) < 1e-12).all()
    assert (A.diagonal() > 0).all()
    np.testing.assert_allclose(solve_triangular(A, y.numpy()[order], lower=True), w, rtol=1e-6)
    assert np.linalg.norm(a) == pytest.approx(1)


def test_a_line_by_hand():
    x, y = torch.tensor([[3.0], [0.0], [1.0]]), torch.tensor([5.0, 2.0, 4.0])
    net = memorising_network(x, y)
    assert net.get_parameter("thresholds").tolist() == [-3, 0, 1]
    # from 0 at -3 to 2 at 0, then slopes 2 and 1/2
    slopes = net.get_parameter("weights").detach().cumsum(0)
    torch.testing.assert_close(slopes, torch.tensor([2 / 3, 2, 0.5]).double())
    found = net(torch.tensor([[-9.0], [-3.0], [0.5], [2.0], [5.0]])).tolist()
    assert found == pytest.approx([0, 0, 3, 4.5, 6])


def test_gradients_are_those_of_the_sum():
    x, y = torch.randn(12, 3).double(), torch.randn(12, 2).double()
    net = memorising_network(x, y)
    new = torch.randn(7, 3, requires_grad=True, dtype=torch.float64)
    parameters = [new, *net.parameters()]
    with torch.no_grad():
        net.get_parameter("thresholds").copy_(net.get_parameter("thresholds").flip(0))  # unordered
    a, b, w = net.parameters()
    wanted = torch.autograd.grad((((new @ a)[:, None] - b).relu() @ w).sin().sum(), parameters)
    found = torch.autograd.grad(net(new).sin().sum(), parameters)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


def test_the_network_keeps_the_laws_of_parts():
    torch.manual_seed(0)
    net = memorising_network(torch.randn(9, 4).double(), torch.randn(9, 2))
    why = "projections are told apart in double precision alone"
    check_part(net, torch.randn(6, 4).double(), skip={"dtype": why})


def test_sixty_thousand_images():
    x, y = torch.rand(60_000, 784), torch.randint(10, (60_000,))
    net = memorising_network(x, y)
    with torch.no_grad():
        missed = (net(x) - y).abs().max()
    assert missed < 1e-3  # 2e-6 was observed
    assert sum(p.numel() for p in net.parameters()) == 2 * 60_000 + 784


def test_more_directions_are_gentler():
    x, y = torch.randn(300, 5).double(), torch.randn(300).double()
    steep = []
    for k in (1, 64):
        dice = torch.Generator().manual_seed(0)
        a = memorising_network(x, y, directions=k, generator=dice).get_parameter("direction")
        t, order = (x @ a.detach()).sort()
        steep.append(float((y[order].diff() / t.diff()).abs().max() * (t[-1] - t[0])))
    assert steep[1] < steep[0]
    A = torch.randn(5, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    t, order = (x @ (A / A.norm(dim=0))).sort(0)
    best = ((y[order].diff(dim=0) / t.diff(dim=0)).abs().amax(0) * (t[-1] - t[0])).min()
    assert steep[1] == pytest.approx(float(best), rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30, unique=True), st.integers(0, 99))
def test_whole_numbers_on_a_line(points, seed):
    x = torch.tensor(points).double()[:, None]
    y = torch.randint(-9, 9, (len(points),), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        memorising_network(x, y)(x).detach(), y.double(), rtol=1e-12, atol=1e-11
    )


def test_equal_points_are_named():
    x = torch.randn(2000, 40)
    x[1234] = x[17]
    for y in (torch.zeros(2000), torch.randn(2000)):
        with pytest.raises(ValueError, match="x must be points that differ, got rows 17 and 1234"):
            memorising_network(x, y)
    with pytest.raises(ValueError, match="got rows 0 and 1 that are equal"):
        memorising_network(torch.ones(5, 3), torch.randn(5))
    with pytest.raises(ValueError, match="got rows 0 and 1 that are equal"):  # -0 is 0
        memorising_network(torch.tensor([[0.0], [-0.0], [1.0]]), torch.randn(3))


def test_points_too_close_are_refused():
    near = torch.tensor([[1e6, 1.0], [1e6, 1 + 2**-52], [0, 3]], dtype=torch.float64)
    with pytest.raises(ValueError, match="x must be points that double precision tells apart"):
        memorising_network(near, torch.tensor([0.0, 1.0, 0.0]))


X, Y = torch.randn(4, 2), torch.randn(4)
REFUSED = [
    ((X[0], Y), {}, "x must have 2 axes, got shape (2,)"),
    ((X.long(), Y), {}, "x must be floating point, got torch.int64"),
    ((X / 0, Y), {}, "x must be finite, got "),
    ((X[:0], Y[:0]), {}, "x must not be empty, got shape (0, 2)"),
    ((X, Y[:3]), {}, "y must be a tensor of 4 rows, got shape (3,)"),
    ((X, [1, 2, 3, 4]), {}, "y must be a tensor of 4 rows, got list"),
    ((X, Y * math.nan), {}, "y must be finite, got nan at (0,)"),
    ((X, Y), {"directions": 0}, "directions must be >= 1, got 0"),
    ((X.to(torch.complex64), Y), {}, "x and y must be real, got torch.complex64 and torch.float32"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("args", "knobs", "message"), REFUSED, ids=[m for *_, m in REFUSED])
def test_refused(args, knobs, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        memorising_network(*args, **knobs)
