r"""Newton's method by conjugate gradients, with products of the Hessian only.

The Newton step $d$ solves $H d = -g$ for $g = \nabla f(\theta)$ and $H = \nabla^2 f(\theta)$.
Conjugate gradients from $d = 0$ on need products $H v$ alone, each the price of two backward passes
or so, and may stop early: at a residual

$$\|H d + g\| \le \min(\tfrac12, \|g\|^{1/2})\, \|g\|, \quad \text{or} \quad
\le \min(\tfrac12, \|g\|)\, \|g\| ,$$

of which the second (`forcing=1`) keeps the quadratic rate of Newton's method near a minimum where
$H$ is positive definite and Lipschitz continuous, the first (`forcing=0.5`) the rate $1.5$ for
fewer products. A conjugate direction $p$ with $p^T H p \le 0$ ends it: $f$ curves downwards along
$p$, and since $\langle g, p \rangle < 0$ the step follows $p$, as far as doubling the step size
pays. Otherwise it follows $d$ as far as Armijo's inequality asks (see `line_search`), $\theta + d$
to begin with. So $f$ never rises, and where no step pays any more $\theta$ stays.

At a saddle itself, $g = 0$, there is no direction to begin with, and $\theta$ stays, too. The tests
hold it against SciPy's `trust-ncg`; the claims are `optimization.newton` and
`optimization.newton_convergence`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from vademecum.arguments import number, whole
from vademecum.models import twice_differentiable
from vademecum.optimization.backtracking import LineSearch, backtrack

__all__ = ["NewtonCG"]

_SEARCH: dict[str, Any] = {"step": 1.0, "shrink": 0.5, "c": 1e-4, "max_iter": 40}
_DOUBLINGS = 40


class NewtonCG(torch.optim.Optimizer):
    r"""Newton's method by truncated conjugate gradients, for smooth losses of all the data.

    Args:
        params: The parameters, all in one group.
        max_products: The most products with the Hessian in a step; by default ten times as many as
            there are parameters.
        forcing: The exponent with which the residual that conjugate gradients leave falls with the
            gradient: 1 for the quadratic rate, less for fewer products. None leaves no residual but
            rounding, which is Newton's method itself.

    Raises:
        ValueError: If there are several groups.

    References:
        Nocedal and Wright, Numerical optimization, chapter 7, 2006. Dembo, Eisenstat and Steihaug,
        Inexact Newton methods, SIAM Journal on Numerical Analysis, 1982.

    Example:
        >>> x = nn.Parameter(torch.tensor([3.0, -1.0]))
        >>> optimizer = NewtonCG([x], forcing=None)
        >>> optimizer.step(lambda: x[0] ** 2 + 50 * x[1] ** 2 + x.sum())  # the loss before
        61.0
        >>> x.detach()  # a quadratic, so this is its minimum
        tensor([-0.5000, -0.0100])
    """

    def __init__(
        self, params: Any, *, max_products: int | None = None, forcing: float | None = 1.0
    ):
        if max_products is not None:
            whole("max_products", max_products, low=1)
        if forcing is not None:
            number("forcing", forcing, above=0, high=1)
        super().__init__(params, {"max_products": max_products, "forcing": forcing})
        if len(self.param_groups) > 1:
            raise ValueError(f"params must be one group, got {len(self.param_groups)}")
        kinds = {f"{p.dtype} on {p.device}" for p in self.param_groups[0]["params"]}
        if len(kinds) > 1 or any(p.is_complex() for p in self.param_groups[0]["params"]):
            raise ValueError(f"params must be real, of one dtype and device, got {sorted(kinds)}")

    @torch.no_grad()
    @sdpa_kernel(SDPBackend.MATH)  # the others have no second derivative
    def step(self, closure: Callable[[], Tensor] | None = None) -> float:  # pyright: ignore
        """Take a step, or none if none pays.

        Args:
            closure: Returns the loss, differentiable and without randomness, and leaves `backward`
                to the optimiser.

        Returns:
            The loss before the step.

        Raises:
            ValueError: If the loss is not one finite number, a gradient is not finite, or the
                closure calls `backward`; no parameter was touched then.
        """
        if closure is None:
            raise ValueError("closure must be a function that returns the loss, got None")
        params = [p for p in self.param_groups[0]["params"] if p.requires_grad]
        with torch.enable_grad(), twice_differentiable():
            loss = _loss(closure, params)
            value = loss.item()
            grads = _gradients(loss, params)
        g = _flat([piece.detach() for piece in grads])
        if not bool(g.isfinite().all()):
            raise ValueError("the gradient must be finite, got one that is not")

        def product(v: Tensor) -> Tensor:
            pieces = [piece.view_as(p) for piece, p in zip(_split(v, params), params, strict=True)]
            return _flat(_gradients(grads, params, pieces, keep=True))

        if bool(g.any()):
            direction, bent = self._direction(product, g)
            del grads, loss
            self._move(closure, params, direction, value, float(g @ direction), bent=bent)
        return value

    def _direction(self, product: Callable[[Tensor], Tensor], g: Tensor) -> tuple[Tensor, bool]:
        """Newton's direction as far as conjugate gradients go, or one of negative curvature."""
        group = self.param_groups[0]
        size = float(g.norm())
        rounding = 10 * torch.finfo(g.dtype).eps
        target = size * (
            rounding if group["forcing"] is None else min(0.5, size ** group["forcing"])
        )
        d, r = torch.zeros_like(g), -g
        p, old = r.clone(), r @ r
        for _ in range(group["max_products"] or 10 * len(g)):
            curved = product(p)
            curvature = float(p @ curved)
            if not curvature > _flatness(p, curved):
                return _scaled(p, d, curved), True
            alpha = old / curvature
            d += alpha * p
            r -= alpha * curved
            new = r @ r
            if float(new) ** 0.5 <= target:
                break
            p, old = r + (new / old) * p, new
        return d, False

    def _move(
        self,
        closure: Callable[[], Tensor],
        params: list[Tensor],
        direction: Tensor,
        value: float,
        slope: float,
        *,
        bent: bool,
    ) -> None:
        start, pieces = [p.clone() for p in params], _split(direction, params)

        def at(step: float) -> None:
            for p, x, d in zip(params, start, pieces, strict=True):
                p.copy_(x + step * d.view_as(p) if step else x)

        def along(step: float) -> float:
            at(step)
            return closure().item()

        found = LineSearch(0.0, value, 0, False)
        try:
            if slope < 0:
                found = backtrack(along, value, slope, dtype=direction.dtype, **_SEARCH)
            if bent and found.step == 1.0:
                found = _doubled(along, found)
        finally:
            at(found.step)


