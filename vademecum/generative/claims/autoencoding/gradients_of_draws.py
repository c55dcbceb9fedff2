"""Draws that gradients pass through: reparameterisation, and the gradients it gives."""

import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from scipy import stats
from torch import Tensor

from vademecum.claims import Evidence, at_most, claim, complex_step, equals, in_mean
from vademecum.claims.evidence import ALARM
from vademecum.generative import gradient_variance, reparameterize
from vademecum.generative.claims._exact_bounds import hermite


def random_covariance(d: int) -> Tensor:
    """Eigenvalues from 0.4 to 2.5, and random eigenvectors."""
    Q = torch.linalg.qr(torch.randn(d, d)).Q
    return symmetric((Q * torch.logspace(math.log10(0.4), math.log10(2.5), d)) @ Q.T)


def symmetric(matrix: Tensor) -> Tensor:
    """Without what rounding left of the difference to the transpose."""
    return (matrix + matrix.mT) / 2


def drawn(
    product: str, mean: Tensor, cov: Tensor, root: Literal["cholesky", "symmetric"], n: int
) -> Tensor:
    """Draws by the part, or by formulas that are wrong."""
    if product == "matrix":
        return reparameterize(mean, covariance=cov, root=root, n=n)
    noise = torch.randn(n, len(mean))
    if product == "no root":
        return mean + noise @ cov
    half = torch.linalg.cholesky(cov)
    return mean + half * noise[:, None]  # an array for each draw


@claim(
    by="sampling",
    sources=("A-351", "B-484", "C-229", "C-305", "D-400"),
    budget=0.4,
    full={"n": 200_000},
    short=r"z = \mu + \Sigma^{1/2} \eta,\ \eta \sim \mathcal N(0, I) \implies z \sim"
    r" \mathcal N(\mu, \Sigma)",
)
def reparameterisation(
    product: Literal["matrix", "elementwise", "no root"] = "matrix", n: int = 40_000
):
    r"""The reparameterisation trick.

    $z = \mu + \Sigma^{1/2} \eta$ with $\eta \sim \mathcal N(0, I)$ and any matrix root,
    $\Sigma^{1/2} (\Sigma^{1/2})^\top = \Sigma$, that of Cholesky or the symmetric one, in a product
    of matrix and vector, has the law $\mathcal N(\mu, \Sigma)$; for a diagonal covariance $z = \mu
    + \sigma \odot \eta$. The noise does not depend on the parameters, so that the draw is a
    differentiable function of them.

    *Proof.* An affine map of a normal vector is normal, with covariance $\Sigma^{1/2} I
    (\Sigma^{1/2})^\top$. *Checked* for `reparameterize`: with the same noise the map is read off,
    and is a root; the draws have in mean the law's first two moments, and their Mahalanobis
    distances the law $\chi^2_d$, by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart at
    the level $10^{-6}$. With the same noise a shift of $\mu$ shifts the draw, and a gradient
    reaches $\mu$ and $\Sigma$.

    Knobs:
        product: How root and noise are multiplied; "no root" is the covariance itself.
        n: How many draws are taken.
    """
    roots: tuple[Literal["cholesky", "symmetric"], ...] = ("cholesky", "symmetric")
    for d, root in zip((3, 2), roots, strict=True):
        mean, cov = torch.randn(d), random_covariance(d)
        at = {"d": d, "root": root}
        z = drawn(product, mean, cov, root, n)
        yield equals("numbers in a draw", z[0].numel(), d, **at)
        z = z.reshape(n, -1)[:, :d]
        away = z - mean
        for i in range(d):
            yield in_mean("coordinate of a draw", z[:, i], float(mean[i]), **at, i=i)
            for j in range(i + 1):
                both = away[:, i] * away[:, j]
                yield in_mean("covariance of two", both, float(cov[i, j]), **at, i=i, j=j)
        distances = (away * torch.linalg.solve(cov, away.T).T).sum(1).sort().values
        scale = torch.tensor(stats.chi2.cdf(distances.numpy(), d))
        place = torch.arange(1, n + 1) / n
        gap = torch.maximum((scale - place).abs(), (scale - place + 1 / n).abs()).max()
        bound = math.sqrt(math.log(2 / ALARM) / (2 * n))
        yield at_most("distance of the law of distances", gap, bound, tol=0.0, **at)
        yield from _same_noise(mean, cov, root)
    log_variance = torch.tensor([math.log(4.0), 0.0, math.log(0.25)])
    noise, z = (
        reparameterize(torch.zeros(3), v, generator=torch.Generator().manual_seed(7))
        for v in (torch.zeros(3), log_variance)
    )
    yield equals("diagonal covariance", z, torch.tensor([2.0, 1.0, 0.5]) * noise, tol=1e-14)


