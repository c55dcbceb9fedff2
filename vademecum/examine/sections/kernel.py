r"""Kernel: the tangent kernel's spectrum, how well it fits the targets, and what it predicts.

While the kernel $K$ of $n$ examples with $k$ outputs stays what it is, gradient descent on the
squared error shrinks the residual along an eigenvector of the eigenvalue $\lambda$ by
$1 - \lambda / \lambda_{\max}$ in each step of half the largest stable size, so that it takes some
$\lambda_{\max} / \lambda$ steps. The alignment of $K$ with the targets is held against that with
the same targets in random order. Where a network has more outputs than can be taken one by one, a
few random combinations stand for them, whose kernel has the same trace in the mean.
"""

import math
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.examine._clock import Clock
from vademecum.examine._section import Drawing, Item, NotApplicable, Sentence, optional
from vademecum.examine._study import Study
from vademecum.examine.dossier import Measurement
from vademecum.examine.sections._counts import counted
from vademecum.examine.sections._infinite_width import outputs_of, twin_of_infinite_width
from vademecum.gradients import hvp
from vademecum.kernels import (
    empirical_ntk,
    kernel_alignment,
    lazy_ratio,
)
from vademecum.models import chosen_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CLAIMS", "kernel"]

CLAIMS = (
    "kernels.neural_tangent_kernel", "kernels.function_space_flow", "kernels.lazy_training_ratio",
    "kernels.infinite_width_predictor",
)  # fmt: skip
"""Claims of the course that stand behind it."""
_FIRST, _LAST, _ROWS = 16, 256, 1024
"""Examples that it begins and ends with, and rows of the kernel at most."""
_OUTPUTS, _COMBINED = 32, 4
"""Outputs that are taken one by one at most, and random combinations in place of more."""
_SHUFFLES, _LAZY, _LAZY_PRODUCTS = 200, 4, 60
_ROUNDING, _SOLVER, _COARSE, _ZERO = 1.0, 8.0, 4.0, 0.05
"""Units in the last place of the largest eigenvalue: those that a kernel in single precision is off
by, at most 0.76 observed for 96 examples of six small networks (perceptron, convolutions, LSTM,
GPT), at its zero eigenvalues 0.02; and, in double precision, a margin for the solver, not measured.
Of a network in half precision, whose kernel is in single precision, by units of the network: the
largest was off by at most 1.6, and the zero ones, products of two derivatives that are off, by
0.007 squared units of bfloat16 (eleven small networks of both kinds, twelve times, with inputs that
are up to 30 spreads away from zero).
"""


