"""What the course claims of the perceptron rule."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism.kernel_perceptron import KernelPerceptron
from vademecum.connectionism.margins import augment
from vademecum.connectionism.mistake_path import perceptron_loss, perceptron_path
from vademecum.connectionism.perceptron import Perceptron

RULES: dict[str, Callable[[Tensor], Tensor]] = {
    "a tie is a mistake": lambda margin: margin <= 0,
    "a tie is right": lambda margin: margin < 0,
    "every example": lambda margin: torch.ones_like(margin, dtype=torch.bool),
}
"""Which examples call for an update, given their functional margins."""


def separated(n: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Integer points, labels, and an integer separator through the origin."""
    v = torch.randint(-3, 4, (d,))
    v[0] = 2
    x = torch.randint(-5, 6, (8 * n, d))
    x[::2, 0] = torch.randint(1, 6, (4 * n,))  # enough points off the hyperplane, come what may
    x = x[x @ v != 0][:n]
    return x, (x @ v).sign(), v


def unseparated(n: int, d: int) -> tuple[Tensor, Tensor]:
    """Integer points with random labels, and one of them with both."""
    x = torch.randint(-5, 6, (n, d))
    x[:2] = torch.randint(1, 6, (d,))
    y = torch.randint(0, 2, (n,)) * 2 - 1
    y[:2] = torch.tensor([1, -1])
    return x, y


@claim(by="identity", sources=("A-025", "B-040", "C-009", "C-010"), budget=0.5)
def perceptron_update(rule: str = "a tie is a mistake", step: int = 1, n: int = 30):
    r"""The perceptron rule learns from its mistakes, and ties are mistakes.

    If $y (\langle x, w \rangle + b) \le 0$ set $w \leftarrow w + y x$, $b \leftarrow b + y$
    (homogeneous: $\Delta\theta = y x$), otherwise change nothing. A point exactly on the boundary
    counts as a mistake, or nothing would ever happen from $\theta^0 = 0$. Each update raises the
    functional margin of its example by exactly $\|x\|^2 + 1$ (homogeneous: $\|x\|^2$). On separable
    data the cyclic rule ends without errors, after at most $\|\theta^*\|^2 R^2$ updates if
    $y \langle x, \theta^* \rangle \ge 1$ and $\|x\| \le R$ for all examples.
    """
    three = torch.tensor([[1, 0], [0, 1], [-1, -1]]), torch.tensor([1, 1, -1])
    path = perceptron_path(*three, mistake=RULES[rule])
    yield equals(len(path.examples), 2)
    for d in (1, 2, 4):
        x, y, v = separated(n, d)
        for bias in (0, 1):
            tilde = augment(x) if bias else x
            path = perceptron_path(tilde, y, mistake=RULES[rule])
            shown, sign = tilde[path.examples], y[path.examples]
            yield equals(path.weights.diff(dim=0), step * sign[:, None] * shown, d=d, bias=bias)
            rise = sign * (shown * path.weights[1:]).sum(1) - path.margins
            yield equals(rise, step * (x[path.examples] ** 2).sum(1) + bias * step, d=d, bias=bias)
            yield at_least(y * (tilde @ path.weights[-1]), 1, d=d, bias=bias)
            radius2 = int((tilde**2).sum(1).max())
            yield at_most(len(path.examples), int(v @ v) * radius2, d=d, bias=bias)
            fast = Perceptron(shuffle=False, tol=None, fit_intercept=bool(bias))
            fast.fit(x.double(), y)
            yield equals(fast.mistakes_, len(path.examples), d=d, bias=bias)
            both = torch.cat([fast.coef_[0], fast.intercept_])[: d + bias]
            yield equals(both.long(), path.weights[-1], d=d, bias=bias)


perceptron_update.foil(r"$w \leftarrow w - y x$ lowers the margin", step=-1)
for where, printed in (
    ("A-025", r"$\Delta\theta=\mathbf 0$ if $y\cdot x^\top\theta\ge0$, else $yx$"),
    ("B-040", r"$\Delta\theta=\{0,\ y(x\cdot\theta)\geq0;\ yx,\ \text{otherwise}\}$"),
):
    perceptron_update.erratum(
        where,
        printed=printed,
        right=r"$\Delta\theta=0$ if $y\,x\cdot\theta>0$, else $yx$",
        why=r"started at $\theta^0=0$, as the sheet's convergence proof is, every "
        r"$y\,x\cdot\theta$ is 0, and the printed rule never updates, whatever the data",
        rule="a tie is right",
    )


