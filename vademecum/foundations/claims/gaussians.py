"""Gaussian laws: joint, conditional, and how far two are apart."""

import math
from collections.abc import Callable
from functools import partial

import mpmath
import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from vademecum.claims import at_least, claim, equals, integers
from vademecum.foundations import gaussian_condition, gaussian_marginal
from vademecum.foundations import gaussian_kl as kl

Sizes = tuple[tuple[int, int], ...]


def covariance(d: int) -> Tensor:
    r"""A random $B B^\top + I$ with entries of $B$ in $\{-2, \dots, 2\}$."""
    b = integers(d, d, most=2)
    return b @ b.T + torch.eye(d)


def integrated(joint: MultivariateNormal, a: Tensor, f: int) -> Tensor:
    r"""The joint density at $a_1$, summed over a grid of the other $f$ coordinates.

    The trapezoidal rule with a step $h$ in units of the narrowest direction errs by about
    $2 e^{-2 \pi^2 / h^2}$: less than $10^{-16}$, since no direction of a conditional law is
    narrower than 1 for $\Sigma \succeq I$.
    """
    h, reach = 0.7, 9 * float(joint.variance.max().sqrt())
    line = torch.arange(-reach, reach, h)
    grid = torch.cartesian_prod(*[line] * f).reshape(-1, f)
    points = torch.cat([a.expand(len(grid), -1), grid + joint.mean[-f:]], 1)
    return joint.log_prob(points).exp().sum() * h**f


@claim(
    by="identity",
    sources=("D-029", "E-030", "E-031"),
    budget=0.5,
    full={"draws": 20},
    short=r"a_i \sim \mathcal N(u_i, \Sigma_{ii}), \quad \Sigma_{21} = \Sigma_{12}^\top,"
    r" \quad \Sigma_{ii} \succeq 0",
)
def gaussian_blocks(semidefinite: tuple[str, ...] = ("11", "22"), draws: int = 2):
    r"""The blocks of a joint Gaussian covariance.

    For $\begin{pmatrix} a_1 \\ a_2 \end{pmatrix} \sim \mathcal N \Big( \begin{pmatrix} u_1 \\ u_2
    \end{pmatrix}, \begin{pmatrix} \Sigma_{11} & \Sigma_{12} \\ \Sigma_{21} & \Sigma_{22}
    \end{pmatrix} \Big)$ with $a_1 \in \mathbb R^e$, $a_2 \in \mathbb R^f$: the marginal of $a_i$ is
    $\mathcal N(u_i, \Sigma_{ii})$, the diagonal blocks are positive semidefinite and
    $\Sigma_{21} = \Sigma_{12}^\top$. The cross-covariance $\Sigma_{12} \in \mathbb R^{e \times f}$
    is rectangular and, apart from the whole matrix being positive semidefinite, arbitrary; even for
    $e = f$ it need be neither symmetric nor positive semidefinite.

    Checked on marginal densities by quadrature of the joint one in up to three dimensions, and on
    the least eigenvalue of the symmetric part of each square block said to be semidefinite.

    Knobs:
        semidefinite: Which blocks are said to be semidefinite, where they are square.
        draws: How many covariances are drawn in dimension four.
    """
    against = torch.tensor([[1.0, -0.5], [-0.5, 1.0]])
    marginal = gaussian_marginal(torch.zeros(2), against, [1])
    yield equals("variance of one of two scalars", marginal.cov, 1.0)
    for e, f in ((1, 1), (1, 2), (2, 1), *[(2, 2)] * draws):
        cov = against if e == f == 1 else covariance(e + f)
        u = integers(e + f, most=3)
        places = {"1": slice(e), "2": slice(e, None)}
        for name in semidefinite:
            block = cov[places[name[0]], places[name[1]]]
            if block.shape[0] == block.shape[1]:
                least = torch.linalg.eigvalsh((block + block.T) / 2).min()
                yield at_least("least eigenvalue of a block", least, 0.0, e=e, f=f, block=name)
        order = list(range(e + f))
        swapped = gaussian_marginal(u, cov, order[e:] + order[:e]).cov[:f, f:]
        crossed = cov[places["1"], places["2"]].T
        yield equals("cross-covariance with the blocks exchanged", swapped, crossed, e=e, f=f)
        if e + f == 4:
            continue  # too many points for a quadrature
        cov = cov + torch.eye(e + f)  # also the witness is then at least as wide as I
        for keep, rest in ((order[:e], order[e:]), (order[e:], order[:e])):
            marginal = gaussian_marginal(u, cov, keep)
            joint = MultivariateNormal(u[keep + rest], cov[keep + rest][:, keep + rest])
            a = u[keep] + torch.randn(len(keep))
            density = MultivariateNormal(*marginal).log_prob(a).exp()
            share = density / integrated(joint, a, len(rest))
            at = {"kept": keep[0]}
            yield equals("marginal density over the integral", share, 1.0, e=e, f=f, **at)


