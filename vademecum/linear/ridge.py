r"""Ridge regression: every penalty from one decomposition, and the choice among them.

$$w_\alpha = \operatorname*{argmin}_w \|Z w - Y\|^2 + \alpha \|w\|^2
= (Z^\top Z + \alpha I)^{-1} Z^\top Y = Z^\top (Z Z^\top + \alpha I)^{-1} Y$$

for $\alpha > 0$, where the rows of $Z$ and $Y$ are the examples and the targets less their means:
the intercept is not penalised. One decomposition serves all penalties
(`vademecum.linear._ridge_system`), whatever the units of the features. With the hat matrix of the
fitted values, $H_\alpha = \frac1n \mathbf 1 \mathbf 1^\top + Z (Z^\top Z + \alpha I)^{-1} Z^\top$,
two scores tell which is best,

$$\mathrm{GCV}(\alpha) =
\frac{\frac1n \|r_\alpha\|^2}{\big(1 - \frac1n \operatorname{tr} H_\alpha\big)^2}, \qquad
\mathrm{LOO}(\alpha) = \frac1n \sum_i \frac{\|r_{\alpha, i}\|^2}{(1 - H_{\alpha, ii})^2}$$

with the residuals $r_\alpha = (I - H_\alpha) Y$, here with $Y$ not centred. The second is the mean
squared error of leaving one example out, exactly, and takes another pass over the data, in double
precision. Of an example with a weight above one a unit is left out, of one below all of it, so that
whole weights are repetitions and a factor common to small weights and penalties changes nothing;
the $n$ of the residuals is the sum of the weights, that of the trace how many are left out.

Exact up to rounding. The claim is `ridge`.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from torch import Tensor

from vademecum.arguments import choice, floats
from vademecum.estimators import (
    SparseRows,
    as_rows,
    as_targets,
    as_weights,
    fitted_map,
    like_input,
    precision,
    predict_linear,
    weighted_rows,
)
from vademecum.linear._moments import blocks
from vademecum.linear._ridge_system import (
    Spectrum,
    System,
    ridge_path,
    ridge_system,
    ridge_weights,
)
from vademecum.linear._sparse_least_squares import sparse_least_squares

__all__ = ["RidgeRegression"]


class RidgeRegression(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Ridge regression at one penalty, or at many and the best of them.

    Given arrays it is a scikit-learn estimator; given tensors it computes on their device and
    answers with tensors. The objective is that of scikit-learn's `Ridge`, the sum of squares plus
    $\alpha \|w\|^2$; if yours is a mean of squares over n examples, multiply its penalty by n.
    Sparse examples (SciPy's, or torch's in the layout CSR) stay sparse, for one penalty
    (`vademecum.linear._sparse_least_squares`).

    Args:
        alphas: The penalty, or a sequence of penalties, positive and in any order.
        fit_intercept: Whether there is an intercept, which is not penalised.
        selection: How the best of several penalties is chosen, over all targets together: "gcv" or
            "loo", see the top of this module.

    Attributes:
        coef_: The weights at the penalty chosen, of shape (d,) or (t, d).
        intercept_: The intercept there, a number or of shape (t,).
        alpha_: The penalty chosen.
        coef_path_: Of several penalties, the weights at each, of shape (penalties, d) or
            (penalties, t, d).
        intercept_path_: The intercepts at each, of shape (penalties,) or (penalties, t).
        scores_: The score of each, the less the better, of shape (penalties,).

    References:
        Hoerl and Kennard, Ridge regression: biased estimation for nonorthogonal problems,
        Technometrics, 1970.
        Golub, Heath and Wahba, Generalized cross-validation as a method for choosing a good ridge
        parameter, Technometrics, 1979.

    Example:
        >>> x, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([2.0, 6.0])
        >>> ridge = RidgeRegression(alphas=2.0).fit(x, y)
        >>> ridge.coef_, ridge.intercept_  # the slope is 4 / (2 + alpha)
        (tensor([1.]), tensor(4.))
        >>> RidgeRegression(alphas=[2.0, 6.0]).fit(x, y).coef_path_
        tensor([[1.0000],
                [0.5000]])
    """

    def __init__(self, *, alphas: Any = 1.0, fit_intercept=True, selection="gcv"):
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.selection = selection

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = np.ndim(self.alphas) == 0
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "RidgeRegression":
        """Find the map for every penalty, and choose one.

        Raises:
            ValueError: If the data are not finite, there is not one target for each example, a
                penalty is not positive, or there is but one example to choose among penalties by.
        """
        x = as_rows(self, X, reset=True, sparse=np.ndim(self.alphas) == 0).detach()
        y = as_targets(y, x)
        choice("selection", self.selection, ("gcv", "loo"))
        alphas, several = _penalties(self.alphas, x)
        if several and len(x) < 2:
            raise ValueError("X must have two examples or more to choose by, got n_samples = 1")
        columns, s, centre = y.reshape(len(x), -1), as_weights(sample_weight, x), self.fit_intercept
        if isinstance(x, SparseRows):
            self.alpha_ = float(alphas[0])
            options: Any = {"alpha": self.alpha_, "centre": bool(centre), "weights": s}
            fit = sparse_least_squares(x, columns, **options)
            self.coef_, self.intercept_ = fitted_map(fit.w.T, fit.mean_x, fit.mean_y, y, X)
            return self
        if s is None:
            system = means = ridge_system(x, columns, bool(centre), alphas.min())
        else:
            means = weighted_rows(x, columns, s, centre=bool(centre))
            system = ridge_system(means.x, means.y, False, alphas.min())
            known = {"weights": means.weights, "offset": means.offset}
            system = system._replace(centre=bool(centre), **known)
        if not several:
            w = ridge_weights(system, alphas[0])
            self.coef_, self.intercept_ = fitted_map(w.T, means.mean_x, means.mean_y, y, X)
            self.alpha_ = float(alphas[0])
            return self
        w, spectrum = ridge_path(system, alphas)
        coef, intercept = fitted_map(w.mT, means.mean_x, means.mean_y, y, X)
        score = _gcv if self.selection == "gcv" else _leave_one_out
        scores = score(system, spectrum, alphas)
        best = int(scores.argmin())
        self.coef_path_, self.intercept_path_ = coef, intercept
        self.scores_ = like_input(scores.to(x), X)
        self.coef_, self.alpha_ = coef[best], float(alphas[best])
        b = intercept[best]
        self.intercept_ = b if y.ndim > 1 or isinstance(X, Tensor) else float(b)
        return self

    def predict(self, X: Any) -> Any:
        """The answers of the map at the penalty chosen."""
        return predict_linear(self, X)