def _same_noise(
    mean: Tensor, cov: Tensor, root: Literal["cholesky", "symmetric"]
) -> Iterator[Evidence]:
    d = len(mean)

    def draw(mean: Tensor, cov: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(3)
        return reparameterize(mean, covariance=cov, root=root, n=2 * d, generator=generator)

    noise = draw(torch.zeros(d), torch.eye(d))
    half = torch.linalg.lstsq(noise, draw(torch.zeros(d), cov)).solution.T
    at = {"d": d, "root": root}
    yield equals("root times its transpose", half @ half.T, cov, tol=1e-10, **at)
    moved = draw(mean, cov) - draw(torch.zeros(d), cov)
    yield equals("shift of the draws", moved, mean.expand(2 * d, d), tol=1e-12, **at)
    place, change = cov.clone().requires_grad_(), symmetric(torch.randn(d, d))
    weights = torch.randn(2 * d, d)
    (found,) = torch.autograd.grad((weights * draw(mean, place)).sum(), place)
    step = 1e-5
    ends = [(weights * draw(mean, cov + s * step * change)).sum() for s in (1, -1)]
    difference = (ends[0] - ends[1]) / (2 * step)
    yield equals("slope in the covariance", (found * change).sum(), difference, tol=1e-7, **at)


reparameterisation.foil("the covariance in the place of its root", product="no root")
reparameterisation.erratum(
    "D-400",
    printed=r"$z=\mu+\Sigma^{1/2}\odot\epsilon$",
    right=r"$z = \mu + \Sigma^{1/2} \epsilon$, or $z = \mu + \sigma \odot \epsilon$ with the vector"
    " of standard deviations",
    why=r"An elementwise product of a matrix and a vector broadcasts to a $d \times d$ array and is"
    r" no sample of $\mathcal N(\mu, \Sigma)$: in three dimensions it has 9 numbers.",
    weight="hard",
    refuted_by="numbers in a draw",
    product="elementwise",
)


@claim(
    by="sampling",
    sources=("A-351", "B-485", "C-305", "D-401"),
    budget=0.3,
    full={"draws": 400_000},
    short=r"\nabla_{\mu, \sigma}\, \mathbb E[g(z)] = \mathbb E[\nabla_{\mu, \sigma}\, g(\mu +"
    r" \sigma \odot \eta)]",
)
def pathwise_gradient(
    through: Literal["draw", "nothing"] = "draw", weight: bool = True, draws: int = 50_000
):
    r"""Stochastic backpropagation, the pathwise gradient.

    With $z = \mu + \sigma \odot \eta$ and smooth $g$ of moderate growth, $\nabla_{\mu, \sigma}
    \mathbb E[g(z)] = \mathbb E[\nabla_{\mu, \sigma}\, g(\mu + \sigma \odot \eta)]$: gradients pass
    through the draw and can be estimated without bias. For many smooth $g$ the estimate has a lower
    variance than that of the score function, $g(z) \nabla \log q(z)$. (Not for all.)

    *Checked* for `gradient_variance` with $g(z) = z^2$ at $\mu = \sigma = 1$, where both estimates
    have the mean $2 \mu$ in $\mu$ and $2 \sigma$ in $\sigma$, and in $\mu$ the variances 4
    and 30; and with $g(z) = z_1^2 z_2 + z_2$ elsewhere. Means and variances agree with quadrature
    within six and eight standard errors, which quadrature gives, too; the derivative of the mean
    comes from the complex step.

    Knobs:
        through: Whether gradients pass through the draw, or it is taken for a constant.
        weight: Whether the score is weighted with $g(z)$.
        draws: How many draws are taken.
    """

    def square(z: Tensor) -> Tensor:
        return z[:, 0] ** 2

    def cubic(z: Tensor) -> Tensor:
        return z[:, 0] ** 2 * z[:, 1] + z[:, 1]

    one, mean = torch.ones(1), torch.tensor([0.5, -0.8])
    std = torch.tensor([1.2, 0.6])
    for name, g, mu, sigma in (("z^2", square, one, one), ("z1^2 z2 + z2", cubic, mean, std)):
        found = gradient_variance(g, mu, sigma, draws=draws)
        nodes, weights = hermite(16, len(mu))
        z = (mu + sigma * nodes).requires_grad_()
        (slope,) = torch.autograd.grad(g(z).sum(), z)
        slope = slope if through == "draw" else 0 * slope
        value = g(z)[:, None].detach() if weight else torch.ones(len(z), 1)
        ways = {
            "pathwise": torch.stack([slope, slope * nodes]),
            "score": torch.stack([value * nodes, value * (nodes**2 - 1)]) / sigma,
        }
        exact = _derivative(g, mu, sigma)
        for way, each in ways.items():
            at = {"g": name, "way": way}
            average = torch.einsum("knd,n->kd", each, weights)
            yield equals("mean of the estimate", average, exact, tol=1e-9, **at)
            yield from _moments(getattr(found, way), each, weights, draws, at)
        if name == "z^2":
            variances = [each[0, :, 0].square() @ weights - 4 for each in ways.values()]
            yield equals("variances in the mean", torch.stack(variances), torch.tensor([4.0, 30.0]))


def _derivative(g: Callable[[Tensor], Tensor], mu: Tensor, sigma: Tensor) -> Tensor:
    """The derivatives of the expectation in mean and deviation, by the complex step."""
    nodes, weights = hermite(16, len(mu))

    def expectation(theta: Tensor) -> Tensor:
        m, s = theta.reshape(2, -1)
        return (g(m + s * nodes) * weights).sum()

    return complex_step(expectation, torch.cat([mu, sigma])).reshape(2, -1)


def _moments(
    found: object, each: Tensor, weights: Tensor, n: int, at: dict[str, str]
) -> Iterator[Evidence]:
    """What the part estimated against exact moments, with exact standard errors."""
    average = torch.einsum("knd,n->kd", each, weights)
    away = each - average[:, None]
    two, four = (torch.einsum("knd,n->kd", away**p, weights) for p in (2, 4))
    pairs = (("gradient", average, two, 6), ("variance", two, four - two**2, 8))
    for name, wanted, spread, sigmas in pairs:  # squares of polynomials have long tails
        error = sigmas * (spread.clamp(min=0) / n).sqrt() + 1e-12  # a constant has none
        off = (getattr(found, name) - wanted).abs()
        worst = int((off / error).argmax())
        yield Evidence(
            f"{name} of the part, off by", "<=", float(off.flatten()[worst]),
            float(error.flatten()[worst]), 0.0, off.numel(), dict(at), sampled=True,
        )  # fmt: skip


pathwise_gradient.foil("the draw taken for a constant", through="nothing")
pathwise_gradient.foil("the score without the factor g(z)", weight=False)
