"""What the course claims of the generalised delta rule."""

import torch
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.connectionism.error_signals import delta_rule
from vademecum.connectionism.mcculloch_pitts import McCullochPittsNeuron

STEP = 5e-6


def _uniform(*shape: int) -> Tensor:
    return 2 * torch.rand(shape) - 1


def _loss(weights: list[Tensor], x: Tensor, y: Tensor, hidden: str) -> Tensor:
    for i, w in enumerate(weights):
        a = torch.cat([x, torch.ones(len(x), 1)], 1) @ w.T
        last = i == len(weights) - 1
        x = torch.tanh(a) if hidden == "tanh" or last else (a > 0).to(a)
    return 0.5 * (x - y).square().sum()


def _quotients(weights: list[Tensor], layer: int, x: Tensor, y: Tensor, hidden: str) -> Tensor:
    """Central differences of the loss in each weight of a layer."""
    quotients = torch.zeros_like(weights[layer])
    for place in torch.cartesian_prod(*(torch.arange(s) for s in quotients.shape)).tolist():
        ends = []
        for step in (STEP, -STEP):
            moved = [w.clone() for w in weights]
            moved[layer][tuple(place)] += step
            ends.append(_loss(moved, x, y, hidden))
        quotients[tuple(place)] = (ends[0] - ends[1]) / (2 * STEP)
    return quotients


def _wrong_rule(weights: list[Tensor], x: Tensor, y: Tensor, signal: str) -> list[Tensor]:
    """The gradients by error signals that are wrong in one way."""
    inputs = [x]
    for w in weights:
        inputs.append(torch.tanh(inputs[-1] @ w[:, :-1].T + w[:, -1]))
    delta, gradients = (inputs[-1] - y) * (1 - inputs[-1] ** 2), []
    for i in range(len(weights) - 1, -1, -1):
        gradients.append(torch.cat([delta.T @ inputs[i], delta.sum(0)[:, None]], 1))
        w, slope = weights[i][:, :-1], 1 - inputs[i] ** 2
        delta = delta @ w.T * slope if signal == "transposed weights" else delta @ w
    return gradients[::-1]


@claim(
    by="identity",
    sources=("E-076", "E-077"),
    budget=0.5,
    full={"width": 4, "examples": 20},
)
def generalized_delta_rule(
    signal: str = "delta rule",
    hidden: str = "threshold",
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
    Hidden units are needed: no threshold unit computes XOR, and a network of three does.

    *Proof.* $\delta_j = \partial \ell / \partial a_j$, and $a_k$ depends on $a_j$ by
    $\partial a_k / \partial a_j = w_{kj} \phi'(a_j)$. A step function is constant around almost
    every point. A unit for XOR would satisfy $y_i (w^\top x_i + b) > 0$ at the four points; but
    $\sum_i y_i (x_i, 1) = 0$ there, so these four numbers add up to 0.

    The sheet names the PDP group (Rumelhart, Hinton, Williams and McClelland, 1986) as the origin.
    They made the rule popular: reverse accumulation goes back to Linnainmaa (1970), and its use for
    networks to Werbos (1974, 1982).
    """
    weights = [_uniform(width, width + 1) for _ in range(layers)]
    x, y = _uniform(examples, width), _uniform(examples, width)
    gradients = delta_rule(weights, x, y).gradients
    if signal != "delta rule":
        gradients = _wrong_rule(weights, x, y, signal)
    # Through a unit derivatives grow like those of tanh (at most 1, 0.77, 2), through a layer
    # `width` times; with all numbers in [-1, 1] the third one of the loss stays below 6e3 here, so
    # the quotients are off by less than 6e3 * STEP**2 / 6 < 3e-8, and by 1e-8 of rounding.
    for layer, gradient in enumerate(gradients):
        yield equals(gradient, _quotients(weights, layer, x, y, "tanh"), tol=1e-6, layer=layer)

    x = _uniform(2 * examples, width)
    a = torch.cat([x, torch.ones(len(x), 1)], 1) @ weights[0].T
    clear = (a.abs() > 1e-3).all(1)  # a step in a weight moves a by at most STEP
    x, y = x[clear], _uniform(int(clear.sum()), width)
    flat = _quotients(weights[:2], 0, x, y, hidden)
    yield equals(flat, torch.zeros_like(flat), tol=0.0, layer=0)

    points = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    labels = torch.tensor([-1, 1, 1, -1])
    lifted = torch.cat([points, torch.ones(4, 1, dtype=torch.long)], 1)
    yield equals((labels[:, None] * lifted).sum(0), torch.zeros(3, dtype=torch.long))
    both, butnot = torch.tensor([1, 1]), torch.tensor([1, -1])
    either, all_of = McCullochPittsNeuron(both, 1), McCullochPittsNeuron(both, 2)
    seen = torch.stack([either(points), all_of(points)], 1)
    yield equals(2 * McCullochPittsNeuron(butnot, 1)(seen) - 1, labels)


generalized_delta_rule.foil(
    "error signals through the transposed weights", signal="transposed weights"
)
generalized_delta_rule.foil("error signals without the slope of the hidden unit", signal="no slope")
generalized_delta_rule.foil("differentiable hidden units do have a gradient", hidden="tanh")
