"""Linear maps: matrices, the bias trick, and the geometry of a unit."""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.arrays import rational_rank
from vademecum.claims import at_least, at_most, claim, equals, integers
from vademecum.connectionism import augment

Kind = Literal["linear", "affine", "relu"]


def black_box(kind: Kind, n: int, m: int) -> Callable[[Tensor], Tensor]:
    """A map of integer vectors: linear, affine with a shift that is not zero, or with a kink."""
    a, b = integers(m, n, most=4), integers(m, most=4).abs() + 1
    return {
        "linear": lambda x: x @ a.T,
        "affine": lambda x: x @ a.T + b,
        "relu": lambda x: x.clamp(min=0),
    }[kind]


@claim(
    by="identity",
    sources=("B-077", "B-078", "B-079"),
    budget=0.5,
    full={"pairs": 10**5},
    short=r"f(x + y) = f(x) + f(y),\; f(\alpha x) = \alpha f(x) \iff f(x) = A x,\; A e_j = f(e_j)",
)
def linear_map(kind: Kind = "linear", pairs: int = 100):
    r"""Linear maps are matrices.

    A map $f: \mathbb{R}^n \to \mathbb{R}^m$ is linear when it is additive,
    $f(x + y) = f(x) + f(y)$, and homogeneous, $f(\alpha x) = \alpha f(x)$ for every real $\alpha$,
    negative ones included. Equivalently $f(x) = A x$ for exactly one matrix $A$, whose columns are
    the images $f(e_1), \dots, f(e_n)$ of the unit vectors.

    *Proof.* $f(x) = f(\sum_j x_j e_j) = \sum_j x_j f(e_j)$. Homogeneity for $\alpha \ge 0$ would
    not do: ReLU has it.

    Knobs:
        kind: Which map is taken for a linear one.
        pairs: How many pairs $x, y$ of integer vectors are drawn.
    """
    for n, m in ((4, 3), (2, 5), (1, 1)):
        f = black_box(kind, n, m)
        x, y = integers(2, pairs, n, most=4)
        at = {"n": n, "m": m}
        yield equals("image of a sum", f(x + y), f(x) + f(y), tol=0.0, **at)
        for alpha in range(-3, 4):
            image = f(alpha * x)
            yield equals("image of a multiple", image, alpha * f(x), tol=0.0, alpha=alpha, **at)
        columns = f(torch.eye(n)).T
        yield equals("image, against the matrix", f(x), x @ columns.T, tol=0.0, **at)
    relu = black_box("relu", 4, 4)
    x = integers(pairs, 4)
    x[0] = 1  # whatever else was drawn
    for alpha in range(-3, 4):
        broken = int((relu(alpha * x) != alpha * relu(x)).sum())
        if alpha >= 0:
            yield equals("entries where ReLU is not homogeneous", broken, 0, alpha=alpha)
        else:
            yield at_least("entries where ReLU is not homogeneous", broken, 1, alpha=alpha)


linear_map.foil(r"ReLU is homogeneous for $\alpha \ge 0$ only, and not additive", kind="relu")
linear_map.foil(r"$x \mapsto A x + b$: additivity is off by exactly $b$", kind="affine")


@claim(
    by="identity",
    sources=("B-073", "B-081"),
    budget=0.5,
    full={"pairs": 10**5},
    short=r"f(\alpha x + (1 - \alpha) y) = \alpha f(x) + (1 - \alpha) f(y) \iff f(x) = A x + b",
)
def affine_map(total: int = 1, constant: float = 1.0, kind: Kind = "affine", pairs: int = 100):
    r"""Affine maps and the bias trick.

    $f$ is affine iff $f(\alpha x + \beta y) = \alpha f(x) + \beta f(y)$ for all $x, y$ and all real
    $\alpha, \beta$ with $\alpha + \beta = 1$, i.e. iff $f(x) = A x + b$. An affine unit
    $\langle x, \theta \rangle + b$ is the linear unit with weights $(\theta, b)$ on the input
    $(x, 1)$ extended by a constant one.

    *Proof.* If the identity holds, $g = f - f(0)$ is homogeneous (take $y = 0$) and additive (take
    $\alpha = \beta = \frac12$ and double), so linear; and conversely
    $\alpha b + \beta b = b$ iff $\alpha + \beta = 1$ or $b = 0$.

    Knobs:
        total: The sum $\alpha + \beta$.
        constant: The constant that extends the input of the linear unit.
        kind: Which map is taken for an affine one.
        pairs: How many pairs $x, y$ of integer vectors are drawn.
    """
    for n, m in ((4, 3), (2, 5)):
        f = black_box(kind, n, m)
        x, y = integers(2, pairs, n, most=4)
        for alpha in range(-3, 4):
            beta, at = total - alpha, {"alpha": alpha, "n": n}
            image, mixed = f(alpha * x + beta * y), alpha * f(x) + beta * f(y)
            yield equals("image of a combination", image, mixed, tol=0.0, **at)
        b = f(torch.zeros(n))
        columns = (f(torch.eye(n)) - b).T
        yield equals("image, against $A x + b$", f(x), x @ columns.T + b, tol=0.0, n=n)
        unit = nn.Linear(n, 1)
        with torch.no_grad():
            extended = torch.cat([unit.weight[0], unit.bias])
            value = augment(x, constant) @ extended
            yield equals("linear unit on the extended input", value, unit(x)[:, 0], n=n)


