r"""Affine steps of a network, $h \mapsto L h + c$: what they do to boxes and to linear functions.

A box with centre $m$ and half-widths $\rho$ goes to the box with centre $L m + c$ and half-widths
$|L| \rho$, exactly the smallest box. Where all coefficients of $L$ are at least 0 (moves, sums,
means) its ends are the images of the ends. A linear function $a^T (L h + c)$ of the output is the
linear function $(L^T a)^T h + a^T c$ of the input.

Both are computed in floats, and the run rounds, too. With $S = |L| \max |h| + |c|$, the slack

$$\kappa S + \tau, \qquad \kappa = \frac{g + 2 \gamma_{n + 8}}{1 - 2 \gamma_{n+8}}$$

covers the run's roundings ($g$), those of the images of centre and half-widths ($\gamma_{n+1}$ and
$\gamma_n$ times $S$), that $m$ and $\rho$ themselves were rounded ($3 u S$), the two additions at
the end and the computation of $S$ itself. For linear functions, the coefficients $L^T a$ are off by
at most $\gamma_b |L|^T |a|$, for $b$ terms a coefficient, which costs $\gamma_b |a|^T |L| |h| \le
\gamma_b |a|^T S$: a number for each entry of the output, so that one product with $|a|$ covers all.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vademecum.approximation.piecewise import Affine
from vademecum.models import Call
from vademecum.robustness.bounds._affine_forms import Form, cancelled, convolution, largest, matrix
from vademecum.robustness.bounds._rounding import Arithmetic, gamma, lengths
from vademecum.robustness.bounds._transposed import transposed
from vademecum.robustness.bounds._windows import Window, features, first_window

__all__ = ["AffineStep", "Ends"]

Ends = tuple[Tensor, Tensor]
"""The lower and upper ends of a box for each example."""


class AffineStep:
    """One affine step: what it reads and makes, and the map.

    Args:
        name: The submodule or function, for messages.
        inputs: The numbers of the values that it reads.
        output: The number of the value that it makes.
        map: The map.
        form: How it is summed.
        call: Where it comes from.
    """

    def __init__(
        self, name: str, inputs: tuple[int, ...], output: int, map: Affine, form: Form, call: Call
    ):
        self.name, self.inputs, self.output, self.map, self.form = name, inputs, output, map, form
        self.shapes = [tuple(v.tensor.shape[1:]) for v in call.tensors]
        self.like = call.tensors[0].tensor.new_empty(0)  # the dtype and the device
        self.largest = largest((call.args, call.kwargs))
        self.weight, self.options = convolution(call)
        self.matrix = matrix(call)
        self.cancelled = cancelled(call)
        self.moves = form.moves

    def __call__(self, *h: Tensor) -> Tensor:
        """The step on points."""
        return self.map(*h)

    def box(self, ends: Sequence[Ends], arithmetic: Arithmetic) -> Ends:
        """The box of what boxes are mapped to, by the network of real numbers or the run."""
        if self.form.rising:
            return self._rising(ends, arithmetic)
        centres = [(l + u).mul_(0.5) for l, u in ends]
        widths = [(u - l).mul_(0.5) for l, u in ends]
        middle, half = self.map(*centres), self.map.radius(*widths)
        if self.weight is not None:
            half = half.add_(self._coarse_slack(*ends[0], arithmetic))
        else:
            sizes = [m.abs_().add_(w) for m, w in zip(centres, widths, strict=True)]
            half = half.add_(self.slack(sizes, arithmetic))
        return middle - half, middle.add_(half)

    def _coarse_slack(self, low: Tensor, high: Tensor, arithmetic: Arithmetic) -> Tensor:
        r"""The slack of a convolution with $S \le \|w\|_1 \max |h| + |c|$, without another one."""
        assert self.weight is not None
        top = torch.maximum(-low.flatten(1).amin(1), high.flatten(1).amax(1))
        top = top.view(-1, *[1] * (low.ndim - 1))
        total = self.weight.abs().flatten(1).sum(1).view(-1, *[1] * (low.ndim - 2)) * top
        total = total if self.map.offset is None else total + self.map.offset.detach().abs()
        lost = (top + 1) * (arithmetic.underflow(self.form.terms + self.form.back) * self.largest)
        return total.mul_(self._kappa(arithmetic)).add_(lost)

    def _kappa(self, arithmetic: Arithmetic) -> float:
        g = arithmetic.of_run(self.form.terms, self.form.product)
        own = gamma(self.form.terms + 8, arithmetic.own)
        return (g + 2 * own) / (1 - 2 * own)

    def _rising(self, ends: Sequence[Ends], arithmetic: Arithmetic) -> Ends:
        low, high = (self.map(*each) for each in zip(*ends, strict=True))
        if self.form.terms == 0:
            return low, high
        slack = self.slack([torch.maximum(-l, u) for l, u in ends], arithmetic)
        return low - slack, high + slack

    def slack(self, sizes: Sequence[Tensor], arithmetic: Arithmetic) -> Tensor:
        r"""What rounding may cost, $\kappa S + \tau$, for inputs of these moduli."""
        return self.total(sizes).mul_(self._kappa(arithmetic)).add_(self.lost(sizes, arithmetic))

    def back_slack(self, sizes: Sequence[Tensor], arithmetic: Arithmetic) -> Tensor | None:
        """What rounding may cost for each unit of a coefficient of the output, going backwards."""
        if self.moves and self.form.back == 0 and self.map.offset is None:
            return None
        total = self.total(sizes)
        terms, entries = self.form.terms, total[0].numel()
        g = arithmetic.of_run(terms, self.form.product)
        own = gamma(self.form.back + 8, arithmetic.own) + gamma(terms + 8, arithmetic.own)
        slack = total.mul_((g + own) / (1 - 2 * own))
        if self.map.offset is not None:  # which is summed up over all entries
            slack = slack + self.map.offset.abs() * gamma(entries + 8, arithmetic.own)
        return slack.add_(self.lost(sizes, arithmetic)).mul_(1 + 2 * gamma(entries, arithmetic.own))

    def lost(self, sizes: Sequence[Tensor], arithmetic: Arithmetic) -> float | Tensor:
        """What numbers that underflow may cost."""
        top = torch.stack([size.amax() for size in sizes]).amax() + 1
        return top.mul_(arithmetic.underflow(self.form.terms + self.form.back) * self.largest)

    def total(self, sizes: Sequence[Tensor]) -> Tensor:
        """The sums of moduli $S$."""
        total = self.map.radius(*sizes)
        offset = self.map.offset
        total = total.clone() if offset is None else total + offset.detach().abs()
        return total if self.cancelled is None else total.add_(self.cancelled)

    def pull(self, rows: Tensor, *, moduli: bool = False) -> list[Tensor]:
        """Coefficients `(n, r, *shape)` of the output as coefficients of each input.

        Args:
            rows: The coefficients.
            moduli: Whether by the moduli of the map's coefficients, $|L|^T$.
        """
        if self.weight is not None:
            stride, padding, dilation, groups = self.options
            weight = self.weight.abs() if moduli else self.weight
            back = transposed(
                rows.flatten(0, 1), weight, stride, padding, self.shapes[0][1:], dilation, groups
            )
            return [back.unflatten(0, rows.shape[:2])]
        if self.map.transpose is not None and not moduli:
            return list(self.map.transpose(rows))
        return self._by_autograd(rows, self.map.radius if moduli else self.map.linear)

    def constant(self, rows: Tensor) -> Tensor | None:
        """What coefficients of the output take from the offset, `(n, r)`."""
        offset = self.map.offset
        if offset is None:
            return None
        one = offset.detach()[0] if offset.ndim == rows.ndim - 1 else offset.detach()
        return features(rows) @ one.expand(rows.shape[2:]).reshape(-1)

    def at(self, index: Tensor) -> tuple[Tensor, Window | None] | None:
        """The coefficients of the input for some entries `(n, r)` of the output, if that is cheap.

        Those of a convolution are on windows of the input.
        """
        if self.matrix is not None and len(self.shapes[0]) == 1:
            return self.matrix[index], None
        if self.weight is None or not self.slides:
            return None
        stride, padding = self.options[:2]
        return first_window(self.weight, index, self.counts, stride, padding)

    @property
    def slides(self) -> bool:
        """Whether it is a convolution of all channels, without gaps in its kernel."""
        return self.weight is not None and self.options[3] == 1 and set(self.options[2]) == {1}

    @property
    def counts(self) -> tuple[int, ...]:
        """How many places a convolution has along each axis."""
        assert self.weight is not None
        sizes = zip(self.shapes[0][1:], self.weight.shape[2:], *self.options[:3], strict=True)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)

    def pull_windows(self, rows: Tensor, window: Window) -> tuple[Tensor, Window]:
        """Coefficients of a convolution's output on windows as those of its input."""
        assert self.weight is not None
        stride, padding = self.options[:2]
        wider = window.widened(stride, padding, list(self.weight.shape[2:]))
        back = transposed(rows.flatten(0, 1), self.weight, stride, [0] * len(stride), wider.size)
        return back.unflatten(0, rows.shape[:2]), wider

    def lengths(self, q: float) -> Tensor | None:
        """The dual norms of the rows of the linear map, or more, to be broadcast over outputs."""
        weight = self.matrix if self.weight is None else self.weight
        if weight is None or (self.weight is None and len(self.shapes[0]) != 1):
            return None
        norms = lengths(weight.flatten(1), q, 1)
        return norms.view(-1, *[1] * (weight.ndim - 2))

    def _by_autograd(self, rows: Tensor, linear: Callable[..., Tensor]) -> list[Tensor]:
        flat = rows.flatten(0, 1)
        with torch.enable_grad():
            h = [flat.new_zeros(len(flat), *shape).requires_grad_() for shape in self.shapes]
            out = linear(*h)
            back = torch.autograd.grad(
                out, h, flat, create_graph=rows.requires_grad, materialize_grads=True
            )
        return [each.unflatten(0, rows.shape[:2]) for each in back]
