"""Autoencoders: what a narrow code keeps, what it is good for, and what it is no law of."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals, lowest
from vademecum.generative import Autoencoder
from vademecum.generative.claims.autoencoding.variational import data_with
from vademecum.linear import LinearAutoencoder
from vademecum.models import mlp


def linear_pair(E: Tensor, D: Tensor) -> Autoencoder:
    """The autoencoder with these matrices."""
    made = nn.Linear(E.shape[1], E.shape[0], bias=False), nn.Linear(*D.shape[::-1], bias=False)
    for net, weight in zip(made, (E, D), strict=True):
        net.weight.data.copy_(weight)
    return Autoencoder(*made)


@claim(
    by="training",
    sources=("E-290", "E-291"),
    budget=0.6,
    full={"pairs": 1000},
    short=r"D, E \text{ linear}, \mathrm{rank} \le m: \mathbb E\|x"
    r" - D E x\|^2 \ge \Sigma_{i > m} \lambda_i(S)",
)
def autoencoder(kept: Literal["leading", "discarded"] = "discarded", pairs: int = 100):
    r"""The autoencoder and its linear optimum.

    Encoder and decoder $x \mapsto z = E(x) \mapsto \hat x = D(z)$ with a narrow code are trained on
    the mean of $\|x - \hat x\|_2^2$. With linear maps and centred data of covariance $S$ no pair of
    width $m$ gets below $\sum_{i > m} \lambda_i(S)$, and the $m$ leading eigenvectors attain the
    bound; a code as wide as the data reaches zero.

    *Proof.* Eckart and Young, since $D E$ has rank $m$ at most. *Checked* for `Autoencoder` on data
    with known eigenvalues: random pairs, near the optimum and far from it, and pairs trained by
    L-BFGS are above, the principal directions attain it; the gradient of a small network's loss is
    that of central differences, to $10^{-6}$.

    Knobs:
        kept: Which eigenvalues are summed: those of the directions that are discarded or leading.
        pairs: How many random pairs there are.
    """
    lowest("pairs", pairs, 1)
    for values, m in (([5.0, 2.0, 1.0, 0.5], 2), ([4.0, 3.0, 0.7, 0.2, 0.1], 3)):
        values = torch.tensor(values)
        x, Q = data_with(values, 11)
        bound = values[m:].sum() if kept == "discarded" else values[:m].sum()
        U, d = Q[:, :m], len(values)
        at = {"d": d, "m": m}
        best = linear_pair(U.T, U).loss(x)
        yield equals("loss of the principal directions", best, bound, tol=1e-10, **at)
        losses = []
        for i in range(pairs):
            size = 10 ** (-3.0 * i / pairs)  # from far to near
            E, D = U.T + size * torch.randn(m, d), U + size * torch.randn(d, m)
            losses.append(linear_pair(E, D).loss(x))
        yield at_least("loss of random pairs", torch.stack(losses), bound, tol=1e-10, **at)
        yield equals("loss of a code as wide as the data",
                     linear_pair(Q.T, Q).loss(x), 0.0, tol=1e-12, **at)  # fmt: skip
    values, m = torch.tensor([5.0, 2.0, 1.0, 0.5]), 2
    x = data_with(values, 11)[0]
    reached = trained(linear_pair(torch.randn(m, 4) / 2, torch.randn(4, m) / 2), x)
    bound = values[m:].sum() if kept == "discarded" else values[:m].sum()
    yield equals("loss of a trained pair", reached, bound, tol=1e-4)
    yield from _gradient()


def trained(model: Autoencoder, x: Tensor, *, max_iter: int = 300) -> Tensor:
    """The loss after training by L-BFGS on all examples at once."""
    steps = torch.optim.LBFGS(model.parameters(), max_iter=max_iter, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        steps.zero_grad()
        value = model.loss(x)
        value.backward()
        return value

    steps.step(loss)
    return model.loss(x).detach()


def _gradient() -> Iterator[Evidence]:
    """Central differences with steps of 1e-5: off by 1e-10 of the third derivative."""
    model = Autoencoder(mlp([3, 4, 2], nn.Tanh), mlp([2, 4, 3], nn.Tanh))
    x, step = torch.randn(5, 3), 1e-5
    grads = torch.autograd.grad(model.loss(x), list(model.parameters()))
    differences = []
    for p, grad in zip(model.parameters(), grads, strict=True):
        away, ends = torch.randn_like(p), []
        for sign in (1, -1):
            p.data.add_(sign * step * away)
            ends.append(float(model.loss(x).detach()))
            p.data.sub_(sign * step * away)
        slope = (ends[0] - ends[1]) / (2 * step)
        differences.append((float((grad * away).sum()), slope))
    found, wanted = torch.tensor(differences).T
    yield equals("slope of a network's loss, by differences", found, wanted, tol=1e-6)


autoencoder.foil("the sum of the leading eigenvalues", kept="leading")


def exact_rows(cov: Tensor, n: int) -> Tensor:
    """Centred rows with this covariance, up to rounding."""
    rows = torch.randn(n, len(cov))
    rows = torch.linalg.qr(rows - rows.mean(0)).Q * n**0.5
    return rows @ torch.linalg.cholesky(cov).T


def determination(z: Tensor, f: Tensor) -> Tensor:
    """The share of each factor's variance that a linear function of centred codes explains."""
    rest = f - z @ torch.linalg.lstsq(z, f).solution
    return 1 - rest.square().sum(0) / f.square().sum(0)


