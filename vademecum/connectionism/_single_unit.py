r"""The perceptron rule for one unit, from mistake to mistake.

Between two mistakes the weights stay as they are, so the scores of all examples up to the next
mistake are one product. How far off that mistake is, is not known: a few examples are scored, then
twice as many, and so on, and after a mistake the search begins anew behind it. So an epoch with $m$
mistakes takes about $m$ such searches, and each example is scored about twice.

This is the sequential rule itself, in its arithmetic: every score is computed with the weights that
the example meets. Each mistake costs a handful of small NumPy calls, some microseconds, which is
what bounds the time on data where mistakes are frequent; elsewhere it is the product's.
"""

import numpy as np

__all__ = ["show"]

LOOK, STRIP = 32, 256  # examples scored at once behind a mistake; those copied into order at once


def show(
    x: np.ndarray, y: np.ndarray, w: np.ndarray, b: float, *, bias: float, order: np.ndarray | None
) -> tuple[float, int, float]:
    """Show all examples once; changes the weights in place.

    Args:
        x: The examples, (n, d).
        y: Their labels, -1 or +1.
        w: The weights, (d,).
        b: The bias.
        bias: What an update adds to the bias, times the label: 1, or 0 if there is to be none.
        order: How to show the examples, by their indices; None for the given order.

    Returns:
        The bias, the number of mistakes and the summed loss.

    Example:
        >>> w = np.zeros(2)
        >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.array([1.0, 1.0, -1.0])
        >>> show(x, y, w, 0.0, bias=1.0, order=None), w
        ((0.0, 2, 0.0), array([2., 1.]))
    """
    mistakes, loss = 0, 0.0
    strip = np.empty((STRIP, x.shape[1]), x.dtype)  # for all strips: memory anew costs as much
    for start in range(0, len(x), STRIP):
        x_s, y_s = x[start : start + STRIP], y[start : start + STRIP]
        if order is not None:
            rows = order[start : start + STRIP]
            x_s, y_s = x.take(rows, 0, out=strip[: len(rows)], mode="clip"), y[rows]
        signs, i, look = y_s.tolist(), 0, LOOK
        while i < len(signs):
            margins = x_s[i : i + look].dot(w)
            margins += b
            margins *= y_s[i : i + look]
            right = margins > 0
            first = int(right.argmin())
            if right[first]:
                i, look = i + look, 2 * look
                continue
            i += first
            (np.add if signs[i] > 0 else np.subtract)(w, x_s[i], out=w)
            b += bias * signs[i]
            mistakes, loss = mistakes + 1, loss - margins.item(first)
            i, look = i + 1, LOOK
    return b, mistakes, loss
