r"""A simple recurrent network written down number by number, to hold others against.

$z^t = \phi(U z^{t-1} + V x^t + b)$ and $y^t = \psi(W z^t + c)$ for one sequence, with NumPy alone,
so that the complex step goes through; $\phi$ and $\psi$ are analytic.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import complex_step
from vademecum.recurrence import ElmanRNN

__all__ = [
    "Plain", "network", "plain", "sequence", "slopes", "state_gradient", "weight_gradient",
]  # fmt: skip


def _sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


_UNITS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda a: a,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
}


class Plain(NamedTuple):
    """The weights of a network, and its units."""

    U: np.ndarray
    """From state to state."""
    V: np.ndarray
    """From input to state."""
    b: np.ndarray
    """The constants of the state."""
    W: np.ndarray
    """From state to output."""
    c: np.ndarray
    """The constants of the output."""
    phi: Callable[[Any], Any]
    """The units of the state."""
    psi: Callable[[Any], Any]
    """The units of the output."""

    def next(self, z: Any, x: Any) -> Any:
        """The state after one step."""
        return self.phi(self.U @ z + self.V @ x + self.b)

    def read(self, z: Any) -> Any:
        """The output for a state."""
        return self.psi(self.W @ z + self.c)

    def states(self, xs: Any, z: Any = None) -> list[Any]:
        """The state before the first step, and after each."""
        found = [np.zeros(len(self.U)) if z is None else z]
        for x in xs:
            found.append(self.next(found[-1], x))
        return found

    def squares(self, xs: Any, targets: Any, z: Any = None) -> Any:
        """Half the squared errors of all outputs together."""
        outputs = [self.read(z) for z in self.states(xs, z)[1:]]
        return np.array(
            sum(((y - t) ** 2).sum() / 2 for y, t in zip(outputs, targets, strict=True))
        )

    def state_slopes(self, z: Any, x: Any) -> np.ndarray:
        """The derivatives of the units at the step that leaves the state z."""
        return slopes(self.phi, self.U @ z + self.V @ x + self.b)

    def output_slopes(self, z: Any) -> np.ndarray:
        """The derivatives of the output units at a state."""
        return slopes(self.psi, self.W @ z + self.c)


def weight_gradient(p: Plain, name: str, xs: np.ndarray, targets: np.ndarray) -> Tensor:
    """The derivative of half the squared errors in a weight, by the complex step."""
    return complex_step(lambda M: p._replace(**{name: M}).squares(xs, targets), getattr(p, name))


def state_gradient(p: Plain, q: int, xs: np.ndarray, targets: np.ndarray) -> Tensor:
    """The derivative of half the squared errors in the state after step q, moved and run on."""

    def rest(z: Any) -> Any:
        own = ((p.read(z) - targets[q - 1]) ** 2).sum() / 2
        return own + p.squares(xs[q:], targets[q:], z)

    return complex_step(rest, p.states(xs[:q])[-1])


def slopes(unit: Callable[[Any], Any], a: Any) -> np.ndarray:
    """The derivatives of units at their sums, by the complex step."""
    return complex_step(unit, np.asarray(a), 1).numpy()


def plain(net: ElmanRNN) -> Plain:
    """The weights of a network as arrays, and its units."""

    def array(p: Tensor | None, *shape: int) -> np.ndarray:
        return np.zeros(shape) if p is None else p.detach().numpy().copy()

    m = net.m
    W = np.eye(m) if net.W is None else array(net.W)
    units = _UNITS[net.activation], _UNITS[net.output_activation]
    return Plain(array(net.U), array(net.V), array(net.b, m), W, array(net.c, len(W)), *units)


def network(
    d: int,
    m: int,
    k: int | None = None,
    *,
    units: str,
    outputs: str = "identity",
    bias: bool = True,
) -> ElmanRNN:
    """A random network, with units by their names."""
    kinds: dict[str, Any] = {"activation": units, "output_activation": outputs}
    return ElmanRNN(d, m, k, bias=bias, **kinds)


def sequence(T: int, d: int) -> tuple[Tensor, np.ndarray]:
    """Random inputs, as one sequence for a network and as an array."""
    x = torch.randn(1, T, d)
    return x, x[0].numpy()
