"""Strong, strict and plain convexity: what separates them."""

import math

import torch
from torch import Tensor

from vademecum.claims import at_least, claim, equals
from vademecum.optimization.claims._objectives import Function, tangent_gap
from vademecum.optimization.claims.convexity import CURVES, chords, least_deficit


def witness(name: str, mu: float) -> tuple[Tensor, Tensor]:
    r"""A pair at which a function rises above its tangent by less than $\frac\mu2 |y - x|^2$."""
    if name == "e^x":
        return torch.tensor([[math.log(mu)]]), torch.tensor([[math.log(mu) - 1]])
    return torch.zeros(1, 1), torch.full((1, 1), mu**0.5 / 2)


SMOOTH: dict[str, Function] = {
    "x^2": lambda x: x[:, 0] ** 2,
    "x^2 + cos x": lambda x: x[:, 0] ** 2 + x[:, 0].cos(),
    "x^4": lambda x: x[:, 0] ** 4,
    "e^x": lambda x: x[:, 0].exp(),
    "3x + 1": lambda x: 3 * x[:, 0] + 1,
    "cos": lambda x: x[:, 0].cos(),
}


@claim(
    by="sampling",
    sources=("E-161", "E-162", "E-163"),
    budget=0.5,
    full={"n": 2000},
    short=r"\text{strongly convex} \implies \text{strictly convex} \implies \text{convex}",
)
def convexity_hierarchy(
    strong: tuple[str, ...] = ("x^2", "x^2 + cos x"),
    strict: tuple[str, ...] = ("x^2", "x^4", "e^x"),
    convex: tuple[str, ...] = ("x^2", "x^2 + cos x", "x^4", "e^x", "3x + 1"),
    n: int = 200,
):
    r"""Strong, strict and plain convexity.

    Strong convexity implies strict convexity implies convexity, and no implication can be reversed:
    $x^4$ and $e^x$ are strictly but for no $\mu > 0$ strongly convex on $\mathbb R$, a linear
    function is convex but not strictly. Putting $\mu = 0$ in the definition of strong convexity,
    $f(y) \ge f(x) + \nabla f(x)^\top (y - x) + \frac\mu2 \|y - x\|^2$, gives exactly the
    first-order condition of convexity.

    *Proof.* A strongly convex $f$ stays below its chords by at least
    $\frac\mu2 \lambda (1 - \lambda) \|x - y\|^2$, which is checked for $x^2$ and $x^2 + \cos x$
    with $\mu = 1$. For every $\mu$ there is a pair at which the other two fail: from 0 to
    $\frac12 \sqrt\mu$ the quartic rises by half of $\frac\mu2 \|y - x\|^2$, and $e^x$ from
    $\log \mu$ to $\log \mu - 1$ by $\frac2e$ of it; checked for $\mu = 1, 10^{-3}, 10^{-6}$.

    Knobs:
        strong: The functions that are said to be strongly convex, with every $\mu \le 1$.
        strict: Those that are said to be strictly convex.
        convex: Those that are said to be convex.
        n: How many chords are drawn.
    """
    for mu in (1.0, 1e-3, 1e-6):
        for name in strong:
            for at in ("x^4", "e^x"):
                x, y = witness(at, mu)
                share = tangent_gap(SMOOTH[name], y, x) / (mu / 2 * (y - x).square().sum(1))
                yield at_least("rise above the tangent over $\\frac\\mu2 |y - x|^2$", share, 1.0,
                               f=name, mu=mu)  # fmt: skip
        for name, known in (("x^4", 0.5), ("e^x", 2 / math.e)):
            x, y = witness(name, mu)
            share = tangent_gap(SMOOTH[name], y, x) / (mu / 2 * (y - x).square().sum(1))
            yield equals("least rise over $\\frac\\mu2 |y - x|^2$", share, known, f=name, mu=mu)
    tried = chords(n, inner=True)
    for name in strict:
        least = least_deficit(CURVES[name][0], tried)
        sign = int(least > 0) - int(least < 0)
        yield equals("sign of the least distance to a chord", sign, 1, f=name)
    sign = int(least_deficit(CURVES["3x + 1"][0], tried) != 0)
    yield equals("sign of the distance of a line to its chords", sign, 0)
    x, y, k = (torch.tensor([[float(v)] for v in part]) for part in zip(*tried, strict=True))
    for name in ("x^2", "x^2 + cos x"):
        f = SMOOTH[name]
        deficit = k[:, 0] * f(x) + (1 - k[:, 0]) * f(y) - f(k * x + (1 - k) * y)
        least = (k * (1 - k) * (x - y).square())[:, 0] / 2
        yield at_least("distance to a chord", deficit, least, f=name)
    for name in convex:
        yield at_least("rise above the tangent, $\\mu = 0$", tangent_gap(SMOOTH[name], x, y), 0.0,
                       tol=1e-12, f=name)  # fmt: skip


convexity_hierarchy.foil("the quartic, strictly convex", strong=("x^4",))
convexity_hierarchy.foil("the exponential function, strictly convex", strong=("e^x",))
convexity_hierarchy.foil("a line, convex", strict=("3x + 1",))
convexity_hierarchy.foil("the cosine, with $\\mu = 0$", convex=("cos",))