def _doubled(along: Callable[[float], float], found: LineSearch) -> LineSearch:
    """Step sizes 2, 4, 8 ..., as long as each is better than the one before."""
    for _ in range(_DOUBLINGS):
        further = along(2 * found.step)
        if not further < found.value:
            break
        found = LineSearch(2 * found.step, further, found.evaluations + 1, True)
    return found


def _flatness(p: Tensor, curved: Tensor) -> float:
    """What rounding may make of a curvature that is zero."""
    return 10 * torch.finfo(p.dtype).eps * float(p.norm() * curved.norm())


def _scaled(p: Tensor, d: Tensor, curved: Tensor) -> Tensor:
    """A direction of negative curvature, as long as d, or as curvatures make steps here."""
    size, bend = float(p.norm()), float(curved.norm())
    return p * (float(d.norm()) / size if bool(d.any()) else size / bend if bend else 1.0)


def _loss(closure: Callable[[], Tensor], params: list[Tensor]) -> Tensor:
    """The loss, by a closure that has made no gradients."""
    kept = [p.grad for p in params]
    for p in params:
        p.grad = None
    try:
        loss = closure()
        if any(p.grad is not None for p in params):
            raise ValueError("closure must return the loss and not call backward, which it did")
    finally:
        for p, g in zip(params, kept, strict=True):
            p.grad = g
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        given = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"closure must return one number as a tensor, got {given}")
    if not loss.requires_grad:
        raise ValueError("closure must return a loss that depends on the parameters")
    number("the loss", loss.item())
    return loss


def _gradients(
    outputs: Any, params: list[Tensor], weights: list[Tensor] | None = None, *, keep: bool = False
) -> list[Tensor]:
    """Gradients with a graph of their own, or products with the Hessian from that graph."""
    if weights is not None:  # a gradient that is constant has no graph
        chosen = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
        if not chosen:
            return [torch.zeros_like(p) for p in params]
        outputs, weights = ([pair[i] for pair in chosen] for i in (0, 1))
    found = torch.autograd.grad(
        outputs,
        params,
        weights,
        create_graph=not keep,
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    return list(found)


def _flat(pieces: list[Tensor]) -> Tensor:
    return torch.cat([piece.reshape(-1) for piece in pieces])


def _split(v: Tensor, params: list[Tensor]) -> list[Tensor]:
    return list(v.split([p.numel() for p in params]))
