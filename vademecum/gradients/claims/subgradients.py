"""What the course claims of rectified units, and of subgradients at their kinks."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.gradients.backpropagation import backprop
from vademecum.gradients.subgradients import subdifferential as slopes_of
from vademecum.gradients.tape import Tape


def half_active(m: int, n: int) -> tuple[Tensor, Tensor]:
    """A matrix and a vector, every other product of a row with which is positive, none near 0."""
    z, theta = torch.randn(n), torch.randn(m, n)
    sign = torch.where(torch.arange(m) % 2 == 0, 1.0, -1.0)
    side = theta @ z
    wanted = sign * (side.abs() + 0.1)
    return theta + torch.outer(wanted - side, z) / (z @ z), z


def central(f: Callable[[Tensor], Tensor], x: Tensor, h: float = 1e-5) -> Tensor:
    """The Jacobian by central differences, exact where f is linear between the two points."""
    steps = h * torch.eye(x.numel()).reshape(-1, *x.shape)
    return torch.stack([(f(x + e) - f(x - e)).flatten() / (2 * h) for e in steps], 1)


@claim(by="identity", sources=("B-163", "B-165", "B-177"), budget=0.5)
def relu_jacobian(mask: str = "rows"):
    r"""The Jacobian of a ReLU layer.

    Away from kinks $\frac{\partial}{\partial x} \max(0, x) = \operatorname{diag}(H(x))$ with the
    Heaviside step $H$, so that the layer $F(z) = \max(0, \Theta z)$ has the Jacobian
    $\operatorname{diag}(H(\Theta z))\, \Theta$: the weight matrix with the rows of inactive units
    set to zero, entries $1[\theta_i \cdot z > 0]\, \Theta_{ij}$.
    """
    for m, n in ((4, 4), (6, 4)):
        theta, z = half_active(m, n)
        step = torch.heaviside(theta @ z, torch.zeros(()))
        found = {"rows": step[:, None] * theta, "columns": theta * step[:n], "none": theta}[mask]
        wanted = central(lambda z, theta=theta: (theta @ z).relu(), z)
        tape = Tape(lambda z, theta=theta: (theta @ z).relu(), z)
        yield equals(found, wanted, m=m)
        yield equals(tape.jacobian("reverse").matrix, wanted, m=m)
        yield equals(tape.jacobian("forward").matrix, wanted, m=m)
        yield equals(torch.diag(step), central(torch.relu, theta @ z), m=m)


relu_jacobian.foil("the columns masked, not the rows", mask="columns")
relu_jacobian.foil("no mask", mask="none")


@claim(by="identity", sources=("B-164",), budget=0.5)
def relu_weight_derivative(factor: str = "x_j", other_units: bool = False):
    r"""The derivative of a ReLU layer in its weights.

    Away from kinks $\frac{\partial}{\partial W_{ij}} \max(0, W x)_k = \delta_{ik}\,
    1[W_i \cdot x > 0]\, x_j$ with $W_i$ the $i$-th row; the indicator can be written
    $\max(0, \operatorname{sign}(W_i \cdot x))$.
    """
    n = 4
    W, x = half_active(n, n)
    wanted = central(lambda W: (W @ x).relu(), W).reshape(n, n, n)  # k, i, j
    tape = Tape(lambda W: (W @ x).relu(), W)
    yield equals(tape.jacobian().matrix.reshape(n, n, n), wanted)
    active = (W @ x).sign().clamp(min=0)
    for k in range(n):
        for i in range(n):
            on = active[k] if other_units else active[i] * (i == k)
            row = on * (x if factor == "x_j" else x[i].expand(n))
            yield equals(row, wanted[k, i], i=i, k=k)


relu_weight_derivative.foil("$x_i$ in place of $x_j$", factor="x_i")
relu_weight_derivative.foil("unit $k$ does not depend on the other rows", other_units=True)


@claim(by="identity", sources=("B-176",), budget=0.5)
def inactive_relu(slope: float = 0.0):
    r"""Inactive ReLU units block the gradient.

    If unit $j$ of a ReLU layer is inactive at an input (negative pre-activation), neither its own
    weights nor, through it, its inputs receive any gradient from that input: $\nabla_{\theta_j} z_j
    = 0$ and $\nabla_{z_{l-1}} z_j = 0$.
    """
    W, x = half_active(6, 4)
    rectifier = nn.LeakyReLU(slope) if slope else nn.ReLU()
    out = nn.Linear(6, 2)
    model = nn.Sequential(nn.Linear(4, 6, bias=False), rectifier, out)
    model[0].weight = nn.Parameter(W)

    def ask() -> tuple[Tensor, Tensor]:
        found = backprop(model, x[None], torch.tensor([1]))
        assert found.input_error is not None
        return found.gradients["0.weight"], found.input_error

    rows, at_input = ask()
    yield equals(rows[1::2], 0.0, tol=0.0)
    yield at_least(rows[::2].norm(dim=1), 1e-9)
    with torch.no_grad():
        out.weight[:, 1::2] += torch.randn(2, 3)
    yield equals(ask()[1], at_input, tol=0.0)


inactive_relu.foil("a leaky unit lets some of it through", slope=0.01)


GRID = torch.arange(-160, 161) / 32.0
SMOOTH = {  # with the slope, and a bound on the second derivative up to 33/32
    "square": (torch.square, lambda x: 2 * x, 2.0),
    "exp": (torch.exp, torch.exp, 3.0),
}
KINKED = {
    "abs": torch.abs,
    "relu": torch.relu,
    "leaky_relu": lambda z: torch.where(z > 0, z, z / 4),
}


def accepted(
    f: Callable[[Tensor], Tensor], x: Tensor, g: Tensor, sides: str, sign: float
) -> Tensor:
    """Which slopes satisfy the subgradient inequality at x, for all points of the grid."""
    u = GRID.double()
    u = u[u > x] if sides == "right" else u
    gap = f(u)[:, None] - f(x) - g * (u - x)[:, None]
    return (sign * gap >= -1e-12).all(0)  # rounding of exp; all others are exact here


@claim(by="identity", sources=("B-172", "D-121"), budget=0.5)
def subdifferential(sides: str = "both", sign: float = 1.0):
    r"""The subdifferential of a convex function.

    For convex $f$ and a point $x$ of its domain $\partial f(x) = \{g : f(y) \ge f(x) + g^T (y - x)$
    for all $y\}$; its elements are the subgradients. Where $f$ is differentiable it is the single
    point $\nabla f(x)$.

    *Check.* Slopes and points $y$ run over grids of binary fractions, so that arithmetic is exact
    for all functions but $e^x$. Between points of a grid of step $h$ a smooth $f$ lets slopes
    through that differ from $f'(x)$ by at most $h \max f'' / 2$.
    """
    slopes = torch.arange(-96, 97) / 32.0
    for name, f in KINKED.items():
        for x in (-2.0, 0.0, 0.5):
            at = torch.tensor(x)
            known = slopes_of(name, at, negative_slope=0.25).contains(slopes)
            yield equals(accepted(f, at, slopes, sides, sign), known, x=x, unit=name)
    for name, (f, slope, bend) in SMOOTH.items():
        for x in (0.0, 1.0):
            at = torch.tensor(x)
            gap = (slopes - slope(at)).abs()[accepted(f, at, slopes, sides, sign)]
            yield at_most(gap.max() if len(gap) else torch.inf, bend / 64, x=x, unit=name)
    corners = torch.cartesian_prod(*[torch.arange(-4, 5) / 2.0] * 2)
    shares = torch.cartesian_prod(*[torch.arange(-2, 7) / 4.0] * 2)
    for x in ([1.0, 1.0], [1.0, 0.5]):
        z = torch.tensor(x)
        beyond = corners[corners[:, 0] > z[0]] if sides == "right" else corners
        gap = beyond.amax(1)[:, None] - z.max() - (beyond - z) @ shares.T
        known = slopes_of("max", z).contains(shares)
        yield equals((sign * gap >= 0).all(0), known, x=x[1], unit="max")


subdifferential.foil("the inequality reversed", sign=-1.0)
subdifferential.foil(
    "tested for $y > x$ only, every slope below the right derivative passes", sides="right"
)


@claim(by="identity", sources=("D-122",), budget=0.5)
def subgradient_optimality(criterion: str = "set"):
    r"""A zero subgradient characterises the minimum.

    For convex $f$ (not necessarily differentiable) $x$ is a global minimiser if and only if
    $0 \in \partial f(x)$: the subgradient inequality with $g = 0$ says just that.

    *Check.* $\frac12 (w - c)^2 + |w|$, whose minimiser is the soft threshold of $c$, and the
    maximum of tangents of a parabola, on grids of binary fractions that hold all their kinks.
    """
    w = torch.arange(-128, 129) / 32.0
    for c in torch.arange(-12, 13).tolist():
        c = c / 4
        f = (w - c) ** 2 / 2 + w.abs()
        if criterion == "set":
            known = slopes_of("abs", w)
            optimal = (w - c + known.low <= 0) & (w - c + known.high >= 0)
        else:
            optimal = w - c + w.sign() == 0
        yield equals(optimal, f == f.min(), c=c)
        soft = max(abs(c) - 1, 0.0) * (1 if c > 0 else -1)
        yield equals(w[f.argmin()], soft, c=c)
    for _ in range(3):
        t, c = torch.randperm(13)[:6] - 6.0, float(torch.randint(-4, 5, ())) / 4
        lines = 2 * t * (w - c)[:, None] - t**2
        f, top = lines.amax(1), slopes_of("max", lines).high > 0
        low = torch.where(top, 2 * t, torch.inf).amin(1)
        high = torch.where(top, 2 * t, -torch.inf).amax(1)
        inside = (low <= 0) & (high >= 0)
        if (t <= 0).any() and (t >= 0).any():  # else it falls for ever
            yield equals(inside, f == f.min(), c=c)


subgradient_optimality.foil(
    r"$f'(w) = 0$ with $\operatorname{sign}(0) = 0$ misses the minimum at 0 for $0 < |c| < 1$",
    criterion="sign",
)

SETS = {
    "[-1, 1]": lambda g: (g >= -1) & (g <= 1),
    "{-1, 1}": lambda g: (g == -1) | (g == 1),
    "{0}": lambda g: g == 0,
    "[0, 1]": lambda g: (g >= 0) & (g <= 1),
}


def members(unit: str, f: Callable[[Tensor], Tensor], at_zero: str, points: tuple[float, ...]):
    """Compare the slopes below the graph with what the library gives, at 0 also with a set."""
    u, g = torch.arange(-40, 41) / 8.0, torch.arange(-16, 17) / 8.0  # exact in binary
    for z in points:
        at = torch.tensor(z)
        below = (f(u)[:, None] >= f(at) + g * (u - at)[:, None]).all(0)
        yield equals(slopes_of(unit, at).contains(g), below, z=z)
        if z == 0:
            yield equals(SETS[at_zero](g), below, z=z)


@claim(by="witness", sources=("A-039", "B-181"), budget=0.5)
def subdifferential_abs(at_zero: str = "[-1, 1]"):
    r"""The subdifferential of the absolute value.

    $\partial |z| = \{1\}$ for $z > 0$, $\{-1\}$ for $z < 0$ and $[-1, 1]$ at $z = 0$.
    """
    yield from members("abs", torch.abs, at_zero, (-2.0, 0.0, 3.0))


subdifferential_abs.foil("the slopes between are subgradients, too", at_zero="{-1, 1}")
subdifferential_abs.foil("autograd's choice is only one of them", at_zero="{0}")
subdifferential_abs.foil("negative slopes belong to it", at_zero="[0, 1]")


@claim(by="witness", sources=("B-171",), budget=0.5)
def subdifferential_relu(at_zero: str = "[0, 1]"):
    r"""The subdifferential of the ReLU.

    $\partial (z)_+ = \{0\}$ for $z < 0$, $\{1\}$ for $z > 0$ and $[0, 1]$ at $z = 0$; automatic
    differentiation picks one element there.
    """
    yield from members("relu", torch.relu, at_zero, (-1.0, 0.0, 1.0))
    zero = torch.zeros((), requires_grad=True)
    (slope,) = torch.autograd.grad(torch.relu(zero), zero)
    for chosen in (slope, Tape(torch.relu, torch.zeros(())).pull().gradients[0]):
        yield at_least(chosen, 0.0)
        yield at_most(chosen, 1.0)


subdifferential_relu.foil(
    "slope $-1$, copied from the absolute value, is above the graph at $u = -1$", at_zero="[-1, 1]"
)
