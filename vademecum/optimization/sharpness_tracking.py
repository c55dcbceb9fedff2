r"""The sharpness along a training run: at the edge of stability it hovers at $2 / \eta$.

Between two looks the parameters move a little, and so does the top eigenvector: a search that
starts from the last one, $v_0 = v + r / 10$ with a random unit vector $r$, takes about half of the
products. Where another eigenvalue overtakes the one that is followed, its vector is in $v_0$ by
chance alone; therefore every tenth search starts anew.

Each value is as exact as `sharpness` makes it. The run itself is as it would be without: nothing
is written to parameters, gradients, buffers or random states.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.optim import Optimizer

from vademecum.arguments import number, whole
from vademecum.models import Loss, Output
from vademecum.optimization._preconditioners import threshold_of
from vademecum.optimization.sharpest_direction import NotFinite, Sharpness, sharpness
from vademecum.randomness import given_back, source
from vademecum.results import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SharpnessHistory", "SharpnessTracker", "draw_sharpness"]

_ANEW = 10  # looks, of which one starts at random


class SharpnessHistory(NamedTuple):
    """The sharpness during training.

    Example:
        >>> tracker = SharpnessTracker(nn.Linear(1, 1, bias=False), torch.ones(1, 1), torch.ones(1, 1))
        >>> tracker.step(), tracker.history.values
        (2.0, tensor([2.]))
    """  # noqa: E501

    steps: Int[Tensor, " looks"]
    """When it was measured: how many calls of `step` there had been."""
    values: Float[Tensor, " looks"]
    r"""The eigenvalues $\lambda$."""
    residuals: Float[Tensor, " looks"]
    r"""The norms of $H v - \lambda v$."""
    thresholds: Float[Tensor, " looks"]
    r"""The sharpness that the optimiser bears, $2 / \eta$ for plain descent; NaN without one."""
    applications: int
    """The number of products with the Hessian, all in all."""

    __repr__ = one_line


class SharpnessTracker:
    """Follows the sharpness of a model in any training loop: call `step` once a step.

    Args:
        model: The module that is trained, in single or double precision.
        x: The inputs on which to measure, the same each time; a tensor, any structure of tensors,
            or a `DataLoader` (see `sharpness`).
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        preconditioner: The optimiser that trains the model; with it the sharpness is what matters
            for its steps (see `sharpness`), and `thresholds` are known.
        every: How many steps there are from one look to the next.
        tol: Stop when a residual is at most `tol` times the largest eigenvalue in sight.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a product.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Attributes:
        last: The last `Sharpness` measured; None before the first, and for a run that diverged.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
        >>> x, y = torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1)  # the Hessian is 2 (1 + 4) / 2
        >>> tracker = SharpnessTracker(model, x, y, preconditioner=optimizer, every=2)
        >>> for _ in range(4):
        ...     optimizer.zero_grad()
        ...     nn.functional.mse_loss(model(x), y).backward()
        ...     optimizer.step()
        ...     _ = tracker.step()
        >>> tracker.history.steps, tracker.history.values, tracker.history.thresholds
        (tensor([1, 3]), tensor([5., 5.]), tensor([8., 8.]))
    """

    def __init__(
        self,
        model: nn.Module,
        x: Any,
        y: Any = None,
        *,
        loss: Loss | None = None,
        preconditioner: Optimizer | None = None,
        every: int = 1,
        tol: float = 1e-3,
        max_iter: int = 1000,
        memory: int | None = None,
        generator: torch.Generator | None = None,
        frozen: bool = True,
        output: Output = None,
    ):
        self.model, self.preconditioner = model, preconditioner
        self.every = whole("every", every, low=1)
        number("tol", tol, above=0)
        self._data = x, y
        self._knobs: dict[str, Any] = {
            "loss": loss, "preconditioner": preconditioner, "tol": tol, "max_iter": max_iter,
            "memory": memory, "generator": generator, "frozen": frozen, "output": output,
        }  # fmt: skip
        self.last: Sharpness | None = None
        self._steps = self._applications = 0
        self._found: list[tuple[int, float, float, float]] = []

    def step(self) -> float | None:
        """Count a step, and measure if it is time: the first call does, then every `every`-th.

        Returns:
            The sharpness, or None where it was not measured; NaN where the run has diverged.
        """
        self._steps += 1
        if (self._steps - 1) % self.every:
            return None
        try:
            found = sharpness(self.model, *self._data, v0=self._start(), **self._knobs)
        except NotFinite:  # whose business a run that diverges is
            self._found.append((self._steps, math.nan, math.nan, math.nan))
            self.last = None
            return math.nan
        self.last, self._applications = found, self._applications + found.applications
        bears = math.nan if self.preconditioner is None else threshold_of(self.preconditioner)
        self._found.append((self._steps, found.value, found.residual, bears))
        return found.value

    @property
    def history(self) -> SharpnessHistory:
        """All that was measured so far."""
        steps = torch.tensor([step for step, *_ in self._found], dtype=torch.long)
        numbers = torch.tensor([each for _, *each in self._found]).view(-1, 3).T
        return SharpnessHistory(steps, *numbers.unbind(), applications=self._applications)

    def __repr__(self) -> str:
        seen = f"{len(self._found)} looks in {self._steps} steps"
        return f"SharpnessTracker({type(self.model).__name__}, {seen})"

    def _start(self) -> Tensor | None:
        if self.last is None or len(self._found) % _ANEW == 0:
            return None
        v, generator = self.last.vector, self._knobs["generator"]
        with given_back(generator):
            r = torch.randn(len(v), dtype=v.dtype, **source(generator, v.device)).to(v.device)
        return v + r / (10 * r.norm())


def draw_sharpness(result: SharpnessHistory, axes: "Axes | None" = None) -> "Figure":
    """Draw the sharpness over the steps, and what the optimiser bears where that is known.

    Args:
        result: The `history` of a tracker.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> tracker = SharpnessTracker(nn.Linear(1, 1), torch.ones(1, 1), torch.ones(1, 1))
        >>> _ = tracker.step()
        >>> [line.get_label() for line in draw_sharpness(tracker.history).axes[0].lines]
        ['sharpness']
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(6, 3.6), layout="constrained").subplots()
    steps = result.steps.tolist()
    axes.plot(steps, result.values.tolist(), "o-", ms=3, label="sharpness")
    if not result.thresholds.isnan().all():
        axes.plot(steps, result.thresholds.tolist(), "k--", lw=1, label="what the steps bear")
    axes.set(xlabel="step", ylabel="largest curvature")
    axes.legend(frameon=False, fontsize="small")
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
