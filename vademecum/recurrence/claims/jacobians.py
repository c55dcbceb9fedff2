"""Jacobians of steps and of many steps: which slopes and weights they are made of."""

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import claim, complex_step, equals
from vademecum.recurrence import ElmanRNN, bptt, jacobian_profile
from vademecum.recurrence.claims._plain_network import network, plain, sequence


def rows_back(net: ElmanRNN, x: Tensor, back: int) -> Tensor:
    """The derivatives of the last output in the state so many steps before, by `bptt`."""
    outputs = net(x).output.shape[2]
    rows = [
        bptt(net, x, None, loss=lambda y, _, i=i: y[0, -1, i]).adjoints["state"][-1 - back, 0]
        for i in range(outputs)
    ]
    return torch.stack(rows)


@claim(
    by="identity",
    sources=("A-220",),
    short=r"\partial z^{k+1} / \partial z^k = \mathrm{diag}(\dot\phi(U z^k + V x^{k+1}))\, U",
)
def state_jacobian(slopes_on: Literal["rows", "columns"] = "rows", transposed: bool = False):
    r"""The Jacobian of one step of the state.

    For $z^{k+1} = \phi(U z^k + V x^{k+1})$ with $\phi$ applied to each entry,
    $\frac{\partial z^{k+1}}{\partial z^k} = \mathrm{diag}\big(\dot\phi(U z^k + V x^{k+1})\big)\,
    U$: the slopes scale the rows of $U$.

    *Proof.* $z^{k+1}_i = \phi(a_i)$ with $\partial a_i / \partial z^k_j = u_{ij}$.

    Checked for tanh and the logistic sigmoid, with and without constants, $m = 4$ and $m = 2$, at
    states on the way of a sequence, by the complex step; for ReLU, which is linear between its
    kinks, by differences.

    Knobs:
        slopes_on: What of $U$ the slopes scale.
        transposed: Whether the Jacobian is transposed.
    """
    for m, d, activation, bias in ((4, 3, "tanh", True), (2, 3, "sigmoid", False)):
        net = network(d, m, units=activation, bias=bias)
        p, (x, xs) = plain(net), sequence(4, d)
        z = p.states(xs[:3])[-1]
        at: dict[str, Any] = {"m": m, "units": activation}
        truth = complex_step(lambda z, p=p, xs=xs: p.next(z, xs[3]), z)
        s = p.state_slopes(z, xs[3])
        stated = s[:, None] * p.U if slopes_on == "rows" else p.U * s
        stated = stated.T if transposed else stated
        yield equals("derivative of the next state", truth, stated, **at)
        yield equals("rows of it from backpropagation", rows_back(net, x, 1), stated, **at)
        norm = math.log(np.linalg.norm(stated, 2))
        found = jacobian_profile(net, x).log_norms[0, 0, -2]
        yield equals("logarithm of its norm", found, norm, **at)
    net = ElmanRNN(3, 5, activation="relu", bias=False)
    p, xs = plain_relu(net), sequence(2, 3)[1]
    z, U = p(np.zeros(5), xs[0]), net.U.detach().numpy()
    a = U @ z + net.V.detach().numpy() @ xs[1]
    h = float(np.abs(a).min()) / 8  # |u| <= 1, so no kink is crossed
    truth = np.stack([(p(z + h * e, xs[1]) - p(z - h * e, xs[1])) / (2 * h) for e in np.eye(5)], 1)
    s = (a > 0).astype(float)
    stated = s[:, None] * U if slopes_on == "rows" else U * s
    stated = stated.T if transposed else stated
    tol = 1e-15 * (1 + float(np.abs(a).max())) / h + 1e-12  # of the difference, and of all else
    yield equals("derivative between the kinks", truth, stated, tol=tol, m=5, units="relu")


def plain_relu(net: ElmanRNN):
    """A step of a network of rectifiers without constants, in NumPy."""
    U, V = net.U.detach().numpy(), net.V.detach().numpy()
    return lambda z, x: np.maximum(U @ z + V @ x, 0)


state_jacobian.foil(r"$U \, \mathrm{diag}(\dot\phi)$: slopes on the columns", slopes_on="columns")
state_jacobian.foil("its transpose", transposed=True)


