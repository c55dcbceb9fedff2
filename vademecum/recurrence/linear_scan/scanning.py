r"""The linear recurrence $h_t = a_t h_{t-1} + b_t$ for all steps at once.

Affine maps compose to affine maps, so the recurrence is a *scan*: $a$ and $b$ hold all steps, and
so does the result. A step with a *reset* starts anew, $h_t = b_t$, whatever came before.

The result is that of the loop over time; where time is split, the error is that of the loop too, up
to a factor below 2. Derivatives are exact. The claim is `parallel_scan`.
"""

from torch import Tensor

from vademecum.recurrence.linear_scan._operands import aligned, of_one_kind, time_axis
from vademecum.recurrence.linear_scan._operator import linear_scan

__all__ = ["scan"]


def scan(
    a: Tensor,
    b: Tensor,
    *,
    initial: Tensor | None = None,
    reset: Tensor | None = None,
    reverse: bool = False,
    dim: int = -2,
) -> Tensor:
    r"""All states of $h_t = a_t h_{t-1} + b_t$.

    Args:
        a: The factors. With fewer axes than `b` they are constant in time and broadcast against `b`
            without its time axis, as `(D,)` does; with as many axes there is one for each step. A
            constant is never expanded.
        b: The inputs `(..., T, D)`, or with the time axis elsewhere.
        initial: The state $h_0$ before the first step, of the shape of `b` without time or one that
            broadcasts against it; zero by default.
        reset: Where a sequence starts anew, boolean `(..., T)`: its last axis is time, the others
            broadcast against those of `b` without time and without the last one. There $h_t = b_t$,
            whatever came before, `initial` included.
        reverse: Whether the recurrence runs from the end, $h_t = a_t h_{t+1} + b_t$.
        dim: Which axis of `b` is time. With -1 there are no channels: `b` is `(..., T)`.

    Returns:
        The states, in the shape to which `a` and `b` broadcast and in their common dtype; bf16 is
        accumulated in float32.

    Raises:
        ValueError: If shapes do not broadcast, there is no step, or dtypes or devices do not fit.

    Example:
        >>> b = torch.ones(5, 1)
        >>> scan(torch.tensor([0.5]), b).T
        tensor([[1.0000, 1.5000, 1.7500, 1.8750, 1.9375]])
        >>> starts = torch.tensor([False, False, True, False, False])
        >>> scan(torch.tensor([0.5]), b, initial=torch.tensor([2.0]), reset=starts).T
        tensor([[2.0000, 2.0000, 1.0000, 1.5000, 1.7500]])
    """
    a, b, initial = of_one_kind(a, b, initial, reset)
    time = time_axis(b, dim)
    h = linear_scan(*aligned(a, b, initial, reset, time), bool(reverse))
    return h.squeeze(-1) if time == -1 else h.movedim(-2, time)
