r"""How many directions of a network a weight decay leaves alive.

With the Gauss-Newton matrix $G$ of the loss, whose eigenvalues are $\lambda_1, \dots, \lambda_P \ge
0$ where the loss is convex in the outputs, a decay $\mu$ keeps the share $\lambda_i / (\lambda_i +
\mu)$ of direction $i$ (`spectral_shrinkage`), altogether

$$\gamma = \sum_{i = 1}^P \frac{\lambda_i}{\lambda_i + \mu} = P - \mu \operatorname{tr} (G + \mu
I)^{-1}:$$

about 1 for each direction that the data determine, and about 0 for the others. For ridge regression
it is the trace of the smoother, the degrees of freedom of the fit.

It is exact where the network has few parameters, or few outputs $z \in \mathbb{R}^m$ on the data:
the eigenvalues of $G = J^\top \Lambda J$ other than zero are those of the $m \times m$ matrix
$\Lambda^{1/2} J J^\top \Lambda^{1/2}$. Else it is estimated: for a random vector of signs $v$ the
form $v^\top (G + \mu I)^{-1} v$ is that on average, and $s$ Lanczos steps from $v$ bound it on both
sides. All even derivatives of $1 / (\lambda + \mu)$ are positive, so Gauss' quadrature is below it,
and that of Radau, with one node at the lower end of the spectrum, above it. So beside the standard
error over the vectors stands half the gap of the two, which bounds the error of the steps.

References:
    Golub and Meurant, Matrices, Moments and Quadrature with Applications, Princeton, 2010.
    MacKay, Bayesian interpolation, Neural Computation, 1992.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import number, whole
from vademecum.foundations import LinearOperator
from vademecum.foundations._lanczos import side_by_side
from vademecum.foundations._probes import random_block, watched
from vademecum.foundations.stochastic_trace import mean_and_error
from vademecum.gradients import functional, jacobian
from vademecum.gradients.jacobian_operator import Jacobian
from vademecum.gradients.loss_gradient import loss_of
from vademecum.models import Loss, Output, twice_differentiable
from vademecum.optimization import gauss_newton
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["WeightDecayEffect", "weight_decay_effect"]

_LEAST = 4  # Lanczos steps
_JACOBIAN = 2**28  # bytes of it at most, unless memory says otherwise


class WeightDecayEffect(NamedTuple):
    """How many directions a decay leaves alive.

    Example:
        >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.zeros(2, 1)
        >>> weight_decay_effect(nn.Linear(2, 1, bias=False), x, y, decay=1.0)  # 1/2 and 9/10
        WeightDecayEffect(alive=1.4, standard_error=0.0, quadrature_error=0.0, parameters=2, ...)
    """

    alive: float
    r"""The number of directions left, $\sum_i \lambda_i / (\lambda_i + \mu)$."""
    standard_error: float
    """Its standard error over the random vectors; 0 where it is exact."""
    quadrature_error: float
    """A bound of what too few Lanczos steps may add to that; 0 where it is exact."""
    parameters: int
    """How many parameters there are, $P$."""
    decay: float
    r"""The decay $\mu$."""
    exact: bool
    """Whether all eigenvalues were computed."""
    applications: int
    """The number of products with the Gauss-Newton matrix, or with the Jacobian."""

    __repr__ = one_line


def weight_decay_effect(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    decay: float,
    applications: int = 256,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> WeightDecayEffect:
    r"""How many directions of the parameters a weight decay leaves alive, with an error.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.

    Args:
        model: Any module in single or double precision that gives one tensor.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels". A loader is run
            through at each Lanczos step.
        y: The targets.
        loss: A function of outputs and targets with one number for all, convex in the outputs; by
            default the cross-entropy for integer targets and the mean squared error for others.
        decay: The weight decay $\mu > 0$ that stands beside this loss as $\frac\mu2
            \|\theta\|^2$: what optimisers of torch call `weight_decay`.
        applications: The most products. The result is exact if there are at most so many
            parameters, or outputs of all examples together; else a half to one eighth of them are
            steps and the rest random vectors: 8 with 32 steps each by default.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are no parameters, the loss is not one number, or it is not convex in
            the outputs, so that the matrix has an eigenvalue below zero.

    Example:
        >>> x, y = torch.eye(20, 1000), torch.zeros(20, 1)
        >>> model = nn.Linear(1000, 1, bias=False)  # 20 eigenvalues 2/20, and 980 zeros
        >>> round(weight_decay_effect(model, x, y, decay=0.1).alive, 4)
        10.0
    """
    mu = number("decay", decay, above=0)
    whole("applications", applications, low=2 * _LEAST)
    f = functional(model, frozen=frozen, output=output)
    if not f.size:
        raise ValueError("model must have parameters, got none")
    if torch.finfo(f.dtype).bits < 32:
        raise ValueError(f"model must be in single or double precision, got {f.dtype}")
    P, width = f.size, f.size * f.dtype.itemsize
    knobs: Any = {"frozen": frozen, "output": output}
    if applications < P and not isinstance(x, DataLoader):
        J: Any = jacobian(model, x, memory=memory, **knobs)
        room = _JACOBIAN if memory is None else memory
        if J.shape[0] <= applications and 2 * J.shape[0] * width <= room:
            return _exact(_through_outputs(J, y, loss), P, mu, J.shape[0])
        del J
    plan = _plan(applications, P, width, memory)
    G = gauss_newton(model, x, y, loss=loss, memory=plan.left, **knobs)
    if applications >= P:
        with watched(G, P, progress=progress) as op:
            dense = _finite(op.dense().detach().double())
        return _exact(torch.linalg.eigvalsh(dense), P, mu, P, G.dtype)
    with given_back(generator), watched(G, plan.steps * plan.probes, progress=progress) as op:
        T = [_tridiagonal(op, k, plan.steps, generator) for k in plan.groups]
    return _estimate(_finite(torch.cat(T)), P, mu, G.dtype)


class _Plan(NamedTuple):
    """Lanczos steps, the probes that run side by side, and the memory left for products."""

    steps: int
    groups: list[int]
    left: int | None

    @property
    def probes(self) -> int:
        return sum(self.groups)


def _plan(applications: int, P: int, width: int, memory: int | None) -> _Plan:
    steps = min(2 * math.isqrt(applications), applications // 2, P)
    probes = applications // steps
    if memory is None or applications >= P:
        return _Plan(steps, [probes], memory)
    vectors = whole("memory", memory, low=2 * (_LEAST + 3) * width) // 2 // width - 3
    steps = min(steps, vectors)
    group = min(probes, vectors // steps)
    groups = [min(group, probes - start) for start in range(0, probes, group)]
    return _Plan(steps, groups, memory - (group * steps + 3) * width)


def _through_outputs(J: Jacobian, y: Any, loss: Loss | None) -> Tensor:
    """The eigenvalues other than zero, from the outputs' side."""
    z = J.output.detach().requires_grad_()
    m = z.numel()
    with torch.enable_grad(), twice_differentiable(losses=True):
        (slope,) = torch.autograd.grad(loss_of(z, y, loss), z, create_graph=True)
    curvature = torch.zeros(m, m, dtype=torch.float64, device=z.device)
    if slope.requires_grad:  # else the loss is linear
        for i, e in enumerate(torch.eye(m, dtype=z.dtype, device=z.device)):
            (row,) = torch.autograd.grad(
                slope, z, e.view(z.shape), retain_graph=True, materialize_grads=True
            )
            curvature[i] = row.flatten()
    w, U = torch.linalg.eigh(_finite(curvature + curvature.T) / 2)
    w = _checked(w, z.dtype)
    rows = (U * w.sqrt()).T.to(J.dtype) @ J.dense().detach()
    return torch.linalg.svdvals(rows).double().square()


