"""What the course claims of linear and affine maps."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals, rational_rank
from vademecum.connectionism.margins import augment


def integers(*shape: int, size: int = 4) -> Tensor:
    """Random integers between `-size` and `size`: arithmetic with them is exact."""
    return torch.randint(-size, size + 1, shape)


def black_box(kind: str, n: int, m: int) -> Callable[[Tensor], Tensor]:
    """A map of integer vectors: linear, affine with a shift that is not zero, or with a kink."""
    a, b = integers(m, n), integers(m).abs() + 1
    return {
        "linear": lambda x: x @ a.T,
        "affine": lambda x: x @ a.T + b,
        "relu": lambda x: x.clamp(min=0),
    }[kind]


@claim(by="identity", sources=("B-077", "B-078", "B-079"), budget=0.5, full={"pairs": 10**5})
def linear_map(kind: str = "linear", pairs: int = 100):
    r"""Linear maps are matrices.

    A map $f: \mathbb{R}^n \to \mathbb{R}^m$ is linear when it is additive,
    $f(x + y) = f(x) + f(y)$, and homogeneous, $f(\alpha x) = \alpha f(x)$ for every real $\alpha$,
    negative ones included. Equivalently $f(x) = A x$ for exactly one matrix $A$, whose columns are
    the images $f(e_1), \dots, f(e_n)$ of the unit vectors.

    *Proof.* $f(x) = f(\sum_j x_j e_j) = \sum_j x_j f(e_j)$. Homogeneity for $\alpha \ge 0$ would
    not do: ReLU has it.
    """
    n = 4
    f = black_box(kind, n, 3)
    x, y = integers(2, pairs, n)
    yield equals(f(x + y), f(x) + f(y))
    relu = black_box("relu", n, n)
    for alpha in range(-3, 4):
        yield equals(f(alpha * x), alpha * f(x), alpha=alpha)
        kinked = int((relu(alpha * x) != alpha * relu(x)).sum())
        yield equals(kinked, 0) if alpha >= 0 else at_least(kinked, 1)
    columns = f(torch.eye(n, dtype=torch.int64)).T
    yield equals(f(x), x @ columns.T)


linear_map.foil(r"ReLU is homogeneous for $\alpha \ge 0$ only, and not additive", kind="relu")
linear_map.foil(r"$x \mapsto A x + b$: additivity is off by exactly $b$", kind="affine")


@claim(by="identity", sources=("B-073", "B-081"), budget=0.5, full={"pairs": 10**5})
def affine_map(total: int = 1, constant: float = 1.0, kind: str = "affine", pairs: int = 100):
    r"""Affine maps and the bias trick.

    $f$ is affine iff $f(\alpha x + \beta y) = \alpha f(x) + \beta f(y)$ for all $x, y$ and all real
    $\alpha, \beta$ with $\alpha + \beta = 1$, i.e. iff $f(x) = A x + b$. An affine unit
    $\langle x, \theta \rangle + b$ is the linear unit with weights $(\theta, b)$ on the input
    $(x, 1)$ extended by a constant one.

    *Proof.* If the identity holds, $g = f - f(0)$ is homogeneous (take $y = 0$) and additive (take
    $\alpha = \beta = \frac12$ and double), so linear; and conversely
    $\alpha b + \beta b = b$ iff $\alpha + \beta = 1$ or $b = 0$.
    """
    n = 4
    f = black_box(kind, n, 3)
    x, y = integers(2, pairs, n)
    for alpha in range(-3, 4):
        beta = total - alpha
        yield equals(f(alpha * x + beta * y), alpha * f(x) + beta * f(y), alpha=alpha)
    b = f(torch.zeros(n, dtype=torch.int64))
    columns = (f(torch.eye(n, dtype=torch.int64)) - b).T
    yield equals(f(x), x @ columns.T + b)
    unit = nn.Linear(n, 1)
    with torch.no_grad():
        extended = torch.cat([unit.weight[0], unit.bias])
        yield equals(augment(x.double(), constant) @ extended, unit(x.double())[:, 0])


affine_map.foil(r"for $\alpha + \beta = 2$ both sides differ by exactly $b$", total=2)
affine_map.foil("ReLU is not affine", kind="relu")
affine_map.foil("a constant that is not one changes the bias", constant=0.5)


@claim(by="identity", sources=("B-080", "E-178"), budget=0.5, full={"stacks": 200})
def composition(between: Callable[[], nn.Module] = nn.Identity, cap: int = 2, stacks: int = 12):
    r"""Composed linear layers are one linear layer.

    If $f(x) = A x$ and $g(x) = B x$, then $f \circ g$ is linear with matrix $A B$, so a stack
    $F(x) = Q W x$ of linear layers without nonlinearity computes a single linear map. Depth adds no
    expressiveness, it only caps the rank,
    $\operatorname{rank}(Q W) \le \min(\operatorname{rank} Q, \operatorname{rank} W)$, by the inner
    width.

    *Proof.* $A (B x) = (A B) x$; the image of $Q W$ lies in that of $Q$, and its kernel contains
    that of $W$.
    """
    sizes = (4, 2, 2, 5)
    for stack in range(stacks):
        layers = [nn.Linear(i, o, bias=False) for i, o in pairwise(sizes)]
        with torch.no_grad():
            for layer in layers:
                layer.weight.copy_(integers(*layer.weight.shape))
            net = nn.Sequential(layers[0], between(), layers[1], layers[2])
            product = layers[2].weight @ layers[1].weight @ layers[0].weight
            x = torch.cat([torch.eye(4), -torch.eye(4), integers(50, 4).double()])
            rebuilt = net(torch.eye(4)).T
            yield equals(net(x).long(), (x @ rebuilt.T).long(), stack=stack)
            yield equals(rebuilt.long(), product.long(), stack=stack)
        matrices = [product, *(k.weight for k in layers)]
        ranks = [rational_rank(m.long().tolist()) for m in matrices]
        yield at_most(ranks[0], min(ranks[1:]), stack=stack)
        yield at_most(ranks[0], cap, stack=stack)


composition.foil(r"with a ReLU between, $-e_j$ is not mapped to minus the image", between=nn.ReLU)
composition.foil("the inner width is reached", cap=1)


@claim(by="identity", sources=("B-072", "B-074", "B-075"), budget=0.5, full={"directions": 10**5})
def linear_unit(power: int = 1, lean: float = 0.0, directions: int = 1000):
    r"""Geometry of a linear unit.

    The linear unit $u(x; \theta) = \langle x, \theta \rangle$ is constant on the hyperplanes
    orthogonal to its weights, $u(x + \Delta) = u(x)$ whenever $\Delta \perp \theta$, and its
    gradient is $\theta$: over unit directions it grows fastest along $\theta / \|\theta\|$, at rate
    $\|\theta\|$.

    *Proof.* Linearity, and the inequality of Cauchy and Schwarz.
    """
    for theta in (torch.tensor([3.0, 4.0]), torch.randn(5)):
        d, norm = len(theta), theta.norm()
        unit = nn.Linear(d, 1, bias=False)
        unit.weight.data[:] = theta
        x = torch.randn(d, requires_grad=True)
        value = unit(x)
        yield equals(torch.autograd.grad(value, x)[0], theta, d=d)
        with torch.no_grad():
            delta = torch.randn(10, d)
            delta -= (1 - lean) * (delta @ theta / norm**2)[:, None] * theta
            yield equals(unit(x + delta), value, d=d)
            way = nn.functional.normalize(torch.randn(directions, d))
            rate = norm**power
            yield at_most(unit(x + way) - value, rate, tol=1e-12, d=d)
            yield equals(unit(x + theta / norm) - value, rate, tol=1e-12, d=d)


linear_unit.foil(
    r"the rate $\|\theta\|^2$: for $\theta = (3, 4)$ the steepest slope is 5, not 25", power=2
)
linear_unit.foil(r"a step with a share of $\theta$ in it", lean=0.5)
