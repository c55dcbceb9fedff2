"""What models of examples can be asked for: a density, a bound of it, or draws alone."""

import math
from collections.abc import Iterator

import torch
from scipy import stats
from torch import Tensor, nn

from vademecum.claims import Evidence, at_most, claim, consistent, equals, in_mean, lowest
from vademecum.generative import GAN, MADE, VAE, Compose, LinearFlow, PlanarFlow
from vademecum.generative.claims._exact_bounds import Told, exact_elbo


@claim(
    by="identity",
    sources=("A-402", "B-486", "E-285", "E-286", "E-288", "E-289"),
    budget=0.4,
    short=r"\int p_\theta(x)\, dx = 1 \text{ (autoregressive, flow)},\quad"
    r" \int e^{\mathrm{ELBO}(x)}\, dx \le 1 \text{ (VAE)}",
)
def density_taxonomy(bound_is_density: bool = False, slope: float = 0.35):
    r"""What each family of generative models can evaluate.

    A generative model is fitted to unlabelled draws of a law $p$, so that its own law $p_\theta$ is
    near $p$ and new examples can be drawn. Families differ in what they return for a point: the
    exact $\log p_\theta(x)$ (autoregressive models, flows), a lower bound of it (variational
    autoencoders, diffusion), or nothing, as simulators such as the generators of GANs, which have
    to be judged by their draws. A density that is evaluated exactly has total mass 1, the
    exponential of a strict lower bound has less.

    *Checked* for one model of each kind: quadrature over $[-14, 14]$ of $e^{\log p}$
    for flows on the line, and the sum over all 27 vectors of a `MADE`, are 1; a `GAN` draws and has
    no `log_prob`. For the `VAE` with $z \sim \mathcal N(0, 1)$, $x \mid z \sim \mathcal N(z, 1)$
    and the encoder $\mathcal N(c x, \frac12)$ the bound lacks $(\frac12 - c)^2 x^2$, the divergence
    from the posterior $\mathcal N(\frac x2, \frac12)$, so that $e^{\mathrm{ELBO}}$ has the mass $1
    / \sqrt{1 + 4 (\frac12 - c)^2}$: 0.958 for $c = 0.35$, and 1 for the posterior itself. (Of
    diffusion it is said elsewhere.)

    Knobs:
        bound_is_density: Whether the bound is taken for a log-density, of mass 1.
        slope: The number $c$ of the encoder.
    """
    step = 0.01
    x = torch.arange(-14, 14 + step, step)[:, None]
    for flow in (_planar(), Compose([_planar(), LinearFlow(1, kind="diagonal")])):
        mass = flow.log_prob(x).exp().sum() * step
        yield equals("mass of a flow", mass, 1.0, tol=1e-8)
    table = torch.cartesian_prod(*[torch.arange(3)] * 3)
    made = MADE(3, kind="categorical", classes=3, hidden=(7,))
    yield equals("mass of an autoregressive model", made.log_prob(table).exp().sum(), 1.0, tol=1e-8)
    for c in (slope, 0.5):
        told = Told(lambda x, c=c: (c * x, torch.full_like(x, math.log(0.5))))
        mass = exact_elbo(VAE(told, nn.Identity()), x).exp().sum() * step
        wanted = 1 / math.sqrt(1 + 4 * (0.5 - c) ** 2)
        wanted = 1.0 if bound_is_density else wanted
        yield equals("mass of the exponential of a bound", mass, wanted, tol=1e-8, c=c)
        yield at_most("mass of a bound", mass, 1.0, tol=1e-8, c=c)
    gan = GAN(nn.Linear(2, 3), nn.Linear(3, 1), latent_dim=2)
    yield equals("draws of a simulator", torch.tensor(gan.sample(4).shape), torch.tensor([4, 3]))
    asked = [hasattr(model, "log_prob") for model in (gan, made, flow)]
    yield equals("models with a density: GAN, MADE, flow", asked, [False, True, True])


def _planar() -> PlanarFlow:
    """A bend by less than 4 with w between 1/2 and 3/2: tails stay, poles are far away."""
    flow = PlanarFlow(1)
    with torch.no_grad():
        flow.w.copy_(flow.w.sign() * (0.5 + torch.rand(1)))
        flow.u.clamp_(-1, 1)
        flow.b.clamp_(-1, 1)
    return flow


density_taxonomy.foil("the bound of a VAE taken for a log-density", bound_is_density=True)


