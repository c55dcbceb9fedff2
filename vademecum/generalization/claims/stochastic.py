"""Stochastic networks: what Gaussian weights cost, what their passes give, what flatness saves."""

import math

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals, in_mean
from vademecum.foundations import gaussian_kl
from vademecum.generalization import StochasticNetwork, pac_bayes_bound, pac_bayes_certificate
from vademecum.generalization.random_weights._own_draws import Draws
from vademecum.models import mlp


def by_quadrature(mean: Tensor, std: Tensor, start: Tensor, scale: float) -> Tensor:
    """The sum of integrals of q ln(q / p), a line for each coordinate; 12 standard deviations."""
    t = torch.linspace(-12, 12, 2001)
    z = mean[:, None] + std[:, None] * t
    log_q = -t.square() / 2 - std.log()[:, None]
    log_p = -((z - start[:, None]) / scale).square() / 2 - math.log(scale)
    density = (-t.square() / 2).exp() / math.sqrt(2 * math.pi)
    return torch.trapezoid(density * (log_q - log_p), t).sum()


def moved(model: nn.Module, prior: nn.Module, scale: float) -> StochasticNetwork:
    """A posterior around a model, its variances drawn at random, on both sides of the prior's."""
    network = StochasticNetwork(model, prior=prior, prior_std=scale)
    with torch.no_grad():
        for log_variance in network.log_variance:
            log_variance.add_(2 * torch.rand_like(log_variance) - 1.5)
    return network


def flat(tensors: list[Tensor]) -> Tensor:
    """All entries in one vector."""
    return torch.cat([t.detach().flatten() for t in tensors])


def two_coins(q: float, p: float) -> float:
    """The divergence of coins."""
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


@claim(
    by="sampling",
    sources=("B-424", "B-425"),
    budget=0.9,
    short=r"\mathrm{KL} = \tfrac12 \sum_i [(\sigma_i^2 + (\theta_i - \theta_{0i})^2) / \lambda"
    r" - 1 + \ln(\lambda / \sigma_i^2)]",
)
def pac_bayes_networks(
    log_sign: float = 1.0, one: float = 1.0, x_power: float = 2.0, halved: float = 0.5
):
    r"""PAC-Bayes bounds for stochastic networks.

    A stochastic network draws fresh weights from $Q$ at every forward pass. With the prior
    $P = N(\theta_0, \lambda I)$ around the initialisation and $Q = N(\theta,
    \operatorname{diag}(\sigma^2))$,

    $$\mathrm{KL}(Q \| P) = \frac12 \sum_i \Big[\frac{\sigma_i^2 + (\theta_i - \theta_{0 i})^2}
    \lambda - 1 + \ln \frac\lambda{\sigma_i^2}\Big],$$

    which is 0 for $Q = P$ alone, and one minimises the bound of a surrogate of the empirical risk
    over $\theta$ and $\sigma$. The output $\theta^\top x$ of a linear model has the variance
    $\sum_i \sigma_i^2 x_i^2$ over passes, with one draw for each example or for all.

    *Proof.* The entries are independent, so that divergences add up, and each is the integral of
    $q \ln(q / p)$. Checked: `StochasticNetwork.kl` and the formula against quadrature of that
    integral and against the dense formula for covariances, for networks with two layers; passes of
    a linear model in mean and variance, within six standard errors; the bound that
    `pac_bayes_certificate` reaches for a linear classifier on separable points is below 1, fits its
    own equation, and covers the error on new points (it may fail with probability $2 \cdot
    10^{-6}$).

    Knobs:
        log_sign: The sign of the logarithm; -1 exchanges $\lambda$ and $\sigma_i^2$ in it.
        one: What is taken off in each term.
        x_power: The power of inputs in the variance of passes.
        halved: The factor in front of the divergence.
    """
    for sizes, scale in (([3, 4, 2], 0.3), ([2, 5, 3], 1.7)):
        model, prior = mlp(sizes).double(), mlp(sizes).double()
        network = moved(model, prior, scale)
        theta, start = flat(list(network.model.parameters())), flat(list(prior.parameters()))
        variance = flat(list(network.log_variance)).exp()
        P, at = len(theta), {"P": len(theta), "prior_std": scale}

        def formula(gap: Tensor, v: Tensor, lam: float = scale**2) -> Tensor:
            return halved * ((v + gap**2) / lam - one + log_sign * (lam / v).log()).sum()

        # (1/2 - 1 + ln 2) / 2 = 0.096 or more for each entry
        near = formula(0 * theta, variance.clamp(max=0.5 * scale**2))
        yield at_least("divergence where only the variances are smaller", near, 0.09 * P, **at)
        integral = by_quadrature(theta, variance.sqrt(), start, scale)
        found = network.kl().detach()
        yield equals("divergence of the network, by quadrature", found, integral, **at)
        yield equals("formula, by quadrature", formula(theta - start, variance), integral, **at)
        eye = torch.eye(P, dtype=theta.dtype)
        dense = gaussian_kl(theta, variance.diag(), start, scale**2 * eye)
        yield equals("divergence of the network, by covariances", found, dense, **at)
        same = StochasticNetwork(model, prior="init", prior_std=scale).kl().detach()
        yield equals("divergence of P from itself", same, formula(0 * theta, 0 * theta + scale**2))
    yield from passes(x_power)
    yield from certified()


