"""Exponential families against torch.distributions, autograd and samples."""

import math

import pytest
import torch
import torch.distributions as td
from torch.nn import functional as F

from vademecum.linear.exponential_family import ExponentialFamily, glm_loss

REFERENCE = {
    "gaussian": lambda eta: td.Normal(eta, torch.ones_like(eta)),
    "bernoulli": lambda eta: td.Bernoulli(logits=eta),
    "categorical": lambda eta: td.Categorical(logits=eta),
    "poisson": lambda eta: td.Poisson(eta.exp()),
    "exponential": lambda eta: td.Exponential(-eta),
}
SCALAR = [name for name in REFERENCE if name != "categorical"]


def parameters(name, *shape, dtype=torch.float64):
    eta = torch.randn(*shape, 3, dtype=dtype)
    return -eta.exp() if name == "exponential" else eta


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", REFERENCE)
def test_density(name, dtype):
    eta = parameters(name, 7, dtype=dtype)
    reference, family = REFERENCE[name](eta), ExponentialFamily.named(name)
    y = reference.sample()
    torch.testing.assert_close(family.log_prob(eta, y), reference.log_prob(y))
    assert family.log_prob(eta, y).dtype == dtype
    losses = glm_loss(eta, y, family=name, reduction="none")
    torch.testing.assert_close(losses, -reference.log_prob(y))
    torch.testing.assert_close(glm_loss(eta, y, family=family), losses.mean())
    torch.testing.assert_close(glm_loss(eta, y, family=name, reduction="sum"), losses.sum())


@pytest.mark.parametrize("name", SCALAR)
def test_moments(name):
    eta = parameters(name, 7)
    reference, family = REFERENCE[name](eta), ExponentialFamily.named(name)
    torch.testing.assert_close(family.mean(eta), reference.mean)
    torch.testing.assert_close(family.variance(eta), reference.variance)
    assert family.link is not None
    torch.testing.assert_close(family.link(family.mean(eta)), eta)


def test_moments_of_the_categorical_family():
    eta = parameters("categorical", 2, 5)
    family, p = ExponentialFamily.named("categorical"), eta.softmax(-1)
    torch.testing.assert_close(family.mean(eta), p)
    covariance = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    torch.testing.assert_close(family.variance(eta), covariance)
    assert family.link is not None
    torch.testing.assert_close(family.link(p), eta - eta.logsumexp(-1, keepdim=True))


@pytest.mark.parametrize("name", REFERENCE)
def test_gradient_is_mean_minus_statistic(name):
    eta = parameters(name, 7).requires_grad_()
    y = REFERENCE[name](eta.detach()).sample()
    (g,) = torch.autograd.grad(glm_loss(eta, y, family=name, reduction="sum"), eta)
    family = ExponentialFamily.named(name)
    statistic = F.one_hot(y, 3) if name == "categorical" else y
    torch.testing.assert_close(g, family.mean(eta.detach()) - statistic)
    (slope,) = torch.autograd.grad(family.mean(eta).sum(), eta)  # the mean is differentiable
    variance = family.variance(eta.detach())
    torch.testing.assert_close(slope, variance.sum(-1) if name == "categorical" else variance)


@pytest.mark.parametrize("name", REFERENCE)
def test_samples(name):
    eta = parameters(name)[None].expand(20_000, 3)
    family = ExponentialFamily.named(name)
    y = family.sample(eta)
    statistic = F.one_hot(y, 3).double() if name == "categorical" else y
    variance = family.variance(eta[0])
    spread = (variance.diagonal() if name == "categorical" else variance).sqrt()
    error = (statistic.mean(0) - family.mean(eta[0])).abs() / spread * math.sqrt(20_000)
    assert float(error.max()) < 6
    g = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    assert torch.equal(family.sample(eta, generator=g[0]), family.sample(eta, generator=g[1]))


def test_losses_by_name():
    eta, y = torch.randn(9, dtype=torch.float64), torch.randint(2, (9,)).double()
    expected = F.binary_cross_entropy_with_logits(eta, y)
    torch.testing.assert_close(glm_loss(eta, y, family="bernoulli"), expected)
    torch.testing.assert_close(glm_loss(eta, y.bool(), family="bernoulli"), expected)
    expected = F.gaussian_nll_loss(eta, y, torch.ones(9).double(), full=True)
    torch.testing.assert_close(glm_loss(eta, y, family="gaussian"), expected)
    logits, k = torch.randn(9, 4), torch.randint(4, (9,))
    torch.testing.assert_close(
        glm_loss(logits, k, family="categorical"), F.cross_entropy(logits, k)
    )


