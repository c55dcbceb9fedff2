"""The Frechet distance: its formula, and what it is the distance of."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import scipy.optimize
import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, claim, equals, with_eigenvalues
from vademecum.generative import FeatureMoments
from vademecum.generative import frechet_distance as frechet


def root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric root of a positive definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T


def moments(d: int) -> FeatureMoments:
    """A random mean, and a covariance with eigenvalues between 1/2 and 4."""
    values = 0.5 + 3.5 * torch.rand(d)
    return FeatureMoments(torch.randn(d), with_eigenvalues(values), 0)


def rows_with(law: FeatureMoments, n: int) -> Tensor:
    """Examples whose mean and covariance are exactly these; n must exceed the features."""
    z = torch.randn(n, len(law.mean))
    z = torch.linalg.qr(z - z.mean(0)).Q * (n - 1) ** 0.5
    return z @ torch.from_numpy(root(law.covariance.numpy())) + law.mean


def by_formula(x: np.ndarray, y: np.ndarray, cross: str) -> float:
    """The distance of rows, from NumPy's moments and eigenvalues of the product as it is."""
    s, r = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    values = np.linalg.eigvals(s @ r)
    mixed = np.sqrt(values.real.clip(0)).sum()
    if cross == "product of roots":
        mixed = np.trace(root(s) @ root(r))
    gap = x.mean(0) - y.mean(0)
    return float(gap @ gap + np.trace(s) + np.trace(r) - 2 * mixed)


