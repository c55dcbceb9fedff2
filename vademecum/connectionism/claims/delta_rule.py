"""The generalised delta rule: error signals that go backwards."""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import claim, complex_step, equals
from vademecum.connectionism import McCullochPittsNeuron, delta_rule, pdp_update, separable

Signal = Literal["delta rule", "transposed weights", "no slope"]
UNITS = ("tanh", "logistic", "linear")


def _uniform(*shape: int) -> Tensor:
    return 2 * torch.rand(shape) - 1


def _unit(a: Tensor, kind: str) -> Tensor:
    if kind == "threshold":
        return (a.real > 0).to(a)
    return {"tanh": torch.tanh(a), "logistic": 1 / (1 + torch.exp(-a)), "linear": a}[kind]


def _loss(weights: list[Tensor], x: Tensor, y: Tensor, units: list[str], bias: bool) -> Tensor:
    """The squared loss of the network, also of complex weights."""
    for w, kind in zip(weights, units, strict=True):
        lifted = torch.cat([x, torch.ones_like(x[:, :1])], 1) if bias else x
        x = _unit(lifted.to(w) @ w.T, kind)
    return 0.5 * ((x - y) ** 2).sum()


def _gradient(
    weights: list[Tensor], layer: int, x: Tensor, y: Tensor, units: list[str], bias: bool
) -> Tensor:
    """The derivative of the loss in each weight of a layer, by the complex step."""

    def of_layer(w: Tensor) -> Tensor:
        before, after = (
            [v.to(w) for v in part] for part in (weights[:layer], weights[layer + 1 :])
        )
        return _loss([*before, w, *after], x, y, units, bias)

    return complex_step(of_layer, weights[layer])


def _with_wrong_signals(weights: list[Tensor], x: Tensor, y: Tensor, signal: str) -> list[Tensor]:
    """The gradients of a network of tanh by error signals that are wrong in one way."""
    inputs = [x]
    for w in weights:
        inputs.append(torch.tanh(inputs[-1] @ w[:, :-1].T + w[:, -1]))
    delta, gradients = (inputs[-1] - y) * (1 - inputs[-1] ** 2), []
    for i in range(len(weights) - 1, -1, -1):
        gradients.append(torch.cat([delta.T @ inputs[i], delta.sum(0)[:, None]], 1))
        w, slope = weights[i][:, :-1], 1 - inputs[i] ** 2
        turned = signal == "transposed weights" and len(w) == len(w.T)
        delta = delta @ (w.T if turned else w) * (1 if signal == "no slope" else slope)
    return gradients[::-1]


@claim(
    by="identity",
    sources=("E-076", "E-077"),
    budget=0.5,
    full={"width": 4, "examples": 20},
    short=r"\delta_j = \phi'(a_j) \textstyle\sum_k w_{kj} \delta_k,\quad"
    r" \partial \ell / \partial w_{ji} = \delta_j x_i",
)
def generalized_delta_rule(
    signal: Signal = "delta rule",
    hidden: Literal["threshold", "tanh"] = "threshold",
    momentum: float = 0.5,
    layers: int = 3,
    width: int = 3,
    examples: int = 6,
):
    r"""The chain rule sends error signals to hidden units, if these are differentiable.

    With $a_j = \sum_i w_{ji} x_i$, $x_j = \phi(a_j)$ and the squared loss
    $\ell = \tfrac12 \sum_k (x_k - y_k)^2$, the signals $\delta_k = \phi'(a_k) (x_k - y_k)$ at the
    outputs and $\delta_j = \phi'(a_j) \sum_k w_{kj} \delta_k$ at hidden units give the gradient
    $\partial \ell / \partial w_{ji} = \delta_j x_i$ in every layer. With hard-threshold hidden
    units the gradient in the first layer is 0 almost everywhere, and there is nothing to send.
    Hidden units are needed: no threshold unit computes XOR, and a network of three does. The PDP
    group's update is $\Delta w(t + 1) = -\eta\, \partial \ell / \partial w + \alpha\, \Delta w(t)$.

    *Proof.* $\delta_j = \partial \ell / \partial a_j$, and $a_k$ depends on $a_j$ by
    $\partial a_k / \partial a_j = w_{kj} \phi'(a_j)$. A step function is constant around almost
    every point. A unit for XOR would satisfy $y_i (w^\top x_i + b) > 0$ at the four points; but
    $\sum_i y_i (x_i, 1) = 0$ there, so these four numbers add up to 0.

    The sheet names the PDP group (Rumelhart, Hinton, Williams and McClelland, 1986) as the origin.
    They made the rule popular: reverse accumulation goes back to Linnainmaa (1970), and its use for
    networks to Werbos (1974, 1982).

    *Check.* The gradients against the complex step, for three kinds of units, with a bias and
    without; three updates against torch's gradients of the loss.

    Knobs:
        signal: How the error signals of hidden units are computed.
        hidden: The hidden units whose first layer is to have no gradient.
        momentum: The $\alpha$ of the formula that the updates are compared with; they use 0.5.
        layers: How many layers the networks have.
        width: How many hidden units there are in a layer; inputs are one fewer, outputs one more.
        examples: How many examples there are.
    """
    widths = [max(1, width - 1), *[width] * (layers - 1), width + 1]
    weights = [_uniform(k, d + 1) for d, k in pairwise(widths)]
    x, y = _uniform(examples, widths[0]), _uniform(examples, widths[-1])
    cases = [(["tanh"] * layers, True), *((list(_mixed(layers)), bias) for bias in (True, False))]
    for units, bias in cases:
        given = weights if bias else [w[:, 1:] for w in weights]
        gradients = delta_rule(given, x, y, units=units, bias=bias).gradients
        if signal != "delta rule" and units == ["tanh"] * layers:
            gradients = _with_wrong_signals(weights, x, y, signal)
        for layer, gradient in enumerate(gradients):
            exact = _gradient(given, layer, x, y, units, bias)
            at = {"layer": layer, "units": units[0], "bias": bias}
            yield equals("gradient by error signals", gradient, exact, **at)
    yield from _updates(weights, x, y, momentum)
    yield from _flat([weights[0], _uniform(2, len(weights[0]) + 1)], hidden, examples)
    yield from _exclusive_or()


