r"""Hopfield dynamics: an asynchronous sweep in blocks, and sweeps until the network is settled.

Unit after unit, in a given order, takes the sign of its field,

$$h_i = \sum_t A_{it} u_t - d_i x_i + \theta_i, \qquad u = P^\top x,$$

and keeps its state where $h_i = 0$. Let $c_i \in \{0, -2 x_i\}$ be the change of unit $i$. While a
block $I$ of units is visited, its fields move by $L c$ with $L$ the strictly lower triangle of
$A_I P_I^\top$, and so the changes solve

$$c = \rho(h_I + L c), \qquad \rho(h)_i = -2 x_i \, [x_i h_i < 0],$$

which is a `cascade`; after it $u \leftarrow u + P_I^\top c$. That is the sequential rule, by matrix
products. It is exact as long as the fields are: whole numbers below $2^{24}$ in float32 and
$2^{53}$ in float64 are, which covers Hebbian and perceptron factors and integer couplings.

`settle` repeats sweeps for a batch of states, drops those that are at rest, and finds cycles.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arrays import one_blas_thread, views
from vademecum.connectionism._cascade import cascade

__all__ = ["settle", "sweep"]


def sweep(
    x: Float[Tensor, " batch n"],
    order: Int[Tensor, " n"],
    *,
    a: Float[Tensor, " n s"],
    p: Float[Tensor, " n s"] | None,
    d: Float[Tensor, " n"],
    theta: Float[Tensor, " n"],
) -> Float[Tensor, " batch n"]:
    r"""Visit all units once, in the same order for the whole batch.

    Args:
        x: The states, with entries -1 and +1.
        order: A permutation of the units.
        a: The factor $A$, or the couplings themselves.
        p: The factor $P$; `None` stands for the identity.
        d: What to take off the diagonal of $A P^\top$.
        theta: The biases.

    Returns:
        The new states.

    Example:
        >>> w, zero = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.zeros(2)
        >>> x = torch.tensor([[1.0, -1.0]])
        >>> sweep(x, torch.tensor([0, 1]), a=w, p=None, d=zero, theta=zero)
        tensor([[-1., -1.]])
    """
    x = x.T.clone(memory_format=torch.contiguous_format)
    block = 64 if x.device.type == "cpu" else 256
    strict = torch.ones(block, block, dtype=x.dtype, device=x.device).tril(-1)
    x_, order_, a_, d_, theta_, strict_ = views(x, order, a, d[:, None], theta[:, None], strict)
    p_ = None if p is None else views(p)[0]
    with one_blas_thread():
        _sweep(x_, order_, a_, p_, d_, theta_, strict_)
    return x.T


def _sweep(x: Any, order: Any, a: Any, p: Any, d: Any, theta: Any, strict: Any) -> None:
    """Change the columns of `x` in place; all arguments are arrays, or all are tensors."""
    u = x if p is None else p.T @ x
    for start in range(0, len(order), len(strict)):
        block = order[start : start + len(strict)]
        x_b, a_b = x[block], a[block]
        p_b = None if p is None else p[block]
        between = a_b[:, block] if p_b is None else a_b @ p_b.T
        flip = -2 * x_b
        c = cascade(
            lambda h, x_b=x_b, flip=flip: (h * x_b < 0) * flip,
            a_b @ u - d[block] * x_b + theta[block],
            between * strict[: len(block), : len(block)],
        )
        x[block] = x_b + c
        if p_b is not None:
            u += p_b.T @ c


def settle(
    x: Float[Tensor, " batch n"],
    fields: Callable[[Tensor], Tensor],
    move: Callable[[Tensor, Tensor], Tensor],
    *,
    max_iter: int,
    cycles: bool,
    record: Callable[[Tensor, Tensor], None],
) -> tuple[Float[Tensor, " batch n"], Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    r"""Repeat steps until no unit wants to flip, or a state comes back.

    Cycles are found by Brent's method, which keeps one earlier state to compare with, that of sweep
    $2^j - 1$: after $\mu$ sweeps towards a cycle of length $\lambda$ it takes at most
    $2 \max(\mu + 1, \lambda) + \lambda$ sweeps.

    Args:
        x: The starts.
        fields: Gives the fields of states.
        move: Makes a step from states and their fields.
        max_iter: The number of steps to stop after.
        cycles: Whether to look for cycles, which makes sense if `move` is a function.
        record: Called with states and fields at the start and after each step.

    Returns:
        The states, the number of steps each has made, and its period: 1 at rest, 0 if unknown.

    References:
        Brent, An improved Monte Carlo factorization algorithm, BIT, 1980.
    """
    x, f = x.clone(), fields(x)
    record(x, f)
    period = _at_rest(x, f).long()
    n_iter = torch.zeros_like(period)
    earlier, age, span = x.clone(), 0, 1
    for k in range(1, max_iter + 1):
        live = (period == 0).nonzero().squeeze(1)
        if not len(live):
            break
        now = move(x[live], f[live])
        x[live], f[live], n_iter[live], age = now, fields(now), k, age + 1
        period[live] = _at_rest(now, f[live]).long()
        if cycles:
            period[live[(now == earlier[live]).all(1) & (period[live] == 0)]] = age
            if age == span:
                earlier, age, span = x.clone(), 0, 2 * span
        record(x, f)
    return x, n_iter, period


def _at_rest(x: Tensor, f: Tensor) -> Tensor:
    return ~(x * f < 0).any(1)
