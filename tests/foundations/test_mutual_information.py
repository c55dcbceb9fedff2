"""Mutual information against entropies, loops and autograd; lower bounds of divergences."""

import math

import mpmath
import pytest
import torch

from tests.foundations.test_entropy import random_laws
from vademecum.foundations.change_of_measure import donsker_varadhan_bound
from vademecum.foundations.divergences import kl_divergence
from vademecum.foundations.entropies import entropy
from vademecum.foundations.information import mutual_information
from vademecum.foundations.score_function import score_function_gradient


def loop(joint: torch.Tensor) -> float:
    p_x, p_y, total = joint.sum(1).tolist(), joint.sum(0).tolist(), 0.0
    for x, row in enumerate(joint.tolist()):
        for y, p in enumerate(row):
            total += p * math.log(p / (p_x[x] * p_y[y])) if p > 0 else 0.0
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_against_a_loop_and_entropies(dtype):
    joint = random_laws(6, 20, zeros=0.6).unflatten(-1, (4, 5))
    joint[0, 2] = 0  # a value that never occurs
    joint = (joint / joint.sum((-2, -1), keepdim=True)).to(dtype)
    measured = mutual_information(joint, base=2)
    assert measured.dtype == dtype
    close = {"rtol": 0, "atol": 99 * torch.finfo(dtype).eps}
    expected = torch.tensor([loop(j.double()) / math.log(2) for j in joint], dtype=dtype)
    torch.testing.assert_close(measured, expected, **close)
    torch.testing.assert_close(mutual_information(joint.mT, base=2), measured, **close)
    if dtype == torch.float64:
        parts = entropy(joint.sum(-1)) + entropy(joint.sum(-2)) - entropy(joint.flatten(-2))
        torch.testing.assert_close(mutual_information(joint), parts, **close)


def test_ends_of_the_range():
    assert mutual_information(torch.eye(8) / 8, base=2).item() == pytest.approx(3.0)
    p, q = random_laws(4, zeros=0.0), random_laws(3, zeros=0.0)
    assert 0 <= mutual_information(torch.outer(p, q)).item() < 1e-30


def test_nearly_independent_variables_keep_their_accuracy():
    h = 1e-9
    joint = torch.tensor([[0.25 + h, 0.25 - h], [0.25 - h, 0.25 + h]], dtype=torch.float64)
    with mpmath.workdps(50):
        a, b = (mpmath.mpf(v) for v in joint[0].tolist())
        exact = float(2 * (a * mpmath.log(4 * a) + b * mpmath.log(4 * b)))
    assert mutual_information(joint).item() == pytest.approx(exact, rel=1e-6)
    assert exact == pytest.approx(8 * h**2, rel=1e-6)


def test_small_marginals_do_not_underflow():
    joint = torch.tensor([[1.0, 0.0], [0.0, 1e-25]])
    expected = 1e-25 * math.log(1e25) + 1e-25  # the second from the first cell, -ln(1 - 1e-25)
    assert mutual_information(joint).item() == pytest.approx(expected, rel=0.05)


def test_gradients():
    z = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def f(z):
        return mutual_information(z.flatten().softmax(0).unflatten(0, (3, 4)))

    assert torch.autograd.gradcheck(f, z)
    joint = torch.tensor([[0.5, 0.25, 0.0], [0.0, 0.25, 0.0], [0, 0, 0]], requires_grad=True)
    assert torch.autograd.grad(mutual_information(joint), joint)[0].isfinite().all()


def test_donsker_varadhan_is_tight_at_the_log_ratio_only():
    q, p = random_laws(6), random_laws(6, zeros=0.0)
    phi = torch.where(q > 0, q / p, 1e-300).log()
    bound = donsker_varadhan_bound(phi + 3, phi + 3, q=q, p=p)
    torch.testing.assert_close(bound, kl_divergence(q, p))
    other = torch.randn(6).double()
    assert donsker_varadhan_bound(other, other, q=q, p=p) < bound
    weights = torch.tensor([1, 2, 0, 1, 1, 0])
    drawn = donsker_varadhan_bound(phi.repeat_interleave(weights), other)
    mean = (phi * weights).sum() / 5
    torch.testing.assert_close(drawn, mean - other.exp().mean().log())


