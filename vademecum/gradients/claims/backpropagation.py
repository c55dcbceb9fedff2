"""Backpropagation: the chain rule through layers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.claims import claim, complex_step, equals
from vademecum.gradients import backprop as three_passes
from vademecum.gradients import functional, jacobian

WIDTHS = ((3, 3, 3, 3), (3, 4, 2, 5))
SLOPES = {
    "tanh": (torch.tanh, nn.Tanh, lambda a: 1 - torch.tanh(a) ** 2),
    "sigmoid": (torch.sigmoid, nn.Sigmoid, lambda a: torch.sigmoid(a) * (1 - torch.sigmoid(a))),
    "softplus": (lambda a: torch.log(1 + torch.exp(a)), nn.Softplus, torch.sigmoid),
}


def spelled(widths: Sequence[int]) -> str:
    """The widths of the layers in a few characters.

    Example:
        >>> spelled((3, 4, 2))
        '3-4-2'
    """
    return "-".join(map(str, widths))


def draw(widths: Sequence[int]) -> list[Tensor]:
    """Random weight matrices between layers of these widths."""
    return [torch.randn(n, m) / m**0.5 for m, n in pairwise(widths)]


def run(weights: list[Tensor], x: Tensor, phi: Any = torch.tanh) -> list[Tensor]:
    r"""The activations of the layers $z_l = \phi(W_l z_{l-1})$, the input first; complex too.

    A batch of examples has one in each row.
    """
    z = [x]
    for W in weights:
        dtype = torch.promote_types(W.dtype, z[-1].dtype)
        z.append(phi(z[-1].to(dtype) @ W.to(dtype).T))
    return z


def network(weights: list[Tensor], unit: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    """The same network for torch, a linear layer and a unit in turn."""
    layers: list[nn.Module] = []
    for W in weights:
        linear = nn.Linear(W.shape[1], W.shape[0], bias=False)
        linear.weight = nn.Parameter(W.clone())
        layers += [linear, unit()]
    return nn.Sequential(*layers)


def swap(weights: list[Tensor], l: int, W: Tensor) -> list[Tensor]:
    """The weights with one of them replaced."""
    return [*weights[:l], W, *weights[l + 1 :]]


def tanh_jacobian(weights: list[Tensor], z: Tensor) -> Tensor:
    """The Jacobian of tanh layers at a point, as the product of their factors."""
    total = torch.eye(len(z))
    for W in weights:
        z = torch.tanh(W @ z)
        total = (1 - z**2)[:, None] * W @ total
    return total


def weight_jacobian(W: Tensor, z: Tensor) -> Tensor:
    """The Jacobian of one tanh layer in its weights, flattened row by row."""
    slope = 1 - torch.tanh(W @ z) ** 2
    return torch.kron(torch.diag(slope), z[None])


@claim(
    by="identity", sources=("A-091", "B-147", "B-148", "B-151"), budget=0.5,
    short=r"\partial_\theta (G \circ F_\theta \circ H)(x) = \partial G|_{F_\theta(H(x))} \cdot"
    r" \partial_\theta F_\theta|_{H(x)}",
)  # fmt: skip
def parameter_chain_rule(before: bool = False, after: bool = True, last: bool = False):
    r"""The derivative in the parameters of one layer.

    In $G \circ F_\theta \circ H$, where only $F$ depends on $\theta$,
    $\partial_\theta (G \circ F_\theta \circ H)(x) = \partial G|_{F_\theta(H(x))} \cdot
    \partial_\theta F_\theta|_{H(x)}$: layers before it enter through their value, layers after it
    through their Jacobian. A parameter of the last layer has no Jacobian factor, one of an earlier
    layer has those of all later layers.

    Knobs:
        before: Whether the Jacobian of the layers before it is a factor, too, where it fits.
        after: Whether the Jacobian of the layers after it is a factor.
        last: Whether a parameter of the last layer has that layer's Jacobian as a factor, where it
            fits.
    """
    for widths in WIDTHS:
        weights, x = draw(widths), torch.randn(widths[0])
        z, model = run(weights, x), network(weights)
        library = functional(model).unravel(jacobian(model, x[None]).dense())
        for l, W in enumerate(weights):
            wanted = complex_step(lambda V, l=l: run(swap(weights, l, V), x)[-1], W).flatten(1)  # noqa: B023
            eye = torch.eye(widths[-1], len(W))
            factor = tanh_jacobian(weights[l + 1 :], z[l + 1]) if after else eye
            ends = l == len(weights) - 1
            if last and ends and len(W) == len(z[l]):
                factor = tanh_jacobian(weights[l:], z[l])
            stated = factor @ weight_jacobian(W, z[l])
            if before and len(z[l]) == len(x):
                stated = stated @ torch.kron(torch.eye(len(W)), tanh_jacobian(weights[:l], x))
            name = f"derivative in the weights of {'the last' if ends else 'an earlier'} layer"
            at = {"layer": l + 1, "widths": spelled(widths)}
            yield equals(name, wanted, stated, **at, via="complex step")
            found = library[f"{2 * l}.weight"].flatten(1)
            yield equals(name, found, stated, **at, via="autodiff")
    theta, u = torch.rand(()) + 0.5, torch.randn(()) / 2
    inner = u.exp() ** 2
    stated = (theta * inner).cos() * inner * (u.exp() if before else 1)
    found = complex_step(lambda t: torch.sin(t * inner), theta)
    yield equals(r"derivative of $\sin(\theta (e^u)^2)$ in $\theta$", found, stated)


parameter_chain_rule.foil("the layers before it have no Jacobian in the formula", before=True)
parameter_chain_rule.foil("the layers after it have", after=False)
parameter_chain_rule.erratum(
    "B-148",
    printed=r"Derivative wrt parameter in next layer: $(\partial h \circ g) \cdot g'$",
    right=r"$h' \circ g$; the printed formula is that of a parameter in the preceding layer $g$",
    why=r"In $h \circ g$ the map $g$ is applied first; the formula is that of a parameter in the"
    r" preceding layer. A parameter of the next layer $h$ has the derivative $h' \circ g$ without a"
    " Jacobian factor.",
    weight="soft",
    refuted_by="derivative in the weights of the last layer",
    last=True,
)


@claim(
    by="identity", sources=("B-149", "B-150"), budget=0.5,
    short=r"\nabla_{\theta_l} F(x) = \partial F_{k:l+1}(z_l) \cdot F_l'(z_{l-1})",
)  # fmt: skip
def backprop_formula(at: Literal["output", "own input", "input"] = "output"):
    r"""The backpropagation formula.

    For $F = F_k \circ \dots \circ F_1$ with activations $z_l$ and parameters $\theta_l$ in layer
    $l$: $\nabla_{\theta_l} F(x) = \partial F_{k:l+1}(z_l) \cdot F_l'(z_{l-1})$, the Jacobian of
    everything downstream times the local parameter Jacobian; as maps $\nabla_{\theta_l} F =
    (\partial F_{k:l+1} \circ F_{l:1}) \cdot (F_l' \circ F_{l-1:1})$.

    Knobs:
        at: Where the Jacobian of everything downstream is taken: at the layer's output $z_l$, its
            input $z_{l-1}$ or the network's input, as far as these are of one size.
    """
    for widths in ((3, 3, 3, 3, 3), (3, 5, 4, 2)):
        weights, x = draw(widths), torch.randn(widths[0])
        z, model = run(weights, x), network(weights)
        picks = [
            three_passes(model, x[None], i, loss=lambda out, i: out[0, i])
            for i in range(widths[-1])
        ]
        for l, W in enumerate(weights):
            point = {"output": z[l + 1], "own input": z[l], "input": x}[at]
            point = point if len(point) == len(W) else z[l + 1]
            stated = tanh_jacobian(weights[l + 1 :], point) @ weight_jacobian(W, z[l])
            wanted = complex_step(lambda V, l=l: run(swap(weights, l, V), x)[-1], W).flatten(1)  # noqa: B023
            place = {"layer": l + 1, "widths": spelled(widths)}
            name = "derivative of the network in the weights of a layer"
            yield equals(name, wanted, stated, **place, via="complex step")
            rows = [pick.layers[2 * l].gradients["weight"].flatten() for pick in picks]
            yield equals(name, torch.stack(rows), stated, **place, via="backpropagation")


backprop_formula.foil("the downstream Jacobian is not taken at the input", at="input")
backprop_formula.foil("nor at the layer's own input", at="own input")


@claim(
    by="identity", sources=("A-093", "B-145", "B-153", "B-154", "C-074"), budget=0.5,
    short=r"\xi_l = \xi_{l+1}\, \partial F_l(z_{l-1}), \quad"
    r" \delta^l = \dot\phi^l \odot (W^{l+1})^T \delta^{l+1}",
)  # fmt: skip
def error_recursion(transposed: bool = True, slope_of: int = 0):
    r"""The backward recursion of the error vectors.

    For the training objective $f = \ell \circ F$ the sensitivities $\xi_{l+1} = \partial (\ell
    \circ F_{k:l+1})(z_l)$ of the loss to the activations are row vectors with $\xi_{k+1} = \partial
    \ell(z_k)$, $\xi_l = \xi_{l+1}\, \partial F_l(z_{l-1})$ and $\nabla_{\theta_l} f = \xi_{l+1}
    \cdot F_l'(z_{l-1})$. In terms of pre-activations, $\delta^l = \dot\phi^l \odot (W^{l+1})^T
    \delta^{l+1}$. Checked for the mean squared error.

    Knobs:
        transposed: Whether $W^{l+1}$ is transposed; where it is not square, it must be.
        slope_of: How many layers after layer $l$ the slope is taken, where there is a layer of its
            size.
    """
    for widths in ((3, 3, 3, 3, 3), (4, 3, 5, 2)):
        weights, x, y = draw(widths), torch.randn(widths[0]), torch.randn(widths[-1])
        z, found = run(weights, x), three_passes(network(weights), x[None], y[None])
        slopes = [1 - a**2 for a in z[1:]]
        delta = slopes[-1] * 2 * (z[-1] - y) / len(y)
        xi = 2 * (z[-1] - y) / len(y)
        for l in range(len(weights) - 1, -1, -1):
            after, place = weights[l + 1 :], {"layer": l + 1, "widths": spelled(widths)}
            loss = lambda a, W=after, y=y: ((run(W, a)[-1] - y) ** 2).mean()  # noqa: E731
            if after:
                W = after[0] if not transposed and len(after[0]) == len(z[l + 1]) else after[0].T
                slope = slopes[min(l + slope_of, len(slopes) - 1)]
                delta = (slope if len(slope) == len(z[l + 1]) else slopes[l]) * (W @ delta)
                xi = xi @ tanh_jacobian(after[:1], z[l + 1])
            to_z = complex_step(loss, z[l + 1])
            error = complex_step(lambda a, loss=loss: loss(torch.tanh(a)), weights[l] @ z[l])
            yield equals(r"sensitivity to a layer's activations", to_z, xi, **place)
            yield equals(r"sensitivity to a layer's pre-activations", error, delta, **place)
            linear, unit = found.layers[2 * l], found.layers[2 * l + 1]
            yield equals("error at the activations by the library", unit.error[0], to_z, **place)
            yield equals(
                "error at the pre-activations by the library", linear.error[0], error, **place
            )
            wanted = torch.outer(error, z[l])
            name = "gradient of the weights by the library"
            yield equals(name, linear.gradients["weight"], wanted, **place)
        assert found.input_error is not None
        wanted = complex_step(lambda a: ((run(weights, a)[-1] - y) ** 2).mean(), x)  # noqa: B023
        yield equals(
            "sensitivity to the input", found.input_error[0], wanted, widths=spelled(widths)
        )


error_recursion.foil("$W^{l+1}$ is transposed", transposed=False)
error_recursion.foil("the slope is that of layer $l$", slope_of=1)