def _mixed(layers: int) -> list[str]:
    """Units of every kind, the logistic ones first."""
    return [UNITS[(i + 1) % 3] for i in range(layers)]


def _updates(weights: list[Tensor], x: Tensor, y: Tensor, momentum: float):
    """Three updates with momentum, beside the formula with the gradients of torch."""
    units, eta = ["tanh"] * len(weights), 0.1
    now, changes = tuple(weights), None
    theirs, before = [w.clone() for w in weights], [torch.zeros_like(w) for w in weights]
    for t in (1, 2, 3):
        gradients = delta_rule(now, x, y).gradients
        now, changes = pdp_update(now, gradients, changes, rate=eta, momentum=0.5)
        leaves = [w.clone().requires_grad_() for w in theirs]
        exact = torch.autograd.grad(_loss(leaves, x, y, units, True), leaves)
        before = [momentum * c - eta * g for c, g in zip(before, exact, strict=True)]
        theirs = [w + c for w, c in zip(theirs, before, strict=True)]
        for layer, (one, other) in enumerate(zip(now, theirs, strict=True)):
            yield equals("weights after updates with momentum", one, other, t=t, layer=layer)


def _flat(weights: list[Tensor], hidden: str, examples: int):
    """The slope of the loss in the first layer, by quotients, where no unit is near a step."""
    h, width = 5e-6, weights[0].shape[1] - 1
    x = _uniform(2 * examples, width)
    a = torch.cat([x, torch.ones(len(x), 1)], 1) @ weights[0].T
    clear = (a.abs() > 1e-3).all(1)  # a step in a weight moves a by at most h
    x, y = x[clear], _uniform(int(clear.sum()), len(weights[-1]))
    quotients = []
    for step in h * torch.eye(weights[0].numel()).view(-1, *weights[0].shape):
        ends = [
            _loss([weights[0] + s, *weights[1:]], x, y, [hidden, "tanh"], True)
            for s in (step, -step)
        ]
        quotients.append((ends[0] - ends[1]) / (2 * h))
    slope = torch.stack(quotients)
    yield equals("slope of the loss in the first layer", slope, torch.zeros_like(slope), tol=0.0)


def _exclusive_or():
    points = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    labels = torch.tensor([-1, 1, 1, -1])
    lifted = torch.cat([points, torch.ones(4, 1, dtype=torch.long)], 1)
    yield equals(r"$\sum_i y_i (x_i, 1)$ of XOR", (labels[:, None] * lifted).sum(0), 0)
    found = separable(points.double(), labels).separable
    yield equals("whether a threshold unit computes XOR", found, False)
    both, butnot = torch.tensor([1, 1]), torch.tensor([1, -1])
    either, all_of = McCullochPittsNeuron(both, 1), McCullochPittsNeuron(both, 2)
    seen = torch.stack([either(points), all_of(points)], 1)
    yield equals("XOR by three units", 2 * McCullochPittsNeuron(butnot, 1)(seen) - 1, labels)


generalized_delta_rule.foil(
    "error signals through the transposed weights", signal="transposed weights"
)
generalized_delta_rule.foil("error signals without the slope of the hidden unit", signal="no slope")
generalized_delta_rule.foil("differentiable hidden units do have a gradient", hidden="tanh")
generalized_delta_rule.foil("the update before counts too", momentum=0.0)