def _penalties(alphas: Any, x: Any) -> tuple[Float[Tensor, " a"], bool]:
    """The penalties, and whether they were given as a sequence."""
    values = alphas if isinstance(alphas, Tensor) else np.asarray(alphas)
    if isinstance(values, np.ndarray) and values.size and values.dtype.kind not in "fiu":
        raise ValueError(f"alphas must be a number or numbers, got {alphas!r}")
    values = torch.as_tensor(values, dtype=torch.float64, device=x.device)
    several = values.ndim > 0
    values = floats("alphas", values if several else values[None], ndim=1)
    if not (values > 0).all():
        raise ValueError(f"alphas must be > 0, got {values.min().item():g}")
    return values, several


def _gcv(system: System, spectrum: Spectrum, alphas: Tensor) -> Float[Tensor, " a"]:
    n, m, times = float(system.weights.sum()), len(spectrum.kappas), _times(system)
    kept = alphas[:, None] * spectrum.kappas * spectrum.shares(alphas)  # (a, m)
    if spectrum.dual:
        powers = spectrum.kappas[:, None] * spectrum.shrunk(alphas).square()
        residual = alphas.square() * powers.sum((1, 2))
    else:
        residual = _residuals(system, spectrum, alphas)
    freedom = 1 - (m + system.centre - kept.sum(1)) / float(times.sum())
    return residual / n / freedom**2


def _times(system: System) -> Float[Tensor, " n"]:
    """How often an example can be left out: one at a time, but all of it if it is less than one."""
    return system.weights.clamp(min=1)


def _residuals(system: System, spectrum: Spectrum, alphas: Tensor) -> Float[Tensor, " a"]:
    r"""The $\|r_\alpha\|^2$, from those of the least penalty, which are taken from the data.

    A difference from $\|Y\|^2$ would lose a good fit in rounding. Coefficients that are by $\Delta$
    less in the basis $B$ add
    $2 \langle B^\top Z^\top r, \Delta \rangle + \|Z B \Delta\|^2$, where
    $B^\top Z^\top Z B = I - \alpha_0 \operatorname{diag}(\kappa)$.
    """
    shrunk = spectrum.shrunk(alphas)
    like = system.x.new_zeros((), dtype=precision(system.x, system.y))
    means = system.mean_x, system.mean_y
    w, mean_x, mean_y = (v.to(like) for v in (spectrum.basis @ spectrum.right, *means))
    power, slope = torch.zeros_like(alphas[0]), torch.zeros_like(w, dtype=torch.float64)
    for here in blocks(len(system.y)):
        z = system.x[here].to(like) - mean_x
        r = system.y[here].to(like) - mean_y - z @ w
        power += r.double().square().sum()
        slope += z.T @ r
    less = spectrum.right - shrunk
    bend = (1 - spectrum.least * spectrum.kappas).clamp(min=0)[:, None]
    change = 2 * (spectrum.basis.T @ slope) * less + bend * less.square()
    return (power + change.sum((1, 2))).clamp(min=0)


def _leave_one_out(system: System, spectrum: Spectrum, alphas: Tensor) -> Float[Tensor, " a"]:
    total, s, n = torch.zeros_like(alphas), _times(system)[:, None], float(system.weights.sum())
    part = (system.weights / _times(system))[:, None]  # of one, that is left out
    shares, shrunk = spectrum.shares(alphas).T, spectrum.shrunk(alphas)
    if spectrum.dual:  # residuals are alpha times the solution of the dual equations
        kept = 1 - 1 / s + alphas * (spectrum.basis.square() @ shares) / s
        kept = kept - system.centre * part / n
        errors = alphas[:, None, None] * (spectrum.basis @ shrunk) / kept.T[..., None]
        return errors.square().sum((1, 2)) / n
    columns = shrunk.permute(1, 0, 2).flatten(1)  # (m, a t)
    for here in blocks(len(s)):
        scores = (system.x[here] - system.mean_x) @ spectrum.basis
        leverage = system.centre * part[here] / n + scores.square() @ shares / s[here]
        fitted = (scores @ columns).unflatten(1, (len(alphas), -1))
        y = (system.y[here] - system.mean_y)[:, None]
        total += ((y - fitted).square().sum(2) / (1 - leverage) ** 2).sum(0)
    return total / n
