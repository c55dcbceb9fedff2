r"""The perceptron rule step by step, and the loss that it descends.

Through the origin the rule is $\theta \leftarrow \theta + y_i x_i$ wherever example $i$ is a
mistake, $y_i \langle x_i, \theta \rangle \le 0$. It is stochastic subgradient descent with step 1
on the perceptron loss $\ell(x, y; \theta) = \max\{0, -y \langle x, \theta \rangle\}$. A bias is a
weight of the constant coordinate that `vademecum.connectionism.augment` adds.

The path is computed in the dtype of the examples: exactly for integers.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from vademecum.arguments import choice, floats, signs, whole
from vademecum.estimators import warn_unconverged
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["PerceptronPath", "perceptron_loss", "perceptron_path"]


class PerceptronPath(NamedTuple):
    """All updates of a run of the perceptron rule.

    Example:
        >>> perceptron_path(torch.eye(2), torch.tensor([1, -1])).examples
        tensor([0, 1])
    """

    weights: Shaped[Tensor, " updates+1 d"]
    """The weights before the first update and after each."""
    examples: Int[Tensor, " updates"]
    """The example that each update is for."""
    margins: Shaped[Tensor, " updates"]
    r"""Its functional margin $y \langle x, \theta \rangle$ just before."""
    converged: bool
    """Whether no mistake was left."""

    __repr__ = one_line


def perceptron_path(
    x: Shaped[Tensor, " n d"],
    y: Shaped[Tensor, " n"],
    *,
    theta0: Shaped[Tensor, " d"] | None = None,
    order: str | Int[Tensor, " m"] = "cyclic",
    mistake: Callable[[Shaped[Tensor, " n"]], Bool[Tensor, " n"]] = lambda margin: margin <= 0,
    max_iter: int = 10_000,
    generator: torch.Generator | None = None,
) -> PerceptronPath:
    r"""Run the perceptron rule through the origin and record every update.

    Args:
        x: The examples; the run is computed in their dtype, for integers in 64 bits.
        y: Their labels, -1 or +1.
        theta0: The weights to start from; zero by default.
        order: How the examples are shown, until none is a mistake: "cyclic", "shuffled" (each time
            anew), "worst" (the most negative margin next), or indices to go through again and
            again, among them every example.
        mistake: Which functional margins $y \langle x, \theta \rangle$ call for an update.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is an update.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If an argument is out of range or of the wrong shape.

    Example:
        >>> x = torch.tensor([[10, 1], [-1, 1]])
        >>> path = perceptron_path(x, torch.tensor([1, 1]))
        >>> path.weights.tolist()
        [[0, 0], [10, 1], [9, 2], [8, 3], [7, 4], [6, 5], [5, 6]]
        >>> path.margins.tolist(), path.converged
        ([0, -9, -7, -5, -3, -1], True)
    """
    z = _signed(x, y)
    theta = _start(theta0, z)
    whole("max_iter", max_iter, low=0)
    shown = _shown(order, len(z), generator)
    weights, examples, margins = [theta], [], []
    while True:
        margin = z @ theta
        wrong = mistake(margin)
        left = bool(wrong.any())
        if not left or len(examples) == max_iter:
            break
        i = (
            int(margin.argmin())
            if shown is None
            else next(filter(wrong.tolist().__getitem__, shown))
        )
        theta = theta + z[i]
        weights.append(theta)
        examples.append(i)
        margins.append(margin[i])
    if left:
        warn_unconverged(f"max_iter={max_iter} reached with {int(wrong.sum())} mistakes left")
    record = torch.stack(margins) if margins else z.new_zeros(0)
    shown_at = torch.tensor(examples, dtype=torch.int64, device=z.device)
    return PerceptronPath(torch.stack(weights), shown_at, record, not left)


def perceptron_loss(
    theta: Float[Tensor, " d"], x: Float[Tensor, " *n d"], y: Shaped[Tensor, " *n"]
) -> Float[Tensor, " *n"]:
    r"""The perceptron loss $\max\{0, -y \langle x, \theta \rangle\}$ of each example.

    At the kink $\langle x, \theta \rangle = 0$ its gradient in torch is the subgradient $-y x$, so
    that a step of size 1 against the gradient is the perceptron rule, ties included.

    Raises:
        ValueError: If the examples are not finite or do not fit the weights, or if there is not
            one label, -1 or +1, for each.

    Example:
        >>> theta = torch.zeros(2, requires_grad=True)
        >>> perceptron_loss(theta, torch.tensor([3.0, 4.0]), torch.tensor(1)).backward()
        >>> theta.grad
        tensor([-3., -4.])
    """
    floats("x", x, width=len(floats("theta", theta, ndim=1)))
    if signs("y", y).shape != x.shape[:-1]:
        raise ValueError(f"y must have shape {tuple(x.shape[:-1])}, got {tuple(y.shape)}")
    return (-y * (x @ theta)).clamp(min=0)


def _signed(x: Tensor, y: Tensor) -> Tensor:
    if x.is_floating_point():
        floats("x", x, ndim=2)
    elif x.ndim != 2 or x.numel() == 0 or x.dtype == torch.bool or x.is_complex():
        raise ValueError(f"x must be a real matrix, got {x.dtype} of shape {tuple(x.shape)}")
    else:
        x = x.long()  # whatever it was: sums of short integers overflow
    return signs("y", y, ndim=1, width=len(x)).to(x)[:, None] * x


def _start(theta0: Tensor | None, z: Tensor) -> Tensor:
    if theta0 is None:
        return torch.zeros_like(z[0])
    if theta0.shape != z.shape[1:] or theta0.is_floating_point() != z.is_floating_point():
        given = f"{theta0.dtype} of shape {tuple(theta0.shape)}"
        raise ValueError(f"theta0 must be {z.dtype} of shape ({z.shape[1]},), got {given}")
    return theta0.to(z)


def _shown(order: str | Tensor, n: int, generator: torch.Generator | None) -> Iterator[int] | None:
    if isinstance(order, Tensor):
        if not torch.equal(order.unique().cpu(), torch.arange(n)):
            raise ValueError(f"order must hold every index from 0 to {n - 1}, got {order.tolist()}")
    elif choice("order", order, ("cyclic", "shuffled", "worst")) == "worst":
        return None
    return _again(order, n, generator)


def _again(order: str | Tensor, n: int, generator: torch.Generator | None) -> Iterator[int]:
    draw = source(generator, "cpu")
    while True:
        if isinstance(order, Tensor):
            yield from order.tolist()
        else:
            shuffled = order == "shuffled"
            yield from torch.randperm(n, **draw).tolist() if shuffled else range(n)
