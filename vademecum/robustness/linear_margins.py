r"""How far an input lies from the decision boundary of a linear classifier, exactly.

For $\operatorname{sign}(w^\top x + b)$ and the dual exponent $\frac1p + \frac1q = 1$ a perturbation
with $\|r\|_p \le \epsilon$ moves the score by at most $\epsilon \|w\|_q$ (Hölder), and by as much
along the right direction. So it reaches the boundary iff

$$\epsilon \ge \frac{|w^\top x + b|}{\|w\|_q}, \qquad\text{and with several classes iff}\qquad
\epsilon \ge \min_{i \ne c} \frac{f_c(x) - f_i(x)}{\|w_c - w_i\|_q},$$

where $f_i(x) = w_i^\top x + b_i$ and $c$ is the class with the largest score: the region of $c$ is
a polyhedron with one face for each other class. There is no box here. This is the distance in real
arithmetic, evaluated up to rounding: a network that runs in floating point can change its answer a
little before it. The claims are `adversarial_example` and `minimal_vs_constrained`.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import choice, floats
from vademecum.foundations import dual_norm
from vademecum.robustness._threat import NORMS

__all__ = ["linear_radius"]


def linear_radius(
    weight: Float[Tensor, " k d"] | Float[Tensor, " d"],
    bias: Float[Tensor, " ..."] | None,
    x: Float[Tensor, " n *shape"],
    *,
    norm: Literal["linf", "l2", "l1"] = "linf",
) -> Float[Tensor, " n"]:
    r"""The smallest perturbation that brings each input to the boundary of a linear classifier.

    Args:
        weight: The weights (k, d) of k classes, or those (d,) of one score whose sign decides.
        bias: The biases (k,), or one number; None for none.
        x: The inputs, which are flattened to d numbers each.
        norm: The norm in which perturbations are measured.

    Returns:
        The radii (n,), 0 on the boundary and infinite where no perturbation changes the class.

    Example:
        >>> w, b, x = torch.tensor([3.0, 4.0]), torch.tensor(-1.0), torch.tensor([[1.0, 1.0]])
        >>> [linear_radius(w, b, x, norm=norm) for norm in ("l1", "l2", "linf")]  # 6 over 4, 5, 7
        [tensor([1.5000]), tensor([1.2000]), tensor([0.8571])]
        >>> W = torch.tensor([[0.0, 1.0], [0.0, 0.9], [5.0, 0.5]])
        >>> linear_radius(W, None, torch.tensor([[0.0, 1.0]]), norm="l2")  # the third is nearest
        tensor([0.0995])
    """
    weight, x, bias = _checked(weight, bias, x)
    p = NORMS[choice("norm", norm, ("linf", "l2", "l1"))]
    if weight.ndim == 1:
        gap = (x @ weight + bias).abs()
        return _quotient(gap, dual_norm(weight, p).value.expand_as(gap))
    scores = x @ weight.T + bias
    top = scores.argmax(1)
    gaps = scores.gather(1, top[:, None]) - scores
    lengths = torch.stack([dual_norm(w - weight, p).value for w in weight])[top]
    reach = _quotient(gaps, lengths)
    return reach.scatter(1, top[:, None], torch.inf).amin(1)


def _quotient(gap: Tensor, length: Tensor) -> Tensor:
    """How far a boundary is; where nothing moves the score, it is here or nowhere."""
    there = torch.where(gap > 0, torch.inf, 0.0).to(gap)
    return torch.where(length > 0, gap / torch.where(length > 0, length, 1), there)


def _checked(weight: Tensor, bias: Tensor | None, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    weight, x = floats("weight", weight), floats("x", x)
    if weight.ndim not in (1, 2) or (weight.ndim == 2 and len(weight) < 2):
        raise ValueError(
            "weight must have shape (d,), or (k, d) for at least two classes, got"
            f" {tuple(weight.shape)}"
        )
    if x.ndim < 2 or x[0].numel() != weight.shape[-1]:
        raise ValueError(
            f"x must hold examples of {weight.shape[-1]} numbers each as weight does, got shape"
            f" {tuple(x.shape)}"
        )
    if bias is None:
        bias = weight.new_zeros(weight.shape[:-1])
    bias = floats("bias", bias)
    if bias.numel() != weight.shape[:-1].numel():
        raise ValueError(
            f"bias must have {weight.shape[:-1].numel()} entries as weight has rows, got shape"
            f" {tuple(bias.shape)}"
        )
    for name, t in (("bias", bias), ("x", x)):
        if (t.dtype, t.device) != (weight.dtype, weight.device):
            raise ValueError(
                f"{name} must be {weight.dtype} on {weight.device} as weight is, got {t.dtype} on"
                f" {t.device}"
            )
    return weight, x.flatten(1), bias.reshape(weight.shape[:-1])
