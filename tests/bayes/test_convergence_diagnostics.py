"""R-hat, effective sample sizes and standard errors, against the paper's formulas and ArviZ."""

import math
import re

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.bayes import ess, mcse, rhat

KINDS = [("bulk", None), ("tail", None), ("mean", None), ("sd", None), ("quantile", 0.3)]
ERRORS = [("mean", None), ("sd", None), ("quantile", 0.3), ("quantile", 0.97)]


def walk(chains: int, draws: int, P: int, rho: float, seed: int = 0) -> Tensor:
    """Autoregressive chains, one parameter from elsewhere in the first chain, one rounded."""
    x = torch.randn(chains, draws, P, generator=torch.Generator().manual_seed(seed)).double()
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + math.sqrt(1 - rho**2) * x[:, t]
    x[0, :, 1] += 3
    x[..., 2] = (2 * x[..., 2]).round()  # equal draws
    return x


CASES = [
    (4, 300, 0.0), (2, 101, 0.9), (3, 8, 0.0), (1, 50, 0.7), (5, 97, -0.6), (2, 4, 0.0),
    (2, 9, 0.3), (3, 10, 0.3), (3, 11, 0.0), (3, 12, 0.5), (3, 13, -0.3),
]  # fmt: skip
DRAWS = [walk(*case[:2], 4, case[2], seed) for seed, case in enumerate(CASES)]


def split(x: np.ndarray) -> np.ndarray:
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, x.shape[1] - half :]])


def scores(x: np.ndarray) -> np.ndarray:
    """Normal scores of average ranks, each rank counted."""
    flat = x.ravel()
    below = (flat[:, None] > flat[None]).sum(1) + 0.5 * ((flat[:, None] == flat[None]).sum(1) - 1)
    return stats.norm.ppf((below + 1 - 0.375) / (flat.size + 0.25)).reshape(x.shape)


def plain_rhat(x: np.ndarray) -> float:
    n = x.shape[1]
    W = np.mean([np.sum((c - c.mean()) ** 2) / (n - 1) for c in x])
    B = n * np.var([c.mean() for c in x], ddof=1)
    return math.sqrt(((n - 1) / n * W + B / n) / W)


def plain_ess(x: np.ndarray) -> float:
    """Geyer's initial monotone sequence, lag by lag, with autocovariances as sums."""
    m, n = x.shape
    if x.min() == x.max():
        return m * n
    off = x - x.mean(1, keepdims=True)
    s = [np.mean([c[: n - t] @ c[t:] / n for c in off]) for t in range(n)]
    W = s[0] * n / (n - 1)
    total = (n - 1) / n * W + (np.var(x.mean(1), ddof=1) if m > 1 else 0)
    rho = [1.0] + [1 - (W - s[t]) / total for t in range(1, n)]
    pairs, last = [], 0  # sums kept, and the lag after them
    while last + 2 < n - 2 and rho[last] + rho[last + 1] > 0:
        pairs.append(min([rho[last] + rho[last + 1], *pairs[-1:]]))
        last += 2
    rest = rho[last] if rho[last] > 0 or rho[last] + rho[last + 1] >= 0 else 0.0
    tau = max(-1 + 2 * sum(pairs) + rest, 1 / math.log10(m * n))
    return m * n / tau


def wanted_ess(x: np.ndarray, kind: str, prob: float | None) -> float:
    if kind == "bulk":
        return plain_ess(scores(split(x)))
    if kind == "mean":
        return plain_ess(split(x))
    if kind == "sd":
        return plain_ess(split((x - x.mean()) ** 2))
    sides = [prob] if prob is not None else [0.05, 0.95]
    return min(plain_ess(split((x <= np.quantile(x, q)) * 1.0)) for q in sides)


def wanted_error(x: np.ndarray, kind: str, prob: float | None) -> float:
    if kind == "mean":
        return x.std(ddof=1) / math.sqrt(wanted_ess(x, "mean", None))
    if kind == "sd":
        off = (x - x.mean()) ** 2
        return math.sqrt(off.var() / wanted_ess(x, "mean", None) / off.mean()) / 2
    assert prob is not None
    S = wanted_ess(x, "quantile", prob)
    share = stats.beta.ppf([0.1586553, 0.8413447], S * prob + 1, S * (1 - prob) + 1)
    ordered, N = np.sort(x.ravel()), x.size
    low = ordered[math.floor(max(share[0] * N - 1, 0))]
    return float(ordered[math.ceil(min(share[1] * N - 1, N - 1))] - low) / 2


