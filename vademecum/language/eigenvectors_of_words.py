r"""Spectral word embeddings: eigenvectors of a matrix of words, and words from vectors again.

Of a symmetric matrix $C = V \Lambda V^\top$, counts of co-occurrence or their pointwise mutual
information, the $k$ eigenvalues of largest magnitude give the best approximation of rank $k$
(Eckart and Young), with the squared error $\sum_{i > k} \lambda_i^2$. The word $w$ becomes

$$x_w = |\Lambda_k|^{1/2} V_k^\top o_w, \qquad C_{vw} \approx x_v^\top S\, x_w, \quad
S = \mathrm{sign}(\Lambda_k),$$

row $w$ of $V_k |\Lambda_k|^{1/2}$; where the eigenvalues kept are positive, $S = I$. (Matrices of
counts are usually indefinite: a zero diagonal forces negative eigenvalues.) Back to words:
$V_k |\Lambda_k|^{-1/2} x_w = V_k V_k^\top o_w$ is the projection of the one-hot vector, and its
largest entry tells the nearest word. A new word with the counts $c$ has the vector
$S |\Lambda_k|^{-1/2} V_k^\top c$, which for the row of an old word is that word's.

Signs are chosen such that the largest entry of each eigenvector is positive. Small matrices are
decomposed whole; of large ones Lanczos' method finds the eigenpairs, to residuals of the square
root of the machine precision. The claims are `spectral_embedding` and `de_embedding`.
"""

from typing import Any

import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import choice, floats, symmetric, whole
from vademecum.estimators import SparseRows, as_rows, like_input
from vademecum.foundations import eigsh

__all__ = ["SpectralEmbedding"]

DENSE = 512
"""Rows up to which a matrix is decomposed whole: 0.1 s on one core."""


class SpectralEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Vectors of words from the eigenvectors of a symmetric matrix, and words from vectors.

    Given arrays or sparse matrices it is a scikit-learn transformer of a precomputed matrix, a row
    and a column for each word; given tensors it works on their device and answers with tensors.

    Args:
        n_components: How many eigenvalues $k$ to keep.
        which: Those largest in "magnitude", the best approximation, or the "largest" with their
            sign, which is the best positive semidefinite one if none of them is negative.
        random_state: Where random numbers come from, as in scikit-learn; large matrices only.

    Attributes:
        eigenvalues_: The eigenvalues that are kept, in this order.
        eigenvectors_: The eigenvectors $V_k$ as columns.
        embedding_: The vectors of the words, a row each.

    References:
        Eckart and Young, The approximation of one matrix by another of lower rank, Psychometrika,
        1936.
        Levy and Goldberg, Neural word embedding as implicit matrix factorization, NeurIPS, 2014.

    Example:
        >>> C = torch.tensor([[0.0, 2.0], [2.0, 0.0]])  # eigenvalues 2 and -2
        >>> spectral = SpectralEmbedding(2).fit(C)
        >>> x, signs = spectral.embedding_, spectral.eigenvalues_.sign()
        >>> ((x * signs) @ x.T).round(decimals=4)
        tensor([[0., 2.],
                [2., 0.]])
        >>> spectral.nearest_words(x)
        tensor([0, 1])
    """

    n_features_in_: int

    def __init__(self, n_components: Any = 2, *, which="magnitude", random_state: Any = None):
        self.n_components = n_components
        self.which = which
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> "SpectralEmbedding":
        """Find the eigenpairs; `y` is ignored.

        Raises:
            ValueError: If the matrix is not finite, real, square and symmetric, or a parameter is
                out of range.
        """
        x = as_rows(self, X, reset=True, sparse=True).detach()
        choice("which", self.which, ("magnitude", "largest"))
        _insist_on_symmetry(x)
        k = whole("n_components", self.n_components, low=1, high=len(x))
        values, vectors = self._eigenpairs(x, k)
        top = vectors.abs().argmax(0, keepdim=True)
        vectors = vectors * vectors.gather(0, top).sign()
        self.eigenvalues_, self.eigenvectors_ = like_input(values, X), like_input(vectors, X)
        self.embedding_ = like_input(vectors * values.abs().sqrt(), X)
        return self

    def transform(self, X: Any) -> Any:
        """The vectors of words with the given rows of the matrix, old words or new ones."""
        check_is_fitted(self)
        x = as_rows(self, X, sparse=True)
        values, vectors = self._fitted(x)
        return like_input(x @ (vectors * values.sign() * _inverse_roots(values)), X)

    def inverse_transform(self, X: Any) -> Any:
        """The rows of the matrix that belong to vectors: for those of words, of the rank-k one."""
        z = self._vectors(X)
        values, vectors = self._fitted(z)
        return like_input((z * values.sign() * values.abs().sqrt()) @ vectors.mT, X)

    def to_one_hot(self, X: Any) -> Any:
        r"""The one-hot vectors of words, projected: $V_k |\Lambda_k|^{-1/2} x$ for each vector."""
        z = self._vectors(X)
        values, vectors = self._fitted(z)
        return like_input((z * _inverse_roots(values)) @ vectors.mT, X)

    def nearest_words(self, X: Any) -> Any:
        """The number of the word whose one-hot vector is nearest to each vector's."""
        return like_input(torch.as_tensor(self.to_one_hot(X)).argmax(1), X)

    def _eigenpairs(self, x: Any, k: int) -> tuple[Tensor, Tensor]:
        if len(x) > DENSE:
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            device = x.device if isinstance(x, Tensor) else "cpu"
            generator = torch.Generator(device).manual_seed(seed)
            matrix = x.matrix if isinstance(x, SparseRows) else x
            return eigsh(matrix, k, which=self.which, generator=generator)[:2]
        values, vectors = torch.linalg.eigh(x.dense() if isinstance(x, SparseRows) else x)
        order = values.abs() if self.which == "magnitude" else values
        best = order.argsort(descending=True, stable=True)[:k]
        return values[best], vectors[:, best]

    def _fitted(self, like: Any) -> tuple[Tensor, Tensor]:
        fitted = torch.as_tensor(self.eigenvalues_), torch.as_tensor(self.eigenvectors_)
        values, vectors = (v.to(like.device, like.dtype) for v in fitted)
        return values, vectors

    def _vectors(self, X: Any) -> Tensor:
        check_is_fitted(self)
        z = X if isinstance(X, Tensor) else torch.as_tensor(X)
        z = floats("X", z if z.is_floating_point() else z.double(), ndim=2)
        return floats("X", z, width=self._n_features_out)

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)


def _inverse_roots(values: Tensor) -> Tensor:
    r"""The $|\lambda|^{-1/2}$, or 0 where $\lambda$ is rounding beside the largest."""
    size = values.abs()
    real = size > len(values) * torch.finfo(values.dtype).eps * size.max()
    return torch.where(real, size, 1).rsqrt() * real


def _insist_on_symmetry(x: Any) -> None:
    if x.dtype.is_complex:
        raise ValueError(f"X must be real, got {x.dtype}")
    if x.shape[0] != x.shape[1]:
        raise ValueError(
            f"X must be square, a row and a column for each word, got {tuple(x.shape)}"
        )
    if isinstance(x, Tensor):
        symmetric("X", x)
        return
    gap = abs(x.matrix - x.matrix.T).max()
    if gap > len(x) * torch.finfo(x.dtype).eps * abs(x.matrix).max():
        raise ValueError(f"X must be symmetric, got entries that differ from theirs by {gap:.3g}")
