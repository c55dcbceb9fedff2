"""What the course claims of the loss of deep linear networks and of its gradients."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals
from vademecum.linear.claims.autoencoder import orthogonal
from vademecum.linear.deep_linear import DeepLinearNetwork


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


@claim(by="identity", sources=("A-037",), budget=0.5, full={"widths": (6, 9, 3, 8, 5, 7)})
def deep_linear_gradient(order: str = "right", widths: tuple[int, ...] = (3, 4, 2, 5, 3)):
    r"""The gradient of a deep linear network in any of its layers.

    $$\frac12 \frac{\partial}{\partial W^l} \|W^L \cdots W^1 x - y\|_2^2 =
    (W^L \cdots W^{l+1})^\top (W^L \cdots W^1 x - y)\, x^\top (W^{l-1} \cdots W^1)^\top$$
    with empty products read as identities. Hence $\langle W^l, G^l \rangle$ is the same number for
    all layers: scaling one layer up and another down changes nothing.

    *Proof.* The output is linear in $W^l$, with what is above applied from the left to
    $W^l (W^{l-1} \cdots W^1 x)$. Checked for the widths given and for equal ones, where a wrong
    order of factors still has a shape.
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
            yield equals(found[l], exact, tol=1e-12, layer=l + 1)
            yield equals(automatic[l], exact, tol=1e-12, layer=l + 1)
            yield equals((w * found[l]).sum(), (network.weights[0] * found[0]).sum(), tol=1e-12)
            if order == "right" or len(set(sizes)) == 1:
                formula = _formula(order, weights, l, vector, target)
                yield equals(formula, exact, tol=1e-12, layer=l + 1)


deep_linear_gradient.foil("the layers above without their transpose", order="untransposed")
deep_linear_gradient.foil("the layers above in reversed order", order="reversed")


@claim(by="identity", sources=("B-092", "E-180", "E-181", "E-182"), budget=0.5)
def two_layer_gradients(slip: str = "none", p: int = 3, k: int = 2, q: int = 4):
    r"""The gradients of a two-layer linear network on whitened inputs.

    For $\ell(D, C) = \frac12 \|D C - \Gamma\|_F^2$ the chain rule through the product $A = D C$
    gives $\nabla_D \ell = (\nabla_A \ell) C^\top = (D C - \Gamma) C^\top$ and
    $\nabla_C \ell = D^\top \nabla_A \ell = D^\top (D C - \Gamma)$. The unhalved risk
    $\operatorname{Tr}(A A^\top) - 2 \operatorname{Tr}(A \Gamma^\top)$ has twice these gradients,
    $2 Q W W^\top - 2 \Gamma W^\top$ and $2 Q^\top Q W - 2 Q^\top \Gamma$ for $A = Q W$.

    Checked for both and for $g(A) = \sum_{ij} \sin A_{ij}$, in a rectangular and a square case:
    in the latter slips that would not even have a shape still get their chance.
    """
    for p_, k_, q_ in ((p, k, q), (3, 3, 3)):
        d, c, gamma = torch.randn(p_, k_), torch.randn(k_, q_), torch.randn(p_, q_)
        a, target = d @ c, gamma.numpy()
        cases: list[tuple[Callable[[np.ndarray], complex], Tensor]] = [
            (lambda a, t=target: ((a - t) ** 2).sum() / 2, a - gamma),
            (lambda a, t=target: np.trace(a @ a.T) - 2 * np.trace(a @ t.T), 2 * (a - gamma)),
            (lambda a: np.sin(a).sum(), torch.cos(a)),
        ]
        for i, (g, outer) in enumerate(cases):
            in_d = complex_step(lambda d, g=g, c=c: g(d @ c.numpy()), d.numpy())
            in_c = complex_step(lambda c, g=g, d=d: g(d.numpy() @ c), c.numpy())
            ours = network_of(c, d).gradients(outer)
            yield equals(ours[0], in_c, tol=1e-12, case=i)
            yield equals(ours[1], in_d, tol=1e-12, case=i)
            if i == 1 and (slip == "none" or p_ == k_ == q_):
                w = c if slip == "W for W'" else c.mT
                lost = c if slip == "a factor Q lost" else d @ c
                yield equals(2 * d @ c @ w - 2 * gamma @ w, in_d, tol=1e-12, case=i)
                yield equals(2 * d.mT @ lost - 2 * d.mT @ gamma, in_c, tol=1e-12, case=i)


two_layer_gradients.foil("a factor Q lost, 2 Q'W - 2 Q' Gamma", slip="a factor Q lost")
two_layer_gradients.foil("W in place of its transpose", slip="W for W'")


