"""Directions that a decay leaves alive, against all eigenvalues of a dense Gauss-Newton matrix."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from vademecum.gradients import functional
from vademecum.models import mlp
from vademecum.regularization import effective_directions as module
from vademecum.regularization import weight_decay_effect
from vademecum.testing import check_instrument

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(40) % 3
Z = torch.randn(40, 3, generator=torch.Generator().manual_seed(1)).double()


def usual(z, y):
    return F.mse_loss(z, y) if y.is_floating_point() else F.cross_entropy(z, y)


def dense(net, x, y, loss=usual, **options) -> Tensor:
    """The eigenvalues, by transforms of torch."""
    f = functional(net, **options)
    z = f(f.theta, x)
    J = torch.func.jacrev(lambda theta: f(theta, x))(f.theta).reshape(z.numel(), -1)
    inner = torch.func.hessian(lambda z: loss(z, y))(z).reshape(z.numel(), z.numel())
    return torch.linalg.eigvalsh(J.T @ inner @ J).clamp(min=0)


def net(width: int = 12) -> nn.Sequential:
    torch.manual_seed(2)
    return mlp([3, width, width, 3], nn.Tanh).double()


@pytest.mark.parametrize("y", [Y, Z], ids=["classes", "numbers"])
@pytest.mark.parametrize("decay", [1e-4, 1e-2, 1.0])
def test_weight_decay_effect_is_the_sum_over_the_spectrum(decay, y):
    model = net()  # 243 parameters, 120 outputs
    lam = dense(model, X, y)
    wanted = float((lam / (lam + decay)).sum())
    by_parameters = weight_decay_effect(model, X, y, decay=decay, applications=300)
    by_outputs = weight_decay_effect(model, X, y, decay=decay, applications=130)
    for found, used in ((by_parameters, 243), (by_outputs, 120)):
        assert found.alive == pytest.approx(wanted, rel=1e-9)
        assert found.exact
        assert (found.standard_error, found.quadrature_error) == (0, 0)
        assert (found.parameters, found.decay, found.applications) == (243, decay, used)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("decay", [1e-3, 1e-1])
def test_it_is_estimated_with_errors(decay, dtype):
    model = net()
    lam = dense(model, X, Y)
    wanted = float((lam / (lam + decay)).sum())
    model, x, generator = model.to(dtype), X.to(dtype), torch.Generator().manual_seed(3)
    found = weight_decay_effect(model, x, Y, decay=decay, applications=100, generator=generator)
    assert not found.exact
    assert found.applications == 100  # five vectors, twenty steps
    assert 0 < found.standard_error < 0.4 * wanted
    assert abs(found.alive - wanted) < 5 * found.standard_error + found.quadrature_error


def test_estimates_are_not_biased():
    """The mean over many draws, where the errors of single ones average out."""
    model, decay = net(), 1e-2
    lam = dense(model, X, Y)
    wanted, generator = float((lam / (lam + decay)).sum()), torch.Generator().manual_seed(4)
    found = [
        weight_decay_effect(model, X, Y, decay=decay, applications=64, generator=generator)
        for _ in range(12)
    ]
    alive = torch.tensor([each.alive for each in found])
    assert abs(alive.mean() - wanted) < 5 * alive.std() / 12**0.5
    told = torch.tensor([each.standard_error for each in found]).square().mean().sqrt()
    assert 0.5 < float(told / alive.std()) < 2


def test_quadratures_bound_the_form_on_both_sides():
    torch.manual_seed(5)
    lam = torch.cat([torch.logspace(-6, 1, 30), torch.zeros(20)]).double()
    Q = torch.linalg.qr(torch.randn(50, 50).double()).Q
    A, mu = (Q * lam) @ Q.T, 1e-3
    v = torch.randn(6, 50).double()
    v = v / v.norm(dim=1, keepdim=True)
    wanted = ((v @ Q).square() * lam / (lam + mu)).sum(1)
    widths = []
    for steps in (3, 6, 12, 24):
        T = module.side_by_side(lambda q: q @ A, v, steps)[1]
        above = module._quadrature(T, mu, torch.float64)
        below = module._quadrature(module._with_node_at_zero(T, torch.float64), mu, None)
        assert (below <= wanted + 1e-9).all()
        assert (wanted <= above + 1e-9).all()
        widths.append(float((above - below).max()))
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1e-6 < widths[0]


@pytest.mark.parametrize(("most", "used"), [(8, 8), (9, 8), (11, 10), (15, 12), (16, 16), (18, 16)])
def test_few_products_are_exact_where_the_matrix_is_diagonal_with_few_values(most, used):
    """Ten eigenvalues 0.1, nine 0.4, else zeros: 1/2 and 4/5; signs know the trace of diagonals."""
    x = torch.eye(19, 100).double()
    x[10:] *= 2
    model, y = nn.Linear(100, 1, bias=False).double(), torch.zeros(19, 1).double()

    def loss(z, y):
        return z.square().sum() / 20

    found = weight_decay_effect(model, x, y, loss=loss, decay=0.1, applications=most)
    assert found.alive == pytest.approx(10 / 2 + 9 * 4 / 5, rel=1e-9)
    assert not found.exact
    assert found.applications == used
    assert found.standard_error < 1e-9
    assert found.quadrature_error < 1e-6  # three values, four steps at least


def test_losses_that_couple_examples():
    def loss(z, y):
        return (z.sum(0) - y[0]).square().sum() + z.square().mean()

    model = net()
    lam = dense(model, X, Z, loss)
    wanted = float((lam / (lam + 0.1)).sum())
    for applications in (300, 130):
        found = weight_decay_effect(model, X, Z, loss=loss, decay=0.1, applications=applications)
        assert found.alive == pytest.approx(wanted, rel=1e-8)


def test_a_linear_loss_leaves_nothing():
    for applications in (300, 130, 60):
        found = weight_decay_effect(
            net(), X, Y, loss=lambda z, y: z.sum(), decay=0.1, applications=applications
        )
        assert found.alive == 0


def test_ridge_regression_has_the_trace_of_its_smoother():
    model = nn.Linear(3, 1, bias=False).double()
    S = X @ torch.linalg.solve(X.T @ X + 0.7 * torch.eye(3).double(), X.T)
    found = weight_decay_effect(
        model, X, Z[:, :1], loss=lambda z, y: (z - y).square().sum() / 2, decay=0.7
    )
    assert found.alive == pytest.approx(float(S.trace()), rel=1e-12)


def test_frozen_parameters_can_be_left_out():
    model = net()
    model.requires_grad_(False)
    model[0].weight.requires_grad_()
    lam = dense(model, X, Y, frozen=False)
    found = weight_decay_effect(model, X, Y, decay=0.01, frozen=False)
    assert found.parameters == 36
    assert found.alive == pytest.approx(float((lam / (lam + 0.01)).sum()), rel=1e-9)


@pytest.mark.parametrize("applications", [300, 100])
def test_a_loader_is_all_data_at_once(applications):
    loader = DataLoader(TensorDataset(X, Y), batch_size=16)
    one, other = (
        weight_decay_effect(
            net(), *data, decay=0.01, applications=applications,
            generator=torch.Generator().manual_seed(0),
        )
        for data in ((loader,), (X, Y))
    )  # fmt: skip
    assert one.alive == pytest.approx(other.alive, rel=1e-8)


def test_little_memory_gives_an_estimate_too():
    model = net()
    lam = dense(model, X, Y)
    wanted = float((lam / (lam + 0.01)).sum())
    generator = torch.Generator().manual_seed(1)
    for memory in (2**15, 2**17):
        found = weight_decay_effect(
            model, X, Y, decay=0.01, applications=36, memory=memory, generator=generator
        )
        assert abs(found.alive - wanted) < 5 * found.standard_error + found.quadrature_error


class Named(nn.Module):
    """Inputs by name, an answer with `.logits`."""

    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, a, b):
        return type("Answer", (), {"logits": self.inner(a + b)})()


def test_inputs_and_outputs_of_any_structure():
    model = Named()
    for applications in (300, 130):
        found = weight_decay_effect(
            model, {"a": X / 2, "b": X / 2}, Y, decay=0.01, applications=applications
        )
        plain = weight_decay_effect(model.inner, X, Y, decay=0.01)
        assert found.alive == pytest.approx(plain.alive, rel=1e-9)


def test_laws():
    data = torch.randn(6, 5), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to decay"}

    def instrument(model, data):
        generator = torch.Generator().manual_seed(0)
        knobs = {"decay": 0.1, "generator": generator}
        return [weight_decay_effect(model, *data, applications=a, **knobs) for a in (8, 20, 300)]

    check_instrument(instrument, nn.Linear(5, 3), data, skip=without)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("applications", [300, 130, 100])
def test_weight_decay_effect_on_a_gpu_is_that_of_the_cpu(applications):
    alive = []
    for device in ("cpu", "cuda"):
        found = weight_decay_effect(
            net().to(device), X.to(device), Y.to(device), decay=0.01, applications=applications,
            generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
        alive.append(found.alive)
    assert alive[0] == pytest.approx(alive[1], rel=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_errors():
    own, half = net(), net().half()

    def effect(model: nn.Module = own, x=X, y=Y, **knobs):
        return lambda: weight_decay_effect(model, x, y, **{"decay": 0.1, **knobs})

    table = [
        (effect(decay=0.0), "decay must be > 0, got 0"),
        (effect(decay=float("inf")), "decay must be finite"),
        (effect(applications=7), "applications must be >= 8, got 7"),
        (effect(nn.ReLU()), "model must have parameters, got none"),
        (effect(half, X.half()), "model must be in single or double precision, got torch.float16"),
        (effect(x=X * torch.nan), "x must be finite"),
        (effect(loss=lambda z, y: z), "loss must give one differentiable number"),
        (effect(applications=100, memory=1000), "memory must be >= "),
        *(
            (effect(loss=lambda z, y: -z.square().sum(), applications=n), "loss must be convex")
            for n in (300, 130, 100)
        ),
        *(
            (effect(loss=lambda z, y: torch.nan * z.square().sum(), applications=n), "finite")
            for n in (300, 130, 100)
        ),
    ]
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()
