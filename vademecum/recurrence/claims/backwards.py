"""Backpropagation through time: errors of states, and gradients of weights."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import claim, complex_step, equals
from vademecum.recurrence import ElmanRNN, bptt
from vademecum.recurrence.claims._plain_network import (
    network,
    plain,
    sequence,
    state_gradient,
    weight_gradient,
)


def half_squares(y: Tensor, target: Tensor) -> Tensor:
    """Half the squared errors, all together."""
    return ((y - target) ** 2).sum() / 2


@claim(
    by="identity",
    sources=("A-222", "C-125", "D-274"),
    short=r"\delta^q = (\partial E / \partial y^q) (\partial y^q / \partial z^q)"
    r" + \delta^{q+1} \, \partial z^{q+1} / \partial z^q",
)
def bptt_state_gradient(later: bool = True, loss_derivative: bool = True):
    r"""Backpropagation through time: the gradient in a state.

    With a loss $E$ that is a sum over outputs, $\frac{\partial E}{\partial z^q} = \sum_{s=q}^T
    \frac{\partial E}{\partial y^s} \frac{\partial y^s}{\partial z^s} \prod_{k=s-1}^{q}
    \frac{\partial z^{k+1}}{\partial z^k}$, factors ordered with the latest on the left. It is
    evaluated from $T$ down to 1 by the recursion $\delta^q = \frac{\partial E}{\partial y^q}
    \frac{\partial y^q}{\partial z^q} + \delta^{q+1} \frac{\partial z^{q+1}}{\partial z^q}$ with row
    vectors $\delta^q = \partial E / \partial z^q$.

    *Proof.* $z^q$ acts on the loss through $y^q$ and through $z^{q+1}$, and on nothing else.

    Checked for tanh and sigmoid networks with squared errors at $T = 6$ steps and every $q$: the
    sum, the recursion of `bptt`, and the complex step, which moves $z^q$ and runs the rest again.

    Knobs:
        later: Whether the sum goes over later times, too.
        loss_derivative: Whether the factor $\partial E / \partial y^s$ is there.
    """
    T = 6
    for m, d, k, units in ((3, 2, 4, "tanh"), (4, 3, 2, "sigmoid")):
        net = network(d, m, k, units=units, outputs="tanh")
        p, (x, xs) = plain(net), sequence(T, d)
        target = torch.randn(1, T, k)
        z, wanted = p.states(xs), target[0].numpy()
        ours = bptt(net, x, target, loss=half_squares).adjoints["state"][:, 0]
        for q in range(1, T + 1):
            stated, product = np.zeros(m), np.eye(m)
            for s in range(q, T + 1 if later else q + 1):
                if s > q:
                    product = p.state_slopes(z[s - 1], xs[s - 1])[:, None] * p.U @ product
                error = p.read(z[s]) - wanted[s - 1] if loss_derivative else np.ones(k)
                stated = stated + error @ (p.output_slopes(z[s])[:, None] * p.W) @ product
            at: dict[str, Any] = {"units": units, "q": q}
            truth = state_gradient(p, q, xs, wanted)
            yield equals("derivative of the loss in a state", truth, stated, **at)
            yield equals("the recursion from the last step", ours[q - 1], stated, **at)
    net = ElmanRNN(1, 1, activation="identity", bias=False)
    net.V.data.fill_(1.0)
    x, y = torch.tensor([[[3.0]]]), torch.tensor([[[1.0]]])
    found = bptt(net, x, y, loss=half_squares).adjoints["state"]
    stated = 3.0 - 1.0 if loss_derivative else 1.0
    yield equals("derivative in the only state 3, which is the output, target 1", found, stated)


bptt_state_gradient.foil("the output of the same time only", later=False)
bptt_state_gradient.erratum(
    "C-125",
    printed=r"$\frac{\partial h}{\partial z_t^i} = \sum_{s=t}^T \sum_{k=1}^m \sum_j"
    r" \frac{\partial \hat y_k^s}{\partial z_t^i} \frac{\partial z_j^s}{\partial z_t^i}$",
    right=r"$\frac{\partial h}{\partial z_t^i} = \sum_{s=t}^T \sum_k \sum_j"
    r" \frac{\partial h}{\partial \hat y_k^s} \frac{\partial \hat y_k^s}{\partial z_s^j}"
    r" \frac{\partial z_s^j}{\partial z_t^i}$",
    why=r"The derivative of the loss, $\partial h / \partial \hat y_k^s$, is missing, the middle"
    r" factor must be $\partial \hat y_k^s / \partial z_s^j$, and $k$ runs over the outputs. With"
    r" $T = 1$, $\hat y = z$ and $h = \frac12 (\hat y - y)^2$ the printed value is 1 instead of"
    r" $\hat y - y$, here 2. A slip of the scan in the indices cannot be excluded.",
    weight="scan",
    refuted_by="derivative in the only state 3, which is the output, target 1",
    loss_derivative=False,
)


def grouped(slope: np.ndarray, error: np.ndarray, read: np.ndarray, with_error: bool) -> np.ndarray:
    r"""$(\dot\phi \odot \delta)\, r^\top$, or $(\dot\phi \odot r)\, \delta^\top$."""
    return np.outer(slope * error, read) if with_error else np.outer(slope * read, error)


def one_step() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A step from (1, 0) with slopes 1 and 1/2 and E the second unit: dE/dM, slopes, its error."""
    a = np.array([0.0, np.arctanh(np.sqrt(0.5))])  # tanh' = 1 - tanh^2 is 1 and 1/2 there
    start = np.array([1.0, 0.0])
    weights = np.stack([a, np.zeros(2)], 1)  # so that the sums are a

    def loss(M: Any) -> Any:
        return np.tanh(M @ start)[1]

    slope = complex_step(np.tanh, a, 1).numpy()
    return complex_step(loss, weights).numpy(), slope, np.array([0.0, 1.0])


