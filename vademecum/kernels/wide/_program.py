r"""A network's architecture as steps on covariances, and their run on blocks of pairs.

Before the first layer with weights everything is computed as the network's code does, from the
inputs themselves. Then a signal is its covariances; those between different positions are followed
only where a later step mixes positions, such as pooling. Inputs with themselves come first: they
give the variances that activations and normalisations of pairs need, in double precision.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.arrays import portions
from vademecum.kernels.wide._moments import Moments, Pairs, Step
from vademecum.kernels.wide._positions import at_equal_positions
from vademecum.kernels.wide._workspace import Workspace

__all__ = ["Known", "Program", "Register"]

_INPUTS = {"cpu": 2**22}  # bytes in double precision at a time: pages of more cost more than sums
Known = dict[int, tuple[Tensor, ...]]
"""Variances and means of inputs, by the step that wants them."""


class Register(NamedTuple):
    """A signal that depends on weights, or the products of inputs before the first layer."""

    axes: tuple[int, ...]
    """The sizes of axes of positions."""
    gaussian: bool
    layers: frozenset[int]
    """The layers with weights that it is directly made of; without common ones, two signals are
    independent."""
    centred: bool
    """Whether its mean is zero."""
    uneven: str | None = None
    """What makes its tangent kernel another for each unit, until a layer averages over units."""


class Program:
    """The steps of a network for inputs of one shape.

    Attributes:
        steps: The steps, in order.
        registers: The signals.
        result: The number of the output's.
        before: What is computed before the first layer: number, function, numbers of arguments.
        no_tangent: Why there is no tangent kernel, if there is none.
    """

    def __init__(self):
        self.steps: list[Step] = []
        self.registers: list[Register] = []
        self.before: list[tuple[int, Callable[..., Tensor], list[int]]] = []
        self.result, self.source = -1, 0
        self.no_tangent: str | None = None

    def add(self, step: Step, inputs: tuple[int, ...], register: Register) -> int:
        """The number of the signal that a step gives."""
        step.inputs, step.output = inputs, len(self.registers)
        step.axes = len(self.registers[inputs[0]].axes) if inputs else len(register.axes)
        step.after = len(register.axes)
        self.steps.append(step)
        self.registers.append(register)
        return step.output

    def ends_in_activation(self, result: int) -> bool:
        """Whether a signal has an activation that no layer with weights follows."""
        left, made = [result], {step.output: step for step in self.steps}
        for i in left:  # which grows
            step = made[i]
            if step.curves:
                return True
            left += () if step.weighs else step.inputs
        return False

    def finish(self, result: int) -> None:
        """Find out which signals need covariances between different positions."""
        self.result = result
        needed, full = {result}, set[int]()
        for step in reversed(self.steps):
            step.full_after = step.output in full
            wanted = step.wants_full(step.full_after)
            step.full = wanted and step.axes > 0
            if step.output in needed:
                needed.update(step.inputs)
                full.update(i for i in step.inputs if step.full and self.registers[i].axes)
        self.steps = [step for step in self.steps if step.output in needed]
        self.full = full
        self.last = {i: step.output for step in self.steps for i in step.inputs}

    @property
    def mixes(self) -> bool:
        """Whether there are covariances between different positions."""
        return bool(self.full)

    def entries(self) -> int:
        """How many numbers a pair takes at the step that takes most."""
        most = 1
        for i, register in enumerate(self.registers):
            size = torch.Size(register.axes).numel()
            most = max(most, size**2 if i in self.full else size)
        return most

    def prepared(self, x: Tensor) -> dict[int, Tensor]:
        """What is computed before the first layer."""
        found = {self.source: x}
        for index, function, arguments in self.before:
            found[index] = function(*(found[i] for i in arguments))
        return found

    def alone(
        self, x: Tensor, weight: float, bias: float, *, tangent: bool, memory: int
    ) -> tuple[Known, Tensor, Tensor | None]:
        """Inputs with themselves: what pairs need to know, covariances and tangent kernels."""
        blocks, room = [], Workspace()
        inputs = _INPUTS.get(x.device.type, memory) // (8 * max(1, x[0].numel()))
        rows = min(memory // (8 * 8 * self.entries()), inputs)
        for some in portions(len(x), each=1, memory=rows):
            raw = self.prepared(x[some].double())
            pairs = Pairs((raw, raw), None, {}, tangent, weight, bias, room)
            blocks.append((pairs.found, self._run(pairs)))
        known = {
            key: tuple(torch.cat(each) for each in zip(*(b[0][key] for b in blocks), strict=True))
            for key in blocks[0][0]
        }
        k = torch.cat([m.k.reshape(-1) for _, m in blocks])
        thetas = [_tangent(m).reshape(-1) for _, m in blocks] if tangent else []
        return known, k, torch.cat(thetas) if thetas else None

    def block(
        self,
        raw: tuple[dict[int, Tensor], dict[int, Tensor]],
        known: tuple[Known, Known],
        weight: float,
        bias: float,
        room: Workspace,
        *,
        tangent: bool,
    ) -> Tensor:
        """Covariances, or tangent kernels, of all pairs of two sets of inputs."""
        m = self._run(Pairs(raw, known, {}, tangent, weight, bias, room))
        k = _tangent(m) if tangent else m.k
        return k.reshape(k.shape[:2])

    def _run(self, pairs: Pairs) -> Moments:
        signals: dict[int, Moments] = {}
        for step in self.steps:
            given = []
            for i in step.inputs:
                m = signals[i]._replace(owned=self.last[i] == step.output)
                if i in self.full and not step.full:
                    m = _at_equal(m, len(self.registers[i].axes))
                given.append(m)
            signals[step.output] = step.run(pairs, *given)
            gone = [i for i in set(step.inputs) if self.last[i] == step.output]
            _give_back(pairs.room, [signals.pop(i) for i in gone], signals)
        return signals[self.result]


def _give_back(room: Workspace, gone: list[Moments], left: dict[int, Moments]) -> None:
    """Blocks of signals that nobody needs any more, nor shares, are free."""
    used = {_place(t) for m in left.values() for t in (m.k, m.theta) if t is not None}
    for m in gone:
        for t in (m.k, m.theta):
            if t is not None and _place(t) not in used:
                used.add(_place(t))
                room.give(t)


def _place(t: Tensor) -> int:
    return t.untyped_storage().data_ptr()


def _at_equal(m: Moments, axes: int) -> Moments:
    theta = None if m.theta is None else at_equal_positions(m.theta, axes)
    return m._replace(k=at_equal_positions(m.k, axes), theta=theta)


def _tangent(m: Moments) -> Tensor:
    return torch.zeros_like(m.k) if m.theta is None else m.theta * m.factor
