"""Certificates of descent on models with data, bad inputs, drawings."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.gradients import functional
from vademecum.models import SlowPathWarning
from vademecum.optimization import certify_descent, draw_descent

DOUBLE: dict[str, Any] = {"dtype": torch.float64}
START = torch.tensor([1.0, -2.0], **DOUBLE)


def bowl(x: Tensor) -> Tensor:
    return torch.tensor([1.0, 4.0]).to(x) @ x.square() / 2


def scalars(x: Tensor) -> Tensor:
    a, c = torch.tensor([3.0, 1.0]).to(x), torch.tensor([1.0, -3.0]).to(x)
    return a / 2 * (x - c).square()


def regression() -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(0)
    x = torch.randn(12, 2, generator=dice, **DOUBLE)
    return x, x.sum(1, keepdim=True) + torch.randn(12, 1, generator=dice, **DOUBLE)


class Odd(nn.Module):
    """A linear unit with everything that training and evaluation treat differently."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.unit = nn.BatchNorm1d(2, **DOUBLE), nn.Linear(2, 1, **DOUBLE)
        self.drop, self.frozen = nn.Dropout(), nn.Parameter(torch.ones(1, **DOUBLE), False)

    def forward(self, x: Tensor) -> Tensor:
        return self.unit(self.drop(self.norm(x))) * self.frozen


class Together(nn.Module):
    """A linear unit whose mean over the batch is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.unit = nn.Linear(2, 1, **DOUBLE)

    def forward(self, x: Tensor) -> Tensor:
        z = self.unit(x)
        return z - z.mean(0)


class Scaled(nn.Linear):
    """A linear unit of examples that are divided by the largest entry of all."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input / input.abs().amax().clamp(min=10))


class Choosy(nn.Linear):
    """A linear unit that looks at values."""

    def forward(self, input: Tensor) -> Tensor:
        z = super().forward(input)
        return z if float(z.detach().sum()) < 1e9 else -z


@pytest.mark.parametrize("method", ["gradient_descent", "nesterov", "sgd", "svrg"])
def test_models_are_functions_of_their_parameters_and_stay_as_they_are(method):
    torch.manual_seed(0)
    model, (x, y) = nn.Sequential(nn.Linear(2, 1, **DOUBLE), nn.Dropout()), regression()
    rows = torch.cat([x, torch.ones(12, 1, **DOUBLE)], 1)
    spectrum = torch.linalg.eigvalsh(rows.T @ rows / 12) * 2
    largest = 2 * rows.square().sum(1).max() if method in ("sgd", "svrg") else spectrum[-1]
    L = float(largest)
    options: dict[str, Any] = {
        "method": method,
        "L": L,
        "mu": float(spectrum[0]),
        "steps": 20,
        "runs": 3,
    }
    options |= {"period": 10} if method == "svrg" else {}
    f = functional(model)
    before, theta = {k: v.clone() for k, v in model.state_dict().items()}, f.theta.clone()

    def terms(w: Tensor) -> Tensor:
        return (rows @ w - y[:, 0]).square()

    torch.manual_seed(1)
    found = certify_descent(model, x, y, **options)
    torch.manual_seed(1)
    wanted = certify_descent(terms, theta, **options)
    torch.testing.assert_close(found.gap, wanted.gap, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.bound, wanted.bound, rtol=1e-9, atol=1e-12)
    assert found.held
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    assert all(before[k].equal(v) for k, v in model.state_dict().items())


def test_models_in_training_are_taken_in_evaluation_mode():
    torch.manual_seed(0)
    model, (x, y) = Odd(), regression()
    state = torch.get_rng_state()
    one, other = (
        certify_descent(m, x, y, assuming="smooth", L=50.0, minimum=0.0, steps=5)
        for m in (model, model)
    )
    assert one.gap.equal(other.gap)
    assert state.equal(torch.get_rng_state())
    assert model.training
    assert model.norm.num_batches_tracked == 0
    assert not model.frozen.requires_grad


def test_classes_and_losses_of_ones_own():
    torch.manual_seed(0)
    x, y = regression()[0], torch.arange(12) % 3
    model = nn.Linear(2, 3, **DOUBLE)
    result = certify_descent(model, x, y, L=5.0, steps=10)
    f = functional(model)
    slope = torch.func.grad(lambda w: nn.functional.cross_entropy(f(w, x), y))
    w = f.theta
    values = []
    for _ in range(10):
        w = w - slope(w) / 5
        values.append(nn.functional.cross_entropy(f(w, x), y))
    torch.testing.assert_close(result.gap.diff(), torch.stack(values).diff(), rtol=1e-8, atol=1e-12)
    twice = certify_descent(
        model, x, y, L=10.0, steps=10, loss=lambda z, y: 2 * nn.functional.cross_entropy(z, y)
    )
    torch.testing.assert_close(twice.gap, 2 * result.gap, rtol=1e-8, atol=1e-12)


