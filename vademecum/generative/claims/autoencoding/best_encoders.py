"""The best encoder: the posterior, its nearest diagonal law, and the distance from the prior."""

from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import gaussian_kl
from vademecum.generative import VAE
from vademecum.generative.claims._exact_bounds import (
    Linear,
    Told,
    exact_elbo,
    exact_reconstruction,
    linear_vae,
    log_likelihood,
    posterior,
    random_encoder,
    random_model,
)


def correlated(rho: float, scale: float = 2.0) -> Linear:
    r"""A model of two codes whose posterior has the correlation rho, for every example.

    Its precision is $s / (1 - \rho^2)$ times $((1, -\rho), (-\rho, 1))$ with eigenvalues $s / (1
    \pm \rho)$, all above 1, so that $W^\top W / \sigma^2 = \Lambda - I$ has a root.
    """
    precision = scale / (1 - rho**2) * torch.tensor([[1.0, -rho], [-rho, 1.0]])
    half = torch.linalg.cholesky(precision - torch.eye(2))
    basis = torch.linalg.qr(torch.randn(3, 2)).Q
    return Linear(0.7 * basis @ half.T, torch.randn(3), 0.7)


@claim(
    by="identity",
    sources=("B-482", "E-300"),
    budget=0.8,
    short=r"q^* = p(z | x);\ \text{diagonal: } \sigma_i^2 = 1/\Lambda_{ii},\ \text{gap }"
    r" \tfrac12 \log(\Pi \Lambda_{ii}/|\Lambda|)",
)
def elbo_optimal_encoder(
    variances: Literal["1 / precision", "posterior's"] = "1 / precision",
    gap: Literal["mean field", "none"] = "mean field",
):
    r"""The optimal variational density is the true posterior.

    Over all densities the evidence lower bound is maximal, and tight, at $q = p_\theta(z \mid x) =
    p_\theta(x \mid z)\, p(z) / p_\theta(x)$; an encoder $q_\phi$ with parameters of its own only
    approximates it. Among diagonal Gaussians, for a Gaussian posterior of precision $\Lambda$, the
    best has the exact mean and the variances $1 / \Lambda_{ii}$, and leaves the gap $\frac12
    \bigl(\sum_i \log \Lambda_{ii} - \log \det \Lambda\bigr)$: for two codes with posterior
    correlation $\rho$, $-\frac12 \log(1 - \rho^2)$, 0.51 nats at $\rho = 0.8$.

    *Proof.* The gap of the bound is $\mathrm{KL}(q \| p_\theta(z \mid x))$. *Checked* for the bound
    of `VAE` with linear decoders of two and three correlated codes: BFGS over the means and
    log-variances of the encoder ends there; with the posterior's full covariance nothing is left,
    and random diagonal encoders do no better than the best one.

    Knobs:
        variances: Those of the best diagonal encoder.
        gap: What it leaves.
    """
    for model, rho in (
        (correlated(0.8), 0.8),
        (correlated(-0.5), -0.5),
        (random_model(4, 3), None),
    ):
        d, m = model.W.shape
        x, (A, a, precision) = 2 * torch.randn(1, d), posterior(model)
        truth, mean = log_likelihood(model, x), (x @ A.T + a)[0]
        best, variance, found = _maximised(model, x)
        cov = torch.linalg.inv(precision)
        wanted = 1 / precision.diagonal() if variances == "1 / precision" else cov.diagonal()
        at = {"m": m} if rho is None else {"m": m, "rho": rho}
        yield equals("means of the best encoder", found, mean, tol=1e-5, **at)
        yield equals("variances of the best encoder", variance, wanted, tol=1e-5, **at)
        left = (precision.diagonal().log().sum() - precision.logdet()) / 2
        left = left if gap == "mean field" else torch.zeros(())
        yield equals("gap of the best diagonal encoder", truth - best, left, tol=1e-8, **at)
        if rho is not None:
            of_rho = -0.5 * np.log1p(-(rho**2)) * (gap == "mean field")
            yield equals("gap for a correlation", truth - best, of_rho, tol=1e-8, **at)
        vae = linear_vae(model, A, a, torch.zeros(m))
        root = torch.linalg.cholesky((cov + cov.T) / 2)
        prior = torch.zeros(1, m), torch.eye(m)[None]
        rate = gaussian_kl(mean[None], (root @ root.T)[None], *prior)
        tight = exact_reconstruction(vae, x, root=root) - rate
        yield equals("bound at the posterior", tight, truth, tol=1e-8, **at)
        others = torch.cat([exact_elbo(random_encoder(model), x) for _ in range(5)])
        yield at_most("bound of other diagonal encoders", others, best, **at)


