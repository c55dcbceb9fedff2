"""A certificate of descent as a picture: the gap below its bound, step by step."""

from typing import TYPE_CHECKING

from vademecum.optimization.certificates.descent_certificates import DescentCertificate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_descent"]

_NAMES = {
    "gap": "f − f*",
    "gradient": "least squared gradient norm",
    "distance": "mean squared distance to the minimiser",
}


def draw_descent(result: DescentCertificate, axes: "Axes | None" = None) -> "Figure":
    """Draw the gap and its bound over the steps, on a logarithmic scale.

    Args:
        result: What `certify_descent` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save; the intervals of a stochastic method are shaded.

    Example:
        >>> from vademecum.optimization.certificates.descent_certificates import certify_descent
        >>> figure = draw_descent(certify_descent(lambda x: x @ x, torch.ones(2), L=2.0, mu=1.0))
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['bound', 'measured']
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(5.0, 3.6), layout="constrained").subplots()
    t, low = result.steps.numpy(), result.low.clamp(min=1e-300).numpy()
    axes.plot(t, result.bound.numpy(), "--", label="bound")
    axes.plot(t, result.gap.numpy(), label="measured")
    if not result.low.equal(result.high):
        axes.fill_between(t, low, result.high.numpy(), color="C1", alpha=0.2, lw=0)
    axes.set(yscale="log", xlabel="step", ylabel=_NAMES[result.measures])
    words = {True: "the bound held", False: "the bound was violated", None: "inconclusive"}
    title = f"{result.method}, {result.assuming}: {words[result.held]}"
    axes.set_title(f"{title}, tightness {result.tightness:.3g}".replace("_", " "), fontsize=9)
    axes.legend(frameon=False, fontsize="small")
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