@claim(
    by="sampling",
    sources=("C-297", "D-399", "E-297"),
    budget=0.3,
    full={"draws": 400_000},
    short=r"z \sim p(z),\ x \sim p(x | z) \implies (z, x) \sim p(x, z),\ x \sim p(x)",
)
def ancestral_sampling(mean: bool = False, prior: float = 1.0, draws: int = 40_000):
    r"""Ancestral sampling from a latent variable model.

    To generate, draw $z$ from the prior $p(z)$ and then $x$ from $p_\theta(x \mid z)$: the pairs
    have the joint law $p_\theta(x, z)$, and $x$ has the marginal law. No encoder is needed.

    *Checked* for `VAE.sample` of models whose examples tell their codes: linear decoders with
    Gaussian noise whose first coordinates are the codes themselves have in mean the covariance of
    the joint law, and $W W^\top + \sigma^2 I$; a decoder of labels, which sees only in which
    quarter of its law a code is, fills the 20 cells of code and observation as a test of chi-square
    at the level $10^{-6}$ demands, and a decoder of bits, which sees the sign of a code, the 4
    cells of sign and bit. The encoders refuse to be called.

    Knobs:
        mean: Whether the mean given the code stands for a draw.
        prior: The standard deviation of codes that is claimed.
        draws: How many examples are drawn.
    """
    lowest("draws", draws, 1000)
    for d, m, sigma in ((3, 2, 0.9), (2, 1, 1.3)):
        W, b = 0.6 * torch.randn(d, m), torch.randn(d)
        vae = VAE(_Never(), _Pairs(W, b, sigma), noise="predicted", latent=m)
        x = vae.sample(draws, mean=mean) - torch.cat([torch.zeros(m), b])
        joint = torch.cat([torch.eye(m), W]) * prior
        cov = joint @ joint.T
        cov[m:, m:] += sigma**2 * torch.eye(d)
        for i in range(m + d):
            at = {"d": d, "m": m, "i": i}
            yield in_mean("mean of a coordinate", x[:, i], 0.0, **at)
            for j in range(i + 1):
                product = x[:, i] * x[:, j]
                yield in_mean("covariance of two coordinates", product, float(cov[i, j]), **at, j=j)
    yield from _cells(mean, draws)
    yield from _bits(mean, draws)


class _Never(nn.Module):
    """An encoder that nobody needs."""

    def forward(self, x: Tensor) -> Tensor:
        raise AssertionError("sampling needs no encoder")


class _Pairs(nn.Module):
    """A decoder of pairs: the code, without noise, and W z + b with noise."""

    def __init__(self, W: Tensor, b: Tensor, sigma: float):
        super().__init__()
        self.W, self.b, self.sigma = W, b, sigma

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        means = torch.cat([z, z @ self.W.T + self.b], 1)
        spreads = torch.full_like(means, 2 * math.log(self.sigma))
        spreads[:, : z.shape[1]] = -1e4
        return means, spreads


class _Quarters(nn.Module):
    """A decoder of two labels: the quarter in which a code is, and one of five by its law."""

    def __init__(self, laws: Tensor):
        super().__init__()
        self.laws = laws

    def forward(self, z: Tensor) -> Tensor:
        quarter = (torch.special.ndtr(z[:, 0]) * 4).long().clamp(0, 3)
        known = torch.where(torch.arange(5) == quarter[:, None], 0.0, -1e4)
        return torch.stack([known, self.laws[quarter].log()], 2)


def _cells(mean: bool, draws: int) -> Iterator[Evidence]:
    laws = (torch.randn(4, 5) / 2).softmax(1)
    vae = VAE(_Never(), _Quarters(laws), likelihood="categorical", latent=1)
    x = vae.sample(draws, mean=mean)
    x = x.argmax(1) if mean else x
    counts = torch.bincount(5 * x[:, 0] + x[:, 1], minlength=20).double()
    found = stats.chisquare(counts.numpy(), (draws * laws / 4).flatten().numpy())
    yield consistent("p-value of 20 cells of code and label", float(found.pvalue))


class _Signs(nn.Module):
    """A decoder of two bits: whether a code is positive, and one by its law given that."""

    def __init__(self, laws: Tensor):
        super().__init__()
        self.laws = laws

    def forward(self, z: Tensor) -> Tensor:
        positive = z[:, 0] > 0
        return torch.stack([torch.where(positive, 1e4, -1e4), self.laws[positive.long()]], 1)


def _bits(mean: bool, draws: int) -> Iterator[Evidence]:
    laws = torch.tensor([-1.0, 0.7]) + torch.rand(2) / 2
    vae = VAE(_Never(), _Signs(laws), likelihood="bernoulli", latent=1)
    x = vae.sample(draws, mean=mean).round().long()
    counts = torch.bincount(2 * x[:, 0] + x[:, 1], minlength=4).double()
    p = 1 / (1 + (-laws).exp())
    wanted = draws / 2 * torch.stack([1 - p, p], 1).flatten()
    found = stats.chisquare(counts.numpy(), wanted.numpy())
    yield consistent("p-value of 4 cells of sign and bit", float(found.pvalue))


ancestral_sampling.foil(
    "the decoder's mean, without the noise of the observation",
    mean=True,
    refuted_by="covariance of two coordinates",
)
ancestral_sampling.foil("codes of a tenth more spread", prior=1.1)
