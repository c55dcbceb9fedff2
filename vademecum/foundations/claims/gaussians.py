"""What the course claims of Gaussian laws."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product

import mpmath
import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from vademecum.claims import at_least, claim, equals
from vademecum.foundations.gaussians import gaussian_condition, gaussian_marginal, gaussian_mle
from vademecum.foundations.gaussians import gaussian_kl as kl

Sizes = tuple[tuple[int, int], ...]
MEANS = {
    "mean": lambda x: gaussian_mle(x).mean,
    "median": lambda x: x.sort(0).values[len(x) // 2],
    "divisor n - 1": lambda x: x.sum(0) / (len(x) - 1),
}
ATOMS = torch.tensor([[0.0, 0.0], [3.0, 1.0], [-1.0, 2.0], [4.0, -2.0]], dtype=torch.float64)


def covariance(d: int) -> Tensor:
    r"""A random $B B^\top + I$ with entries of $B$ in $\{-2, \dots, 2\}$."""
    b = torch.randint(-2, 3, (d, d)).double()
    return b @ b.T + torch.eye(d)


def log_likelihood(x: Tensor, mean: Tensor, cov: Tensor) -> Tensor:
    """The log-likelihood of a sample, by torch's distribution."""
    return MultivariateNormal(mean, cov).log_prob(x).sum()


@claim(by="identity", sources=("D-027", "E-028"), budget=0.5, full={"samples": 100})
def gaussian_mle_mean(estimate: str = "mean", samples: int = 6):
    r"""The maximum-likelihood mean of a Gaussian.

    For data $x_1, \dots, x_n$ and any fixed $\Sigma \succ 0$ the Gaussian likelihood is maximised
    by $\hat\mu = \frac1n \sum_i x_i$, whatever $\Sigma$ is: replacing $\hat\mu$ by $\mu$ lowers
    the log-likelihood by exactly $\frac n2 (\mu - \hat\mu)^\top \Sigma^{-1} (\mu - \hat\mu)$.

    *Proof.* $\sum_i \|x_i - \mu\|^2_{\Sigma^{-1}} = \sum_i \|x_i - \hat\mu\|^2_{\Sigma^{-1}} +
    n \|\mu - \hat\mu\|^2_{\Sigma^{-1}}$, because the score $\Sigma^{-1} \sum_i (x_i - \hat\mu)$
    vanishes.
    """
    witness = torch.tensor([[0.0], [0.0], [3.0]])
    drawn = [torch.randint(-9, 10, (3 + 5 * k, 1 + k % 4)).double() for k in range(samples)]
    for x in (witness, *drawn):
        n, d = x.shape
        hat, cov, mu = MEANS[estimate](x), covariance(d), torch.randn(d)
        exact = [float(Fraction(int(column.sum()), n)) for column in x.T]
        yield equals(hat, exact, n=n, d=d)
        fall = log_likelihood(x, hat, cov) - log_likelihood(x, mu, cov)
        quadratic = n / 2 * (mu - hat) @ torch.linalg.solve(cov, mu - hat)
        yield equals(fall, quadratic, n=n, d=d)


gaussian_mle_mean.foil("the median: on 0, 0, 3 the score is not zero", estimate="median")
gaussian_mle_mean.foil("the sum divided by n - 1", estimate="divisor n - 1")


@claim(by="identity", sources=("D-028", "E-029"), budget=0.5, full={"samples": 100})
def gaussian_mle_covariance(unbiased: bool = False, lost: int = 1, samples: int = 4):
    r"""The maximum-likelihood covariance of a Gaussian and its bias.

    $\hat\Sigma = \frac1n \sum_i (x_i - \hat\mu) (x_i - \hat\mu)^\top$ maximises the likelihood
    jointly with $\hat\mu$ if it is invertible: any other $\Sigma$ loses
    $n\,\mathrm{KL}(\mathcal N(0, \hat\Sigma) \| \mathcal N(0, \Sigma))$. It is biased,
    $\mathbb E[\hat\Sigma] = \frac{n-1}n \Sigma$ for i.i.d. data from any law with covariance
    $\Sigma$; the divisor $n - 1$ removes the bias but is not the maximiser.

    *Check.* The loss, by torch's log-density; the bias by all $4^n$ samples of size $n$ from a law
    with four rational atoms in the plane. `lost` is the 1 of $\frac{n-1}n$.
    """
    for k in range(samples):
        d = 1 + k % 3
        x = torch.randn(d + 3 + 4 * k, d)
        n, (mean, cov), other = len(x), gaussian_mle(x, unbiased=unbiased), covariance(d)
        yield equals(gaussian_mle(x).cov, np.cov(x.T, ddof=0).reshape(d, d), n=n, d=d)
        for sigma in (other, gaussian_mle(x, unbiased=True).cov):
            loss = log_likelihood(x, mean, cov) - log_likelihood(x, mean, sigma)
            yield at_least(loss, 0.0, n=n, d=d)
            yield equals(loss, n * kl(0 * mean, cov, 0 * mean, sigma), n=n, d=d)
    weights = torch.randint(1, 9, (4,)).double()
    p = weights / weights.sum()
    centred = ATOMS - p @ ATOMS
    sigma = centred.T @ (p[:, None] * centred)
    for n in (2, 3):
        picks = torch.tensor(list(product(range(4), repeat=n)))
        chance = p[picks].prod(1)[:, None, None]
        average = (chance * gaussian_mle(ATOMS[picks]).cov).sum(0)
        yield equals(average, (n - lost) / n * sigma, n=n)
        average = (chance * gaussian_mle(ATOMS[picks], unbiased=True).cov).sum(0)
        yield equals(average, sigma, n=n)


