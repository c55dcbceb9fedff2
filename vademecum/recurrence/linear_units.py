r"""The linear recurrent unit: a recurrence that is linear and diagonal, and all else pointwise.

With complex states $h_t \in \mathbb C^m$, eigenvalues $\lambda$ inside the unit circle and inputs
$x_t \in \mathbb R^d$, a layer computes

$$h_t = \lambda \odot h_{t-1} + \gamma \odot B u_t, \qquad
y_t = x_t + W \phi\big(\operatorname{Re}(C h_t) + D \odot u_t + b\big) ,$$

$u_t = x_t$, or its layer normalisation. The states of all steps come from one `scan`; nothing else
looks at two steps. Without the residual $y_t$ is a multilayer perceptron of
$\operatorname{Re}(C h_t)$: the first of its matrices is part of $C$.

Parameters are real: $B$ and $C$ are kept as the maps to and from the real and imaginary parts, one
beside the other. Steps and the whole sequence compute the same, up to rounding. The claims are
`lru_eigenvalues`, `diagonal_form` and `nonlinear_readout`.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, cast

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import whole
from vademecum.recurrence._remembered import Remembered
from vademecum.recurrence.linear_scan import scan
from vademecum.recurrence.recurrent_outputs import RecurrentOutput
from vademecum.recurrence.unit_circle import eigenvalues, lru_init, time_scales

__all__ = ["LRU"]


class LRU(nn.Module):
    r"""Linear recurrent units: any number of steps at once, or one at a time.

    Every eigenvalue has a modulus below 1 whatever values the parameters take, also after rounding.

    Args:
        d: The width of inputs and outputs.
        m: The number of complex states of a layer.
        layers: How many layers there are, one after the other.
        r_min: The smallest modulus of an eigenvalue at first.
        r_max: The largest one; near 1 for long memory.
        max_phase: Phases are at first uniform from 0 to this; small ones suit long sequences.
        by: How eigenvalues are spread at first, see `lru_init`.
        norm: Whether layers normalise what they read over its d numbers; for deep stacks. With few
            features it would take too much away.
        activation: What makes $\phi$: a class of modules, or a function without arguments. SiLU
            learns as GELU does, and a step of one sequence takes a tenth less with it.

    Raises:
        ValueError: If a number is out of its range.

    References:
        Orvieto et al., Resurrecting recurrent neural networks for long sequences, ICML 2023.

    Example:
        >>> net = LRU(2, 16, layers=2, r_min=0.9, r_max=0.999)
        >>> x = torch.randn(3, 50, 2)
        >>> y, state = net(x[:, :40])
        >>> rest, _ = net(x[:, 40:], state)
        >>> torch.allclose(torch.cat((y, rest), 1), net(x).output, atol=1e-5)
        True
        >>> one, state = net.step(x[:, 40], state)
        >>> torch.allclose(one, rest[:, 0], atol=1e-5)
        True
    """

    def __init__(
        self,
        d: int,
        m: int,
        *,
        layers: int = 1,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 2 * math.pi,
        by: Literal["area", "modulus"] = "area",
        norm: bool = False,
        activation: Callable[[], nn.Module] = nn.SiLU,
    ):
        super().__init__()
        self.d, self.m = whole("d", d, low=1), whole("m", m, low=1)
        draw = partial(lru_init, m, r_min=r_min, r_max=r_max, max_phase=max_phase, by=by)
        self.layers = nn.ModuleList(
            _Layer(d, m, norm, activation(), *draw()) for _ in range(whole("layers", layers, low=1))
        )

    @property
    def eigenvalues(self) -> Complex[Tensor, " layers m"]:
        """The eigenvalues of each layer's recurrence."""
        return torch.stack([eigenvalues(layer.nu, layer.theta) for layer in self._layers()])

    @property
    def time_scales(self) -> Float[Tensor, " layers m"]:
        r"""$e^{-\nu}$, the steps after which each layer's eigenvalues have faded to $1/e$."""
        return torch.stack([time_scales(layer.nu) for layer in self._layers()])

    def forward(
        self,
        x: Float[Tensor, " n T d"],
        state: Complex[Tensor, " layers n m"] | None = None,
        *,
        reset: Bool[Tensor, " n T"] | None = None,
        lengths: Int[Tensor, " n"] | None = None,
    ) -> RecurrentOutput:
        """The outputs at all steps.

        Args:
            x: The inputs.
            state: What an earlier call gave, to go on from there; zeros by default.
            reset: Where a new sequence begins: nothing before that step is remembered, so that many
                sequences can stand one after the other.
            lengths: How many steps of each sequence count, if shorter ones are padded at their
                ends: outputs beyond are 0, and the state is that of the last step that counts.
        """
        layers = [*self._layers()]
        self._insist_on(x, 3, state, layers)
        if reset is not None and reset.shape != x.shape[:2]:
            raise ValueError(
                f"reset must have the shape {tuple(x.shape[:2])}, got {tuple(reset.shape)}"
            )
        beyond = None
        if lengths is not None:
            _insist_on_lengths(lengths, x)
            beyond = (torch.arange(x.shape[1], device=x.device) >= lengths[:, None])[:, :, None]
            x = x.masked_fill(beyond, 0)  # or a NaN there would enter gradients, as 0 times NaN
        last = []
        for i, layer in enumerate(layers):
            x, h = layer(x, None if state is None else state[i], reset)
            rows = torch.arange(len(h), device=h.device)
            last.append(h[:, -1] if lengths is None else h[rows, lengths - 1])
        return RecurrentOutput(x if beyond is None else x.masked_fill(beyond, 0), torch.stack(last))

    def step(
        self, x: Float[Tensor, " n d"], state: Complex[Tensor, " layers n m"] | None = None
    ) -> RecurrentOutput:
        """The output at the next step.

        Args:
            x: The inputs of this step, one for each sequence.
            state: What the step before gave, or `forward`; zeros by default.
        """
        layers = [*self._layers()]
        self._insist_on(x, 2, state, layers)
        if len(layers) == 1:
            x, h = layers[0].step(x, None if state is None else state[0])
            return RecurrentOutput(x, h.unsqueeze(0))
        following = []
        for i, layer in enumerate(layers):
            x, h = layer.step(x, None if state is None else state[i])
            following.append(h)
        return RecurrentOutput(x, torch.stack(following))

    def _layers(self) -> "list[_Layer]":
        return cast("list[_Layer]", self.layers)

    def _insist_on(
        self, x: Tensor, ndim: int, state: Tensor | None, layers: "list[_Layer]"
    ) -> None:
        if x.ndim != ndim or x.shape[-1] != self.d or (ndim == 3 and not x.shape[1]):
            wanted = f"(n, T, {self.d}), T >= 1" if ndim == 3 else f"(n, {self.d})"
            raise ValueError(f"x must have the shape {wanted}, got {tuple(x.shape)}")
        dtype = layers[0].nu.dtype
        if x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"x must be {dtype} as the parameters are, got {x.dtype}")
        if state is None:
            return
        kind = torch.complex128 if dtype == torch.float64 else torch.complex64
        shape = (len(layers), len(x), self.m)
        if state.dtype != kind or state.shape != shape:
            raise ValueError(
                f"state must be {kind} of shape {shape}, got {state.dtype} of shape"
                f" {tuple(state.shape)}"
            )

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        return f"{self.d}, {self.m}, layers={len(self.layers)}"


