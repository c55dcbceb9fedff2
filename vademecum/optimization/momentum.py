r"""Momentum: Polyak's heavy ball and Nesterov's accelerated gradient.

With the last displacement $v_t = \theta_t - \theta_{t - 1}$, $v_0 = 0$, step size $\eta_t$ and
momentum $\beta_t$, the **heavy ball** is

$$\theta_{t + 1} = \theta_t - \eta_t g_t + \beta_t (\theta_t - \theta_{t - 1}),
\qquad g_t = \nabla f(\theta_t),$$

and **Nesterov**'s method takes the gradient where the momentum alone would lead,

$$y_t = \theta_t + \beta_t (\theta_t - \theta_{t - 1}), \qquad
\theta_{t + 1} = y_t - \eta_t \nabla f(y_t).$$

There the parameters hold $y_t$, for a gradient is taken where the parameters are; the context
`iterates()` shows $\theta_t$.

*torch's momentum* keeps a sum of gradients, $b \leftarrow \mu b + g$, and moves by $-\eta b$. So
$v = -\eta b$ as long as $\eta$ stays what it is. When it changes, torch rescales the way so far by
$\eta_t / \eta_{t - 1}$, while here a displacement remains what it was:

$$b_{t + 1} = \beta_t \frac{\eta_{t - 1}}{\eta_t} b_t + g_t, \qquad v_{t + 1} = -\eta_t b_{t + 1},$$

which is torch's fused kernel with another $\mu$, at no further cost. With $\eta_t = 0$ the ball
rolls on, $b$ in units of the last step size that was not 0. Exact up to rounding, but for
void steps on an accelerator, which count: a step size that changes there rescales $v$ once, and a
momentum $y - \theta$. The claims are `heavy_ball`, `heavy_ball_unrolled` and `nesterov`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT
from torch.optim.sgd import sgd

from vademecum.arguments import number
from vademecum.optimization._stepping import Batch, Descent, downhill, together

__all__ = ["HeavyBall", "Nesterov"]

_FUSED = ("cpu", "cuda")


class _Momentum(Descent):
    """Sums of gradients $b$ and a scale $s$ with $v = -s b$; abstract."""

    _nesterov: bool

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {"momentum_buffer": torch.zeros_like(p), "scale": None, "ahead": 0.0}

    def _momenta(self, group: dict[str, Any], last: float) -> tuple[float, float]:
        """What the last displacement is multiplied by, and the new one to extrapolate."""
        raise NotImplementedError

    def _update(self, group: dict[str, Any], batch: Batch) -> None:
        for (before, last), part in _alike(batch):
            kept, ahead = self._momenta(group, last)
            move = _move(group["lr"], before, kept, ahead)
            if not self._by_torch(group, part, move):
                self._by_hand(group, part, move)
            for state in part.states:
                state["scale"], state["ahead"] = move.scale, move.ahead

    def _by_torch(self, group: dict[str, Any], batch: Batch, move: "_Move") -> bool:
        """Take the step by torch's momentum, if it is one; the fused kernel knows void steps."""
        params, grads, buffers, void = batch.params, batch.grads, _buffers(batch), None
        fused = group["foreach"] is None and _can_be_fused(batch)
        usual = isinstance(move.share, float) and move.share == 1.0 and move.kept != 0
        if not usual or (self._nesterov and not move.ahead) or not (fused or batch.keep is None):
            return False
        if self._nesterov and move.kept != move.ahead:
            factor = move.kept / move.ahead
            _scale(group, buffers, factor if batch.keep is None else _held(factor, batch.keep))
        if batch.keep is not None:
            void = 1 - batch.keep.float()  # the only kind that torch takes
        sgd(
            params, grads, list(buffers), has_sparse_grad=False, fused=fused,
            foreach=not fused and together(group, params), found_inf=void, weight_decay=0.0,
            momentum=move.ahead if self._nesterov else move.kept, lr=move.eta, dampening=0.0,
            nesterov=self._nesterov, maximize=group["maximize"],
        )  # fmt: skip
        return True

    def _by_hand(self, group: dict[str, Any], batch: Batch, move: "_Move") -> None:
        params, grads, buffers = batch.params, downhill(group, batch), _buffers(batch)
        eta, scale, share, kept = move.eta, move.scale, move.share, move.kept
        if batch.keep is not None:
            eta, scale, share = eta * batch.keep, scale * batch.keep, share * batch.keep
            kept = _held(kept, batch.keep)
        _scale(group, buffers, kept)
        _add(group, buffers, grads, share)
        if self._nesterov:
            _add(group, params, grads, -eta)
        _add(group, params, buffers, -scale * move.ahead if self._nesterov else -scale)


