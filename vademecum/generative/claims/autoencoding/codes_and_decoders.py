"""Encoders and decoders: a Gaussian law of the code, and laws of examples."""

import math
from typing import Any, Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from vademecum.claims import at_least, claim, equals
from vademecum.generative import VAE, reparameterize
from vademecum.generative.claims._exact_bounds import (
    Linear,
    exact_elbo,
    exact_reconstruction,
    posterior,
    random_encoder,
    random_model,
    reconstruction_at,
)
from vademecum.models import mlp

Reads = Literal["log-variance", "variance", "log-deviation"]


@claim(
    by="identity",
    sources=("A-350", "B-483", "C-301", "C-302", "D-398", "E-303", "E-305"),
    budget=0.5,
    short=r"q_\phi(z | x) = \mathcal N(\mu_\phi(x), \mathrm{diag}\, \sigma_\phi^2(x)),\quad"
    r" \mu, \sigma^2 \in \mathbb R^m",
)
def vae_encoder(reads: Reads = "log-variance"):
    r"""A Gaussian encoder with a diagonal covariance.

    The encoder maps $x$ to two vectors of the latent dimension $m$, $\mu_\phi(x)$ and
    $\sigma_\phi^2(x)$, usually as a log-variance, so that positivity is automatic, and
    $q_\phi(z \mid x) = \mathcal N(\mu_\phi(x), \mathrm{diag}(\sigma_{\phi, 1}^2(x), \dots,
    \sigma_{\phi, m}^2(x)))$: $2 m$ outputs instead of $m + \frac{m (m + 1)}2$ for a full
    covariance.

    *Checked* for `VAE` with networks of one hidden layer of hyperbolic tangents, whose
    log-variances are then bounded by their last layer's weights, for 1,000 inputs of size up to
    1,000 (an unbounded log-variance may underflow to a variance of 0); against SciPy's normal laws
    with that diagonal covariance, the KL term by their entropies and the importance weight of a
    draw by their densities; trained on a linear Gaussian model of one code, the encoder ends at
    the exact posterior, to 2%.

    Knobs:
        reads: What the second half of the outputs is taken for.
    """
    for d, m in ((4, 2), (3, 5)):
        net = mlp([d, 6, 2 * m], nn.Tanh)
        vae, at = VAE(net, nn.Linear(m, d)), {"d": d, "m": m}
        x = torch.randn(1000, d) * torch.logspace(0, 3, 1000)[:, None]
        outputs = net(x).detach()
        widths = [half.shape[1] for half in vae.encode(x)]
        yield equals("widths of mean and log-variance", widths, [m, m], **at)
        yield equals("numbers that the encoder returns", outputs.shape[1], sum(widths), **at)
        entries = m + int(torch.ones(m, m).tril().sum())
        yield equals("numbers of a full covariance", m + m * (m + 1) // 2, entries, **at)
        variance = _read(outputs[:, m:], reads)
        last = net[-1]
        assert isinstance(last, nn.Linear)
        most = (last.weight.abs().sum(1) + last.bias.abs())[m:].detach()
        yield at_least("variances over their least value", variance * most.exp(), 1.0, **at)
        x = torch.randn(4, d)
        mean, v = (half.detach() for half in net(x).chunk(2, 1))
        laws = [_law(row, _read(s, reads)) for row, s in zip(mean, v, strict=True)]
        second = (mean.square() + _read(v, reads)).sum(1)
        cross = (second + m * math.log(2 * math.pi)) / 2
        entropies = torch.tensor([float(law.entropy()) for law in laws])
        yield equals("KL term, by entropies", vae.elbo(x).kl, cross - entropies, tol=1e-10, **at)
        z = reparameterize(*vae.encode(x), generator=torch.Generator().manual_seed(1)).detach()
        log_q = torch.tensor([float(law.logpdf(row)) for law, row in zip(laws, z, strict=True)])
        decoded = vae.decoder(z).detach().numpy()
        joint = stats.norm.logpdf(x, decoded).sum(1) + stats.norm.logpdf(z).sum(1)
        found = vae.iwae_bound(x, 1, generator=torch.Generator().manual_seed(1))
        yield equals("log-weight of a draw", found, torch.tensor(joint) - log_q, tol=1e-10, **at)
    model = random_model(3, 1)
    weights, variance = _trained(model, reads)
    A, _, precision = posterior(model)
    yield equals("trained means over the posterior's", weights / A, 1.0, tol=0.01)
    yield equals("trained variance over the posterior's", variance * precision[0, 0], 1.0, tol=0.01)


def _read(v: Tensor, reads: Reads) -> Tensor:
    return {"log-variance": v.exp(), "variance": v, "log-deviation": (2 * v).exp()}[reads]


def _law(mean: Tensor, variance: Tensor) -> Any:
    """SciPy's law; negative numbers, which are no variances, count by their size."""
    return stats.multivariate_normal(mean.numpy(), np.diag(variance.abs().numpy()))  # pyright: ignore


def _trained(model: Linear, reads: Reads) -> tuple[Tensor, Tensor]:
    """The slopes of the mean and the variance of an encoder that maximises the bound."""
    vae, x = random_encoder(model), 2 * torch.randn(20, 3)
    encoder = vae.encoder
    assert isinstance(encoder, nn.Linear)
    steps = torch.optim.LBFGS(encoder.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        steps.zero_grad()
        value = -exact_elbo(vae, x).mean()
        value.backward()
        return value

    steps.step(loss)
    v = vae.encode(x).log_variance.detach().mean()
    return encoder.weight.detach()[:1], _read(v, reads)


vae_encoder.foil("the outputs taken for variances, which may be negative", reads="variance")
vae_encoder.foil(
    "the outputs taken for logarithms of deviations",
    reads="log-deviation",
    refuted_by="KL term, by entropies",
)


@claim(
    by="identity",
    sources=("C-303", "D-396", "E-304"),
    budget=0.3,
    short=r"\mathbb E_q[\log p(x | z)] = -\tfrac1{2\sigma^2} \mathbb E_q\|x - \mu_\theta(z)\|^2"
    r" - \tfrac n2 \log 2\pi\sigma^2",
)
def vae_gaussian_decoder(
    reduce: Literal["sum", "mean"] = "sum", factor: float = 0.5, trace: float = 1.0
):
    r"""A Gaussian decoder: the reconstruction is a squared error.

    For real data $p_\theta(x \mid z) = \mathcal N(\mu_\theta(z), \sigma^2 I)$ (or a learned
    diagonal covariance) the reconstruction term is $\mathbb E_q[\log p_\theta(x \mid z)] =
    -\frac1{2 \sigma^2} \mathbb E_q \|x - \mu_\theta(z)\|^2 - \frac n2 \log(2 \pi \sigma^2)$ for $n$
    coordinates: a squared error whose weight against the KL term is set by $\sigma^2$.

    *Checked* for `VAE` with fixed, learned and predicted noise against sums of SciPy's univariate
    log-densities; the formula against the part; for an affine decoder $A z + b$ and Gaussian $q$
    the expectation is $-\frac1{2 \sigma^2} (\|x - A \mu_q - b\|^2 + \mathrm{Tr}(A \Sigma_q
    A^\top))$ and the constant, found again by Gauss-Hermite quadrature over the codes, which is
    exact.

    Knobs:
        reduce: Whether squares are summed or averaged over the coordinates.
        factor: The factor before the squared error.
        trace: A factor before the trace.
    """
    for n, m, sigma in ((10, 3, 0.4), (4, 2, 1.7)):
        net, x, z = mlp([m, 5, n], nn.Tanh), torch.randn(6, n), torch.randn(6, m)
        vae, at = VAE(nn.Linear(n, 2 * m), net, noise=sigma), {"n": n, "sigma": sigma}
        mean = net(z).detach()
        found = reconstruction_at(vae, x, z)
        dense = stats.norm.logpdf(x, mean, sigma).sum(1)
        yield equals("log-density, against SciPy's", found, dense, tol=1e-10, **at)
        square = (x - mean).square()
        square = square.sum(1) if reduce == "sum" else square.mean(1)
        formula = -factor * square / sigma**2 - n / 2 * math.log(2 * math.pi * sigma**2)
        yield equals("squared error and constant", formula, found, tol=1e-10, **at)
        learned = VAE(nn.Linear(n, 2 * m), net, noise="learned")
        noise = learned.law.log_variance
        assert isinstance(noise, Tensor)
        noise.data.fill_(2 * math.log(sigma))
        yield equals("learned noise", reconstruction_at(learned, x, z), dense, tol=1e-10, **at)
        wide = mlp([m, 5, 2 * n], nn.Tanh)
        predicted = VAE(nn.Linear(n, 2 * m), wide, noise="predicted")
        mean, v = (half.detach() for half in wide(z).chunk(2, 1))
        dense = stats.norm.logpdf(x, mean, (v / 2).exp()).sum(1)
        yield equals("predicted noise", reconstruction_at(predicted, x, z), dense, tol=1e-10, **at)
        model = random_model(n, m)
        vae = random_encoder(model)
        code = vae.encode(x)
        rest = (x - code.mean @ model.W.T - model.b).square().sum(1)
        spread = (code.log_variance.exp() * model.W.square().sum(0)).sum(1)
        wanted = -factor * (rest + trace * spread) / model.sigma**2
        wanted = wanted - n / 2 * math.log(2 * math.pi * model.sigma**2)
        expected = exact_reconstruction(vae, x)
        yield equals("expectation over the codes", expected, wanted, tol=1e-10, n=n, m=m)


vae_gaussian_decoder.foil("squares averaged over the coordinates", reduce="mean")
vae_gaussian_decoder.foil("the half lost", factor=1.0)
vae_gaussian_decoder.foil("the spread of the codes forgotten", trace=0.0)


@claim(
    by="identity",
    sources=("C-304",),
    budget=0.2,
    short=r"\log p_\theta(x | z) = \Sigma_j \bigl(x_j a_j - \log(1 + e^{a_j})\bigr),\quad"
    r" x_j \in \{0, 1\}",
)
def vae_bernoulli_decoder(values: Literal["bits", "grey"] = "bits", d: int = 6):
    r"""A Bernoulli decoder: the reconstruction is minus the binary cross-entropy.

    For binary data the decoder returns logits $a_\theta(z)$ of independent bits, and the
    reconstruction term is minus the binary cross-entropy, $\log p_\theta(x \mid z) = \sum_j \bigl(
    x_j a_j - \log(1 + e^{a_j})\bigr)$. It is a law of bits: for grey values $x \in (0, 1)$ the same
    formula is no density, since for one pixel with $a = 0$ its integral over $[0, 1]$ is $\frac12$.

    *Checked* for `VAE` and all $2^d$ vectors of bits, for random logits: their probabilities are
    the products of $\sigma(a_j)^{x_j} (1 - \sigma(a_j))^{1 - x_j}$ and sum to one; logits of size
    1,000 give finite numbers, which are right.

    Knobs:
        values: What is summed over: the bits, or, for one pixel, all values in [0, 1].
        d: How many bits there are.
    """
    logits = 3 * torch.randn(d)
    logits[0] = 0
    bits = torch.cartesian_prod(*[torch.arange(2.0)] * d).reshape(-1, d)
    found = _told_logits(logits, bits)
    p = logits.sigmoid()
    products = torch.where(bits == 1, p, 1 - p).prod(1)
    yield equals("probability of a vector", found.exp(), products, tol=1e-12, d=d)
    formula = (bits * logits - torch.log1p(logits.exp())).sum(1)
    yield equals("cross-entropy", found, formula, tol=1e-11, d=d)
    if values == "bits":
        mass = found.exp().sum()
    else:  # the rule of Simpson for one pixel with a = 0, where the formula is constant
        x = torch.linspace(0, 1, 101)[:, None]
        weights = torch.tensor([1.0, *[4.0, 2.0] * 49, 4.0, 1.0]) / 300
        mass = weights @ _told_logits(torch.zeros(1), x, grey=True).exp()
    yield equals("total mass", mass, 1.0, tol=1e-12)
    large = torch.tensor([1e3, -1e3, 1e3])
    x = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    yield equals("logits of size 1,000", _told_logits(large, x), torch.tensor([0.0, -1e3, -3e3]))


def _told_logits(logits: Tensor, x: Tensor, *, grey: bool = False) -> Tensor:
    """The reconstruction of examples by a decoder that ignores its code."""
    decoder = nn.Linear(1, len(logits))
    with torch.no_grad():
        decoder.weight.zero_()
        decoder.bias.copy_(logits)
    vae = VAE(nn.Linear(len(logits), 2), decoder, likelihood="bernoulli", grey=grey)
    return vae.elbo(x).reconstruction.detach()


vae_bernoulli_decoder.foil("grey values, of which it is no density", values="grey")
