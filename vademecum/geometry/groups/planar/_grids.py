r"""Which sizes a grid of windows fits without a rest, so that turns take it onto itself.

Windows that span $K$ places start at $-P, -P + S, \dots$ along an axis of $I$ places. The mirror
image of the last one is the first one if $S$ divides $I + 2 P - K$. Otherwise places at one end are
left out, turned images are sampled elsewhere, and equivariance is lost.
"""

__all__ = ["insist_on_grid"]


def insist_on_grid(sizes: tuple[int, ...], span: int, stride: int, padding: int) -> None:
    """Refuse heights and widths at whose end something is left over.

    Args:
        sizes: Height and width.
        span: The places K that a window spans.
        stride: The step S from window to window.
        padding: The places P added at either end.

    Raises:
        ValueError: If there is a rest; it names the nearest sizes that fit.
    """
    for name, size in zip(("height", "width"), sizes, strict=True):
        room = size + 2 * padding - span
        if room < 0:
            raise ValueError(f"{name} must be >= {max(1, span - 2 * padding)}, got {size}")
        if rest := room % stride:
            below = [size - rest] if size - rest > 0 else []
            fit = " or ".join(map(str, [*below, size - rest + stride]))
            raise ValueError(
                f"{name} must be {fit}, or differ from that by multiples of the stride {stride},"
                f" for an exact symmetry, got {size}"
            )
