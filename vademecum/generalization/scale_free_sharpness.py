r"""Sharpness in three units: of the parameters as they are, by filter, and by entry.

The plain sharpness is the largest eigenvalue $\lambda_{\max}(H)$ of the loss's Hessian. It is no
property of the function: a ReLU network stays the same when a unit's incoming weights are
multiplied by $c > 0$ and its outgoing ones by $1 / c$, which turns $\theta$ into $D \theta$ with a
diagonal $D$ and $H$ into $D^{-1} H D^{-1}$. Steps that are measured in units of the parameters
themselves do not mind: with a diagonal $T_\theta$ of sizes

$$\lambda_{\max}(T_\theta H T_\theta) = \max_{\|v\| = 1} \frac{d^2}{dr^2} \ell(\theta + r\, T_\theta
v) \Big|_{r = 0}$$

* with $T_\theta = \operatorname{diag} |\theta|$, the *adaptive* one, is the same after any such
  change, since $T_{D \theta} = D\, T_\theta$ and the $D$ cancel;
* with the norm of the filter that an entry belongs to, the *filter-normalised* one, is the same
  where all units of a layer are scaled alike, and $D$ is one number for each tensor.

Eigenvalues are those of Lanczos' method, up to `tol`. The claims are `sharpness` and
`sharpness_not_invariant`; the change of units is `vademecum.regularization.rescale_units`.

References:
    Dinh, Pascanu, Bengio and Bengio, Sharp minima can generalize for deep nets, ICML, 2017.
    Li, Xu, Taylor, Studer and Goldstein, Visualizing the loss landscape of neural nets, NeurIPS,
    2018. Kwon, Kim, Park and Choi, ASAM: adaptive sharpness-aware minimization for scale-invariant
    learning of deep neural networks, ICML, 2021.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import number
from vademecum.foundations import LinearOperator, eigsh
from vademecum.generalization._parameter_scales import filter_norms
from vademecum.models import Loss, Output
from vademecum.optimization._krylov import krylov_hessian
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["SharpnessMeasures", "sharpness_measures"]


class SharpnessMeasures(NamedTuple):
    """The largest curvature in three units.

    Example:
        >>> model = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.constant_(model.weight, 3.0)
        >>> found = sharpness_measures(model, torch.eye(2), torch.zeros(2, 1))  # H = identity
        >>> [round(value, 3) for value in found[:3]]  # 1, 3^2 + 3^2, 3^2
        [1.0, 18.0, 9.0]
    """

    plain: float
    r"""The largest eigenvalue of $H$, which rescaled units change at will."""
    filter_normalised: float
    """The same for steps in units of the norms of filters."""
    adaptive: float
    """The same for steps in units of the entries: not changed by rescaled units."""
    residuals: Float[Tensor, " 3"]
    r"""The norms of $A v - \lambda v$ for the three: an eigenvalue is within that."""
    applications: int
    """The number of products with the Hessian."""
    converged: bool
    """Whether all residuals are below the tolerance."""

    __repr__ = one_line


def sharpness_measures(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    tol: float = 1e-3,
    max_iter: int = 1000,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> SharpnessMeasures:
    r"""The sharpness of a minimum: plain, filter-normalised, and adaptive.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.

    Args:
        model: Any module in single or double precision.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels". A loader is run
            through at each product.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        tol: Stop when a residual is at most `tol` times the largest $|\lambda|$ in sight.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a product,
            and so many are allowed for each of the three.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            Vectors like the parameters, of which 28 are held by default, have half of it at most.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are no parameters, the loss is not one number, or the Hessian is not
            finite.

    Example:
        >>> x, y = torch.tensor([[1.0]]), torch.tensor([[1.0]])  # f(x) = a (b x)_+, at a b = 1
        >>> one, two = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        >>> model = nn.Sequential(one, nn.ReLU(), two)
        >>> for b in (1.0, 10.0):
        ...     _ = one.weight.data.fill_(b), two.weight.data.fill_(1 / b)
        ...     found = sharpness_measures(model, x, y)  # 2 (a^2 + b^2), and 2 (a b)^2 + 2 (a b)^2
        ...     print(round(found.plain, 2), round(found.adaptive, 2))
        4.0 4.0
        200.02 4.0
    """
    number("tol", tol, above=0)
    f, H, held, _ = krylov_hessian(
        model, x, y, loss=loss, memory=memory, frozen=frozen, output=output
    )
    theta = f.theta.detach()
    found = []
    for sizes in (torch.ones_like(theta), filter_norms(f, theta), theta.abs()):
        with given_back(generator):
            found.append(
                eigsh(
                    _in_units(H, sizes), 1, tol=tol, degenerate=False, subspace=held,
                    max_iter=max_iter, symmetry_tol=math.inf, generator=generator,
                    progress=progress,
                )
            )  # fmt: skip
    plain, by_filter, adaptive = (float(each.values[0]) for each in found)
    return SharpnessMeasures(
        plain=plain,
        filter_normalised=by_filter,
        adaptive=adaptive,
        residuals=torch.cat([each.residuals for each in found]),
        applications=sum(each.applications for each in found),
        converged=all(each.converged for each in found),
    )


def _in_units(H: LinearOperator, sizes: Tensor) -> LinearOperator:
    """The Hessian for steps in units of some sizes, which says so if it is not finite."""
    s = sizes[:, None]

    def product(v: Tensor) -> Tensor:
        found = s * (H @ (s * v))
        if not torch.isfinite(found.sum()):
            raise ValueError("the Hessian must be finite, got NaN or infinity: has model diverged?")
        return found

    return LinearOperator(H.shape, product, product, dtype=H.dtype, device=H.device)
