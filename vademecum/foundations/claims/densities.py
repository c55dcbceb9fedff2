"""What the course claims of densities: of transformed variables and of sums."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Distribution,
    Exponential,
    Gamma,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
    Uniform,
)

from vademecum.claims import at_least, claim, equals
from vademecum.foundations.claims.information import quadrature
from vademecum.foundations.pushforward import pushforward_density

Density = Callable[[Tensor], Tensor]


def integrated(f: Density, low: Tensor, high: Tensor) -> Tensor:
    """The integrals of a function between pairs of limits, by 200 nodes of Gauss and Legendre."""
    t, w = quadrature(0.0, 1.0)
    width = (high - low)[:, None]
    return (f(low[:, None] + width * t) * width) @ w


@claim(by="identity", sources=("D-016", "E-017"), budget=0.5)
def density_from_cdf(tail: Literal["lower", "upper"] = "lower", kink: bool = False):
    r"""The density is the derivative of the distribution function.

    Where the density is continuous, $\frac{\mathrm d}{\mathrm dt} P(X \le t) = F_X'(t) = f_X(t)$;
    conversely $F_X(t) = \int_{-\infty}^t f_X$.

    *Check.* Automatic differentiation of torch's distribution functions, a central difference of
    SciPy's (with a step $h = 10^{-4}$ it errs by $\frac{h^2}6 |f''| < 10^{-8}$), and integrals of
    SciPy's densities. `kink` adds $t = 0$ for the exponential law, whose density jumps there.
    """
    for name, law in (
        ("normal", Normal(0.5, 2.0)),
        ("exponential", Exponential(1.5)),
        ("gamma", Gamma(2.5, 2.0)),
        ("Laplace", Laplace(0.0, 1.0)),
        ("log-normal", LogNormal(0.0, 0.5)),
    ):
        t = (3 * torch.rand(20) + 0.1).requires_grad_()
        below = law.cdf(t)
        chance = below if tail == "lower" else 1 - below
        (slope,) = torch.autograd.grad(chance.sum(), t)
        yield equals(slope, law.log_prob(t).exp(), law=name)
    h = 1e-4
    for name in ("expon", "norm", "logistic"):
        twin = getattr(scipy.stats, name)
        t = (4 * torch.rand(20) + 2 * h).numpy()
        t[0] = 0.0 if kink else t[0]
        yield equals((twin.cdf(t + h) - twin.cdf(t - h)) / (2 * h), twin.pdf(t), tol=1e-8, law=name)
    for name, reach, shape in (("norm", 9, (1, 2)), ("gamma", 9, (3.5,)), ("beta", 1, (2, 3))):
        twin = getattr(scipy.stats, name)(*shape)
        low, high = (reach * torch.rand(2, 20)).sort(0).values
        area = integrated(lambda x, f=twin.pdf: torch.as_tensor(f(x.numpy())), low, high)
        yield equals(area, twin.cdf(high.numpy()) - twin.cdf(low.numpy()), law=name)


density_from_cdf.foil(r"the derivative of $P(X > t)$ is $-f$", tail="upper")
density_from_cdf.foil("at a jump of the density the two-sided derivative is half of it", kink=True)


def affine(law: Distribution, alpha: float, beta: float, z: Tensor) -> Tensor:
    """The density of alpha Y + beta as torch computes it."""
    return TransformedDistribution(law, AffineTransform(beta, alpha)).log_prob(z).exp()


def printed(law: Distribution, alpha: float, beta: float, z: Tensor) -> Tensor:
    """The density without the absolute value."""
    return law.log_prob((z - beta) / alpha).exp() / alpha


def inverse_scale(law: Distribution, alpha: float, beta: float, z: Tensor) -> Tensor:
    r"""$|\alpha| f_Y(\alpha z)$, the density of $Y / \alpha$."""
    y = alpha * (z - beta)
    within = (y >= 0) | isinstance(law, Normal)
    return abs(alpha) * torch.where(within, law.log_prob(torch.where(within, y, 1.0)).exp(), 0)


@claim(by="identity", sources=("D-017", "E-018"), budget=0.5)
def scaled_density(formula: Callable[..., Tensor] = affine):
    r"""The density of a scaled variable.

    For $\alpha \ne 0$ and $Y$ with the density $f_Y$,
    $f_{\alpha Y}(z) = \frac1{|\alpha|} f_Y\big(\frac z\alpha\big)$; with a shift,
    $f_{\alpha Y + \beta}(z) = \frac1{|\alpha|} f_Y\big(\frac{z - \beta}\alpha\big)$.

    *Check.* Torch's affine transform: its integral up to $z$ is $P(\alpha Y + \beta \le z)$ from
    the distribution function of $Y$, with the tails exchanged for $\alpha < 0$; the mass is 1 and
    nothing is negative.
    """
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
            yield equals(area, below, law=name, alpha=alpha)
            yield at_least(f(z), 0.0, law=name, alpha=alpha)


scaled_density.foil(
    r"$|\alpha| f_Y(\alpha z)$ is the density of $Y / \alpha$", formula=inverse_scale
)
for _where in ("D-017", "E-018"):
    scaled_density.erratum(
        _where,
        printed=r"$f_{\alpha Y}(z) = \frac1\alpha f_Y\big(\frac z\alpha\big)$",
        right=r"$f_{\alpha Y}(z) = \frac1{|\alpha|} f_Y\big(\frac z\alpha\big)$",
        why=r"for $\alpha = -1$ and $Y \sim \mathcal N(0, 1)$ it is $-\varphi(z)$, a negative "
        r"function with the integral $-1$; it is right only for $\alpha > 0$",
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


@claim(by="identity", sources=("B-489",), budget=0.5, full={"h": 0.1})
def change_of_variables(
    formula: Callable[..., Tensor] = pushed, bijective: bool = True, h: float = 0.5
):
    r"""The change of variables for densities: the pushforward.

    If $F$ is a diffeomorphism and $x = F(z)$ with $z \sim p_Z$, then
    $p_X(x) = p_Z(F^{-1}(x))\,\big|\det \partial F(F^{-1}(x))\big|^{-1}
    = p_Z(F^{-1}(x))\,\big|\det \partial F^{-1}(x)\big|$. This is the likelihood of a normalizing
    flow.

    *Check.* $e^z$ of a normal law is SciPy's log-normal one, $-z$ its mirror image, and $A z + b$
    again normal. For $F(z) = (z_1,\; z_2 (2 + \sin z_1) + z_1^2)$ both forms agree, and the mass is
    1 by the trapezoidal rule, whose error for a normal law of deviation $\sigma \ge 1$ and the step
    $h = \frac12$ is about $2 e^{-2 \pi^2 \sigma^2 / h^2} < 10^{-30}$.
    """
    line = Normal(0.3, 0.8)
    z = 0.3 + 0.8 * torch.randn(20, 1)
    along = partial(formula, lambda z: line.log_prob(z)[:, 0])
    mirrored = Normal(-0.3, 0.8).log_prob(-z[:, 0]).exp()
    yield equals(along(torch.neg, z), mirrored, map="-z")
    log_normal = scipy.stats.lognorm.pdf(z[:, 0].exp().numpy(), 0.8, scale=np.exp(0.3))
    yield equals(along(torch.exp, z), log_normal, map="exp z")
    if not bijective:  # the law of z^2 is a scaled non-central chi-squared one
        squared = scipy.stats.ncx2.pdf(z[:, 0].numpy() ** 2 / 0.64, 1, 0.09 / 0.64) / 0.64
        yield equals(along(torch.square, z), squared, map="z^2")
    for d in (2, 3):
        A = torch.linalg.qr(torch.randn(d, d)).Q * (torch.rand(d) + 0.5)  # well conditioned
        B, b, mean = torch.randn(d, d), torch.randn(d), torch.randn(d)
        cov, z = B @ B.T + torch.eye(d), torch.randn(20, d)
        moved = MultivariateNormal(A @ mean + b, A @ cov @ A.T).log_prob(z @ A.T + b).exp()
        source = MultivariateNormal(mean, cov).log_prob
        yield equals(formula(source, lambda z, A=A, b=b: A @ z + b, z) / moved, 1.0, map="A z + b")
    x = torch.cartesian_prod(torch.arange(-7, 7 + h, h), torch.arange(-22, 72 + h, h))
    z = torch.func.vmap(unbent)(x)
    plane = MultivariateNormal(torch.zeros(2), torch.eye(2)).log_prob
    density = formula(plane, bent, z)
    yield equals(density.sum() * h**2, 1.0, map="bent")
    back = torch.func.vmap(torch.func.jacrev(unbent))(x[::50])
    yield equals(density[::50], plane(z[::50]).exp() * torch.linalg.det(back).abs(), map="bent")


for _slip, _why in (
    ("multiplied", "a stretched law is less dense: divide by the determinant"),
    ("signed", "without the absolute value the density of $-z$ is negative"),
    ("at x", r"the Jacobian of $F$ at $x$ instead of at $F^{-1}(x)$"),
):
    change_of_variables.foil(_why, formula=partial(slipped, slip=_slip))
change_of_variables.foil(r"$z^2$ is no bijection: two points have one image", bijective=False)


def convolved(f: Density, g: Density, z: Tensor, low: Tensor, high: Tensor) -> Tensor:
    r"""$\int f(t) g(z - t)\,\mathrm dt$ between limits outside of which the integrand is zero."""
    return integrated(lambda t: f(t) * g(z[:, None] - t), low, high)


def correlated(f: Density, g: Density, z: Tensor, low: Tensor, high: Tensor) -> Tensor:
    r"""$\int f(t) g(z + t)\,\mathrm dt$, the density of the difference."""
    return integrated(lambda t: f(t) * g(z[:, None] + t), low, high)


@claim(by="identity", sources=("D-025", "E-026"), budget=0.5, full={"draws": 200})
def sum_density_convolution(
    formula: Callable[..., Tensor] = convolved,
    pair: Literal["independent", "equal"] = "independent",
    draws: int = 4,
):
    r"""The density of a sum of independent variables is a convolution.

    If $X$ and $Y$ are independent with densities, $Z = X + Y$ has the density
    $f_Z(z) = \int f_X(t) f_Y(z - t)\,\mathrm dt = \int f_X(z - t) f_Y(t)\,\mathrm dt
    = (f_X * f_Y)(z)$; for integer variables the probabilities are convolved.

    *Check.* Integer weights by NumPy against all pairs of outcomes, exactly. Two exponential laws
    give $z e^{-z}$, two uniform ones the triangle, and
    $\mathcal N(0, 1) * \mathcal N(1, 4) = \mathcal N(1, 5)$, all from torch's densities.
    """
    for k in range(draws):
        p = torch.randint(1, 9, (3 + k,))
        q = torch.randint(1, 9, (5,)) if pair == "independent" else p
        joint = torch.outer(p, q) if pair == "independent" else p.diag() * p.sum()
        total = torch.zeros(len(p) + len(q) - 1, dtype=torch.long)
        for i, row in enumerate(joint):
            total[i : i + len(q)] += row
        yield equals(np.convolve(p.numpy(), q.numpy()), total, draw=k)
    z = 1.8 * torch.rand(20) + 0.1
    zero = torch.zeros_like(z)
    cases: dict[str, Any] = {
        "normal": (Normal(0.0, 1.0), Normal(1.0, 2.0), zero - 12, zero + 12,
                   Normal(1.0, 5**0.5).log_prob(z).exp()),
        "exponential": (Exponential(1.0), Exponential(1.0), zero, z, z * (-z).exp()),
        "uniform": (Uniform(0.0, 1.0), Uniform(0.0, 1.0), (z - 1).clamp(min=0), z.clamp(max=1),
                    1 - (z - 1).abs()),
    }  # fmt: skip
    for name, (one, other, low, high, closed) in cases.items():
        f, g = (lambda t, law=law: law.log_prob(t).exp() for law in (one, other))
        yield equals(formula(f, g, z, low, high), closed, law=name)
        if name == "normal":
            yield equals(formula(g, f, z, low + 1, high + 1), closed, law=name)


sum_density_convolution.foil(
    "the product of the densities", formula=lambda f, g, z, low, high: f(z) * g(z)
)
sum_density_convolution.foil("the density of the difference", formula=correlated)
sum_density_convolution.foil("a dependent pair: $X + X$ is even", pair="equal")
