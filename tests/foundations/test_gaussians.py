"""Gaussian laws against torch's, dense inverses, 50 digits and loops."""

import math

import mpmath
import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from vademecum.foundations.gaussians import (
    gaussian_condition,
    gaussian_kl,
    gaussian_marginal,
    gaussian_mle,
)


def draw(*batch, d=3, dtype=torch.float64):
    b = torch.randn(*batch, d, d, dtype=dtype)
    return torch.randn(*batch, d, dtype=dtype), b @ b.mT + torch.eye(d, dtype=dtype)


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_kl_is_that_of_torch(d, dtype, tol):
    p, q = draw(5, d=d, dtype=dtype), draw(5, d=d, dtype=dtype)
    expected = kl_divergence(MultivariateNormal(*p), MultivariateNormal(*q))
    found = gaussian_kl(*p, *q)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=tol, atol=tol)


def test_kl_broadcasts():
    p, q = draw(4, 1), draw(3)
    found = gaussian_kl(*p, *q)
    assert found.shape == (4, 3)
    one = gaussian_kl(p[0][2, 0], p[1][2, 0], q[0][1], q[1][1])
    torch.testing.assert_close(found[2, 1], one)
    torch.testing.assert_close(gaussian_kl(p[0], q[1][0], *q)[2, 1], gaussian_kl(
        p[0][2, 0], q[1][0], q[0][1], q[1][1]
    ))  # fmt: skip


def test_diagonal_kl():
    mean, var = torch.randn(2, 6, 4).double(), torch.rand(2, 6, 4).double() + 0.1
    full = gaussian_kl(mean[0], var[0].diag_embed(), mean[1], var[1].diag_embed())
    torch.testing.assert_close(gaussian_kl(mean[0], var[0], mean[1], var[1], diagonal=True), full)
    torch.testing.assert_close(
        gaussian_kl(mean[0], var[0], mean[1, 0], var[1, 0], diagonal=True)[0], full[0]
    )


@pytest.mark.parametrize("step", [1e-3, 1e-6, 1e-9])
def test_kl_of_laws_that_hardly_differ(step):
    mean, cov = draw(d=4)
    other = cov + step * (cov.square() / cov.square().max())
    with mpmath.workdps(50):
        p, q = (mpmath.matrix(c.tolist()) for c in (cov, other))
        ratio = q**-1 * p
        exact = (sum(ratio[i, i] for i in range(4)) - mpmath.log(mpmath.det(ratio)) - 4) / 2
    # The divergence is of the order of step^2, and u of the order of step comes with some eps.
    found = float(gaussian_kl(mean, cov, mean, other))
    assert found == pytest.approx(float(exact), rel=1e-15 * 100 / step, abs=0)
    assert found > 0
    assert 0 <= float(gaussian_kl(mean, cov, mean, cov)) < 1e-28


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kl_of_laws_on_scales_far_apart(dtype):
    for power in (-30, -12, -8, -6, -3, -0.31, -0.3, 0.3, 3, 8):
        ratio = torch.tensor([10.0**power], dtype=dtype)
        r = float(ratio)
        expected = (r - 1 - math.log(r)) / 2
        mean, one = torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype)
        flat = gaussian_kl(mean, ratio, mean, one, diagonal=True)
        full = gaussian_kl(mean, ratio[:, None], mean, one[:, None])
        rel = 20 * torch.finfo(dtype).eps
        assert [float(flat), float(full)] == pytest.approx([expected] * 2, rel=rel)
        ratio.requires_grad_()
        for kl in (
            gaussian_kl(mean, ratio, mean, one, diagonal=True),
            gaussian_kl(mean, ratio[:, None], mean, one[:, None]),
        ):
            (slope,) = torch.autograd.grad(kl, ratio)
            assert float(slope) == pytest.approx((1 - 1 / r) / 2, rel=2 * rel)


def test_conditioning_by_inverses():
    mean, cov = draw(d=5)
    seen, rest, z = [3, 0], [1, 2, 4], torch.randn(7, 2).double()
    found = gaussian_condition(mean, cov, seen, z)
    gain = cov[rest][:, seen] @ torch.linalg.inv(cov[seen][:, seen])
    torch.testing.assert_close(found.mean, mean[rest] + (z - mean[seen]) @ gain.T)
    torch.testing.assert_close(found.cov, cov[rest][:, rest] - gain @ cov[seen][:, rest])
    assert torch.equal(found.cov, found.cov.T)
    same = gaussian_condition(mean, cov, torch.tensor(seen), z[0])
    torch.testing.assert_close(same.mean, found.mean[0])