def test_far_out():
    eta, y = torch.tensor([-1000.0, 1000.0]), torch.tensor([1, 1])
    assert glm_loss(eta, y, family="bernoulli", reduction="none").tolist() == [1000.0, 0.0]
    family = ExponentialFamily.named("bernoulli")
    assert family.mean(eta).tolist() == [0.0, 1.0]
    assert family.variance(eta).tolist() == [0.0, 0.0]
    near = torch.tensor([-90.0, -5.0, 30.0, 90.0], dtype=torch.float64)
    exact = near.sigmoid() * (-near).sigmoid()
    torch.testing.assert_close(family.variance(near), exact, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_classes_are_not_rounded(dtype):
    """In bfloat16 the class 257 would be 256."""
    eta = torch.zeros(1, 3000, dtype=dtype)
    eta[0, [257, 2049]] = 5.0
    for k in (256, 257, 2048, 2049):
        loss = glm_loss(eta, torch.tensor([k]), family="categorical")
        expected = F.cross_entropy(eta.float(), torch.tensor([k]))
        torch.testing.assert_close(loss.float(), expected, rtol=4 * torch.finfo(dtype).eps, atol=0)


ETA, Y = torch.tensor([0.5, -1.0]), torch.tensor([1.0, 0.0])
ERRORS = [
    (ETA, Y, {"family": "gamma"}, "family must be one of 'gaussian', .*, got 'gamma'"),
    (ETA, Y, {"family": "gaussian", "reduction": "max"}, "reduction must be one of 'mean'"),
    (ETA, Y[:1], {"family": "gaussian"}, r"y must have shape \(2,\) .*, got shape \(1,\)"),
    (ETA, Y[:, None], {"family": "gaussian"}, r"y must have shape \(2,\) .*, got shape \(2, 1\)"),
    (ETA * math.nan, Y, {"family": "gaussian"}, "eta must be finite, got nan"),
    (ETA.long(), Y, {"family": "gaussian"}, "eta must be floating point, got torch.int64"),
    (ETA[:0], Y[:0], {"family": "gaussian"}, "eta must not be empty"),
    (ETA, Y * math.inf, {"family": "gaussian"}, "y must be in the support of gaussian, got"),
    (ETA, Y / 2, {"family": "bernoulli"}, "y must be in the support of bernoulli, got 0.5"),
    (ETA, Y - 2, {"family": "poisson"}, "y must be in the support of poisson, got -1.0"),
    (ETA, Y + 0.5, {"family": "poisson"}, "y must be in the support of poisson, got 1.5"),
    (ETA, Y + math.inf, {"family": "poisson"}, "y must be in the support of poisson, got inf"),
    (ETA, Y, {"family": "exponential"}, "eta must be in the domain of exponential, got 0.5"),
    (-ETA.abs(), -Y, {"family": "exponential"}, "y must be in the support of exponential, got -1"),
    (ETA, torch.tensor(2), {"family": "categorical"}, "support of categorical, got 2"),
    (ETA[0], torch.tensor(0), {"family": "categorical"}, "eta must have at least one axis"),
    (ETA, torch.tensor([0, 1]), {"family": "categorical"}, r"y must have shape \(\) "),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("eta", "y", "options", "message"), ERRORS)
def test_errors(eta, y, options, message):
    with pytest.raises(ValueError, match=message):
        glm_loss(eta, y, **options)


def test_a_family_without_sampler():
    family = ExponentialFamily(log_partition=torch.exp, log_base=torch.zeros_like)
    with pytest.raises(ValueError, match="sampler must be given to sample from the family"):
        family.sample(ETA)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", REFERENCE)
def test_cuda(name):
    eta, family = parameters(name, 5), ExponentialFamily.named(name)
    y = family.sample(eta.cuda())
    assert y.is_cuda
    torch.testing.assert_close(family.log_prob(eta.cuda(), y).cpu(), family.log_prob(eta, y.cpu()))
    torch.testing.assert_close(family.variance(eta.cuda()).cpu(), family.variance(eta))
