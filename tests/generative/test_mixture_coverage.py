"""Coverage of modes against loops over examples, and laws that are known."""

import math

import jaxtyping
import numpy as np
import pytest
import torch
from scipy.stats import binom, chi2

from vademecum.generative import mode_coverage


def ring(k: int = 8, radius: float = 4.0) -> torch.Tensor:
    angle = torch.arange(k).double() * 2 * math.pi / k
    return radius * torch.stack([angle.cos(), angle.sin()], 1)


def test_every_form_of_covariances_as_a_loop_over_examples():
    torch.manual_seed(0)
    means, x = torch.randn(5, 3).double(), 2 * torch.randn(60, 3).double()
    root = torch.randn(5, 3, 3).double()
    forms = {
        "variances": torch.rand(5).double() + 0.2,
        "diagonals": torch.rand(5, 3).double() + 0.2,
        "matrices": root @ root.mT + 0.1 * torch.eye(3).double(),
    }
    for form in forms.values():
        full = {1: lambda c: c[:, None, None] * np.eye(3), 2: lambda c: c[:, :, None] * np.eye(3)}
        matrices = full.get(form.ndim, lambda c: c)(form.numpy())
        found = mode_coverage(x, means, form, radius=1.5, least=3)
        modes = []
        for row in x.numpy():
            away = row - means.numpy()
            r = [math.sqrt(a @ np.linalg.inv(C) @ a) for a, C in zip(away, matrices, strict=True)]
            modes.append(int(np.argmin(r)) if min(r) <= 1.5 else -1)
        assert found.assignment.tolist() == modes
        counts = [modes.count(i) for i in range(5)]
        assert found.counts.tolist() == counts
        assert found.covered == sum(c >= 3 for c in counts)
        assert found.junk == pytest.approx(modes.count(-1) / 60, abs=1e-15)
        shares = [c / sum(counts) for c in counts if c]
        assert found.entropy == pytest.approx(-sum(s * math.log(s) for s in shares), rel=1e-12)
        assert 0 < found.junk < 1  # the case is not degenerate


@pytest.mark.parametrize("form", [
    torch.ones(3), torch.ones(3, 2), torch.tensor([[1.0, 0.9], [0.9, 1.0]]).expand(3, 2, 2),
])  # fmt: skip
def test_equal_distances_go_to_the_first_mode_and_overflow_to_none(form):
    means = torch.tensor([[5.0, 5.0], [1.0, 1.0], [1.0, 1.0]])
    x = torch.tensor([[1.0, 1.0], [3e38, 3e38], [3e38, -3e38], [1.5, 1.5], [5.0, 5.0]])
    found = mode_coverage(x, means, form)
    assert found.assignment.tolist() == [1, -1, -1, 1, 0]
    assert found.counts.tolist() == [1, 2, 0]


def test_a_distance_that_is_no_number_belongs_to_no_mode():
    """Both entries of the difference overflow, and their combination is inf - inf."""
    x, means = torch.tensor([[3e38, 3e38], [-3e38, -3e38]]), torch.tensor([[-3e38, -3e38]])
    found = mode_coverage(x, means, torch.tensor([[[1.0, 0.9], [0.9, 1.0]]]))
    assert found.assignment.tolist() == [-1, 0]
    assert found.counts.tolist() == [1]
    assert (found.covered, found.junk) == (1, 0.5)


def test_a_sample_of_the_mixture_itself():
    """Junk is the tail of a chi-squared law, all modes are covered, the entropy is near log k."""
    torch.manual_seed(1)
    n, means = 20_000, ring()
    mode = torch.randint(8, (n,))
    x = means[mode] + 0.3 * torch.randn(n, 2).double()
    for radius in (2.0, 3.0):
        found = mode_coverage(x, means, torch.full((8,), 0.09).double(), radius=radius)
        tail = chi2.sf(radius**2, 2)
        low, high = binom.ppf([5e-7, 1 - 5e-7], n, tail)
        assert low <= round(found.junk * n) <= high
        assert found.covered == 8
        # 2 n (log k - H) is nearly chi-squared with k - 1 degrees of freedom
        assert 0 <= math.log(8) - found.entropy <= chi2.isf(1e-6, 7) / (2 * n * (1 - tail))
        near = found.assignment >= 0
        assert found.assignment[near].equal(mode[near])


