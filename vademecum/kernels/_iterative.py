r"""Gaussian processes and ridge regression by products with the kernel matrix alone.

Where $A = K + D$ (a diagonal $D > 0$, most often $\sigma^2 I$) does not fit into memory, its rows
are computed in portions, in each product again. Conjugate gradients solve $A x = b$, helped by the
preconditioner $P = G G^\top + \delta I$ from a pivoted Cholesky decomposition $K \approx G
G^\top$ of low rank: the pivot is the input of largest variance left, $\delta$ is the least of $D$,
or the mean variance left if that is more. With $G = U S V^\top$,

$$P^q = \delta^q (I - U U^\top) + U (S^2 + \delta)^q U^\top, \qquad
\log \det A = \log \det P + \log \det (P^{-1/2} A P^{-1/2}),$$

the last by Lanczos quadrature, whose standard error over probes is the error bar (what few steps
leave out is not in it). Derivatives are those of $\frac12 \alpha^\top A \alpha$ and, for
$\varepsilon$ of random signs, of

$$\operatorname{tr} (A^{-1} \dot A) = \mathbb E \big[ (A^{-1} P^{1/2} \varepsilon)^\top \dot A\,
(P^{-1/2} \varepsilon) \big] .$$

Solutions are exact up to the tolerance; log-determinant and derivatives are estimates.
"""

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.foundations import LinearOperator, cg, log_det
from vademecum.foundations.conjugate_gradients import ConjugateGradients
from vademecum.kernels._covariance import between, covariance, row_portions, variances
from vademecum.kernels._hyperparameters import NOISE
from vademecum.kernels._kernel import Kernel
from vademecum.randomness import source

__all__ = ["IterativeFit", "System", "iterative_fit"]

RANK = 128  # of the preconditioner, at most
PROBES = 16
_ROWS = 512  # inputs on which a kernel is looked at whole
STEPS = 48  # of Lanczos; the preconditioner leaves a condition for which these are plenty


