r"""Norms of a network, and the bounds on its risk that they enter.

A network that is a chain of affine maps $A_i$, at the size of its inputs, with $\rho_i$-Lipschitz
maps in between has the Lipschitz constant $\prod_i \rho_i \|A_i\|_2$ at most. Its *path norm* is
the sum over all paths from inputs and biases to an output of the products of absolute weights: the
output of the network with absolute values for weights, on an input of ones. Divided by the margin
of the examples such norms bound the risk, whatever the number of weights; on networks of today
these bounds are above 1, which the table says.

Spectral norms of convolutions come with a proven upper bound, which is what the bounds use; the
formulas, and how norms and margins are chosen after the data, are in `_margin_bounds`.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import number
from vademecum.generalization._layer_norms import LayerNorms, layer_norms, row_lengths
from vademecum.generalization._margin_bounds import (
    Chain,
    NormBound,
    frobenius_bound,
    path_bound,
    spectral_bound,
)
from vademecum.generalization._network_chain import Affine, Between, read_chain
from vademecum.generalization._seen_margins import Examples, examples_seen, quantiles
from vademecum.gradients import functional
from vademecum.gradients.network_function import Functional
from vademecum.models import Output
from vademecum.results import one_line

__all__ = ["LayerNorms", "NormBound", "NormBounds", "norm_bounds"]

_QUANTILES = 0.01, 0.1, 0.25, 0.5, 0.75, 0.9


class NormBounds(NamedTuple):
    """Norms, margins, and the bounds they enter.

    Example:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> layer.weight.data = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
        >>> found = norm_bounds(layer, torch.eye(2), torch.tensor([0, 1]))
        >>> found.lipschitz, found.path, found.frobenius
        (4.0, 4.0, 5.0)
    """

    layers: tuple[LayerNorms, ...]
    """The norms of each layer with weights."""
    lipschitz: float
    """The product of the operator norms and of the constants in between; for convolutions see
    `LayerNorms` for its error."""
    lipschitz_high: float
    """The same with upper bounds: no pair of inputs is moved farther apart."""
    path: float
    """The largest path norm of an output; infinite where there is pooling, which has no weights."""
    frobenius: float
    """The product of the Frobenius norms."""
    margins: Float[Tensor, " 6"]
    """Quantiles of the margins: at 0.01, 0.1, 0.25, 0.5, 0.75, 0.9."""
    errors: float
    """The share of examples with a margin of at most 0."""
    bounds: tuple[NormBound, ...]
    """The bounds on the 0-1 risk, each at its best margin."""

    __repr__ = one_line

    def table(self) -> str:
        """The bounds as a table in plain text, which says which of them are vacuous."""
        lines = [f"{'bound':<11}{'value':>12}{'margin':>12}  "]
        for name, value, vacuous, margin, reason in self.bounds:
            word = f"does not apply: {reason}" if reason else "vacuous" if vacuous else "below 1"
            lines.append(f"{name:<11}{value:>12.4g}{margin:>12.4g}  {word}")
        return "\n".join(lines)


def norm_bounds(
    model: nn.Module,
    x: Any,
    y: Int[Tensor, " n"] | None = None,
    *,
    delta: float = 0.05,
    output: Output = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> NormBounds:
    r"""Spectral, Frobenius and path norms of a network, its margins, and bounds on its risk.

    The model is taken in evaluation mode and never changed. It must be a chain: linear layers,
    convolutions, batch normalisations, activations and pooling, one after the other.

    Args:
        model: A module whose forward code is such a chain.
        x: The training inputs, one tensor of at least 2 examples; or a `DataLoader` of inputs and
            classes, whose batches are passed over once.
        y: Their classes; None where `x` is a loader.
        delta: The probability with which each bound may fail, in (0, 1).
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it. It must be the end of the chain.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            Kept by what examples take, as far as an estimate goes, and not by the norms of layers.
        progress: Whether to show a progress bar on standard error.
        generator: Where random numbers come from; torch's global generator by default.
            They start the Krylov spaces of convolutions.

    Raises:
        ValueError: If the model is no such chain; the call that is not is named.

    References:
        Bartlett, Foster and Telgarsky, Spectrally-normalized margin bounds for neural networks,
        NIPS, 2017.
        Golowich, Rakhlin and Shamir, Size-independent sample complexity of neural networks, COLT,
        2018.
        Neyshabur, Tomioka and Srebro, Norm-based capacity control in neural networks, COLT, 2015.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> found = norm_bounds(model, torch.randn(20, 2), torch.arange(20) % 2)
        >>> [bound.name for bound in found.bounds if bound.vacuous]  # twenty examples are few
        ['spectral', 'frobenius', 'path']
    """
    number("delta", delta, above=0, below=1)
    f = functional(model, output=output)
    data, maps = examples_seen(
        f, x, y, lambda first: _maps(f, first), memory=memory, progress=progress
    )
    affine = [m for m in maps if isinstance(m, Affine)]
    between = [m for m in maps if isinstance(m, Between)]
    layers = tuple(layer_norms(layer, generator) for layer in affine)
    margins, paths = data.margins, _paths(maps, data.first)
    rho = math.prod(m.rho for m in between)
    chain = _chain(layers, affine, between, float(paths.max()), data)
    return NormBounds(
        layers, rho * math.prod(layer.spectral for layer in layers),
        rho * math.prod(layer.spectral_high for layer in layers), chain.path,
        math.prod(layer.frobenius for layer in layers),
        quantiles(margins, torch.tensor(_QUANTILES).to(margins)),
        float((margins <= 0).double().mean()), _bounds(chain, between, margins, delta),
    )  # fmt: skip


def _maps(f: Functional, x: Tensor) -> list[Affine | Between]:
    """The maps of the network, on an input."""
    maps, end = read_chain(f.model, x)
    with torch.no_grad():
        if not _same(f(f.theta, x), end):
            raise ValueError("output must be what the last layer gives, got something else")
    return maps


def _same(z: Any, end: Tensor) -> bool:
    return isinstance(z, Tensor) and z.shape == end.shape and torch.allclose(z, end, rtol=1e-3)


def _chain(
    layers: tuple[LayerNorms, ...],
    affine: list[Affine],
    between: list[Between],
    path: float,
    data: Examples,
) -> Chain:
    biased = any(layer.bias is not None for layer in affine)
    rho = math.prod(max(m.rho, 1.0) if biased else m.rho for m in between)
    augmented = []
    lengths = torch.zeros(0)
    for layer in affine:
        lengths = row_lengths(layer)
        if layer.bias is not None:
            bias = layer.bias.detach().double()
            spread = (
                bias.repeat(len(lengths) // len(bias)) if layer.kind == "linear"
                else bias.repeat_interleave(len(lengths) // len(bias))
            )  # fmt: skip
            lengths = torch.hypot(lengths, spread)
        augmented.append((float(lengths.sum()), float(lengths.norm())))
    last, n = float(lengths.max()), len(data.margins)
    return Chain(
        layers, biased, rho, path, last, tuple(augmented), data.classes, data.squares, n
    )  # fmt: skip


def _paths(maps: list[Affine | Between], x: Tensor) -> Tensor:
    """The path norm of each output: absolute weights on an input of ones.

    Units in between pass on what they get; through pooling it is not followed, and infinite.
    """
    z = torch.ones(x[0].numel(), dtype=torch.float64, device=x.device)
    for layer in maps:
        if not isinstance(layer, Affine):
            continue
        if z.numel() != math.prod(layer.source):
            return torch.full_like(z[:1], torch.inf)
        z = _absolute(layer, z.reshape(1, *layer.source))
    return z


def _absolute(layer: Affine, z: Tensor) -> Tensor:
    weight = layer.weight.detach().double().abs()
    bias = None if layer.bias is None else layer.bias.detach().double().abs()
    if layer.kind == "linear":
        return nn.functional.linear(z, weight, bias).flatten()
    if layer.kind == "scale":
        shape = (-1, *(1,) * (z.ndim - 2))
        z = z * weight.reshape(shape)
        return (z if bias is None else z + bias.reshape(shape)).flatten()
    parts = {"weight": weight} | ({} if bias is None else {"bias": bias})
    with torch.no_grad():
        assert layer.module is not None
        return torch.func.functional_call(layer.module, parts, (z,)).flatten()


def _bounds(
    chain: Chain, between: list[Between], margins: Tensor, delta: float
) -> tuple[NormBound, ...]:
    """Each bound at the best of some positive margins."""
    not_zero = next((f"{m.name} is not 0 at 0" for m in between if not m.zero), "")
    other = next((f"{m.name} is not homogeneous" for m in between if not m.homogeneous), "")
    positive = margins[margins > 0]
    levels = torch.linspace(0, 1, 21, dtype=torch.float64, device=margins.device)
    gammas = quantiles(positive, levels).tolist() if len(positive) else []
    found = []
    for name, bound, reason in (
        ("spectral", spectral_bound, not_zero),
        ("frobenius", frobenius_bound, other),
        ("path", path_bound, other),
    ):
        reason = reason or ("" if gammas else "no margin is positive")
        if reason:
            found.append(NormBound(name, math.inf, True, math.nan, reason))
            continue
        value, gamma = min((bound(chain, margins, g, delta), g) for g in gammas)
        found.append(NormBound(name, value, value >= 1, gamma, ""))
    return tuple(found)