def test_conditioning_step_by_step():
    mean, cov = draw(6, d=4)
    z = torch.randn(6, 2).double()
    both = gaussian_condition(mean, cov, [0, 2], z)
    first = gaussian_condition(mean, cov, [2], z[:, 1:])
    second = gaussian_condition(*first, [0], z[:, :1])
    torch.testing.assert_close(both.mean, second.mean)
    torch.testing.assert_close(both.cov, second.cov)
    law = gaussian_marginal(mean, cov, [2, 0])
    chain = MultivariateNormal(*law).log_prob(z.flip(1))
    x = torch.randn(6, 2).double()
    chain = chain + MultivariateNormal(*both).log_prob(x)
    joint = torch.stack([z[:, 0], x[:, 0], z[:, 1], x[:, 1]], 1)
    torch.testing.assert_close(chain, MultivariateNormal(mean, cov).log_prob(joint))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_determined_has_no_variance(dtype):
    b = torch.randn(5, 2, dtype=dtype)
    cov = b @ b.T
    cov = (cov + cov.T) / 2
    found = gaussian_condition(
        torch.zeros(5, dtype=dtype), cov, [0, 1], b[:2] @ torch.ones_like(b[0])
    )
    reach = 1e4 * torch.finfo(dtype).eps * float(cov.max())
    assert (found.cov.diagonal() >= 0).all()
    condition = float(torch.linalg.cond(b[:2])) ** 2
    assert float(found.cov.abs().max()) < reach * condition
    torch.testing.assert_close(
        found.mean, b[2:] @ torch.ones_like(b[0]), rtol=0, atol=reach * condition
    )


def test_marginal_keeps_the_order():
    mean, cov = draw(2, d=4)
    law = gaussian_marginal(mean, cov, [3, 1])
    for i, a in enumerate((3, 1)):
        assert torch.equal(law.mean[:, i], mean[:, a])
        for j, b in enumerate((3, 1)):
            assert torch.equal(law.cov[:, i, j], cov[:, a, b])
    assert gaussian_marginal(mean, torch.zeros(4, 4).double(), [0]).cov.item() == 0


def test_mle_is_numpys_covariance():
    x = torch.randn(3, 20, 4).double() + 100
    for unbiased in (False, True):
        law = gaussian_mle(x, unbiased=unbiased)
        for k in range(3):
            expected = np.cov(x[k].T, ddof=int(unbiased))
            np.testing.assert_allclose(law.cov[k], expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(law.mean, x.mean(1))
    assert gaussian_mle(torch.ones(1, 2)).cov.abs().max() == 0


def test_fitted_laws_can_be_handed_on():
    x = torch.randn(2000, 2) * torch.tensor([1.0, 30.0]) + 5
    law = gaussian_mle(x)
    assert torch.equal(law.cov, law.cov.T)
    assert float(gaussian_kl(*law, *law)) < 1e-10
    rest = gaussian_condition(*law, [0], x[:, :1])
    residual = x[:, 1] - rest.mean[:, 0]  # of the regression of the second on the first
    assert float(residual.mean()) == pytest.approx(0, abs=1e-4)
    assert float(residual.square().mean()) == pytest.approx(rest.cov.item(), rel=1e-4)


def test_gradients():
    mean, cov = (x.requires_grad_() for x in draw(d=3))
    other = draw(d=3)

    def symmetric(c):
        return (c + c.T) / 2

    def kl(m, c):
        return gaussian_kl(m, symmetric(c), *other) + gaussian_kl(*other, m, symmetric(c))

    def condition(m, c):
        return gaussian_condition(m, symmetric(c), [1], torch.ones(1).double())

    assert torch.autograd.gradcheck(kl, (mean, cov))
    assert torch.autograd.gradcheck(condition, (mean, cov))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [2, 5, 30])
def test_singular_covariances_are_found(d, dtype):
    mean, good = torch.zeros(d, dtype=dtype), torch.eye(d, dtype=dtype)
    for _ in range(20):
        b = torch.randn(d, d - 1, dtype=dtype)
        cov = b @ b.T
        cov = (cov + cov.T) / 2
        with pytest.raises(ValueError, match="cov_q must be positive definite and not singular"):
            gaussian_kl(mean, good, mean, cov)
        gaussian_marginal(mean, cov, [0])  # which may be singular
    scales = torch.logspace(-6, 6, d, dtype=dtype)
    assert float(gaussian_kl(mean, scales.diag(), mean, scales.diag())) == 0


