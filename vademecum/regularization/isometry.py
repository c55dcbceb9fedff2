r"""How far a network is from an isometry: the singular values of its Jacobian in the input.

For each example $J = \partial f(x) / \partial x \in \mathbb{R}^{k \times d}$ has $r = \min(k, d)$
singular values $s$; *dynamical isometry* is that all of them are equal, near 1. Measured are the
mean of $s^2$ and its *spread*, the variance of $s^2$ over the square of that mean: 0 for an
isometry up to scale. Theory beside it, for $L$ layers of one width: $L$ for Gaussian weights and 0
for orthogonal ones, and with ReLU $2 L$ and $L$ (see `vademecum.regularization._products`).

To $r = 2000$ the singular values are exact up to rounding. Beyond, the spectrum of $J J^T$ (or $J^T
J$, if smaller) is a quadrature by Lanczos' method from random probes, whose standard errors are
over the probes. The claim `orthogonal_init` checks it on linear networks.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import floats, whole
from vademecum.expectations import GaussianExpectations
from vademecum.foundations import LinearOperator, SpectralDensity, spectral_density
from vademecum.gradients import jacobian
from vademecum.models import Output, count_examples
from vademecum.regularization._products import gaussian_quantiles, spreads
from vademecum.results import one_line

__all__ = ["Isometry", "dynamical_isometry"]

_EXACT = 2000
_WEIGHTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_SLOPED = (nn.ReLU, nn.LeakyReLU, nn.PReLU)
_STRUCTURE = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout)


class Isometry(NamedTuple):
    """The singular values of a Jacobian, and what theory expects of them.

    Example:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> layer.weight.data = torch.diag(torch.tensor([3.0, 1.0]))
        >>> found = dynamical_isometry(layer, torch.ones(1, 2))
        >>> found.values, found.mean_square, found.spread  # (9 + 1) / 2 and 16 / 25
        (tensor([[3., 1.]]), 5.0, 0.64)
    """

    values: Float[Tensor, " n r"] | None
    """The singular values of each example, the largest first; None where there are too many."""
    density: SpectralDensity | None
    """The density of their squares over all examples, where there are too many."""
    mean_square: float
    """The mean of their squares: by how much the square of a random vector grows on its way."""
    mean_square_error: float
    """Its standard error; 0 where the values are exact."""
    spread: float
    """The variance of their squares over the square of that mean: 0 for an isometry up to scale."""
    spread_error: float
    """Its standard error; 0 where the values are exact."""
    layers: int
    """How many linear layers and convolutions there are."""
    gaussian: float | None
    """The spread in theory for independent Gaussian weights and equal widths; None if the network
    has more than `nn.Linear` and ReLU or its leaky kin, one after the other."""
    orthogonal: float | None
    """The same for orthogonal weights."""

    __repr__ = one_line

    def gaussian_quantiles(self, shares: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
        r"""Singular values below which shares of them lie, for a product of Gaussian matrices.

        Of as many square ones as there are layers, scaled to the mean square that was measured.

        Args:
            shares: Shares between 0 and 1.

        Example:
            >>> found = dynamical_isometry(nn.Linear(2, 2), torch.ones(1, 2))
            >>> top = found.gaussian_quantiles(torch.tensor([1.0])) / found.mean_square**0.5
            >>> top.round(decimals=3)  # a Gaussian matrix has s up to 2
            tensor([2.])
        """
        shares = floats("shares", shares)
        if not ((shares >= 0) & (shares <= 1)).all():
            raise ValueError(f"shares must be between 0 and 1, got {shares.tolist()}")
        if self.layers == 0:
            raise ValueError("there must be a layer with weights for a theory, got none")
        squares = gaussian_quantiles(self.layers, shares.cpu())
        return (self.mean_square * squares).sqrt().to(shares)


def dynamical_isometry(
    model: nn.Module,
    x: Any,
    *,
    wrt: str = "x",
    output: Output = None,
    probes: int = 8,
    steps: int = 32,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> Isometry:
    r"""The singular values of a network's Jacobian in its input, example by example.

    Args:
        model: Any module that gives a tensor; it is taken in evaluation mode.
        x: Its inputs, with an example in each row: a tensor, or any structure of tensors.
        wrt: In what to differentiate: "x", the input, if it is one tensor; or the name of one input
            where `x` is a mapping, such as "inputs_embeds".
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        probes: How many random probes the density takes, beyond 2000 singular values an example.
        steps: How many Lanczos steps from each.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If the input is not floating point, examples influence each other, or the
            Jacobian is zero.

    References:
        Saxe, McClelland and Ganguli, Exact solutions to the nonlinear dynamics of learning in deep
        linear neural networks, ICLR, 2014. Pennington, Schoenholz and Ganguli, Resurrecting the
        sigmoid in deep learning through dynamical isometry, NeurIPS, 2017.

    Example:
        >>> model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)])
        >>> for layer in model:
        ...     _ = nn.init.orthogonal_(layer.weight, gain=2.0)
        >>> found = dynamical_isometry(model, torch.ones(1, 8))
        >>> round(found.mean_square, 2), round(found.spread, 6)  # (2^3)^2
        (64.0, 0.0)
        >>> found.gaussian, found.orthogonal
        (3.0, 0.0)
    """
    J = jacobian(model, x, wrt=wrt, memory=memory, progress=progress, output=output)
    n = count_examples(x)
    k, d = J.shape[0] // n, J.shape[1] // n
    if min(k, d) <= _EXACT:
        values = torch.cat([_singular_values(block) for _, block in J.chunks()])
        moments = _moments(values.double().square())
        found = Isometry(values, None, moments[0], 0.0, moments[1], 0.0, 0, None, None)
    else:
        found = _by_probes(J, whole("probes", probes, low=2), steps, generator, progress)
    layers, slopes, ratio = _theory(model)
    if ratio is None or not layers:
        return found._replace(layers=layers)
    gaussian, orthogonal = spreads(layers, slopes, ratio)
    return found._replace(layers=layers, gaussian=gaussian, orthogonal=orthogonal)


def _singular_values(blocks: Tensor) -> Tensor:
    wide = blocks.to(torch.promote_types(blocks.dtype, torch.float32))
    return torch.linalg.svdvals(wide)


def _moments(squares: Tensor) -> tuple[float, float]:
    """The mean of squared singular values, and their variance over its square."""
    mean = float(squares.mean())
    if not mean > 0:
        raise ValueError(f"model must depend on x, got a Jacobian of mean square {mean}")
    return mean, float((squares - mean).square().mean()) / mean**2


def _by_probes(
    J: Any, probes: int, steps: int, generator: torch.Generator | None, progress: bool
) -> Isometry:
    small = J.T if J.shape[0] > J.shape[1] else J
    size = small.shape[0]

    def gram(v: Tensor) -> Tensor:
        return small @ (small.T @ v)

    squared = LinearOperator((size, size), gram, gram, dtype=J.dtype, device=J.device)
    measure = spectral_density(
        squared, probes=probes, steps=steps, generator=generator, progress=progress
    )
    nodes, weights = measure.nodes.double().clamp(min=0), measure.weights.double()
    first, second = (weights * nodes).sum(1), (weights * nodes.square()).sum(1)
    mean = float(first.mean())
    _moments(first)  # refuses zero
    ratios = second / mean**2 - 2 * (second.mean() / mean**3) * (first - mean)  # linearised
    error = [float(s.std() / math.sqrt(len(s))) for s in (first, ratios)]
    spread = max(float(second.mean()) / mean**2 - 1, 0.0)
    return Isometry(None, measure, mean, error[0], spread, error[1], 0, None, None)


def _theory(model: nn.Module) -> tuple[int, int, float | None]:
    """How many matrices and diagonals of slopes a network has, and the slopes' kurtosis."""
    calls = [m for _, m in model.named_modules(remove_duplicate=False)]
    leaves = [m for m in calls if not list(m.children())]
    layers = [m for m in leaves if isinstance(m, _WEIGHTS)]
    sloped = [m for m in leaves if isinstance(m, _SLOPED)]
    known = all(isinstance(m, (nn.Linear, *_SLOPED, *_STRUCTURE)) for m in leaves)
    known &= not any(isinstance(m, nn.PReLU) and m.weight.numel() > 1 for m in sloped)
    known &= len(set(layers)) == len(layers)  # independent
    plain = all(type(m) is nn.Sequential for m in calls if list(m.children()))
    if not (known and plain):
        return len(layers), len(sloped), None
    ratios = {_kurtosis(m) for m in sloped} or {1.0}
    return len(layers), len(sloped), ratios.pop() if len(ratios) == 1 else None


def _kurtosis(activation: nn.Module) -> float:
    """The fourth moment of the slope over the square of the second, for two slopes."""
    integrals = GaussianExpectations(activation)
    second = float(integrals.slope(1.0))
    even = float(integrals.slope_product(1.0, 0.0))  # the square of the mean slope
    a, b = math.sqrt(even), math.sqrt(max(second - even, 0.0))  # slopes a + b and a - b
    return ((a + b) ** 4 + (a - b) ** 4) / 2 / second**2