@claim(
    by="identity",
    sources=("E-293",),
    budget=0.3,
    full={"n": 50_000},
    short=r"x = A f + \eta:\quad R^2 = \tfrac{\lambda}{\lambda + \sigma^2}\ \text{if}\ \lambda +"
    r"\sigma^2 > \text{other variances}",
)
def codes_capture_factors(other: float = 0.1, noise: float = 0.1, n: int = 5000):
    r"""Codes capture the factors of variation of largest variance.

    A narrow code for reconstruction retains the directions that explain most variance; it recovers
    the factors that generate the data, up to an invertible map, when they dominate the noise, and
    not otherwise. For $x = A f + \eta$ with orthonormal columns of $A \in \mathbb R^{20 \times 2}$,
    factors of variance $\lambda = 4$ and noise of variance $\sigma^2 = 0.1$ the optimal linear code
    of two numbers explains the share $R^2 = \frac{\lambda}{\lambda + \sigma^2}$ of each factor.

    *Proof.* $S = \lambda A A^\top + \sigma^2 I$ has the leading directions $A$, and $A^\top x = f +
    A^\top \eta$. *Checked* for the best `LinearAutoencoder` and an `Autoencoder` trained from a
    start of its own, on rows with exactly these covariances, to $10^{-8}$ and $10^{-3}$, and on a
    sample, within six standard errors $2 R (1 - R^2) / \sqrt n$; where the noise of two other
    directions has a variance above 4.1 the code keeps those, and the share is zero.

    Knobs:
        other: The variance of the noise in two directions orthogonal to $A$.
        noise: The variance of the noise in all others.
        n: How large the sample is.
    """
    lowest("n", n, 500)  # or the directions of the sample would be off, too
    basis = torch.linalg.qr(torch.randn(20, 20)).Q
    A, away = basis[:, :2], basis[:, 2:4]
    cov = noise * torch.eye(20) + (other - noise) * away @ away.T
    joint = torch.zeros(22, 22)
    joint[:2, :2], joint[2:, 2:] = 4 * torch.eye(2), cov
    rows = exact_rows(joint, 40)
    f, x = rows[:, :2], rows[:, :2] @ A.T + rows[:, 2:]
    best = LinearAutoencoder(20, 2).set_optimum(x)
    share = determination(best.encode(x).detach(), f)
    yield equals("share of the factors in the best code", share, 4 / 4.1, tol=1e-8)
    model = linear_pair(torch.randn(2, 20) / 5, torch.randn(20, 2) / 5)
    trained(model, x)
    share = determination(model.encode(x).detach(), f)
    yield equals("share of the factors in a trained code", share, 4 / 4.1, tol=1e-3)
    rows = torch.randn(n, 22) @ torch.linalg.cholesky(joint).T
    f, x = rows[:, :2], rows[:, :2] @ A.T + rows[:, 2:]
    f, x = f - f.mean(0), x - x.mean(0)
    code = LinearAutoencoder(20, 2).set_optimum(x).encode(x).detach()
    share, error = 4 / 4.1, 2 * (4 / 4.1) ** 0.5 * (1 - 4 / 4.1) / n**0.5
    off = (determination(code, f) - share).abs()
    yield at_most("share in the best code of a sample, off", off, 6 * error, tol=0.0)
    loud = exact_rows(torch.block_diag(4 * torch.eye(2), cov + 25 * away @ away.T), 40)
    f, x = loud[:, :2], loud[:, :2] @ A.T + loud[:, 2:]
    code = LinearAutoencoder(20, 2).set_optimum(x).encode(x).detach()
    yield at_most("share where other noise is louder", determination(code, f), 1e-10, tol=0.0)


codes_capture_factors.foil("louder noise in two other directions", other=25.0)
codes_capture_factors.foil("noise of half the variance", noise=0.05)
