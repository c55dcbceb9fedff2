r"""Nonnegative factors of binary data: the aspect Bernoulli model.

$$X_{ij} \sim \mathrm{Ber}\big((Z B)_{ij}\big), \qquad Z \ge 0, \quad Z 1 = 1, \quad B \in [0, 1]^{k
\times d}.$$

Rows of $Z$ mix the $k$ rows of $B$, so that the product is a probability. EM never lowers the
likelihood and keeps the constraints (`_expectations`); it finds a local maximum. With $B$ fixed the
best code of a row is a concave problem, solved to a gap that is known. Checked by the claim
`generative.nmf_bernoulli`.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import floats, number, probabilities, whole
from vademecum.estimators import like_input, warn_unconverged
from vademecum.generative._binary_rows import binary_rows
from vademecum.generative.binary_factors._codes import Codes, best_codes
from vademecum.generative.binary_factors._expectations import pass_over
from vademecum.progress import ticking

__all__ = ["BernoulliNMF"]

ROUNDED = 1e-3  # how far sums of codes may be from one, also after a journey in low precision
EVERY = 10  # iterations between two looks at the likelihood, which take a third of the time


class BernoulliNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Binary data as draws whose probabilities mix a few patterns.

    Given arrays it is a scikit-learn transformer; given tensors it works on their device and
    answers with tensors.

    Args:
        n_components: The number k of patterns.
        init: Codes (n, k) and patterns (k, d) to begin with; drawn at random by default.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Of `fit`, and of
            the codes of each row.
        tol: Codes are found when no others could raise the mean log-likelihood of an entry of their
            row by more. `fit` ends when a hundred iterations, at the pace of the last ten, would
            raise that of all entries by less.
        binarize: Numbers above it count as 1, others as 0; without it examples must be 0 or 1.
        random_state: Where random numbers come from, as in scikit-learn.
        progress: Whether to show a progress bar on standard error.

    Attributes:
        components_: The patterns $B$, of shape (k, d).
        codes_: The codes $Z$ that were learnt with them, of shape (n, k).
        log_likelihood_: The log-likelihood of the examples, with these codes.
        n_iter_: How many iterations were made.
        converged_: Whether `tol` was reached.

    References:
        Kabán, Bingham and Hirsimäki, Learning to read between the lines: the aspect Bernoulli
        model, SIAM International Conference on Data Mining, 2004.

    Example:
        >>> x = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
        >>> BernoulliNMF(1).fit(x).components_  # the shares of ones
        tensor([[1.0000, 0.5000, 0.0000]])
    """

    n_features_in_: int
    _both: Tensor

    def __init__(
        self, n_components=10, *, init=None, max_iter=1000, tol=1e-4, binarize=None,
        random_state=None, progress=False,
    ):  # fmt: skip
        self.n_components = n_components
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.binarize = binarize
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> "BernoulliNMF":
        """Find patterns and codes; `y` is ignored.

        Raises:
            ValueError: If examples are not binary and there is no `binarize`, or a parameter is
                out of range.
        """
        x = binary_rows(self, X, reset=True)
        tol = number("tol", self.tol, low=0)
        most = whole("max_iter", self.max_iter, low=1)
        Z, both = self._start(x)
        last, before, made, done = math.nan, -math.inf, 0, False
        with ticking("iterations", most, progress=bool(self.progress)) as tick:
            while made < most and not done:
                Z, both, value = pass_over(x, Z, both, value=made % EVERY == 0)
                if made % EVERY == 0:
                    done = 10 * (value - before) < tol * x.numel()
                    before = value
                made += 1
                tick(1)
        last = pass_over(x, Z, both, value=True).log_likelihood
        self.converged_, self.n_iter_, self.log_likelihood_ = done, made, last
        if not done:
            warn_unconverged(
                f"max_iter={most} reached while the mean log-likelihood of an entry rose by"
                f" {(last - before) / x.numel():.2g} since the last look, and tol={tol:g}"
            )
        self._both = both
        self.components_, self.codes_ = like_input(both[0].clone(), X), like_input(Z, X)
        return self

    def transform(self, X: Any) -> Any:
        """The codes that make each example likeliest, of shape (n, k)."""
        return like_input(self._coded(X).codes, X)

    def inverse_transform(self, X: Any) -> Any:
        """The probabilities of a one that codes stand for.

        Args:
            X: The codes, of shape (n, k): not negative, and rows sum to one.
        """
        check_is_fitted(self)
        z = X if isinstance(X, Tensor) else torch.as_tensor(X)
        z = floats("X", z, ndim=2, width=len(self.components_))
        if not ((z >= 0).all() and ((z.sum(1) - 1).abs() < ROUNDED).all()):
            raise ValueError(
                "rows of X must be codes, >= 0 with sum 1, got entries from"
                f" {z.min():.6g} and sums from {z.sum(1).min():.6g} to {z.sum(1).max():.6g}"
            )
        return like_input(z @ self._both[0].to(z), X)

    def score_samples(self, X: Any) -> Any:
        """The log-likelihood of each example with its best code."""
        found = self._coded(X).log_likelihood
        return like_input(found.to(self._both), X)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of the examples, each with its best code; `y` is ignored."""
        return float(self.score_samples(X).mean())

    def _coded(self, X: Any) -> Codes:
        check_is_fitted(self)
        x = binary_rows(self, X)
        most, tol = whole("max_iter", self.max_iter, low=1), number("tol", self.tol, low=0)
        found = best_codes(x, self._both.to(x), tol=tol, max_iter=most)
        if found.gap > tol:
            warn_unconverged(
                f"max_iter={most} reached for codes of which one may lack {found.gap:.2g} in the"
                f" mean log-likelihood of an entry, and tol={tol:g}"
            )
        return found

    def _start(self, x: Tensor) -> tuple[Float[Tensor, " n k"], Float[Tensor, " 2 k d"]]:
        k, (n, d) = whole("n_components", self.n_components, low=1), x.shape
        if self.init is not None:
            if not isinstance(self.init, tuple | list) or len(self.init) != 2:
                raise ValueError(f"init must be codes and patterns, got {self.init!r}")
            Z, B = (torch.as_tensor(part).to(x) for part in self.init)
            for name, part, shape in (("codes", Z, (n, k)), ("patterns", B, (k, d))):
                if part.shape != shape:
                    raise ValueError(
                        f"{name} of init must have shape {shape}, got {tuple(part.shape)}"
                    )
            probabilities("codes of init", Z)
            if not ((B >= 0) & (B <= 1)).all():
                raise ValueError(f"patterns of init must be in [0, 1], got {B.min()} to {B.max()}")
            return Z.clone(), torch.stack([B, 1 - B])
        random = check_random_state(self.random_state)
        Z = torch.from_numpy(random.dirichlet([1.0] * k, n)).to(x)
        B = torch.from_numpy(random.uniform(0.25, 0.75, (k, d))).to(x)
        return Z / Z.sum(1, keepdim=True), torch.stack([B, 1 - B])

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