@claim(
    by="identity",
    sources=("A-221", "C-126"),
    short=r"\partial y^s / \partial z^t = \mathrm{diag}(\dot\psi(W z^s))\, W \,"
    r" \partial z^s / \partial z^t, \quad t \le s",
)
def output_jacobian(recurrent: bool = True, slope: bool = True):
    r"""The Jacobian of an output in the state of its time, and of earlier times.

    For $y^s = \psi(W z^s)$ with $\psi$ applied to each entry, $\frac{\partial y^s}{\partial z^s} =
    \mathrm{diag}(\dot\psi(W z^s))\, W$, entry by entry $\partial y^s_k / \partial z^s_j =
    \dot\psi^s_k w_{kj}$, with output and state at the same time $s$; with respect to an earlier
    state $z^t$ the recurrent Jacobians between $t$ and $s$ multiply from the right.

    *Proof.* The chain rule. Checked for $s - t = 0, 1, 2, 3$, tanh and sigmoid outputs, by the
    complex step.

    Knobs:
        recurrent: Whether the recurrent Jacobians multiply.
        slope: Whether the slopes of the output are there.
    """
    for m, d, k, units in ((4, 3, 2, "tanh"), (3, 2, 5, "sigmoid")):
        net = network(d, m, k, units="tanh", outputs=units)
        p, (x, xs) = plain(net), sequence(5, d)
        z = p.states(xs)
        stated = p.output_slopes(z[5])[:, None] * p.W if slope else p.W
        for back in range(4):
            at: dict[str, Any] = {"outputs": units, "steps between": back}
            if back and recurrent:
                stated = stated @ (p.state_slopes(z[5 - back], xs[5 - back])[:, None] * p.U)
            rest = xs[5 - back :]
            truth = complex_step(
                lambda z, p=p, rest=rest: p.read(p.states(rest, z)[-1]), z[5 - back]
            )
            yield equals("derivative of an output in a state", truth, stated, **at)
            ours = rows_back(net, x, back)
            yield equals("rows of it from backpropagation", ours, stated, **at)
    net = ElmanRNN(1, 1, 1, activation="identity", bias=False)
    net.U.data.fill_(0.5)
    assert net.W is not None
    net.W.data.fill_(1.0)
    found = rows_back(net, torch.ones(1, 3, 1), 1)
    yield equals(
        "derivative of the output in the state one step before, U = 1/2, W = 1",
        found,
        0.5 if recurrent else 1.0,
    )


output_jacobian.foil("without the slopes of the output", slope=False)
output_jacobian.erratum(
    "C-126",
    printed=r"$\frac{\partial \hat y_k^s}{\partial z_t^i} = \dot\Phi_k^s w_{kj}$",
    right=r"$\frac{\partial \hat y_k^s}{\partial z_s^j} = \dot\Phi_k^s w_{kj}$; for $t < s$ the"
    r" recurrent Jacobians between $t$ and $s$ multiply from the right",
    why=r"The left side has state index $i$ at time $t$, the right side a free $j$ and time $s$."
    r" For $s > t$ the recurrent Jacobians are missing: the linear scalar network with $U = 1/2$,"
    r" $W = 1$ has $\partial \hat y^{t+1} / \partial z_t = 1/2$, printed 1. A slip of the scan"
    r" cannot be excluded.",
    weight="scan",
    refuted_by="derivative of the output in the state one step before, U = 1/2, W = 1",
    recurrent=False,
)


@claim(
    by="identity",
    sources=("A-228", "C-131", "D-276"),
    short=r"\frac{\partial z^T}{\partial z^k} = \dot\Phi^T U\, \dot\Phi^{T-1} U \cdots"
    r" \dot\Phi^{k+1} U",
)
def long_range_jacobian(
    order: Literal["latest leftmost", "earliest leftmost"] = "latest leftmost", extra: int = 0
):
    r"""The Jacobian over many steps is a product.

    $\frac{\partial z^T}{\partial z^k} = \dot\Phi^T U\, \dot\Phi^{T-1} U \cdots \dot\Phi^{k+1} U$
    with the diagonal slope matrices $\dot\Phi^t = \mathrm{diag}(\dot\phi(U z^{t-1} + V x^t))$, the
    latest factor leftmost ($T$ is the last time, not a transpose); in the linear case it is
    $U^{T-k}$.

    *Proof.* The chain rule for the composition of $T - k$ steps. Checked for tanh, the sigmoid and
    linear units, $T = 10$ and all $k$, by the complex step through the steps after $k$; the norms
    are those of `jacobian_profile`.

    Knobs:
        order: The order of the factors.
        extra: How many factors too many there are.
    """
    T = 10
    for m, d, units in ((4, 3, "tanh"), (3, 2, "sigmoid"), (5, 2, "identity")):
        net = network(d, m, units=units)
        net.U.data.mul_(2.0)
        p, (x, xs) = plain(net), sequence(T, d)
        z = p.states(xs)
        ours = jacobian_profile(net, x).log_norms[0, 0]
        for k in range(1, T + 1):
            truth = complex_step(lambda z, p=p, k=k, xs=xs: p.states(xs[k:], z)[-1] + 0j, z[k])
            factors = [
                p.state_slopes(z[t - 1], xs[t - 1])[:, None] * p.U for t in range(k + 1, T + 1)
            ]
            factors = [p.U] * extra + factors
            factors = factors[::-1] if order == "latest leftmost" else factors
            stated = np.linalg.multi_dot([np.eye(m), np.eye(m), *factors])
            at: dict[str, Any] = {"units": units, "T - k": T - k}
            yield equals("derivative of the last state", truth, stated, **at)
            norm = math.log(np.linalg.norm(stated, 2))
            yield equals("logarithm of its norm", ours[k - 1], norm, **at)
            if units == "identity":
                power = np.linalg.matrix_power(p.U, T - k + extra)
                yield equals("power of the weights", truth, power, **at)


long_range_jacobian.foil("factors in the reversed order", order="earliest leftmost")
long_range_jacobian.foil("a factor too many", extra=1)