affine_map.foil(r"for $\alpha + \beta = 2$ both sides differ by exactly $b$", total=2)
affine_map.foil("ReLU is not affine", kind="relu")
affine_map.foil("a constant that is not one changes the bias", constant=0.5)


@claim(
    by="identity",
    sources=("B-080", "E-178"),
    budget=0.5,
    full={"stacks": 200},
    short=r"Q (W x) = (Q W) x,\quad"
    r" \operatorname{rk}(Q W) \le \min(\operatorname{rk} Q, \operatorname{rk} W)",
)
def composition(between: Callable[[], nn.Module] = nn.Identity, cap: int = 2, stacks: int = 12):
    r"""Composed linear layers are one linear layer.

    If $f(x) = A x$ and $g(x) = B x$, then $f \circ g$ is linear with matrix $A B$, so a stack
    $F(x) = Q W x$ of linear layers without nonlinearity computes a single linear map. Depth adds no
    expressiveness, it only caps the rank,
    $\operatorname{rank}(Q W) \le \min(\operatorname{rank} Q, \operatorname{rank} W)$, by the inner
    width.

    *Proof.* $A (B x) = (A B) x$; the image of $Q W$ lies in that of $Q$, and its kernel contains
    that of $W$.

    Knobs:
        between: The module between the first two layers.
        cap: The rank that is not exceeded, here the inner width.
        stacks: How many stacks of three layers are drawn.
    """
    sizes = (4, 2, 3, 5)
    for stack in range(stacks):
        layers = [nn.Linear(i, o, bias=False) for i, o in pairwise(sizes)]
        with torch.no_grad():
            for layer in layers:
                layer.weight.copy_(integers(*layer.weight.shape, most=4))
            layers[0].weight[0, 0] = 1 + stack  # so that no first layer is zero
            net = nn.Sequential(layers[0], between(), layers[1], layers[2])
            product = layers[2].weight @ layers[1].weight @ layers[0].weight
            x = torch.cat([torch.eye(4), -torch.eye(4), integers(50, 4, most=4)])
            rebuilt, image = net(torch.eye(4)).T, net(x)
            at = {"tol": 0.0, "stack": stack}
            yield equals("image under the stack, against one matrix", image, x @ rebuilt.T, **at)
            yield equals("matrix of the stack, against the product", rebuilt, product, **at)
        matrices = [product, *(k.weight for k in layers)]
        ranks = [rational_rank(m.long().tolist()) for m in matrices]
        least = min(ranks[1:])
        yield at_most("rank of the product, against the layers'", ranks[0], least, stack=stack)
        yield at_most("rank of the product, against the width", ranks[0], cap, stack=stack)
    wide, narrow = torch.eye(5)[:, :2], torch.eye(2, 4)
    attained = rational_rank((wide @ narrow).tolist())
    yield equals("rank of a product of unit columns and rows", attained, cap)


composition.foil(r"with a ReLU between, $-e_j$ is not mapped to minus the image", between=nn.ReLU)
composition.foil("the inner width is reached", cap=1)


@claim(
    by="identity",
    sources=("B-072", "B-074", "B-075"),
    budget=0.5,
    full={"directions": 10**5},
    short=r"\nabla_x \langle x, \theta \rangle = \theta,\quad "
    r"\max_{\|\Delta\| = 1} \langle \Delta, \theta \rangle = \|\theta\|",
)
def linear_unit(power: int = 1, lean: float = 0.0, directions: int = 1000):
    r"""Geometry of a linear unit.

    The linear unit $u(x; \theta) = \langle x, \theta \rangle$ is constant on the hyperplanes
    orthogonal to its weights, $u(x + \Delta) = u(x)$ whenever $\Delta \perp \theta$, and its
    gradient is $\theta$: over unit directions it grows fastest along $\theta / \|\theta\|$, at rate
    $\|\theta\|$.

    *Proof.* Linearity, and the inequality of Cauchy and Schwarz.

    Knobs:
        power: The power of $\|\theta\|$ in the steepest rate.
        lean: The share of $\theta$ that is left in steps along the hyperplane.
        directions: How many unit directions are drawn.
    """
    for theta in (torch.tensor([3.0, 4.0]), torch.randn(5)):
        d, norm = len(theta), theta.norm()
        unit = nn.Linear(d, 1, bias=False)
        unit.weight.data[:] = theta
        x = torch.randn(d, requires_grad=True)
        value = unit(x)
        yield equals("gradient in the input", torch.autograd.grad(value, x)[0], theta, d=d)
        with torch.no_grad():
            delta = torch.randn(10, d)
            delta -= (1 - lean) * (delta @ theta / norm**2)[:, None] * theta
            along = unit(x + delta)
            yield equals("value after a step along the hyperplane", along, value, d=d)
            way = nn.functional.normalize(torch.randn(directions, d))
            rate = norm**power
            grown, most = unit(x + way) - value, unit(x + theta / norm) - value
            yield at_most("growth along a unit step", grown, rate, tol=1e-12, d=d)
            yield equals(r"growth along $\theta / \|\theta\|$", most, rate, tol=1e-12, d=d)


linear_unit.foil(
    r"the rate $\|\theta\|^2$: for $\theta = (3, 4)$ the steepest slope is 5, not 25", power=2
)
linear_unit.foil(r"a step with a share of $\theta$ in it", lean=0.5)
