r"""Ridge regression: every penalty from one decomposition, and the choice among them.

$$w_\alpha = \operatorname*{argmin}_w \|Z w - Y\|^2 + \alpha \|w\|^2
= (Z^\top Z + \alpha I)^{-1} Z^\top Y = Z^\top (Z Z^\top + \alpha I)^{-1} Y$$

for $\alpha > 0$, where the rows of $Z$ and $Y$ are the examples and the targets less their means:
the intercept is not penalised. With $Z = U \operatorname{diag}(\sigma) V^\top$,
$\lambda = \sigma^2$ and $q = U^\top Y$,

$$w_\alpha = V \operatorname{diag}\Big(\frac{\sigma}{\lambda + \alpha}\Big) q, \qquad
H_\alpha = \frac{\mathbf 1 \mathbf 1^\top}{n}
+ U \operatorname{diag}\Big(\frac{\lambda}{\lambda + \alpha}\Big) U^\top$$

is the hat matrix of the fitted values, so that one eigendecomposition of the smaller of $Z^\top Z$
and $Z Z^\top$ serves all penalties. Two scores tell which is best,

$$\mathrm{GCV}(\alpha) =
\frac{\frac1n \|r_\alpha\|^2}{\big(1 - \frac1n \operatorname{tr} H_\alpha\big)^2}, \qquad
\mathrm{LOO}(\alpha) = \frac1n \sum_i \frac{\|r_{\alpha, i}\|^2}{(1 - H_{\alpha, ii})^2}$$

with the residuals $r_\alpha = (I - H_\alpha) Y$, here with $Y$ not centred. The second is the mean
squared error of leaving one example out, exactly, and takes another pass over the data, in double
precision.

Exact up to rounding. The matrix products are those of the data's dtype while every $\alpha$
exceeds what its rounding can do to an eigenvalue, else of double precision; where some $\alpha$
is as small even then, directions with eigenvalues as small are left out, as in the limit
$\alpha \to 0$. The claim is `ridge`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from torch import Tensor

from vademecum.arguments import choice, floats
from vademecum.estimators import as_rows, as_targets, fitted_map, like_input, predict_linear
from vademecum.linear._gram import gram
from vademecum.linear._moments import blocks, moments

__all__ = ["RidgeRegression"]


class RidgeRegression(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Ridge regression at one penalty, or at many and the best of them.

    Given arrays it is a scikit-learn estimator; given tensors it computes on their device and
    answers with tensors. The objective is that of scikit-learn's `Ridge`, the sum of squares plus
    $\alpha \|w\|^2$; if yours is a mean of squares over n examples, multiply its penalty by n.

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

    def fit(self, X: Any, y: Any) -> "RidgeRegression":
        """Find the map for every penalty, and choose one.

        Raises:
            ValueError: If the data are not finite, there is not one target for each example, a
                penalty is not positive, or there is but one example to choose among penalties by.
        """
        x = as_rows(self, X, reset=True).detach()
        y = as_targets(y, x)
        choice("selection", self.selection, ("gcv", "loo"))
        alphas, several = _penalties(self.alphas, x)
        if several and len(x) < 2:
            raise ValueError("X must have two examples or more to choose by, got n_samples = 1")
        system = _system(x, y.reshape(len(x), -1), bool(self.fit_intercept), alphas.min())
        w = None if several else _at_one(system, alphas[0])
        if w is not None:
            self.coef_, self.intercept_ = fitted_map(w.T, system.mean_x, system.mean_y, y, X)
            self.alpha_ = float(alphas[0])
            return self
        spectrum = _spectrum(system, alphas.min())
        w = system.lift(spectrum.basis @ _shrunk(spectrum, alphas))
        coef, intercept = fitted_map(w.mT, system.mean_x, system.mean_y, y, X)
        best = 0
        if several:
            score = _gcv if self.selection == "gcv" else _leave_one_out
            scores = score(system, spectrum, alphas)
            best = int(scores.argmin())
            self.coef_path_, self.intercept_path_ = coef, intercept
            self.scores_ = like_input(scores.to(x), X)
        self.coef_, self.intercept_, self.alpha_ = coef[best], intercept[best], float(alphas[best])
        return self

    def predict(self, X: Any) -> Any:
        """The answers of the map at the penalty chosen."""
        return predict_linear(self, X)


def _penalties(alphas: Any, x: Tensor) -> tuple[Float[Tensor, " a"], bool]:
    """The penalties, and whether they were given as a sequence."""
    values = torch.as_tensor(alphas, dtype=torch.float64, device=x.device)
    several = values.ndim > 0
    values = floats("alphas", values if several else values[None], ndim=1)
    if not (values > 0).all():
        raise ValueError(f"alphas must be > 0, got {values.min().item():g}")
    return values, several


class _System(NamedTuple):
    r"""Equations $(M + \alpha I) v = r$ in double precision, and how $v$ becomes weights."""

    x: Tensor
    y: Tensor
    centre: bool
    mean_x: Tensor
    mean_y: Tensor
    matrix: Tensor
    right: Tensor
    rows: Tensor | None  # of Z, if the equations are the dual ones

    def lift(self, v: Tensor) -> Tensor:
        return v if self.rows is None else self.rows.T.double() @ v


def _system(x: Tensor, y: Tensor, centre: bool, least: Tensor) -> _System:
    """The primal equations, or for fewer examples than features the dual ones."""
    assemble = _primal if len(x) >= x.shape[1] else _dual
    system = assemble(x, y, centre, x.dtype)
    if torch.finfo(x.dtype).eps * system.matrix.norm() > least and x.dtype != torch.float64:
        return assemble(x, y, centre, torch.float64)
    return system


def _primal(x: Tensor, y: Tensor, centre: bool, dtype: torch.dtype) -> _System:
    about = moments(x, y, centre=centre, dtype=dtype)
    return _System(x, y, centre, about.mean_x, about.mean_y, about.gram, about.cross, None)


def _dual(x: Tensor, y: Tensor, centre: bool, dtype: torch.dtype) -> _System:
    mean_x, mean_y = (v.double().mean(0) * centre for v in (x, y))
    z = (x.double() - mean_x).to(dtype)
    return _System(x, y, centre, mean_x, mean_y, gram(z.mT).matrix, y - mean_y, z)


def _at_one(system: _System, alpha: Tensor) -> Float[Tensor, " d t"] | None:
    """The weights at one penalty; None if rounding could make its system singular."""
    if alpha < _rounding(system):
        return None
    shifted = system.matrix + alpha * torch.eye(len(system.matrix)).to(system.matrix)
    return system.lift(torch.cholesky_solve(system.right, torch.linalg.cholesky(shifted)))


class _Spectrum(NamedTuple):
    lambdas: Tensor
    basis: Tensor
    right: Tensor  # in that basis


def _spectrum(system: _System, least: Tensor) -> _Spectrum:
    """The decomposition; without what only rounding decides, if there is a penalty as small."""
    lambdas, basis = torch.linalg.eigh(system.matrix)
    noise = (lambdas <= _rounding(system)) & (least < _rounding(system))
    right = (basis.T @ system.right).masked_fill(noise[:, None], 0.0)
    return _Spectrum(lambdas.masked_fill(noise, 0.0).clamp(min=0), basis, right)


def _rounding(system: _System) -> Tensor:
    """What rounding can do to an eigenvalue in double precision."""
    return max(system.x.shape) * torch.finfo(torch.float64).eps * system.matrix.norm()


def _shrunk(spectrum: _Spectrum, alphas: Tensor) -> Float[Tensor, " a m t"]:
    return spectrum.right / (spectrum.lambdas + alphas[:, None])[..., None]


def _gcv(system: _System, spectrum: _Spectrum, alphas: Tensor) -> Float[Tensor, " a"]:
    n, m = len(system.y), len(spectrum.lambdas)
    kept = alphas[:, None] / (spectrum.lambdas + alphas[:, None])  # (a, m)
    if system.rows is None:
        residual = _residuals(system, spectrum, alphas)
    else:
        residual = (kept**2 * spectrum.right.square().sum(1)).sum(1)
    freedom = n - m - system.centre + kept.sum(1)
    return n * residual / freedom**2


def _residuals(system: _System, spectrum: _Spectrum, alphas: Tensor) -> Float[Tensor, " a"]:
    r"""The $\|r_\alpha\|^2$, from those of the least penalty, which are taken from the data.

    A difference from $\|Y\|^2$ would lose a good fit in rounding. Weights that are by $\Delta$
    less, in the basis $V$, add $2 \langle V^\top Z^\top r, \Delta \rangle + \|\sigma \Delta\|^2$.
    """
    weights = _shrunk(spectrum, alphas)
    first = weights[alphas.argmin()]
    like = system.x.new_zeros((), dtype=torch.promote_types(system.x.dtype, torch.float32))
    means = system.mean_x, system.mean_y
    w, mean_x, mean_y = (v.to(like) for v in (spectrum.basis @ first, *means))
    first = spectrum.basis.T @ w.double()  # as rounded: differences from it are small
    power, slope = torch.zeros_like(alphas[0]), torch.zeros_like(first)
    for here in blocks(len(system.y)):
        z = system.x[here].to(like) - mean_x
        r = system.y[here].to(like) - mean_y - z @ w
        power += r.double().square().sum()
        slope += z.T @ r
    less = first - weights
    change = 2 * (spectrum.basis.T @ slope) * less + spectrum.lambdas[:, None] * less.square()
    return (power + change.sum((1, 2))).clamp(min=0)


def _leave_one_out(system: _System, spectrum: _Spectrum, alphas: Tensor) -> Float[Tensor, " a"]:
    n, total = len(system.y), torch.zeros_like(alphas)
    inverse = (1 / (spectrum.lambdas + alphas[:, None])).T  # (m, a)
    for scores, right, y in _scores(system, spectrum):
        leverage = system.centre / n + scores.square() @ inverse
        shrunk = right[:, None] * inverse[..., None]  # (m, a, t)
        fitted = (scores @ shrunk.flatten(1)).unflatten(1, shrunk.shape[1:])
        total += ((y[:, None] - fitted).square().sum(2) / (1 - leverage) ** 2).sum(0)
    return total / n


def _scores(system: _System, spectrum: _Spectrum) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    r"""Blocks of $U \sigma$, with $\sigma q$ and the centred targets."""
    y = system.y - system.mean_y
    if system.rows is not None:
        sigma = spectrum.lambdas.sqrt()
        yield spectrum.basis * sigma, spectrum.right * sigma[:, None], y
        return
    for here in blocks(len(y)):
        yield (system.x[here] - system.mean_x) @ spectrum.basis, spectrum.right, y[here]
