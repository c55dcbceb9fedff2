"""What the course claims of backpropagation: the chain rule through layers, in three passes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.claims import claim, complex_step, equals
from vademecum.gradients.backpropagation import backprop as three_passes

SLOPES = {
    "tanh": (torch.tanh, nn.Tanh, lambda a: 1 - torch.tanh(a) ** 2),
    "sigmoid": (torch.sigmoid, nn.Sigmoid, lambda a: torch.sigmoid(a) * (1 - torch.sigmoid(a))),
    "softplus": (lambda a: torch.log(1 + torch.exp(a)), nn.Softplus, torch.sigmoid),
}


def draw(widths: Sequence[int]) -> list[Tensor]:
    """Random weight matrices between layers of these widths."""
    return [torch.randn(n, m) / m**0.5 for m, n in pairwise(widths)]


def run(weights: list[Tensor], x: Tensor, phi: Any = torch.tanh) -> list[Tensor]:
    r"""The activations of the layers $z_l = \phi(W_l z_{l-1})$, the input first; complex too."""
    z = [x]
    for W in weights:
        dtype = torch.promote_types(W.dtype, z[-1].dtype)
        z.append(phi(W.to(dtype) @ z[-1].to(dtype)))
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


@claim(by="identity", sources=("A-091", "B-147", "B-148", "B-151"), budget=0.5)
def parameter_chain_rule(before: bool = False, after: bool = True, last: bool = False):
    r"""The derivative in the parameters of one layer.

    In $G \circ F_\theta \circ H$, where only $F$ depends on $\theta$,
    $\partial_\theta (G \circ F_\theta \circ H)(x) = \partial G|_{F_\theta(H(x))} \cdot
    \partial_\theta F_\theta|_{H(x)}$: layers before it enter through their value, layers after it
    through their Jacobian. A parameter of the last layer has no Jacobian factor, one of an earlier
    layer has those of all later layers.
    """
    widths = (3, 3, 3, 3)
    weights, x = draw(widths), torch.randn(3)
    z = run(weights, x)
    for l, W in enumerate(weights):
        wanted = complex_step(lambda V, l=l: run(swap(weights, l, V), x)[-1], W).flatten(1)
        factor = tanh_jacobian(weights[l + 1 :], z[l + 1]) if after else torch.eye(3)
        if last and l == len(weights) - 1:
            factor = tanh_jacobian(weights[l:], z[l])
        found = factor @ weight_jacobian(W, z[l])
        if before:
            found = found @ torch.kron(torch.eye(3), tanh_jacobian(weights[:l], x))
        yield equals(found, wanted, layer=l)
    theta, u = torch.rand(()) + 0.5, torch.randn(())
    inner = u.exp() ** 2  # sin(theta exp(u)^2)
    found = (theta * inner).cos() * inner * (u.exp() if before else 1)
    yield equals(found, complex_step(lambda t: torch.sin(t * inner), theta))


parameter_chain_rule.foil("the layers before it have no Jacobian in the formula", before=True)
parameter_chain_rule.foil("the layers after it have", after=False)
parameter_chain_rule.erratum(
    "B-148",
    printed=r"Derivative wrt parameter in next layer: $(\partial h \circ g) \cdot g'$",
    right=r"$h' \circ g$; the printed formula is that of a parameter in the preceding layer $g$",
    why="in $h \\circ g$ the map $g$ comes first: a parameter of $h$ has no Jacobian factor",
    weight="soft",
    last=True,
)


@claim(by="identity", sources=("B-149", "B-150"), budget=0.5)
def backprop_formula(at: str = "output"):
    r"""The backpropagation formula.

    For $F = F_k \circ \dots \circ F_1$ with activations $z_l$ and parameters $\theta_l$ in layer
    $l$: $\nabla_{\theta_l} F(x) = \partial F_{k:l+1}(z_l) \cdot F_l'(z_{l-1})$, the Jacobian of
    everything downstream times the local parameter Jacobian; as maps $\nabla_{\theta_l} F =
    (\partial F_{k:l+1} \circ F_{l:1}) \cdot (F_l' \circ F_{l-1:1})$.
    """
    weights, x = draw((3, 3, 3, 3, 3)), torch.randn(3)
    z = run(weights, x)
    picks = [
        three_passes(network(weights), x[None], i, loss=lambda out, i: out[0, i]) for i in range(3)
    ]
    for l, W in enumerate(weights):
        point = {"output": z[l + 1], "own input": z[l], "input": x}[at]
        found = tanh_jacobian(weights[l + 1 :], point) @ weight_jacobian(W, z[l])
        wanted = complex_step(lambda V, l=l: run(swap(weights, l, V), x)[-1], W).flatten(1)
        yield equals(found, wanted, layer=l)
        rows = [pick.layers[2 * l].gradients["weight"].flatten() for pick in picks]
        yield equals(torch.stack(rows), wanted, layer=l)


backprop_formula.foil("the downstream Jacobian is not taken at the input", at="input")
backprop_formula.foil("nor at the layer's own input", at="own input")


@claim(by="identity", sources=("A-093", "B-145", "B-153", "B-154", "C-074"), budget=0.5)
def error_recursion(transposed: bool = True, slope_of: int = 0):
    r"""The backward recursion of the error vectors.

    For the training objective $f = \ell \circ F$ the sensitivities $\xi_{l+1} = \partial (\ell
    \circ F_{k:l+1})(z_l)$ of the loss to the activations are row vectors with $\xi_{k+1} = \partial
    \ell(z_k)$, $\xi_l = \xi_{l+1}\, \partial F_l(z_{l-1})$ and $\nabla_{\theta_l} f = \xi_{l+1}
    \cdot F_l'(z_{l-1})$. In terms of pre-activations, $\delta^l = \dot\phi^l \odot (W^{l+1})^T
    \delta^{l+1}$.
    """
    weights, x, y = draw((3, 3, 3, 3, 3)), torch.randn(3), torch.randn(3)
    z = run(weights, x)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return ((out - y) ** 2).sum() / 2

    found = three_passes(network(weights), x[None], y, loss=loss)
    slopes = [1 - a**2 for a in z[1:]]
    delta = slopes[-1] * (z[-1] - y)
    for l in range(len(weights) - 1, -1, -1):
        after = weights[l + 1 :]
        xi = complex_step(lambda a, W=after: loss(run(W, a)[-1], y), z[l + 1])
        error = complex_step(
            lambda a, W=after: loss(run(W, torch.tanh(a))[-1], y), weights[l] @ z[l]
        )
        if after:
            W = after[0].T if transposed else after[0]
            delta = slopes[l + slope_of] * (W @ delta)
        yield equals(delta, error, layer=l)
        yield equals(found.layers[2 * l].error[0], error, layer=l)
        yield equals(found.layers[2 * l + 1].error[0], xi, layer=l)
        yield equals(found.layers[2 * l].gradients["weight"], torch.outer(error, z[l]), layer=l)


error_recursion.foil("$W^{l+1}$ is transposed", transposed=False)
error_recursion.foil("the slope is that of layer $l$", slope_of=1)


def cross_entropy(out: Tensor, y: int) -> Tensor:
    """The cross-entropy of one example, for complex logits too."""
    return out.exp().sum().log() - out.flatten()[y]


def counted(model: nn.Sequential) -> list[int]:
    """Counts of the visits of each layer, forward and then backward, as long as the model lives."""
    counts = [0] * 2 * len(model)

    def count(place: int) -> None:
        counts[place] += 1

    for l, layer in enumerate(model):

        def visited(m: Any, i: Any, out: Tensor, l: int = l) -> None:
            count(2 * l)
            out.register_hook(lambda g: count(2 * l + 1))

        layer.register_forward_hook(visited)
    return counts


@claim(by="identity", sources=("A-092", "A-093", "A-094", "B-155"), budget=0.5)
def backprop(stored: str = "input"):
    r"""Backpropagation in three passes.

    (1) A forward pass computes and stores all activations, (2) a backward pass computes the error
    vectors from the last layer down, (3) local products of error vector and stored activation give
    every parameter gradient; each layer is visited once per pass, so that the whole gradient costs
    a small constant times one evaluation.
    """
    for widths in ((5, 7, 6, 3), (4, 4, 4, 4)):
        weights, x = draw(widths), torch.randn(widths[0])
        model = network(weights)
        counts = counted(model)
        found = three_passes(model, x[None], 1, loss=cross_entropy)
        yield equals(counts, [1] * len(counts), width=widths[1])
        z = run(weights, x)
        for l, W in enumerate(weights):

            def risk(V: Tensor, weights: Any = weights, l: int = l, x: Tensor = x) -> Tensor:
                return cross_entropy(run(swap(weights, l, V), x)[-1], 1)

            wanted = complex_step(risk, W)
            yield equals(found.gradients[f"{2 * l}.weight"], wanted, layer=l, width=widths[1])
            if stored == "input" or W.shape[0] == W.shape[1]:
                kept = z[l] if stored == "input" else found.layers[2 * l].activation[0]
                local = torch.outer(found.layers[2 * l].error[0], kept)
                yield equals(local, wanted, layer=l, width=widths[1])


backprop.foil("activations overwritten by the layer's output before step 3", stored="output")


@claim(by="identity", sources=("C-069", "C-070", "C-071", "C-072", "C-073", "C-074"), budget=0.5)
def dense_backprop(weight_slopes: int = 1, bias_slopes: int = 1):
    r"""Backpropagation through a dense layer.

    For $x^l = \phi(W^l x^{l-1} + b^l)$ with slopes $\dot\phi_i^l = \phi'((W^l x^{l-1} + b^l)_i)$:
    $\partial x_i^l / \partial w_{ij}^l = \dot\phi_i^l x_j^{l-1}$ and $\partial x_i^l / \partial
    b_i^l = \dot\phi_i^l$ (zero for other units). With the pre-activation error $\delta_i^l =
    \frac{\partial h}{\partial x_i^l} \dot\phi_i^l$ the gradients are $\frac{\partial h}{\partial
    w_{ij}^l} = \delta_i^l x_j^{l-1}$ and $\frac{\partial h}{\partial b_i^l} = \delta_i^l$: the
    slope enters once.
    """
    for name, (phi, unit, slope) in SLOPES.items():
        weights, x = draw((3, 4, 4, 2)), torch.randn(3)
        biases = [torch.randn(len(W)) for W in weights]
        model = network(weights, unit)
        for layer, b in zip(list(model)[::2], biases, strict=True):
            layer.register_parameter("bias", nn.Parameter(b.clone()))
        found = three_passes(model, x[None], None, loss=lambda z, y: z.sin().sum())
        x_in = x
        for l, (W, b) in enumerate(zip(weights, biases, strict=True)):
            a, after = W @ x_in + b, list(zip(weights, biases, strict=True))[l + 1 :]

            def h(a: Tensor, after: Any = after, phi: Any = phi) -> Tensor:
                v = phi(a)
                for W, b in after:
                    v = phi(W.to(v.dtype) @ v + b)
                return v.sin().sum()

            error = found.layers[2 * l + 1].error[0]
            in_b = complex_step(h, a)
            in_w = complex_step(lambda V, v=x_in, b=b, h=h: h(V @ v.to(V.dtype) + b), W)
            at = {"layer": l, "unit": name}
            yield equals(complex_step(phi, a), torch.diag(slope(a)), **at)
            yield equals(error * slope(a) ** bias_slopes, in_b, **at)
            rows = (error * slope(a) ** weight_slopes)[:, None] * x_in
            yield equals(rows, in_w, **at)
            yield equals(found.gradients[f"{2 * l}.weight"], in_w, **at)
            yield equals(found.gradients[f"{2 * l}.bias"], in_b, **at)
            x_in = phi(a)


dense_backprop.erratum(
    "C-072",
    printed=r"$\frac{\partial h}{\partial w_{ij}^l} = \delta_i^l \dot\phi_i^l x_j^{l-1}$ with "
    r"$\delta_i^l = \frac{\partial h}{\partial x_i^l} \dot\phi_i^l$",
    right=r"$\frac{\partial h}{\partial w_{ij}^l} = \delta_i^l x_j^{l-1}$",
    why=r"the slope is counted twice: $\tanh(w)$ at $w = 1$ has slope 0.420, not 0.176",
    weight="hard",
    weight_slopes=2,
)
dense_backprop.erratum(
    "C-073",
    printed=r"$\frac{\partial h}{\partial b_i^l} = \delta_i^l \dot\phi_i^l$ with "
    r"$\delta_i^l = \frac{\partial h}{\partial x_i^l} \dot\phi_i^l$",
    right=r"$\frac{\partial h}{\partial b_i^l} = \delta_i^l$",
    why=r"the slope is counted twice: $\tanh(b)$ at $b = 1$ has slope 0.420, not 0.176",
    weight="hard",
    bias_slopes=2,
)
