"""Gradients as sums over pairs of steps: and those in early inputs."""

from typing import Any, Literal

import numpy as np
import torch

from vademecum.claims import claim, complex_step, equals
from vademecum.recurrence import ElmanRNN, bptt
from vademecum.recurrence.claims._plain_network import (
    Plain,
    network,
    plain,
    sequence,
    weight_gradient,
)
from vademecum.recurrence.claims.backwards import half_squares


def immediate(p: Plain, name: str, z: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The derivative of one step in a weight, state and input fixed, a column for each entry."""
    found = complex_step(lambda M: p._replace(**{name: M}).next(z, x), getattr(p, name))
    return found.flatten(1).numpy()


@claim(
    by="identity",
    sources=("A-225", "B-362", "B-363", "D-275", "E-236"),
    short=r"\nabla_\theta E = \sum_{i \le t} (\partial E_t / \partial z^t)"
    r" (\partial z^t / \partial z^i) \partial_\theta^+ z^i",
)
def bptt_double_sum(lag: int = 0, inner: Literal["all", "last"] = "all"):
    r"""The gradient as a double sum over steps.

    For parameters $\theta$ of the state map, $\frac{\partial E}{\partial \theta} = \sum_{t=1}^T
    \frac{\partial E}{\partial y^t} \frac{\partial y^t}{\partial z^t} \sum_{i=1}^t \Big(
    \prod_{k=t}^{i+1} \frac{\partial z^k}{\partial z^{k-1}} \Big) \frac{\partial^+
    F_\theta(z^{i-1}, x^i)}{\partial \theta}$, with $\partial^+$ the immediate derivative at fixed
    state and input of step $i$ and factors in decreasing $k$. The inner sum is the total derivative
    $dz^t / d\theta$; parameters of the output map contribute separately. With pre-activations
    $a^k$, $z^k = \phi(a^k)$, each factor is $\frac{\partial z^k}{\partial a^k} \frac{\partial
    a^k}{\partial z^{k-1}}$.

    *Proof.* $z^t$ depends on the copy of $\theta$ at step $i$ through $z^i, \dots, z^t$ alone; the
    sum over the copies is the derivative in $\theta$.

    Checked for $\theta = U, V, b$ of tanh and sigmoid networks, $T = 6$: the double sum, the
    recursion $\frac{dz^t}{d\theta} = \frac{\partial z^t}{\partial z^{t-1}}
    \frac{dz^{t-1}}{d\theta} + \frac{\partial^+ z^t}{\partial \theta}$ and `bptt`, against the
    complex step; for $\theta = W, c$ of the output the sum of the steps' own derivatives.

    Knobs:
        lag: How many steps before its own the input of the immediate derivative is taken.
        inner: Whether the inner sum has all its terms, or the one with $i = t$ only.
    """
    T = 6
    for m, d, k, units in ((3, 2, 4, "tanh"), (4, 3, 2, "sigmoid")):
        net = network(d, m, k, units=units, outputs="tanh")
        p, (x, xs) = plain(net), sequence(T, d)
        target, z = torch.randn(1, T, k), p.states(xs)
        wanted = target[0].numpy()
        ours = bptt(net, x, target, loss=half_squares).gradients
        read = np.concatenate([np.zeros((lag, d)), xs])[:T]  # what stands for the inputs
        factors = [p.state_slopes(z[i - 1], xs[i - 1])[:, None] * p.U for i in range(1, T + 1)]
        errors = [
            (p.read(z[t]) - wanted[t - 1]) * p.output_slopes(z[t]) @ p.W for t in range(1, T + 1)
        ]
        for name in ("U", "V", "b"):
            own = [immediate(p, name, z[i - 1], read[i - 1]) for i in range(1, T + 1)]
            stated = np.zeros(own[0].shape[1])
            for t in range(1, T + 1):
                for i in range(1 if inner == "all" else t, t + 1):
                    product = np.linalg.multi_dot([np.eye(m), np.eye(m), *factors[i:t][::-1]])
                    stated += errors[t - 1] @ product @ own[i - 1]
            truth = weight_gradient(p, name, xs, wanted).flatten()
            at: dict[str, Any] = {"units": units}
            yield equals(f"derivative in {name}", truth, stated, **at)
            yield equals(
                f"derivative in {name} by backpropagation", ours[name].flatten(), stated, **at
            )
            total, forward = np.zeros_like(own[0]), np.zeros_like(stated)
            for t in range(T):
                total = (factors[t] @ total if inner == "all" else 0) + own[t]
                forward += errors[t] @ total
            yield equals(
                f"the sum for {name} and the recursion from the first step", stated, forward
            )
        for name in ("W", "c"):
            truth = weight_gradient(p, name, xs, wanted)
            yield equals(f"derivative in {name} of the output", truth, ours[name], units=units)
    net = ElmanRNN(1, 1, activation="identity", bias=False)
    x = torch.tensor([[[3.0]]])
    found = bptt(net, x, None, loss=lambda y, _: y.sum()).gradients["V"]
    stated = 0.0 if lag else 3.0  # before the first input there is none
    yield equals("derivative of E = V x in V, one step with the input 3", found, stated)


bptt_double_sum.foil("only the term with $i = t$", inner="last")
bptt_double_sum.erratum(
    "A-225",
    printed=r"immediate derivative evaluated at $z = z^{i-1}$, $x = x^{i-1}$",
    right=r"immediate derivative evaluated at $z = z^{i-1}$, $x = x^i$",
    why=r"By the sheet's own update $z^i = F_\theta(z^{i-1}, x^i)$ it is taken at $x^i$: with"
    r" $T = 1$, $z^1 = V x^1$ and $E = z^1$ the derivative with respect to $V$ is $x^1$, here 3;"
    r" printed $x^0$, which is not even an input (0 stands for it). A slip of the scan cannot be"
    r" excluded.",
    weight="scan",
    refuted_by="derivative of E = V x in V, one step with the input 3",
    lag=1,
)


@claim(
    by="identity",
    sources=("B-364",),
    short=r"\nabla_{x^t} R = V^\top \dot\Phi^t [U^\top \dot\Phi^{t+1} \cdots U^\top \dot\Phi^s]"
    r" J_H^\top \nabla_y R",
)
def input_gradient(last_factor: bool = True, transposed: bool = True):
    r"""The gradient in an early input.

    With output $y = H(z^s)$ at the last step $s$ only, $z^j = \phi(U z^{j-1} + V x^j)$ and slope
    matrices $\dot\Phi^j$, $\nabla_{z^t} \mathcal R = \big[ U^\top \dot\Phi^{t+1}\, U^\top
    \dot\Phi^{t+2} \cdots U^\top \dot\Phi^s \big] J_H^\top \nabla_y \mathcal R$, and the step from
    state to input adds one factor, $\nabla_{x^t} \mathcal R = V^\top \dot\Phi^t\, \nabla_{z^t}
    \mathcal R$.

    *Proof.* The transposes of the Jacobians of all steps after $t$, and that of $z^t$ in $x^t$.

    Checked for $s = 5$ and every $t$, with different numbers of units, inputs and outputs and with
    equal ones, by the complex step and by `bptt`.

    Knobs:
        last_factor: Whether the factor $V^\top \dot\Phi^t$ is there.
        transposed: Whether $J_H$ is transposed, where it is square.
    """
    s = 5
    for m, d, k, units in ((4, 3, 2, "tanh"), (4, 4, 4, "sigmoid")):
        net = network(d, m, k, units=units, outputs="tanh")
        p, (x, xs) = plain(net), sequence(s, d)
        z, target = p.states(xs), torch.randn(1, k)
        wanted = target[0].numpy()
        last = lambda y, t: half_squares(y[:, -1], t)  # noqa: E731
        found = bptt(net, x, target, loss=last)
        assert found.input_gradient is not None
        truth = complex_step(
            lambda xs, p=p, y=wanted: ((p.read(p.states(xs)[-1]) - y) ** 2).sum() / 2, xs
        )
        J = p.output_slopes(z[s])[:, None] * p.W
        g = (J.T if transposed or k != m else J) @ (p.read(z[s]) - wanted)
        for t in range(s, 0, -1):
            at: dict[str, Any] = {"units and inputs": f"{m} and {d}", "t": t}
            yield equals("gradient in a state", found.adjoints["state"][t - 1, 0], g, **at)
            slope = p.state_slopes(z[t - 1], xs[t - 1])
            stated = p.V.T @ (slope * g) if last_factor else g
            yield equals("components of the gradient in an input", d, len(stated), **at)
            yield equals("gradient in an input", truth[t - 1], stated[:d], **at)
            ours = found.input_gradient[0, t - 1]
            yield equals("gradient in an input by backpropagation", ours, stated[:d], **at)
            g = p.U.T @ (slope * g)


input_gradient.foil("$J_H$ as it is", transposed=False)
input_gradient.erratum(
    "B-364",
    printed=r"$\nabla_{\mathbf x^t} \mathcal R ="
    r" [\prod_{j=t+1}^s \mathbf W^T \mathbf S(\mathbf h^j)] \cdot \mathbf J_H"
    r" \cdot \nabla_{\mathbf y} \mathcal R$",
    right=r"$\nabla_{\mathbf x^t} \mathcal R = \mathbf U^T \mathbf S(\mathbf h^t)"
    r" [\prod_{j=t+1}^s \mathbf W^T \mathbf S(\mathbf h^j)] \cdot \mathbf J_H^T \cdot"
    r" \nabla_{\mathbf y} \mathcal R$",
    why=r"The right side is (with $J_H$ transposed) the gradient with respect to $h^t$; the factor"
    r" $U^T S(h^t)$ from state to input is missing ($W$ recurrent and $U$ input weights there)."
    r" With 4 units and 3 inputs it has 4 components, $\nabla_{x^t} \mathcal R$ has 3.",
    weight="hard",
    refuted_by="components of the gradient in an input",
    last_factor=False,
)