def test_donsker_varadhan_learns_the_divergence():
    q, p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]], dtype=torch.float64)
    phi = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for _ in range(2000):
        (slope,) = torch.autograd.grad(donsker_varadhan_bound(phi, phi, q=q, p=p), phi)
        phi = (phi + slope).detach().requires_grad_()
    bound = donsker_varadhan_bound(phi, phi, q=q, p=p).detach()
    torch.testing.assert_close(bound, kl_divergence(q, p))


def test_score_function_gradient_by_enumeration_of_all_pairs_of_draws():
    """Averaged over both draws it is the gradient, with either baseline."""
    z = torch.randn(3, dtype=torch.float64, requires_grad=True)
    f = torch.tensor([1.0, -2.0, 5.0], dtype=torch.float64)
    (expected,) = torch.autograd.grad(f @ z.softmax(0), z)
    p = z.detach().softmax(0)
    for baseline in (0.0, 7.5, "leave_one_out"):
        total = torch.zeros(3, dtype=torch.float64)
        for i in range(3):
            for j in range(3):
                draws = torch.tensor([i, j])
                log_prob = z.log_softmax(0)[draws]
                (g,) = score_function_gradient(log_prob, f[draws], [z], baseline=baseline)
                total += p[i] * p[j] * g
        torch.testing.assert_close(total, expected)


def test_score_function_gradient_by_several_parameters():
    mean, idle = torch.zeros(2, requires_grad=True), torch.ones(3, requires_grad=True)
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    log_prob = torch.distributions.Normal(mean, 1.0).log_prob(x).sum(1)
    f = (2 * idle[0] * torch.tensor([1.0, 2.0, 3.0])).requires_grad_()
    by_mean, by_idle = score_function_gradient(log_prob, f, (mean, idle), baseline=4)
    assert by_mean.tolist() == pytest.approx([-4 / 3, -2 / 3])  # the mean of (f - 4) x
    assert by_idle.tolist() == [0.0] * 3


Z, P = torch.zeros(2), torch.tensor([0.5, 0.5])
ERRORS = [
    (mutual_information, (P,), {}, r"joint must have two axes or more, got shape \(2,\)"),
    (mutual_information, (torch.eye(2),), {}, "joint must sum to one .* got a sum of 2"),
    (mutual_information, (torch.tensor([[1.5, -0.5]]),), {}, "entries of joint must be >= 0"),
    (mutual_information, (torch.eye(2).long(),), {}, "joint must be floating point"),
    (mutual_information, (torch.eye(2) / 2,), {"base": 1.0}, "base must be > 1"),
    (donsker_varadhan_bound, (Z / 0, Z), {}, "phi_q must be finite"),
    (donsker_varadhan_bound, (Z, Z[:0]), {}, "phi_p must not be empty"),
    (donsker_varadhan_bound, (Z, Z), {"q": P / 2}, "q must sum to one"),
    (donsker_varadhan_bound, (Z, torch.zeros(3)), {"p": P}, r"p must have the shape of phi_p, \(3"),
    (donsker_varadhan_bound, (Z[None], Z), {}, "phi_q must have 1 axes"),
    (score_function_gradient, (Z, Z[:1], [Z]), {}, "log_prob must be 1 wide"),
    (score_function_gradient, (Z[:1], Z[:1], [Z]), {}, "f must have 2 entries or more"),
    (score_function_gradient, (Z, Z, [Z]), {"baseline": math.nan}, "baseline must be"),
    (score_function_gradient, (Z, Z, [Z]), {"baseline": "mean"}, "baseline must be a number"),
    (score_function_gradient, (Z, Z / 0, [Z]), {}, "f must be finite"),
    (score_function_gradient, (Z, Z, [Z]), {}, "log_prob must be a function of theta"),
    (donsker_varadhan_bound, (Z, Z + 0j), {}, "phi_p must hold real vectors"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "knobs", "message"), ERRORS)
def test_errors(function, arguments, knobs, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **knobs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    joint = random_laws(6, 20).unflatten(-1, (4, 5))
    torch.testing.assert_close(mutual_information(joint.cuda()).cpu(), mutual_information(joint))
    phi = torch.randn(8)
    torch.testing.assert_close(
        donsker_varadhan_bound(phi.cuda(), phi.cuda()).cpu(), donsker_varadhan_bound(phi, phi)
    )
    z = torch.zeros(8, requires_grad=True, device="cuda")
    (slope,) = score_function_gradient(z.log_softmax(0), phi.cuda(), [z], baseline=0)
    torch.testing.assert_close(slope.cpu(), phi / 8 - phi.mean() / 8)
