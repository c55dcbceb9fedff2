"""Good coordinates: two layers in their target's singular vectors."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import claim, complex_step, equals
from vademecum.linear.claims.autoencoder import orthogonal
from vademecum.linear.claims.deep_linear import network_of


def _gradient_pairs(rule: str, d: Tensor, c: Tensor, c_old: Tensor, sigma: Tensor) -> list[Tensor]:
    """Gradients in the decoder and the encoder, in SVD coordinates."""
    residual = d @ c - sigma
    if rule == "printed for C":
        return [residual @ c.mT, residual.mT @ d]
    if rule == "printed for D":
        return [c @ residual @ c_old.mT, d.mT @ residual]
    return [residual @ c.mT, d.mT @ residual]


@claim(
    by="identity",
    sources=("B-093", "B-094"),
    budget=0.5,
    full={"p": 6, "k": 4, "q": 7},
    short=r"\tilde D = U^\top D,\; \tilde C = C V: \quad"
    r" \|D C - \Gamma\|_F = \|\tilde D \tilde C - \Sigma\|_F",
)
def svd_coordinates(
    rule: Literal["right", "printed for C", "printed for D"] = "right",
    p: int = 3,
    k: int = 2,
    q: int = 4,
):
    r"""In the coordinates of the target's singular vectors a two-layer network keeps its form.

    With $\Gamma = U \Sigma V^\top$, $\tilde D = U^\top D$, $\tilde C = C V$:
    $D C - \Gamma = U (\tilde D \tilde C - \Sigma) V^\top$, so the loss
    $\frac12 \|D C - \Gamma\|_F^2$ equals $\frac12 \|\tilde D \tilde C - \Sigma\|_F^2$ and the
    gradients keep their form,
    $\partial \ell / \partial \tilde C = \tilde D^\top (\tilde D \tilde C - \Sigma)$ and
    $\partial \ell / \partial \tilde D = (\tilde D \tilde C - \Sigma) \tilde C^\top$.

    *Proof.* $U$ and $V$ are orthogonal, and $D C = U \tilde D \tilde C V^\top$.

    The expressions are checked where all is square, since the printed ones have no shape elsewhere,
    and in two small cases by hand.

    Knobs:
        rule: Which expressions are taken for the gradients.
        p: How many outputs there are.
        k: How many hidden units there are.
        q: How many inputs there are.
    """
    yield from _by_hand(rule)
    for p_, k_, q_ in ((p, k, q), (3, 3, 3)):
        d, c = torch.randn(p_, k_), torch.randn(k_, q_)
        gamma = orthogonal(p_)[:, : min(p_, q_)] @ torch.randn(min(p_, q_), q_)
        u, s, vh = torch.linalg.svd(gamma)
        sigma = torch.zeros(p_, q_)
        sigma.diagonal()[:] = s
        d_, c_ = u.mT @ d, c @ vh.mT
        at = {"tol": 1e-12, "square": p_ == k_ == q_}
        yield equals("residual, turned back", u @ (d_ @ c_ - sigma) @ vh, d @ c - gamma, **at)
        loss, moved = ((m @ n - t).square().sum() for m, n, t in ((d, c, gamma), (d_, c_, sigma)))
        yield equals("loss in the new coordinates", moved, loss, **at)
        target = sigma.numpy()

        def half(d: np.ndarray, c: np.ndarray, target: np.ndarray = target) -> complex:
            return ((d @ c - target) ** 2).sum() / 2

        in_d = complex_step(lambda d, c=c_: half(d, c.numpy()), d_.numpy())
        in_c = complex_step(lambda c, d=d_: half(d.numpy(), c), c_.numpy())
        if at["square"]:
            by_rule = _gradient_pairs(rule, d_, c_, c, sigma)
            yield equals("gradient in the decoder", by_rule[0], in_d, **at)
            yield equals("gradient in the encoder", by_rule[1], in_c, **at)
        ours = network_of(c, d).gradients(d @ c - gamma)
        yield equals("gradient of the network in the encoder, turned", ours[0] @ vh.mT, in_c, **at)
        yield equals("gradient of the network in the decoder, turned", u.mT @ ours[1], in_d, **at)


def _by_hand(rule: str):
    """Two small cases, in the coordinates of the target, with C as it is there."""
    two = torch.full((1, 1), 2.0)
    (in_d, _) = _gradient_pairs(rule, two, two, two, two / 2)
    yield equals("gradient in the decoder, by hand", in_d, 6.0)
    d, one = torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.eye(2)
    (_, in_c) = _gradient_pairs(rule, d, one, one, one)
    yield equals("gradient in the encoder, by hand", in_c, torch.tensor([[0.0, 0.0], [-1.0, 1.0]]))


svd_coordinates.erratum(
    "B-094",
    printed=r"$\partial \ell / \partial \tilde C = (\tilde D \tilde C - \Sigma)^\top \tilde D$",
    right=r"$\partial \ell / \partial \tilde C = \tilde D^\top (\tilde D \tilde C - \Sigma)$",
    why=r"it is the transpose of the gradient: shape $n \times m$ instead of $m \times n$, and"
    r" other values where all is square: for $\tilde D$ with the rows $(0, 1)$ and $(0, 1)$,"
    r" $\tilde C = I$ and $\Sigma = I$ the second entry of its first row is 0, printed $-1$",
    refuted_by="gradient in the encoder, by hand",
    rule="printed for C",
)
svd_coordinates.erratum(
    "B-094",
    printed=r"$\partial \ell / \partial \tilde D = \tilde C (\tilde D \tilde C - \Sigma) C^\top$",
    right=r"$\partial \ell / \partial \tilde D = (\tilde D \tilde C - \Sigma) \tilde C^\top$",
    why=r"it does not conform for $\tilde D$ of size $2 \times 2$ and $\tilde C$ of size"
    r" $2 \times 3$ and mixes $C$ with $\tilde C$; in one dimension, with"
    r" $\tilde D = C = \tilde C = 2$ and $\Sigma = 1$, the gradient is $3 \cdot 2 = 6$, printed"
    r" $2 \cdot 3 \cdot 2 = 12$",
    refuted_by="gradient in the decoder, by hand",
    rule="printed for D",
)