ALL_BLOCKS = ("11", "22", "12", "21")
gaussian_blocks.foil(
    "a semidefinite cross-covariance forbids negative correlation", semidefinite=ALL_BLOCKS
)
for _where, _printed, _why in (
    (
        "D-029",
        r"$\Sigma_{12} \in \mathbb R^{e \times f}$ p.s.d.,"
        r" $\Sigma_{21} \in \mathbb R^{f \times e}$ p.s.d.",
        r"semidefiniteness is not defined for rectangular blocks, and for $e = f = 1$ it is false:"
        r" two negatively correlated scalars have $\Sigma_{12} = -0.5$ in a positive definite joint"
        r" covariance",
    ),
    (
        "E-031",
        r"off-diagonal blocks in $\mathbb R^{e \times f}$ and $\mathbb R^{f \times e}$ marked"
        r" p.s.d.",
        r"the same claim on the sibling sheet, with the same counterexample: $\Sigma_{12} = -0.5$"
        r" in a positive definite covariance of two scalars",
    ),
):
    gaussian_blocks.erratum(
        _where,
        printed=_printed,
        right=r"$\Sigma_{21} = \Sigma_{12}^\top$, and the whole matrix p.s.d.",
        why=_why,
        weight="hard",
        semidefinite=ALL_BLOCKS,
    )


def by_precision(u: Tensor, cov: Tensor, z: Tensor) -> tuple[list, list]:
    r"""The law of the last coordinates from $\Lambda = \Sigma^{-1}$, in 30 digits."""
    e, f = len(z), len(u) - len(z)
    with mpmath.workdps(30):
        precision = mpmath.matrix(cov.tolist()) ** -1
        schur = precision[e:, e:] ** -1
        pull = schur * (precision[e:, :e] * mpmath.matrix((z - u[:e]).tolist()))
        mean = [float(u[e + i]) - float(pull[i]) for i in range(f)]
        return mean, [[float(schur[i, j]) for j in range(f)] for i in range(f)]


def conditional(mean: Tensor, cov: Tensor, z: Tensor, *, swapped: bool = False, sign: int = -1):
    """The conditional law by explicit inverses, with slips to choose from."""
    e = len(z)
    one, two = slice(e), slice(e, None)
    gain = cov[two, one] @ torch.linalg.inv(cov[one, one])
    schur = cov[two, two] + sign * gain @ cov[one, two]
    if swapped:
        gain = cov[one, two] @ torch.linalg.inv(cov[two, two])
    return mean[two] + gain @ (z - mean[one]), schur


def conditioned(mean: Tensor, cov: Tensor, z: Tensor):
    """The library's conditional law, the first coordinates observed."""
    return gaussian_condition(mean, cov, list(range(len(z))), z)


