"""Rectified layers: their derivatives away from the kinks."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import claim, equals
from vademecum.gradients import Tape, backprop


def half_active(m: int, n: int) -> tuple[Tensor, Tensor]:
    """A matrix and a vector, every other product of a row with which is positive, none near 0."""
    z, theta = torch.randn(n), torch.randn(m, n)
    sign = torch.where(torch.arange(m) % 2 == 0, 1.0, -1.0)
    side = theta @ z
    wanted = sign * (side.abs() + 0.1)
    return theta + torch.outer(wanted - side, z) / (z @ z), z


def central(f: Callable[[Tensor], Tensor], x: Tensor, h: float = 2**-12) -> Tensor:
    """The Jacobian by central differences, exact where f is linear between the two points."""
    steps = h * torch.eye(x.numel()).reshape(-1, *x.shape)
    return torch.stack([(f(x + e) - f(x - e)).flatten() / (2 * h) for e in steps], 1)


@claim(
    by="identity", sources=("B-163", "B-165", "B-177"), budget=0.5,
    short=r"\partial \max(0, \Theta z) / \partial z = \operatorname{diag}(H(\Theta z))\, \Theta",
)  # fmt: skip
def relu_jacobian(mask: Literal["rows", "columns", "none"] = "rows"):
    r"""The Jacobian of a ReLU layer.

    Away from kinks $\frac{\partial}{\partial x} \max(0, x) = \operatorname{diag}(H(x))$ with the
    Heaviside step $H$, so that the layer $F(z) = \max(0, \Theta z)$ has the Jacobian
    $\operatorname{diag}(H(\Theta z))\, \Theta$: the weight matrix with the rows of inactive units
    set to zero, entries $1[\theta_i \cdot z > 0]\, \Theta_{ij}$.

    Knobs:
        mask: What of the weight matrix the step sets to zero.
    """
    for m, n in ((4, 4), (6, 4)):
        theta, z = half_active(m, n)
        step = torch.heaviside(theta @ z, torch.zeros(()))
        stated = {"rows": step[:, None] * theta, "columns": theta * step[:n], "none": theta}[mask]
        layer, name = lambda z, theta=theta: (theta @ z).relu(), "Jacobian of a ReLU layer"
        yield equals(name, central(layer, z), stated, m=m, via="differences")
        tape = Tape(layer, z)
        yield equals(name, tape.jacobian(mode="reverse").matrix, stated, m=m, via="reverse mode")
        yield equals(name, tape.jacobian(mode="forward").matrix, stated, m=m, via="forward mode")
        found = central(torch.relu, theta @ z)
        yield equals(r"Jacobian of $\max(0, x)$", found, torch.diag(step), m=m)


relu_jacobian.foil("the columns masked, not the rows", mask="columns")
relu_jacobian.foil("no mask", mask="none")


@claim(
    by="identity", sources=("B-164",), budget=0.5,
    short=r"\partial \max(0, W x)_k / \partial W_{ij} = \delta_{ik}\, 1[W_i \cdot x > 0]\, x_j",
)  # fmt: skip
def relu_weight_derivative(factor: Literal["x_j", "x_i"] = "x_j", other_units: bool = False):
    r"""The derivative of a ReLU layer in its weights.

    Away from kinks $\frac{\partial}{\partial W_{ij}} \max(0, W x)_k = \delta_{ik}\,
    1[W_i \cdot x > 0]\, x_j$ with $W_i$ the $i$-th row; the indicator can be written
    $\max(0, \operatorname{sign}(W_i \cdot x))$.

    Knobs:
        factor: The entry of the input in the derivative; $x_i$ only if there is one for each row.
        other_units: Whether the factor $\delta_{ik}$ is missing, so that all rows count for a unit.
    """
    for m, n in ((4, 4), (5, 3)):
        W, x = half_active(m, n)
        layer = lambda W, x=x: (W @ x).relu()  # noqa: E731
        active, eye = (W @ x).sign().clamp(min=0), torch.eye(m)
        on = active[:, None].expand(m, m) if other_units else eye * active  # k, i
        entries = x[:, None].expand(m, n) if factor == "x_i" and m == n else x.expand(m, n)
        stated, at = on[:, :, None] * entries, {"m": m, "n": n}  # k, i, j
        found = central(layer, W).reshape(m, m, n)
        name = "derivative of a ReLU layer in its weights"
        yield equals(name, found, stated, **at, via="differences")
        found = Tape(layer, W).jacobian().matrix.reshape(m, m, n)
        yield equals(name, found, stated, **at, via="reverse mode")


relu_weight_derivative.foil("$x_i$ in place of $x_j$", factor="x_i")
relu_weight_derivative.foil("unit $k$ does not depend on the other rows", other_units=True)


@claim(
    by="identity", sources=("B-176",), budget=0.5,
    short=r"\theta_j \cdot z_{l-1} < 0: \quad \nabla_{\theta_j} z_j = 0, \quad"
    r" \nabla_{z_{l-1}} z_j = 0",
)  # fmt: skip
def inactive_relu(slope: float = 0.0):
    r"""Inactive ReLU units block the gradient.

    If unit $j$ of a ReLU layer is inactive at an input (negative pre-activation), neither its own
    weights nor, through it, its inputs receive any gradient from that input: $\nabla_{\theta_j} z_j
    = 0$ and $\nabla_{z_{l-1}} z_j = 0$.

    Checked for the cross-entropy behind a further layer: the gradients are what the active units
    alone give, by hand, and other outgoing weights of the inactive ones do not change them.

    Knobs:
        slope: The slope of the units left of zero, 0 for the ReLU.
    """
    W, x = half_active(6, 4)
    rectifier = nn.LeakyReLU(slope) if slope else nn.ReLU()
    out = nn.Linear(6, 3)
    model = nn.Sequential(nn.Linear(4, 6, bias=False), rectifier, out)
    model[0].weight = nn.Parameter(W)
    found = backprop(model, x[None], torch.tensor([1]))
    rows = found.gradients["0.weight"]
    yield equals("gradients of the weights of inactive units", rows[1::2], 0.0, tol=0.0)
    V = out.weight.detach()[:, ::2]
    odds = V @ (W @ x)[::2] + out.bias.detach()
    error = V.T @ (odds.softmax(0) - torch.tensor([0.0, 1.0, 0.0]))
    wanted = torch.outer(error, x)
    yield equals("gradients of the weights of active units", rows[::2], wanted)
    assert found.input_error is not None
    yield equals("gradient of the input", found.input_error[0], W[::2].T @ error)
    with torch.no_grad():
        out.weight[:, 1::2] += torch.randn(3, 3)
    again = backprop(model, x[None], torch.tensor([1])).input_error
    name = "gradient of the input with other weights behind inactive units"
    yield equals(name, again, found.input_error, tol=0.0)


inactive_relu.foil("a leaky unit lets some of it through", slope=0.01)
