"""Losses of score matching, against Jacobians, enumeration and one another."""

# pyright: reportIncompatibleMethodOverride=false

import itertools
import math

import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import nn

from vademecum.generative import (
    VESDE,
    VPSDE,
    MixtureScore,
    fisher_divergence,
    score_matching_loss,
)
from vademecum.generative._marginals import Marginal
from vademecum.models import SlowPathWarning, mlp

F64 = torch.float64


def net(d: int = 3) -> nn.Module:
    return mlp([d, 7, d], activation=nn.Tanh).double()


def by_hand(model, x):
    """The implicit loss of each example, from its Jacobian."""
    found = []
    for one in x:
        jacobian = torch.func.jacrev(lambda y: model(y[None])[0].flatten())(one)
        trace = jacobian.reshape(one.numel(), one.numel()).trace()
        found.append(model(one[None]).square().sum() + 2 * trace)
    return torch.stack(found)


def slopes(loss: torch.Tensor, model: nn.Module) -> torch.Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*model.parameters()])])


def test_implicit_score_matching_loss_against_jacobians():
    model, x = net(), torch.randn(5, 3, dtype=F64)
    losses = score_matching_loss(model, x, method="implicit", reduction="none")
    wanted = by_hand(model, x)
    torch.testing.assert_close(losses, wanted)
    mean = score_matching_loss(model, x, method="implicit")
    torch.testing.assert_close(mean, wanted.mean())
    torch.testing.assert_close(slopes(mean, model), slopes(wanted.mean(), model))
    convolution = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(),
                                nn.Conv2d(4, 1, 3, padding=1)).double()  # fmt: skip
    images = torch.randn(2, 1, 3, 4, dtype=F64)
    loss = score_matching_loss(convolution, images, method="implicit", reduction="none")
    torch.testing.assert_close(loss, by_hand(convolution, images))
    assert slopes(loss.sum(), convolution).isfinite().all()


def test_sliced_loss_is_the_implicit_one_over_all_signs(monkeypatch):
    import vademecum.generative.score_fitting as home

    model, x = net(), torch.randn(4, 3, dtype=F64)
    wanted = by_hand(model, x)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)), dtype=F64)
    every = signs[:, None].expand(8, 4, 3)
    with monkeypatch.context() as patch:
        patch.setattr(home, "directions", lambda *_: every)
        loss = score_matching_loss(model, x, method="sliced", projections=8, reduction="none")
        torch.testing.assert_close(loss, wanted)
        torch.testing.assert_close(slopes(loss.sum(), model), slopes(wanted.sum(), model))
        axes = math.sqrt(3) * torch.eye(3, dtype=F64)[:, None].expand(3, 4, 3)
        patch.setattr(home, "directions", lambda *_: axes / math.sqrt(3))  # of unit length
        loss = score_matching_loss(model, x, method="sliced", law="sphere", reduction="none")
        torch.testing.assert_close(loss, wanted)


@pytest.mark.parametrize("law", ["rademacher", "gaussian", "sphere"])
def test_sliced_loss_has_the_implicit_one_for_mean(law):
    model, x = net(), torch.randn(1, 3, dtype=F64).repeat(4000, 1)
    with torch.no_grad():
        losses = score_matching_loss(model, x, method="sliced", law=law, reduction="none",
                                     generator=torch.Generator().manual_seed(0))  # fmt: skip
        source = torch.Generator().manual_seed(1)
        many = score_matching_loss(model, x[:100], method="sliced", law=law, reduction="none",
                                   projections=40, generator=source)  # fmt: skip
        wanted = float(by_hand(model, x[:1]))
    assert not losses.requires_grad
    for found in (losses, many):
        error = float(found.std()) / len(found) ** 0.5
        assert float(found.mean()) == pytest.approx(wanted, abs=6 * error)
    assert float(many.std() / losses.std()) == pytest.approx(40**-0.5, rel=0.5)


