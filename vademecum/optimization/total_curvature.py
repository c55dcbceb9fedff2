r"""The trace of a network's curvature: the sum of all eigenvalues, and of all second derivatives.

For a network of linear layers, convolutions, batch normalisation, ReLUs and pools it is computed
exactly, from at most as many backward passes as there are outputs; for others it is estimated from
products with random vectors, which give an error as well:

$$\operatorname{tr} H = \sum_p \frac{\partial^2 \ell}{\partial \theta_p^2}, \qquad
\operatorname{tr} G = \sum_{i, c} w_{ic} \Big\| \frac{\partial \langle q_{ic}, f_i \rangle}
{\partial \theta} \Big\|^2,$$

with the Gauss-Newton matrix $G = J^T \Lambda J$ and $\Lambda_i = \sum_c w_{ic}\, q_{ic} q_{ic}^T$
the loss's Hessian in the outputs of example $i$. That the two agree for networks of the
first kind, layer by layer, is since the outputs are piecewise affine in the parameters of each
layer.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from vademecum.arguments import choice, whole
from vademecum.foundations import trace
from vademecum.gradients import functional, hessian
from vademecum.models import Loss, Output, mean_over_batches
from vademecum.optimization._exact_traces import NoRule, exact_traces
from vademecum.optimization.generalised_gauss_newton import gauss_newton
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["CurvatureTrace", "curvature_trace"]
KINDS = {"hessian": hessian, "gauss_newton": gauss_newton}
"""What the curvature may be."""


class CurvatureTrace(NamedTuple):
    """The sum of all eigenvalues.

    Example:
        >>> x, y = torch.tensor([[3.0, 4.0]]), torch.zeros(1, 1)
        >>> curvature_trace(nn.Linear(2, 1), x, y)  # twice 9 + 16 + 1
        CurvatureTrace(value=52.0, standard_error=0.0, exact=True, applications=0)
    """

    value: float
    """The trace."""
    standard_error: float
    """Its standard error over the probes; 0 where it is exact."""
    exact: bool
    """Whether it comes from the layers' rules, or from all columns, rather than from probes."""
    applications: int
    """The number of products with the matrix; 0 where the layers' rules served."""

    __repr__ = one_line


def curvature_trace(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    kind: str = "hessian",
    applications: int = 64,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> CurvatureTrace:
    r"""The trace of the loss's Hessian or Gauss-Newton matrix in the parameters.

    It is exact where the layers' rules cover the model and it has at most `applications` outputs;
    for the Hessian the model must be piecewise affine in the parameters of each layer, as those
    with ReLUs are, and for either the examples must not influence each other. Else it is estimated
    from random vectors. The model is taken in evaluation mode, with the parameters that it has now,
    and never changed.

    Args:
        model: Any module.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels".
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        kind: "hessian", or "gauss_newton", which is exact for more models.
        applications: The most backward passes, or else the most vectors to apply the matrix to.
            From the number of parameters on, the trace is computed as it stands.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            Probes are held on top of it, in blocks of half of the applications.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are no parameters, or the loss is not one number.

    References:
        Dangel, Kunstner and Hennig, BackPACK: packing more into backprop, ICLR, 2020. Epperly,
        Tropp and Webber, XTrace: making the most of every sample in stochastic trace estimation,
        SIAM Journal on Matrix Analysis and Applications 45, 2024.

    Example:
        >>> x, y = torch.eye(3), torch.tensor([0, 1, 2])
        >>> model = nn.Linear(3, 3, bias=False)
        >>> _ = nn.init.zeros_(model.weight)  # all three classes have the probability 1/3
        >>> round(curvature_trace(model, x, y).value, 4)  # 3 (1/3) (2/3), of each example
        0.6667
    """
    choice("kind", kind, tuple(KINDS))
    whole("applications", applications, low=4)
    f = functional(model, frozen=frozen, output=output)
    by_rules = partial(
        exact_traces, f, loss=loss, hessian=kind == "hessian", most=applications, memory=memory
    )
    try:
        found = mean_over_batches(x, y, by_rules, device=f.device, progress=progress)
    except NoRule:
        matrix = KINDS[kind](model, x, y, loss=loss, memory=memory, frozen=frozen, output=output)
        with given_back(generator):
            probed = trace(
                matrix, applications=applications, generator=generator, progress=progress
            )
        exact = probed.applications >= f.size
        return CurvatureTrace(
            float(probed.value), float(probed.standard_error), exact, probed.applications
        )
    return CurvatureTrace(float(found.sum()), 0.0, True, 0)