@claim(by="sampling", sources=("A-026", "B-041"), budget=0.5, full={"updates": 5000})
def perceptron_obtuse_updates(
    rule: str = "a tie is a mistake", most: int = 0, updates: int = 300, n: int = 30
):
    r"""Perceptron updates point against the weights.

    At every update $\langle \Delta\theta, \theta \rangle = y \langle x, \theta \rangle \le 0$, and
    less than 0 unless the example lies on the boundary (as at the first update from 0): each
    correction forms a right or obtuse angle with the vector that it corrects, which is why the
    weights grow slowly. It takes no separability, and any order of the examples will do.
    """
    for d in (1, 2, 5):
        for x, y in (unseparated(n, d), separated(n, d)[:2]):
            for order in ("cyclic", "shuffled", "worst"):
                options: dict[str, Any] = {"order": order, "max_iter": updates}
                path = perceptron_path(x, y, mistake=RULES[rule], **options)
                before = path.weights[:-1]
                inner = (path.weights.diff(dim=0) * before).sum(1)
                yield at_most(inner, most, d=d, order=order)
                off = (x[path.examples] * before).sum(1) != 0
                if off.any():
                    yield at_most(inner[off], -1, d=d, order=order)


perceptron_obtuse_updates.foil("strictly obtuse: the first update from 0 is not", most=-1)
perceptron_obtuse_updates.foil(
    "adding $yx$ for examples that are classified correctly, too", rule="every example"
)


@claim(by="witness", sources=("B-042", "A-026"), budget=0.5)
def perceptron_straight_path(straight: int = 4):
    r"""The path of a perceptron need not zig-zag.

    Obtuse updates do not make the path alternate: while one example stays misclassified, the same
    step is repeated in a straight line. For $x_1 = (10, 1)$ and $x_2 = (-1, 1)$, both with
    $y = +1$, cycled from 0, the updates are $(10, 1)$ once and $(-1, 1)$ five times, which ends at
    $(5, 6)$: in 4 places an update is followed by itself.
    """
    x = torch.tensor([[10, 1], [-1, 1]])
    path = perceptron_path(x, torch.tensor([1, 1]))
    updates = path.weights.diff(dim=0)
    yield equals(updates, x[[0, 1, 1, 1, 1, 1]])
    yield equals((updates * path.weights[:-1]).sum(1), torch.tensor([0, -9, -7, -5, -3, -1]))
    yield equals(path.weights[-1], torch.tensor([5, 6]))
    yield equals(int((updates[1:] == updates[:-1]).all(1).sum()), straight)


perceptron_straight_path.erratum(
    "B-042",
    printed=r"the path always zig-zags, because $\Delta\theta\cdot\theta<0$ for updates",
    right="the path may go straight on: an update can be followed by the same one",
    why=r"on $x_1=(10,1),x_2=(-1,1)$, both positive, five updates in a row are $(-1,1)$, each with "
    r"$\Delta\theta\cdot\theta<0$; and the first update from 0 has $\Delta\theta\cdot\theta=0$",
    straight=0,
)