gaussian_mle_covariance.foil("the divisor n - 1 as the maximiser", unbiased=True)
gaussian_mle_covariance.foil(
    r"the divisor n as unbiased: at n = 2 the mean is $\frac12 \Sigma$", lost=0
)


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


@claim(by="identity", sources=("D-029", "E-030", "E-031"), budget=0.5, full={"draws": 20})
def gaussian_blocks(semidefinite: str = "diagonal blocks", draws: int = 2):
    r"""The blocks of a joint Gaussian covariance.

    For $\begin{pmatrix} a_1 \\ a_2 \end{pmatrix} \sim \mathcal N \Big( \begin{pmatrix} u_1 \\ u_2
    \end{pmatrix}, \begin{pmatrix} \Sigma_{11} & \Sigma_{12} \\ \Sigma_{21} & \Sigma_{22}
    \end{pmatrix} \Big)$ with $a_1 \in \mathbb R^e$, $a_2 \in \mathbb R^f$: the marginal of $a_i$ is
    $\mathcal N(u_i, \Sigma_{ii})$, the diagonal blocks are positive semidefinite and
    $\Sigma_{21} = \Sigma_{12}^\top$. The cross-covariance $\Sigma_{12} \in \mathbb R^{e \times f}$
    is rectangular and, apart from the whole matrix being positive semidefinite, arbitrary; even for
    $e = f$ it need be neither symmetric nor positive semidefinite.

    *Check.* Marginal densities by quadrature of the joint one; the least eigenvalue of the
    symmetric part of each square block said to be semidefinite.
    """
    against = torch.tensor([[1.0, -0.5], [-0.5, 1.0]])
    yield equals(gaussian_marginal(torch.zeros(2), against, [1]).cov, 1.0)
    for e, f in ((1, 1), (1, 2), (2, 1), *[(2, 2)] * draws):
        cov = against if e == f == 1 else covariance(e + f)
        u = torch.randint(-3, 4, (e + f,)).double()
        here, there = slice(e), slice(e, None)
        blocks = {"11": cov[here, here], "22": cov[there, there]}
        if semidefinite == "all blocks" and e == f:
            blocks |= {"12": cov[here, there], "21": cov[there, here]}
        for name, block in blocks.items():
            least = torch.linalg.eigvalsh((block + block.T) / 2).min()
            yield at_least(least, 0.0, block=name, e=e, f=f)
        yield equals(cov[there, here], cov[here, there].T, e=e, f=f)
        if e + f == 4:
            continue  # too many points for a quadrature
        cov = cov + torch.eye(e + f)  # also the witness is then at least as wide as I
        order = list(range(e + f))
        for keep, rest in ((order[:e], order[e:]), (order[e:], order[:e])):
            marginal = MultivariateNormal(*gaussian_marginal(u, cov, keep))
            joint = MultivariateNormal(u[keep + rest], cov[keep + rest][:, keep + rest])
            a = u[keep] + torch.randn(len(keep))
            density = integrated(joint, a, len(rest))
            yield equals(density, marginal.log_prob(a).exp(), e=e, f=f)


