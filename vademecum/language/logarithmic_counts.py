r"""GloVe: vectors whose inner products are logarithms of counts, but for biases.

$$L = \sum_{C_{ij} > 0} f(C_{ij})\, \bigl(x_i^\top y_j + b_i + c_j - \log C_{ij}\bigr)^2,
\qquad f(c) = \min\{1, (c / c_{\max})^\alpha\}$$

with $\alpha = \frac34$; pairs never seen have weight 0. At zero loss the scores $x_i^\top y_j$ are
pointwise mutual informations up to one constant a row and one a column.

For fixed $y, c$ each pair $(x_i, b_i)$ solves a least-squares problem of its own, and the other way
round, so the two sides are fitted in turn, exactly, all rows of about the same length in one call;
the paper's authors take stochastic steps of AdaGrad. Each step is a little damped, by $\mu$ times
the squared change, with $\mu$ at $10^{-8}$ of the mean curvature: so it exists for words with fewer
contexts than dimensions, too, and the loss still never increases. What is found is stationary, and
no more: the problem is not convex. The claim is `glove`.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.estimators import SparseRows, as_rows, like_input, warn_unconverged
from vademecum.language._ragged_rows import PaddedRows, padded_rows

__all__ = ["GloVe"]

DAMPING = 1e-8
"""The damping of a step, in units of the mean curvature: far above rounding, and far below data."""


class GloVe(BaseEstimator):
    r"""Vectors of words by weighted least squares on logarithms of counts.

    Given arrays or sparse matrices it keeps scikit-learn's contract for a precomputed matrix, a row
    and a column for each word; given tensors it works on their device and answers with tensors.

    Args:
        n_components: The dimension of the vectors.
        cutoff: The count $c_{\max}$ from which on a pair has full weight.
        power: The exponent $\alpha$ of the weight of rarer pairs.
        penalty: How much to add of $\|x\|^2 + \|y\|^2$, which keeps the vectors of rare words from
            fitting noise. The paper has 0 here, and stops early instead.
        tol: Stop when a sweep over both sides lowers the objective by at most this share of the
            first one.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a sweep.
        random_state: Where random numbers come from, as in scikit-learn: the vectors at first.

    Attributes:
        word_vectors_: The vectors $x_i$, a row each.
        context_vectors_: The vectors $y_j$, a row each.
        word_biases_: The biases $b_i$.
        context_biases_: The biases $c_j$.
        embedding_: The sums $x_i + y_i$, which the paper recommends.
        losses_: The objective before each half of a sweep, and at last.
        n_iter_: The number of sweeps.
        converged_: Whether `tol` was reached.

    References:
        Pennington, Socher and Manning, GloVe: global vectors for word representation, EMNLP, 2014.

    Example:
        >>> C = torch.tensor([[1.0, 2.0], [2.0, 8.0]])
        >>> glove = GloVe(1, penalty=0.0, random_state=0).fit(C)
        >>> x, y = glove.word_vectors_, glove.context_vectors_
        >>> scores = x @ y.T + glove.word_biases_[:, None] + glove.context_biases_
        >>> scores.exp().round(decimals=3)
        tensor([[1., 2.],
                [2., 8.]])
    """

    n_features_in_: int

    def __init__(
        self,
        n_components: Any = 2,
        *,
        cutoff: Any = 100.0,
        power: Any = 0.75,
        penalty: Any = 0.1,
        tol: Any = 1e-5,
        max_iter=100,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.cutoff = cutoff
        self.power = power
        self.penalty = penalty
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def fit(self, X: Any, y: Any = None) -> "GloVe":
        """Fit the vectors to counts; `y` is ignored.

        Raises:
            ValueError: If the counts are not finite, real, at least 0 and a square matrix, or all
                0; if a parameter is out of range.
        """
        x = as_rows(self, X, reset=True, sparse=True).detach()
        counts = _counts(x)
        k = whole("n_components", self.n_components, low=1)
        number("tol", self.tol, low=0)
        sides = self._start(len(x), k, x.device)
        tables = [list(padded_rows(m, x.device)) for m in (counts, csr_array(counts.T))]
        self.losses_, self.n_iter_ = self._sweeps(sides, tables)
        words, contexts = (side.to(x.dtype) for side in sides)
        self.word_vectors_, self.word_biases_ = (
            like_input(part, X) for part in (words[:, :-1], words[:, -1])
        )
        self.context_vectors_, self.context_biases_ = (
            like_input(part, X) for part in (contexts[:, :-1], contexts[:, -1])
        )
        self.embedding_ = self.word_vectors_ + self.context_vectors_
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit, and return the sums of the two vectors of each word."""
        return self.fit(X).embedding_

    def _start(self, n: int, k: int, device: Any) -> list[Tensor]:
        """The vectors of words and of contexts, each with its bias behind."""
        random = check_random_state(self.random_state)
        sides = [random.normal(scale=k**-0.5, size=(n, k + 1)) for _ in range(2)]
        for side in sides:
            side[:, -1] = 0
        return [torch.from_numpy(side).to(device) for side in sides]

    def _sweeps(self, sides: list[Tensor], tables: list[list[PaddedRows]]) -> tuple[list, int]:
        cutoff, power = number("cutoff", self.cutoff, above=0), number("power", self.power, low=0)
        penalty = number("penalty", self.penalty, low=0)
        fit = partial(_half, sides, cutoff=cutoff, power=power, penalty=penalty)
        losses, self.converged_ = [], False
        for _ in range(whole("max_iter", self.max_iter, low=1)):
            losses.append(fit(0, tables[0]))
            self.converged_ = len(losses) > 2 and losses[-3] - losses[-1] <= self.tol * losses[0]
            if self.converged_:
                break
            losses.append(fit(1, tables[1]))
        losses.append(fit(0, tables[0], move=False))
        if not self.converged_:
            gain = (losses[-3] - losses[-1]) / losses[0]
            warn_unconverged(
                f"max_iter={self.max_iter} reached while a sweep lowers the objective by"
                f" {gain:.3g} of the first one"
            )
        return losses, len(losses) // 2