@claim(by="identity", sources=("A-027", "B-043"), budget=1.0, full={"steps": 5000})
def perceptron_sgd(
    loss: Callable[[Tensor, Tensor, Tensor], Tensor] = perceptron_loss,
    shares: tuple[float, ...] = (0.0, 0.5, 1.0),
    steps: int = 200,
    n: int = 15,
):
    r"""The perceptron is stochastic subgradient descent on the perceptron loss.

    The rule is descent with step 1 on
    $\ell(x, y; \theta) = \max\{0, -y \langle x, \theta \rangle\}$: the gradient is $-y x$ where
    $y \langle x, \theta \rangle < 0$ and 0 where it is positive. At the kink every $-\lambda y x$
    with $0 \le \lambda \le 1$ is a subgradient, and the choice $\lambda = 1$, which is torch's,
    reproduces the rule.
    """
    for d in (1, 3):
        x = torch.randint(-9, 10, (n, d)) / 2
        x[:, 0] = torch.randint(1, 9, (n,)) / 2  # an update by zero would go unseen
        y = torch.where(torch.rand(n) < 0.5, 1.0, -1.0)
        theta = torch.zeros(d, requires_grad=True)
        descent, iterates = torch.optim.SGD([theta], lr=1.0), [torch.zeros(d)]
        for t in range(steps):
            descent.zero_grad()
            loss(theta, x[t % n], y[t % n]).backward()
            descent.step()
            if not torch.equal(theta.detach(), iterates[-1]):
                iterates.append(theta.detach().clone())
        path = perceptron_path(x, y, max_iter=len(iterates) - 1).weights
        yield equals(len(path), len(iterates), d=d)
        yield equals(torch.stack(iterates), path, d=d)

        point, h = torch.randn(d), 2.0**-20
        slopes = [
            (loss(point + h * e, x, y) - loss(point - h * e, x, y)) / (2 * h) for e in torch.eye(d)
        ]
        functional = y * (x @ point)
        smooth = functional.abs() > h * x.abs().amax(1)
        gradient = torch.where(functional[:, None] < 0, -y[:, None] * x, 0.0)
        yield equals(torch.stack(slopes, 1)[smooth], gradient[smooth], tol=1e-8, d=d)

        a = torch.randint(1, 9, (d + 1,)) / 2
        kink = torch.zeros(d + 1)
        kink[0], kink[1] = a[1], -a[0]
        other = kink + torch.cat([torch.eye(d + 1), -torch.eye(d + 1)])
        for share in shares:
            below = loss(kink, a, torch.tensor(1.0)) + (other - kink) @ (-share * a)
            above = torch.stack([loss(t, a, torch.tensor(1.0)) for t in other])
            yield at_least(above, below, d=d, share=share)


perceptron_sgd.foil(
    "the hinge loss goes on where the perceptron stops",
    loss=lambda theta, x, y: (1 - y * (x @ theta)).clamp(min=0),
)
perceptron_sgd.foil("the squared loss", loss=lambda theta, x, y: (y - x @ theta) ** 2 / 2, steps=5)
perceptron_sgd.foil("twice the gradient is no subgradient at the kink", shares=(2.0,))


@claim(by="identity", sources=("C-011",), budget=0.5)
def perceptron_span(start: int = 0, count: str = "mistakes", n: int = 3, d: int = 10):
    r"""The weights of a perceptron stay in the span of the examples.

    If $w^0 \in \operatorname{span}(x_1, \dots, x_s)$ then so is every $w^t$, since each update adds
    a multiple of an example. From $w^0 = 0$, $w^t = \sum_i \alpha_i y_i x_i$ with $\alpha_i$ the
    number of mistakes on example $i$: the dual (kernel) perceptron, which needs inner products
    only, makes the same mistakes in the same order and the same predictions.

    The knob `start` is the first coordinate of $w^0$ along a direction orthogonal to the examples.
    """
    for _ in range(5):
        x = torch.randint(-5, 6, (n, d + 1))
        x[:, -1] = 0
        y = torch.randint(0, 2, (n,)) * 2 - 1
        x[torch.arange(n), torch.arange(n)] = 7 + torch.arange(n)  # so that none is zero
        theta0 = torch.zeros(d + 1, dtype=torch.int64)
        theta0[-1] = start
        path = perceptron_path(x, y, theta0=theta0, max_iter=1000)
        alpha = torch.nn.functional.one_hot(path.examples, n).cumsum(0)
        yield equals(path.weights[1:], (alpha * y) @ x, d=d)

        gram, counts, made = x @ x.T, torch.zeros(n, dtype=torch.int64), []
        for t in range(n * (len(path.examples) + 1)):
            if y[t % n] * ((counts * y) @ gram[t % n]) <= 0:
                counts[t % n] += 1
                made.append(t % n)
        yield equals(len(made), len(path.examples), d=d)
        yield equals(torch.tensor(made), path.examples, d=d)

        if len(y.unique()) == 2:
            options = {"shuffle": False, "tol": None, "fit_intercept": False}
            dual = KernelPerceptron("linear", **options).fit(x.double(), y)
            measured = dual.alpha_ if count == "mistakes" else torch.full((n,), dual.n_iter_)
            yield equals(measured, counts, d=d)
            new = torch.randint(-5, 6, (20, d + 1))
            yield equals(dual.decision_function(new.double()).long(), new @ path.weights[-1], d=d)


perceptron_span.foil("a start outside the span: its part outside stays for good", start=1)
perceptron_span.foil(r"$\alpha_i$ as the number of visits instead of mistakes", count="visits")
