"""Densities by change of variables: what an invertible map makes of a law."""

import math
from typing import Any, Literal

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor, nn

from vademecum.claims import claim, equals
from vademecum.generative import Compose, LinearFlow, PlanarFlow, RealNVP
from vademecum.generative.claims._flow_oracles import (
    Sinh,
    affine_map,
    follows,
    jacobians,
    mixed,
    normal_density,
)


def normal(z: Tensor) -> Tensor:
    """The standard normal log-density of rows, by SciPy."""
    return torch.from_numpy(stats.norm.logpdf(z.numpy())).sum(1)


def mass(density: Any, A: Tensor, b: Tensor, reach: float, m: int) -> Tensor:
    """The integral of a density over the box of A u + b for |u| <= reach, by the rectangle rule.

    For analytic functions that vanish towards the ends its error falls exponentially with m.
    """
    half = reach * A.abs().sum(1)
    sides = [torch.linspace(-1, 1, m) * h + c for h, c in zip(half, b, strict=True)]
    grid = torch.cartesian_prod(*sides).reshape(-1, len(b))
    return density(grid).exp().sum() * torch.stack([s[1] - s[0] for s in sides]).prod()


@claim(
    by="identity",
    sources=("A-352", "B-490", "D-420", "D-421", "D-422"),
    budget=0.6,
    short=r"p_x(x) = p_z(f^{-1}(x))\, |\det J_{f^{-1}}(x)| = p_z(z) / |\det J_f(z)|,\quad x = f(z)",
)
def change_of_variables(power: float = 1.0, n: int = 4000):
    r"""Density of a normalising flow by change of variables.

    For a diffeomorphism $f$ between spaces of equal dimension and $x = f(z)$: $p_x(x) =
    p_z(f^{-1}(x))\, |\det J_{f^{-1}}(x)| = p_z(z) / |\det J_f(z)|$ at $z = f^{-1}(x)$. A
    normalising flow is such a map with cheap inverse and determinant, used to turn a simple base
    law into the data law with exact likelihood.

    *Checked* for $f(z) = 2 z$, affine maps, $f = \operatorname{arsinh}$ and their compositions in
    one and two dimensions, base laws being normal: both forms give a total mass of one by
    quadrature and agree with each other and with `log_prob`; affine maps give the normal density;
    maps and inverses undo each other; samples of one-dimensional flows follow the distribution
    function $\Phi(f^{-1}(x))$.

    Knobs:
        power: The power of the determinant of the inverse; -1 multiplies by $|\det J_f|$.
        n: How many samples are drawn.
    """
    double = LinearFlow(1, kind="diagonal").requires_grad_(False)
    double.log_scale.data.fill_(math.log(2))
    cases: list[tuple[str, Any, Any]] = [("2 z", double, double)]
    for d in (1, 2):
        A, B = mixed(d), mixed(d)
        cases += [("affine", A, A), ("arsinh", Compose([Sinh(d)]), None)]
        cases += [("affine of arsinh", Compose([A, Sinh(d)]), A)]
        cases += [("affine of arsinh of affine", Compose([A, Sinh(d), B]), A)]
    for name, flow, outer in cases:
        at = {"f": name, "d": flow.d}

        def density(x: Tensor, flow: Any = flow) -> Tensor:
            z, log_det = flow(x)
            return normal(z) + power * log_det

        A, b = affine_map(outer) if outer else (torch.eye(flow.d), torch.zeros(flow.d))
        total = mass(density, A, b, 9.0 if flow is outer else 6.0, 241)
        yield equals("total mass", total, 1.0, tol=1e-7, **at)
        z = torch.randn(20, flow.d)
        x, log_det = flow.inverse(z)
        yield equals(
            "log-density by the determinant of f", normal(z) - power * log_det, density(x), **at
        )
        yield equals("log_prob", flow.log_prob(x), density(x), **at)
        yield equals("z that comes back", flow(x)[0], z, **at)
        drawn, beside = flow.rsample_with_log_prob(20)
        yield equals("log-density that comes with draws", beside, density(drawn), **at)
        if flow is outer:
            known = normal_density(x, b, A @ A.T)
            yield equals("log-density of a normal law", density(x), known, **at)
        if flow.d == 1 and flow is not outer and "of affine" not in name:
            a, c = float(A), float(b)

            def cdf(x: np.ndarray, a: float = a, c: float = c) -> np.ndarray:
                up = special.ndtr(np.sinh((x - c) / a))
                return up if a > 0 else 1 - up

            yield follows("distance of samples from their law", flow.sample(n), cdf, **at)


change_of_variables.foil("multiplied by the determinant of f", power=-1.0)
change_of_variables.foil("without the determinant", power=0.0)


