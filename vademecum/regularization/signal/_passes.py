"""One pass of a model under watch, forward and backward, and what several of them add up to."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks

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
from vademecum.regularization.signal._nodes import SeenRow
from vademecum.regularization.signal._predictions import estimate_backward, estimate_forward
from vademecum.regularization.signal._sums import PassRow
from vademecum.regularization.signal._watching import Watch

__all__ = ["Runner", "begun", "count_rows"]

_CHECKPOINTS = "model must not use checkpoints: what they compute again is not what was watched"


class Runner:
    """Runs a model and sends a cotangent back, the same one in each pass.

    Args:
        model: The module.
        loss: What is differentiated; without targets a random vector goes back.
        output: What counts of what the model gives.
        generator: Where the random vector comes from.

    Attributes:
        cotangent: What went back: "loss", "random" or "none".
        weighted: Whether gradients of portions were multiplied by their numbers of examples.
    """

    def __init__(self, model: nn.Module, loss: Loss | None, output: Output, generator: Any):
        self.model, self._loss, self._output, self._generator = model, loss, output, generator
        self._state = ModelState(model)
        self._vector: Tensor | None = None
        self.cotangent, self.weighted = "none", False

    def forward(self, x: Any) -> tuple[Watch, Any]:
        """One forward pass under watch, and what of its result counts."""
        watch = Watch(count_rows(x), [])
        given = map_tensors(x, lambda t: begun(t, watch))
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
        with disable_saved_tensors_hooks(_CHECKPOINTS):
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
            self.weighted = pieces and not noted.summed
            seed = torch.full_like(value, watch.n if self.weighted else 1)
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


def begun(t: Tensor, watch: Watch) -> Tensor:
    """A copy of an input through which gradients come back to the watch; others as they are."""
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