def test_single_precision_is_kept_and_judged_as_such():
    result = certify_descent(bowl, START.float(), L=4.0, mu=1.0, steps=60)
    assert result.held
    flat = torch.tensor([1.0, 0.0])
    assert certify_descent(bowl, flat, L=4.0, mu=2.0, steps=9).held is False


def test_what_cannot_be_mapped_is_evaluated_point_by_point():
    def choosy(x: Tensor) -> Tensor:
        return scalars(x) if float(x.detach().sum()) < 1e9 else x

    options: dict[str, Any] = {"method": "sgd", "L": 3.0, "mu": 2.0, "steps": 5, "runs": 4}
    torch.manual_seed(0)
    with pytest.warns(SlowPathWarning, match="one point after the other"):
        slow = certify_descent(choosy, START[:1], **options)
    torch.manual_seed(0)
    fast = certify_descent(scalars, START[:1], **options)
    torch.testing.assert_close(slow.gap, fast.gap)


def test_models_that_cannot_be_mapped_take_examples_one_by_one():
    x, y = regression()
    model, plain = Choosy(2, 1, **DOUBLE), nn.Linear(2, 1, **DOUBLE)
    plain.load_state_dict(model.state_dict())
    options: dict[str, Any] = {"method": "sgd", "L": 20.0, "mu": 0.1, "steps": 4, "runs": 3}
    torch.manual_seed(0)
    with pytest.warns(SlowPathWarning, match="one after the other|one point after the other"):
        slow = certify_descent(model, x, y, **options)
    torch.manual_seed(0)
    fast = certify_descent(plain, x, y, **options)
    torch.testing.assert_close(slow.gap, fast.gap)
    torch.testing.assert_close(slow.bound, fast.bound)