def _tridiagonal(
    op: LinearOperator, probes: int, steps: int, generator: torch.Generator | None
) -> Tensor:
    """The matrices of Lanczos processes from random signs."""
    block = random_block(op, probes, generator, signs=True) / op.shape[0] ** 0.5
    return side_by_side(lambda q: (op @ q.T).detach().T, block.T.contiguous(), steps)[1].double()


def _finite(matrix: Tensor) -> Tensor:
    if not torch.isfinite(matrix).all():
        raise ValueError("the curvature of the loss must be finite, got NaN or infinity")
    return matrix


def _checked(lam: Tensor, dtype: torch.dtype) -> Tensor:
    """Eigenvalues without what rounding put below zero."""
    least, size = float(lam.min()), float(lam.abs().max())
    if least < -(torch.finfo(dtype).eps ** 0.5) * size:
        raise ValueError(
            f"loss must be convex in the outputs, got the curvature {least:.3g} where others are up"
            f" to {size:.3g}"
        )
    return lam.clamp(min=0)


def _exact(
    lam: Tensor, P: int, mu: float, applications: int, dtype: torch.dtype = torch.float64
) -> WeightDecayEffect:
    lam = _checked(lam, dtype)
    alive = float((lam / (lam + mu)).sum())
    return WeightDecayEffect(alive, 0.0, 0.0, P, mu, True, applications)


def _estimate(T: Tensor, P: int, mu: float, dtype: torch.dtype) -> WeightDecayEffect:
    """From quadratures that bound the form of each probe on both sides."""
    above = _quadrature(T, mu, dtype)
    below = _quadrature(_with_node_at_zero(T, dtype), mu, None)
    alive, error = mean_and_error(P * (above + below) / 2)
    gap = P * (above - below).mean() / 2
    return WeightDecayEffect(
        alive=float(alive),
        standard_error=float(error),
        quadrature_error=max(float(gap), 0.0),
        parameters=P,
        decay=mu,
        exact=False,
        applications=T.shape[0] * T.shape[1],
    )


def _quadrature(T: Tensor, mu: float, dtype: torch.dtype | None) -> Tensor:
    nodes, Y = torch.linalg.eigh(T)
    lam = nodes.clamp(min=0) if dtype is None else _checked(nodes, dtype)
    return (Y[:, 0].square() * lam / (lam + mu)).sum(1)


def _with_node_at_zero(T: Tensor, dtype: torch.dtype) -> Tensor:
    r"""Radau's matrix: the last entry is such that 0 is an eigenvalue.

    That is $\beta^2 (T'^{-1})_{s - 1, s - 1}$ with $T'$ the matrix without its last row and
    column. Eigenvalues of $T'$ that rounding could have made count as rounding, which lowers the
    entry and so the bound.
    """
    nodes, Y = torch.linalg.eigh(T[:, :-1, :-1])
    top = nodes.amax(1, keepdim=True)
    least = torch.where(top > 0, torch.finfo(dtype).eps * top, 1)
    inverse = (Y[:, -1].square() / torch.maximum(nodes, least)).sum(1)
    radau = T.clone()
    radau[:, -1, -1] = T[:, -1, -2].square() * inverse
    return radau