class _Network(nn.Module):
    """Convolution, pooling and a class head on it, as classifiers of images have."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 6, 3), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        pool = torch.tanh(self.conv(x)).mean((2, 3))
        return {"pool": pool, "head": self.head(pool)}


@claim(
    by="identity",
    sources=("A-405", "A-406"),
    budget=0.3,
    short=r"\mathrm{FID} = \|\mu - \mu'\|^2 +"
    r" \mathrm{Tr}(\Sigma + \Sigma' - 2 (\Sigma \Sigma')^{1/2}) \text{ of pooled features}",
)
def frechet_distance(
    cross: Literal["root of product", "product of roots"] = "root of product",
    layer: Literal["pool", "head"] = "pool",
):
    r"""Frechet inception distance.

    $\mathrm{FID} = \|\mu - \mu_\theta\|_2^2 + \mathrm{Tr}\big(\Sigma + \Sigma_\theta - 2 (\Sigma
    \Sigma_\theta)^{1/2}\big)$ from means and covariances of features of real and generated samples;
    the features are the 2048-dimensional activations of InceptionV3's last pooling layer, not its
    class outputs (quoted: its weights are not here). The trace of the root is
    $\mathrm{Tr}\big((\Sigma^{1/2} \Sigma_\theta \Sigma^{1/2})^{1/2}\big)$.

    *Checked* for `frechet_distance` of examples and of moments: against eigenvalues of the product,
    which is not symmetric; for covariances that commute, also singular ones and fewer examples than
    features, against $\sum_i (\sqrt{a_i} - \sqrt{b_i})^2$; 0 for equal moments, symmetric; and with
    a small network against the formula for its pooled activations.

    Knobs:
        cross: The root in the formula: of the product, or the product of the roots.
        layer: Which outputs of the network are the features: its pooling, or its class head.
    """
    for n, m, d in ((30, 40, 3), (9, 25, 5)):
        x, y = (rows_with(moments(d), size) for size in (n, m))
        wanted, at = by_formula(x.numpy(), y.numpy(), cross), {"n": n, "m": m, "d": d}
        found = frechet(x, y)
        yield equals("distance of examples", found.value, wanted, tol=1e-10, **at)
        yield equals("its parts", found.means + found.covariances, found.value, tol=1e-12, **at)
        gap = x.mean(0) - y.mean(0)
        yield equals("part of the means", found.means, gap @ gap, tol=1e-12, **at)
        yield equals("distance the other way", frechet(y, x).value, found.value, **at)
        s, r = (np.cov(t.numpy(), rowvar=False) for t in (x, y))
        trace = (np.trace(s) + np.trace(r) - found.covariances) / 2
        half = np.trace(root(root(s) @ r @ root(s)))
        yield equals("trace of the root, by the symmetric product", trace, half, tol=1e-10, **at)
        known = FeatureMoments(y.mean(0), y.T.cov(), m)
        yield equals("distance to moments", frechet(x, known).value, wanted, tol=1e-10, **at)
        again = x.flip(0)
        yield equals("distance of equal moments", frechet(x, again).value, 0.0, tol=1e-8, **at)
    yield from _commuting()
    net, images, others = _Network(), torch.randn(30, 1, 6, 6), 2 * torch.randn(25, 1, 6, 6)
    pooled = [net(z)["pool"].detach().numpy() for z in (images, others)]
    found = frechet(images, others, features=net, output=layer)
    wanted = by_formula(pooled[0], pooled[1], cross)
    yield equals("distance of pooled features", found.value, wanted, tol=1e-10, net="random")


def _commuting() -> Iterator[Evidence]:
    """Orthogonal directions with variances a and b: 0 among them, and fewer rows than features."""
    for d, k, n in ((4, 4, 20), (9, 4, 6), (9, 4, 20)):
        axes = torch.linalg.qr(torch.randn(d, d)).Q[:k]
        a, b = (1 + torch.randint(1, 9, (k,)).double() for _ in range(2))
        a[0], b[k - 1] = 0, 0
        zero = torch.zeros(k)
        x, y = (rows_with(FeatureMoments(zero, torch.diag(v), 0), n) @ axes for v in (a, b))
        wanted = (a.sqrt() - b.sqrt()).square().sum()
        tol = 1e-7  # roots of rounding errors of singular covariances: at most 9 of 1e-8
        at = {"d": d, "rank": k - 1, "n": n}
        yield equals("commuting covariances", frechet(x, y).value, wanted, tol=tol, **at)


frechet_distance.foil("the product of the roots", cross="product of roots")
frechet_distance.erratum(
    "A-406",
    printed="mean and covariance of the InceptionV3 output layer",
    right="mean and covariance of the activations of its last pooling layer (2048 numbers)",
    why="The output layer is the class head, and a distance of what it gives is another number, not"
    " comparable with the one that Heusel et al. defined. Perhaps the layer before it was meant:"
    " here a small random network stands for InceptionV3.",
    weight="soft",
    refuted_by="distance of pooled features",
    layer="head",
)


class _Plan(NamedTuple):
    """A linear map between centred Gaussians, and what it costs."""

    M: np.ndarray
    cost: float


def plan(x: FeatureMoments, y: FeatureMoments, kind: str) -> _Plan:
    """A map that carries one covariance to the other: the optimal one, or a product of roots."""
    s, r = x.covariance.numpy(), y.covariance.numpy()
    half = root(s)
    back = np.linalg.inv(half)
    M = back @ root(half @ r @ half) @ back if kind == "symmetric" else root(r) @ back
    rest = np.eye(len(s)) - M
    gap = (x.mean - y.mean).numpy()
    return _Plan(M, float(gap @ gap + np.trace(rest @ s @ rest.T)))


@claim(
    by="identity",
    sources=("A-407",),
    budget=0.4,
    short=r"\mathrm{FID} = W_2^2;\quad"
    r" M = \Sigma^{-1/2} (\Sigma^{1/2} \Sigma' \Sigma^{1/2})^{1/2} \Sigma^{-1/2}",
)
def fid_is_wasserstein_2(
    power: float = 2.0, kind: Literal["symmetric", "product of roots"] = "symmetric", n: int = 1000
):
    r"""FID is the squared Wasserstein-2 distance of the fitted Gaussians.

    For $\mathcal N(\mu, \Sigma)$ and $\mathcal N(\mu', \Sigma')$ with $\Sigma \succ 0$ the optimal
    transport map is affine, $T(x) = \mu' + M (x - \mu)$ with $M = \Sigma^{-1/2} (\Sigma^{1/2}
    \Sigma' \Sigma^{1/2})^{1/2} \Sigma^{-1/2}$, and its cost $\mathbb E \|x - T(x)\|^2$ equals the
    Frechet formula, the minimum over all couplings.

    *Proof.* $M \Sigma M = \Sigma'$ and $M$ is symmetric positive definite, so $T$ is the gradient
    of a convex function, hence optimal (Brenier). *Checked* in 3 and 4 dimensions for
    `frechet_distance` of moments: what the map costs, that random Gaussian couplings
    (cross-covariance $\Sigma^{1/2} C \Sigma'^{1/2}$, $\|C\| \le 1$) never cost less, and that one
    of them attains it; for the distance of 60 examples and their images, which no assignment
    undercuts; and scaling.

    Knobs:
        power: The power of the Wasserstein distance that the FID is said to be.
        kind: The map, $M$ or $\Sigma'^{1/2} \Sigma^{-1/2}$, which carries one to the other, too.
        n: How many couplings are drawn.
    """
    for d in (3, 4):
        x, y = moments(d), moments(d)
        s, r = x.covariance.numpy(), y.covariance.numpy()
        value = frechet(x, y).value
        M, cost = plan(x, y, kind)
        yield equals("image of the covariance", M @ s @ M.T, r, tol=1e-10, d=d)
        yield equals("M and its transpose", M, M.T, tol=1e-10, d=d)
        least = np.linalg.eigvalsh((M + M.T) / 2)[0]
        yield at_least("least eigenvalue of M", least, (0.5 / 4) ** 0.5, d=d)  # a geometric mean
        yield equals("distance, and cost of the map", value, cost ** (power / 2), d=d)
        twice = [FeatureMoments(2 * f.mean, 4 * f.covariance, 0) for f in (x, y)]
        yield equals("distance of doubled features", frechet(*twice).value, 2**power * value, d=d)
        yield from _couplings(x, y, value, n)
        yield from _assigned(x, y, M, kind)


def _couplings(x: FeatureMoments, y: FeatureMoments, value: float, n: int) -> Iterator[Evidence]:
    """Costs of random cross-covariances, scaled to the norm 1, and of the best."""
    s, r = root(x.covariance.numpy()), root(y.covariance.numpy())
    C = torch.randn(n, len(s), len(s)).numpy()
    C = C / np.linalg.norm(C, 2, axis=(1, 2), keepdims=True)
    U, _, V = np.linalg.svd(s @ r)
    C = np.concatenate([C, (U @ V)[None]])
    gap = (x.mean - y.mean).numpy()
    fixed = gap @ gap + np.trace(s @ s) + np.trace(r @ r)
    costs = fixed - 2 * np.einsum("ij,njk,ki->n", s, C, r)
    yield at_least("cost of couplings", costs, value, d=len(s), couplings=n)
    yield equals("cost of the best coupling", costs[-1], value, d=len(s))


def _assigned(x: FeatureMoments, y: FeatureMoments, M: np.ndarray, kind: str) -> Iterator[Evidence]:
    """Examples with exactly these moments, their images, and the cheapest assignment."""
    rows = rows_with(x, 60)
    image = (rows - x.mean) @ torch.from_numpy(M).T + y.mean
    each = (rows[:, None] - image).square().sum(2).numpy()
    best = each[scipy.optimize.linear_sum_assignment(each)].sum()
    d = len(x.mean)
    yield equals("cost of the cheapest assignment", best / 59, np.trace(each) / 59, d=d)
    gap = float((x.mean - y.mean).square().sum())  # whose share in the sum is 60 times, not 59
    yield equals("distance of examples", frechet(rows, image).value, best / 59 - gap / 59, d=d)


fid_is_wasserstein_2.foil(
    "the distance, not its square", refuted_by="distance of doubled features", power=1.0
)
fid_is_wasserstein_2.foil(
    "the product of roots carries one to the other at the least cost",
    refuted_by="distance, and cost of the map",
    kind="product of roots",
)