RIGHT: dict[str, Any] = {"f": bowl, "x0": START, "L": 4.0, "steps": 3}
SGD: dict[str, Any] = {**RIGHT, "f": scalars, "x0": START[:1], "method": "sgd", "L": 3.0, "mu": 2.0}
LINE: dict[str, Any] = {
    "f": nn.Linear(2, 1, **DOUBLE),
    "x0": regression()[0],
    "y": regression()[1],
    "L": 9.0,
}
LOADER = DataLoader(TensorDataset(*regression()), batch_size=4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**RIGHT, "method": "newton"}, "method must be one of 'gradient_descent', .*got 'newton'"),
        ({**RIGHT, "assuming": "quadratic"}, "assuming must be one of 'convex', .*'quadratic'"),
        ({**RIGHT, "L": 0.0}, "L must be > 0, got 0"),
        ({**RIGHT, "L": float("nan")}, "L must be"),
        ({**RIGHT, "mu": -1.0}, "mu must be > 0, got -1"),
        ({**RIGHT, "mu": 5.0}, "mu must be <= L, got 5 and 4"),
        ({**RIGHT, "steps": 0}, "steps must be >= 1, got 0"),
        ({**RIGHT, "eta": 0.1}, "eta must be None for gradient_descent, got 0.1"),
        ({**RIGHT, "period": 3}, "period must be None for gradient_descent, got 3"),
        ({**RIGHT, "G": 3.0}, "G must be None for gradient_descent, got 3.0"),
        ({**RIGHT, "minimum": 100.0}, "minimum must be <= f"),
        ({**RIGHT, "minimum": 0.5, "steps": 60, "mu": 1.0}, "minimum must be the least value of f"),
        ({**RIGHT, "minimiser": torch.ones(3, **DOUBLE)}, "minimiser must be 2 wide"),
        ({**RIGHT, "runs": 1}, "runs must be >= 2, got 1"),
        ({**RIGHT, "confidence": 1.0}, "confidence must be < 1, got 1.0"),
        ({**RIGHT, "x0": torch.ones(2, 2)}, "x0 must have 1 axes"),
        ({**RIGHT, "x0": torch.ones(2).long()}, "x0 must be floating point"),
        ({**RIGHT, "x0": torch.tensor([1.0, float("nan")])}, "x0 must be finite"),
        ({**RIGHT, "x0": torch.ones(2, dtype=torch.complex64)}, "x0 must be real"),
        ({**RIGHT, "x0": torch.ones(2).half()}, "x0 must be in single or double precision"),
        ({**RIGHT, "f": lambda x: x.sum(), "L": None, "minimiser": START}, "L must be given where"),
        ({**RIGHT, "x0": [1.0, 2.0]}, "x0 must be a tensor, got list"),
        ({**RIGHT, "f": 3}, "f must be a function or a module, got int"),
        ({**RIGHT, "f": lambda x: 3.0}, "f must give one number or a vector, got float"),
        ({**RIGHT, "f": lambda x: torch.outer(x, x)}, "f must give one number or a vector"),
        ({**RIGHT, "f": lambda x: x.detach().sum()}, "f must be differentiable"),
        ({**RIGHT, "f": lambda x: x.log().sum()}, "f.x0. must be finite"),
        ({**RIGHT, "y": torch.ones(2)}, "y must be None where f is no model"),
        ({**RIGHT, "loss": nn.functional.mse_loss}, "loss must be None where f is no model"),
        ({**RIGHT, "f": lambda x: x[0] ** 2 - x[1] ** 2 + x[1] ** 4, "assuming": "strongly_convex"},
         "f must be strongly convex, got the curvature -"),
        ({**SGD, "f": lambda x: x @ x}, "f must give the vector of its terms"),
        ({**SGD, "eta": 0.4}, "eta must be < 0.333333, got 0.4"),
        ({**SGD, "eta": 0.0}, "eta must be > 0, got 0"),
        ({**SGD, "method": "svrg", "eta": 0.1}, "eta must be < 0.0833333, got 0.1"),
        ({**SGD, "method": "svrg", "period": 0}, "period must be >= 1, got 0"),
        ({**SGD, "method": "svrg"}, "steps must be >= 75, got 3"),
        ({**SGD, "method": "averaged_sgd", "mu": None, "G": 0.0}, "G must be > 0, got 0"),
        ({**LINE, "x0": LOADER, "y": None}, "x0 must hold the inputs themselves and y the targets"),
        ({**LINE, "y": regression()[1][:3]}, "x and y must have equally many examples"),
        ({**LINE, "f": nn.Identity()}, "model must have parameters to move, got none"),
        ({**LINE, "f": nn.Linear(2, 1).bfloat16()}, "model must be in single or double precision"),
        ({**LINE, "loss": lambda z, y: z - y}, "loss must give one number"),
        ({**LINE, "f": nn.Linear(2, 3, **DOUBLE), "method": "sgd", "loss": lambda z, y: z - y},
         "loss must give one number"),
        ({**LINE, "f": Together(), "method": "sgd"}, "model must treat examples independently"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_named(given, message):
    given = dict(given)
    positional = [given.pop(name) for name in ("f", "x0", "y") if name in given]
    with pytest.raises(ValueError, match=message):
        certify_descent(*positional, **given)


@pytest.mark.parametrize("large", [0, 5, -1])
def test_one_example_that_all_depend_on(large: int):
    x, y = regression()
    x[large, 0] = 50.0
    with pytest.raises(ValueError, match="model must treat examples independently"):
        certify_descent(Scaled(2, 1, **DOUBLE), x, y, method="sgd", L=9.0)


def test_draw_descent_shows_gap_bound_and_intervals():
    from matplotlib.figure import Figure

    result = certify_descent(scalars, START[:1], method="sgd", L=3.0, mu=2.0, steps=6, runs=9)
    axes = Figure().subplots()
    figure = draw_descent(result, axes)
    assert figure is axes.get_figure()
    bound, gap = axes.lines
    assert torch.equal(torch.as_tensor(bound.get_ydata()), result.bound)
    assert torch.equal(torch.as_tensor(gap.get_ydata()), result.gap)
    assert len(axes.collections) == 1
    assert axes.get_title().startswith("sgd, strongly convex: the bound held")
    violated = certify_descent(bowl, START, L=4.0, mu=3.0, steps=20)
    assert "violated" in draw_descent(violated).axes[0].get_title()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_certificates_on_cuda():
    dice = torch.Generator("cuda").manual_seed(0)
    for method in ("gradient_descent", "nesterov", "heavy_ball"):
        options: dict[str, Any] = {"method": method, "L": 4.0, "mu": 1.0, "steps": 20}
        there, here = (certify_descent(bowl, START.to(d), **options) for d in ("cuda", "cpu"))
        torch.testing.assert_close(there.gap, here.gap)
        assert there.held
    for method in ("sgd", "svrg"):
        options = {"method": method, "L": 3.0, "mu": 2.0, "steps": 80, "generator": dice}
        assert certify_descent(scalars, START[:1].cuda(), **options).held is not False
