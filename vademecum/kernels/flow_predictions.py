r"""What gradient flow makes of a network whose tangent kernel stays as it is, at all times.

With the kernel $K$ on the training set, $k(x)$ between $x$ and it, and the initial outputs $f_0$,
the flow of the loss $\frac12 \sum_i \|f(x_i) - y_i\|^2$ gives at time $t$

$$f_t(x) = f_0(x) + k(x)\, g_t(K)\, (y - f_0), \qquad g_t(\lambda) = \frac{1 - e^{-\lambda t}}
\lambda,$$

so that the residual on the training set decays along each eigenvector of $K$ with its eigenvalue as
the rate. At $t = \infty$ this is kernel regression of the initial residuals, with the pseudoinverse
of $K$. Over random initial outputs, a Gaussian process of mean 0 and covariance $\mathcal K$, the
outputs at $t$ are one too. With $A = k(x)\, g_t(K)$ its mean is $A y$ and its variance at $x$

$$\mathcal K(x, x) + A\, \mathcal K\, A^\top - 2 A\, \mathcal K(X, x).$$

One eigendecomposition serves all times. Exact up to rounding for a constant kernel, hence for a
linearised network; for a network as far as its kernel stays. The claims are `ntk_predictor`,
`function_space_flow` and `infinite_width_predictor`.
"""

import inspect
import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vademecum.arguments import floats, number, whole
from vademecum.arrays import portions
from vademecum.gradients import functional
from vademecum.kernels._covariance import variances
from vademecum.kernels._flow_spectrum import FlowSpectrum, as_matrices, as_outputs, as_targets
from vademecum.models import count_examples, map_tensors
from vademecum.results import one_line

__all__ = ["NTKPrediction", "ntk_predict"]

Function = Callable[..., Tensor]


class NTKPrediction(NamedTuple):
    """Outputs of a network under gradient flow with a constant kernel.

    Example:
        >>> X, y = torch.tensor([[1.0]]), torch.tensor([3.0])
        >>> ntk_predict(lambda a, b: a @ b.T, X, y, 2 * X, t=torch.tensor([0.0, math.inf])).mean
        tensor([[0.],
                [6.]])
    """

    t: Float[Tensor, " *T"]
    """The times."""
    mean: Float[Tensor, " ..."]
    """The outputs (n,) or (n, k) as the targets are, after an axis for the times if there is one;
    their mean where initial outputs are random."""
    variance: Float[Tensor, " ..."] | None
    """The variance of each over random initial outputs; None where these are given."""
    rates: Float[Tensor, " ..."]
    """The eigenvalues of the kernel on the training set in increasing order, the rates at which
    residuals decay; a row for each output where each has a kernel of its own."""
    rank: int
    """How many of them are not zero up to rounding."""

    __repr__ = one_line


def ntk_predict(
    kernel: Function,
    x_train: Any,
    y_train: Shaped[Tensor, " n *k"],
    x: Any,
    *,
    t: float | Float[Tensor, " T"] = math.inf,
    f0: Function | None = None,
    nngp: Function | None = None,
    memory: int | None = None,
) -> NTKPrediction:
    r"""Predict what training makes of a network, from its tangent kernel.

    Args:
        kernel: The tangent kernel: a `Kernel` such as `infinite_width(model).ntk`, or a function of
            two sets of inputs, such as `functools.partial(empirical_ntk, model)`, that gives a
            matrix (n, n') for all outputs, one for each (n, n', k), or all pairs (n, n', k, k).
        x_train: The training inputs; a tensor, or any structure of tensors.
        y_train: Their targets.
        x: Where to predict.
        t: The time of training, or times: s steps of gradient descent with the small step size
            $\eta$ on half the sum of squared errors take $t = \eta s$; on the mean over n k entries
            `mse_loss` they take $2 \eta s / (n k)$.
        f0: The initial network, a module (in evaluation mode) or any function; by default its
            outputs are zero, or random with mean zero if `nngp` is given.
        nngp: The covariance of random initial outputs, such as `infinite_width(model).nngp`, which
            are independent of each other and equally distributed; then `variance` tells how far
            networks of an ensemble differ.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If the kernel is not symmetric or has negative eigenvalues beyond rounding on
            the training inputs, or shapes do not fit.

    References:
        Lee, Xiao, Schoenholz, Bahri, Novak, Sohl-Dickstein and Pennington, Wide neural networks of
        any depth evolve as linear models under gradient descent, NeurIPS 2019.

    Example:
        >>> X, y = torch.eye(2), torch.tensor([1.0, 1.0])
        >>> kernel = lambda a, b: a @ torch.diag(torch.tensor([1.0, 2.0])) @ b.T
        >>> found = ntk_predict(kernel, X, y, X, t=math.log(2))
        >>> found.mean, found.rates  # 1 - 1/2 and 1 - 1/4
        (tensor([0.5000, 0.7500]), tensor([1., 2.]))
    """
    y = floats("y_train", y_train).reshape(len(y_train), -1)
    n, k = y.shape
    times = _times(t, y)
    if count_examples(x_train) != n or y_train.ndim > 2:
        raise ValueError(
            f"y_train must be ({count_examples(x_train)},) or ({count_examples(x_train)}, k) as"
            f" x_train is, got shape {tuple(y_train.shape)}"
        )
    if f0 is not None and nngp is not None:
        raise ValueError("f0 and nngp must not both be given: initial outputs are known or random")
    K = _matrix(kernel, "kernel", x_train, None, y)
    spectrum, Q = _decomposed(K, memory)
    g = spectrum.filters(times)
    residual = Q.mT @ as_targets(y - _initial(f0, "x_train", x_train, y), K.ndim)
    prior = None if nngp is None else _Prior(nngp, x_train, Q, K.ndim, y)
    means, spreads, count = [], [], count_examples(x)
    each = (3 + len(times)) * Q[..., 0].numel() * max(1, K.ndim - 2) * k * K.itemsize
    for here in portions(count, each=each, memory=memory or each * count):
        some = map_tensors(x, itemgetter(here))
        rows = as_matrices(_matrix(kernel, "kernel", some, x_train, y)) @ Q
        moved = as_outputs(rows @ (g[..., None] * residual), K.ndim, k)
        means.append(moved + _initial(f0, "x", some, y))
        if prior is not None:
            spreads.append(prior.variance(rows, g, some))
    shape = (*(times.shape if isinstance(t, Tensor) else ()), count, *y_train.shape[1:])
    return NTKPrediction(
        times if isinstance(t, Tensor) else times[0],
        torch.cat(means, 1).reshape(shape),
        torch.cat(spreads, 1).reshape(shape) if spreads else None,
        spectrum.values[0] if len(Q) == 1 else spectrum.values,
        spectrum.rank,
    )


