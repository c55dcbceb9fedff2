r"""Going backwards: a linear function of some layer, bounded by a linear function of the input.

Let $a^T z$ be a function of the values $z$ of a layer. At an affine step $z = L h + c + \delta$ it
is $(L^T a)^T h + a^T c + a^T \delta$, with $|a^T \delta| \le |a|^T D$. At units, which run between
the lines $\underline s z + \underline t \le \varphi(z) \le \overline s z + \overline t$,

$$a^T \varphi(z) \ge (a^+ \underline s + a^- \overline s)^T z + (a^+)^T \underline t
+ (a^-)^T \overline t,$$

with $a^+ = \max(a, 0)$ and $a^- = \min(a, 0)$ (CROWN: Zhang et al., NeurIPS, 2018). At the input
the function is bounded over the region. Upper bounds are lower bounds of $-a$.

Every coefficient is a float, and the inequality holds for the floats as they are: what rounding
does to a coefficient times the largest modulus that its entry may have is taken off at once, as
$|a|^T E$ with a number for each entry, $E$, for each step. Constants are added in double precision.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.robustness.bounds._affine_steps import AffineStep, Ends
from vademecum.robustness.bounds._network import Network
from vademecum.robustness.bounds._pooling_steps import Chosen, PoolStep
from vademecum.robustness.bounds._region import Region
from vademecum.robustness.bounds._rounding import Arithmetic, gamma
from vademecum.robustness.bounds._unit_steps import Lines, UnitStep
from vademecum.robustness.bounds._windows import Window, dense, features, spread

__all__ = ["Descent", "Functions", "Slopes"]

_MOST = 0.5  # of an image that a window may be, beyond which whole images are as quick

Slopes = dict[int, Tensor]
"""Slopes below hinges `(n, r, *shape)`, by the number of the step: those of `Lines` otherwise."""


_Part = tuple[Tensor, Window | None]  # coefficients, and where the windows lie, if on windows
_Pending = dict[int, _Part]


class Functions(NamedTuple):
    """Linear functions of a value, and what is to be added to them."""

    value: int
    """The number of the value."""
    rows: Tensor
    """Their coefficients `(n, r, *shape)`, or those on windows."""
    spent: Tensor
    """What is to be added to them, `(n, r)`, in double precision."""
    window: Window | None = None
    """Where the windows lie, if there are any."""
    begun: bool = False
    """Whether they come out of the step after the value, whose slack they have paid."""


class _Passage(NamedTuple):
    """What the way back through a step needs."""

    slack: Tensor | None = None
    folded: bool = False  # whether the units after it pay its slack
    lines: Lines | None = None
    chosen: Chosen | None = None

    def rows(self, index: Tensor) -> "_Passage":
        def some(part: Lines | Chosen | None) -> Lines | Chosen | None:
            return None if part is None else type(part)(*(t[index] for t in part))

        slack = None if self.slack is None else self.slack[index]
        return _Passage(slack, self.folded, some(self.lines), some(self.chosen))  # type: ignore[arg-type]


class Descent:
    """The way back through a network, as far as boxes of its values are known.

    Args:
        network: The network.
        region: Where its inputs are.
        arithmetic: How it runs, and how bounds are computed.
    """

    def __init__(self, network: Network, region: Region, arithmetic: Arithmetic):
        self.network, self.region, self.arithmetic = network, region, arithmetic
        self.boxes: dict[int, Ends] = {network.source: region.ends}
        self.passages: dict[int, _Passage] = {}
        self._met: dict[int, Tensor] = {}  # moduli of values that are read more than twice
        self._meet(network.source, region.size)

    def rows(self, index: Tensor) -> "Descent":
        """The same for some of the examples."""
        part = Descent(self.network, self.region.rows(index), self.arithmetic)
        part.passages = {at: each.rows(index) for at, each in self.passages.items()}
        part._met = {value: size[index] for value, size in self._met.items()}
        return part

    def _meet(self, value: int, size: Tensor) -> None:
        """Keep what sums of three or more coefficients cost: their first sums may cancel."""
        if self.network.uses.get(value, 0) > 2:
            self._met[value] = size

    def learn(self, at: int) -> None:
        """Make the way back through a step, whose inputs have their final boxes."""
        step, own = self.network.steps[at], self.arithmetic.own
        boxes = [self.boxes[name] for name in step.inputs]
        if isinstance(step, AffineStep):
            sizes = [torch.maximum(-l, u) for l, u in boxes]
            passage = _Passage(step.back_slack(sizes, self.arithmetic))
        elif isinstance(step, UnitStep):
            passage = self._unit(step, boxes[0])
        else:
            passage = _Passage(chosen=step.chosen(boxes[0], self.arithmetic))
        uses = self.network.uses.get(step.output, 1)
        if uses > 1:  # coefficients that come by several ways are added up
            l, u = self.boxes[step.output]
            size = torch.maximum(-l, u)
            self._meet(step.output, size)
            more = size * gamma(uses + 4, own)
            more = more if passage.slack is None else more + passage.slack
            passage = passage._replace(slack=more)
        self.passages[at] = passage

    def _unit(self, step: UnitStep, box: Ends) -> _Passage:
        lines, own = step.lines(box, self.arithmetic), self.arithmetic.own
        z, m = torch.maximum(-box[0], box[1]), box[0][0].numel()
        steep = torch.maximum(lines.low_slope.abs(), lines.high_slope.abs())
        if step.unit.hinge is not None:
            steep = steep.clamp(min=1)  # whatever slope is taken below
        shift = torch.maximum(lines.low.abs(), lines.high.abs())
        slack = (steep * z).mul_(gamma(8, own)).add_(shift, alpha=gamma(m + 8, own))
        before = self.network.maker.get(step.inputs[0])
        paid = None if before is None else self.passages[before].slack
        if before is not None and paid is not None and self.network.uses[step.inputs[0]] == 1:
            slack = slack.add_(steep * paid)  # in one product with these coefficients, no smaller
            self.passages[before] = self.passages[before]._replace(folded=True)
        slack = slack.mul_(1 + 3 * gamma(m + 8, own)).add_(self.arithmetic.underflow(m))
        return _Passage(slack, lines=lines)

    def of(self, value: int, rows: Tensor) -> Functions:
        """Linear functions of a value from their coefficients."""
        return Functions(value, rows, rows.new_zeros(rows.shape[:2], dtype=torch.float64))

    def entries(self, at: int, index: Tensor) -> Functions:
        """Some entries `(n, r)` of what a step makes, and their negatives after them."""
        step = self.network.steps[at]
        begun = step.at(index) if isinstance(step, AffineStep) and len(step.inputs) == 1 else None
        if begun is None or not isinstance(step, AffineStep):
            rows = _one_hot(index, self.network.shapes[step.output], self.arithmetic.own)
            return self.of(step.output, torch.cat([rows, -rows], 1))
        (rows, window), slack = begun, self.passages[at].slack
        offset = torch.zeros(index.shape, dtype=torch.float64, device=index.device)
        if step.map.offset is not None:
            one = step.map.offset.detach().expand(self.network.shapes[step.output])
            offset = one.reshape(-1)[index].double()
        lost = 0.0 if slack is None else slack.flatten(1).gather(1, index).double()
        rows = torch.cat([rows, -rows], 1)
        spent = torch.cat([offset - lost, -offset - lost], 1)
        window = None if window is None else window.twice()
        return self._fitted(Functions(step.inputs[0], rows, spent, window, begun=True))

    def least(
        self,
        functions: Functions,
        slopes: Slopes | None = None,
        *,
        seen: dict[int, Window | None] | None = None,
    ) -> Tensor:
        """Lower bounds `(n, r)` of linear functions of a value, in double precision.

        Args:
            functions: The functions.
            slopes: The slopes below hinges; by default those of least area.
            seen: Where to note the steps that were passed, and the windows there.
        """
        value, rows, total, window, begun = functions
        size, paid = total.abs(), begun
        pending: _Pending = {value: (rows, window)}
        for at in range(self.network.maker.get(value, -1), -1, -1):
            step = self.network.steps[at]
            found = pending.pop(step.output, None)
            if found is None:
                continue
            if seen is not None:
                seen[at] = found[1]
            parts, more = self.through(at, *found, (slopes or {}).get(at), first=not paid)
            total, size, paid = total + more, size + more.abs(), True
            for name, part in zip(step.inputs, parts, strict=True):
                lost = self._add(pending, name, part)
                total, size = total - lost, size + lost
        last = self.region.least(*pending.pop(self.network.source), self.arithmetic)
        steps = len(self.network.steps) + 8  # additions, in double precision
        return total + last - (size + last.abs()) * (steps * 2.0**-51)

    def _add(self, pending: _Pending, value: int, part: _Part) -> Tensor | float:
        """Add coefficients to those that came by other ways: what that may cost of the bound."""
        before = pending.get(value)
        pending[value] = part if before is None else (before[0] + part[0], None)
        if before is None or value not in self._met:
            return 0.0
        lost = _dot(pending[value][0].abs(), self._met[value][:, None])
        return lost * (2 * gamma(1, self.arithmetic.own))

    def through(
        self,
        at: int,
        a: Tensor,
        window: Window | None = None,
        slopes: Tensor | None = None,
        *,
        first: bool = True,
    ) -> tuple[list[tuple[Tensor, Window | None]], Tensor]:
        """Coefficients of a step's output as those of its inputs, and what is to be added."""
        step, passage = self.network.steps[at], self.passages[at]
        if isinstance(step, UnitStep):
            rows, spent = self._through_units(a, window, passage, slopes)
            return [(rows, window)], spent
        spent = a.new_zeros(a.shape[:2], dtype=torch.float64)
        if passage.slack is not None and (first or not passage.folded):
            spent = spent - _dot(a.abs(), spread(passage.slack, window))
        if isinstance(step, PoolStep):
            assert passage.chosen is not None
            rows, more = step.pull(a, passage.chosen, self.network.shapes[step.inputs[0]])
            return [(rows, None)], spent + more
        constant = step.constant(a)
        spent = spent if constant is None else spent + constant
        if window is None:
            return [(rows, None) for rows in step.pull(a)], spent
        rows, window = step.pull_windows(a, window)
        found = self._fitted(Functions(step.inputs[0], rows, spent, window))
        return [(found.rows, found.window)], spent

    def _fitted(self, functions: Functions) -> Functions:
        """The same on whole images, where windows no longer pay or what comes before has none."""
        value, rows, _, window, _ = functions
        if window is None:
            return functions
        shape, at = self.network.shapes[value], self.network.maker.get(value)
        fits = window.share(shape) <= _MOST and self.network.uses[value] == 1
        if fits and at is not None:
            step = self.network.steps[at]
            maker = self.network.maker.get(step.inputs[0])
            conv = None if maker is None else self.network.steps[maker]
            fits = isinstance(step, UnitStep) and self.network.uses[step.inputs[0]] == 1
            fits = fits and isinstance(conv, AffineStep) and conv.slides
        if fits:
            return functions
        return functions._replace(rows=dense(rows, window, shape), window=None)

    def _through_units(
        self, a: Tensor, window: Window | None, passage: _Passage, slopes: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        lines, slack = passage.lines, passage.slack
        assert lines is not None
        assert slack is not None
        above, below = a.clamp(min=0), a.clamp(max=0)
        spent = _dot(above, spread(lines.low - slack, window))
        spent = spent + _dot(below, spread(lines.high + slack, window))
        low = spread(lines.low_slope, window) if slopes is None else slopes
        high = spread(lines.high_slope, window)
        if a.requires_grad or low.requires_grad:
            return above * low + below * high, spent
        return above.mul_(low).addcmul_(below, high), spent


def _dot(rows: Tensor, vectors: Tensor) -> Tensor:
    """The products of rows `(n, r, *shape)` with `(n, 1 or r, *shape)`, in double precision."""
    if vectors.shape[1] == 1:
        return (features(rows) @ features(vectors).mT)[..., 0].double()
    return features(rows * vectors).sum(2).double()


def _one_hot(index: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The functions that are entries `(n, r)` of a value."""
    size = torch.Size(shape).numel()
    rows = torch.zeros(*index.shape, size, dtype=dtype, device=index.device)
    return rows.scatter_(2, index[..., None], 1).view(*index.shape, *shape)
