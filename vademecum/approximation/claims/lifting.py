"""From one dimension to many: monomials from smooth units, and ridges that carry them."""

import math

import torch
from torch import Tensor, nn

from vademecum.approximation import best_uniform_fit
from vademecum.approximation.claims._networks import dense
from vademecum.claims import at_least, at_most, claim, equals


def tanh_derivative(k: int, z: Tensor) -> Tensor:
    r"""The $k$-th derivative of $\tanh$: a polynomial in $t = \tanh z$, since $t' = 1 - t^2$."""
    p = [0.0, 1.0]
    for _ in range(k):
        slope = [i * c for i, c in enumerate(p)][1:]
        p = [a - b for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    t = z.tanh()
    return sum((c * t**i for i, c in enumerate(p)), torch.zeros_like(t))


def curvature_range(k: int, b: float, width: float) -> tuple[float, float]:
    r"""The least and the largest $|\tanh^{(k + 2)} / \tanh^{(k)}(b)|$ within a width of $b$.

    They are taken on 2001 points, and miss the true ones by less than $3 \cdot 10^{-5}$ for
    $k \le 4$ and $\mathrm{width} \le 0.4$: by an eighth of the spacing squared,
    $(4 \cdot 10^{-4})^2$, times a derivative of order eight at most, which is below 1224.
    """
    at = torch.tensor(b)
    values = tanh_derivative(k + 2, torch.linspace(b - width, b + width, 2001))
    size = tanh_derivative(k, at).abs() or torch.ones(())
    same = bool((values > 0).all() or (values < 0).all())
    least = float((values.abs().min() - 3e-5) / size) if same else 0.0
    return least, float((values.abs().max() + 3e-5) / size)


@claim(
    by="identity",
    sources=("A-055", "B-126"),
    budget=0.5,
    short=r"\sigma \in C^\infty \text{ no polynomial} \Rightarrow"
    r" \mathrm{span}\{\sigma(a x + b)\} \text{ dense in } C(\mathbb R)",
)
def smooth_activation(b: float = 0.6, order: int = 2, points: int = 201):
    r"""Smooth activations that are no polynomials generate the monomials.

    If $\sigma \in C^\infty(\mathbb R)$ is not a polynomial, the span of
    $x \mapsto \sigma(a x + b)$, $a, b \in \mathbb R$, is dense in $C(\mathbb R)$ uniformly on
    compacts. There is $b$ with $\sigma^{(k)}(b) \ne 0$, and the $k$-th difference quotient in $a$
    at $a = 0$ of $\sigma(a x + b)$, a combination of $k + 1$ units, converges to
    $\sigma^{(k)}(b)\, x^k$; Weierstrass does the rest.

    Checked for $\tanh$ and central differences. Such a quotient is $x^k$ times a mean of
    $\sigma^{(k)}$ over $b + h x S$, where $S$ is the sum of $k$ uniform variables on
    $[-\frac12, \frac12]$, of variance $\frac{k}{12}$. So at $x = 1$ it is
    $\frac{k h^2}{24} |\sigma^{(k + 2)}(\xi)|$ off, for some $|\xi - b| \le \frac{k h}{2}$, and
    elsewhere on $[-1, 1]$ no more than the largest of these.

    Knobs:
        b: The bias at which the difference quotient is taken.
        order: The power of $h$ with which its error falls.
        points: How many points of $[-1, 1]$ the error is measured at.
    """
    x = torch.linspace(-1, 1, points)[:, None]
    for k in (1, 2, 3, 4):
        j = torch.arange(k + 1.0)
        signs = torch.tensor([(-1.0) ** i * math.comb(k, i) for i in range(k + 1)])
        scale = float(tanh_derivative(k, torch.tensor(b))) or 1.0
        for h in (0.2, 0.1, 0.05, 0.025):
            units = dense((k / 2 - j)[:, None] * h, torch.full((k + 1,), b))
            network = nn.Sequential(units, nn.Tanh(), dense((signs / (h**k * scale))[None]))
            error = (network(x) - x**k).abs().max()
            least, most = (k / 24 * h**order * c for c in curvature_range(k, b, k * h / 2))
            yield at_most("distance of $k + 1$ units from $x^k$", error, most, h=h, k=k)
            yield at_least("distance of $k + 1$ units from $x^k$", error, least, h=h, k=k)


smooth_activation.foil(r"without $\sigma^{(k)}(b) \ne 0$: $\tanh''(0) = 0$", b=0.0)
smooth_activation.foil("an error that falls with the first power of $h$", order=1)


@claim(
    by="sampling",
    sources=("A-056", "B-130", "E-125"),
    budget=0.5,
    short=r"\phi(a x + b) \text{ span } C(\mathbb R) \Rightarrow"
    r" \phi(w^\top x + b) \text{ span } C(\mathbb R^n) \text{ densely}",
)
def dimension_lifting(bias: bool = True, scales: bool = True, h: float = 0.05):
    r"""Dimension lifting.

    If the span of $x \mapsto \phi(a x + b)$, $a, b \in \mathbb R$, is a universal approximator on
    $\mathbb R$, then that of $x \mapsto \phi(w^\top x + b)$, $w \in \mathbb R^n$,
    $b \in \mathbb R$, is one on $\mathbb R^n$ for every $n \ge 1$. Both the scale $a$ (the length
    of $w$) and the bias $b$ are needed: without bias combinations of $\tanh$ are odd and stay away
    from $\|x\|^2$; without scale $\sin(x + b) = \cos b \sin x + \sin b \cos x$ spans two
    dimensions.

    Checked for $\|x\|^2 = \sum_k (e_k^\top x)^2$ on a grid of $[-1, 1]^n$, $n = 1, 2, 3$, with the
    units $\tanh(\pm h x_k + b)$ and $\tanh(b)$; quoted beyond. Their best combination is no worse
    than the sum of the $n$ second difference quotients, each of which is
    $\frac{h^2}{12} \sup |\tanh''''| / |\tanh''(b)|$ off at most.

    Knobs:
        bias: Whether the units have a bias, of 0.6.
        scales: Whether waves may have several frequencies.
        h: The scale of the units, the step of the difference quotients.
    """
    b = 0.6 if bias else 0.0
    for n, side in ((2, 21), (1, 41), (3, 7)):
        line = torch.linspace(-1, 1, side)
        x = torch.cartesian_prod(*[line] * n).view(-1, n)
        units = torch.tanh(torch.cat([h * x, -h * x, 0 * x[:, :1]], 1) + b)
        found = best_uniform_fit(units, x.square().sum(1))
        limit = n * h**2 / 12 * curvature_range(2, 0.6, h)[1]
        yield at_most(r"distance of the best network from $\|x\|^2$", found.error, limit, n=n)
    t = 2 * math.pi * torch.arange(40) / 40
    a = torch.arange(1.0, 6).repeat(2) if scales else torch.ones(10)
    waves = (a * t[:, None] + torch.linspace(-1, 1.1, 10)).sin()
    yield equals("dimension of the span of ten waves", torch.linalg.matrix_rank(waves), 10)


dimension_lifting.erratum(
    "B-130",
    printed=r"$H_\sigma^1$ univ. approx for $C(\mathbb R)$ implies $H_\sigma^n$ univ. approx for"
    r" $C(\mathbb R^n)$, with $\mathcal G_\sigma^n = \{g : g(x) = \sigma(x \cdot \theta)\ \theta"
    r" \in \mathbb R^n\}$",
    right=r"$\mathcal G_\sigma^n = \{g : g(x) = \sigma(x \cdot \theta + b)\}$",
    why=r"The $n$-dimensional class is printed without a bias. With $\sigma = \tanh$ the"
    r" one-dimensional class (with bias) is universal, but all combinations of"
    r" $\tanh(x \cdot \theta)$ are odd and stay at distance at least 2 from $\|x\|^2$ on"
    r" $[-1, 1]^2$.",
    weight="hard",
    refuted_by=r"distance of the best network from $\|x\|^2$",
    bias=False,
)
dimension_lifting.erratum(
    "E-125",
    printed=r"span$(\phi(x + b) : b \in \mathbb R)$ universally approximates $C(\mathbb R)$, given"
    " as the lifted conclusion",
    right=r"span$(\phi(w^\top x + b))$ universally approximates $C(\mathbb R^d)$",
    why="As scanned (badly, Leshno reads Leshto): it repeats the one-dimensional hypothesis instead"
    r" of a statement on $C(\mathbb R^d)$ and drops the scale: for $\phi = \sin$,"
    r" $\sin(x + b) = \cos b \sin x + \sin b \cos x$ spans only two dimensions.",
    weight="scan",
    refuted_by="dimension of the span of ten waves",
    scales=False,
)
