r"""How a deep linear network learns: its modes, predicted and measured.

On whitened inputs, $\mathbb E[x x^\top] = I$, with $\Gamma = \mathbb E[y x^\top]$, the squared risk
of $x \mapsto A x$ is a constant and $\ell = \frac12 \|A - \Gamma\|_F^2$. Let
$\Gamma = U \Sigma V^\top$, let $A = W^L \cdots W^1$ have balanced weights with
$A(0) = a_0 U V^\top$, and let all weights follow $\tau \dot W^l = -\nabla_{W^l} \ell$. Then
$A(t) = U \operatorname{diag}(a(t)) V^\top$: the modes do not mix, and each has

$$\tau \dot a = L\, a^{2 - 2/L} (s - a)$$

with its singular value $s$. A single layer, $L = 1$, learns all modes at one rate,
$a(t) = s + (a_0 - s) e^{-t/\tau}$. Two layers learn strong modes first, along a sigmoid,

$$a(t) = \frac{s\, e^{2 s t / \tau}}{e^{2 s t / \tau} - 1 + s / a_0}, \qquad
\frac{a_0}{1 + 2 a_0 t / \tau} \text{ for } s = 0,$$

which passes $s / 2$ at $t = \frac{\tau}{2 s} \ln(s / a_0 - 1)$. For $L \ge 3$ the equation is
solved numerically in $\log a$, to a relative error of about $10^{-9}$.

Measured is a network that is trained: by gradient descent, or along the gradient flow itself by
Runge-Kutta steps of order four, $h = 0.1$ of the fastest time constant. These lose a relative
$h^4 / 120 < 10^{-6}$ per time constant, so some $10^{-5}$ until a mode is learned. The prediction
is exact for the aligned start, and an approximation once noise is added to it. The claims are
`mode_dynamics` and `one_layer_flow`.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number
from vademecum.linear.deep_linear import DeepLinearNetwork
from vademecum.randomness import source
from vademecum.results import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LinearNetworkFlow", "draw_modes", "linear_network_flow", "mode_strengths"]

STEP = 0.1
"""A Runge-Kutta step in units of the fastest mode's time constant."""


class LinearNetworkFlow(NamedTuple):
    """Strengths of the modes, a row for each time and a column for each singular value.

    Example:
        >>> flow = linear_network_flow(torch.tensor([[2.0]]), torch.tensor([0.0, 1.0]), depth=1)
        >>> flow.predicted[:, 0], flow.measured[:, 0]  # 2 - (2 - 0.001) / e
        (tensor([1.0000e-03, 1.2646e+00]), tensor([1.0000e-03, 1.2646e+00]))
    """

    depth: int
    """The number of layers."""
    times: Float[Tensor, " times"]
    """When the strengths were looked at."""
    singular_values: Float[Tensor, " modes"]
    """The $s$ of each mode."""
    predicted: Float[Tensor, " times modes"]
    """The strengths by theory."""
    measured: Float[Tensor, " times modes"]
    """The strengths in the network that was trained."""

    __repr__ = one_line


def linear_network_flow(
    gamma: Float[Tensor, " p q"],
    times: Float[Tensor, " times"],
    *,
    depth: int = 2,
    width: int | None = None,
    strength: float = 1e-3,
    tau: float = 1.0,
    learning_rate: float | None = None,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
) -> LinearNetworkFlow:
    r"""The modes of learning of a deep linear network, by theory and by training one.

    Args:
        gamma: The target $\Gamma = \mathbb E[y x^\top]$, for whitened inputs.
        times: When to look, ascending from 0 or later.
        depth: The number $L$ of layers.
        width: The width of the hidden layers, by default the smaller one of `gamma`. Modes beyond
            it are not learned; one layer has none.
        strength: The strength $a_0$ at which the modes start.
        tau: The time constant $\tau$ of the flow.
        learning_rate: Train by gradient descent at this rate, where a step takes the time
            `learning_rate * tau` and strengths between two steps are interpolated; by default
            along the gradient flow.
        noise: The standard deviation of normal numbers added to all weights at the start.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        Predicted and measured strengths, in the dtype and on the device of `gamma`.

    References:
        Saxe, McClelland, Ganguli, Exact solutions to the nonlinear dynamics of learning in deep
        linear neural networks, ICLR, 2014.

    Example:
        >>> gamma = torch.diag(torch.tensor([4.0, 1.0]))
        >>> half = torch.tensor([4.0, 1.0]) / 1e-3 - 1  # passed at log(half) / (2 s)
        >>> flow = linear_network_flow(gamma, half.log() / torch.tensor([8.0, 2.0]))
        >>> flow.measured.diagonal()
        tensor([2.0000, 0.5000])
    """
    gamma = floats("gamma", gamma, ndim=2).detach()
    times = floats("times", times, ndim=1).detach().to(gamma)
    if times[0] < 0 or (times.diff() < 0).any():
        raise ValueError(f"times must ascend from 0 or later, got {times.tolist()}")
    number("tau", tau, above=0)
    number("noise", noise, low=0)
    if learning_rate is not None:
        number("learning_rate", learning_rate, above=0)
    network = DeepLinearNetwork.aligned(gamma, strength, depth=depth, width=width)
    s = torch.linalg.svdvals(gamma)
    k = len(s) if depth == 1 else min(len(s), *network.widths)
    start = torch.where(torch.arange(len(s), device=s.device) < k, strength, 0.0).to(s)
    predicted = _predict(s, start, times / tau, depth)
    units = (times / tau).tolist()
    with torch.no_grad():
        for w in network.weights:
            w += noise * torch.randn(w.shape, **source(generator, "cpu")).to(w)
        if learning_rate is None:
            path = _follow(network, gamma, units)
        else:
            path = _descend(network, gamma, units, learning_rate)
        measured = torch.stack([mode_strengths(product, gamma) for product in path])
    return LinearNetworkFlow(depth, times, s, predicted, measured)


