r"""The Lanczos process: an orthonormal basis of a Krylov space, and the operator within it.

From a random unit vector $v_1$ the basis of $\operatorname{span}\{v_1, A v_1, A^2 v_1, \dots\}$
grows by one application a step: $A v_j$, freed of its components along all vectors so far, has the
norm $\beta_j$ and the direction $v_{j+1}$. Hence, with $H = V^H A V$,

$$A V = V H + \beta_j v_{j+1} e_j^H, \qquad H Y = Y \Theta, \qquad
\|A x_i - \theta_i x_i\| = \beta_j |Y_{ji}| \quad \text{for } x_i = V Y e_i,$$

so that the residual norms of the Ritz pairs $(\theta_i, x_i)$ cost nothing. A thick restart puts
some of the $x_i$ in the place of $V$ and goes on from the same $v_{j+1}$: the first equation holds
again after the next step.

The components along the last two vectors, by far the largest, are removed first; then those along
all, by two products with $V$, and once more if that took more than half of the norm. This keeps the
basis orthonormal to machine precision. Where $\beta_j = 0$ the space is closed
under $A$, and the process goes on from another random vector.

Many processes run side by side, each for a matrix of its own if need be, where a few steps are
enough and the basis never restarts; then $H$ is the tridiagonal matrix $T$.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from vademecum.arrays import lengths
from vademecum.foundations._probes import random_block, symmetric_pair
from vademecum.foundations.operators import LinearOperator

__all__ = ["KrylovBasis", "side_by_side"]


class KrylovBasis:
    """An orthonormal basis, the first j rows of V, with the operator's matrix H in it.

    Row j is the next vector. The first `locked` rows are left as they are: Ritz vectors that have
    converged. H is filled in its upper triangle.

    Args:
        op: A symmetric operator.
        size: The most vectors to hold.
        generator: For the random vectors.
        symmetry_tol: How much asymmetry passes for rounding; with infinity nobody looks.
        start: The first vector, not zero; a random one by default.

    Raises:
        ValueError: If the operator is not symmetric.

    Example:
        >>> basis = KrylovBasis(LinearOperator((3, 3), lambda x: 2 * x, lambda x: 2 * x), 2)
        >>> basis.grow(), basis.betas, basis.ritz()[0]
        (None, [0.0], tensor([2.]))
    """

    def __init__(
        self,
        op: LinearOperator,
        size: int,
        generator: torch.Generator | None = None,
        symmetry_tol: float | None = None,
        start: Tensor | None = None,
    ):
        self.op, self.size, self.generator = op, size, generator
        self.random = start is None  # so that it holds some of every eigenvector
        self._image: Tensor | None = None
        self.applications = 0
        if symmetry_tol == math.inf:
            x = random_block(op, 1, generator)[:, 0] if start is None else start
        else:
            pair, images = symmetric_pair(op, generator, tol=symmetry_tol, start=start)
            x, self._image, self.applications = pair[:, 0], images[:, 0] / lengths(pair[:, 0]), 2
        self.V = x.new_empty(size + 1, len(x))
        self.H = x.new_zeros(size, size)
        self.V[0] = x / lengths(x)
        self.j = self.locked = 0
        self.betas: list[float] = []

    def grow(self) -> None:
        """Apply the operator to the next vector, and make the one after."""
        if (z := self._image) is None:
            z = (self.op @ self.V[self.j]).detach()
            self.applications += 1
        self._image = None
        self.j += 1
        z, h, beta = self._orthogonal(z)
        self.H[: self.j, self.j - 1] = h
        if not beta < float("inf"):
            raise ValueError(f"op must return finite numbers, got a vector of norm {beta}")
        if beta > 10 * torch.finfo(z.dtype).eps * _length(h):  # A v has the norm of h and beta
            torch.div(z, beta, out=self.V[self.j])
        else:
            beta = 0.0
            self.refresh()
        self.betas.append(beta)

    def refresh(self) -> None:
        """Make the next vector a random one."""
        z, _, norm = self._orthogonal(random_block(self.op, 1, self.generator)[:, 0])
        self.V[self.j] = z / norm

    def ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values of what is not locked, their vectors in the basis, their residual norms."""
        theta, Y = torch.linalg.eigh(self.H[self.locked : self.j, self.locked : self.j], UPLO="U")
        return theta, Y, self.betas[-1] * Y[-1].abs()

    def shrink(self, theta: Tensor, Y: Tensor) -> None:
        """Keep some Ritz vectors, beside what is locked, and the next vector."""
        l, j = self.locked, self.locked + len(theta)
        self.V[l:j] = Y.T @ self.V[l : self.j]
        self.V[j] = self.V[self.j].clone()
        self.H[:, l:] = 0
        self.H[range(l, j), range(l, j)] = theta.to(self.H.dtype)
        self.j = j

    def _orthogonal(self, z: Tensor) -> tuple[Tensor, Tensor, float]:
        """The part of a vector that is orthogonal to the basis, its coefficients, its norm."""
        last, basis = self.V[max(self.j - 2, 0) : self.j], self.V[: self.j]
        h = z.new_zeros(self.j)
        h[-2:] = c = last.conj() @ z
        z = torch.addmv(z, last.T, c, alpha=-1)
        norm = _length(z)
        for _ in range(2):
            c = basis.conj() @ z
            z, before = z.addmv_(basis.T, c, alpha=-1), norm
            h += c
            norm = _length(z)
            if norm > before / 2:
                break  # so little was removed that its rounding errors do not matter
        return z, h, norm


def _length(z: Tensor) -> float:
    norm = float(torch.linalg.vector_norm(z))
    safe = torch.finfo(z.dtype).tiny ** 0.5 / torch.finfo(z.dtype).eps < norm < float("inf")
    return norm if safe else float(lengths(z))


def side_by_side(
    apply: Callable[[Tensor], Tensor],
    q: Inexact[Tensor, " rows n"],
    steps: int,
    image: Inexact[Tensor, " rows n"] | None = None,
) -> tuple[Inexact[Tensor, " rows steps n"], Float[Tensor, " rows steps steps"]]:
    """Lanczos processes from unit rows: their bases, and the tridiagonal matrices in these.

    A closed space ends its process. Zero vectors follow, and eigenvalues without any weight.

    Args:
        apply: Symmetric matrices, each applied to its row.
        q: Where to start.
        steps: The number of steps, at most n.
        image: What `apply` makes of `q`, if that is known.

    Example:
        >>> d = torch.tensor([3.0, 1.0])
        >>> V, T = side_by_side(lambda q: d * q, torch.tensor([[0.6, 0.8]]), 2)
        >>> torch.linalg.eigvalsh(T)
        tensor([[1.0000, 3.0000]])
    """
    V = q.new_zeros(len(q), steps, q.shape[1])
    alpha, beta = (q.real.new_zeros(len(q), steps) for _ in range(2))
    for j in range(steps):
        V[:, j] = q
        z = (apply(q) if j or image is None else image)[:, None]  # rows: products are fast
        size, basis = lengths(z, 2), V[:, : j + 1]
        for _ in range(2):
            c = z @ basis.mH
            alpha[:, j] += c[:, 0, j].real
            z = z - c @ basis
        norm = lengths(z, 2)
        live = norm > 10 * torch.finfo(norm.dtype).eps * size
        beta[:, j] = torch.where(live, norm, 0)[:, 0]
        q = torch.where(live, z[:, 0] / norm, 0)
        alpha[:, j] = torch.where(V[:, j].any(1), alpha[:, j], alpha[:, 0])
    off = torch.diag_embed(beta[:, :-1], 1)
    return V, torch.diag_embed(alpha) + off + off.mT