@pytest.mark.parametrize("predicts", ["score", "noise", "x0", "v"])
def test_denoising_loss_by_hand(predicts):
    process = VPSDE()
    one = torch.ones(1, dtype=F64)
    exact = MixtureScore(one, one.expand(1, 2), one / 2, process=process, predicts=predicts)
    x, t = torch.randn(6, 2, dtype=F64), torch.rand(6, dtype=F64) * 0.8 + 0.1
    known = {"process": process, "predicts": predicts, "reduction": "none"}
    dice = [torch.Generator().manual_seed(3) for _ in range(3)]
    found = score_matching_loss(exact, x, t, generator=dice[0], **known)
    plain = score_matching_loss(exact, x, t, weighting="none", generator=dice[1], **known)
    noise = torch.randn(6, 2, dtype=F64, generator=dice[2])
    s, e = (v[:, None] for v in process.marginal(t))
    wrong = exact.score(s * x + e * noise, t) + noise / e
    torch.testing.assert_close(plain, wrong.square().sum(1))
    torch.testing.assert_close(found, (e * wrong).square().sum(1))


def test_denoising_with_plain_noise_and_times_that_are_drawn():
    x, std = torch.randn(6, 2, dtype=F64), torch.rand(6, dtype=F64) + 0.5
    one, two = (torch.Generator().manual_seed(3) for _ in range(2))
    found = score_matching_loss(lambda y: -y / 3, x, std=std, weighting="none", reduction="none",
                                generator=one)  # fmt: skip
    noise = torch.randn(6, 2, dtype=F64, generator=two)
    seen = x + std[:, None] * noise
    wanted = (-seen / 3 + (seen - x) / std[:, None] ** 2).square().sum(1)
    torch.testing.assert_close(found, wanted)
    number = score_matching_loss(lambda y: -y, x, std=0.5)
    assert number.ndim == 0
    times = []

    def model(y, t):
        times.append(t)
        return -y

    score_matching_loss(model, x.repeat(500, 1), process=VPSDE())
    assert times[0].min() >= 1e-3
    assert times[0].max() <= 1
    assert float(times[0].mean()) == pytest.approx(0.5, abs=5 * (1 / 12 / 3000) ** 0.5 + 1e-3)


def test_denoising_is_least_for_the_exact_score():
    """Its excess over the exact score's loss is the Fisher divergence of the noised law."""
    process, t = VPSDE(), torch.full((50_000,), 0.3, dtype=F64)
    means, half = torch.tensor([[-1.0], [1.0]], dtype=F64), torch.full((2,), 0.5, dtype=F64)
    exact = MixtureScore(half, means, half / 5, process=process, predicts="score")
    x = exact.sample(50_000, generator=torch.Generator().manual_seed(0))
    known = {"process": process, "weighting": "none", "reduction": "none"}
    losses = [
        score_matching_loss(model, x, t, generator=torch.Generator().manual_seed(1), **known)
        for model in (exact, lambda y, t: exact(y, t) + y.sin())
    ]
    s, e = (v[:, None] for v in process.marginal(t))
    noised = s * x + e * torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=F64)
    truth = fisher_divergence(lambda y, t: exact(y, t) + y.sin(), noised, exact, t=t)
    excess = losses[1] - losses[0]
    error = float(excess.std()) / len(x) ** 0.5 + float(truth.standard_error)
    assert float(excess.mean()) == pytest.approx(float(truth.value), abs=5 * error)