def passes(x_power: float):
    """The law of the outputs of a linear model."""
    kinds: list[tuple[int, Draws, int]] = [
        *((3, "auto", 20_000), (5, "example", 20_000), (4, "batch", 1500)),
    ]
    for d, draws, S in kinds:
        model = nn.Linear(d, 1, bias=False).double()
        network = moved(model, nn.Linear(d, 1, bias=False).double(), 0.8)
        network.draws, x = draws, 2 * torch.randn(d).double() + 3
        with torch.no_grad():
            if draws == "batch":
                z = torch.stack([network(x.expand(2, d)) for _ in range(S)])
                yield equals("gap between two examples of a pass", z[:, 0], z[:, 1], draws=draws)
                z = z[:, 0, 0]
            else:
                z = network(x.expand(S, d))[:, 0]
                one, other = (z - z.mean()).view(2, -1)
                yield in_mean("product of two examples", one * other, 0.0, draws=draws)
            weights, variance = flat(list(network.model.parameters())), network.log_variance[0]
            mean, wanted = float(weights @ x), float(variance[0].exp() @ x.abs() ** x_power)
        yield in_mean("output", z, mean, draws=draws, d=d)
        square = (z - mean).square()  # skewed, so that 5 errors of 1500 would alarm too often
        yield in_mean("squared deviation of the output", square, wanted, sigmas=6, draws=draws)


def certified():
    """A bound that was minimised, its equation, and what it bounds."""
    n, d, delta = 500, 5, 1e-6
    x, w = torch.randn(n + 20_000, d), torch.randn(d)
    y = (x @ w > 0).long()
    found = pac_bayes_certificate(
        nn.Linear(d, 2), x[:n], y[:n], prior="init", delta=delta, delta_mc=delta,
        posterior_epochs=60, prior_lr=0.1, passes=4,
    )  # fmt: skip
    risks = found.zero_one
    yield at_most("certificate on separable points", risks.kl, 0.9, n=n, d=d)
    share = math.log(2 * math.sqrt(n) * len(found.prior_scales) / delta)
    spent = n * two_coins(risks.risk_upper, risks.kl)
    yield equals("divergence of the certificate's coins, n times", spent, found.kl + share)
    drawn = 4 * n * two_coins(risks.risk, risks.risk_upper)
    yield equals("divergence of the draws' coins, m times", drawn, math.log(1 / delta))
    with torch.no_grad():
        wrong = (found.network(x[n:]).argmax(1) != y[n:]).double()
    error = 5 * math.sqrt(0.25 / len(wrong))
    yield at_most("error on new points", wrong.mean() - error, risks.kl, n=n)