def _insist_on_lengths(lengths: Tensor, x: Tensor) -> None:
    fractional = lengths.is_floating_point() or lengths.is_complex()
    if lengths.shape != x.shape[:1] or fractional or lengths.dtype == torch.bool:
        raise ValueError(
            f"lengths must be {len(x)} integers, got {lengths.dtype} of shape"
            f" {tuple(lengths.shape)}"
        )
    if torch.compiler.is_compiling():
        return  # which must not look at numbers
    if len(x) and not (lengths.min() >= 1 and lengths.max() <= x.shape[1]):
        raise ValueError(f"lengths must be from 1 to {x.shape[1]}, got {lengths.tolist()}")


class _Layer(nn.Module):
    """The recurrence, and the perceptron with its residual."""

    def __init__(
        self, d: int, m: int, norm: bool, activation: nn.Module,
        nu: Tensor, theta: Tensor, log_gamma: Tensor,
    ):  # fmt: skip
        super().__init__()
        self.nu, self.theta = nn.Parameter(nu), nn.Parameter(theta)
        self.log_gamma = nn.Parameter(log_gamma)
        self.norm = nn.LayerNorm(d) if norm else None
        self.B = nn.Parameter(torch.randn(2 * m, d) / math.sqrt(2 * d))
        self.C = nn.Parameter(torch.randn(d, 2 * m) / math.sqrt(m))
        self.D, self.bias = nn.Parameter(torch.randn(d)), nn.Parameter(torch.zeros(d))
        self.activation = activation
        self.W = nn.Parameter(torch.randn(d, d) / math.sqrt(d))
        self._constants = Remembered(_constants)

    def forward(
        self, x: Tensor, start: Tensor | None, reset: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The outputs and the states at all steps."""
        u = x if self.norm is None else self.norm(x)
        a, gamma = self._constants(self.nu, self.theta, self.log_gamma)
        b = F.linear(u, self.B * gamma[:, None])
        h = scan(a, _complex(b.unflatten(-1, (-1, 2))), initial=start, reset=reset)
        return self._read(x, u, h), h

    def step(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """The output and the state at the next step, in as few operations as it takes."""
        norm = self.norm
        u = x if norm is None else norm(x)
        a, gamma = self._constants(self.nu, self.theta, self.log_gamma)
        h = _complex((F.linear(u, self.B) * gamma).view(len(x), -1, 2))
        if before is not None:
            h = torch.addcmul(h, a, before)
        parts = torch.view_as_real(h).flatten(1)
        parts = parts if parts.dtype == x.dtype else parts.to(x.dtype)
        r = torch.addmm(torch.addcmul(self.bias, self.D, u), parts, self.C.t())
        return torch.addmm(x, self.activation(r), self.W.t()), h

    def _read(self, x: Tensor, u: Tensor, h: Tensor) -> Tensor:
        """A sum for each unit of the perceptron, and what they make of it beside the residual."""
        parts = torch.view_as_real(h).flatten(-2).to(x.dtype)
        r = torch.addcmul(F.linear(parts, self.C, self.bias), self.D, u)
        return x + F.linear(self.activation(r), self.W)


def _constants(nu: Tensor, theta: Tensor, log_gamma: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues, and the input normalisation of each real and each imaginary part."""
    return eigenvalues(nu, theta), log_gamma.exp().repeat_interleave(2)


def _complex(parts: Tensor) -> Tensor:
    """Complex numbers from their real and imaginary parts, in single precision at least."""
    low = parts.dtype in (torch.bfloat16, torch.float16)
    return torch.view_as_complex(parts.float() if low else parts)
