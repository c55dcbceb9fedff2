"""Lagrange's multipliers: extrema under a constraint."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.claims import claim, equals


def best_angle(height: Callable[[Tensor], Tensor]) -> Tensor:
    """The angle at which a function on the circle is largest, by its values alone."""
    low, width = torch.tensor(0.0), 2 * math.pi
    for _ in range(12):  # each round narrows the bracket a hundredfold until rounding ends it
        grid = low + width * torch.linspace(0, 1, 401)
        i = int(height(grid).argmax())
        low, width = grid[i] - width / 200, width / 100
        if width < 1e-7:
            break
    return low + width / 2


@claim(
    by="identity",
    sources=("D-061", "E-049"),
    budget=0.5,
    full={"sets": 50},
    short=r"x^* \text{ extremal on } g = c,\ \nabla g \ne 0: \nabla f(x^*) ="
    r" \gamma \nabla g(x^*),\ \gamma = \tfrac{d}{dc} f(x^*(c))",
)
def lagrange_multipliers(
    price: int = 1,
    constrained: bool = True,
    power: int = 1,
    extremum: bool = False,
    sets: int = 3,
):
    r"""Lagrange multipliers for one equality constraint.

    If $x^*$ is a local extremum of $f$ on $\{g = c\}$ and $\nabla g(x^*) \ne 0$, there is a
    multiplier $\gamma$ with $\nabla f(x^*) = \gamma \nabla g(x^*)$: $(x^*, \gamma)$ is a stationary
    point of $\mathcal L(x, \gamma) = f(x) - \gamma\,(g(x) - c)$. With this sign
    $\gamma = \frac{d}{dc} f(x^*(c))$, the price of the constraint. The condition is necessary, not
    sufficient.

    Checked for $x y$ on $x + y = c$, with the maximum $c^2 / 4$ at $x = y = \gamma = c / 2$; for
    $e^{a^\top x}$ on random ellipses, its maximum found from values alone; for $x$ on $x = y^2$,
    least at the origin; and for $y$ on $y = x^3$, where the origin is stationary and no extremum.

    Knobs:
        price: The sign with which the multiplier is the price of the constraint.
        constrained: Whether the Lagrangian is made stationary, and not $f$ alone.
        power: The $k$ of the constraint $x^k = y^2$ on which $x$ is least at the origin.
        extremum: Whether every stationary point is said to be an extremum.
        sets: How many ellipses are drawn.
    """
    for c in (2, 6, 10):
        matrix, rhs = torch.tensor([[0.0, 1, -1], [1, 0, -1], [1, 1, 0]]), torch.tensor([0.0, 0, c])
        if not constrained:  # the gradient of f alone
            matrix, rhs = torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]]), torch.zeros(3)
        x, y, gamma = torch.linalg.solve(matrix, rhs)
        yield equals("$x + y$ at the stationary point", x + y, c, c=c)
        yield equals("$x y$ at the stationary point", x * y, c**2 / 4, c=c)
        rise = ((c + 1) ** 2 - (c - 1) ** 2) / 8  # the slope of c^2 / 4
        yield equals("slope of the maximum of $x y$ in c", rise, price * gamma, c=c)
    for k in range(sets):
        a, b = torch.randn(2), torch.randn(2, 2)
        m = b @ b.T + torch.eye(2)
        root = torch.linalg.cholesky(torch.linalg.inv(m))
        f = lambda x, a=a: (x @ a).exp()  # noqa: E731

        def top(c: float, f=f, root=root) -> Tensor:
            spot = lambda t: math.sqrt(c) * torch.stack([t.cos(), t.sin()], -1) @ root.T  # noqa: E731
            return spot(best_angle(lambda t: f(spot(t))))

        x = top(1.0).requires_grad_()
        slope = torch.autograd.grad(f(x), x)[0]
        normal = 2 * m @ x.detach()
        gamma = slope @ normal / (normal @ normal)
        # An angle is known from values to the root of their rounding, some 1e-8.
        yield equals("gradient at the top of an ellipse", slope, gamma * normal, tol=1e-6, set=k)
        # f is exp(s sqrt(c)) with s < 10, so that this errs by (h s)^2 / 24 < 5e-6 of gamma.
        h = 1e-3
        rise = (f(top(1 + h)) - f(top(1 - h))) / (2 * h)
        yield equals("slope of the top of an ellipse in c", rise, price * gamma, tol=5e-6, set=k)
    origin = torch.zeros(2, requires_grad=True)
    normal = torch.autograd.grad(origin[0] ** power - origin[1] ** 2, origin)[0]
    share = normal[0] * normal  # of the gradient (1, 0) along a normal of length 1, or of none
    yield equals("gradient of $x$ at its least point", torch.tensor([1.0, 0.0]), share, power=power)
    normal = torch.autograd.grad(origin[1] - origin[0] ** 3, origin)[0]
    yield equals("gradient of $y$ at the inflection", torch.tensor([0.0, 1.0]), normal[1] * normal)
    y = torch.tensor([-0.1, 0.1]) ** 3
    signs = int(y.sign().prod())
    yield equals("product of the signs of $y$ on both sides", signs, 1 if extremum else -1)


lagrange_multipliers.foil("unconstrained stationarity gives (0, 0)", constrained=False)
lagrange_multipliers.foil("the Lagrangian with a plus has the price with a minus", price=-1)
lagrange_multipliers.foil(
    r"at the cusp of $x^3 = y^2$ the constraint has no gradient, and $x$ no multiplier", power=3
)
lagrange_multipliers.foil("a stationary point need not be an extremum", extremum=True)
