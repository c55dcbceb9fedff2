"""The perceptron as descent: which loss its rule goes down."""

from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.claims import at_least, claim, equals
from vademecum.connectionism import perceptron_loss
from vademecum.connectionism.claims.perceptron import first_updates


@claim(
    by="identity",
    sources=("A-027", "B-043"),
    budget=1.0,
    full={"steps": 5000},
    short=r"\theta \leftarrow \theta - g,\ g \in \partial_\theta \max\{0,"
    r" -y \langle x, \theta \rangle\}",
)
def perceptron_sgd(
    loss: Callable[[Tensor, Tensor, Tensor], Tensor] = perceptron_loss,
    shares: tuple[float, ...] = (0.0, 0.5, 1.0),
    steps: int = 100,
    n: int = 15,
):
    r"""The perceptron is stochastic subgradient descent on the perceptron loss.

    The rule is descent with step 1 on
    $\ell(x, y; \theta) = \max\{0, -y \langle x, \theta \rangle\}$: the gradient is $-y x$ where
    $y \langle x, \theta \rangle < 0$ and 0 where it is positive. At the kink every $-\lambda y x$
    with $0 \le \lambda \le 1$ is a subgradient, and the choice $\lambda = 1$, which is torch's,
    reproduces the rule.

    *Check.* Descent by torch against the path of the rule, on half-integers and so exactly. The
    first two examples are $x = (\frac12, 0, \dots)$ with $y = 1$, of which the rule learns once.

    Knobs:
        loss: The loss, a function of $\theta$, $x$ and $y$.
        shares: The $\lambda$ for which $-\lambda y x$ is to be a subgradient at the kink.
        steps: How many examples are shown to the descent.
        n: How many examples there are, shown in turn.
    """
    for d in (1, 3):
        x = torch.randint(-9, 10, (n, d)) / 2
        x[:, 0] = torch.randint(1, 9, (n,)) / 2  # an update by zero would go unseen
        y = torch.where(torch.rand(n) < 0.5, 1.0, -1.0)
        x[:2], y[:2] = torch.eye(d)[0] / 2, 1.0
        theta = torch.zeros(d, requires_grad=True)
        descent, iterates = torch.optim.SGD([theta], lr=1.0), [torch.zeros(d)]
        for t in range(steps):
            descent.zero_grad()
            loss(theta, x[t % n], y[t % n]).backward()
            descent.step()
            if not torch.equal(theta.detach(), iterates[-1]):
                iterates.append(theta.detach().clone())
        path = first_updates(x, y, len(iterates) - 1).weights
        yield equals("updates of the rule", len(path) - 1, len(iterates) - 1, d=d)
        name = "weights of the rule, against those of descent"
        yield equals(name, path, torch.stack(iterates)[: len(path)], d=d)

        # Off the kink the loss is linear: a difference quotient is off by rounding alone, which
        # for losses up to 50 is at most 50 * 2**-53 / h.
        point, h = torch.randn(d), 2.0**-10
        slopes = [
            (loss(point + h * e, x, y) - loss(point - h * e, x, y)) / (2 * h) for e in torch.eye(d)
        ]
        functional = y * (x @ point)
        smooth = functional.abs() > h * x.abs().amax(1)
        gradient = torch.where(functional[:, None] < 0, -y[:, None] * x, 0.0)
        measured = torch.stack(slopes, 1)[smooth]
        yield equals("slope of the loss off the kink", measured, gradient[smooth], d=d)

        a = torch.randint(1, 9, (d + 1,)) / 2
        kink = torch.zeros(d + 1)
        kink[0], kink[1] = a[1], -a[0]
        other = kink + torch.cat([torch.eye(d + 1), -torch.eye(d + 1)])
        above = torch.stack([loss(t, a, torch.tensor(1.0)) for t in other])
        for share in shares:
            below = loss(kink, a, torch.tensor(1.0)) + (other - kink) @ (-share * a)
            yield at_least("loss, above its tangent at the kink", above, below, d=d, share=share)


perceptron_sgd.foil(
    "the hinge loss goes on where the perceptron stops",
    loss=lambda theta, x, y: (1 - y * (x @ theta)).clamp(min=0),
)
perceptron_sgd.foil("the squared loss", loss=lambda theta, x, y: (y - x @ theta) ** 2 / 2, steps=5)
perceptron_sgd.foil("twice the gradient is no subgradient at the kink", shares=(2.0,))
