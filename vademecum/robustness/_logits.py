r"""Any classifier as a function from inputs to logits, for as long as it is attacked or measured.

The model runs in evaluation mode with parameters that take no gradients, so that a backward pass
computes $\nabla_x$ alone; parameters, their gradients, buffers, flags and random numbers are
afterwards what they were. What lies between the inputs and the model, a normalisation say, is part
of the function, so that radii are in the units of the inputs.

A prediction counts as another one if its logit is larger by a gap that rounding cannot make,

$$z_j - z_y > g = c\, \varepsilon \max_i |z_i|,$$

with the precision $\varepsilon$ in which the model computes and $c = 64$; observed on convolutional
networks: batches of other sizes move a logit by up to 4 of these units. In half precision, where
kernels sum in single precision and units are large, $c = 4$; observed there: up to 0.8.

On a GPU cuDNN plans a convolution anew for every size of a batch that it has not met. A batch from
which examples leave one by one would have a new size at every step, so it is filled up with copies
of an example to one of four sizes an octave, and what comes out for those is cut off.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.arguments import floats
from vademecum.models import (
    chosen_output,
    constant,
    evaluation,
    insist_on_place,
    insist_on_same_outputs,
    refuse_batch_statistics,
    unwrapped,
)
from vademecum.robustness._pixel_order import channels_last

__all__ = [
    "Classifier",
    "Preprocess",
    "as_classifier",
    "as_labels",
    "finite",
    "rounding_gap",
]

Preprocess = Callable[[Tensor], Tensor] | None
"""What lies between inputs and model: a function or a module, or nothing."""
_PORTION = 128  # images at a time on a CPU: 0.8 of the time for 512 of a small network, in caches
_UNITS = 64  # units of precision of the largest logit, see above
_FEW_UNITS = 4  # the same for 16 bits
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Classifier:
    """A function from inputs to logits.

    Attributes:
        classes: How many logits it gave for an example; 0 before it was asked.
        writes: Whether the model writes into its inputs, so that it is given copies.

    Args:
        model: The module.
        preprocess: What lies between inputs and model.
        portion: How many examples go through at a time; None for all.
        rungs: Whether batches that have shrunk are filled up to one of a few sizes.
    """

    def __init__(
        self,
        model: nn.Module,
        preprocess: Preprocess = None,
        *,
        portion: int | None = None,
        rungs: bool = False,
    ):
        self._model, self._before, self._portion, self._rungs = model, preprocess, portion, rungs
        self._largest = 0  # of the batches so far
        self.classes, self.writes = 0, False

    def __call__(self, x: Tensor) -> Tensor:
        """The logits (n, k), without a graph."""
        with torch.no_grad():
            return _joined([self.traced(part) for part in self._parts(x)])

    def traced(self, x: Tensor) -> Tensor:
        """The logits (n, k), with a graph where autograd is on."""
        n = len(x)
        x = x.clone() if self.writes else x
        x = self._filled(x) if self._rungs else x
        z = chosen_output(self._model(x if self._before is None else self._before(x)))
        if not isinstance(z, Tensor) or z.ndim != 2 or len(z) != len(x) or z.shape[1] < 2:
            given = f"shape {tuple(z.shape)}" if isinstance(z, Tensor) else type(z).__name__
            raise ValueError(
                f"model must give logits of shape ({len(x)}, k) with k >= 2 classes, got {given}"
            )
        self.classes = z.shape[1]
        return z if len(z) == n else z[:n]

    def gradient(
        self, x: Tensor, objective: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, a function of them for each example, and its gradient in the inputs.

        Where a derivative is not a number it counts as zero: that entry does not move.
        """
        with torch.enable_grad():
            x = x.clone() if x.is_inference() else x  # which autograd would refuse
            parts = [part.detach().requires_grad_() for part in self._parts(x)]
            outputs = [self.traced(part) for part in parts]
            if not outputs[0].requires_grad:
                raise ValueError(
                    "model must be differentiable in x, and its logits are constants: an attack"
                    " without gradients is `square`"
                )
            z = _joined(outputs)
            values = objective(z)
            found = torch.autograd.grad(values.sum(), parts, allow_unused=True)
        slopes = [
            torch.zeros_like(part) if slope is None else slope.nan_to_num(0.0)
            for part, slope in zip(parts, found, strict=True)
        ]
        return z.detach(), values.detach(), _joined(slopes).contiguous()

    def insist_on_company(self, x: Tensor, z: Tensor) -> None:
        """Refuse a model that has other logits for examples by themselves than these, of all.

        If all depend on one, both ends of what went through at once cannot be that one.
        """
        stop = 0
        for part in self._parts(x):
            start, stop = stop, stop + len(part)
            for i in (start, stop - 1) if len(part) > 1 else ():
                insist_on_same_outputs(self(x[i : i + 1]), z[i : i + 1], [z.dtype])

    def _filled(self, x: Tensor) -> Tensor:
        """A batch with more of its first example, up to the next rung, but no larger than any."""
        self._largest = max(self._largest, len(x))
        more = min(rung(len(x)), self._largest) - len(x)
        return torch.cat([x, x[:1].detach().expand(more, *x.shape[1:])]) if more else x

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return (x,) if self._portion is None else x.split(self._portion)