class _Prior:
    """The law of random initial outputs, in the basis of the kernel's eigenvectors."""

    def __init__(self, nngp: Function, x_train: Any, Q: Tensor, ndim: int, y: Tensor):
        self._nngp, self._x_train, self._Q, self._ndim, self._y = nngp, x_train, Q, ndim, y
        self._K = Q.mT @ self._blocks(_matrix(nngp, "nngp", x_train, None, y, ndim=2)) @ Q

    def variance(self, rows: Tensor, g: Tensor, x: Any) -> Float[Tensor, " T n k"]:
        """The variance at inputs for which `rows` is k(x) Q."""
        k, one = self._y.shape[1], torch.ones_like(self._y[0])
        own = variances(self._nngp, x)
        own = own[None] if self._ndim == 2 else torch.outer(one, own)
        own = own if self._ndim < 4 else own.T.reshape(1, -1)
        between = self._Q.mT @ self._blocks(
            _matrix(self._nngp, "nngp", self._x_train, x, self._y, ndim=2)
        )
        found = []
        for filtered in g:
            A = rows * filtered[:, None]
            found.append(own + ((A @ self._K - 2 * between.mT) * A).sum(-1))
        values = torch.stack(found)[..., None].clamp(min=0)
        return as_outputs(values, self._ndim, k if self._ndim == 4 else 1).expand(-1, -1, k)

    def _blocks(self, K: Tensor) -> Tensor:
        """The covariance of all outputs, which are independent of each other."""
        if self._ndim < 4:
            return K[None]
        return torch.kron(K, torch.eye(self._y.shape[1]).to(K))[None]


def _times(t: float | Tensor, y: Tensor) -> Tensor:
    if not isinstance(t, Tensor):
        return torch.tensor([number("t", t, low=0, infinite=True)], dtype=y.dtype, device=y.device)
    if t.ndim != 1 or not t.numel() or not bool((t >= 0).all()):
        raise ValueError(f"t must be a number or a vector of times >= 0, got {t}")
    return t.detach().to(y)


def _decomposed(K: Tensor, memory: int | None) -> tuple[FlowSpectrum, Tensor]:
    """The spectrum of the kernel, of which four matrices are needed."""
    if memory is not None:
        whole("memory", memory, low=4 * K.nbytes)
    spectrum = FlowSpectrum(as_matrices(K))
    return spectrum, spectrum.vectors


def _matrix(
    kernel: Function, name: str, x1: Any, x2: Any, y: Tensor, *, ndim: int | None = None
) -> Tensor:
    """The kernel between inputs, in a shape that fits the targets."""
    K = kernel(x1) if x2 is None and _takes_one(kernel) else kernel(x1, x1 if x2 is None else x2)
    if not isinstance(K, Tensor):
        raise ValueError(f"{name} must give a tensor, got {type(K).__name__}")
    n1, k = count_examples(x1), y.shape[1]
    n2 = n1 if x2 is None else count_examples(x2)
    allowed = [(n1, n2), (n1, n2, k), (n1, n2, k, k)]
    allowed = [shape for shape in allowed if ndim in (None, len(shape))]
    if tuple(K.shape) not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise ValueError(f"{name} must give a tensor of shape {wanted}, got {tuple(K.shape)}")
    if (K.dtype, K.device) != (y.dtype, y.device):
        raise ValueError(
            f"{name} must give {y.dtype} on {y.device} as y_train is, got {K.dtype} on {K.device}"
        )
    return floats(f"values of {name}", K).detach()


def _takes_one(kernel: Function) -> bool:
    """Whether the second argument may be left out, which may be half the work."""
    try:
        parameters = list(inspect.signature(kernel).parameters.values())
    except ValueError:  # of functions that are not written in Python
        return False
    return len(parameters) > 1 and parameters[1].default is None


def _initial(f0: Function | None, name: str, x: Any, y: Tensor) -> Tensor:
    """The initial outputs."""
    n, k = count_examples(x), y.shape[1]
    if f0 is None:
        return y.new_zeros(n, k)
    with torch.no_grad():
        if isinstance(f0, nn.Module):
            f = functional(f0)
            z = f(f.theta, x)
        else:
            z = f0(x)
    if not isinstance(z, Tensor) or z.shape not in ((n, k), (n,) if k == 1 else (n, k)):
        given = f"shape {tuple(z.shape)}" if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(f"f0({name}) must be a tensor of shape ({n}, {k}), got {given}")
    return floats(f"f0({name})", z).reshape(n, k)
