"""Reading a piecewise-linear network: from any module to a program of steps.

The calls of a module's forward code (`vademecum.models.Trace`) are followed one by one; what is not
piecewise linear is refused by name. The model itself is read, in evaluation and in the dtype of the
inputs, and the program is compared with it on five inputs, of size 1 and 1000, before it is handed
out. It holds the model's own parameters, or wider ones, and needs the model no more; that of a
model made of torch's own layers is kept for the next call (`_kept`).
"""

import math
from functools import partial
from threading import RLock

import torch
from torch import Tensor, nn

from vademecum.approximation.piecewise._affine_rules import AFFINE
from vademecum.approximation.piecewise._kept import keep, kept, key_of
from vademecum.approximation.piecewise._maps import Affine, PiecewiseMap
from vademecum.approximation.piecewise._program import Program, Step, on_piece
from vademecum.approximation.piecewise._unit_rules import UNITS
from vademecum.models import (
    Call,
    Entangled,
    ModelState,
    Output,
    Trace,
    Value,
    evaluation,
    insist_on_place,
    out_of_memory,
    trace_of_rows,
    unwrapped,
)

__all__ = ["read_program"]

_RULES = AFFINE | UNITS
_READING = RLock()  # a model is changed while it is read, by one thread at a time


def read_program(
    model: nn.Module,
    shape: tuple[int, ...],
    like: Tensor,
    *,
    name: str = "x",
    copy: bool = False,
    output: Output = None,
) -> Program:
    """The steps of a model for inputs of a shape, in the dtype of `like`.

    Args:
        model: The model, on the device of `like`; parameters that are narrower are widened.
        shape: That of one input.
        like: Whose dtype and device to compute in and on.
        name: What the inputs are called in messages.
        copy: Whether the program keeps copies of the parameters, to stay as the model is now.
        output: Which part of the model's output counts.

    Raises:
        ValueError: If the model has a step that is not piecewise linear, which it names; if its
            code cannot be traced; if it does not take such inputs, or mixes the examples of a
            batch; if it is elsewhere than `like`, or has parameters of a wider dtype.
    """
    model = unwrapped(model)
    key = None if copy or output is not None else key_of(model, shape, like)
    program = None if key is None else kept(model, key)
    if program is None:
        insist_on_place(model, name, like)
        with _READING, torch.no_grad():
            program = _read(model, shape, like, copy=copy, own=key is not None, output=output)
        if key is not None:
            keep(model, key, program)
    return program


def _read(
    model: nn.Module, shape: tuple[int, ...], like: Tensor, *, copy: bool, own: bool, output: Output
) -> Program:
    """Read a model with other tensors in the place of its own, or if it may, with these."""
    size, real = torch.Size(shape).numel(), {"dtype": torch.float64, "device": like.device}
    probe = torch.arange(5 * size, **real).mul_(0.7).sin_().view(5, *shape)
    probe[1:4:2] *= min(1000.0, torch.finfo(like.dtype).max ** 0.25)
    probe = probe.to(like.dtype)
    traced = partial(trace_of_rows, output=output, check=_insist_on_rule)
    if own:
        with evaluation(model):
            trace = traced(model, probe)
    else:
        trace = ModelState(model, dtype=like.dtype, copy=copy).run(traced, model, probe)
    program = _Reader(trace).program()
    _compare(program, probe, torch.cat(trace.outputs))
    return program


def _insist_on_rule(call: Call) -> None:
    if call.name not in _RULES:
        raise _not_piecewise(call)


def _not_piecewise(call: Call) -> ValueError:
    return ValueError(f"model must be piecewise linear, got {call.place}")


def _compare(program: Program, probe: Tensor, expected: Tensor) -> None:
    """Hold the program, for batches of one and of four, against the model for two and three."""
    try:
        found = torch.cat([program.run(part)[0] for part in (probe[:1], probe[1:])])
    except (RuntimeError, IndexError) as error:  # an operation that wants two examples
        if out_of_memory(error):
            raise
        found = expected[:0]
    size, given = (t.reshape(len(probe), -1).abs().amax(1) for t in (expected, probe))
    given = given.clamp(min=1)
    usual = (size / given).amax() * given  # outputs may be small by chance, but not all of them
    close = torch.finfo(probe.dtype).eps ** 0.5 * (size + usual.clamp(max=1))
    gap = found - expected if found.shape == expected.shape else torch.full_like(expected, math.inf)
    if not bool((gap.reshape(len(probe), -1).abs().amax(1) <= close).all()):
        raise Entangled(
            "model must be a function of one example at a time, got outputs that are not those of"
            " its code for each: are examples mixed, outputs random or not finite?"
        )


class _Reader:
    """Turns the calls of a trace into steps."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.steps: list[Step] = []
        (source,) = trace.sources
        self.shapes = {source.index: tuple(source.tensor.shape[1:])}
        self.gaps: list[tuple[Call, Tensor]] = []

    def program(self) -> Program:
        for call in self.trace.calls:
            for out in call.outputs:
                if out is not None:
                    self._step(call, out)
        self._insist_on_linearity()
        return Program(
            self.steps, self.trace.sources[0].index, self.trace.result.index, self.shapes
        )

    def _step(self, call: Call, out: Value) -> None:
        maps = self._maps(call, out)
        h, inputs = [v.tensor for v in call.tensors], tuple(v.index for v in call.tensors)
        for i, each in enumerate(maps):
            last = i == len(maps) - 1
            output = out.index if last else -1 - len(self.steps)
            self._note_gap(call, each, h)
            h = [out.tensor if last else _made(each, h)]
            self.steps.append(Step(str(call), each, inputs, output))
            self.shapes[output] = tuple(h[0].shape[1:])
            inputs = (output,)

    def _maps(self, call: Call, out: Value) -> list[PiecewiseMap]:
        rule, maps = _RULES[call.name], None
        if all(v.tensor.is_floating_point() for v in (out, *call.tensors)):
            try:
                maps = rule(call, out, *call.args, **call.kwargs)
            except ValueError as error:
                raise ValueError(f"{call.place} {error}") from error
            except TypeError as error:
                raise ValueError(f"{call.place} is not known in this form: {error}") from error
        if maps is None:
            raise _not_piecewise(call)
        return list(maps)

    def _note_gap(self, call: Call, step: PiecewiseMap, h: list[Tensor]) -> None:
        """How far the linear part of a step is from being linear, at exact halves.

        Not held against what the model made, which it may have changed in place since.
        """
        if isinstance(step, Affine) and step.transpose is None:
            value = step.linear(*h)
            gap = (step.linear(*(-t / 2 for t in h)) + value / 2).abs().max()
            allowed = torch.finfo(value.dtype).eps ** 0.75 * value.abs().max()
            self.gaps.append((call, gap - allowed))

    def _insist_on_linearity(self) -> None:
        """All gaps at once, as a device that computes ahead would wait for each."""
        gaps = torch.stack([gap for _, gap in self.gaps]).tolist() if self.gaps else []
        for (call, _), gap in zip(self.gaps, gaps, strict=True):
            if not gap <= 0:
                raise _not_piecewise(call)


def _made(step: PiecewiseMap, h: list[Tensor]) -> Tensor:
    return step(*h) if isinstance(step, Affine) else on_piece(step, h[0], step.piece(h[0]))
