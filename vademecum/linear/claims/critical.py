"""Critical points: all of them, for two linear layers."""

import math
from itertools import combinations
from typing import Literal

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor

from vademecum.claims import at_most, claim, equals
from vademecum.linear import DeepLinearNetwork, critical_points
from vademecum.linear.claims.autoencoder import orthogonal


def _count(rule: str, r: int, k: int) -> int:
    return math.comb(r, k) if rule == "full rank" else sum(math.comb(r, j) for j in range(k + 1))


CASES = (((2.0, 1.0), 1, (2, 2)), ((3.0, 2.0, 1.0), 2, (3, 3)), ((2.0, 1.0), 3, (3, 4)))
"""Singular values, the hidden width, below and above their number, and the shape of the target."""


@claim(
    by="sampling",
    sources=("A-036",),
    budget=0.9,
    full={"starts": 60},
    short=r"\{W_2 W_1 : \nabla = 0\} = \{\sum_{i \in I} \sigma_i u_i v_i^\top"
    r" : |I| \le k\},\ \sigma_i > 0 \text{ distinct}",
)
def two_layer_critical_points(
    count: Literal["all ranks", "full rank"] = "all ranks",
    minima: Literal["strongest", "weakest"] = "strongest",
    starts: int = 4,
):
    r"""The critical points of a two-layer linear network: one for each set of modes that fits.

    Let $\Gamma = \sum_{i \le r} \sigma_i u_i v_i^\top$ have distinct positive singular values. The
    products $W_2 W_1$ at the critical points of $\|W_2 W_1 - \Gamma\|_F^2$ with hidden width $k$
    are exactly $\sum_{i \in I} \sigma_i u_i v_i^\top$ with $|I| \le k$, in total
    $\sum_{j \le \min(k, r)} \binom rj$, of which $\binom rk$ have full rank $k \le r$. Only the top
    $\min(k, r)$ singular directions give a minimum (global; in $(W_1, W_2)$ a whole manifold); all
    other critical points are saddles with a direction of negative curvature.

    *Proof.* Baldi and Hornik (1989). With $\Gamma = \operatorname{diag}(3, 2, 1)$ and $k = 2$ the
    exact Hessian of half the loss has $-1$ or less among its eigenvalues at every saddle, and so
    for the other cases: $\operatorname{diag}(2, 1)$ with $k = 1$, and singular values 2, 1 of a
    $3 \times 4$ matrix with $k = 3$. That there are no further critical points is searched for,
    from random starts.

    Knobs:
        count: Which products are counted.
        minima: Which modes are said to make a minimum.
        starts: How many starts the search has for each target.
    """
    for sigma, k, (p, q) in CASES:
        r = len(sigma)
        u, v = (torch.eye(2),) * 2 if k == 1 else (orthogonal(p)[:, :r], orthogonal(q)[:, :r])
        gamma = (u * torch.tensor(sigma)) @ v.mT
        points = critical_points(gamma, k)
        stationary = 0
        for chosen in (c for j in range(r + 1) for c in combinations(range(r), j)):
            network = DeepLinearNetwork.balanced(_partial(u, sigma, v, chosen), width=k)
            slopes = network.gradients(network.product() - gamma)
            stationary += max(float(g.abs().max()) for g in slopes) < 1e-12 and len(chosen) <= k
        at = {"width": k, "rank": r}
        yield equals("products without gradient", stationary, _count(count, r, k), **at)
        yield equals("critical points listed", len(points), _count(count, r, k), **at)
        kept = min(k, r)
        best = tuple(range(kept)) if minima == "strongest" else tuple(range(r - kept, r))
        for point in points:
            target = _partial(u, sigma, v, point.modes)
            yield equals("product of a critical point", point.product, target, tol=1e-12, **at)
            network = DeepLinearNetwork.balanced(point.product, width=k)
            bends = torch.linalg.eigvalsh(_hessian(network, gamma))
            down = int((bends < -1e-10).sum())
            yield equals(
                "directions of descent at a critical point", point.saddle_index, down, **at
            )
            loss = (target - gamma).square().sum() / 2
            yield equals("loss of a critical point", point.loss, loss, tol=1e-12, **at)
            if point.modes == best:
                yield equals("least curvature at the minimum", bends.min(), 0.0, **at)
            else:
                yield at_most("least curvature at a saddle", bends.min(), -1.0, **at)
        found = torch.stack([p.product for p in points])
        for end in _searched(gamma, k, starts):
            distance = (found - end).abs().amax((1, 2)).min()
            yield at_most("distance of what a search finds", distance, 0.0, tol=1e-6, **at)


def _partial(u: Tensor, sigma: tuple[float, ...], v: Tensor, modes: tuple[int, ...]) -> Tensor:
    chosen = list(modes)
    return (u[:, chosen] * torch.tensor(sigma)[chosen]) @ v[:, chosen].mT


def _hessian(network: DeepLinearNetwork, gamma: Tensor) -> Tensor:
    """The Hessian of half the squared distance in all weights, by automatic differentiation."""
    c, d = (w.detach() for w in network.weights)

    def loss(flat: Tensor) -> Tensor:
        first, second = flat[: c.numel()].view_as(c), flat[c.numel() :].view_as(d)
        return (second @ first - gamma).square().sum() / 2

    return torch.func.hessian(loss)(torch.cat([c.flatten(), d.flatten()]))


def _searched(gamma: Tensor, k: int, starts: int) -> list[Tensor]:
    """Products where Levenberg and Marquardt's method, from random starts, finds no gradient."""
    (p, q), target, ends = gamma.shape, gamma.numpy(), []

    def slopes(flat: np.ndarray) -> np.ndarray:
        c, d = flat[: k * q].reshape(k, q), flat[k * q :].reshape(p, k)
        residual = d @ c - target
        return np.concatenate([(d.T @ residual).ravel(), (residual @ c.T).ravel()])

    for _ in range(starts):
        start = torch.randn(k * (p + q)).numpy()
        end = least_squares(slopes, start, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
        if np.linalg.norm(end.fun) < 1e-10:
            c, d = end.x[: k * q].reshape(k, q), end.x[k * q :].reshape(p, k)
            ends.append(torch.from_numpy(d @ c))
    return ends


two_layer_critical_points.foil(
    "the weakest modes as the minimum", refuted_by="least curvature at a saddle", minima="weakest"
)
two_layer_critical_points.erratum(
    "A-036",
    printed=r"SVM-based analysis of 2-layer linear networks with "
    r"$\binom{\operatorname{rank}(\Gamma)}{\text{width}}$ fixed points and one global minimum",
    right=r"SVD-based; $\sum_{j \le \min(k, r)} \binom rj$ products, the minimum a whole manifold",
    why=r"the count misses the critical points of lower rank: for $\Gamma = \mathrm{diag}(2, 1)$"
    r" and width 1 the products 0, diag(2, 0), diag(0, 1) have zero gradient, three and not"
    r" $\binom21 = 2$; for a width above the rank the binomial would be 0. As a point in"
    r" $(W_1, W_2)$ the minimum is not unique either. (SVM for SVD may be the scan's.)",
    count="full rank",
)
