r"""The spectrum of a tangent kernel: which directions of outputs a network learns, and how fast.

Under gradient flow on the squared loss the residual along an eigenvector $u$ of the kernel with the
eigenvalue $\lambda$ decays as $e^{-\lambda t}$, as long as the kernel stays what it is. The kernel
is $J J^T$ with the Jacobian $J \in \mathbb{R}^{nk \times P}$ of all outputs of $n$ examples, so it
has at most $P$ eigenvalues other than zero, and the trace $\|J\|_F^2$.

All eigenvalues come from the matrix, in double precision; a few of the largest from Lanczos steps
with the operator, two passes each. What rounding puts below zero is given as zero.
"""

from operator import itemgetter
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.arrays import portions
from vademecum.foundations import eigsh
from vademecum.kernels.tangent_kernel import empirical_ntk
from vademecum.kernels.tangent_operator import ntk_operator
from vademecum.models import Output, count_examples, map_tensors
from vademecum.results import one_line

__all__ = ["NTKSpectrum", "ntk_spectrum"]

_TOGETHER = 16  # examples whose traces are computed at a time


class NTKSpectrum(NamedTuple):
    """Eigenvalues and eigenvectors of a tangent kernel.

    Example:
        >>> x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
        >>> ntk_spectrum(nn.Linear(2, 1, bias=False), x).eigenvalues
        tensor([9., 1.])
    """

    eigenvalues: Float[Tensor, " m"]
    """The eigenvalues, the largest first: all of them, or as many as were asked for."""
    eigenvectors: Float[Tensor, " rows m"]
    """The eigenvectors as columns; their rows are the outputs of all examples, in their order."""
    trace: float
    """The sum of all eigenvalues, also of those that were not asked for."""
    effective_rank: float
    r"""The trace over the largest eigenvalue: how many directions count as much as the first."""
    converged: bool
    """Whether the eigenvalues are as close as `tol` says."""

    __repr__ = one_line


def ntk_spectrum(
    model: nn.Module,
    x: Any,
    *,
    count: int | None = None,
    tol: float | None = None,
    max_iter: int | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> NTKSpectrum:
    r"""Eigenvalues and eigenvectors of a network's tangent kernel on some examples.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.

    Args:
        model: Any module whose examples do not influence each other in evaluation mode.
        x: The inputs; a tensor, or any structure of tensors (see `functional`), with the examples
            along the first axis.
        count: How many of the largest eigenvalues, from products with the kernel; None for all,
            from the matrix of all $nk \times nk$ entries.
        tol: The largest residual norm, as a part of the largest eigenvalue, where not all are
            computed; by default the square root of the machine precision.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. One product each;
            by default as many as for `eigsh`.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. The
            matrix counts as a result.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are fewer outputs than eigenvalues asked for, and as `empirical_ntk`.

    Example:
        >>> x = torch.eye(50, 60) * torch.arange(1.0, 51.0)[:, None]
        >>> found = ntk_spectrum(nn.Linear(60, 1, bias=False), x, count=2)
        >>> found.eigenvalues.round(decimals=2), round(found.effective_rank, 2)
        (tensor([2500., 2401.]), 17.17)
    """
    knobs: Any = {"memory": memory, "frozen": frozen, "output": output}
    n = count_examples(x)
    if count is None:
        K = empirical_ntk(model, x, progress=progress, **knobs).transpose(1, 2)
        rows = K.shape[0] * K.shape[1]
        values, vectors = torch.linalg.eigh(K.reshape(rows, rows).double())
        values, vectors = values.flip(0).clamp(min=0).to(K.dtype), vectors.flip(1).to(K.dtype)
        return _result(values, vectors, float(values.double().sum()), converged=True)
    op = ntk_operator(model, x, **knobs)
    whole("count", count, low=1, high=op.shape[0])
    found = eigsh(op, count, tol=tol, max_iter=max_iter, generator=generator, progress=progress)
    trace = 0.0
    for here in portions(n, each=1, memory=_TOGETHER):
        few = map_tensors(x, itemgetter(here))
        trace += float(empirical_ntk(model, few, outputs="trace", **knobs).double().trace())
    values = found.values.clamp(min=0)
    return _result(values, found.vectors, trace, converged=found.converged)


def _result(values: Tensor, vectors: Tensor, trace: float, *, converged: bool) -> NTKSpectrum:
    largest = float(values[0])
    return NTKSpectrum(values, vectors, trace, trace / largest if largest else 0.0, converged)
