r"""The Jacobians $\partial z_t / \partial z_{t-1}$ of many steps at once.

After a run through the sequence all states are known, so the steps no longer depend on each other:
those of several times and sequences are rows of one batch. For $m$ coordinates of the state the
rows of all Jacobians come from $m$ backward passes through one step of that batch. A complex
coordinate counts as two real ones; norms are the same.

That rows do not influence each other is seen from the states, which must come out as in the run.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.models import insist_on_same_outputs, map_tensors, named_leaves
from vademecum.recurrence._stepping import Chain, State, is_smooth, smooth_leaves

__all__ = ["Run", "run_chain", "step_jacobians"]


class Run(NamedTuple):
    """A run of a chain through a sequence."""

    chain: Chain
    """The chain."""
    x: Tensor
    """Its inputs in the order in which it reads them, (T, n, ...)."""
    y: Tensor
    """Its outputs in that order."""
    z: Tensor
    """Its states as real vectors, (T, n, m)."""
    states: list[State]
    """The same as they came."""
    axes: dict[str, int]
    """Where the sequences lie in each tensor of a state."""

    @property
    def alone(self) -> bool:
        """Whether states hold more than tensors with derivatives, so that times do not mix."""
        return any(
            leaf is not None and not (isinstance(leaf, Tensor) and is_smooth(leaf))
            for _, leaf in named_leaves(self.states[0])
        )


def run_chain(chain: Chain, x: Tensor) -> Run:
    """Run a chain through inputs (n, T, ...) and keep all states."""
    axes = _axes(chain, x)
    state, states, outputs, flat = chain.start(x), [], [], []
    order = x.transpose(0, 1).flip(0) if chain.reverse else x.transpose(0, 1)
    for t, x_t in enumerate(order):
        y, state = chain.step(x_t, map_tensors(state, Tensor.clone))  # some steps work in place
        states.append(state)
        outputs.append(y)
        flat.append(_vector(state, axes))
        if flat[-1].shape != flat[0].shape:
            raise ValueError(
                f"state of model must keep its size, got {flat[0].shape[1]} numbers for each"
                f" sequence after the first step and {flat[-1].shape[1]} after step {t + 1}"
            )
    z = torch.stack(flat)
    if not bool(z.isfinite().all()):
        bad = int((~z.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"states of model must be finite, and are not after step {bad + 1}")
    return Run(chain, order, torch.stack(outputs), z, states, axes)


def _axes(chain: Chain, x: Tensor) -> dict[str, int]:
    """The axis of each tensor in the state that is as long as there are sequences."""
    one, two = (
        smooth_leaves(chain.step(x[rows, 0], chain.start(x[rows]))[1]) for rows in ([0], [0, 0])
    )
    if not one:
        raise ValueError("state of model must hold floating-point tensors, got none")
    found = {}
    for name, z in one.items():
        sizes = zip(z.shape, two[name].shape, strict=True)
        moved = [axis for axis, (a, b) in enumerate(sizes) if (a, b) == (1, 2)]
        if len(moved) != 1:
            raise ValueError(
                f"{name} must have one axis for the sequences, got the shape {tuple(z.shape)} for"
                f" one and {tuple(two[name].shape)} for two"
            )
        found[name] = moved[0]
    return found


def _vector(state: State, axes: dict[str, int]) -> Tensor:
    """The state as one real vector for each sequence, (n, m)."""
    parts = []
    for name, z in smooth_leaves(state).items():
        z = z.movedim(axes[name], 0)
        z = torch.view_as_real(z.resolve_conj()) if z.is_complex() else z
        parts.append(z.flatten(1))
    return torch.cat(parts, 1)


def _state(vector: Tensor, like: State, axes: dict[str, int]) -> State:
    """Vectors (rows, m) as a state of so many sequences, in the structure of another."""
    names, at = iter(smooth_leaves(like)), 0

    def part(z: Tensor) -> Tensor:
        nonlocal at
        if not is_smooth(z):
            return z
        axis = axes[next(names)]
        shape = list(z.shape)
        del shape[axis]
        shape += [2] if z.is_complex() else []
        size = torch.Size(shape).numel()
        found = vector[:, at : at + size].unflatten(1, shape or [1])
        found = found.squeeze(1) if not shape else found
        at += size
        found = torch.view_as_complex(found.contiguous()) if z.is_complex() else found
        return found.movedim(0, axis)

    return map_tensors(like, part)


def step_jacobians(run: Run, times: slice, rows: slice) -> Tensor:
    r"""$\partial z_t / \partial z_{t-1}$ for times $t \ge 1$ and some sequences, (t, n, m, m)."""
    span = times.stop - times.start
    before = run.z[times.start - 1 : times.stop - 1, rows]
    flat = before.flatten(0, 1).detach().requires_grad_()
    with torch.enable_grad():
        state = _state(flat, run.states[times.start - 1], run.axes)
        state = map_tensors(state, Tensor.clone)
        z = _vector(run.chain.step(run.x[times, rows].flatten(0, 1), state)[1], run.axes)
    insist_on_same_outputs(run.z[times, rows].flatten(0, 1), z, [z.dtype])
    n, m = z.shape
    J = torch.zeros(n, m, m, dtype=torch.float64, device=z.device)
    for i in range(m if z.requires_grad else 0):
        unit = z.new_zeros(m).index_fill_(0, torch.tensor(i, device=z.device), 1)
        (row,) = torch.autograd.grad(z, flat, unit.expand_as(z), True, allow_unused=True)
        if row is not None:
            J[:, i] = row
    return J.unflatten(0, (span, -1))


def backwards(T: int, size: int) -> Iterator[slice]:
    """The times 1 .. T - 1 in portions of a size, the last first."""
    for stop in range(T, 1, -size):
        yield slice(max(1, stop - size), stop)