@pytest.mark.parametrize("cut", [1, 100, 2**12])
def test_portions_and_half_precision_change_nothing(cut, monkeypatch):
    torch.manual_seed(2)
    means, x = ring(5, 2.0), torch.randn(101, 2).double()
    forms = torch.full((5,), 0.3), torch.rand(5, 2) + 0.1, torch.eye(2).expand(5, 2, 2) / 2
    for form in forms:
        whole = mode_coverage(x, means, form.double(), radius=1.5)
        with monkeypatch.context() as patch:
            patch.setattr("vademecum.generative.mixture_coverage._CACHE", cut)
            found = mode_coverage(x, means, form.double(), radius=1.5)
        assert found.assignment.equal(whole.assignment)
        assert found[:3] == whole[:3]
        assert 0 < whole.junk < 1
        for dtype in (torch.float16, torch.bfloat16):
            given = [t.to(dtype) for t in (x, means, form)]
            wanted = mode_coverage(*(t.double() for t in given), radius=1.5)
            near = mode_coverage(*given, radius=1.5).assignment == wanted.assignment
            assert near.double().mean() > 0.98  # single precision, where a tie may fall elsewhere


def test_scales_do_not_count():
    torch.manual_seed(3)
    x, means, form = torch.randn(60, 2), ring(5, 2.0).float(), torch.rand(5) + 0.1
    wanted = mode_coverage(x, means, form)
    for scale in (1e-8, 2.0**20, 1e8):
        found = mode_coverage(scale * x, scale * means, scale**2 * form)
        assert found.assignment.equal(wanted.assignment)


def test_collapse_junk_and_single_examples():
    means = ring()
    one = mode_coverage(means[:1].repeat(50, 1), means, torch.ones(8).double())
    assert (one.covered, one.junk, one.entropy) == (1, 0.0, 0.0)
    none = mode_coverage(torch.zeros(9, 2).double(), means, 0.01 * torch.ones(8).double())
    assert (none.covered, none.junk, none.entropy) == (0, 1.0, 0.0)
    assert none.assignment.tolist() == [-1] * 9
    twice = mode_coverage(means.repeat(2, 1), means, torch.ones(8).double(), least=3)
    assert twice.covered == 0
    assert twice.entropy == pytest.approx(math.log(8))
    edge = mode_coverage(torch.tensor([[3.0], [3.01]]), torch.zeros(1, 1), torch.ones(1))
    assert edge.assignment.tolist() == [0, -1]  # the radius itself still belongs to a mode
    tie = mode_coverage(torch.zeros(1, 1), torch.tensor([[1.0], [-1.0]]), torch.ones(2))
    assert tie.assignment.tolist() == [0]  # the first of modes that are as near


M, C = torch.zeros(2, 3), torch.ones(2)
REFUSED = {
    r"x must have 2 axes, got shape \(3,\)": lambda: mode_coverage(torch.ones(3), M, C),
    r"means must be 4 wide, got shape \(2, 3\)": lambda: mode_coverage(torch.ones(5, 4), M, C),
    r"means must be torch.float64 on cpu like x, got torch.float32": (
        lambda: mode_coverage(torch.ones(5, 3).double(), M, C)
    ),
    r"covariances must be torch.float32 on cpu like x, got torch.float64": (
        lambda: mode_coverage(torch.ones(5, 3), M, C.double())
    ),
    r"covariances must be > 0, got 0": lambda: mode_coverage(torch.ones(5, 3), M, 0 * C),
    r"covariances must be \(2,\), \(2, 3\) or \(2, 3, 3\), got \(3,\)": (
        lambda: mode_coverage(torch.ones(5, 3), M, torch.ones(3))
    ),
    r"covariances must be symmetric": lambda: mode_coverage(
        torch.ones(5, 3), M, torch.eye(3).roll(1, 0).expand(2, 3, 3)
    ),
    r"covariances must be positive definite, and number 1 is not": lambda: mode_coverage(
        torch.ones(5, 3), M, torch.stack([torch.eye(3), -torch.eye(3)])
    ),
    r"radius must be > 0, got -1": lambda: mode_coverage(torch.ones(5, 3), M, C, radius=-1.0),
    r"least must be >= 1, got 0": lambda: mode_coverage(torch.ones(5, 3), M, C, least=0),
    r"x must be finite, got nan": lambda: mode_coverage(torch.full((5, 3), math.nan), M, C),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would complain first
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


@pytest.mark.gpu
def test_on_a_gpu_as_on_the_cpu():
    x = torch.randn(100, 2).double()
    for form in (torch.ones(8), torch.ones(8, 2), torch.eye(2).expand(8, 2, 2)):
        given = (x, ring(radius=1.0), form.double())
        found, wanted = mode_coverage(*(t.cuda() for t in given)), mode_coverage(*given)
        assert found.assignment.is_cuda
        assert found.assignment.cpu().equal(wanted.assignment)
        assert found[:3] == wanted[:3]