def _maximised(model: Linear, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The greatest bound over diagonal encoders by BFGS, with its variances and means."""
    m = model.W.shape[1]

    def bound(theta: np.ndarray) -> tuple[float, np.ndarray]:
        v = torch.tensor(theta, requires_grad=True)
        vae = linear_vae(model, torch.zeros(m, len(model.b)), torch.zeros(m), torch.zeros(m))
        vae.encoder = Told(lambda _: (v[None, :m], v[None, m:]))
        value = -exact_elbo(vae, x).sum()
        return float(value.detach()), torch.autograd.grad(value, v)[0].numpy()

    found = minimize(bound, np.zeros(2 * m), jac=True, method="BFGS", options={"gtol": 1e-9})
    theta = torch.tensor(found.x)
    return torch.tensor([-found.fun]), theta[m:].exp(), theta[:m]


elbo_optimal_encoder.foil("the posterior's marginal variances", variances="posterior's")
elbo_optimal_encoder.erratum(
    "E-300",
    printed=r"$p_\theta(\mathbf z|\mathbf x)\approx q_\theta(\mathbf z|\mathbf x)="
    r"\frac{p_\theta(\mathbf x|\mathbf z)p_\theta(\mathbf z)}{p_\theta(\mathbf x)}$",
    right=r"$q_\phi(\mathbf z|\mathbf x) \approx p_\theta(\mathbf z|\mathbf x) ="
    r" \frac{p_\theta(\mathbf x|\mathbf z) p(\mathbf z)}{p_\theta(\mathbf x)}$",
    why=r"The equality sits on the wrong side: the fraction is the exact posterior, which $q$ only"
    r" approximates, with parameters $\phi$ of its own. If $q$ equalled the fraction the bound"
    r" would be tight; a diagonal $q$ for a posterior with correlation $\rho = 0.8$ leaves a gap of"
    " 0.51 nats.",
    weight="hard",
    refuted_by="gap of the best diagonal encoder",
    gap="none",
)


@claim(
    by="identity",
    sources=("A-350", "B-483", "C-306", "D-397", "E-302"),
    budget=0.2,
    short=r"\mathrm{KL}(\mathcal N(\mu, \sigma^2) \| \mathcal N(0, I)) = \tfrac12"
    r" \Sigma(\mu_j^2 + \sigma_j^2 - 1 - \log\sigma_j^2)",
)
def gaussian_kl_standard(log: float = 1.0, square: float = 1.0, one: float = 1.0, n: int = 50):
    r"""The divergence of a diagonal Gaussian from the standard normal law.

    $\mathrm{KL}(\mathcal N(\mu, \mathrm{diag}(\sigma^2)) \,\|\, \mathcal N(0, I)) = \frac12 \sum_j
    (\mu_j^2 + \sigma_j^2 - 1 - \log \sigma_j^2) \ge 0$, with equality if and only if $\mu = 0$ and
    $\sigma = 1$; it is the regularising term of the evidence lower bound.

    *Proof.* $\mathbb E_q[z^2] = \mu^2 + \sigma^2$; each summand is at least 0, with equality at 0
    and 1 only, since $s - 1 - \log s \ge 0$. *Checked* for the KL term of `VAE` and the formula
    against quadrature of $q \log(q / p)$ for random $\mu, \sigma$, and for several coordinates
    against the general formula of `gaussian_kl` with full matrices.

    Knobs:
        log: A factor before the logarithm; with 1/2 it is that of sigma.
        square: A factor before the squared mean.
        one: What is taken off.
        n: How many laws are drawn.
    """

    def formula(mean: Tensor, log_variance: Tensor) -> Tensor:
        each = square * mean**2 + log_variance.exp() - one - log * log_variance
        return each.sum(1) / 2

    def of_part(mean: Tensor, log_variance: Tensor) -> Tensor:
        vae = VAE(Told(lambda _: (mean, log_variance)), nn.Linear(mean.shape[1], 2))
        return vae.elbo(torch.zeros(len(mean), 2)).kl

    mean, log_variance = 2 * torch.randn(n, 1), 2 * torch.rand(n, 1) - 1
    mean[0], log_variance[0] = 1.0, 2 * np.log(2.0)
    sigma = (log_variance / 2).exp()
    u = torch.linspace(-12, 12, 2001)  # the rule of trapezia, exact to 1e-13 for normal laws
    z = mean + sigma * u
    laws = torch.distributions.Normal(mean, sigma), torch.distributions.Normal(0.0, 1.0)
    log_q, log_p = (law.log_prob(z) for law in laws)
    integral = (log_q.exp() * (log_q - log_p)).sum(1) * sigma[:, 0] * float(u[1] - u[0])
    yield equals("formula, against quadrature", formula(mean, log_variance), integral, tol=1e-10)
    yield equals("KL term, against quadrature", of_part(mean, log_variance), integral, tol=1e-10)
    for m in (2, 5):
        mean, log_variance = torch.randn(8, m), torch.randn(8, m)
        zero, eye = torch.zeros(8, m), torch.eye(m).expand(8, m, m)
        general = gaussian_kl(mean, torch.diag_embed(log_variance.exp()), zero, eye)
        yield equals("formula, summed", formula(mean, log_variance), general, tol=1e-12, m=m)
        yield equals("KL term, summed", of_part(mean, log_variance), general, tol=1e-12, m=m)
        yield at_least("KL term", of_part(mean, log_variance), 1e-6, tol=0.0, m=m)
        nothing = of_part(zero, zero)
        yield equals("KL term of the prior", nothing, 0.0, tol=0.0, m=m)


gaussian_kl_standard.foil("the logarithm of sigma in the place of its square's", log=0.5)
gaussian_kl_standard.foil("the squared mean counted twice", square=2.0)
gaussian_kl_standard.foil("one left out", one=0.0)
