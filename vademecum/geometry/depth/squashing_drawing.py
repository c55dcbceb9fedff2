"""Influence by hop, beside the bound."""

from typing import TYPE_CHECKING

import torch

from vademecum.geometry.depth.squashing import LeafInfluence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_leaf_influence"]


def draw_leaf_influence(result: LeafInfluence, axes: "Axes | None" = None) -> "Figure":
    r"""Draw how much nodes at each distance move the output, on a logarithmic scale.

    A dot is a node, the line their mean, dashed the mean of the bound $c^r (\hat A^r)_{vu}$. What
    is zero leaves a gap.

    Args:
        result: What `leaf_influence` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> from vademecum.geometry import PolynomialConv, leaf_influence
        >>> edge = torch.tensor([[0, 1], [1, 0]])
        >>> found = leaf_influence(PolynomialConv(2, 2, 1), (torch.randn(2, 2), edge), node=0)
        >>> draw_leaf_influence(found).axes[0].get_xlabel()
        'hops'
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(5.6, 3.6), layout="constrained").subplots()
    mean, bound = (torch.where(t > 0, t, torch.nan) for t in (result.by_hop, result.bound_by_hop))
    seen = (result.influence > 0) & (result.hops >= 0)
    axes.plot(result.hops[seen].cpu(), result.influence[seen].cpu(), "C0.", alpha=0.4)
    axes.plot(mean.cpu(), "C0-", label="influence, mean")
    axes.plot(bound.cpu(), "C1--", label=rf"bound, $c$ = {result.c:.3g}")
    axes.set_yscale("log")
    axes.set_xlabel("hops")
    axes.set_ylabel(r"$\Vert \partial h_v / \partial x_u \Vert$")
    axes.legend(fontsize=8)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
