"""Fitting a Gaussian: maximum likelihood in closed form."""

from fractions import Fraction
from itertools import product
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from vademecum.claims import at_least, claim, equals, integers
from vademecum.foundations import gaussian_kl as kl
from vademecum.foundations import gaussian_mle
from vademecum.foundations.claims.gaussians import covariance

MEANS = {
    "mean": lambda x: gaussian_mle(x).mean,
    "median": lambda x: x.sort(0).values[len(x) // 2],
    "divisor n - 1": lambda x: x.sum(0) / (len(x) - 1),
}
ATOMS = torch.tensor([[0.0, 0.0], [3.0, 1.0], [-1.0, 2.0], [4.0, -2.0]], dtype=torch.float64)


def log_likelihood(x: Tensor, mean: Tensor, cov: Tensor) -> Tensor:
    """The log-likelihood of a sample, by torch's distribution."""
    return MultivariateNormal(mean, cov).log_prob(x).sum()


@claim(
    by="identity",
    sources=("D-027", "E-028"),
    budget=0.5,
    full={"samples": 100},
    short=r"\hat\mu = \tfrac1n \textstyle\sum_i x_i",
)
def gaussian_mle_mean(
    estimate: Literal["mean", "median", "divisor n - 1"] = "mean", samples: int = 6
):
    r"""The maximum-likelihood mean of a Gaussian.

    For data $x_1, \dots, x_n$ and any fixed $\Sigma \succ 0$ the Gaussian likelihood is maximised
    by $\hat\mu = \frac1n \sum_i x_i$, whatever $\Sigma$ is: replacing $\hat\mu$ by $\mu$ lowers
    the log-likelihood by exactly $\frac n2 (\mu - \hat\mu)^\top \Sigma^{-1} (\mu - \hat\mu)$.

    *Proof.* $\sum_i \|x_i - \mu\|^2_{\Sigma^{-1}} = \sum_i \|x_i - \hat\mu\|^2_{\Sigma^{-1}} +
    n \|\mu - \hat\mu\|^2_{\Sigma^{-1}}$, because the score $\Sigma^{-1} \sum_i (x_i - \hat\mu)$
    vanishes.

    Checked on integer data in up to four dimensions, by torch's log-density.

    Knobs:
        estimate: What is called the maximiser.
        samples: How many samples are drawn.
    """
    witness = torch.tensor([[0.0], [0.0], [3.0]])
    drawn = [integers(3 + 5 * k, 1 + k % 4) for k in range(samples)]
    for x in (witness, *drawn):
        n, d = x.shape
        hat, cov, mu = MEANS[estimate](x), covariance(d), torch.randn(d)
        exact = [float(Fraction(int(column.sum()), n)) for column in x.T]
        yield equals("maximiser of the likelihood", hat, exact, n=n, d=d)
        fall = log_likelihood(x, hat, cov) - log_likelihood(x, mu, cov)
        quadratic = n / 2 * (mu - hat) @ torch.linalg.solve(cov, mu - hat)
        yield equals("fall of the log-likelihood", fall, quadratic, n=n, d=d)


gaussian_mle_mean.foil("the median: on 0, 0, 3 the score is not zero", estimate="median")
gaussian_mle_mean.foil("the sum divided by n - 1", estimate="divisor n - 1")


@claim(
    by="identity",
    sources=("D-028", "E-029"),
    budget=0.5,
    full={"samples": 100},
    short=r"\hat\Sigma = \tfrac1n \sum_i (x_i - \hat\mu)(x_i - \hat\mu)^\top,"
    r" \; \mathbb E[\hat\Sigma] = \tfrac{n-1}n \Sigma",
)
def gaussian_mle_covariance(unbiased: bool = False, lost: int = 1, samples: int = 4):
    r"""The maximum-likelihood covariance of a Gaussian and its bias.

    $\hat\Sigma = \frac1n \sum_i (x_i - \hat\mu) (x_i - \hat\mu)^\top$ maximises the likelihood
    jointly with $\hat\mu$ if it is invertible: any other $\Sigma$ loses
    $n\,\mathrm{KL}(\mathcal N(0, \hat\Sigma) \| \mathcal N(0, \Sigma))$. It is biased,
    $\mathbb E[\hat\Sigma] = \frac{n-1}n \Sigma$ for i.i.d. data from any law with covariance
    $\Sigma$; the divisor $n - 1$ removes the bias but is not the maximiser.

    Checked on the loss by torch's log-density; on the bias by all $4^n$ samples of size $n$ from a
    law with four rational atoms in the plane.

    Knobs:
        unbiased: Whether the divisor n - 1 is called the maximiser.
        lost: The 1 of $\frac{n-1}n$.
        samples: How many samples are drawn.
    """
    for k in range(samples):
        d = 1 + k % 3
        x = torch.randn(d + 3 + 4 * k, d)
        n, (mean, cov), other = len(x), gaussian_mle(x, unbiased=unbiased), covariance(d)
        exact = np.cov(x.T, ddof=0).reshape(d, d)
        yield equals("covariance with the divisor n", gaussian_mle(x).cov, exact, n=n, d=d)
        for sigma in (other, gaussian_mle(x, unbiased=True).cov):
            loss = log_likelihood(x, mean, cov) - log_likelihood(x, mean, sigma)
            yield at_least("loss of another covariance", loss, 0.0, n=n, d=d)
            between = n * kl(0 * mean, cov, 0 * mean, sigma)
            yield equals(
                "loss of another covariance, against the divergence", loss, between, n=n, d=d
            )
    weights = torch.randint(1, 9, (4,)).double()
    p = weights / weights.sum()
    centred = ATOMS - p @ ATOMS
    sigma = centred.T @ (p[:, None] * centred)
    for n in (2, 3):
        picks = torch.tensor(list(product(range(4), repeat=n)))
        chance = p[picks].prod(1)[:, None, None]
        average = (chance * gaussian_mle(ATOMS[picks]).cov).sum(0)
        yield equals("mean of the estimate", average, (n - lost) / n * sigma, n=n)
        average = (chance * gaussian_mle(ATOMS[picks], unbiased=True).cov).sum(0)
        yield equals("mean of the estimate with the divisor n - 1", average, sigma, n=n)


gaussian_mle_covariance.foil("the divisor n - 1 as the maximiser", unbiased=True)
gaussian_mle_covariance.foil(
    r"the divisor n as unbiased: at n = 2 the mean is $\frac12 \Sigma$", lost=0
)
