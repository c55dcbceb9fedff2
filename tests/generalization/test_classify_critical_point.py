"""The Hessian test, against SymPy, dense Hessians and points whose kind is known."""

import math
import re

import pytest
import sympy
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from vademecum.generalization import classify_critical_point
from vademecum.generalization.hessian_signs import _Ends, _kind
from vademecum.gradients import functional
from vademecum.linear import DeepLinearNetwork, critical_points
from vademecum.models import mlp
from vademecum.testing import check_instrument

LANDSCAPES = {
    "bowl": (lambda x, y: 3 * x**2 + x * y + y**2, (0, 0), "minimum"),
    "hill": (lambda x, y: -(x**2) - x * y - y**2 + 7, (0, 0), "maximum"),
    "pass": (lambda x, y: x * y, (0, 0), "saddle"),
    "flat below": (lambda x, y: (x - 1) ** 2 + (y - 2) ** 4, (1, 2), "undecided"),
    "flat above": (lambda x, y: (x - 1) ** 2 - (y - 2) ** 4, (1, 2), "undecided"),
    "monkey": (lambda x, y: x**3 - 3 * x * y**2, (0, 0), "undecided"),
    "slope": (lambda x, y: x + 2 * y, (5, 5), "not critical"),
    "near a bowl": (lambda x, y: x**2 + y**2, (1, 0), "not critical"),
    "constant": (lambda x, y: 0 * x * y + 4, (1, 0), "undecided"),
    "two valleys": (lambda x, y: (x**2 - 1) ** 2 + y**2, (1, 0), "minimum"),
    "between them": (lambda x, y: (x**2 - 1) ** 2 + y**2, (0, 0), "saddle"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LANDSCAPES)
def test_classify_critical_point_against_sympy(name, dtype):
    f, place, wanted = LANDSCAPES[name]
    x, y = sympy.symbols("x y")
    at = {x: place[0], y: place[1]}
    H = sympy.hessian(f(x, y), (x, y)).subs(at)
    values = sorted(float(v) for v, times in H.eigenvals().items() for _ in range(times))
    slope = [float(sympy.diff(f(x, y), s).subs(at)) for s in (x, y)]
    found = classify_critical_point(lambda v: f(*v), torch.tensor(place).to(dtype))
    assert found.kind == wanted
    assert [found.smallest, found.largest] == pytest.approx(values, rel=1e-5, abs=1e-6)
    assert found.gradient_norm == pytest.approx(math.hypot(*slope))
    assert found.saddle_index == sum(v < 0 for v in values)
    assert found.converged
    assert found.residual == 0


@pytest.mark.parametrize("c", [0.0, 100.0])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_neither_the_unit_of_the_loss_nor_a_shift_matters(scale, c):
    def bowl(v):
        return scale * (v - c).square().sum()

    def ridge(v):
        return scale * ((v[0] - c) ** 2 - (v[1] - c) ** 2)

    at = torch.full((2,), c).double()
    assert classify_critical_point(bowl, at).kind == "minimum"
    assert classify_critical_point(ridge, at).kind == "saddle"
    assert classify_critical_point(bowl, at + 0.001).kind == "not critical"


def test_what_counts_as_zero_is_said():
    f = lambda v: v[0] ** 2 + 1e-4 * v[1] ** 2 + 1e-3 * v[0]  # noqa: E731
    at = torch.zeros(2).double()
    assert classify_critical_point(f, at).kind == "not critical"
    assert classify_critical_point(f, at, tol=1e-3).kind == "undecided"  # 1e-4 is zero then
    found = classify_critical_point(f, at, tol=1e-3)
    assert found.zero == pytest.approx(2e-3)
    assert classify_critical_point(lambda v: f(v) - 1e-3 * v[0], at, tol=9e-5).kind == "minimum"


def test_a_curvature_of_rounding_is_zero():
    point = torch.tensor([0.1, 0.2, 0.3]).double()
    flat = lambda v: 1 + 1e-17 * (v - point).square().sum()  # noqa: E731
    found = classify_critical_point(flat, point)
    assert found.kind == "undecided"
    assert found.zero == pytest.approx(3 * 2**-52 / (1 + 0.14**0.5) ** 2)


def landscape(values):
    """A quadratic with these curvatures along random axes."""
    d = len(values)
    Q = torch.linalg.qr(torch.randn(d, d).double()).Q
    A = (Q * values) @ Q.T
    return lambda v: v @ A @ v / 2


@pytest.mark.parametrize("d", [256, 257, 400])  # all eigenvalues, and both ends
def test_many_dimensions(d):
    high = torch.linspace(0.1, 1, d).double()
    mixed, semi = high.clone(), high.clone()
    mixed[0], semi[0] = -0.01, 0
    cases = [(high, "minimum"), (-high, "maximum"), (mixed, "saddle"), (semi, "undecided")]
    for values, wanted in cases:
        found = classify_critical_point(landscape(values), torch.zeros(d).double())
        assert found.kind == wanted
        assert (found.saddle_index is None) == (d > 256)
        assert found.largest == pytest.approx(float(values.max()), abs=1e-3)
        assert found.smallest == pytest.approx(float(values.min()), abs=1e-3)


def test_a_saddle_needs_no_convergence_and_a_minimum_does():
    values = torch.logspace(-6, 0, 300).double()
    f = landscape(values)
    with pytest.warns(ConvergenceWarning, match="max_iter=30 reached with a residual norm of"):
        found = classify_critical_point(f, torch.zeros(300).double(), max_iter=30)
    assert found.kind == "undecided"
    assert not found.converged
    values[:40] *= -1e6
    found = classify_critical_point(landscape(values), torch.zeros(300).double(), max_iter=30)
    assert found.kind == "saddle"
    assert found.converged


def test_linear_networks_at_all_critical_points():
    gamma = torch.diag(torch.tensor([3.0, 2.0, 1.0])).double()[:, :3]
    for point in critical_points(gamma, 3):
        net = DeepLinearNetwork.balanced(point.product, width=3)
        found = classify_critical_point(
            net, torch.eye(3).double(), gamma.T, loss=lambda z, y: (z - y).square().sum() / 2
        )
        assert found.kind == ("saddle" if point.saddle_index else "undecided")
        assert found.saddle_index == point.saddle_index


def network(unit=nn.Tanh, sizes=(3, 4, 2)):
    torch.manual_seed(0)
    return mlp(sizes, unit).double()


X = torch.randn(9, 3, generator=torch.Generator().manual_seed(1)).double()
Y = torch.arange(9) % 2


@pytest.mark.parametrize("sizes", [(3, 4, 2), (3, 60, 2)])
def test_any_module_against_a_dense_hessian(sizes):
    model = network(sizes=sizes)
    f = functional(model)
    H = torch.func.hessian(lambda theta: F.cross_entropy(f(theta, X), Y))(f.theta)
    values = torch.linalg.eigvalsh(H)
    found = classify_critical_point(model, X, Y)
    assert found.kind == "not critical"
    assert found.largest == pytest.approx(float(values[-1]), rel=1e-3)
    assert found.smallest == pytest.approx(float(values[0]), rel=1e-2)
    loader = DataLoader(TensorDataset(X, Y), batch_size=4)
    assert classify_critical_point(model, loader).gradient_norm == pytest.approx(
        found.gradient_norm
    )
    # the whole layer dead: both classes as likely, every example with the same output
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        list(model.parameters())[-1].copy_(torch.tensor([5 / 9, 4 / 9]).log())
    assert classify_critical_point(model, X, Y).kind == "saddle"


def test_a_strictly_convex_loss_has_a_minimum():
    model = nn.Linear(3, 1).double()
    A = torch.cat([X, torch.ones(9, 1)], 1)
    y = torch.randn(9, 1).double()
    w = torch.linalg.lstsq(A, y).solution[:, 0]
    with torch.no_grad():
        model.weight.copy_(w[:3])
        model.bias.copy_(w[3:])
    found = classify_critical_point(model, X, y)
    assert found.kind == "minimum"
    values = torch.linalg.eigvalsh(2 * A.T @ A / 9)
    assert [found.smallest, found.largest] == pytest.approx([float(values[0]), float(values[-1])])
    model.bias.requires_grad_(False)
    assert classify_critical_point(model, X, y, frozen=False).largest < found.largest


def test_it_leaves_the_model_untouched():
    def measured(model, data):
        return classify_critical_point(
            model, *data, generator=torch.Generator().manual_seed(0), tol=1e-3
        )

    check_instrument(
        measured, [], (torch.randn(6, 4), torch.arange(6) % 3),
        skip={"no_parameters": "has no Hessian"},
    )  # fmt: skip


REFUSED = [
    ((lambda v: v, torch.zeros(2)), {}, "loss must give one differentiable number, got"),
    ((lambda v: v.sum(), torch.arange(2)), {}, "x must be floating point, got torch.int64"),
    ((lambda v: v.sum(), torch.tensor([math.nan])), {}, "x must be finite, got nan at (0,)"),
    ((lambda v: v.sum(), [0.0]), {}, "x must be a tensor, got list"),
    ((3, torch.zeros(2)), {}, "model must be a module or a function, got int"),
    ((lambda v: v.log().sum(), torch.zeros(2)), {}, "loss and gradient must be finite, got -inf"),
    ((lambda v: (v**1.5).sum(), torch.zeros(2)), {}, "the Hessian must be finite, got NaN"),
    ((network(), X, Y), {"tol": 0.0}, "tol must be > 0, got 0.0"),
    ((network(), X, Y), {"tol": 1.0}, "tol must be < 1, got 1.0"),
    ((network(), X, Y), {"max_iter": 0}, "max_iter must be >= 1, got 0"),
    ((nn.ReLU(), X, Y), {}, "model must have parameters to differentiate, got none"),
    ((network().half(), X.half(), Y), {}, "model must be in single or double precision, got"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("args", "knobs", "message"), REFUSED, ids=[m for *_, m in REFUSED])
def test_refused(args, knobs, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        classify_critical_point(*args, **knobs)


def test_a_wide_valley_far_from_the_origin_is_no_rounding():
    """The second derivative is small beside the loss, but not over the length of the point."""
    far = torch.tensor([1e6], dtype=torch.float64)
    found = classify_critical_point(lambda v: 1e3 + 1e-14 * (v - 1e6).square().sum(), far)
    assert found.kind == "minimum"
    assert found.largest == pytest.approx(2e-14)
    near = classify_critical_point(lambda v: 1e3 + 1e-14 * v.square().sum(), 0 * far)
    assert near.kind == "undecided"  # less than the rounding of the loss over one unit


def test_zero_is_a_share_of_the_eigenvalue_that_is_largest_in_size():
    point = torch.zeros(2, dtype=torch.float64)
    found = classify_critical_point(lambda v: 5e-10 * v[0] ** 2 - v[1] ** 2, point)
    assert found.zero == pytest.approx(2 * math.sqrt(torch.finfo(torch.float64).eps))
    assert (found.kind, found.saddle_index) == ("undecided", 1)


@pytest.mark.parametrize(("residual", "certain"), [(0.4, True), (0.6, False)])
def test_ends_that_are_known_up_to_residuals(residual, certain):
    """Whether zero may be within them, for both signs."""
    for sign, kind in ((1, "minimum"), (-1, "maximum")):
        low, top = sorted((sign * 0.5, sign * 2.0))
        ends = _Ends(top, low, residual, residual, None, 2, converged=True)
        assert _kind(ends, 0.0, 1e-8, 0.0)[0] == (kind if certain else "undecided")
        wavering = ends._replace(converged=False)
        assert _kind(wavering, 0.0, 1e-8, 0.0)[0] == "undecided"


def test_what_a_coarse_look_leaves_open_a_finer_one_decides():
    sizes = torch.linspace(0.5, 1.0, 300, dtype=torch.float64)
    sizes[7] = 1e-6
    seeded = torch.Generator().manual_seed(0)
    bowl, point = lambda v: (sizes * v**2).sum() / 2, torch.zeros(300, dtype=torch.float64)
    found = classify_critical_point(bowl, point, generator=seeded)
    assert found.kind == "minimum"
    assert found.smallest == pytest.approx(1e-6, rel=0.1)
    found = classify_critical_point(bowl, point, tol=1e-3, generator=seeded)
    assert found.kind == "undecided"