def kernel(study: Study, clock: Clock) -> Iterator[Item]:
    """The tangent kernel on some examples, and the twin of infinite width."""
    if study.n is None:
        raise NotApplicable("because its examples hang together, and a kernel compares them")
    if not study.trained:
        raise NotApplicable("because it has no parameters")
    z = outputs_of(study, study.take(2)[0])
    if z.shape[0] != 2:
        raise NotApplicable("because its outputs are not one row of numbers for each example")
    k = z[0].numel()
    choose = partial(_chosen, output=study.output, mix=_mix(study, k))
    rows = min(k, _COMBINED) if k > _OUTPUTS else k
    last = max(2, min(study.n, _LAST, _ROWS // rows))
    found = None
    for m in clock.portions(_FIRST, last, power=1.7):
        x, y = study.take(m)
        K = empirical_ntk(study.model, x, memory=study.room, output=choose, frozen=study.frozen)
        found = _Spectrum(K, study.dtype)
        yield from found.told(k, rows)
        yield from _aligned(study, K, y, rows == k)
        if rows == k:
            yield from _times(study, found, x, y)
        yield Drawing(partial(_drawn, found.values))
        yield Sentence(_sentence(found))
    clock.check()
    yield from _laziness(study, clock, choose)
    clock.check()
    own = clock.spend(1.0)
    yield from twin_of_infinite_width(study, own)
    clock.cut = ", ".join(filter(None, (clock.cut, own.cut)))


class _Spectrum:
    """Eigenvalues and eigenvectors of a kernel, in double precision, the largest first."""

    def __init__(self, K: Tensor, dtype: torch.dtype | None = None):
        self.n, self.k = K.shape[0], K.shape[2]
        matrix = K.transpose(1, 2).reshape(self.n * self.k, -1).double()
        values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
        self.values, self.vectors = values.flip(0).clamp(min=0).cpu(), vectors.flip(1)
        units = _ROUNDING * torch.finfo(K.dtype).eps, _SOLVER * torch.finfo(torch.float64).eps
        coarse = torch.finfo(dtype or K.dtype).eps
        half = coarse > torch.finfo(K.dtype).eps
        self.rounding = max(*units, _ZERO * coarse**2 if half else 0.0) * float(self.values[0])
        self.error = _COARSE * coarse * float(self.values[0]) if half else self.rounding
        self.rank = int((self.values > self.rounding).sum())

    def told(self, k: int, rows: int) -> Iterator[Item]:
        of = f"of {self.n} examples with {self.k} outputs" if rows == k else (
            f"of {self.n} examples with {rows} random combinations of {k} outputs"
        )  # fmt: skip
        top = float(self.values[0])
        yield Measurement("largest_eigenvalue", top, self.error, "", self.n, f"rate, {of}",
                          error_of="arithmetic")  # fmt: skip
        yield Measurement("trace", float(self.values.sum()), None, "", self.n, of)
        yield Measurement("rank", self.rank, None, "", self.n, f"of {len(self.values)}, {of}")
        if top > 0:
            rank = float(self.values.sum()) / top
            yield Measurement("effective_rank", rank, None, "", self.n, "trace over the largest")
            least = float(self.values[self.rank - 1])
            how = "largest over smallest eigenvalue above rounding"
            yield Measurement("condition", top / least, None, "", self.n, how)
            middle = float(self.values[self.rank // 2])
            how = "steps, of half the largest stable size, for the middle eigendirection"
            yield Measurement("median_steps", top / middle, None, "steps", self.n, how)
            shown = self.values[:: max(1, len(self.values) // 32)]
            steps = tuple((top / shown.clamp(min=self.rounding)).tolist())
            how = "of evenly spaced directions; at least so many where the eigenvalue is rounding"
            yield Measurement("steps", steps, None, "steps", self.n, how)


def _mix(study: Study, k: int) -> Tensor | None:
    """Random combinations of outputs, if there are many."""
    if k <= _OUTPUTS:
        return None
    signs = torch.randint(2, (k, _COMBINED), generator=study.generator("combinations"))
    return ((2 * signs - 1) / _COMBINED**0.5).to(study.device, study.dtype)


def _chosen(result: Any, *, output: Any, mix: Tensor | None) -> Tensor:
    z = chosen_output(result, output)
    z = z.reshape(len(z), -1)  # one number for each example is a column of them
    return z if mix is None else z @ mix.to(z.dtype)


def _aligned(study: Study, K: Tensor, y: Any, whole: bool) -> Iterator[Item]:
    """The alignment with the targets, and that with targets in random order."""
    traces = K.diagonal(dim1=2, dim2=3).sum(-1)
    if not isinstance(y, Tensor):
        return
    if y.is_floating_point():
        y, matrix = y.reshape(len(y), -1), (K if whole and y[0].numel() == K.shape[2] else traces)
    else:
        matrix = traces
        y = y if y.ndim == 1 else None
    if y is None or float((y != y[0]).sum()) == 0:
        return
    with optional("the alignment with the targets"):
        value = float(kernel_alignment(matrix, y, centered=True))
        draw = study.generator("shuffles")
        orders = [torch.randperm(len(y), generator=draw).to(y.device) for _ in range(_SHUFFLES)]
        by_chance = torch.tensor(
            [float(kernel_alignment(matrix, y[i], centered=True)) for i in orders]
        ).double()
        how = "cosine of the centred kernel with that of the targets"
        yield Measurement("alignment", value, None, "", len(y), how)
        spread = float(by_chance.std())
        how = f"mean over {_SHUFFLES} random orders of the targets; the error is their spread"
        yield Measurement("alignment_by_chance", float(by_chance.mean()), spread, "", len(y), how,
                          error_of="spread")  # fmt: skip


def _times(study: Study, found: _Spectrum, x: Any, y: Any) -> Iterator[Item]:
    """How many steps the kernel predicts until a tenth of the residual is left."""
    wanted = _targets(study, y, found.k)
    if wanted is None:
        return
    z = outputs_of(study, x).double().reshape(wanted.shape)
    residual = (wanted.to(z) - z).flatten()
    shares = (found.vectors.to(z).T @ residual).square().cpu()
    if float(shares.sum()) <= 0:
        return
    shares, rates = shares / shares.sum(), found.values / found.values[0]
    rates[found.rank :] = 0
    kept = float(shares[found.rank :].sum())
    how = "of the squared residual lies where the kernel cannot be told from zero"
    yield Measurement("unlearnable_share", kept, None, "", found.n, how)
    answers = z.softmax(1) if study.aim.task == "classification" else z
    missed = (wanted.to(z) - answers).square().sum()
    spread = (wanted - wanted.double().mean(0)).square().sum()
    if float(spread) > 0:
        how = "squared residual, of probabilities for classes, over the targets' own spread"
        yield Measurement("left_to_learn", float(missed / spread.to(z)), None, "", found.n, how)
    how = "steps, of half the largest stable size, until a tenth of the residual is left"
    steps = _until(shares, rates, 0.01)
    yield Measurement("steps_to_a_tenth", steps, None, "steps", found.n, how)


def _targets(study: Study, y: Any, k: int) -> Tensor | None:
    """Targets as numbers, (n, k); classes as rows of the identity matrix."""
    if not isinstance(y, Tensor):
        return None
    if y.is_floating_point():
        return y.flatten(1) if y.ndim > 1 and y[0].numel() == k else y[:, None] if k == 1 else None
    if y.ndim == 1 and k > 1 and study.aim.task == "classification":
        return F.one_hot(y.long(), k)
    return None


def _until(shares: Tensor, rates: Tensor, left: float) -> float:
    """When the squared residual is the share `left` of what it was, infinite if never."""

    def remaining(t: float) -> float:
        return float((shares * torch.exp(-2 * rates * t)).sum())

    if float(shares[rates <= 0].sum()) >= left:
        return math.inf
    low, high = 0.0, 1.0
    while remaining(high) > left:
        low, high = high, 2 * high
        if high > 1e15:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if remaining(middle) > left else (low, middle)
    return high


def _laziness(study: Study, clock: Clock, choose: Any) -> Iterator[Item]:
    """How far the network is from its linearisation, example by example."""
    if study.dtype not in (torch.float32, torch.float64):
        return

    def first(result: Any) -> Tensor:
        return choose(result)[:, :1]

    knobs: Any = {"output": first, "frozen": study.frozen}
    with optional("the lazy ratio"):
        x, v = study.take(1)[0], torch.ones(sum(p.numel() for p in study.trained))
        start = clock.left()
        hvp(study.model, x, None, v.to(study.device, study.dtype), loss=_total, **knobs)
        each = _LAZY_PRODUCTS * (start - clock.left())
        ratios: list[float] = []
        for i in range(min(_LAZY, study.n or 0)):
            if each > clock.left():
                clock.cut = clock.cut or f"{i} of {_LAZY} examples for the lazy ratio"
                break
            start = clock.left()
            few, _ = study.data.rows(study.order[i : i + 1])
            found = lazy_ratio(study.model, few, tol=1e-2, max_iter=_LAZY_PRODUCTS,
                               generator=study.generator("laziness"), **knobs)  # fmt: skip
            ratios.append(float(found.ratio.max()))
            each = start - clock.left()
            middle, span = median(ratios), (min(ratios), max(ratios))
            how = "curvature of the first output over its squared slope: median and range"
            yield Measurement("lazy_ratio", middle, span, "", len(ratios), how, error_of="spread")


def _total(z: Tensor, y: Any) -> Tensor:
    return z.sum()


def _sentence(found: _Spectrum) -> str:
    if not found.rank:
        return "Its outputs do not depend on its parameters."
    top, middle = float(found.values[0]), float(found.values[found.rank // 2])
    steps = counted(top / middle)
    which = f"half of the {found.rank} directions" if found.rank > 1 else "the one direction"
    return (
        f"If it trained as its tangent kernel says, {which} in which its outputs can move would"
        f" take {steps} step{'s' * (steps != '1')} or more."
    )


def _drawn(values: Tensor) -> "Figure":
    """The eigenvalues, the largest first."""
    from vademecum.canvas import panels

    figure, axes = panels((6.4, 3.2))
    kept = values[values > 1e-12 * values[0]]
    axes.loglog(torch.arange(1, len(kept) + 1), kept, ".-", ms=3)
    axes.set_xlabel("eigenvalues, the largest first")
    axes.set_ylabel("rate of learning")
    return figure
