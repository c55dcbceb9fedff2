r"""Whether a graph network can tell two graphs apart, with any weights.

A network that passes messages along edges and treats nodes alike gives equal outputs on graphs that
the test of Weisfeiler and Leman does not separate, whatever its weights are; the features of nodes
and edges are the first colours. Where the test separates them, almost all weights of a network that
is as strong do so, too. So weights are drawn a few times, and outputs are compared in double
precision: a difference is a *witness*; that there is none in any draw is evidence and no proof,
unless the test cannot tell the graphs apart and the network passes messages.

A network that separates what the test cannot is beyond it. Numbering the nodes of one graph anew
tells why: if that moves the output as well, it depends on positions or node numbers. The claim is
`gnn_wl_bound`.

References:
    Xu, Hu, Leskovec and Jegelka, How powerful are graph neural networks?, ICLR, 2019. Morris et
    al., Weisfeiler and Leman go neural: higher-order graph neural networks, AAAI, 2019.
"""

import math
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.geometry.colour_refinement.isomorphism_test import WeisfeilerLeman, weisfeiler_leman
from vademecum.geometry.graphs import GraphInput, map_graph, read_graph
from vademecum.models import call_arguments, chosen_output, evaluation, unwrapped
from vademecum.randomness import given_back, own_randomness, source
from vademecum.results import one_line

__all__ = ["WLCeiling", "wl_ceiling"]

_DRAWS = 8
"""How often weights are drawn, the model's own beside them."""
_TOLD = 1e-9
"""Relative differences of outputs above which they are different: rounding in double precision
gives some 1e-14, a network that separates seldom less than 1e-6."""
_PROBES = 16


class WLCeiling(NamedTuple):
    """Whether a network tells two graphs apart, beside what the test of Weisfeiler and Leman says.

    Example:
        >>> class Degrees(nn.Module):
        ...     def forward(self, x, edge_index):
        ...         source, target = edge_index
        ...         return torch.zeros_like(x).index_add(0, target, x[source]).var()
        >>> star = torch.ones(3, 1), torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
        >>> triangle = torch.ones(3, 1), torch.tensor([[0, 1, 0, 2, 1, 2], [1, 0, 2, 0, 2, 1]])
        >>> wl_ceiling(Degrees(), star, triangle).verdict
        'tells them apart'
    """

    separated: bool
    """Whether outputs differ for some weights."""
    verdict: str
    """What that means, in words."""
    gaps: Float[Tensor, " draws"]
    """By how much outputs differ, relative to the larger one: for the model's own weights, then for
    each draw."""
    renumbered: Float[Tensor, " draws"]
    """The same for the first graph and itself with its nodes numbered anew: 0 up to rounding,
    unless the model looks at positions or node numbers."""
    test: WeisfeilerLeman
    """What the test of Weisfeiler and Leman says of the two graphs."""
    weights: dict[str, Tensor] | None
    """Weights for which outputs differ most; None if they never do."""
    order: Tensor | None
    """A numbering of the first graph's nodes that moves its output; None if none was found."""

    __repr__ = one_line


