"""Energies of posteriors, against log-densities of SciPy, autograd, and sums over the data."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from vademecum.bayes import posterior
from vademecum.gradients import functional
from vademecum.models import SlowPathWarning, mlp

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
N, CHAINS = 13, 4
X = torch.randn(N, 3, generator=torch.Generator().manual_seed(0)).double()
CLASSES = torch.arange(N) % 3
BITS = (torch.arange(N) % 2).double()
REAL = torch.randn(N, 2, generator=torch.Generator().manual_seed(1)).double()


class Choosing(nn.Linear):
    """Looks at its inputs, which `torch.func.vmap` cannot do where chains have their own."""

    def forward(self, input):
        z = super().forward(input)
        return z if bool(input[..., 0].sum() > 0) else 2 * z


class Residual(nn.Module):
    """No stack of dense layers: its energy is mapped."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def net(k: int, unit=nn.Tanh) -> nn.Sequential:
    return mlp([3, 5, k], unit).double()


def in_place() -> nn.Module:
    return nn.ReLU(inplace=True)


def rows(energy) -> torch.Tensor:
    return torch.randn(CHAINS, energy.size).double()


def minus_log_likelihood(model, theta, kind):
    """Of each chain, by SciPy."""
    f = functional(model)
    found = []
    for row in theta:
        z = f(row, X).numpy()
        if kind == "gaussian":
            found.append(-stats.norm.logpdf(REAL.numpy(), z, 0.3).sum())
        elif kind == "categorical":
            p = np.exp(z - z.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            found.append(-np.log(p[np.arange(N), CLASSES.numpy()]).sum())
        else:
            p = 1 / (1 + np.exp(-z[:, 0]))
            found.append(-stats.bernoulli.logpmf(BITS.numpy(), p).sum())
    return torch.tensor(found)


KINDS = [("gaussian", 2, REAL), ("categorical", 3, CLASSES), ("bernoulli", 1, BITS)]


@pytest.mark.parametrize("unit", [nn.Tanh, in_place, nn.GELU])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(("kind", "k", "y"), KINDS)
def test_posterior_is_likelihood_times_prior(kind, k, y, mapped, unit):
    model = Residual(net(k, unit)) if mapped else net(k, unit)
    energy = posterior(model, X, y, likelihood=kind, noise=0.3, prior=0.7, temperature=0.5)
    assert (energy._stack is None) == mapped
    theta = rows(energy)
    prior = -torch.from_numpy(stats.norm.logpdf(theta.numpy(), 0, 0.7)).sum(1)
    wanted = (minus_log_likelihood(model, theta, kind) + prior) / 0.5
    found = energy(theta)
    torch.testing.assert_close(found - found[0], wanted - wanted[0])
    value, slope = energy.with_gradient(theta)
    torch.testing.assert_close(value, found)
    torch.testing.assert_close(energy.gradient(theta), slope)
    leaf = theta.clone().requires_grad_()
    (wanted_slope,) = torch.autograd.grad(energy(leaf).sum(), leaf)
    torch.testing.assert_close(slope, wanted_slope)


def test_posterior_of_gaussian_noise_is_squares():
    energy = posterior(net(2), X, REAL, likelihood="gaussian", noise=0.3, prior=2.0)
    theta = rows(energy)
    f = functional(net(2))
    for row, value in zip(theta, energy(theta), strict=True):
        wanted = ((f(row, X) - REAL) ** 2).sum() / (2 * 0.09) + (row**2).sum() / 8
        torch.testing.assert_close(value, wanted)


def test_images_are_flattened_and_layers_without_biases_are_served():
    layers = (nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Identity(), nn.Linear(3, 2))
    model = nn.Sequential(nn.Flatten(), nn.Sequential(*layers)).double()
    x, y = torch.randn(7, 1, 2, 2).double(), torch.arange(7) % 2
    fast = posterior(model, x, y, likelihood="categorical")
    slow = posterior(Residual(model), x, y, likelihood="categorical")
    assert fast._stack is not None
    theta = rows(fast)
    for one, other in zip(fast.with_gradient(theta), slow.with_gradient(theta), strict=True):
        torch.testing.assert_close(one, other)


def test_functions_serve_as_likelihood_and_prior():
    def laplace(z, y):
        return (z - y).abs().sum(1)

    energy = posterior(net(2), X, REAL, likelihood=laplace, prior=lambda t: t.abs().sum(1), batch=N)
    theta = rows(energy)
    f = functional(net(2))
    wanted = torch.stack([(f(r, X) - REAL).abs().sum() + r.abs().sum() for r in theta])
    torch.testing.assert_close(energy(theta), wanted)
    leaf = theta.clone().requires_grad_()
    (slope,) = torch.autograd.grad(energy(leaf).sum(), leaf)
    torch.testing.assert_close(energy.with_gradient(theta).gradient, slope)
    assert energy.estimate(theta).energy.shape == (CHAINS,)


def test_scales_of_priors_by_parameter_and_by_name():
    model = net(2)
    scales = {name: 0.5 + i for i, name in enumerate(functional(model).shapes)}
    many = functional(model).ravel(
        {name: torch.full(s, scales[name]).double() for name, s in functional(model).shapes.items()}
    )
    one = posterior(model, X, REAL, likelihood="gaussian", prior=scales)
    other = posterior(model, X, REAL, likelihood="gaussian", prior=many)
    theta = rows(one)
    torch.testing.assert_close(one(theta), other(theta))
    flat = posterior(model, X, REAL, likelihood="gaussian", prior=1e9)
    torch.testing.assert_close(one(theta) - flat(theta), (theta**2 / (2 * many**2)).sum(1))


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("control", [False, True])
def test_estimates_are_right_on_average(mapped, shared, control):
    model = Residual(net(3)) if mapped else net(3)
    anchor = functional(model).theta
    energy = posterior(
        model, X, CLASSES, likelihood="categorical", prior=0.8, temperature=0.5, batch=4,
        shared=shared, control=anchor + 0.1 if control else None,
    )  # fmt: skip
    theta = (anchor + 0.3 * torch.randn(1, energy.size).double()).expand(CHAINS, -1).clone()
    draws = [energy.estimate(theta) for _ in range(150)]
    truth = energy.with_gradient(theta)
    for found, wanted in ((0, truth.energy[0]), (1, truth.gradient[0])):
        samples = torch.stack([d[found] for d in draws])
        samples = samples[:, 0] if shared else samples.flatten(0, 1)
        error = samples.std(0) / len(samples) ** 0.5
        assert bool(((samples.mean(0) - wanted).abs() < 5.5 * error + 1e-9).all())
    first = draws[0].energy
    assert bool((first == first[0]).all()) == shared


def test_control_variates_have_no_noise_at_their_point():
    anchor = functional(net(3)).theta
    knobs = {"likelihood": "categorical", "batch": 3}
    energy = posterior(net(3), X, CLASSES, control=anchor, **knobs)
    exact = energy.with_gradient(anchor[None])
    for one, other in zip(energy.estimate(anchor[None]), exact, strict=True):
        torch.testing.assert_close(one, other)
    near = (anchor + 0.01 * torch.randn_like(anchor)).expand(200, -1).clone()
    plain = posterior(net(3), X, CLASSES, **knobs)
    noise = [e.estimate(near).gradient.std(0).mean() for e in (energy, plain)]
    assert noise[0] < 0.1 * noise[1]


def test_the_model_is_left_as_it_is():
    model = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3)
    ).double()
    model.train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    energy = posterior(model, X, CLASSES, likelihood="categorical")
    assert bool(energy.with_gradient(rows(energy)).energy.isfinite().all())
    assert model.training
    assert all(v.equal(before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    torch.testing.assert_close(energy.theta, functional(model).theta)


def test_frozen_parameters_can_stay():
    model = net(3)
    model.get_parameter("0.weight").requires_grad_(False)
    energy = posterior(model, X, CLASSES, likelihood="categorical", frozen=False)
    assert energy.size == 5 + 15 + 3
    whole = posterior(model, X, CLASSES, likelihood="categorical", prior=1e9)
    theta = rows(energy)
    full = torch.cat(
        [model.get_parameter("0.weight").detach().flatten().expand(CHAINS, -1), theta], 1
    )
    torch.testing.assert_close(energy(theta) - theta.square().sum(1) / 2, whole(full))


@CUDA
@pytest.mark.gpu
def test_posterior_on_a_gpu():
    model = net(3).cuda()
    energy = posterior(model, X.cuda(), CLASSES.cuda(), likelihood="categorical", batch=4)
    here = posterior(net(3), X, CLASSES, likelihood="categorical")
    theta = rows(here)
    torch.testing.assert_close(energy(theta.cuda()).cpu(), here(theta))
    dice = torch.Generator().manual_seed(0)
    assert energy.estimate(theta.cuda(), generator=dice).gradient.is_cuda


@pytest.mark.usefixtures("unchecked")
def test_errors():
    def made(y=CLASSES, k=3, **knobs):
        return posterior(net(k), X, y, **{"likelihood": "categorical", **knobs})

    gauss = {"likelihood": "gaussian", "k": 2, "y": REAL}
    table = [
        (lambda: made(likelihood="poisson"), "likelihood must be one of 'gaussian', 'categorical'"),
        (lambda: made(y=REAL), "y must be classes, integers of shape"),
        (lambda: made(y=CLASSES - 1), "y must be classes >= 0, got -1"),
        (lambda: made(y=CLASSES, likelihood="gaussian"), "y must be floating point for likelihood"),
        (lambda: made(y=2 * BITS, likelihood="bernoulli"), "entries of y must be between 0 and 1"),
        (lambda: made(**gauss, noise=0.0), "noise must be > 0, got 0"),
        (lambda: made(**gauss, noise=torch.zeros(2)), "entries of noise must be > 0, got 0"),
        (lambda: made(y=CLASSES[:5]), "x and y must have equally many examples"),
        (lambda: made(y=REAL * math.nan, likelihood="gaussian", k=2), "y must be finite, got nan"),
        (lambda: made(prior=0.0), "prior must be > 0, got 0"),
        (lambda: made(prior=torch.ones(3)), r"prior must be a number or have shape \(38,\), got"),
        (lambda: made(prior=-torch.ones(38)), "entries of prior must be > 0, got -1"),
        (lambda: made(prior={"0.weight": 1.0}), "prior must have the names of the model's"),
        (lambda: made(temperature=0.0), "temperature must be > 0, got 0"),
        (lambda: made(batch=0), "batch must be >= 1, got 0"),
        (lambda: made(batch=N + 1), "batch must be <= 13, got 14"),
        (lambda: made(control=torch.zeros(38)), "control must come with batch"),
        (lambda: made(batch=2, control=torch.zeros(3)), "control must be 38 wide and of dtype"),
        (lambda: made()(torch.zeros(2, 3)), "theta must be 38 wide and of dtype torch.float64"),
        (lambda: made(y=REAL[:, 0], k=2, likelihood="gaussian")(torch.zeros(1, 32).double()),
         "y must have the shape of the model's outputs"),
        (lambda: made(likelihood=lambda z, y: z.sum())(torch.zeros(1, 38).double()),
         "likelihood must give one number for each of 13 examples"),
        (lambda: posterior(nn.Flatten(), X, CLASSES, likelihood="categorical"), "have parameters"),
    ]  # fmt: skip
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()


def test_models_that_look_at_their_inputs_are_asked_chain_by_chain():
    model, theta = Choosing(3, 2).double(), torch.randn(6, 8).double()
    energy = posterior(model, X, REAL, likelihood="gaussian", noise=0.5, prior=2.0, batch=4)
    index = torch.randint(N, (6, 4), generator=torch.Generator().manual_seed(7))
    assert len({bool(X[i, 0].sum() > 0) for i in index}) == 2
    dice = torch.Generator().manual_seed(7)
    with pytest.warns(SlowPathWarning, match="chains are asked one by one, which is slower"):
        found = energy.estimate(theta, generator=dice)
    for row, i, value, slope in zip(theta, index, *found, strict=True):
        at = row.clone().requires_grad_()
        z = (2 - int(X[i, 0].sum() > 0)) * (X[i] @ at[:6].view(2, 3).T + at[6:])
        wanted = N / 4 * (z - REAL[i]).square().sum() / (2 * 0.5**2) + at.square().sum() / 8
        torch.testing.assert_close(value, wanted.detach())
        torch.testing.assert_close(slope, torch.autograd.grad(wanted, at)[0])
