"""Change of variables: densities of transformed variables."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Distribution,
    Exponential,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
)

from vademecum.claims import claim, equals
from vademecum.foundations import pushforward_density
from vademecum.foundations.claims.densities import Density, integrated


def affine(law: Distribution, alpha: float, beta: float, z: Tensor) -> Tensor:
    """The density of alpha Y + beta at z, as that of a pushforward."""
    y = ((z - beta) / alpha).reshape(-1, 1)
    move = lambda y: alpha * y + beta  # noqa: E731
    pushed = pushforward_density(lambda y: law.log_prob(y)[:, 0], move, y)
    return pushed.log_density.exp().view(z.shape)


def printed(law: Distribution, alpha: float, beta: float, z: Tensor) -> Tensor:
    """The density without the absolute value."""
    return law.log_prob((z - beta) / alpha).exp() / alpha


def inverse_scale(law: Distribution, alpha: float, beta: float, z: Tensor) -> Tensor:
    r"""$|\alpha| f_Y(\alpha z)$, the density of $Y / \alpha$."""
    y = alpha * (z - beta)
    within = (y >= 0) | isinstance(law, Normal)  # torch refuses to look outside of a support
    return abs(alpha) * torch.where(within, law.log_prob(torch.where(within, y, 1.0)).exp(), 0)


@claim(
    by="identity",
    sources=("D-017", "E-018"),
    budget=0.5,
    short=r"f_{\alpha Y + \beta}(z) = \tfrac1{|\alpha|} f_Y\big(\tfrac{z - \beta}\alpha\big)",
)
def scaled_density(formula: Callable[..., Tensor] = affine):
    r"""The density of a scaled variable.

    For $\alpha \ne 0$ and $Y$ with the density $f_Y$,
    $f_{\alpha Y}(z) = \frac1{|\alpha|} f_Y\big(\frac z\alpha\big)$; with a shift,
    $f_{\alpha Y + \beta}(z) = \frac1{|\alpha|} f_Y\big(\frac{z - \beta}\alpha\big)$.

    Checked on what `pushforward_density` makes of a law of torch: its integral up to $z$ is
    $P(\alpha Y + \beta \le z)$ from the distribution function of $Y$, with the tails exchanged for
    $\alpha < 0$; its values are those of torch's affine transform.

    Knobs:
        formula: The density of $\alpha Y + \beta$ from the law of Y, $\alpha$, $\beta$ and z.
    """
    mirror = partial(formula, Normal(0.0, 1.0), -1.0, 0.0)
    peak = 1 / math.sqrt(2 * math.pi)
    yield equals("density of $-Y$ at 0 for a normal Y", mirror(torch.zeros(1)), peak)
    mass = integrated(mirror, torch.tensor([-9.0]), torch.tensor([9.0]))
    yield equals("mass of $-Y$ for a normal Y", mass, 1.0)
    laws = {"exponential": (Exponential(1.0), 0.0, 40.0), "normal": (Normal(1.0, 2.0), -19.0, 21.0)}
    for name, (law, low, high) in laws.items():
        for alpha in (2.0, 0.5, -1.0, -3.0):
            beta = float(torch.randn(()))
            y = torch.cat(
                [law.sample(torch.Size([20])), torch.tensor([high if alpha > 0 else low])]
            )
            z, start = alpha * y + beta, alpha * (low if alpha > 0 else high) + beta
            f = partial(formula, law, alpha, beta)
            below = law.cdf(y) if alpha > 0 else 1 - law.cdf(y)
            area = integrated(f, torch.full_like(z, start), z)
            at = {"alpha": alpha, "law": name}
            yield equals("integral of the density up to z", area, below, **at)
            twin = TransformedDistribution(law, AffineTransform(beta, alpha)).log_prob(z).exp()
            yield equals("density over torch's", f(z) / twin, 1.0, **at)


scaled_density.foil(
    r"$|\alpha| f_Y(\alpha z)$ is the density of $Y / \alpha$", formula=inverse_scale
)
for _where, _why, _evidence in (
    (
        "D-017",
        r"the absolute value is missing. For $\alpha = -1$ and $Y \sim \mathcal N(0, 1)$ the"
        r" printed formula is $-\varphi(z)$, a negative function with the integral $-1$; it is"
        r" right only for $\alpha > 0$",
        "mass of $-Y$ for a normal Y",
    ),
    (
        "E-018",
        r"the same missing absolute value: $f_{-Y}(0)$ would be $-0.399$",
        "density of $-Y$ at 0 for a normal Y",
    ),
):
    scaled_density.erratum(
        _where,
        printed=r"$f_{\alpha Y}(z) = \frac1\alpha f_Y\big(\frac z\alpha\big)$",
        right=r"$f_{\alpha Y}(z) = \frac1{|\alpha|} f_Y\big(\frac z\alpha\big)$",
        why=_why,
        weight="hard",
        refuted_by=_evidence,
        formula=printed,
    )


def pushed(log_density: Density, f: Density, z: Tensor) -> Tensor:
    """The density of f(z) at the images of points."""
    return pushforward_density(log_density, f, z).log_density.exp()


def slipped(log_density: Density, f: Density, z: Tensor, *, slip: str) -> Tensor:
    """The same by an explicit Jacobian, with slips to choose from."""
    points = torch.func.vmap(f)(z) if slip == "at x" else z
    det = torch.linalg.det(torch.func.vmap(torch.func.jacrev(f))(points))
    factor = {"multiplied": det.abs(), "signed": 1 / det, "at x": 1 / det.abs()}[slip]
    return log_density(z).exp() * factor


def bent(z: Tensor) -> Tensor:
    """A map of the plane that is neither linear nor separable."""
    return torch.stack([z[0], z[1] * (2 + z[0].sin()) + z[0] ** 2])


def unbent(x: Tensor) -> Tensor:
    """The inverse of it."""
    return torch.stack([x[0], (x[1] - x[0] ** 2) / (2 + x[0].sin())])


def distribution(x: Tensor, mean: float, sigma: float, power: int) -> Tensor:
    """The probability that an odd or even power of a normal variable is at most x."""
    law, root = Normal(mean, sigma), x.abs() ** (1 / power)
    return law.cdf(root * x.sign()) if power % 2 else law.cdf(root) - law.cdf(-root)


@claim(
    by="identity",
    sources=("B-489",),
    budget=0.5,
    full={"h": 0.1},
    short=r"p_X(x) = p_Z(F^{-1}(x))\,|\det \partial F(F^{-1}(x))|^{-1}",
)
def change_of_variables(formula: Callable[..., Tensor] = pushed, power: int = 3, h: float = 0.5):
    r"""The change of variables for densities: the pushforward.

    If $F$ is a diffeomorphism and $x = F(z)$ with $z \sim p_Z$, then
    $p_X(x) = p_Z(F^{-1}(x))\,\big|\det \partial F(F^{-1}(x))\big|^{-1}
    = p_Z(F^{-1}(x))\,\big|\det \partial F^{-1}(x)\big|$. This is the likelihood of a normalizing
    flow.

    Checked for a normal law: of $e^z$ the density is SciPy's log-normal one, of $-z$ the mirror
    image, of $z^3$ the slope of the distribution function, of $A z + b$ again normal. For
    $F(z) = (z_1,\; z_2 (2 + \sin z_1) + z_1^2)$ both forms agree, and the mass is 1 by the
    trapezoidal rule, whose error for a normal law of deviation $\sigma \ge 1$ and the step
    $h = \frac12$ is about $2 e^{-2 \pi^2 \sigma^2 / h^2} < 10^{-30}$.

    Knobs:
        formula: The density of $F(z)$ at the images, from $\log p_Z$, F and the points z.
        power: Which power of z is taken; an even one is no bijection.
        h: The step of the trapezoidal rule.
    """
    line = Normal(0.3, 0.8)
    z = 0.3 + 0.8 * torch.randn(20, 1)
    along = partial(formula, lambda z: line.log_prob(z)[:, 0])
    mirrored = Normal(-0.3, 0.8).log_prob(-z[:, 0]).exp()
    yield equals("density over the exact one", along(torch.neg, z) / mirrored, 1.0, map="-z")
    log_normal = torch.as_tensor(scipy.stats.lognorm.pdf(z.exp(), 0.8, scale=np.exp(0.3))[:, 0])
    yield equals("density over the exact one", along(torch.exp, z) / log_normal, 1.0, map="exp z")
    x = (z[:, 0] ** power).requires_grad_()
    (slope,) = torch.autograd.grad(distribution(x, 0.3, 0.8, power).sum(), x)
    share = along(lambda z: z**power, z) / slope
    yield equals("density over the exact one", share, 1.0, map=f"z^{power}")
    for d in (2, 3):
        A = torch.linalg.qr(torch.randn(d, d)).Q * (torch.rand(d) + 0.5)  # well conditioned
        B, b, mean = torch.randn(d, d), torch.randn(d), torch.randn(d)
        cov, z = B @ B.T + torch.eye(d), torch.randn(20, d)
        moved = MultivariateNormal(A @ mean + b, A @ cov @ A.T).log_prob(z @ A.T + b).exp()
        source = MultivariateNormal(mean, cov).log_prob
        share = formula(source, lambda z, A=A, b=b: A @ z + b, z) / moved
        yield equals("density over the exact one", share, 1.0, map="A z + b", d=d)
    x = torch.cartesian_prod(torch.arange(-7, 7 + h, h), torch.arange(-22, 72 + h, h))
    z = torch.func.vmap(unbent)(x)
    plane = MultivariateNormal(torch.zeros(2), torch.eye(2)).log_prob
    density = formula(plane, bent, z)
    yield equals("mass of the density", density.sum() * h**2, 1.0, map="bent")
    inner = (plane(z) > -200).nonzero()[::25, 0]  # beyond, densities underflow
    back = torch.linalg.det(torch.func.vmap(torch.func.jacrev(unbent))(x[inner])).abs()
    share = density[inner] / (plane(z[inner]).exp() * back)
    yield equals("density over that of the second form", share, 1.0, map="bent")


for _slip, _why in (
    ("multiplied", "a stretched law is less dense: divide by the determinant"),
    ("signed", "without the absolute value the density of $-z$ is negative"),
    ("at x", r"the Jacobian of $F$ at $x$ instead of at $F^{-1}(x)$"),
):
    change_of_variables.foil(_why, formula=partial(slipped, slip=_slip))
change_of_variables.foil(r"$z^2$ is no bijection: two points have one image", power=2)