class _Move(NamedTuple):
    r"""A step $b \leftarrow k b + a g$, $v = -s b$; $\eta$ and $a$ may be on a device."""

    eta: Any
    scale: float
    share: Any
    kept: float
    ahead: float


def _move(eta: Any, before: float | None, kept: float, ahead: float) -> _Move:
    if isinstance(eta, Tensor) and eta.device.type != "cpu":  # nobody waits for its value
        scale = before or 1.0
        return _Move(eta, scale, eta / scale, kept, ahead)
    eta = float(eta)
    scale = eta or before or 1.0
    kept = kept if before in (None, scale) else kept * (before / scale)
    return _Move(eta, scale, 1.0 if eta else 0.0, kept, ahead)


def _alike(batch: Batch) -> Iterator[tuple[tuple[float | None, float], Batch]]:
    """Parameters that have come the same way: some may have lacked gradients."""
    ways = [(state["scale"], state["ahead"]) for state in batch.states]
    if len(set(ways)) == 1:
        yield ways[0], batch
        return
    for way in dict.fromkeys(ways):
        some = [i for i, w in enumerate(ways) if w == way]
        yield (
            way,
            Batch(
                [batch.params[i] for i in some],
                [batch.grads[i] for i in some],
                [batch.states[i] for i in some],
                batch.keep,
            ),
        )


def _buffers(batch: Batch) -> list[Tensor]:
    return [state["momentum_buffer"] for state in batch.states]


def _can_be_fused(batch: Batch) -> bool:
    params, grads = batch.params, batch.grads
    plain = {type(x) for xs in (params, grads) for x in xs} <= {Tensor, torch.nn.Parameter}
    alike = all(
        p.dtype == g.dtype and p.is_floating_point() for p, g in zip(params, grads, strict=True)
    )
    return plain and alike and params[0].device.type in _FUSED


def _held(factor: Any, keep: Tensor) -> Tensor:
    """The factor, or 1 if the step is void."""
    return 1 + keep * (factor - 1)


def _scale(group: dict[str, Any], tensors: list[Tensor], factor: Any) -> None:
    if together(group, tensors):
        torch._foreach_mul_(tensors, factor)
    else:
        for x in tensors:
            x.mul_(factor)


def _add(group: dict[str, Any], tensors: list[Tensor], terms: list[Tensor], factor: Any) -> None:
    """Add multiples; the factor is a number, or a tensor on the device."""
    if isinstance(factor, Tensor):
        terms = [x * factor for x in terms]
        factor = 1
    if together(group, tensors):
        torch._foreach_add_(tensors, terms, alpha=factor)
    else:
        for x, term in zip(tensors, terms, strict=True):
            x.add_(term, alpha=factor)