@claim(
    by="identity",
    sources=("A-353", "B-491", "B-492"),
    budget=0.4,
    short=r"F = F_L \circ\dots\circ F_1:\ \log|\det\partial F(z)| = \sum_i"
    r" \log|\det\partial F_i(z_{i-1})|",
)
def flow_composition(
    point: Literal["own", "first"] = "own", undone: Literal["last", "first"] = "last"
):
    r"""Composition of flows.

    $F = F_L \circ \dots \circ F_1$ has the inverse $F_1^{-1} \circ \dots \circ F_L^{-1}$, and
    $\det \partial F(z) = \prod_{i=1}^L \det \partial F_i(z_{i-1})$ with $z_{i-1} = F_{i-1} \circ
    \dots \circ F_1(z)$, so log-determinants add, each taken at its own intermediate point.

    *Checked* for three and five affine, arsinh, planar and coupling layers in three and four
    dimensions, in both directions, against determinants of Jacobians by autograd.

    Knobs:
        point: Where each layer's determinant is taken: at its own intermediate point, or at the
            first one.
        undone: Which layer the inverse undoes first.
    """
    for d, layers in ((3, 3), (4, 5)):
        kinds = [mixed(d), Sinh(d), RealNVP(d, transforms=2, hidden=(7,), network=smooth),
                 PlanarFlow(d), mixed(d, "triangular")]  # fmt: skip
        flows: list[Any] = kinds[:layers]
        whole = Compose(flows).requires_grad_(False)
        x, at = 0.5 * torch.randn(6, d), {"d": d, "layers": layers}
        y, total = x, torch.zeros(6)
        for flow in flows:
            total = total + flow(y if point == "own" else x)[1]
            y = flow(y)[0]
        exact = torch.linalg.slogdet(jacobians(lambda v, f=whole: f(v).value, x))[1]
        yield equals("sum of log-determinants", total, exact, **at)
        yield equals("log_det of Compose", whole(x).log_det, exact, **at)
        back = y
        for flow in reversed(flows) if undone == "last" else flows:
            back = flow.inverse(back)[0]
        yield equals("point that comes back", back, x, **at)
        again, log_det = whole.inverse(y)
        yield equals("inverse of Compose", again, x, **at)
        exact = torch.linalg.slogdet(jacobians(lambda v, f=whole: f.inverse(v).value, y))[1]
        yield equals("its log_det", log_det, exact, **at)


def smooth(inputs: int, outputs: int) -> nn.Module:
    """A small network without kinks."""
    return nn.Sequential(nn.Linear(inputs, 7), nn.Tanh(), nn.Linear(7, outputs))


flow_composition.foil("every determinant at the first point", point="first")
flow_composition.foil("the first layer undone first", undone="first")


@claim(
    by="identity",
    sources=("B-494", "D-423"),
    budget=0.4,
    short=r"\log p(x) = \log p_Z(z) - \sum_i \log|\det\partial F_i(z_{i-1})|,\quad z = F^{-1}(x)",
)
def flow_log_likelihood(base: float = 1.0, volume: float = 1.0):
    r"""Log-likelihood of a flow.

    With $z = F^{-1}(x)$ and intermediate points $z_i$: $\log p(x) = \log p_Z(z) - \sum_{i=1}^L
    \log|\det \partial F_i(z_{i-1})|$: the base term plus the volume corrections.

    *Checked*: the identity gives the base log-density; an affine flow in one dimension the normal
    one; two and three layers in two dimensions have a total mass of one by quadrature, and there
    `log_prob` agrees with the sum over layers.

    Knobs:
        base: The factor before the base term.
        volume: The factor before the sum of volume corrections.
    """

    def formula(flows: list[Any], x: Tensor) -> Tensor:
        points = [x]
        for flow in flows:  # from data to noise
            points.append(flow(points[-1])[0])
        z = points.pop()
        total = base * normal(z)
        for flow in reversed(flows):  # F_i, from noise to data
            z, log_det = flow.inverse(z)
            total = total - volume * log_det
        return total

    x = torch.randn(12, 1)
    same = LinearFlow(1, kind="diagonal").requires_grad_(False)
    yield equals("log-density of the identity flow", formula([same], x), normal(x), d=1)
    flow = mixed(1)
    A, b = affine_map(flow)
    known = torch.distributions.Normal(b[0], A[0, 0].abs()).log_prob(x[:, 0])
    yield equals("log-density of an affine flow", formula([flow], x), known, d=1)
    for layers in (2, 3):
        flows: list[Any] = [mixed(2), Sinh(2), mixed(2, "triangular")][:layers]
        A, b = affine_map(flows[0])
        total = mass(lambda x, f=flows: formula(f, x), A, b, 6.0, 241)
        yield equals("total mass", total, 1.0, tol=1e-7, layers=layers)
        x = Compose(flows).sample(12)
        yield equals("log_prob", Compose(flows).log_prob(x), formula(flows, x), layers=layers)


