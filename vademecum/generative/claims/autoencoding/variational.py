"""The variational autoencoder: its encoder, its decoders, and where it ends when all is linear."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_most, claim, equals, lowest
from vademecum.generative import VAE
from vademecum.generative.claims._exact_bounds import (
    Linear,
    exact_elbo,
    linear_vae,
    log_likelihood,
    posterior,
    random_encoder,
    random_model,
)


def data_with(values: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Centred rows whose covariance has these eigenvalues, up to rounding, and its eigenvectors."""
    d = len(values)
    rows = torch.randn(n, d)
    rows = torch.linalg.qr(rows - rows.mean(0)).Q * n**0.5
    Q = torch.linalg.qr(torch.randn(d, d)).Q
    return rows * values.sqrt() @ Q.T, Q


def best_model(values: Tensor, Q: Tensor, m: int) -> Linear:
    """Probabilistic PCA: loadings with orthogonal columns, and the mean of what is left."""
    noise = values[m:].mean()
    return Linear(
        Q[:, :m] * (values[:m] - noise).sqrt(), torch.zeros(len(values)), float(noise) ** 0.5
    )


@claim(
    by="training",
    sources=("A-347", "B-479", "C-301", "D-393", "E-295", "E-298", "E-306"),
    budget=1.0,
    short=r"\max \mathrm{ELBO}_{\mathrm{linear}} = \log p_{\mathrm{PPCA}}(x),\quad W^\top W"
    r"\ \text{diagonal}",
)
def variational_autoencoder(angle: float = 0.0, scale: float = 1.0, starts: int = 2):
    r"""The variational autoencoder is factor analysis with networks.

    A decoder $p_\theta(x \mid z)$ with the prior $z \sim \mathcal N(0, I)$ and an amortised encoder
    $q_\phi(z \mid x)$ are trained together by maximising the evidence lower bound. With linear
    maps, isotropic Gaussian noise and a diagonal encoder the best bound is the log-likelihood of
    probabilistic PCA, attained by loadings with orthogonal columns; loadings turned by $Q$ have the
    same likelihood and a lower best bound, by $\frac12 (\sum_i \log \Lambda_{ii} - \log \det
    \Lambda)$ with the posterior precision $\Lambda$.

    *Checked* for `VAE` on data whose covariance has known eigenvalues, for which the likelihood has
    a closed form: there the bound at the best loadings is that, at random decoders and encoders it
    is never larger, at turned loadings it is lower by what is said; and L-BFGS from random starts
    ends within $10^{-3}$, with angles to the principal directions below one degree.

    Knobs:
        angle: By how much the best loadings are turned, in radians.
        scale: A factor before the best loadings.
        starts: How many training runs there are.
    """
    lowest("starts", starts, 1)
    for values, m in (([5.0, 2.5, 0.6, 0.5, 0.3], 2), ([3.0, 2.0, 1.4, 0.4], 3)):
        values = torch.tensor(values)
        x, Q = data_with(values, 12)
        d, noise = len(values), values[m:].mean()
        log_det = values[:m].log().sum() + (d - m) * noise.log()
        wanted = -(d * math.log(2 * math.pi) + log_det + d) / 2
        best, at = best_model(values, Q, m), {"d": d, "m": m}
        turn = torch.eye(m)
        turn[:2, :2] = torch.tensor([[math.cos(angle), -math.sin(angle)],
                                     [math.sin(angle), math.cos(angle)]])  # fmt: skip
        model = Linear(scale * best.W @ turn, best.b, best.sigma)
        yield equals("bound at the best loadings", _bound(model, x), wanted, tol=1e-10, **at)
        turned = Linear(best.W @ torch.linalg.qr(torch.randn(m, m)).Q, best.b, best.sigma)
        precision = posterior(turned)[2]
        left = (precision.diagonal().log().sum() - precision.logdet()) / 2
        gap = wanted - _bound(turned, x)
        yield equals("bound that turned loadings lack", gap, left, tol=1e-10, **at)
        same = log_likelihood(turned, x).mean()
        yield equals("likelihood of turned loadings", same, wanted, tol=1e-10, **at)
        others = [exact_elbo(random_encoder(random_model(d, m)), x).mean() for _ in range(20)]
        yield at_most("bound of random models", torch.stack(others), wanted, **at)
    for _ in range(starts):
        yield from _trained()


def _bound(model: Linear, x: Tensor) -> Tensor:
    """The mean bound with the best diagonal encoder for a linear decoder."""
    A, a, precision = posterior(model)
    return exact_elbo(linear_vae(model, A, a, -precision.diagonal().log()), x).mean()


def _trained() -> Iterator[Evidence]:
    values, m = torch.tensor([5.0, 2.5, 0.6, 0.5, 0.3]), 2
    x, Q = data_with(values, 12)
    noise = values[m:].mean()
    best = -(5 * math.log(2 * math.pi) + values[:m].log().sum() + 3 * noise.log() + 5) / 2
    vae = VAE(nn.Linear(5, 4), nn.Linear(2, 5), noise="learned")
    steps = torch.optim.LBFGS(
        vae.parameters(), max_iter=400, line_search_fn="strong_wolfe",
        tolerance_grad=1e-6, tolerance_change=1e-10,
    )  # fmt: skip

    def loss() -> Tensor:
        steps.zero_grad()
        value = -exact_elbo(vae, x).mean()
        value.backward()
        return value

    steps.step(loss)
    found = exact_elbo(vae, x).mean()
    yield equals("bound after training", found, best, tol=1e-4)
    yield at_most("bound after training, over the likelihood", found, best)
    assert isinstance(vae.decoder, nn.Linear)
    W = torch.linalg.qr(vae.decoder.weight.detach()).Q
    cosines = torch.linalg.svdvals(Q[:, :m].T @ W).clamp(max=1)
    degrees = cosines.arccos().rad2deg()
    yield at_most("angle to the principal directions, degrees", degrees, 1.0, tol=0.0)


variational_autoencoder.foil("loadings turned by half a radian", angle=0.5)
variational_autoencoder.foil("loadings a twentieth too large", scale=1.05)
