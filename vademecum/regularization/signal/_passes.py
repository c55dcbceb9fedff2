"""One pass of a model under watch, forward and backward, and what several of them add up to."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.models import (
    LossCalls,
    ModelState,
    Output,
    call_arguments,
    chosen_output,
    differentiable_output,
    following,
    loss_for,
    map_tensors,
    named_tensors,
    refuse_nan,
)
from vademecum.models.losses import Loss
from vademecum.randomness import source
from vademecum.regularization.signal._maps import Estimate
from vademecum.regularization.signal._measured_moments import moments_of
from vademecum.regularization.signal._predictions import estimate_backward, estimate_forward
from vademecum.regularization.signal._watching import SeenRow, Watch
from vademecum.regularization.signal.rows import SignalPrediction, SignalRow

__all__ = ["PassRow", "Runner", "added", "finished"]


class PassRow(NamedTuple):
    """A row of one pass, as numbers that add up, weighted by examples."""

    name: str
    kind: str
    shape: tuple[int, ...]
    note: str
    sums: list[float]
    gradient: list[float] | None
    low: Tensor | None
    high: Tensor | None
    flat: float | None
    predicted: Estimate | None
    predicted_backward: Estimate | None


class Runner:
    """Runs a model and sends a cotangent back, the same one in each pass.

    Args:
        model: The module.
        loss: What is differentiated; without targets a random vector goes back.
        output: What counts of what the model gives.
        generator: Where the random vector comes from.
    """

    def __init__(self, model: nn.Module, loss: Loss | None, output: Output, generator: Any):
        self.model, self._loss, self._output, self._generator = model, loss, output, generator
        self._state = ModelState(model)
        self._vector: Tensor | None = None
        self.cotangent = "none"

    def forward(self, x: Any) -> tuple[Watch, Any]:
        """One forward pass under watch, and what of its result counts."""
        watch = Watch(count_rows(x), [])
        given = map_tensors(x, lambda t: _begun(t, watch))
        args, kwargs = call_arguments(given)

        def run() -> Any:
            with torch.enable_grad(), following(self.model, [], watch.entered), watch:
                return self.model(*args, **kwargs)

        return watch, chosen_output(self._state.run(run, fused=True), self._output)

    def value(self, x: Any, y: Any) -> Tensor:
        """The loss, or the mean of the output."""
        out = self.forward(x)[1]
        return out.float().mean() if y is None else loss_for(y, self._loss)(out, y)

    def rows(self, x: Any, y: Any, *, pieces: bool = False) -> list[PassRow]:
        """The rows of one pass.

        Args:
            x: The inputs.
            y: The targets, or None.
            pieces: Whether this is one of several portions, which count by their examples.
        """
        refuse_nan(x)
        watch, out = self.forward(x)
        self._back(watch, out, y, pieces=pieces)
        forward = estimate_forward(watch.nodes)
        backward = estimate_backward(watch.nodes, forward)
        return [_row(row, forward, backward) for row in watch.rows]

    def _back(self, watch: Watch, out: Any, y: Any, *, pieces: bool) -> None:
        if y is None:
            out = differentiable_output(out, graph=False)
        for _, t in named_tensors(out):
            if t.requires_grad and t.is_floating_point():
                watch.ended(t)
        if y is not None:
            with torch.enable_grad(), LossCalls() as noted:
                value = loss_for(y, self._loss)(out, y)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ValueError(f"loss must give one number, got {value!r:.80}")
            scale = watch.n if pieces and not noted.summed else 1
            seed = torch.full_like(value, scale)
        else:
            value, seed = out, self._random(out) if out.requires_grad else None
        if not value.requires_grad or not watch.roots:
            return
        self.cotangent = "random" if y is None else "loss"
        torch.autograd.grad(value, watch.roots, seed, allow_unused=True)

    def _random(self, out: Tensor) -> Tensor:
        """One Gaussian vector for all examples."""
        shape = out.shape[1:]
        if self._vector is None or self._vector.shape != shape:
            place = source(self._generator, out.device)
            self._vector = torch.randn(shape, dtype=torch.float32, **place)
        return self._vector.to(out).expand_as(out)


def count_rows(x: Any) -> int:
    """How many examples there are: the length of the first tensor, of numbers if there are such."""
    tensors = [t for _, t in named_tensors(x) if t.ndim and t.layout == torch.strided]
    floating = [t for t in tensors if t.is_floating_point()]
    if not tensors or not (floating or tensors)[0].shape[0]:
        raise ValueError("x must hold a tensor with examples along its first axis")
    return len((floating or tensors)[0])


def _begun(t: Tensor, watch: Watch) -> Tensor:
    if not t.is_floating_point() or t.layout != torch.strided or t.is_nested:
        return t
    root = t.detach().requires_grad_()
    watch.roots.append(root)
    with torch.enable_grad():
        return root.clone()  # which may be changed in place


def _row(row: SeenRow, forward: Any, backward: Any) -> PassRow:
    node = row.node
    guess = None if row.fresh else forward[node]
    back = None if node.restarts else backward[node]
    if node.gradient is None:
        back = None
    note = f"no prediction: {row.kind}" if guess is None else ""
    gradient = None if node.gradient is None else node.gradient.tolist()
    flat = None if row.flat is None else float(row.flat)
    return PassRow(row.name, row.kind, row.shape, note, row.moments.tolist(), gradient, row.low,
                   row.high, flat, guess, back)  # fmt: skip


def added(one: list[PassRow], other: list[PassRow]) -> list[PassRow]:
    """Two passes as one."""
    if [(r.name, r.kind) for r in one] != [(r.name, r.kind) for r in other]:
        raise ValueError("model must make the same calls for each portion of x")
    return [_both(a, b) for a, b in zip(one, other, strict=True)]


def _both(a: PassRow, b: PassRow) -> PassRow:
    u, v = (r.sums[0] for r in (a, b))
    both = [None if s is None or t is None else [x + y for x, y in zip(s, t, strict=True)]
            for s, t in ((a.sums, b.sums), (a.gradient, b.gradient))]  # fmt: skip
    means = [
        None
        if s is None or t is None
        else Estimate(*((u * x + v * y) / (u + v) for x, y in zip(s, t, strict=True)))
        for s, t in ((a.predicted, b.predicted), (a.predicted_backward, b.predicted_backward))
    ]
    assert both[0] is not None
    low = high = flat = None
    if a.low is not None and b.low is not None and a.high is not None and b.high is not None:
        low, high = torch.minimum(a.low, b.low), torch.maximum(a.high, b.high)
    if a.flat is not None and b.flat is not None:
        flat = (u * a.flat + v * b.flat) / (u + v)
    return PassRow(a.name, a.kind, a.shape, a.note, both[0], both[1], low, high, flat, *means)


def finished(rows: list[PassRow], scale: float = 1.0) -> list[SignalRow]:
    """The rows with moments instead of sums.

    Args:
        rows: Those of all passes together.
        scale: What gradients are to be divided by.
    """
    calls: dict[tuple[str, str], int] = {}
    made: list[SignalRow] = []
    for r in rows:
        call = calls[r.name, r.kind] = calls.get((r.name, r.kind), -1) + 1
        powers = (0, 2, 4, 1, 2, 3, 0, 0, 0)
        back = r.gradient and moments_of([s / scale**k for s, k in zip(r.gradient, powers)])
        guess = r.predicted_backward
        if guess is not None:
            guess = Estimate(guess.q / scale**2, guess.p / scale**2, 0.0)
        dead = None if r.low is None else float((r.low == r.high).double().mean())
        several = r.sums[6] > 1
        made.append(
            SignalRow(
                r.name,
                r.kind,
                call,
                r.shape,
                moments_of(r.sums),
                back or None,
                dead,
                r.flat,
                _prediction(r.predicted, several),
                _prediction(guess, several),
                r.note,
            )  # fmt: skip
        )
    return made


def _prediction(e: Estimate | None, several: bool) -> SignalPrediction | None:
    if e is None or not all(map(math.isfinite, e)):
        return None
    c = min(e.p / e.q, 1.0) if several and e.q > 0 else None
    return SignalPrediction(e.q, max(e.q - e.m**2, 0.0), c)
