"""What noise adds to the loss, against dense Hessians and noise that is drawn."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from vademecum.gradients import functional
from vademecum.models import mlp
from vademecum.regularization import (
    input_noise_penalty,
    weight_noise,
    weight_noise_penalty,
)
from vademecum.testing import check_instrument

X = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(9) % 2
Z = torch.randn(9, 2, generator=torch.Generator().manual_seed(1)).double()
SIGMA = torch.tensor([[1.0, 0.6, 0.0], [0.6, 0.5, 0.1], [0.0, 0.1, 0.2]]).double()


def net(unit=nn.Tanh, d: int = 3) -> nn.Module:
    torch.manual_seed(2)
    return mlp([d, 5, 2], unit).double()


def hessian_in_x(model, x, y, loss=F.cross_entropy) -> Tensor:
    f = functional(model)
    H = torch.func.hessian(lambda x: loss(f(f.theta, x), y))(x)
    return H.reshape(x.numel(), x.numel())


def hessian_in_theta(model, x, y) -> Tensor:
    f = functional(model)
    return torch.func.hessian(lambda theta: F.cross_entropy(f(theta, x), y))(f.theta)


@pytest.mark.parametrize("unit", [nn.Tanh, nn.ReLU])
def test_weight_noise_penalty_is_half_the_trace(unit):
    model = net(unit)
    found = weight_noise_penalty(model, X, Y, std=0.3)
    wanted = 0.045 * float(hessian_in_theta(model, X, Y).trace())
    assert found.value == pytest.approx(wanted, rel=1e-9)
    assert found.exact
    probed = weight_noise_penalty(net(), X, Y, std=0.3, applications=12)
    assert not probed.exact
    assert probed.standard_error > 0


def test_weight_noise_penalty_is_what_noise_costs():
    model, s = net(), 0.05
    noisy = weight_noise(model, s)
    with torch.no_grad():
        clean = F.cross_entropy(model(X), Y)
        drawn = torch.stack([F.cross_entropy(noisy(X), Y) for _ in range(2000)]) - clean
    penalty = weight_noise_penalty(model, X, Y, std=s).value
    assert abs(float(drawn.mean()) - penalty) < 5 * float(drawn.std()) / 2000**0.5


def test_weight_noise_penalty_over_a_loader():
    loader = DataLoader(TensorDataset(X, Y), batch_size=4)
    found = weight_noise_penalty(net(), loader, std=0.3)
    assert found.value == pytest.approx(weight_noise_penalty(net(), X, Y, std=0.3).value)


SIZES = [{"std": 0.3}, {"covariance": SIGMA}]


def covariance(n: int, std: float | None = None, covariance: Tensor | None = None) -> Tensor:
    own = torch.eye(3).double() * (std or 0) ** 2 if covariance is None else covariance
    return torch.kron(torch.eye(n).double(), own)


@pytest.mark.parametrize("knobs", SIZES, ids=["std", "covariance"])
@pytest.mark.parametrize("applications", [27, 26, 7])  # all entries, by signs, no more than needed
def test_input_noise_penalty_is_half_the_trace(knobs, applications):
    model = net()
    found = input_noise_penalty(model, X, Y, applications=applications, **knobs)
    wanted = (covariance(9, **knobs) @ hessian_in_x(model, X, Y)).trace() / 2
    assert found.value == pytest.approx(float(wanted), rel=1e-9)
    assert found.exact
    assert found.standard_error == 0
    assert found.applications == (27 if applications == 27 else 4)


def test_input_noise_penalty_by_probes():
    model, x = net(d=40), torch.randn(3, 40).double()
    wanted = 0.045 * float(hessian_in_x(model, x, Y[:3]).trace())
    found = input_noise_penalty(model, x, Y[:3], std=0.3, applications=60)
    assert not found.exact
    assert found.applications == 60
    assert abs(found.value - wanted) < 6 * found.standard_error + 1e-12  # its rank is small


class Together(nn.Module):
    """Examples that influence each other."""

    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, x):
        return self.inner(x - x.mean(0)) * x.square().sum()


def test_examples_that_influence_each_other():
    model = Together()
    wanted = 0.045 * float(hessian_in_x(model, X, Y).trace())
    full = input_noise_penalty(model, X, Y, std=0.3, applications=27)
    assert full.value == pytest.approx(wanted, rel=1e-9)
    some = input_noise_penalty(model, X, Y, std=0.3, applications=24)
    assert not some.exact
    assert some.applications == 22  # seven draws of three, and one to see it
    assert abs(some.value - wanted) < 8 * some.standard_error


def test_few_examples_that_influence_each_other_are_never_taken_for_exact():
    """Of three examples a quarter of all pairs of signs give the same by chance."""

    def loss(z, y):
        return z.sum(0).square().sum()

    x = torch.randn(3, 30).double()  # the Hessian has 2 in all its blocks' diagonals
    for seed in range(12):
        dice = torch.Generator().manual_seed(seed)
        found = input_noise_penalty(nn.Identity(), x, loss=loss, std=1.0, generator=dice)
        assert not found.exact
        assert found.applications == 61
        assert found.value in (pytest.approx(30), pytest.approx(150), pytest.approx(270))


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_whether_examples_influence_each_other_does_not_depend_on_the_scale(scale):
    def apart(z, y):
        return scale * z.pow(4).sum()

    def together(z, y):
        return scale * z.sum(0).square().sum()

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(3)).double()
    found = input_noise_penalty(nn.Identity(), x, loss=apart, std=1.0, applications=10)
    assert found.exact
    assert found.applications == 5
    assert found.value == pytest.approx(6 * scale * float(x.square().sum()))  # 12 z^2 / 2
    other = input_noise_penalty(nn.Identity(), x, loss=together, std=1.0, applications=10)
    assert not other.exact
    assert other.applications == 9


def test_linear_models_have_no_more_than_that():
    model = nn.Linear(3, 2).double()
    found = input_noise_penalty(model, X, Z, covariance=SIGMA)  # a mean over 9 times 2
    wanted = (model.weight @ SIGMA @ model.weight.T).trace() / 2
    assert found.value == pytest.approx(wanted.item(), rel=1e-12)
    flat = input_noise_penalty(model, X, loss=lambda z, y: z.sum(), std=1.0)
    assert flat.value == 0


def test_images_have_noise_in_every_entry():
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 2)).double()
    images = torch.randn(4, 1, 3, 3).double()
    found = input_noise_penalty(model, images, Y[:4], std=0.1)
    wanted = 0.005 * float(hessian_in_x(model, images, Y[:4]).trace())
    assert found.value == pytest.approx(wanted, rel=1e-9)
    assert found.applications == 36
    assert input_noise_penalty(model, images, Y[:4], std=0.1, applications=19).exact
    narrow = input_noise_penalty(model, images, Y[:4], covariance=0.01 * torch.eye(3).double())
    assert narrow.value == pytest.approx(wanted, rel=1e-9)


class Named(nn.Module):
    """Inputs by name, of which one is disturbed."""

    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, a, b):
        return {"scores": self.inner(a * b)}


def test_one_input_among_several():
    model, other = Named(), torch.full((9, 3), 2.0).double()
    found = input_noise_penalty(
        model, {"a": X / 2, "b": other}, Y, std=0.15, wrt="a", output="scores"
    )
    plain = input_noise_penalty(model.inner, X, Y, std=0.3)
    assert found.value == pytest.approx(plain.value, rel=1e-9)


def test_laws():
    data = torch.randn(6, 5), torch.randint(3, (6,))

    def inputs(model, data):
        generator = torch.Generator().manual_seed(0)
        return [
            input_noise_penalty(model, *data, std=0.1, applications=a, generator=generator)
            for a in (5, 10, 30)
        ]

    def weights(model, data):
        generator = torch.Generator().manual_seed(0)
        return weight_noise_penalty(model, *data, std=0.1, applications=8, generator=generator)

    check_instrument(inputs, nn.Linear(5, 3), data)
    without = {"no_parameters": "there is nothing to disturb"}
    check_instrument(weights, nn.Linear(5, 3), data, skip=without)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "loss",
    [None, F.cross_entropy, lambda z, y: F.cross_entropy(z, y, reduction="sum"),
     lambda z, y: F.cross_entropy(z, y, ignore_index=1)],
)  # fmt: skip
def test_input_noise_penalty_over_a_loader(size, loss):
    """Batches of 4, 4 and 1, which count by their terms; of some losses the last has none."""
    loader = DataLoader(TensorDataset(X.flip(0), Y.roll(1)), batch_size=4)
    found = input_noise_penalty(net(), loader, loss=loss, **size)
    wanted = input_noise_penalty(net(), X.flip(0), Y.roll(1), loss=loss, **size)
    assert found.value == pytest.approx(wanted.value)
    assert found.exact
    assert found.standard_error == 0


def test_errors_of_batches_add_up():
    """Probes of batches are independent: a mean of three has a third of the root of the sum."""
    x, y = torch.randn(12, 40).double(), torch.arange(12) % 2
    model, dice = net(d=40), torch.Generator().manual_seed(0)
    loader = DataLoader(TensorDataset(x, y), batch_size=4)
    found = [input_noise_penalty(model, loader, std=0.3, applications=16, generator=dice)
             for _ in range(40)]  # fmt: skip
    assert not found[0].exact
    exact = input_noise_penalty(model, x, y, std=0.3, applications=480).value
    assert found[0].applications == 48
    values = torch.tensor([one.value for one in found])
    errors = torch.tensor([one.standard_error for one in found])
    assert abs(float(values.mean()) - exact) < 5 * float(values.std()) / 40**0.5
    assert 0.5 < float(errors.square().mean().sqrt() / values.std()) < 2


@pytest.mark.usefixtures("unchecked")
def test_errors():
    model, loader = net(), DataLoader(TensorDataset(X, Y))
    table = [
        (lambda: weight_noise_penalty(model, X, Y, std=-1.0), "std must be >= 0, got -1"),
        (lambda: input_noise_penalty(model, X, Y), "one of std and covariance must be given"),
        (lambda: input_noise_penalty(model, X, Y, std=-1.0), "std must be >= 0, got -1"),
        (lambda: input_noise_penalty(model, X, Y, covariance=SIGMA[:2, :2]), "as wide as covarian"),
        (
            lambda: input_noise_penalty(model, loader, Y, std=0.1),
            "y must be None where x is a Data",
        ),
        (lambda: input_noise_penalty(model, Y[:, None], Y, std=0.1), "x must be floating point"),
        (lambda: input_noise_penalty(model, X * torch.nan, Y, std=0.1), "x must be finite"),
        (lambda: input_noise_penalty(model, X, Y, std=0.1, applications=3), "applications must be"),
        (lambda: input_noise_penalty(model, X, Y, std=0.1, wrt="b"), "wrt must be one of"),
        (lambda: input_noise_penalty(model, X, Y, std=0.1, loss=lambda z, y: z), "one differentia"),
    ]
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()