@pytest.mark.parametrize("x", DRAWS)
def test_ess_and_mcse_and_rhat_are_their_formulas_written_densely(x):
    columns = [x[..., i].numpy() for i in range(x.shape[2])]
    close = {"rtol": 1e-10, "atol": 0}
    folded = [split(c) for c in columns]
    wanted = [max(plain_rhat(scores(s)), plain_rhat(scores(abs(s - np.median(s))))) for s in folded]
    np.testing.assert_allclose(rhat(x), wanted, **close)
    for kind, prob in KINDS:
        wanted = [wanted_ess(c, kind, prob) for c in columns]
        np.testing.assert_allclose(ess(x, kind=kind, prob=prob), wanted, **close)
    for kind, prob in ERRORS:
        wanted = [wanted_error(c, kind, prob) for c in columns]
        np.testing.assert_allclose(mcse(x, kind=kind, prob=prob), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("x", DRAWS)
def test_arviz_agrees(x):
    peer = pytest.importorskip("arviz_stats.base").array_stats
    columns = [x[..., i].numpy() for i in range(x.shape[2])]
    pairs = [
        (ess(x), [peer._ess_bulk(c) for c in columns]),
        (ess(x, kind="tail"), [peer._ess_tail(c, (0.05, 0.95)) for c in columns]),
        (mcse(x), [peer._mcse_mean(c) for c in columns]),
        (mcse(x, kind="sd"), [peer._mcse_sd(c) for c in columns]),
        (mcse(x, kind="quantile", prob=0.3), [peer._mcse_quantile(c, 0.3) for c in columns]),
    ]
    if len(x) > 1:  # there is none for one chain
        pairs.append((rhat(x), [peer._rhat_rank(c) for c in columns]))
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_shapes_portions_and_dtypes():
    x = walk(3, 40, 6, 0.5)
    grid = x.view(3, 40, 2, 3)
    assert rhat(grid).shape == (2, 3)
    assert rhat(x[..., 0]).shape == ()
    for f in (rhat, ess, mcse):
        assert f(grid).flatten().equal(f(x))
        torch.testing.assert_close(f(x, memory=1), f(x), rtol=1e-13, atol=0)
        assert f(x.float()).dtype == torch.float64
        torch.testing.assert_close(f(x.float()), f(x.float().double()), rtol=1e-13, atol=0)
        assert f(x[:, :, :0]).shape == (0,)


def test_scales_do_not_matter():
    x = walk(3, 60, 4, 0.5)
    for kind in ("bulk", "mean", "sd"):
        torch.testing.assert_close(ess(1e-30 * x, kind=kind), ess(x, kind=kind))
    torch.testing.assert_close(mcse(1e-30 * x), 1e-30 * mcse(x), rtol=1e-9, atol=0)


def test_stuck_chains_warn():
    x = walk(3, 40, 6, 0.5)
    x[1, :, 4] = 0.25
    told = "1 of 18 chains of a parameter never move, the first is chain 1 of parameter 4"
    for f in (rhat, ess, mcse):
        with pytest.warns(ConvergenceWarning, match=told):
            f(x)
    with pytest.warns(ConvergenceWarning, match="2 of 2 chains"):
        assert rhat(torch.full((2, 10), 0.1)).isnan()
    with pytest.warns(ConvergenceWarning, match="2 of 2 chains"):
        assert ess(torch.full((2, 10), 0.1)) == 20


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("f", "draws", "knobs", "message"),
    [
        (rhat, [[1.0] * 4], {}, "draws must have shape (chains, draws >= 4, ...), got list"),
        (rhat, torch.ones(4), {}, "draws must have shape (chains, draws >= 4, ...), got (4,)"),
        (mcse, torch.ones(2, 5).long(), {}, "draws must be floating point, got torch.int64"),
        (ess, torch.ones(2, 3), {}, "draws must have shape (chains, draws >= 4, ...), got (2, 3)"),
        (ess, torch.ones(0, 5, 2), {}, "draws must not be empty, got shape (0, 5, 2)"),
        (mcse, torch.full((1, 4), math.nan), {}, "draws must be finite, got nan at (0, 0, 0)"),
        (ess, torch.ones(2, 5), {"kind": "mode"}, "kind must be one of 'bulk', 'tail', 'mean',"),
        (ess, torch.ones(2, 5), {"prob": 0.1}, "prob must be None for kind 'bulk', got 0.1"),
        (mcse, torch.ones(2, 5), {"prob": 0.1}, "prob must be None for kind 'mean', got 0.1"),
        (mcse, torch.ones(2, 5), {"kind": "quantile"}, "prob must be a number between 0 and 1"),
        (ess, torch.ones(2, 5), {"kind": "tail", "prob": 1.0}, "prob must be < 1, got 1.0"),
        (rhat, torch.ones(2, 5), {"memory": 0}, "memory must be >= 1, got 0"),
    ],
)
def test_refusals(f, draws, knobs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        f(draws, **knobs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
def test_on_the_gpu():
    x = walk(3, 60, 5, 0.5)
    for f in (rhat, ess, mcse):
        torch.testing.assert_close(f(x.cuda()).cpu(), f(x), rtol=1e-9, atol=0)
    for f, kind, prob in ((ess, "tail", None), (mcse, "quantile", 0.3)):
        found = f(x.cuda(), kind=kind, prob=prob)
        assert found.is_cuda
        torch.testing.assert_close(found.cpu(), f(x, kind=kind, prob=prob), rtol=1e-9, atol=0)
