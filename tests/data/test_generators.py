"""Data made to measure: the stated guarantees, exactly, and the stated distributions."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vademecum.data import gaussians, moons, separable, spirals, xor

DRAWS = {
    "separable": lambda **options: separable(50, 3, margin=0.2, **options),
    "moons": lambda **options: moons(50, noise=0.1, **options),
    "spirals": lambda **options: spirals(50, noise=0.1, **options),
    "xor": lambda **options: xor(50, noise=0.1, **options),
    "gaussians": lambda **options: gaussians(50, **options),
}
NEVER = 1e-9  # a p-value below which a fixed seed shows an error, not bad luck


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def exact(x: torch.Tensor) -> list:
    if x.ndim == 0:
        return Fraction(x.item())  # type: ignore[return-value]
    return [exact(row) for row in x]


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 12),
    d=st.integers(1, 40),
    margin=st.floats(1e-12, 0.85) | st.sampled_from([0.5, 1e-300]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 2**30),
)
def test_margin_and_norm_are_exact(n, d, margin, dtype, seed):
    x, y, w, stated = separable(n, d, margin=margin, dtype=dtype, generator=seeded(seed))
    assert stated == margin
    assert x.dtype == y.dtype == w.dtype == dtype
    assert y.tolist() == [1, -1] * (n // 2) + [1] * (n % 2)
    rows, normal = exact(x), exact(w)
    length = sum(c * c for c in normal)
    assert abs(float(length) - 1) < 4 * torch.finfo(dtype).eps
    for row, sign in zip(rows, y.tolist(), strict=True):
        reach = int(sign) * sum(a * b for a, b in zip(row, normal, strict=True))
        assert reach > 0
        assert reach**2 >= Fraction(margin) ** 2 * length
        assert sum(a * a for a in row) <= 1


@pytest.mark.parametrize("margin", [0.999, 0.9999999])
def test_margins_near_one(margin):
    x, y, w, _ = separable(1000, 5, margin=margin, dtype=torch.float64, generator=seeded())
    assert (y * (x @ w)).min() >= margin
    assert x.norm(dim=1).max() <= 1


@pytest.mark.parametrize("d", [1, 2, 3, 20])
def test_distance_from_the_hyperplane(d):
    margin = 0.3
    x, y, w, _ = separable(20_000, d, margin=margin, dtype=torch.float64, generator=seeded())
    t = y * (x @ w)
    law = stats.kstest(t, lambda t: 1 - ((1 - t**2) / (1 - margin**2)) ** ((d + 1) / 2))
    assert law.pvalue > NEVER
    if d > 1:
        rest = (x - (x @ w)[:, None] * w).norm(dim=1) / (1 - t**2).sqrt()
        assert stats.kstest(rest ** (d - 1), "uniform").pvalue > NEVER


def test_slices_are_round():
    x, _, w, _ = separable(40_000, 4, margin=0.3, dtype=torch.float64, generator=seeded())
    rest = x - (x @ w)[:, None] * w
    covariance = rest.T @ rest / len(x)
    round_ = covariance.trace() / 3 * (torch.eye(4, dtype=torch.float64) - torch.outer(w, w))
    # Entries of rest are below 1, so that each mean has a standard error of at most 1 / 200.
    assert (covariance - round_).abs().max() < 5 / 200
    assert (rest.mean(0)).abs().max() < 5 / 200


def test_planted_separators_are_uniform():
    w = torch.stack([separable(2, 3, margin=0.1, generator=seeded(i)).w for i in range(2000)])
    for k in range(3):
        assert stats.kstest(w[:, k], stats.uniform(-1, 2).cdf).pvalue > NEVER


def test_moons_lie_on_their_circles():
    x, y = moons(1001, dtype=torch.float64, generator=seeded())
    assert y.bincount().tolist() == [501, 500]
    a, b = x[y == 0], x[y == 1] - torch.tensor([1.0, 0.5], dtype=torch.float64)
    for half in (a, -b):
        assert (half.norm(dim=1) - 1).abs().max() < 1e-15 * 4
        assert half[:, 1].min() >= -1e-15
        angle = torch.atan2(half[:, 1], half[:, 0]) / math.pi
        assert stats.kstest(angle, "uniform").pvalue > NEVER


def test_second_moon_bends_down_from_the_first_ones_centre():
    x, y = moons(4000, dtype=torch.float64, generator=seeded())
    low, high = x[y == 1].min(0).values, x[y == 1].max(0).values
    assert torch.allclose(low, torch.tensor([0.0, -0.5], dtype=torch.float64), atol=1e-3)
    assert torch.allclose(high, torch.tensor([2.0, 0.5], dtype=torch.float64), atol=1e-2)


@pytest.mark.parametrize(("classes", "turns"), [(2, 1.0), (3, 2.5), (5, -0.75)])
def test_spirals_lie_on_their_arms(classes, turns):
    x, y = spirals(1000, classes=classes, turns=turns, dtype=torch.float64, generator=seeded())
    r = x.norm(dim=1)
    a = 2 * math.pi * (turns * r + y.double() / classes)
    assert torch.allclose(x, r[:, None] * torch.stack([a.cos(), a.sin()], 1), atol=1e-14)
    assert r.min() > 0
    assert r.max() <= 1 + 1e-15
    assert stats.kstest(r, "uniform").pvalue > NEVER
    assert y.tolist() == [i % classes for i in range(1000)]


def test_xor_is_exclusive_or():
    x, y = xor(1000, noise=0.0)
    assert ((x[:, 0] != x[:, 1]) == y.bool()).all()
    assert x[:4].unique(dim=0).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


@pytest.mark.parametrize("draw", [moons, spirals, xor])
def test_noise_is_gaussian(draw):
    clean, noisy = (
        draw(20_000, noise=s, generator=seeded(), dtype=torch.float64).x for s in (0, 2)
    )
    z = (noisy - clean) / 2
    assert stats.kstest(z.flatten(), "norm").pvalue > NEVER
    assert abs(z[:, 0] @ z[:, 1]) / len(z) < 5 / math.sqrt(len(z))


def test_gaussians_scatter_about_their_means():
    means = torch.tensor([[0.0, 0, 0], [5, 0, 1], [0, -2, 3]], dtype=torch.float64)
    x, y, kept = gaussians(30_000, means=means, spread=0.5, generator=seeded())
    assert kept.equal(means)
    assert x.dtype == torch.float64
    z = (x - means[y]) / 0.5
    for k in range(3):
        for axis in range(3):
            assert stats.kstest(z[y == k, axis], "norm").pvalue > NEVER
    error = (z.T @ z / len(z) - torch.eye(3, dtype=torch.float64)).abs().max()
    assert error < 5 * math.sqrt(2 / len(z))


def test_error_of_the_nearest_mean():
    means = torch.tensor([[-1.0, 0], [1.0, 0]], dtype=torch.float64)
    x, y, _ = gaussians(40_000, means=means, spread=1.0, generator=seeded())
    wrong = (torch.cdist(x, means).argmin(1) != y).double().mean().item()
    best = stats.norm.cdf(-1)
    assert abs(wrong - best) < 5 * math.sqrt(best * (1 - best) / 40_000)


def test_gaussians_draw_unit_means():
    x, y, means = gaussians(10, classes=5, d=7, spread=0.0, dtype=torch.float64)
    assert torch.allclose(means.norm(dim=1), torch.ones(5, dtype=torch.float64))
    assert torch.equal(x, means[y])
    assert gaussians(4).means.shape == (2, 2)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_seeds(draw):
    state = torch.random.get_rng_state()
    first, again, other = (
        draw(generator=seeded(1)),
        draw(generator=seeded(1)),
        draw(generator=seeded(2)),
    )
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(draw().x, first.x)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes(draw, dtype):
    result = draw(dtype=dtype, generator=seeded())
    assert result.x.dtype == dtype
    assert result.x.isfinite().all()
    assert draw().x.dtype == torch.get_default_dtype()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_gpu(draw):
    generator = torch.Generator("cuda").manual_seed(0)
    result, here = draw(generator=generator), draw()
    assert result.x.is_cuda
    assert result.y.is_cuda
    assert torch.equal(result.y.cpu(), here.y)
    assert result.x.shape == here.x.shape


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_margin_on_gpu():
    x, y, w, _ = separable(10_000, 50, margin=0.1, device="cuda")
    assert ((y.double() * (x.double() @ w.double())) >= 0.1 * w.double().norm()).all()


def test_numbers_are_drawn_where_the_generator_is():
    assert separable(2, 2, margin=0.1, generator=seeded(), device="meta").x.is_meta
    assert moons(4, noise=0.1, generator=seeded(), device="meta").x.is_meta
    assert gaussians(4, generator=seeded(), device="meta").x.is_meta


MEANS = torch.zeros(3, 2)

ERRORS = [
    (lambda: separable(0, 2, margin=0.1), "n must be >= 1, got 0"),
    (lambda: separable(2, 0, margin=0.1), "d must be >= 1, got 0"),
    (lambda: separable(2, 2, margin=0.0), "margin must be > 0, got 0"),
    (lambda: separable(2, 2, margin=-0.5), "margin must be > 0, got -0.5"),
    (lambda: separable(2, 2, margin=1.0), "margin must be < 0.999998, got 1.0"),
    (lambda: separable(2, 2, margin=0.9999999, dtype=torch.float32), "margin must be < 0.999998"),
    (lambda: separable(2, 2, margin=math.nan), "margin must be .*, got nan"),
    (lambda: separable(2, 2, margin=0.1, dtype=torch.int64), "dtype must be floating point"),
    (lambda: moons(1), "n must be >= 2, got 1"),
    (lambda: moons(4, noise=-1.0), "noise must be >= 0, got -1"),
    (lambda: moons(4, noise=math.inf), "noise must be finite, got inf"),
    (lambda: moons(4, noise=math.nan), "noise must be .*, got nan"),
    (lambda: spirals(2, classes=3), "n must be >= 3, got 2"),
    (lambda: spirals(9, classes=1), "classes must be >= 2, got 1"),
    (lambda: spirals(9, turns=math.inf), "turns must be finite, got inf"),
    (lambda: xor(1), "n must be >= 2, got 1"),
    (lambda: xor(4, noise=-0.1), "noise must be >= 0, got -0.1"),
    (lambda: gaussians(2, classes=3), "n must be >= 3, got 2"),
    (lambda: gaussians(2, means=MEANS), "n must be >= 3, got 2"),
    (lambda: gaussians(9, means=MEANS, classes=3), "means must be None with classes=3"),
    (lambda: gaussians(9, means=MEANS / 0), "means must be finite, got nan"),
    (lambda: gaussians(9, means=torch.zeros(0, 2)), "means must not be empty"),
    (lambda: gaussians(9, classes=0), "classes must be >= 1, got 0"),
    (lambda: gaussians(9, d=0), "d must be >= 1, got 0"),
    (lambda: gaussians(9, spread=-1.0), "spread must be >= 0, got -1"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