def _half(
    sides: list[Tensor],
    side: int,
    table: list[PaddedRows],
    *,
    cutoff: float,
    power: float,
    penalty: float,
    move: bool = True,
) -> float:
    """The objective; if `move`, the vectors of one side are then fitted to those of the other."""
    mine, other = sides[side], sides[1 - side]
    k = mine.shape[1] - 1
    loss = penalty * float(mine[:, :k].square().sum() + other[:, :k].square().sum())
    ridge = torch.full((k + 1,), penalty, dtype=mine.dtype, device=mine.device)
    ridge[k] = 0
    for rows, columns, values in table:
        f = (values / cutoff).clamp(max=1) ** power * (values > 0)
        features = other[columns]
        biases = features[..., k].clone()
        features[..., k] = 1
        old = mine[rows]
        target = torch.where(values > 0, values, 1).log() - biases
        rest = target - (features @ old[..., None])[..., 0]
        loss += float((f * rest.square()).sum())
        if move:
            weighted = features * f[..., None]
            curvature = weighted.mT @ features + torch.diag(ridge)
            damping = DAMPING * curvature.diagonal(dim1=-2, dim2=-1).mean(1)
            curvature.diagonal(dim1=-2, dim2=-1).add_(damping[:, None])
            slope = (weighted.mT @ rest[..., None])[..., 0] - ridge * old
            step = torch.cholesky_solve(slope[..., None], torch.linalg.cholesky(curvature))
            mine[rows] = old + step[..., 0]
    return loss


def _counts(x: Any) -> csr_array:
    if x.dtype.is_complex:
        raise ValueError(f"X must be real, got {x.dtype}")
    if x.shape[0] != x.shape[1]:
        raise ValueError(
            f"X must be square, a row and a column for each word, got {tuple(x.shape)}"
        )
    matrix = x.matrix if isinstance(x, SparseRows) else x.cpu().numpy()
    counts = csr_array(matrix, dtype=np.float64)
    counts.eliminate_zeros()
    if not counts.nnz:
        raise ValueError(f"X must have a count > 0, got {len(x)} words that never meet")
    if counts.data.min() < 0:
        raise ValueError(f"X must be >= 0, got {counts.data.min()}: Negative values in data")
    return counts
