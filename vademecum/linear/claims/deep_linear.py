"""Deep linear networks: their loss and its gradients."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals, lowest
from vademecum.linear import DeepLinearNetwork


def whitened(s: int, n: int) -> Tensor:
    """Examples as rows with second moments exactly the identity, up to rounding."""
    return s**0.5 * torch.linalg.qr(torch.randn(s, n)).Q


def network_of(*weights: Tensor) -> DeepLinearNetwork:
    """The deep linear network with given weights, the first layer's first."""
    made = DeepLinearNetwork([weights[0].shape[1], *(len(w) for w in weights)])
    with torch.no_grad():
        for mine, given in zip(made.weights, weights, strict=True):
            mine.copy_(given)
    return made


def _through(layers: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    for w in layers:
        x = w @ x
    return x


def _loss(
    weights: list[np.ndarray], l: int, x: np.ndarray, y: np.ndarray, w: np.ndarray
) -> complex:
    """Half the squared error, as a function of one layer's weights."""
    return ((_through([*weights[:l], w, *weights[l + 1 :]], x) - y) ** 2).sum() / 2


def _formula(
    order: str, weights: list[np.ndarray], l: int, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """The gradient in a layer as the statement has it, or wrong in one way."""
    above = {
        "right": [w.T for w in weights[:l:-1]],
        "untransposed": weights[l + 1 :],
        "reversed": [w.T for w in weights[l + 1 :]],
    }
    residual = _through(weights, x) - y
    return np.outer(_through(above[order], residual), _through(weights[:l], x))


@claim(
    by="identity",
    sources=("A-037",),
    budget=0.5,
    full={"widths": (6, 9, 3, 8, 5, 7)},
    short=r"\nabla_{W^l} \tfrac12 \|F x - y\|^2 = (W^L \cdots W^{l+1})^\top (F x - y)"
    r" (W^{l-1} \cdots W^1 x)^\top",
)
def deep_linear_gradient(
    order: Literal["right", "untransposed", "reversed"] = "right",
    widths: tuple[int, ...] = (3, 4, 2, 5, 3),
):
    r"""The gradient of a deep linear network in any of its layers.

    $$\frac12 \frac{\partial}{\partial W^l} \|W^L \cdots W^1 x - y\|_2^2 =
    (W^L \cdots W^{l+1})^\top (W^L \cdots W^1 x - y)\, x^\top (W^{l-1} \cdots W^1)^\top$$
    with empty products read as identities. Hence $\langle W^l, G^l \rangle$ is the same number for
    all layers: scaling one layer up and another down changes nothing.

    *Proof.* The output is linear in $W^l$, with what is above applied from the left to
    $W^l (W^{l-1} \cdots W^1 x)$. The formula is checked for equal widths, where a wrong order of
    factors still has a shape; the network's gradients for the widths given, too.

    Knobs:
        order: The order, and the transposition, of the factors above the layer.
        widths: The widths of a network, from input to output.
    """
    for sizes in (widths, (3,) * len(widths)):
        network = DeepLinearNetwork(sizes)
        x, y = torch.randn(1, sizes[0]), torch.randn(1, sizes[-1])
        found = network.gradients((network(x) - y).mT @ x)
        automatic = torch.autograd.grad((network(x) - y).square().sum() / 2, list(network.weights))
        weights = [w.detach().numpy() for w in network.weights]
        vector, target = x[0].numpy(), y[0].numpy()
        for l, w in enumerate(network.weights):
            exact = complex_step(partial(_loss, weights, l, vector, target), weights[l])
            at = {"tol": 1e-12, "layer": l + 1, "equal": len(set(sizes)) == 1}
            yield equals("gradient of the network", found[l], exact, **at)
            yield equals("gradient by autograd", automatic[l], exact, **at)
            one, first = (w * found[l]).sum(), (network.weights[0] * found[0]).sum()
            yield equals("product of weights and gradient", one, first, **at)
            if at["equal"]:
                formula = _formula(order, weights, l, vector, target)
                yield equals("gradient by the formula", formula, exact, **at)


deep_linear_gradient.foil("the layers above without their transpose", order="untransposed")
deep_linear_gradient.foil("the layers above in reversed order", order="reversed")


@claim(
    by="identity",
    sources=("B-092", "E-180", "E-181", "E-182"),
    budget=0.5,
    short=r"\nabla_D \tfrac12 \|D C - \Gamma\|_F^2 = (D C - \Gamma) C^\top,"
    r"\quad \nabla_C = D^\top (D C - \Gamma)",
)
def two_layer_gradients(
    slip: Literal["none", "a factor Q lost", "W for W'"] = "none",
    p: int = 3,
    k: int = 2,
    q: int = 4,
):
    r"""The gradients of a two-layer linear network on whitened inputs.

    For $\ell(D, C) = \frac12 \|D C - \Gamma\|_F^2$ the chain rule through the product $A = D C$
    gives $\nabla_D \ell = (\nabla_A \ell) C^\top = (D C - \Gamma) C^\top$ and
    $\nabla_C \ell = D^\top \nabla_A \ell = D^\top (D C - \Gamma)$. The unhalved risk
    $\operatorname{Tr}(A A^\top) - 2 \operatorname{Tr}(A \Gamma^\top)$ has twice these gradients,
    $2 Q W W^\top - 2 \Gamma W^\top$ and $2 Q^\top Q W - 2 Q^\top \Gamma$ for $A = Q W$.

    The chain rule is checked for both and for $g(A) = \sum_{ij} \sin A_{ij}$, in a rectangular and
    a square case; the two expressions in the square one, where slips that would not even have a
    shape still get their chance.

    Knobs:
        slip: What is wrong in the gradients of the unhalved risk.
        p: How many outputs there are.
        k: How many hidden units there are.
        q: How many inputs there are.
    """
    for p_, k_, q_ in ((p, k, q), (3, 3, 3)):
        d, c, gamma = torch.randn(p_, k_), torch.randn(k_, q_), torch.randn(p_, q_)
        a, target = d @ c, gamma.numpy()
        cases: dict[str, tuple[Callable[[np.ndarray], complex], Tensor]] = {
            "half": (lambda a, t=target: ((a - t) ** 2).sum() / 2, a - gamma),
            "unhalved": (
                lambda a, t=target: np.trace(a @ a.T) - 2 * np.trace(a @ t.T),
                2 * (a - gamma),
            ),
            "sines": (lambda a: np.sin(a).sum(), torch.cos(a)),
        }
        for loss, (g, outer) in cases.items():
            in_d = complex_step(lambda d, g=g, c=c: g(d @ c.numpy()), d.numpy())
            in_c = complex_step(lambda c, g=g, d=d: g(d.numpy() @ c), c.numpy())
            ours = network_of(c, d).gradients(outer)
            at = {"tol": 1e-12, "loss": loss, "square": p_ == k_ == q_}
            yield equals("gradient in the first layer", ours[0], in_c, **at)
            yield equals("gradient in the second layer", ours[1], in_d, **at)
            if loss == "unhalved" and at["square"]:
                w = c if slip == "W for W'" else c.mT
                lost = c if slip == "a factor Q lost" else d @ c
                outer, inner = 2 * d @ c @ w - 2 * gamma @ w, 2 * d.mT @ lost - 2 * d.mT @ gamma
                yield equals("expression for the second layer", outer, in_d, **at)
                yield equals("expression for the first layer", inner, in_c, **at)


two_layer_gradients.foil("a factor Q lost, 2 Q'W - 2 Q' Gamma", slip="a factor Q lost")
two_layer_gradients.foil("W in place of its transpose", slip="W for W'")


@claim(
    by="sampling",
    sources=("E-179",),
    budget=0.5,
    full={"pairs": 10_000},
    short=r"\mathcal R(Q, W) = \mathbb E \|y\|^2 + \mathrm{Tr}(A A^\top)"
    r" - 2 \mathrm{Tr}(A \Gamma^\top),\; A = Q W",
)
def two_layer_risk(
    convex_in: Literal["product", "layers"] = "product",
    cross: Literal["with Gamma", "Tr(Q W)"] = "with Gamma",
    n: int = 3,
    s: int = 20,
    pairs: int = 200,
):
    r"""The risk of a two-layer linear network is convex in the product, not in the layers.

    On whitened inputs, $\mathbb E[x x^\top] = I$ and $\Gamma = \mathbb E[y x^\top]$, the squared
    risk of $F(x) = Q W x$ is
    $$\mathcal R(Q, W) = \mathbb E \|y\|^2 + \operatorname{Tr}\big(Q W (Q W)^\top\big)
    - 2 \operatorname{Tr}(Q W \Gamma^\top) ,$$
    convex in the product $A = Q W$, but for $\Gamma \ne 0$ not in $(Q, W)$: $(Q, W)$ and
    $(-Q, -W)$ have equal risk, below that of their midpoint, the zero map, by
    $\sigma_1(\Gamma)^2$ if $Q W$ is the best map of rank one.

    Knobs:
        convex_in: What the chords are drawn in, whose midpoints the risk is compared at.
        cross: The cross term of the risk.
        n: How many inputs and outputs there are.
        s: How many examples are drawn.
        pairs: How many chords are drawn.
    """
    lowest("s", s, 5)
    x, y = whitened(s, n), torch.randn(s, n)
    gamma = y.mT @ x / s
    network = DeepLinearNetwork([n, 2, n])

    def risk(a: Tensor) -> Tensor:
        """By the formula, for a batch of products."""
        target = gamma if cross == "with Gamma" else torch.eye(n)
        power, overlap = a.square().sum((-2, -1)), (a * target).sum((-2, -1))
        return y.square().sum(1).mean() + power - 2 * overlap

    def error(model: DeepLinearNetwork) -> Tensor:
        return (y - model(x)).square().sum(1).mean()

    yield equals("risk by the formula", risk(network.product()), error(network))
    best = DeepLinearNetwork.balanced(gamma, width=1)
    w, q = (v.detach() for v in best.weights)
    mirrored, middle = network_of(-w, -q), network_of(0 * w, 0 * q)
    yield equals("risk of the mirrored layers", error(mirrored), error(best))
    drop = torch.linalg.matrix_norm(gamma, 2) ** 2
    fall = error(middle) - error(best)
    yield equals("risk of the zero map less the best of rank one", fall, drop)
    yield at_least("squared spectral norm of the target", drop, 1e-6)
    # chords between pairs of layers: the mirrored best ones, and random ones
    second = torch.cat([torch.stack([q, -q]), torch.randn(2 * pairs, n, 1)]).unflatten(0, (-1, 2))
    first = torch.cat([torch.stack([w, -w]), torch.randn(2 * pairs, 1, n)]).unflatten(0, (-1, 2))
    ends = second @ first
    middles = ends.mean(1) if convex_in == "product" else second.mean(1) @ first.mean(1)
    middle, mean = risk(middles), risk(ends).mean(1)
    yield at_most("risk at the middle of the mirrored best layers", middle[0], mean[0])
    yield at_most("risk at the middle of a random chord", middle[1:], mean[1:])


two_layer_risk.foil(
    "convexity in the two layers: the zero map lies above the chord of mirrored ones",
    refuted_by="risk at the middle of the mirrored best layers",
    convex_in="layers",
)
two_layer_risk.foil("the cross term without Gamma", cross="Tr(Q W)")