class Choosy(torch.autograd.Function):
    """A cube whose derivative looks at the values that it is given."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g if bool((g.abs() < 1e9).all()) else g


def test_what_cannot_be_mapped_is_done_one_by_one():
    x = torch.randn(4, 3, dtype=F64)
    with pytest.warns(SlowPathWarning, match="directions are taken one after the other"):
        loss = score_matching_loss(Choosy.apply, x, method="implicit", reduction="none")
    torch.testing.assert_close(loss, (x**6 + 6 * x**2).sum(1))


def test_examples_are_independent_and_models_that_tie_them_are_refused():
    model, x = net(), torch.randn(5, 3, dtype=F64)
    whole = score_matching_loss(model, x, method="implicit", reduction="none")
    for i in range(5):
        alone = score_matching_loss(model, x[i : i + 1], method="implicit", reduction="none")
        torch.testing.assert_close(alone[0], whole[i])
    tied = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).double()
    for method in ("implicit", "sliced"):
        with pytest.raises(ValueError, match=f"'{method}', but BatchNorm1d '1' normalises by the"):
            score_matching_loss(tied, x, method=method)
    score_matching_loss(tied, x, std=0.1)  # which needs no derivative of each alone
    calm = tied.eval()
    torch.testing.assert_close(
        score_matching_loss(calm, x, method="implicit", reduction="none"), by_hand(calm, x)
    )
    constant = score_matching_loss(lambda y: torch.ones_like(y), x, method="implicit")
    assert float(constant) == 3


class Steps:
    def marginal(self, t):
        return Marginal(torch.ones_like(t).double(), t.double())


X = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "denoising needs either process or std"),
        ({"std": 1.0, "process": VPSDE()}, "denoising needs either process or std"),
        ({"process": 5}, r"process must have marginal\(t\), got int"),
        ({"std": 0.0}, "standard deviation of noise must be positive"),
        ({"std": 1e-50}, r"positive, one or 2 of them, and finite in torch.float32, got 1e-50"),
        ({"std": 1e50}, r"positive, one or 2 of them, and finite in torch.float32, got 1e\+50"),
        ({"std": math.nan}, "standard deviation of noise must be positive, .*, got nan"),
        ({"std": torch.ones(3)}, "must be positive, one or 2 of them"),
        ({"process": Steps()}, "t must be given for Steps, which has steps"),
        ({"process": Steps(), "t": torch.zeros(2)}, "standard deviation of noise must be positive"),
        ({"process": VPSDE(), "t": torch.tensor([0.5, 7])}, "t must be between 0 and 1, got 7"),
        ({"process": VESDE(), "t": torch.tensor([-1, 1])}, "t must be between 0 and 1, got -1"),
        ({"method": "exact"}, "method must be one of"),
        ({"method": "sliced", "std": 1.0}, "process and std belong to denoising"),
        ({"method": "sliced", "projections": 0}, "projections must be >= 1, got 0"),
        ({"method": "sliced", "law": "cube"}, "law must be one of"),
        ({"method": "implicit", "predicts": "noise"}, "predicts must be 'score' for"),
        ({"std": 1.0, "predicts": "y"}, "predicts must be one of"),
        ({"std": 1.0, "weighting": "x"}, "weighting must be one of"),
        ({"std": 1.0, "reduction": "sum"}, "reduction must be one of"),
        ({"std": 1.0, "context": 3}, "t must be given with a context"),
    ],
)
def test_bad_losses_are_refused(given, message, unchecked):
    t = given.pop("t", None)
    with pytest.raises(ValueError, match=message):
        score_matching_loss(lambda y, t=None: -y, X, t, **given)


def test_fisher_divergence_between_normal_laws():
    """Quadrature of Gauss and Hermite against the closed form, and draws against that."""
    nodes, weights = map(torch.tensor, hermegauss(40))
    weights = weights / math.sqrt(2 * math.pi)
    m, s, mu, sigma = 0.7, 1.3, -0.4, 0.8
    wanted = s**2 * (1 / s**2 - 1 / sigma**2) ** 2 + (m - mu) ** 2 / sigma**4

    def model(y):
        return (mu - y) / sigma**2

    x = (m + s * nodes)[:, None]
    found = fisher_divergence(model, x, lambda y: (m - y) / s**2, weights=weights)
    assert float(found.value) == pytest.approx(wanted, rel=1e-12)
    assert not found.standard_error
    drawn = m + s * torch.randn(20_000, 1, dtype=F64, generator=torch.Generator().manual_seed(0))
    found = fisher_divergence(model, drawn, (m - drawn) / s**2)
    assert float(found.value) == pytest.approx(wanted, abs=5 * float(found.standard_error))
    images = torch.randn(3, 1, 2, 2)
    assert float(fisher_divergence(lambda y: y + 1, images, images).value) == pytest.approx(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fisher_divergence(lambda y: y, X[:1], X[:1]), "x must hold at least two examples"),
        (lambda: fisher_divergence(lambda y: y, X, X[:, :1]), "score must have shape"),
        (lambda: fisher_divergence(lambda y: y, X, X, weights=torch.ones(3)), "weights must be 2"),
    ],
)
def test_bad_divergences_are_refused(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
def test_losses_on_a_gpu():
    model, x = net(), torch.randn(4, 3, dtype=F64)
    wanted = score_matching_loss(model, x, method="implicit").detach()
    found = score_matching_loss(model.cuda(), x.cuda(), method="implicit").detach()
    torch.testing.assert_close(found.cpu(), wanted)
    for law in ("rademacher", "gaussian", "sphere"):
        loss = score_matching_loss(model, x.cuda(), method="sliced", law=law, projections=3)
        assert loss.is_cuda
