r"""Distillation: a student learns the softened answers of a teacher.

With the logits $F$ of the teacher and $G$ of the student, and $\mathrm{softmax}(z / T)$ at the
temperature $T$, the loss of an example is the cross-entropy

$$\ell = -\sum_y \mathrm{softmax}(F / T)_y
\Big[\frac{G_y}{T} - \log \sum_\nu e^{G_\nu / T}\Big], \qquad
\frac{\partial \ell}{\partial G_y} =
\frac1T \big[\mathrm{softmax}(G / T)_y - \mathrm{softmax}(F / T)_y\big].$$

It is at least the entropy of the softened teacher, with equality where $G - F$ is constant. Exact
up to rounding, computed in float32 or better. The claims are `distillation_loss` and
`distillation_gradient`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number

__all__ = ["distillation_loss"]


def distillation_loss(
    student: Float[Tensor, " *examples k"],
    teacher: Float[Tensor, " *examples k"],
    *,
    temperature: float,
    scaled: bool = False,
) -> Float[Tensor, ""]:
    r"""The cross-entropy of a student against a softened teacher, as a mean over the examples.

    Every axis but the last counts examples, so the loss is divided by their number alone, never by
    the number of classes. The teacher is a constant: no gradient goes to it.

    Args:
        student: The logits of the student, classes along the last axis. In half precision they are
            widened to float32, and so is the loss; gradients come back in their dtype.
        teacher: The logits of the teacher, or averages of those of an ensemble. Where both are
            minus infinity the class is out of the question.
        temperature: $T$; the softmax is soft where it is large.
        scaled: Whether to multiply by $T^2$, so that gradients stay of one size as $T$ grows, and
            another loss can be added.

    Raises:
        ValueError: If shapes or devices differ, or logits are not floating point; if the
            temperature is not positive.

    References:
        Hinton, Vinyals and Dean, Distilling the knowledge in a neural network, 2015.

    Example:
        >>> logits = torch.zeros(5, 2)
        >>> distillation_loss(logits, logits, temperature=3.0)  # the logarithm of 2
        tensor(0.6931)
    """
    T = number("temperature", temperature, above=0)
    for name, z in (("student", student), ("teacher", teacher)):
        if not isinstance(z, Tensor) or not z.is_floating_point() or not z.ndim or not z.numel():
            given = f"{z.dtype} {tuple(z.shape)}" if isinstance(z, Tensor) else type(z).__name__
            raise ValueError(f"{name} must be floating-point logits (..., k), got {given}")
    if (student.shape, student.device) != (teacher.shape, teacher.device):
        wanted = f"{tuple(student.shape)} on {student.device}"
        raise ValueError(
            f"teacher must be {wanted} as student is, got {tuple(teacher.shape)} on"
            f" {teacher.device}"
        )
    wide = torch.promote_types(torch.promote_types(student.dtype, teacher.dtype), torch.float32)
    p = (teacher.detach().to(wide) / T).softmax(-1)
    logs = (student.to(wide) / T).log_softmax(-1)
    losses = -(p * logs.masked_fill(p == 0, 0)).sum(-1)
    return losses.mean() * T**2 if scaled else losses.mean()