gaussian_blocks.foil(
    "a semidefinite cross-covariance forbids negative correlation", semidefinite="all blocks"
)
for _where, _printed in {
    "D-029": r"$\Sigma_{12} \in \mathbb R^{e \times f}$ p.s.d., "
    r"$\Sigma_{21} \in \mathbb R^{f \times e}$ p.s.d.",
    "E-031": r"off-diagonal blocks in $\mathbb R^{e \times f}$ and "
    r"$\mathbb R^{f \times e}$ marked p.s.d.",
}.items():
    gaussian_blocks.erratum(
        _where,
        printed=_printed,
        right=r"$\Sigma_{21} = \Sigma_{12}^\top$, and the whole matrix p.s.d.",
        why=r"not defined for rectangular blocks; two negatively correlated scalars have "
        r"$\Sigma_{12} = -\frac12$ in a positive definite covariance",
        semidefinite="all blocks",
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


@claim(by="identity", sources=("D-030", "E-030"), budget=0.5, full={"sizes": ((2, 2), (3, 3)) * 20})
def gaussian_conditioning(formula: Callable = conditioned, sizes: Sizes = ((2, 2), (2, 3), (1, 4))):
    r"""The conditional of a joint Gaussian.

    For a joint Gaussian in block form with $\Sigma_{11}$ invertible,
    $a_2 \mid a_1 = z \sim \mathcal N \big( u_2 + \Sigma_{21} \Sigma_{11}^{-1} (z - u_1),\;
    \Sigma_{22} - \Sigma_{21} \Sigma_{11}^{-1} \Sigma_{12} \big)$; the covariance, a Schur
    complement, does not depend on $z$. With the precision $\Lambda = \Sigma^{-1}$ the mean is
    $u_2 - \Lambda_{22}^{-1} \Lambda_{21} (z - u_1)$ and the covariance $\Lambda_{22}^{-1}$.

    *Check.* Against the precision's formula in 30 digits, and the joint density over the
    marginal one.
    """
    for e, f in sizes:
        cov = covariance(e + f) + torch.ones(e + f, e + f)
        u, z = (torch.randint(-5, 6, (k,)).double() for k in (e + f, e))
        z[0] = u[0] + 3
        mean, schur = formula(u, cov, z)
        exact_mean, exact_cov = by_precision(u, cov, z)
        yield equals(mean, exact_mean, e=e, f=f)
        yield equals(schur, exact_cov, e=e, f=f)
        points = mean + torch.randn(10, f)
        joint = MultivariateNormal(u, cov).log_prob(torch.cat([z.expand(10, e), points], 1))
        ratio = joint - MultivariateNormal(u[:e], cov[:e, :e]).log_prob(z)
        yield equals(MultivariateNormal(mean, schur).log_prob(points), ratio, e=e, f=f)


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


@claim(by="identity", sources=("A-015", "B-018"), budget=0.5, full={"draws": 30})
def gaussian_kl(formula: Callable[..., Tensor] = kl, draws: int = 1):
    r"""The Kullback-Leibler divergence between two Gaussians.

    In $\mathbb R^n$, $\mathrm{KL}(\mathcal N(\mu_P, \Sigma_P) \| \mathcal N(\mu_Q, \Sigma_Q)) =
    \frac12 \Big[ (\mu_Q - \mu_P)^\top \Sigma_Q^{-1} (\mu_Q - \mu_P) +
    \mathrm{tr}(\Sigma_Q^{-1} \Sigma_P) - \ln \frac{|\Sigma_P|}{|\Sigma_Q|} - n \Big]$; for
    $Q = \mathcal N(0, I)$ and diagonal $\Sigma_P$ it is
    $\frac12 \sum_i (\mu_i^2 + \sigma_i^2 - \ln \sigma_i^2 - 1)$, the penalty of the variational
    autoencoder. It is zero only between equal laws and does not change under a common invertible
    affine map.

    *Check.* $\mathbb E_P[\log p - \log q]$ by Gauss-Hermite quadrature, which is exact because the
    integrand is quadratic.
    """
    one = torch.ones(1)
    value = 0.5 * (0.25 + 0.25 + math.log(4) - 1)
    yield equals(formula(one, one[None], 0 * one, 4 * one[None]), value, n=1)
    nodes, weights = (torch.tensor(v) for v in np.polynomial.hermite_e.hermegauss(8))
    for d in (1, 2, 3) * draws:
        p, q = ((torch.randn(d), covariance(d)) for _ in range(2))
        factor = torch.linalg.cholesky(p[1])
        x = p[0] + torch.cartesian_prod(*[nodes] * d).reshape(-1, d) @ factor.T
        mass = torch.cartesian_prod(*[weights / weights.sum()] * d).reshape(-1, d).prod(1)
        gap = MultivariateNormal(*p).log_prob(x) - MultivariateNormal(*q).log_prob(x)
        yield equals(formula(*p, *q), mass @ gap, n=d)
        yield equals(formula(*p, *p), 0.0, n=d)
        a, b = torch.rand(d, d).tril(-1) + torch.eye(d), torch.randn(d)
        moved = [(a @ mean + b, a @ cov @ a.T) for mean, cov in (p, q)]
        moved = [(mean, (cov + cov.T) / 2) for mean, cov in moved]
        yield equals(formula(*moved[0], *moved[1]), formula(*p, *q), n=d)
        var = p[1].diagonal()
        penalty = (p[0] ** 2 + var - var.log() - 1).sum() / 2
        yield equals(formula(p[0], var.diag(), 0 * p[0], torch.eye(d)), penalty, n=d)
        yield equals(kl(p[0], var, 0 * var, 0 * var + 1, diagonal=True), penalty, n=d)


gaussian_kl.foil("the log-ratio with the other sign", formula=partial(spelt_out, sign=1))
gaussian_kl.foil(
    r"$\Sigma_P^{-1}$ in the quadratic term, the roles reversed",
    formula=partial(spelt_out, roles="p"),
)
gaussian_kl.foil(r"the missing $-n$", formula=partial(spelt_out, n=0))
