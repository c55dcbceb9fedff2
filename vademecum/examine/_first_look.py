"""A first look at a network: whether it takes its inputs, what it gives, what of that counts.

Of several tensors the first of floating-point numbers counts, unless the user says otherwise; a
loss may take all that the network gives. A network that squeezes its outputs loses the axis of
examples where there is but one, and is given it back. What cannot be examined is refused here, in
words.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.models import (
    Loss,
    Output,
    call_arguments,
    chosen_output,
    evaluation,
    named_tensors,
    out_of_memory,
)

__all__ = [
    "FirstLook",
    "finite_outputs",
    "first_look",
    "insist_on_one_number",
    "refuse_labels",
    "with_an_axis_of_examples",
]

_OF_CODE = (RuntimeError, TypeError, IndexError, AttributeError, KeyError, ValueError)
"""What code raises that is given something it does not know."""


class FirstLook(NamedTuple):
    """What a network gave for a few examples."""

    network: nn.Module
    """The network, or one around it that gives a tensor."""
    output: Output
    """What counts of what the network itself gives."""
    z: Any
    """What counts, for these examples."""
    whole: Any
    """What a loss may take as a whole."""
    counted: str
    """What counts, in words."""


def first_look(model: nn.Module, x: Any, output: Output) -> FirstLook:
    """Run a network once.

    Args:
        model: The network.
        x: A few examples, which it may write into.
        output: What counts of what it gives, by the user.

    Raises:
        ValueError: If it does not take them, or gives what is not finite.
    """
    try:
        with torch.no_grad(), evaluation(model, fused=True):
            args, kwargs = call_arguments(x)
            result = model(*args, **kwargs)
    except _OF_CODE as error:
        if out_of_memory(error):
            raise
        line = (str(error).strip() or type(error).__name__).partition("\n")[0]
        raise ValueError(f"model must take x, and its code says: {line}") from error
    z = chosen_output(result, output)
    if isinstance(z, Tensor):
        words = "all of its output" if output is None else f"{output!r} of its output"
        network = model if output is None else _Chosen(model, output)
        look = FirstLook(network, output, z, z, words)
    else:
        found = [(name, t) for name, t in named_tensors(z, "") if t.is_floating_point()]
        if not found:
            return FirstLook(model, output, z, z, "all of its output")
        name, t = found[0]
        words = f"{name} of its output, the first tensor of floating-point numbers"
        first = _First(output)
        look = FirstLook(_Chosen(model, first), first, t, z, words)
    if look.z.is_floating_point() and not bool(torch.isfinite(look.z).all()):
        raise ValueError("outputs of model must be finite, got NaN or an infinite number")
    return look


def with_an_axis_of_examples(look: FirstLook, model: nn.Module, one: Any) -> FirstLook:
    """The same, of a network that gives an axis of examples for one example too.

    Args:
        look: What the network gave for some examples.
        model: The network.
        one: One of them, with its axis.
    """
    if not isinstance(look.z, Tensor) or not look.z.ndim:  # one number for all has no such axis
        return look
    args, kwargs = call_arguments(one)
    try:
        with torch.no_grad(), evaluation(model, fused=True):
            z = look.network(*args, **kwargs)
    except _OF_CODE as error:  # which sections tell of that take single examples
        if out_of_memory(error):
            raise
        return look
    if not isinstance(z, Tensor) or z.shape != look.z.shape[1:]:
        return look
    rows = _Rows(look.output, look.z.shape[1:])
    return look._replace(network=_Chosen(model, rows), output=rows)


def insist_on_one_number(loss: Loss, look: FirstLook, y: Any) -> bool:
    """Refuse a loss that does not give one finite number; whether it takes the output as a whole.

    Raises:
        ValueError: If it gives something else, or its code takes neither.
    """
    whole = False
    try:
        value = loss(look.z, y)
    except _OF_CODE as error:
        try:
            value, whole = loss(look.whole, y), True
        except _OF_CODE:
            line = str(error).strip().partition("\n")[0]
            words = "loss must take outputs and targets, and its code says"
            raise ValueError(f"{words}: {line}") from error
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        given = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"loss must give one number, got {given}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"loss must be finite, got {value.item()}")
    return whole


def refuse_labels(name: str, y: Tensor, k: int, *, ignored: bool) -> None:
    """Refuse classes that there are not; below zero they may be ignored."""
    classes = y[y >= 0] if ignored else y
    if classes.numel() and (int(classes.min()) < 0 or int(classes.max()) >= k):
        wrong = int(classes.max()) if int(classes.max()) >= k else int(classes.min())
        raise ValueError(f"{name} must be classes between 0 and {k - 1}, got {wrong}")


def finite_outputs(z: Any, what: str) -> Any:
    """The outputs, refused with NaN or an infinite number among them, for which example."""
    if isinstance(z, Tensor) and z.ndim and z.is_floating_point():
        good = torch.isfinite(z.flatten(1) if z.ndim > 1 else z[:, None]).all(1)
        if not bool(good.all()):
            i = int((~good).nonzero()[0, 0])
            raise ValueError(f"outputs of model must be finite, and those of {what} {i} are not")
    return z


class _First:
    """The first tensor of floating-point numbers in what counts of an output."""

    def __init__(self, output: Output):
        self.output = output

    def __call__(self, result: Any) -> Tensor:
        found = chosen_output(result, self.output)
        return next(t for _, t in named_tensors(found) if t.is_floating_point())


class _Rows:
    """What counts of an output, with an axis of examples where that was squeezed away."""

    def __init__(self, output: Output, shape: torch.Size):
        self.output, self.shape = output, shape

    def __call__(self, result: Any) -> Tensor:
        return chosen_output(result, self.output).reshape(-1, *self.shape)


class _Chosen(nn.Module):
    """A network of whose output one tensor counts."""

    def __init__(self, model: nn.Module, output: Output):
        super().__init__()
        self.model, self.output = model, output

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return chosen_output(self.model(*args, **kwargs), self.output)