@claim(
    by="identity",
    sources=("D-030", "E-030"),
    budget=0.5,
    full={"sizes": ((2, 2), (3, 3)) * 20},
    short=r"a_2 \mid a_1 = z \sim \mathcal N(u_2 + K (z - u_1), \Sigma_{22}"
    r" - K \Sigma_{12}), K = \Sigma_{21} \Sigma_{11}^{-1}",
)
def gaussian_conditioning(formula: Callable = conditioned, sizes: Sizes = ((2, 2), (2, 3), (1, 4))):
    r"""The conditional of a joint Gaussian.

    For a joint Gaussian in block form with $\Sigma_{11}$ invertible,
    $a_2 \mid a_1 = z \sim \mathcal N \big( u_2 + \Sigma_{21} \Sigma_{11}^{-1} (z - u_1),\;
    \Sigma_{22} - \Sigma_{21} \Sigma_{11}^{-1} \Sigma_{12} \big)$; the covariance, a Schur
    complement, does not depend on $z$. With the precision $\Lambda = \Sigma^{-1}$ the mean is
    $u_2 - \Lambda_{22}^{-1} \Lambda_{21} (z - u_1)$ and the covariance $\Lambda_{22}^{-1}$.

    Checked against the formula of the precision in 30 digits, and against the joint density over
    the marginal one; also where the coordinates observed are not the first ones.

    Knobs:
        formula: Mean and covariance from u, $\Sigma$ and the z observed first.
        sizes: The pairs of e and f.
    """
    for e, f in sizes:
        at = {"e": e, "f": f}
        cov = covariance(e + f) + torch.ones(e + f, e + f)
        u, z = integers(e + f, most=5), integers(e, most=5)
        z[0] = u[0] + 3
        mean, schur = formula(u, cov, z)
        exact_mean, exact_cov = by_precision(u, cov, z)
        yield equals("conditional mean", mean, exact_mean, **at)
        yield equals("conditional covariance", schur, exact_cov, **at)
        order = torch.randperm(e + f)
        back = order.argsort()
        seen, hidden = back[:e].tolist(), back[e:].sort().indices
        moved = gaussian_condition(u[order], cov[order][:, order], seen, z)
        exact = torch.tensor(exact_mean)[hidden], torch.tensor(exact_cov)[hidden][:, hidden]
        yield equals("conditional mean, observed coordinates scattered", moved.mean, exact[0], **at)
        yield equals(
            "conditional covariance, observed coordinates scattered", moved.cov, exact[1], **at
        )
        points = mean + torch.randn(10, f)
        joint = MultivariateNormal(u, cov).log_prob(torch.cat([z.expand(10, e), points], 1))
        ratio = joint - MultivariateNormal(u[:e], cov[:e, :e]).log_prob(z)
        density = MultivariateNormal(mean, schur).log_prob(points)
        yield equals("conditional log-density", density, ratio, **at)


gaussian_conditioning.foil(
    r"the blocks swapped, $\Sigma_{12} \Sigma_{22}^{-1}$",
    formula=lambda u, cov, z: conditional(u, cov, z, swapped=len(u) == 2 * len(z)),
)
gaussian_conditioning.foil(
    "a plus sign in the covariance", formula=lambda u, cov, z: conditional(u, cov, z, sign=1)
)
gaussian_conditioning.foil(
    r"the unconditional $\Sigma_{22}$",
    formula=lambda u, cov, z: conditional(u, cov, z, sign=0),
)


def spelt_out(mean_p, cov_p, mean_q, cov_q, *, sign: int = -1, roles: str = "q", n: int = 1):
    """The divergence as it is printed, with slips to choose from."""
    shift, inverse = mean_q - mean_p, torch.linalg.inv(cov_q)
    metric = inverse if roles == "q" else torch.linalg.inv(cov_p)
    logs = torch.logdet(cov_p) - torch.logdet(cov_q)
    trace = (inverse @ cov_p).trace()
    return (shift @ metric @ shift + trace + sign * logs - n * len(shift)) / 2