pac_bayes_networks.foil("variances exchanged in the logarithm", log_sign=-1.0)
pac_bayes_networks.foil("nothing is taken off", one=0.0)
pac_bayes_networks.foil("variance of passes by the first power of the inputs", x_power=1.0)
pac_bayes_networks.foil("twice the divergence", halved=1.0)


@claim(
    by="sampling",
    sources=("D-384",),
    budget=0.6,
    short=r"\sigma^2 = 2 \epsilon / (h d) \le \tau^2: \mathrm{KL}(N(\theta,"
    r" \sigma^2 I) \| N(0, \tau^2 I)) \text{ falls with } h",
)
def flat_minima_pac_bayes(tau: float = 1.0, d_power: float = 1.0, factor: float = 2.0):
    r"""Flat minima allow cheap posteriors.

    In a flat minimum a broad $Q = N(\theta, \sigma^2 I)$ still fits the data, and
    $\mathrm{KL}(Q \| N(0, \tau^2 I))$ decreases in $\sigma$ up to $\tau$, so the PAC-Bayes bound is
    smaller: for a quadratic $\frac h2 \|\theta - \theta^*\|^2$ in $d$ dimensions the largest
    $\sigma^2$ with an expected excess loss of at most $\epsilon$ is $2 \epsilon / (h d)$, and the
    divergence falls as $h$ falls, while $\sigma \le \tau$.

    *Proof.* The expected excess is $\frac h2 d \sigma^2$, and the derivative of the divergence in
    $\sigma^2$ is $\frac d2 (\frac1{\tau^2} - \frac1{\sigma^2})$. Checked: the excess over draws of
    a `StochasticNetwork` within six standard errors, the derivative by autograd, and divergences
    and bounds for nine curvatures from 100 to 1 with $2 \epsilon \le d \tau^2$.

    Knobs:
        tau: The standard deviation of the prior; beyond the smallest $\sigma$, or a broader
            posterior costs more.
        d_power: The power of the dimension in the largest variance.
        factor: The factor of $\epsilon$ in it.
    """
    for d, epsilon in ((6, 0.3), (11, 1.2)):
        best, kls, bounds = torch.randn(d).double(), [], []
        layer = nn.Linear(d, 1, bias=False).double()
        with torch.no_grad():
            layer.weight.copy_(best[None])
        origin = nn.Linear(d, 1, bias=False).double()
        nn.init.zeros_(origin.weight)
        for h in torch.logspace(2, 0, 9).tolist():
            std = math.sqrt(factor * epsilon / (h * d**d_power))
            network = StochasticNetwork(layer, prior=origin, prior_std=tau, std=std)
            with torch.no_grad():  # rows of the identity give the weights themselves
                weights = network(torch.eye(d).double().repeat(1500, 1)).view(1500, d)
            excess = h / 2 * (weights - best).square().sum(1)
            yield in_mean("expected excess loss", excess, epsilon, sigmas=6, d=d, h=h)
            kl = network.kl()
            (slope,) = torch.autograd.grad(kl, [network.log_variance[0]])
            wanted = d / 2 * (1 / tau**2 - 1 / std**2)
            yield equals("derivative in the variance", slope.sum() / std**2, wanted, d=d, h=h)
            kls.append(kl.item())
            bounds.append(pac_bayes_bound(0.1, kls[-1], 1000, delta=0.05))
        # The gap is d/2 [ln r - 2 epsilon (1 - 1/r) / (h d)] for a ratio r = 10^(1/4): above 1.
        yield at_most("next divergence", torch.tensor(kls[1:]), torch.tensor(kls[:-1]) - 1, d=d)
        yield at_most("next bound", torch.tensor(bounds[1:]), torch.tensor(bounds[:-1]), d=d)


flat_minima_pac_bayes.foil("a broader posterior is cheaper than its prior, too", tau=0.05)
flat_minima_pac_bayes.foil("the dimension is forgotten", d_power=0.0)
flat_minima_pac_bayes.foil("half the variance", factor=1.0)
