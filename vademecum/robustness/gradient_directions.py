r"""How far input gradients point along the data: a sign of robust features.

For example $x$ of class $y$ let $j$ be the class with the largest other logit, and

$$g(x) = \nabla_x \big(f_y(x) - f_j(x)\big),$$

the direction in which the network sees class $y$ grow against its rival. Two cosines say how well
that direction agrees with the data:

- *with the classes*, $\cos\angle(g(x), \mu_y - \mu_j)$ for the mean examples $\mu$ of the two
  classes. For a linear model $g = w_y - w_j$ at every $x$; for two classes this is the cosine of
  the weights with the difference of class means, and 1 for the classifier of the nearest mean;
- *with the input*, $|\langle g(x), x \rangle| / (\|g(x)\|_2 \|x\|_2)$, the alignment of Etmann and
  others, for which it does not matter what else is in the data.

Networks trained to be robust tend to have larger ones. Where a gradient is zero there is no
direction, and the cosine is 0. Exact up to rounding; the claim is `robust_features`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.results import one_line
from vademecum.robustness._logits import as_classifier, as_labels, finite
from vademecum.robustness._rows import in_portions

__all__ = ["GradientAlignment", "gradient_alignment"]


class GradientAlignment(NamedTuple):
    """How far input gradients point along the data, from -1 to 1.

    Example:
        >>> GradientAlignment(0.5, 0.1, torch.tensor([0.4, 0.6]), torch.tensor([0.0, 0.1]))
        GradientAlignment(mean=0.5, standard_error=0.1, with_classes=tensor([0.4000, 0.6000]),
        with_input=tensor([0.0000, 0.1000]))
    """

    mean: float
    """The mean of the cosines with differences of class means."""
    standard_error: float
    """Its standard error, the class means taken as known; NaN for one example."""
    with_classes: Float[Tensor, " n"]
    """The cosine of each gradient with the difference of the means of two classes."""
    with_input: Float[Tensor, " n"]
    """The modulus of the cosine of each gradient with the example itself, from 0 to 1."""

    __repr__ = one_line


def gradient_alignment(
    model: nn.Module,
    x: Float[Tensor, " n *shape"],
    y: Int[Tensor, " n"],
    *,
    preprocess: Callable[[Tensor], Tensor] | None = None,
    memory: int | None = None,
) -> GradientAlignment:
    """The cosines between input gradients and what the data look like.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module that gives logits.
        x: The examples, of at least two classes; the class means are theirs.
        y: Their classes. The rival of a class is one that occurs here.
        preprocess: What stands between `x` and the model, such as a normalisation; gradients are
            those in `x`.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If all examples are of one class, or something is amiss with the logits.

    References:
        Tsipras, Santurkar, Engstrom, Turner and Madry, Robustness may be at odds with accuracy,
        ICLR, 2019.
        Etmann, Lunz, Maass and Schoenlieb, On the connection between adversarial robustness and
        saliency map interpretability, ICML, 2019.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))
        >>> x, y = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0, 1])
        >>> gradient_alignment(model, x, y).with_classes  # (1, 1) against (1, 0)
        tensor([0.7071, 0.7071])
    """
    with as_classifier(model, x, y, preprocess) as logits:
        y = as_labels("y", y, x)
        classes, inverse = y.unique(return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got only {int(y[0])}")
        means = _class_means(x, inverse, len(classes))

        def cosines(rows: Tensor) -> tuple[Tensor, Tensor]:
            at, label = x[rows], y[rows]
            g, rival = _directions(logits, at, label, classes)
            apart = means[inverse[rows]] - means[rival]
            return _cosine(g, apart), _cosine(g, at.flatten(1)).abs()

        index = torch.arange(len(x), device=x.device)
        found, own = in_portions(cosines, index, memory=memory)
    error = float(found.double().std()) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    return GradientAlignment(float(found.double().mean()), error, found, own)


def _class_means(x: Tensor, inverse: Tensor, k: int) -> Tensor:
    flat = x.detach().flatten(1).to(torch.promote_types(x.dtype, torch.float32))
    sums = torch.zeros(k, flat.shape[1], dtype=flat.dtype, device=x.device)
    return sums.index_add_(0, inverse, flat) / torch.bincount(inverse, minlength=k)[:, None]


def _directions(logits: Any, x: Tensor, y: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of the margins (n, d), and the places of the rivals among the classes."""
    rival = torch.empty_like(y)

    def margin(z: Tensor) -> Tensor:
        own = z.gather(1, y[:, None])
        others = z[:, classes].masked_fill(classes == y[:, None], -torch.inf)
        top, place = others.max(1)
        rival.copy_(place)
        return own[:, 0] - top

    z, _, gradient = logits.gradient(x, margin)
    finite(z, "x")
    return gradient.flatten(1), rival


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosines of rows, scaled first so that no square overflows; 0 where a row is zero."""
    a, b = (v.to(torch.promote_types(v.dtype, torch.float32)) for v in (a, b))
    a, b = (v / v.abs().amax(1, keepdim=True).clamp(min=torch.finfo(v.dtype).tiny) for v in (a, b))
    sizes = torch.linalg.vector_norm(a, dim=1) * torch.linalg.vector_norm(b, dim=1)
    return torch.where(sizes > 0, (a * b).sum(1) / sizes.clamp(min=1e-30), 0).clamp(-1, 1)
