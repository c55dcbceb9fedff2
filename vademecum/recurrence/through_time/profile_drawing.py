"""A profile of Jacobians over time, with its bound."""

import math
from typing import TYPE_CHECKING

import torch

from vademecum.recurrence.through_time.profiles import JacobianProfile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_jacobian_profile"]


def draw_jacobian_profile(result: JacobianProfile, axes: "Axes | None" = None) -> "Figure":
    r"""Draw $\log_{10} \|\partial z_T / \partial z_t\|$ over t.

    A line is the mean over the sequences, a band around it reaches from the least to the largest.
    Each chain has a colour; its bound is dashed. Norms that are zero leave a gap.

    Args:
        result: What `jacobian_profile` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> from vademecum.recurrence.through_time.profiles import jacobian_profile
        >>> figure = draw_jacobian_profile(jacobian_profile(nn.GRU(2, 3), torch.randn(9, 1, 2)))
        >>> figure.axes[0].get_xlabel()
        'step t'
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(5.6, 3.6), layout="constrained").subplots()
    norms = (result.log_norms / math.log(10)).cpu()
    norms = torch.where(norms.isfinite(), norms, math.nan)
    places = torch.arange(1, norms.shape[-1] + 1).numpy()
    for i, name in enumerate(result.chains):
        own, colour = norms[:, i], f"C{i}"
        axes.plot(places, own.mean(0).numpy(), color=colour, label=name)
        if len(own) > 1:
            low, high = own.amin(0).numpy(), own.amax(0).numpy()
            axes.fill_between(places, low, high, color=colour, alpha=0.2, lw=0)
        if result.log_bounds is not None:
            bound = result.log_bounds[i].cpu() / math.log(10)
            axes.plot(places, bound.numpy(), color=colour, ls="--", lw=1)
    axes.set_xlabel("step t")
    axes.set_ylabel(r"$\log_{10} \Vert \partial z_T / \partial z_t \Vert$")
    if len(result.chains) > 1:
        axes.legend(fontsize=8)
    mean = result.lyapunov.mean(0)
    exponents = ", ".join(f"{float(v):.3g}" for v in mean)
    axes.set_title(f"growth per step, in natural logarithms: {exponents}", fontsize=9)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