@contextmanager
def as_classifier(
    model: nn.Module,
    x: Tensor,
    y: Tensor | None = None,
    preprocess: Preprocess = None,
    *,
    steady: bool = True,
    whole: bool = False,
) -> Iterator[Classifier]:
    """A model as a function from inputs to logits, which leaves it as it was.

    Args:
        model: Any module that gives logits (n, k), or something with `.logits`.
        x: The inputs (n, ...).
        y: Their labels, if they are to be looked at.
        preprocess: What lies between inputs and model.
        steady: Whether to refuse a model whose logits change from pass to pass, or with the company
            that an example has.
        whole: Whether batches go through as they come, not in portions for the caches of a CPU.

    Raises:
        ValueError: If something is amiss; it says what.

    Example:
        >>> with as_classifier(nn.Dropout(), torch.ones(1, 2)) as logits:
        ...     logits(torch.ones(1, 2))
        tensor([[1., 1.]])
    """
    model = unwrapped(model)
    x = floats("x", x)
    if preprocess is not None and not callable(preprocess):
        raise ValueError(f"preprocess must be a function or module, got {preprocess!r}")
    modules = [model, *([unwrapped(preprocess)] if isinstance(preprocess, nn.Module) else [])]
    with torch.inference_mode(False), ExitStack() as stack:
        for module in modules:
            refuse_batch_statistics(module)
            insist_on_place(module, "x", x, wider=False)
            stack.enter_context(_buffers_kept(module))
            stack.enter_context(evaluation(module, fused=True))
            stack.enter_context(constant(module))
            stack.enter_context(channels_last(module, x))
        portion = _PORTION if x.ndim == 4 and x.device.type == "cpu" and not whole else None
        logits = Classifier(model, preprocess, portion=portion, rungs=x.is_cuda)
        _look_at(logits, x, y, steady=steady)
        yield logits


def as_labels(name: str, y: Any, x: Tensor, k: int | None = None) -> Tensor:
    """Labels of inputs as integers, one for each example, from 0 to k - 1."""
    known = isinstance(y, Tensor)
    if not known or y.dtype not in _INTEGERS or y.shape != (len(x),):
        given = f"{y.dtype} of shape {tuple(y.shape)}" if known else type(y).__name__
        raise ValueError(f"{name} must be {len(x)} integers, one for each example, got {given}")
    if y.device != x.device:
        raise ValueError(f"{name} must be on {x.device} as x is, got {y.device}")
    y = y.long()
    if k is not None and bool(((y < 0) | (y >= k)).any()):
        ends = torch.aminmax(y)
        raise ValueError(
            f"{name} must be between 0 and {k - 1}, as model has {k} classes, got labels from"
            f" {int(ends.min)} to {int(ends.max)}"
        )
    return y


def rounding_gap(z: Tensor) -> Tensor:
    """By how much logits must differ, for each example, so that rounding cannot be the reason."""
    eps = torch.finfo(z.dtype).eps
    coarse = z.is_cuda and z.dtype == torch.float32
    if coarse and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32):
        eps = 2.0**-16  # TF32 rounds products at 2**-11, of which sums average
    units = _FEW_UNITS if z.dtype.itemsize < 4 else _UNITS
    return units * eps * z.detach().abs().amax(1)


def finite(z: Tensor, where: str) -> Tensor:
    """Logits, unless there is one that says nothing."""
    if not bool(z.isfinite().all()):
        bad = z[~z.isfinite()][0].item()
        raise ValueError(f"logits of model must be finite, got {bad} at {where}")
    return z


def rung(n: int) -> int:
    """The next number that is 4, 5, 6 or 7 times a power of 2; up to 8 it is the number itself.

    Example:
        >>> [rung(n) for n in (1, 8, 9, 11, 17, 8191)]
        [1, 8, 10, 12, 20, 8192]
    """
    unit = 2 ** max(0, (n - 1).bit_length() - 3)
    return -(-n // unit) * unit


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _look_at(logits: Classifier, x: Tensor, y: Tensor | None, *, steady: bool) -> None:
    """Refuse labels and models that make no sense, by the logits of a few examples."""
    some = x[sorted({0, len(x) // 2, len(x) - 1})].detach().clone()
    seen = some.clone()
    z = logits(seen)
    logits.writes = seen._version > 0  # which counts writes, also of what was there already
    if not z.is_floating_point() or not bool(z.isfinite().all()):
        given = z.dtype if not z.is_floating_point() else z[~z.isfinite()][0].item()
        raise ValueError(f"logits of model must be finite and floating point, got {given}")
    if y is not None:
        as_labels("y", y, x, z.shape[1])
    if steady:
        few = max(1, len(some) - 1)  # another order, and other company
        insist_on_same_outputs(z[-few:], logits(some.flip(0)[:few]).flip(0), [z.dtype])
        twice = some[:1].repeat(few, *[1] * (x.ndim - 1))  # so that none is in all passes
        insist_on_same_outputs(z[:1], logits(twice)[:1], [z.dtype])


@contextmanager
def _buffers_kept(model: nn.Module) -> Iterator[None]:
    """Give buffers their values back afterwards: code may count in them."""
    before = [(b, b.detach().clone()) for b in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