def mode_strengths(
    product: Float[Tensor, " p q"], gamma: Float[Tensor, " p q"]
) -> Float[Tensor, " modes"]:
    r"""The strengths $u_i^\top A v_i$ of the modes of $\Gamma = U \Sigma V^\top$ in a matrix $A$.

    Example:
        >>> gamma = torch.diag(torch.tensor([2.0, 1.0]))
        >>> mode_strengths(torch.tensor([[1.0, 5.0], [0.0, 2.0]]), gamma)
        tensor([1., 2.])
    """
    gamma, product = floats("gamma", gamma, ndim=2), floats("product", product)
    if product.shape != gamma.shape:
        raise ValueError(
            f"product must have the shape {tuple(gamma.shape)} of gamma, got {tuple(product.shape)}"
        )
    u, _, vh = torch.linalg.svd(gamma, full_matrices=False)
    return ((u.mT @ product) * vh).sum(1)


def _predict(s: Tensor, a0: Tensor, t: Tensor, depth: int) -> Tensor:
    if depth > 2:
        return _integrate(s, a0, t, depth)
    t = t[:, None]
    if depth == 1:
        return s + (a0 - s) * torch.exp(-t)
    decayed = torch.exp(-2 * s * t)  # the formula is divided by its inverse, which overflows
    grown = torch.where(s > 0, -torch.expm1(-2 * s * t) / torch.where(s > 0, s, 1), 2 * t)
    return torch.where(a0 > 0, a0 / (decayed + a0 * grown), 0.0)


def _integrate(s: Tensor, a0: Tensor, t: Tensor, depth: int) -> Tensor:
    from scipy.integrate import solve_ivp

    target, start, times = (v.double().cpu().numpy() for v in (s, a0, t))
    moving = start > 0

    def field(_: float, u: np.ndarray) -> np.ndarray:
        a = np.exp(u)
        return depth * a ** (1 - 2 / depth) * (target[moving] - a)

    span = (0, times[-1] or 1.0)
    solved = solve_ivp(field, span, np.log(start[moving]), "DOP853", times, **_PRECISE)
    result = np.zeros((len(times), len(target)))
    result[:, moving] = np.exp(solved.y.T)
    return torch.from_numpy(result).to(s)


_PRECISE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


def _follow(network: DeepLinearNetwork, gamma: Tensor, times: list[float]) -> Iterator[Tensor]:
    """The products at the given times along the gradient flow."""
    depth = len(network.weights)
    norms = [float(torch.linalg.matrix_norm(w, 2)) for w in network.weights]
    start = sum(math.prod(norms[:l] + norms[l + 1 :]) ** 2 for l in range(depth))
    end = depth * float(torch.linalg.matrix_norm(gamma, 2)) ** (2 - 2 / depth)
    fastest = max(start, end)
    now = 0.0
    for t in times:
        steps = math.ceil((t - now) * fastest / STEP)
        for _ in range(steps):
            _runge_kutta(network, gamma, (t - now) / steps)
        now = t
        yield network.product()


def _runge_kutta(network: DeepLinearNetwork, gamma: Tensor, h: float) -> None:
    start = [w.clone() for w in network.weights]
    end = [w.clone() for w in network.weights]
    for share, ahead in ((h / 6, h / 2), (h / 3, h / 2), (h / 3, h), (h / 6, 0.0)):
        slopes = network.gradients(network.product() - gamma)
        for w, w0, w1, slope in zip(network.weights, start, end, slopes, strict=True):
            w1.sub_(slope, alpha=share)
            w.copy_(torch.sub(w0, slope, alpha=ahead) if ahead else w1)


def _descend(
    network: DeepLinearNetwork, gamma: Tensor, times: list[float], rate: float
) -> Iterator[Tensor]:
    """The products at the given times, interpolated between the steps of gradient descent."""
    taken, before = 0, network.product()
    after = before.clone()  # a product of one matrix is the matrix itself
    for t in times:
        while taken * rate < t:
            for w, slope in zip(network.weights, network.gradients(after - gamma), strict=True):
                w.sub_(slope, alpha=rate)
            taken, before, after = taken + 1, after, network.product().clone()
        if not after.isfinite().all():
            raise ValueError(f"learning_rate must be smaller: the weights diverge at {rate}")
        yield torch.lerp(after, before, taken - t / rate)


def draw_modes(flow: LinearNetworkFlow, axes: "Axes | None" = None) -> "Figure":
    """Draw measured strengths (dots) over the predicted ones (lines), a colour for each mode.

    Args:
        flow: What was predicted and measured.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> flow = linear_network_flow(torch.eye(2), torch.linspace(0, 8, 20))
        >>> draw_modes(flow).axes[0].get_ylabel()
        'strength of the mode'
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    times = flow.times.tolist()
    for i, s in enumerate(flow.singular_values.tolist()):
        axes.plot(times, flow.predicted[:, i].tolist(), color=f"C{i}", label=f"s = {s:.3g}")
        axes.plot(times, flow.measured[:, i].tolist(), "o", ms=3, color=f"C{i}")
    axes.set(xlabel="time", ylabel="strength of the mode")
    layers = "one layer" if flow.depth == 1 else f"{flow.depth} layers"
    axes.set_title(f"Modes of {layers}: predicted (lines) and measured (dots)")
    axes.legend(frameon=False)
    return cast(Figure, axes.get_figure(root=True))