def wl_ceiling(
    model: nn.Module, g1: Any, g2: Any, *, generator: torch.Generator | None = None
) -> WLCeiling:
    """Can this network tell two graphs apart, with any weights?

    Works on a copy of the model in double precision, in evaluation mode, whose weights are drawn.

    Args:
        model: Any graph network. Outputs of nodes are compared as multisets, others as they are.
        g1: Its input: a tuple or dict with features and edges, or an object that holds them.
        g2: Another one.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If an input holds no graph, outputs are no tensors, or none is finite.

    Example:
        >>> class Sums(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = nn.Linear(1, 8)
        ...     def forward(self, x, edge_index):
        ...         h = self.linear(x).tanh()
        ...         return h.index_add(0, edge_index[1], h[edge_index[0]]).sum(0)
        >>> def cycles(*nexts):
        ...     one = torch.tensor([range(6), nexts])
        ...     return torch.ones(6, 1), torch.cat([one, one.flip(0)], 1)
        >>> hexagon, triangles = cycles(1, 2, 3, 4, 5, 0), cycles(1, 2, 0, 4, 5, 3)
        >>> wl_ceiling(Sums(), hexagon, triangles).verdict
        'cannot tell them apart, nor can 1-WL'
    """
    model = unwrapped(model)
    one, two = read_graph("g1", map_graph(g1, _wide)), read_graph("g2", map_graph(g2, _wide))
    test = _test(one, two)
    copied, gaps, moves, best = deepcopy(model).double(), [], [], None
    with given_back(generator), torch.no_grad(), evaluation(copied):
        where = one.edge_index.device
        order = torch.randperm(one.n, **source(generator, "cpu")).to(where)
        probe = _Probe(copied, int(torch.randint(2**31, (1,), **source(generator, "cpu"))))
        inputs = one.x, two.x, one.renumbered(order)
        for draw in range(1 + _DRAWS):
            if draw:
                _redraw(copied, generator)
            a, b, c = (probe(x, like.n) for x, like in zip(inputs, (one, two, one), strict=True))
            gaps.append(_gap(a, b))
            moves.append(_gap(a, c))
            if gaps[-1] == max(gaps) > _TOLD:
                best = {name: p.clone() for name, p in copied.named_parameters()}
    found, numbers = torch.tensor([gaps, moves], dtype=torch.float64)
    if bool(found.isnan().all()):
        raise ValueError("model must give finite outputs, and gives none for any weights")
    separated, numbered = best is not None, bool((numbers > _TOLD).any())
    verdict = _verdict(test, separated=separated, numbered=numbered)
    return WLCeiling(separated, verdict, found, numbers, test, best, order if numbered else None)


def _wide(t: Tensor) -> Tensor:
    return t.double() if t.is_floating_point() else t


def _test(one: GraphInput, two: GraphInput) -> WeisfeilerLeman:
    """The test with all that is known of nodes and edges as colours."""
    graphs = (one.edge_index, one.n), (two.edge_index, two.n)
    known = (one.nodes, two.nodes), (one.of_edges, two.of_edges)
    colours, kinds = ((_side_by_side(a), _side_by_side(b)) if a or b else None for a, b in known)
    return weisfeiler_leman(*graphs, colours=colours, edge_colours=kinds)


def _side_by_side(tensors: list[Tensor]) -> Tensor | None:
    """All that is known of a node or an edge, in a row."""
    rows = [t.detach().reshape(len(t), -1).double().cpu() for t in tensors]
    return torch.cat(rows, 1) if rows else None


def _verdict(test: WeisfeilerLeman, *, separated: bool, numbered: bool) -> str:
    if numbered:
        return "depends on how nodes are numbered, and so is beyond 1-WL"
    if test.different_at is None:
        beyond = "tells apart what 1-WL cannot, without looking at node numbers"
        return beyond if separated else "cannot tell them apart, nor can 1-WL"
    if separated:
        return "tells them apart"
    return (
        f"did not tell them apart for any weights, although 1-WL does in round {test.different_at}"
    )


class _Probe:
    """Outputs of a network, those of nodes as numbers that do not depend on their order."""

    def __init__(self, model: nn.Module, seed: int):
        self.model, self.seed = model, seed

    def __call__(self, x: Any, n: int) -> Tensor:
        with own_randomness(self.seed):
            args, kwargs = call_arguments(x)
            output = chosen_output(self.model(*args, **kwargs))
        if not isinstance(output, Tensor) or not output.is_floating_point():
            kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(f"model must give a floating-point tensor, got {kind}")
        if not output.ndim or len(output) != n:
            return output.flatten()
        with own_randomness(self.seed):
            rows = output.reshape(n, -1)
            R = torch.randn(rows.shape[1], _PROBES, dtype=rows.dtype).to(rows.device)
            scale = rows.abs().max().clamp(min=1e-30)
            waves = torch.tanh(rows / scale @ R + torch.linspace(-1, 1, _PROBES).to(rows))
        return torch.cat([scale[None], waves.sum(0) * scale])


def _gap(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return 1.0
    size = torch.maximum(a.abs().max(), b.abs().max())
    return float((a - b).abs().max() / size) if size > 0 else float(size)


@torch.no_grad()
def _redraw(model: nn.Module, generator: torch.Generator | None) -> None:
    """Normal weights, of the size that keeps features as large as they are."""
    for p in model.parameters():
        z = torch.randn(p.shape, dtype=torch.float64, **source(generator, "cpu"))
        p.copy_(z / max(1, math.prod(p.shape[1:])) ** 0.5 if p.ndim > 1 else z)