class System:
    """The matrix of a kernel plus a diagonal, as its products, and the preconditioner.

    Args:
        kernel: The kernel.
        x: The inputs.
        diagonal: What is added to the diagonal, a number or one for each input.
        memory: How many bytes a portion of the matrix, and what is kept of it, may take.
    """

    def __init__(self, kernel: Any, x: Tensor, diagonal: float | Tensor, memory: int):
        self.kernel, self.x, self.memory = kernel, x, memory
        if not isinstance(kernel, Kernel):  # checked on some inputs
            covariance(
                kernel, x[: max(2, min(_ROWS, math.isqrt(memory // (3 * x.element_size()))))]
            )
        self.diagonal = torch.as_tensor(diagonal, dtype=x.dtype, device=x.device).expand(len(x))
        n = len(x)
        size = 2 * n * n * x.element_size()  # the matrix, and portions of it while it is computed
        self.kept = torch.cat([part for _, part in self._rows()]) if size <= memory else None
        self.basis, self.scales, self.delta = self._preconditioner()

    def _operator(self, product: Any) -> LinearOperator:
        n, x = len(self.x), self.x
        return LinearOperator((n, n), product, product, dtype=x.dtype, device=x.device)

    def _rows(self) -> Iterator[tuple[slice, Tensor]]:
        n = len(self.x)
        for rows in row_portions(n, n, self.x, self.memory // 2):
            yield rows, between(self.kernel, self.x[rows], self.x)

    def product(self, v: Float[Tensor, " n r"]) -> Float[Tensor, " n r"]:
        """The product $A v$."""
        if self.kept is not None:
            return torch.addcmul(self.kept @ v, self.diagonal[:, None], v)
        image = self.diagonal[:, None] * v
        for rows, part in self._rows():
            image[rows] += part @ v
        return image

    def _preconditioner(self) -> tuple[Tensor, Tensor, float]:
        n, left = len(self.x), variances(self.kernel, self.x).clone()
        room = self.memory // (4 * n * self.x.element_size())
        G = self.x.new_zeros(n, max(1, min(n, RANK, room)))
        floor = n * torch.finfo(G.dtype).eps * float(left.mean())
        for j in range(G.shape[1]):
            pivot = int(left.argmax())
            if not float(left[pivot]) > floor:
                break
            row = between(self.kernel, self.x[pivot : pivot + 1], self.x)[0]
            G[:, j] = (row - G[:, :j] @ G[pivot, :j]) / left[pivot].sqrt()
            left = (left - G[:, j].square()).clamp(min=0)
            left[pivot] = 0
        delta = max(float(self.diagonal.min()), float(left.mean()), floor)
        basis, scales, _ = torch.linalg.svd(G, full_matrices=False)
        return basis, scales.square() + delta, delta

    def power(self, q: float, v: Float[Tensor, " n r"]) -> Float[Tensor, " n r"]:
        """The product $P^q v$."""
        gain = self.scales**q - self.delta**q
        return self.delta**q * v + self.basis @ (gain[:, None] * (self.basis.T @ v))

    def solve(
        self, b: Float[Tensor, " n r"], *, tol: float, max_iter: int | None, progress: bool
    ) -> ConjugateGradients:
        """Solve for a block of right-hand sides."""
        op, inverse = self._operator(self.product), self._operator(partial(self.power, -1.0))
        with self._explained():
            return cg(
                op, b, preconditioner=inverse, tol=tol, max_iter=max_iter, symmetry_tol=math.inf,
                progress=progress,
            )  # fmt: skip

    def log_det(self, generator: torch.Generator) -> tuple[float, float]:
        """The logarithm of the determinant and its standard error."""
        n, rank = self.basis.shape
        known = float(self.scales.double().log().sum()) + (n - rank) * math.log(self.delta)
        op = self._operator(lambda v: self.power(-0.5, self.product(self.power(-0.5, v))))
        with self._explained():
            found = log_det(
                op, probes=PROBES, steps=min(n, STEPS), symmetry_tol=1e-2, generator=generator
            )
        return known + float(found.value), float(found.standard_error)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of the kernel what an iteration says of its operator."""
        try:
            yield
        except ValueError as error:
            if not str(error).startswith(("op ", "preconditioner ")):
                raise
            some = covariance(self.kernel, self.x[:_ROWS])
            least, added = float(torch.linalg.eigvalsh(some)[0]), float(self.diagonal.min())
            raise ValueError(
                f"kernel must be positive semidefinite, and {added:.3g} on the diagonal more than"
                f" rounding in {self.x.dtype}, got a matrix of {len(self.x)} inputs, of which"
                f" {len(some)} have the smallest eigenvalue {least:.3g} ({error})"
            ) from error


class IterativeFit(NamedTuple):
    """A process conditioned on its targets by conjugate gradients."""

    value: float
    """The log marginal likelihood."""
    error: float
    """Its standard error over the probes."""
    gradients: dict[str, Any]
    """Estimates of its derivatives to the logarithms of hyperparameters, if asked for."""
    alpha: Float[Tensor, " n t"]
    residual: float
    r"""The largest $\|Y - A \alpha\| / \|Y\|$ of a target."""
    system: System
    factor: None = None


def iterative_fit(
    kernel: Any,
    noise: float,
    x: Tensor,
    y: Float[Tensor, " n t"],
    *,
    memory: int,
    tol: float,
    seed: int,
    gradient: Collection[str] = (),
    progress: bool = False,
) -> IterativeFit:
    """Condition a process, and estimate its likelihood and the derivatives of it.

    Args:
        kernel: The kernel.
        noise: The standard deviation of the noise.
        x: The inputs.
        y: The targets.
        memory: How many bytes portions of the matrix may take.
        tol: The relative residual at which conjugate gradients stop.
        seed: Of the random probes, so that likelihoods of different hyperparameters compare.
        gradient: The names of hyperparameters whose derivatives are asked for, of the kernel and
            "noise"; if there is one of the kernel's, there are all of these.
        progress: Whether to show a progress bar on standard error.
    """
    system, (n, t) = System(kernel, x, noise**2, memory), y.shape
    generator = torch.Generator().manual_seed(seed)
    signs = 2.0 * torch.randint(2, (n, PROBES), **source(generator, None)).to(x) - 1
    right = torch.cat([y, system.power(0.5, signs)], 1) if gradient else y
    solved = system.solve(right, tol=tol, max_iter=None, progress=progress)
    alpha = solved.x[:, :t]
    norms = solved.residuals[-1, :t] / torch.linalg.vector_norm(y, dim=0).clamp(
        min=torch.finfo(y.dtype).tiny
    )
    log, error = system.log_det(generator)
    fit = float((y.double() * alpha).sum())
    value = -(fit + t * log + n * t * math.log(2 * math.pi)) / 2
    gradients: dict[str, Any] = {}
    if gradient:
        probes = system.power(-0.5, signs) * (-t / PROBES)
        left, right = torch.cat([alpha, solved.x[:, t:]], 1), torch.cat([alpha, probes], 1)
        gradients = _contracted(system, left, right) if set(gradient) - {NOISE} else {}
        gradients[NOISE] = noise**2 * float((left.double() * right).sum())
    return IterativeFit(value, t * error / 2, gradients, alpha, float(norms.max()), system)


def _contracted(system: System, left: Tensor, right: Tensor) -> dict[str, Any]:
    r"""Half the sums $\sum_{ij} (l r^\top)_{ij}\, \dot K_{ij}$, in portions of rows."""
    kernel, x = system.kernel, system.x
    logs = {
        name: torch.as_tensor(h, dtype=x.dtype, device=x.device).detach().log().requires_grad_()
        for name, h in kernel.hyperparameters().items()
    }
    total = [torch.zeros_like(log) for log in logs.values()]
    for rows in row_portions(len(x), len(x), x, system.memory // 4):
        with torch.enable_grad():
            here = kernel.replaced({name: log.exp() for name, log in logs.items()})
            form = (here(x[rows], x) * (left[rows] @ right.T)).sum() / 2
        found = torch.autograd.grad(form, list(logs.values()))
        total = [a + b for a, b in zip(total, found, strict=True)]
    return {name: value.detach() for name, value in zip(logs, total, strict=True)}