class HeavyBall(_Momentum):
    r"""Polyak's heavy ball, $\theta_{t+1} = \theta_t - \eta g_t + \beta (\theta_t - \theta_{t-1})$.

    On CPU and CUDA a step is torch's fused kernel, also when the step size changes.

    Args:
        params: Parameters, or groups of them with options of their own.
        lr: The step size $\eta \ge 0$, a number or a tensor with one entry.
        momentum: $\beta$, with $0 \le \beta < 1$.
        maximize: Whether to climb instead.
        foreach: Whether to treat all tensors in one call, one by one, or (None) by fused kernels.

    References:
        Polyak, Some methods of speeding up the convergence of iteration methods, USSR
        Computational Mathematics and Mathematical Physics, 1964.

    Example:
        >>> x = torch.tensor([8.0], requires_grad=True)
        >>> optimizer = HeavyBall([x], lr=0.25, momentum=0.5)
        >>> for _ in range(2):  # of x ** 2: to 8 - 0.25 * 16, then to 4 - 0.25 * 8 + 0.5 * (4 - 8)
        ...     optimizer.zero_grad()
        ...     x.square().sum().backward()
        ...     optimizer.step()
        >>> x.item()
        0.0
    """

    _nesterov = False

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        *,
        momentum: float = 0.9,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        options = {"momentum": momentum, "maximize": maximize, "foreach": foreach}
        super().__init__(params, {"lr": lr, **options})

    def _checked(self, group: dict[str, Any]) -> None:
        super()._checked(group)
        number("momentum", group["momentum"], low=0, below=1)

    def _momenta(self, group: dict[str, Any], last: float) -> tuple[float, float]:
        return group["momentum"], 0.0


class Nesterov(_Momentum):
    r"""Nesterov's accelerated gradient: the gradient is taken ahead of the iterate.

    The parameters hold the point $y_t = \theta_t + \beta (\theta_t - \theta_{t - 1})$ at which the
    next gradient is taken; `with optimizer.iterates():` they hold the iterate $\theta_t$, of which
    the theorems speak.

    Args:
        params: Parameters, or groups of them with options of their own.
        lr: The step size $\eta \ge 0$, a number or a tensor with one entry.
        momentum: $\beta$, with $0 \le \beta < 1$; None is the sequence for convex functions,
            $\frac{t - 1}{t + 2}$ after step $t$.
        maximize: Whether to climb instead.
        foreach: Whether to treat all tensors in one call, one by one, or (None) by fused kernels.

    References:
        Nesterov, A method for solving the convex programming problem with convergence rate
        $O(1/k^2)$, Doklady Akademii Nauk SSSR, 1983.

    Example:
        >>> y = torch.tensor([8.0], requires_grad=True)
        >>> optimizer = Nesterov([y], lr=0.25, momentum=0.5)
        >>> y.square().sum().backward()
        >>> optimizer.step()
        >>> y.item()  # the iterate is 8 - 0.25 * 16 = 4, and the way there was -4
        2.0
        >>> with optimizer.iterates():
        ...     y.item()
        4.0
    """

    _nesterov = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        *,
        momentum: float | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        options = {"momentum": momentum, "maximize": maximize, "foreach": foreach}
        super().__init__(params, {"lr": lr, **options, "t": 0})

    def _checked(self, group: dict[str, Any]) -> None:
        super()._checked(group)
        if group["momentum"] is not None:
            number("momentum", group["momentum"], low=0, below=1)

    def _momenta(self, group: dict[str, Any], last: float) -> tuple[float, float]:
        t, beta = group["t"] + 1, group["momentum"]
        return last, (t - 1) / (t + 2) if beta is None else beta

    def _finish(self) -> None:
        for group in self.param_groups:
            group["t"] += 1

    @contextmanager
    def iterates(self) -> Iterator[None]:
        r"""Let the parameters hold the iterates $\theta_t$ for a while, then $y_t$ again."""
        params = [p for group in self.param_groups for p in group["params"] if p in self.state]
        ahead = [p.detach().clone() for p in params]
        try:
            with torch.no_grad():
                for p in params:
                    state = self.state[p]
                    p.add_(state["momentum_buffer"], alpha=state["ahead"] * (state["scale"] or 0.0))
            yield
        finally:
            with torch.no_grad():
                for p, y in zip(params, ahead, strict=True):
                    p.copy_(y)
