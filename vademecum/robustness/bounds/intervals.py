r"""Boxes that hold what a network computes for every input of a region.

Boxes are carried forward: an affine layer maps centre $m$ and half-widths $\rho \ge 0$ to $W m + b$
and $|W| \rho$, an increasing unit acts on both ends, a maximum on windows of both. The first layer
uses the dual norm of the region's, which is exact there; linear functions of the output (`spec`,
margins between classes say) are folded into the last layer. Bounds are exact for one affine layer
and in general too wide, since a box forgets that its entries depend on each other.

Bounds are sound, for the function of real numbers or for the run in floats, see
`vademecum.robustness.bounds._rounding`. The claim is `robustness.interval_bounds`.

References:
    Gowal et al., Scalable verified training for provably robust image classification, ICCV, 2019.
    Jin et al., Getting a-Round guarantees: floating-point attacks on certified robustness, 2022.
    Szász, Bánhelyi and Jelasity, No soundness in the real world, ICML, 2025.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.arrays import portions
from vademecum.models import Output
from vademecum.results import one_line
from vademecum.robustness.bounds._affine_steps import Ends
from vademecum.robustness.bounds._enclosures import Question, boxes_of, functions_of, read_question
from vademecum.robustness.bounds._rounding import full_precision

__all__ = ["Bounds", "interval_bounds"]

_COPIES = 8  # of the widest value that are held at a time
_IN_CACHE = 2**23  # bytes to work on at a time on the CPU: best of five values, by a narrow margin
_WINOGRAD = "convolutions run as sums of products: neither Winograd's nor Fourier's algorithm"


class Bounds(NamedTuple):
    """What outputs, or linear functions of them, lie between, for all inputs of a region.

    Example:
        >>> Bounds(torch.tensor([[-1.0]]), torch.tensor([[2.0]]), "real", "").lower
        tensor([[-1.]])
    """

    lower: Float[Tensor, " n *m"]
    """What they are at least; for "real" arithmetic in double precision."""
    upper: Float[Tensor, " n *m"]
    """What they are at most."""
    arithmetic: str
    """Whether this holds for the run in floats as well, "float", or for real numbers, "real"."""
    assumes: str
    """What it takes for granted; nothing where it is empty."""

    __repr__ = one_line


def interval_bounds(
    model: nn.Module,
    x: Float[Tensor, " n *shape"],
    *,
    norm: str,
    radius: float | Float[Tensor, " n"],
    box: tuple[float, float] | None = (0.0, 1.0),
    spec: Float[Tensor, " m k"] | Float[Tensor, " n m k"] | None = None,
    arithmetic: str = "float",
    output: Output = None,
    memory: int | None = None,
) -> Bounds:
    r"""Bounds on a network's outputs by intervals: quick, and as a rule wide.

    Args:
        model: Any module of dense, convolutional and pooling layers, batch normalisation, ReLU-like
            units, sigmoid, tanh, GELU, SiLU, ELU, softplus, sums, concatenation and reshaping;
            taken in evaluation mode and left as it is. Anything else is refused by name.
        x: The inputs, in the middle of the balls.
        norm: The norm of the balls: "linf", "l2" or "l1".
        radius: Their radius, or one for each example.
        box: The least and the largest value of an entry, or None.
        spec: Linear functions of the outputs to bound in their place, for all or for each example.
        arithmetic: "float" for bounds that also hold for the run in the model's dtype, with sums in
            any order; "real" for bounds of the exact function of the stored weights.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If a step of the model is not known, which is named, may overflow, or mixes
            examples; if an argument makes no sense.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> layer.weight.data, layer.bias.data = torch.tensor([[3.0, -4.0]]), torch.zeros(1)
        >>> found = interval_bounds(layer, torch.full((1, 2), 0.5), norm="linf", radius=0.1)
        >>> found.lower.round(decimals=4), found.upper.round(decimals=4)  # -1/2 - 7/10, -1/2 + 7/10
        (tensor([[-1.2000]]), tensor([[0.2000]]))
    """
    with torch.no_grad():
        question = read_question(
            model, x, norm=norm, radius=radius, box=box, spec=spec, arithmetic=arithmetic,
            output=output,
        )  # fmt: skip
    with torch.no_grad(), full_precision():
        each = _COPIES * question.network.width * question.arithmetic.own.itemsize
        most = each * len(x) if x.is_cuda else max(each, _IN_CACHE)
        limit = most if memory is None else whole("memory", memory, low=1)
        if limit < each:
            raise ValueError(f"memory must be >= {each} bytes for one example, got {memory}")
        found = [_bounded(part_of(question, s)) for s in portions(len(x), each=each, memory=limit)]
        lower, upper = (torch.cat(ends) for ends in zip(*found, strict=True))
    return made(question, lower, upper)


def made(question: Question, lower: Tensor, upper: Tensor) -> Bounds:
    """The result, with what it rests on."""
    kind = question.arithmetic.kind
    return Bounds(
        lower, upper, kind, _WINOGRAD if kind == "float" and question.network.convolves else ""
    )


def part_of(question: Question, index: slice | Tensor) -> Question:
    """The same question for some of the examples."""
    spec = None if question.spec is None else question.spec[index]
    return question._replace(region=question.region.rows(index), spec=spec)


def _bounded(question: Question) -> Ends:
    network, region, how, spec, _ = question
    boxes = boxes_of(network, region, how)
    return boxes[network.result] if spec is None else functions_of(question, boxes)