M, C, Z = torch.zeros(2), torch.eye(2), torch.zeros(1)
ASKEW, NEGATIVE = torch.tensor([[1.0, 0.5], [0.0, 1.0]]), torch.tensor([[1.0, 2.0], [2.0, 1.0]])
ERRORS = [
    (gaussian_kl, (M, C, M, ASKEW), "cov_q must be symmetric"),
    (gaussian_kl, (M, NEGATIVE, M, C), "cov_p must be positive definite .*eigenvalue of -1"),
    (gaussian_kl, (M, C, M, 0 * C), "cov_q must be positive definite"),
    (gaussian_kl, (M, C[:1], M, C), r"cov_p must be square, got shape \(1, 2\)"),
    (gaussian_kl, (M, torch.eye(3), M, C), r"cov_p must be 2 wide, got shape \(3, 3\)"),
    (gaussian_kl, (M, C, torch.zeros(3), C), r"mean_q must be 2 wide, got shape \(3,\)"),
    (gaussian_kl, (M.long(), C, M, C), "mean_p must be floating point, got torch.int64"),
    (gaussian_kl, (M, C.double(), M, C), "cov_p must have the dtype and device of mean_p"),
    (gaussian_kl, (M * math.nan, C, M, C), "mean_p must be finite, got nan"),
    (gaussian_kl, (M, C * math.inf, M, C), "cov_p must be finite"),
    (gaussian_kl, (M[:0], C[:0, :0], M, C), "mean_p must not be empty"),
    (gaussian_kl, (M.to(torch.complex64), C, M, C), "mean_p must be real"),
    (gaussian_kl, (M.expand(2, 2), C, M.expand(3, 2), C), r"must broadcast, got mean_p: \(2,\)"),
    (gaussian_kl, ([0.0], C, M, C), "mean_p must be a tensor, got list"),
    (gaussian_condition, (M, C, [2], Z), r"index must hold distinct integers from 0 to 1, got \[2"),
    (gaussian_condition, (M, C, [-1], Z), "index must hold distinct integers"),
    (gaussian_condition, (M, C, [0, 0], M), "index must hold distinct integers"),
    (gaussian_condition, (M, C, [], Z), "index must hold distinct integers"),
    (gaussian_condition, (M, C, [0.0], Z), "index must hold distinct integers"),
    (gaussian_condition, (M, C, torch.tensor([True]), Z), "index must hold distinct integers"),
    (gaussian_condition, (M, C, torch.tensor(0), Z), "index must hold distinct integers"),
    (gaussian_condition, (M, C, torch.tensor([[0]]), Z), "index must hold distinct integers"),
    (gaussian_condition, (M, C, [0, 1], M), "index must leave a coordinate, got all 2"),
    (gaussian_condition, (M, C, [0], M), "value must be 1 wide"),
    (gaussian_condition, (M, NEGATIVE, [0], Z), "cov must be positive semidefinite, .* of -1"),
    (gaussian_condition, (M, C * C[0], [1], Z), r"cov\[index, index\] must be positive definite"),
    (gaussian_condition, (M, C, [0], Z * math.nan), "value must be finite"),
    (gaussian_marginal, (M, NEGATIVE, [0]), "cov must be positive semidefinite"),
    (gaussian_marginal, (M, ASKEW, [0]), "cov must be symmetric"),
    (gaussian_marginal, (M, C, [5]), "index must hold"),
    (gaussian_mle, (M,), "x must be real with 2 or more axes"),
    (gaussian_mle, (C.long(),), "x must be floating point"),
    (gaussian_mle, (C[:0],), "x must not be empty"),
    (gaussian_mle, (C * math.inf,), "x must be finite"),
    (gaussian_mle, (C * 1e30,), "the covariance of x must be finite"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "message"), ERRORS)
def test_errors(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


@pytest.mark.usefixtures("unchecked")
def test_errors_of_knobs():
    with pytest.raises(ValueError, match=r"cov_p must hold variances > 0, got 0"):
        gaussian_kl(M, M, M, M + 1, diagonal=True)
    with pytest.raises(ValueError, match=r"cov_q must be 2 wide, got shape \(1,\)"):
        gaussian_kl(M, M + 1, M, Z + 1, diagonal=True)
    with pytest.raises(ValueError, match=r"x must hold 2 or more points .*, got 1"):
        gaussian_mle(C[:1], unbiased=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    (mean, cov), q = draw(5), draw(5)
    there = mean.cuda(), cov.cuda()
    found = gaussian_kl(*there, q[0].cuda(), q[1].cuda())
    torch.testing.assert_close(found.cpu(), gaussian_kl(mean, cov, *q))
    z = torch.randn(5, 1).double()
    here, gone = gaussian_condition(mean, cov, [1], z), gaussian_condition(*there, [1], z.cuda())
    torch.testing.assert_close(gone.mean.cpu(), here.mean)
    torch.testing.assert_close(gone.cov.cpu(), here.cov)
    torch.testing.assert_close(gaussian_mle(there[1]).cov.cpu(), gaussian_mle(cov).cov)