flow_log_likelihood.foil("volume corrections with the other sign", volume=-1.0)
flow_log_likelihood.foil("half of the volume corrections", volume=0.5)
flow_log_likelihood.erratum(
    "B-494",
    printed=r"$\log p(x | z) = -\sum_{i=1}^L \log|\det(\partial F_i \circ F_{1:i-1})|$",
    right=r"$\log p(x) = \log p_Z(z) - \sum_{i=1}^L \log|\det \partial F_i(z_{i-1})|$",
    why=r"The base term $\log p_Z(z)$ is missing, and $x$ is a function of $z$, so that there is no"
    r" density of $x$ given $z$: for $F = \mathrm{id}$ the printed value is 0 at every point, and"
    r" not the base log-density.",
    refuted_by="log-density of the identity flow",
    base=0.0,
)


@claim(
    by="identity",
    sources=("A-354",),
    budget=0.3,
    short=r"\mathbb E_{p^*}[-\log p_\theta(x)] = H(p^*) + \mathrm{KL}(p^* \| p_\theta)",
)
def flow_nll_is_kl(volume: float = 1.0):
    r"""Training a flow by likelihood minimises the KL divergence.

    $\mathbb E_{p^*}[-\log p_z(f_\theta^{-1}(x)) - \log|\det J_{f_\theta^{-1}}(x)|] = H(p^*) +
    \mathrm{KL}(p^* \| p_\theta)$, so the negative log-likelihood is minimised, with value $H(p^*)$,
    exactly at $p_\theta = p^*$.

    *Checked* for normal $p^*$ in one and two dimensions and affine flows, whose left side
    Gauss-Hermite quadrature gives exactly and whose right side is known: on a grid of scales
    $a$ of both signs and shifts $b$, with its minimum $H(p^*)$ at $a = \pm s$, $b = m$ and nowhere
    else; for two random flows in two dimensions.

    Knobs:
        volume: The factor before the log-determinant.
    """

    def loss(flow: Any, mean: Tensor, factor: Tensor) -> Tensor:
        nodes, weights = np.polynomial.hermite_e.hermegauss(8)
        grid = torch.cartesian_prod(*[torch.from_numpy(nodes)] * len(mean)).reshape(-1, len(mean))
        share = torch.cartesian_prod(*[torch.from_numpy(weights / weights.sum())] * len(mean))
        z, log_det = flow(mean + grid @ factor.T)
        return -share.reshape(grid.shape).prod(1) @ (normal(z) + volume * log_det)

    m, s = 0.7, 1.3
    entropy = 0.5 * math.log(2 * math.pi * math.e * s**2)
    scales, shifts = (
        s * np.array([0.5, 0.8, 1.0, 1.25, 2.0]),
        m + np.array([-1.0, -0.4, 0.0, 0.4, 1.0]),
    )
    for kind, sign in (("diagonal", 1), ("qr", -1)):  # one reflection of a line is its sign
        found, read = np.zeros((5, 5)), np.zeros((5, 5))
        for i, j in np.ndindex(5, 5):
            form: Any = kind
            flow = LinearFlow(1, kind=form).requires_grad_(False)
            flow.log_scale.data.fill_(math.log(scales[i]))
            flow.shift.data.fill_(float(shifts[j]))
            found[i, j] = loss(flow, torch.tensor([m]), torch.tensor([[s]]))
            read[i, j] = affine_map(flow)[0]
        a, b = scales[:, None], shifts[None]
        yield equals("scale of the map", read, sign * a, sign=sign)
        kl = np.log(a / s) + (s**2 + (m - b) ** 2) / (2 * a**2) - 0.5
        yield equals("negative log-likelihood", found, entropy + kl, sign=sign)
        yield equals("place of its minimum", int(found.argmin()), 12, sign=sign)
        yield equals("its minimum", float(found.min()), entropy, sign=sign)
    mean, factor = torch.randn(2), torch.tensor([[1.0, 0.0], [0.6, 0.8]])
    law = torch.distributions.MultivariateNormal(mean, scale_tril=factor)
    for kind in ("qr", "triangular"):
        flow = mixed(2, kind)
        A, b = affine_map(flow)
        kl = torch.distributions.kl_divergence(
            law, torch.distributions.MultivariateNormal(b, A @ A.T)
        )
        yield equals(
            "negative log-likelihood", loss(flow, mean, factor), law.entropy() + kl, d=2, A=kind
        )


flow_nll_is_kl.foil("without the log-determinant", volume=0.0)
flow_nll_is_kl.foil("the log-determinant with the other sign", volume=-1.0)
