"""Long lags: contractive cells forget, a gated cell need not."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from vademecum.claims import Evidence, at_most, claim, equals
from vademecum.recurrence import CourseLSTM, ElmanRNN, latch_task
from vademecum.recurrence.claims._scalar_cells import sigma, tanh
from vademecum.recurrence.claims.gating import traced

_SLOPES: dict[Any, float] = {"tanh": 1.0, "sigmoid": 0.25, "identity": 1.0}


def contractive(activation: Any, c: float, d: int, m: int, *, rotation: bool = False) -> ElmanRNN:
    """A simple network whose largest slope times the norm of its recurrent matrix is c."""
    net = ElmanRNN(d, m, activation=activation)
    U = torch.linalg.qr(torch.randn(m, m)).Q if rotation else torch.randn(m, m)
    net.U.data = c / _SLOPES[activation] / torch.linalg.matrix_norm(U, 2) * U
    return net


def latch(forget: float) -> CourseLSTM:
    """Two cells that write the first channel where the second is 1, one of them with its sign."""
    net = CourseLSTM(2, 2, mixing=False)
    assert net.bias is not None
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        net.bias[0] = forget
        net.G[:, 1], net.bias[1] = 80.0, -40.0
        net.V[:, 0] = torch.tensor([2.0, -1.0])
        net.bias[3] = 40.0
    return net


@claim(
    by="sampling",
    sources=("A-234", "B-370", "D-279"),
    short=r"|\dot\phi| \le \alpha,\ \alpha \sigma_{\max}(U) = c < 1:\quad"
    r" \|z^T - \tilde z^T\| \le c^{T-1} \|z^1 - \tilde z^1\|",
)
@torch.no_grad()
def long_lag_latch(c: float = 0.9, sooner: int = 0, forget: float = 40.0, T: int = 1000):
    r"""Contractive cells lose what lies far back, a gated latch keeps it.

    Let $\alpha$ bound the slope of the activation. If $\alpha \sigma_{\max}(U) = c < 1$, two input
    sequences that differ only at step 1 end in states at distance at most
    $c^{T-1} \|z^1 - \tilde z^1\|$, so information and gradients about distant steps fade
    exponentially. Gated units were introduced against this: a cell with additive, gated update can
    store a bit for any number of steps.

    *Proof.* $\|\phi(a) - \phi(b)\| \le \alpha \|a - b\|$ at each step. A cell with logits $\pm 40$
    changes by at most $2 \sigma(-40) < 10^{-17}$ of its size a step.

    Checked for tanh ($\alpha = 1$) and logistic ($\alpha = 1/4$) units up to $T = 300$, where
    rounding adds up to $10 (m + d) \varepsilon$ at most; attained by linear units with $U / c$
    orthogonal, in logarithms. The latch is an LSTM with weights set by hand, after 10 to 1000 steps
    of distractors of standard deviation 1 and 10.

    Knobs:
        c: The factor by which the network contracts.
        sooner: By how many steps more than $T - 1$ the distance is said to have shrunk.
        forget: The logit of the latch's forget gate.
        T: How many steps the latch is to hold.
    """
    d, m = 3, 5
    for activation in ("tanh", "sigmoid", "identity"):
        attained = activation == "identity"
        net = contractive(activation, 0.9, d, m, rotation=attained)
        length = 60 if attained else 300
        one = torch.randn(4, length, d)
        other = one.clone()
        other[:, 0] += torch.randn(4, d)
        gaps = torch.linalg.vector_norm(net(one).output - net(other).output, dim=-1)
        steps = torch.arange(length)
        bound = c ** (steps + sooner * (steps > 0)) * gaps[:, :1]
        if attained:
            found = gaps.log() - gaps[:, :1].log()
            stated = (bound / gaps[:, :1]).log().expand_as(found)
            yield equals("log of the distance, attained", found, stated, tol=1e-9)
        yield at_most("distance of states", gaps, bound, tol=1e-13, activation=activation)
    yield from _faded_gradients(c, sooner)
    tasks = [latch_task(4, T, distractors=size) for size in (1.0, 10.0)]
    x, y = (torch.cat(parts) for parts in zip(*(task[:2] for task in tasks), strict=True))
    cells = traced(latch(forget), x).c
    wanted = y * torch.tensor([tanh(2.0), -tanh(1.0)])
    for t in sorted({10, 100, T}):
        yield equals("stored cell", cells[:, t - 1], wanted, tol=1e-12, t=t)


def _faded_gradients(c: float, sooner: int) -> Iterator[Evidence]:
    net, x = contractive("tanh", 0.9, 3, 5), torch.randn(1, 40, 3)

    def last(first: Tensor) -> Tensor:
        return net(torch.cat((first, x[:, 1:]), 1)).state[0]

    with torch.enable_grad():
        first: Any = torch.autograd.functional.jacobian(lambda v: net(v).state[0], x[:, :1])
        found: Any = torch.autograd.functional.jacobian(last, x[:, :1])
    norms = [torch.linalg.matrix_norm(j[:, 0, 0], 2) for j in (found, first)]
    bound = c ** (39 + sooner) * norms[1]
    yield at_most("gradient over 39 steps against its bound", norms[0] / bound, 1.0)


long_lag_latch.foil("a cell whose forget gate is half open", forget=0.0, refuted_by="stored cell")
long_lag_latch.foil("$c^T$ in place of $c^{T-1}$", sooner=1)


def one_step(net: CourseLSTM, x: Tensor, o: Tensor, c: Tensor) -> Tensor:
    """The next cell as a function of the cell, which also acts through what it exposes."""
    return net.step(x, (o * torch.tanh(c), c)).state.c


def whole_jacobian(net: CourseLSTM, x: Tensor, o: Tensor, c: Tensor) -> Tensor:
    """The derivative of the next cell by the cell, by the product rule."""
    trace = traced(net, x[:, None], (o * torch.tanh(c), c))
    f, i, g = (v[0, 0] for v in (trace.f, trace.i, trace.g))
    of_h = [w.detach()[:, net.d :] for w in (net.F, net.G, net.V)]
    slopes = (c[0] * f * (1 - f), g * i * (1 - i), i * (1 - g**2))
    through = sum(s[:, None] * w for s, w in zip(slopes, of_h, strict=True))
    return f.diag() + through * (o[0] * (1 - torch.tanh(c[0]) ** 2))


@claim(
    by="identity",
    sources=("A-234", "B-372", "B-375", "D-282", "D-284"),
    short=r"\text{direct path: } \partial C^T / \partial C^0 ="
    r" \mathrm{diag}(\textstyle\prod_t f^t)",
)
def constant_error_carousel(recurrent: float = 0.0, forget: float = 5.0):
    r"""The cell of an LSTM is a residual path.

    Along the direct path $\partial C^t / \partial C^{t-1} = \mathrm{diag}(f^t)$, so over $T$ steps
    the direct Jacobian is $\mathrm{diag}(\prod_t f^t)$: with forget gates near 1 it stays near the
    identity, as a residual shortcut does, and $f = 1, i = 0$ copies the cell exactly while
    $f = 0, i = 1$ replaces it. The full Jacobian has further terms through $h^{t-1}$ unless the
    recurrent weights vanish. (Quoted: exploding gradients are usually clipped.)

    *Proof.* $C^t = f \odot C^{t-1} + i \odot \tilde C$, where the gates depend on $C^{t-1}$ only
    through $h^{t-1}$.

    Checked at $T = 50$ without recurrent weights, by central differences and by autograd; for a
    forget logit of 5, where $\sigma(5)^{100} = 0.511$, against at most $0.9^{100}$ for a tanh
    network with $\|U\|_2 = 0.9$; the whole Jacobian of one step by the product rule.

    Knobs:
        recurrent: The size of the recurrent weights where the direct path is said to be the whole.
        forget: The forget logit whose product over 100 steps is said to be 0.511.
    """
    d, m = 3, 4
    net = CourseLSTM(d, m, mixing=False)
    for w in (net.F, net.G, net.V, net.H):
        w.data[:, d:] *= recurrent
    x, start = torch.randn(1, 50, d), torch.randn(1, m)

    def end(c: Tensor) -> Tensor:
        return net(x, (torch.zeros_like(c), c)).state.c[0]

    found: Any = torch.autograd.functional.jacobian(end, start)
    product = traced(net, x, (torch.zeros(1, m), start)).f[0].prod(0)
    scale = product.max()  # some 1e-15 of a cell are left after 50 half-open gates
    yield equals("Jacobian over 50 steps", found[:, 0] / scale, (product / scale).diag(), tol=1e-9)
    few = torch.randn(1, 6, d)
    with torch.no_grad():
        steps = 1e-4 * torch.eye(m)
        ends = [net(few.expand(m, 6, d), (torch.zeros(m, m), start + s)).state.c
                for s in (steps, -steps)]  # fmt: skip
        short = traced(net, few, (torch.zeros(1, m), start)).f[0].prod(0)
    yield equals("Jacobian over 6 steps, by differences", (ends[0] - ends[1]) / 2e-4, short.diag(),
                 tol=1e-9)  # fmt: skip
    full, now, o = CourseLSTM(d, m, mixing=False), torch.randn(1, d), torch.rand(1, m)
    jacobian: Any = torch.autograd.functional.jacobian(
        lambda c: one_step(full, now, o, c)[0], start
    )
    by_rule = whole_jacobian(full, now, o, start)
    yield equals("whole Jacobian of one step", jacobian[:, 0], by_rule, tol=1e-12)
    yield from _held(forget)


def _held(forget: float) -> Iterator[Evidence]:
    net, x, c = latch(forget), torch.zeros(1, 100, 2), torch.randn(1, 2)
    jacobian: Any = torch.autograd.functional.jacobian(
        lambda c: net(x, (torch.zeros_like(c), c)).state.c[0], c
    )
    yield equals("Jacobian over 100 steps at forget logit 5", jacobian[:, 0],
                 math.exp(100 * math.log(sigma(5.0))) * torch.eye(2), tol=1e-12)  # fmt: skip
    yield equals("its entry", jacobian[0, 0, 0], 0.511, tol=5e-4)
    simple, x = contractive("tanh", 0.9, 3, 5), torch.randn(1, 100, 3)
    found: Any = torch.autograd.functional.jacobian(
        lambda z: simple(x, z).state[0], torch.zeros(1, 5)
    )
    norm = torch.linalg.matrix_norm(found[:, 0], 2)
    yield at_most("Jacobian of the tanh network against $0.9^{100}$", norm / 0.9**100, 1.0)
    for f, i in ((1000.0, -1000.0), (-1000.0, 1000.0)):
        net, x = CourseLSTM(3, 4), torch.randn(2, 5, 3)
        assert net.bias is not None
        for w in (net.F, net.G):
            w.data.zero_()
        net.bias.data[0], net.bias.data[1] = f, i
        start = torch.randn(2, 4)
        trace = traced(net, x, (torch.zeros(2, 4), start))
        wanted = start[:, None].expand(2, 5, 4) if f > 0 else trace.g
        name = "cell that is kept" if f > 0 else "cell that is replaced"
        yield equals(name, trace.c, wanted, tol=0.0)
    with torch.no_grad():
        kept = latch(40.0)(torch.randn(1, 1000, 2) * torch.tensor([1.0, 0.0]), (c, c)).state.c
    yield equals("cell after 1000 steps at logits 40 and -40", kept, c, tol=1e-12)


constant_error_carousel.foil(
    "the direct path as the whole Jacobian, with recurrent weights", recurrent=1.0
)
constant_error_carousel.foil("forget gates that are half open keep a half", forget=0.0)