@claim(
    by="identity",
    sources=("A-223", "B-360", "C-128"),
    short=r"\partial E / \partial u_{ij} ="
    r" \sum_{t=1}^T (\partial E / \partial z_i^t)\, \dot\phi_i^t\, z_j^{t-1}",
)
def bptt_recurrent_weights(
    slope_with: Literal["error", "state"] = "error",
    factor: Literal["derivative", "value"] = "derivative",
):
    r"""The gradient in the recurrent weights.

    $\frac{\partial E}{\partial u_{ij}} = \sum_{t=1}^T \frac{\partial E}{\partial z_i^t}\,
    \dot\phi_i^t\, z_j^{t-1}$, in matrix form $\frac{\partial E}{\partial U} = \sum_t
    \big(\dot\phi(U z^{t-1} + V x^t) \odot (\tfrac{\partial E}{\partial z^t})^\top\big)
    (z^{t-1})^\top$, where $\partial E / \partial z^t$ is the total derivative, including all later
    steps. The slope goes with the error, the outer product with the previous state.

    *Proof.* With a copy of $U$ for each step, the copy of step $t$ acts through $z^t$ alone.

    Checked for tanh and sigmoid networks with losses at $T = 6$ steps, by the complex step; the
    total derivatives and the terms of each step are those of `bptt`.

    Knobs:
        slope_with: Whether the slope meets the error or the previous state.
        factor: Whether the factor is $\dot\phi$ or $\phi$.
    """
    T = 6
    for m, d, k, units in ((4, 3, 2, "tanh"), (3, 2, 5, "sigmoid")):
        net = network(d, m, k, units=units)
        p, (x, xs) = plain(net), sequence(T, d)
        target, z = torch.randn(1, T, k), p.states(xs)
        found = bptt(net, x, target, loss=half_squares)
        delta, wanted = found.adjoints["state"][:, 0].numpy(), target[0].numpy()
        truth = weight_gradient(p, "U", xs, wanted)
        stated = np.zeros((m, m))
        for t in range(1, T + 1):
            slope = p.state_slopes(z[t - 1], xs[t - 1]) if factor == "derivative" else z[t]
            term = grouped(slope, delta[t - 1], z[t - 1], slope_with == "error")
            stated += term
            at: dict[str, Any] = {"units": units, "t": t}
            yield equals("what step t adds", found.step_gradients["U"][t - 1], term, **at)
        yield equals("derivative in the recurrent weights", truth, stated, units=units)
    truth, slope, error = one_step()
    stated = grouped(slope, error, np.array([1.0, 0.0]), slope_with == "error")
    yield equals("entry (2, 1) after one step from (1, 0)", truth[1, 0], stated[1, 0])
    yield equals("entry (1, 2) after one step from (1, 0)", truth[0, 1], stated[0, 1])