@claim(by="sampling", sources=("E-179",), budget=0.5, full={"pairs": 10_000})
def two_layer_risk(
    convex_in: str = "product", cross: str = "with Gamma", n: int = 3, s: int = 20, pairs: int = 200
):
    r"""The risk of a two-layer linear network is convex in the product, not in the layers.

    On whitened inputs, $\mathbb E[x x^\top] = I$ and $\Gamma = \mathbb E[y x^\top]$, the squared
    risk of $F(x) = Q W x$ is
    $$\mathcal R(Q, W) = \mathbb E \|y\|^2 + \operatorname{Tr}\big(Q W (Q W)^\top\big)
    - 2 \operatorname{Tr}(Q W \Gamma^\top) ,$$
    convex in the product $A = Q W$, but for $\Gamma \ne 0$ not in $(Q, W)$: $(Q, W)$ and
    $(-Q, -W)$ have equal risk, below that of their midpoint, the zero map, by
    $\sigma_1(\Gamma)^2$ if $Q W$ is the best map of rank one.
    """
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

    yield equals(risk(network.product()), error(network))
    best = DeepLinearNetwork.balanced(gamma, width=1)
    w, q = (v.detach() for v in best.weights)
    mirrored, middle = network_of(-w, -q), network_of(0 * w, 0 * q)
    yield equals(error(mirrored), error(best))
    drop = torch.linalg.matrix_norm(gamma, 2) ** 2
    yield equals(error(middle) - error(best), drop)
    a, b = torch.randn(2, pairs, n, n)
    chords = (risk(a) + risk(b)) / 2
    yield at_most(risk((a + b) / 2), chords)
    if convex_in != "product":
        yield at_most(error(middle), (error(best) + error(mirrored)) / 2)
    yield at_least(drop, 1e-6)


two_layer_risk.foil("convexity in the two layers: the chord test", convex_in="layers")
two_layer_risk.foil("the cross term without Gamma", cross="Tr(Q W)")


def _gradient_pairs(rule: str, d: Tensor, c: Tensor, c_old: Tensor, sigma: Tensor) -> list[Tensor]:
    """Gradients in the decoder and the encoder, in SVD coordinates."""
    residual = d @ c - sigma
    if rule == "printed for C":
        return [residual @ c.mT, residual.mT @ d]
    if rule == "printed for D":
        return [c @ residual @ c_old.mT, d.mT @ residual]
    return [residual @ c.mT, d.mT @ residual]


@claim(by="identity", sources=("B-093", "B-094"), budget=0.5, full={"p": 6, "k": 4, "q": 7})
def svd_coordinates(rule: str = "right", p: int = 3, k: int = 2, q: int = 4):
    r"""In the coordinates of the target's singular vectors a two-layer network keeps its form.

    With $\Gamma = U \Sigma V^\top$, $\tilde D = U^\top D$, $\tilde C = C V$:
    $D C - \Gamma = U (\tilde D \tilde C - \Sigma) V^\top$, so the loss
    $\frac12 \|D C - \Gamma\|_F^2$ equals $\frac12 \|\tilde D \tilde C - \Sigma\|_F^2$ and the
    gradients keep their form,
    $\partial \ell / \partial \tilde C = \tilde D^\top (\tilde D \tilde C - \Sigma)$ and
    $\partial \ell / \partial \tilde D = (\tilde D \tilde C - \Sigma) \tilde C^\top$.

    *Proof.* $U$ and $V$ are orthogonal, and $D C = U \tilde D \tilde C V^\top$.
    """
    for p_, k_, q_ in ((p, k, q), (3, 3, 3)):
        if rule != "right" and not p_ == k_ == q_:
            continue  # the printed products have no shape, or another one
        d, c = torch.randn(p_, k_), torch.randn(k_, q_)
        gamma = orthogonal(p_)[:, : min(p_, q_)] @ torch.randn(min(p_, q_), q_)
        u, s, vh = torch.linalg.svd(gamma)
        sigma = torch.zeros(p_, q_)
        sigma.diagonal()[:] = s
        d_, c_ = u.mT @ d, c @ vh.mT
        yield equals(u @ (d_ @ c_ - sigma) @ vh, d @ c - gamma, tol=1e-12)
        loss, moved = ((m @ n - t).square().sum() for m, n, t in ((d, c, gamma), (d_, c_, sigma)))
        yield equals(moved, loss, tol=1e-12)
        target = sigma.numpy()

        def half(d: np.ndarray, c: np.ndarray, target: np.ndarray = target) -> complex:
            return ((d @ c - target) ** 2).sum() / 2

        in_d = complex_step(lambda d, c=c_: half(d, c.numpy()), d_.numpy())
        in_c = complex_step(lambda c, d=d_: half(d.numpy(), c), c_.numpy())
        by_rule = _gradient_pairs(rule, d_, c_, c, sigma)
        yield equals(by_rule[0], in_d, tol=1e-12)
        yield equals(by_rule[1], in_c, tol=1e-12)
        ours = network_of(c, d).gradients(d @ c - gamma)
        yield equals(ours[0] @ vh.mT, in_c, tol=1e-12)
        yield equals(u.mT @ ours[1], in_d, tol=1e-12)


svd_coordinates.erratum(
    "B-094",
    printed=r"$\partial \ell / \partial \tilde C = (\tilde D \tilde C - \Sigma)^\top \tilde D$",
    right=r"$\partial \ell / \partial \tilde C = \tilde D^\top (\tilde D \tilde C - \Sigma)$",
    why="It is the transpose of the gradient: another shape, and other values where all is square.",
    rule="printed for C",
)
svd_coordinates.erratum(
    "B-094",
    printed=r"$\partial \ell / \partial \tilde D = \tilde C (\tilde D \tilde C - \Sigma) C^\top$",
    right=r"$\partial \ell / \partial \tilde D = (\tilde D \tilde C - \Sigma) \tilde C^\top$",
    why="It does not conform unless all is square, mixes $C$ with $\\tilde C$, and is wrong there.",
    rule="printed for D",
)
