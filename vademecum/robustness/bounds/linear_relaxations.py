r"""Bounds by linear functions that are carried backwards, tightened layer by layer (CROWN).

Units are put between two lines on the interval of what they read, and a linear function of a layer
is carried back to the input, where it is bounded exactly (`vademecum.robustness.bounds._descent`).
So the entries of the input are not forgotten, as boxes do: on a network of one hidden layer of
rectifiers the bound is the best that lines of each unit alone can give.

Intervals come first, at every layer; for the entries that a unit could still do either of two
things with, linear bounds follow, and the narrower ends are kept. Hence the bounds are never wider
than those of `interval_bounds`, but for rounding: observed is a unit in the last place of the
larger end, where boxes of hidden layers were narrowed. Steps of gradient ascent on the slopes below
rectifiers make them narrower still.

Bounds are sound, for the function of real numbers or for the run in floats, see
`vademecum.robustness.bounds._rounding`.

References:
    Zhang et al., Efficient neural network robustness certification with general activation
    functions, NeurIPS, 2018.
    Xu et al., Fast and complete: enabling complete verification with rapid and massively parallel
    incomplete verifiers, ICLR, 2021.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.models import Output
from vademecum.robustness.bounds._enclosures import read_question
from vademecum.robustness.bounds._rounding import full_precision
from vademecum.robustness.bounds._solver import Solver
from vademecum.robustness.bounds.intervals import Bounds, made

__all__ = ["crown_bounds"]


def crown_bounds(
    model: nn.Module,
    x: Float[Tensor, " n *shape"],
    *,
    norm: str,
    radius: float | Float[Tensor, " n"],
    box: tuple[float, float] | None = (0.0, 1.0),
    spec: Float[Tensor, " m k"] | Float[Tensor, " n m k"] | None = None,
    arithmetic: str = "float",
    max_iter: int = 0,
    output: Output = None,
    memory: int | None = None,
) -> Bounds:
    r"""Bounds on a network's outputs by linear functions of its input: narrower than intervals.

    Args:
        model: As `interval_bounds` takes it.
        x: The inputs, in the middle of the balls.
        norm: The norm of the balls: "linf", "l2" or "l1".
        radius: Their radius, or one for each example.
        box: The least and the largest value of an entry, or None.
        spec: Linear functions of the outputs to bound in their place, for all or for each example.
        arithmetic: "float" for bounds that also hold for the run in the model's dtype, with sums in
            any order; "real" for bounds of the exact function of the stored weights.
        max_iter: How many steps of gradient ascent to make on the slopes below rectifiers, at every
            layer; each gives a bound, and the best is kept.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. The
            boxes of all layers are not counted.

    Raises:
        ValueError: If a step of the model is not known, which is named, may overflow, or mixes
            examples; if an argument makes no sense.

    Example:
        >>> hidden, last = nn.Linear(1, 2), nn.Linear(2, 1)  # relu(x) - relu(x) - 1 / 2, twice over
        >>> for p, v in zip((*hidden.parameters(), *last.parameters()),
        ...                 ([[1.0], [1.0]], [0.0, 0.0], [[1.0, -1.0]], [-0.5])):
        ...     p.data = torch.tensor(v)
        >>> model, x = nn.Sequential(hidden, nn.ReLU(), last), torch.full((1, 1), 0.5)
        >>> crown_bounds(model, x, norm="linf", radius=0.25).upper.round(decimals=4)
        tensor([[-0.5000]])
    """
    whole("max_iter", max_iter, low=0)
    with torch.no_grad():
        question = read_question(
            model, x, norm=norm, radius=radius, box=box, spec=spec, arithmetic=arithmetic,
            output=output,
        )  # fmt: skip
    with torch.no_grad(), full_precision():
        limit = None if memory is None else whole("memory", memory, low=1)
        solver = Solver(question.network, question.region, question.arithmetic, max_iter, limit)
        solver.sweep()
        lower, upper = solver.functions(question)
    return made(question, lower, upper)
