r"""How far a network is from being equivariant or invariant, element by element.

$f$ is *equivariant* if $f(g x) = g f(x)$ for all $g$, with the action that belongs to the outputs,
and *invariant* if $f(g x) = f(x)$. The error of an element at an input is

$$\frac{\|f(g x) - g f(x)\|}{\max(\|f(x)\|, \|f(g x)\|)} ,$$

between 0 and 2 where $g$ keeps lengths, and 0 if both vanish. All elements are tried, or where
there are too many, random ones: then the mean over the group is an estimate, with its standard
error, and the largest error a lower bound. Where the action is interpolated the errors are those of
the interpolation, too. The claim is `invariance_equivariance`.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.arrays import lengths
from vademecum.geometry.groups.actions import Action, default_action
from vademecum.geometry.groups.finite_groups import Group
from vademecum.models import (
    ModelState,
    Output,
    batches,
    call_arguments,
    chosen_output,
    differentiable_output,
    evaluation,
    map_tensors,
    named_tensors,
    refuse_nan,
    unwrapped,
)
from vademecum.randomness import own_randomness
from vademecum.results import one_line

__all__ = ["EquivarianceError", "equivariance_error", "invariance_error"]

_FEW, _DRAWN = 1000, 200  # elements that are all tried, and how many are drawn of more


class EquivarianceError(NamedTuple):
    """How far a network is from respecting a group.

    Example:
        >>> found = invariance_error(nn.Flatten(), torch.eye(4)[:1], group=Group.cyclic(4))
        >>> found.name, round(found.error, 4), found.errors[:, 0].tolist()[0]
        ('r', 1.4142, 0.0)
    """

    error: float
    """The largest error of all elements and examples."""
    element: int
    """The element that has it."""
    name: str
    """What that element is called."""
    witness: Any
    """The example that has it, as an input of its own."""
    elements: tuple[int, ...]
    """The elements that were tried."""
    errors: Float[Tensor, " elements n"]
    """The error of each element at each example; one column where examples cannot be told apart."""
    mean: float
    """The mean over the group of the largest error of each element among the examples."""
    standard_error: float
    """That of the mean; 0 if all elements were tried, NaN if a single one was drawn."""
    exact: bool
    """Whether inputs are moved exactly; if not, errors are also those of moving them."""
    group: Group
    """The group."""
    action: Action
    """How it moves inputs."""

    __repr__ = one_line


def equivariance_error(
    model: nn.Module,
    x: Any,
    *,
    group: Group,
    action: Action | None = None,
    out_action: Action | None = None,
    samples: int | None = None,
    output: Output = None,
    generator: torch.Generator | None = None,
) -> EquivarianceError:
    """How far outputs are from moving as the inputs do, for any model.

    Args:
        model: Any module, taken in evaluation mode.
        x: Its input: a tensor, a tuple or a dict, with examples along the first axis unless the
            action says otherwise; or a `DataLoader`.
        group: The group.
        action: How an element moves an input, a function of both; by default images are turned by
            a cyclic or dihedral group, graphs get other numbers for their nodes, and of anything
            else the points lie along axis 1.
        out_action: How it moves outputs; the same by default.
        samples: How many elements to draw; by default all are tried if there are at most 1000, and
            200 are drawn otherwise.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If the group cannot move the input or the output.

    Example:
        >>> from vademecum.geometry import PointAction
        >>> conv = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular")
        >>> signals = torch.randn(5, 1, 8)
        >>> along = PointAction(Group.cyclic(8), axis=2)
        >>> equivariance_error(conv, signals, group=Group.cyclic(8), action=along).error < 1e-5
        True
        >>> zeros = nn.Conv1d(1, 1, 3, padding=1)  # breaks it at the ends
        >>> equivariance_error(zeros, signals, group=Group.cyclic(8), action=along).error > 0.01
        True
    """
    return _measured(model, x, group, action, out_action, samples, output, generator)


def invariance_error(
    model: nn.Module,
    x: Any,
    *,
    group: Group,
    action: Action | None = None,
    samples: int | None = None,
    output: Output = None,
    generator: torch.Generator | None = None,
) -> EquivarianceError:
    """How far outputs are from staying as they are when inputs move, for any model.

    Args:
        model: Any module, taken in evaluation mode.
        x: Its input: a tensor, a tuple or a dict, with examples along the first axis unless the
            action says otherwise; or a `DataLoader`.
        group: The group.
        action: How an element moves an input, a function of both; by default images are turned by
            a cyclic or dihedral group, graphs get other numbers for their nodes, and of anything
            else the points lie along axis 1.
        samples: How many elements to draw; by default all are tried if there are at most 1000, and
            200 are drawn otherwise.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If the group cannot move the input.

    Example:
        >>> class Mean(nn.Module):
        ...     def forward(self, x):
        ...         return x.mean(1)
        >>> points = torch.tensor([[[1.0], [2.0], [6.0]]])
        >>> invariance_error(Mean(), points, group=Group.symmetric(3)).error
        0.0
    """
    return _measured(model, x, group, action, _stay, samples, output, generator)


def _stay(g: int, y: Any) -> Any:
    return y


def _measured(
    model: nn.Module,
    x: Any,
    group: Group,
    action: Action | None,
    out_action: Action | None,
    samples: int | None,
    output: Output,
    generator: torch.Generator | None,
) -> EquivarianceError:
    """The errors of the elements, which are drawn before the model may draw anything."""
    model = unwrapped(model)
    elements = _elements(group, samples, generator)
    columns, worst, moving = [], (-1.0, 0, None), action
    device = next((p.device for p in model.parameters()), None)
    with evaluation(model), torch.no_grad():
        for inputs, _ in batches(x, device=device):
            refuse_nan(inputs)
            moving = moving or default_action(group, inputs)
            errors = _errors(model, inputs, elements, moving, out_action or moving, output)
            columns.append(errors)
            if float(errors.max()) > worst[0]:
                place = int(errors.argmax())
                k, i = divmod(place, errors.shape[1])
                worst = float(errors.max()), elements[k], _example(inputs, i, errors.shape[1])
    if moving is None:
        raise ValueError("x must hold batches, got an empty DataLoader")
    all_ = torch.cat(columns, 1)
    each = all_.amax(1)
    spread = 0.0
    if samples is not None or group.order > _FEW:
        spread = float(each.std()) / len(elements) ** 0.5 if len(elements) > 1 else math.nan
    error, element, witness = worst
    return EquivarianceError(
        error, element, group.name(element), witness, tuple(elements), all_, float(each.mean()),
        spread, getattr(moving, "exact", True), group, moving,
    )  # fmt: skip


def _elements(group: Group, samples: int | None, generator: torch.Generator | None) -> list[int]:
    if samples is None:
        if group.order <= _FEW:
            return list(group)
        samples = _DRAWN
    return group.sample(whole("samples", samples, low=1), generator=generator)


def _errors(
    model: nn.Module,
    x: Any,
    elements: list[int],
    action: Action,
    out_action: Action,
    output: Output,
) -> Tensor:
    """A row for each element, a column for each example."""

    def outputs(moved: Any) -> Tensor:
        args, kwargs = call_arguments(map_tensors(moved, Tensor.clone))  # a model may write into it
        with own_randomness(None):  # the same random numbers each time, and buffers as they were
            found = ModelState(model).run(lambda: model(*args, **kwargs))
        return differentiable_output(chosen_output(found, output), graph=False)

    before = outputs(x)
    rows = _rows(x, before, action)
    found = []
    for g in elements:
        after, wanted = outputs(action(g, x)), _moved(out_action, g, before)
        if after.shape != wanted.shape:
            raise ValueError(
                f"outputs must have one shape, got {tuple(after.shape)} for moved inputs and"
                f" {tuple(wanted.shape)} for moved outputs: say how they move with out_action="
            )
        a, b = after.double().reshape(rows, -1), wanted.double().reshape(rows, -1)
        gap, size = lengths(a - b, 1), torch.maximum(lengths(a, 1), lengths(b, 1))
        if not torch.isfinite(size).all():
            raise ValueError("outputs of model must be finite")
        found.append(torch.where(gap > 0, gap / size, 0).cpu())
    return torch.stack(found).to(torch.promote_types(before.dtype, torch.float32))


def _moved(out_action: Action, g: int, y: Tensor) -> Tensor:
    try:
        return out_action(g, y)
    except ValueError as error:
        raise ValueError(
            f"out_action must move outputs of shape {tuple(y.shape)}, and: {error}"
        ) from error


def _rows(x: Any, y: Tensor, action: Action) -> int:
    """How many examples there are, or 1 if they cannot be told apart."""
    counts = {t.shape[:1] for _, t in named_tensors(x)}
    apart = getattr(action, "examples", True) and counts == {y.shape[:1]}
    return len(y) if apart and y.ndim else 1


def _example(x: Any, i: int, rows: int) -> Any:
    return map_tensors(x, lambda t: t[i : i + 1].clone()) if rows > 1 else x