@claim(
    by="identity",
    sources=("A-015", "B-018"),
    budget=0.5,
    full={"draws": 30},
    short=r"2\,\mathrm{KL}(P \| Q) = \|\mu_Q - \mu_P\|^2_{\Sigma_Q^{-1}} + \mathrm{tr} A - \ln|A| "
    r"- n, \; A = \Sigma_Q^{-1} \Sigma_P",
)
def gaussian_kl(formula: Callable[..., Tensor] = kl, draws: int = 1):
    r"""The Kullback-Leibler divergence between two Gaussians.

    In $\mathbb R^n$, $\mathrm{KL}(\mathcal N(\mu_P, \Sigma_P) \| \mathcal N(\mu_Q, \Sigma_Q)) =
    \frac12 \Big[ (\mu_Q - \mu_P)^\top \Sigma_Q^{-1} (\mu_Q - \mu_P) +
    \mathrm{tr}(\Sigma_Q^{-1} \Sigma_P) - \ln \frac{|\Sigma_P|}{|\Sigma_Q|} - n \Big]$; for
    $Q = \mathcal N(0, I)$ and diagonal $\Sigma_P$ it is
    $\frac12 \sum_i (\mu_i^2 + \sigma_i^2 - \ln \sigma_i^2 - 1)$, the penalty of the variational
    autoencoder. It is zero only between equal laws and does not change under a common invertible
    affine map.

    Checked against $\mathbb E_P[\log p - \log q]$ by Gauss-Hermite quadrature, which is exact
    because the integrand is quadratic.

    Knobs:
        formula: The divergence from the two means and covariances.
        draws: How many pairs of laws are drawn in each of the dimensions 1 to 3.
    """
    one = torch.ones(1)
    exact = 0.5 * (0.25 + 0.25 + math.log(4) - 1)
    found = formula(one, one[None], 0 * one, 4 * one[None])
    yield equals("divergence of $N(1, 1)$ from $N(0, 4)$", found, exact)
    nodes, weights = (torch.tensor(v) for v in np.polynomial.hermite_e.hermegauss(8))
    for d in (1, 2, 3) * draws:
        p, q = ((torch.randn(d), covariance(d)) for _ in range(2))
        factor = torch.linalg.cholesky(p[1])
        x = p[0] + torch.cartesian_prod(*[nodes] * d).reshape(-1, d) @ factor.T
        mass = torch.cartesian_prod(*[weights / weights.sum()] * d).reshape(-1, d).prod(1)
        gap = MultivariateNormal(*p).log_prob(x) - MultivariateNormal(*q).log_prob(x)
        yield equals("divergence, by quadrature", formula(*p, *q), mass @ gap, n=d)
        yield equals("divergence of a law from itself", formula(*p, *p), 0.0, n=d)
        a, b = torch.rand(d, d).tril(-1) + torch.eye(d), torch.randn(d)
        moved = [(a @ mean + b, a @ cov @ a.T) for mean, cov in (p, q)]
        moved = [(mean, (cov + cov.T) / 2) for mean, cov in moved]
        after = formula(*moved[0], *moved[1])
        yield equals("divergence after an affine map", after, mass @ gap, n=d)
        var = p[1].diagonal()
        penalty = (p[0] ** 2 + var - var.log() - 1).sum() / 2
        whole = formula(p[0], var.diag(), 0 * p[0], torch.eye(d))
        yield equals("penalty of an autoencoder", whole, penalty, n=d)
        short = kl(p[0], var, 0 * var, 0 * var + 1, diagonal=True)
        yield equals("penalty from variances alone", short, penalty, n=d)


gaussian_kl.foil("the log-ratio with the other sign", formula=partial(spelt_out, sign=1))
gaussian_kl.foil(
    r"$\Sigma_P^{-1}$ in the quadratic term, the roles reversed",
    formula=partial(spelt_out, roles="p"),
)
gaussian_kl.foil(r"the missing $-n$", formula=partial(spelt_out, n=0))