bptt_recurrent_weights.foil(r"$\phi$ in the place of $\dot\phi$", factor="value")
bptt_recurrent_weights.erratum(
    "A-223",
    printed=r"$\sum_{q=1}^T (\dot\phi(U z^{q-1} + V x^q) \odot z^{q-1})"
    r" \frac{\partial E}{\partial z^q}$",
    right=r"$\sum_{q=1}^T \big(\dot\phi(U z^{q-1} + V x^q) \odot (\frac{\partial E}{\partial z^q}"
    r")^\top\big) (z^{q-1})^\top$",
    why=r"Entry $(i, j)$ must be $\delta_i \dot\phi_i z_j$, the printed form gives"
    r" $\dot\phi_i z_i \delta_j$: for one step from $z^0 = (1, 0)$ with slopes $(1, \frac12)$ and"
    r" $\partial E / \partial z^1 = (0, 1)$ the only entry that is not zero is $\frac12$ at"
    r" $(2, 1)$, printed 1 at $(1, 2)$; transposing does not repair it.",
    weight="hard",
    refuted_by="entry (1, 2) after one step from (1, 0)",
    slope_with="state",
)


@claim(
    by="identity",
    sources=("A-224", "B-361", "C-127"),
    short=r"\partial E / \partial v_{ik} ="
    r" \sum_{t=1}^T (\partial E / \partial z_i^t)\, \dot\phi_i^t\, x_k^t",
)
def bptt_input_weights(slope_with: Literal["error", "input"] = "error", lag: int = 0):
    r"""The gradient in the input weights.

    $\frac{\partial E}{\partial v_{ik}} = \sum_{t=1}^T \frac{\partial E}{\partial z_i^t}\,
    \dot\phi_i^t\, x_k^t$, in matrix form $\frac{\partial E}{\partial V} = \sum_t
    \big(\dot\phi(U z^{t-1} + V x^t) \odot (\tfrac{\partial E}{\partial z^t})^\top\big)
    (x^t)^\top$ with the total derivative in the state.

    *Proof.* As for the recurrent weights, with $x^t$ in the place of $z^{t-1}$.

    Checked for tanh and sigmoid networks with losses at $T = 6$ steps, of which one has as many
    inputs as units, by the complex step; total derivatives and terms are those of `bptt`.

    Knobs:
        slope_with: Whether the slope meets the error or the input, where these are equally many.
        lag: How many steps before the error the input is taken.
    """
    T = 6
    for m, d, k, units in ((4, 3, 2, "tanh"), (3, 3, 5, "sigmoid")):
        net = network(d, m, k, units=units)
        p, (x, xs) = plain(net), sequence(T, d)
        target, z = torch.randn(1, T, k), p.states(xs)
        found = bptt(net, x, target, loss=half_squares)
        delta, wanted = found.adjoints["state"][:, 0].numpy(), target[0].numpy()
        truth = weight_gradient(p, "V", xs, wanted)
        stated = np.zeros((m, d))
        for t in range(1, T + 1):
            slope = p.state_slopes(z[t - 1], xs[t - 1])
            read = xs[t - 1 - lag] if t > lag else np.zeros(d)
            term = grouped(slope, delta[t - 1], read, slope_with == "error" or m != d)
            stated += term
            at: dict[str, Any] = {"units": units, "t": t}
            yield equals("what step t adds", found.step_gradients["V"][t - 1], term, **at)
        yield equals("derivative in the input weights", truth, stated, units=units)
    truth, slope, error = one_step()
    read = np.zeros(2) if lag else np.array([1.0, 0.0])
    stated = grouped(slope, error, read, slope_with == "error")
    yield equals("entry (2, 1) after one step with the input (1, 0)", truth[1, 0], stated[1, 0])
    yield equals("entry (1, 2) after one step with the input (1, 0)", truth[0, 1], stated[0, 1])


bptt_input_weights.foil("the input of the step before", lag=1)
bptt_input_weights.erratum(
    "A-224",
    printed=r"$\sum_{q=1}^T (\dot\phi(U z^{q-1} + V x^q) \odot x^q)"
    r" \frac{\partial E}{\partial z^q}$",
    right=r"$\sum_{q=1}^T \big(\dot\phi(U z^{q-1} + V x^q) \odot (\frac{\partial E}{\partial z^q}"
    r")^\top\big) (x^q)^\top$",
    why=r"The slope $\dot\phi \in \mathbb R^m$ belongs to the error: an elementwise product with"
    r" $x^q \in \mathbb R^n$ is undefined for $m \ne n$, and for $m = n$ it gives"
    r" $\dot\phi_i x_i \delta_j$ where $\delta_i \dot\phi_i x_j$ is needed. For one step with"
    r" $x = (1, 0)$, slopes $(1, \frac12)$ and the error $(0, 1)$ entry $(1, 2)$ is 0, printed 1.",
    weight="hard",
    refuted_by="entry (1, 2) after one step with the input (1, 0)",
    slope_with="input",
)
