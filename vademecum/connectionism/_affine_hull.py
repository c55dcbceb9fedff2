r"""Affinely independent points, and the shortest vector in their affine hull.

The points are the rows of $S \in \mathbb{R}^{k \times d}$. The shortest vector
$w = S^\top \lambda$ with $\sum_i \lambda_i = 1$ has weights $\lambda$ proportional to the solution
$v$ of $(\sigma^2 1 1^\top + S S^\top) v = 1$, for any $\sigma > 0$. With the decomposition

$$Q R = (\sigma 1, S)^\top, \qquad R^\top h = 1, \qquad R v = h,$$

this takes two triangular systems, does not square the condition, and $w$ is what follows the first
entry $\sigma$ of $Q h / \sum_i v_i$.

The decomposition is updated and not computed anew. A point that comes is orthogonalised against the
others twice, which is enough; one that goes leaves a matrix that rotations make a triangle again.
Either takes $O(d k)$ operations, and both are stable.
"""

import numpy as np
from scipy.linalg import qr_delete, solve_triangular  # pyright: ignore[reportAttributeAccessIssue]

__all__ = ["AffineHull"]


class AffineHull:
    """The affine hull of points that come and go.

    Example:
        >>> hull = AffineHull(np.array([1.0, 3.0]))
        >>> hull.add(np.array([3.0, 1.0])), hull.add(np.array([2.0, 2.0]))
        (True, False)
        >>> weights, vector = hull.shortest()
        >>> weights.round(9), vector.round(9)
        (array([0.5, 0.5]), array([2., 2.]))
    """

    def __init__(self, *points: np.ndarray):
        self.points, self.norms = list(points), [np.linalg.norm(point) for point in points]
        self._factorise(max(self.norms))

    def add(self, point: np.ndarray) -> bool:
        """Append a point; False, and nothing is done, if it is in the affine hull of the others.

        Up to rounding, that is: where orthogonalising again halves what was left of the point, or
        where that is a rounding error of it anyway.
        """
        k, norm = len(self.points), np.linalg.norm(point)
        largest = max(norm, *self.norms)
        if not largest / 4 <= self.sigma <= 4 * largest:
            self._factorise(largest)
        q = self.q[:, :k]
        column = np.concatenate([[self.sigma], point])
        entries = q.T @ column
        rest = column - q @ entries
        again = q.T @ rest
        left = rest - q @ again
        height = np.linalg.norm(left)
        rounding = 8 * np.finfo(left.dtype).eps * self.sigma
        if not height > max(rounding, np.linalg.norm(rest) / 2):
            return False
        self._make_room(k + 1)
        self.q[:, k] = left / height
        self.r[:k, k], self.r[k, k] = entries + again, height
        self.points.append(point)
        self.norms.append(norm)
        return True

    def drop(self, i: int) -> None:
        """Remove the point at place `i`."""
        k = len(self.points)
        q, r = self.q[:, :k], self.r[:k, :k]  # changed in place
        qr_delete(q, r, i, which="col", overwrite_qr=True, check_finite=False)
        del self.points[i], self.norms[i]

    def shortest(self) -> tuple[np.ndarray, np.ndarray]:
        """The weights, which sum to 1 and may be negative, and the vector."""
        k = len(self.points)
        r = self.r[:k, :k]
        h = solve_triangular(r, np.ones(k, r.dtype), trans=1, check_finite=False)
        v = solve_triangular(r, h, check_finite=False)
        return v / v.sum(), self.q[1:, :k] @ h / v.sum()

    def _factorise(self, sigma: np.floating) -> None:
        """Decompose anew; `sigma` should be about as large as the largest of the norms."""
        s, self.sigma = np.stack(self.points), sigma
        q, r = np.linalg.qr(np.c_[np.full(len(s), sigma), s].T)
        self.q, self.r = np.asfortranarray(q), np.asfortranarray(r)

    def _make_room(self, k: int) -> None:
        """Have `k` columns at least, by doubling."""
        q, r = self.q, self.r
        if q.shape[1] < k:
            self.q = np.zeros((len(q), 2 * k), q.dtype, order="F")
            self.r = np.zeros((2 * k, 2 * k), r.dtype, order="F")
            self.q[:, : q.shape[1]], self.r[: len(r), : len(r)] = q, r
