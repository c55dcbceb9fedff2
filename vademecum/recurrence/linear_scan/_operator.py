r"""The scan as an operator of torch, with its derivatives.

With $c_t = a_t$, or 0 where a sequence starts anew, $h_t = c_t h_{t-1} + b_t$. If $G_t$ is the
derivative of a loss by $h_t$ where it is used, the derivative by $b_t$ is

$$g_t = G_t + \bar c_{t+1}\, g_{t+1} ,$$

a scan from the other end, whose factors come one step *late*; the adjoint of a late scan is one
that is not. The derivative by $a_t$ is $\bar h_{t-1} g_t$ (0 where a sequence starts anew) and that
by the initial state $\bar c_1 g_1$. A direction $(\dot a, \dot b)$ gives
$\dot h_t = c_t \dot h_{t-1} + \dot a_t h_{t-1} + \dot b_t$, which is a scan again.

All tensors have as many axes as `b`, time is the last but one: `a` is `(..., T or 1, D)`, `initial`
`(..., 1, D)`, `reset` `(..., T, 1)`, and they broadcast against `b`, which has the result's shape.
"""

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from vademecum.arrays.triton_code import has_triton
from vademecum.models import warn_of_slow_path
from vademecum.recurrence.linear_scan._on_cpu import gradients_on_cpu, scan_on_cpu
from vademecum.recurrence.linear_scan._on_cuda import gradients_on_cuda, scan_on_cuda

__all__ = ["linear_scan"]


def linear_scan(
    a: Tensor,
    b: Tensor,
    initial: Tensor | None,
    reset: Tensor | None,
    reverse: bool = False,
    late: bool = False,
) -> Tensor:
    """All states; can be differentiated in both directions, mapped and compiled."""
    if torch.compiler.is_compiling():
        return _states(a, b, initial, reset, reverse, late)
    return _Scan.apply(a, b, initial, reset, reverse, late)  # pyright: ignore


# Operators with schemas of their own: torch's wrapper for operators, which finds out the schema and
# compares storages at each call, takes longer than the kernel.
_STATES, _GRADIENTS = "vademecum::linear_scan", "vademecum::linear_scan_gradients"
torch.library.define(
    _STATES,
    "(Tensor a, Tensor b, Tensor? initial, Tensor? reset, bool reverse, bool late) -> Tensor",
)
torch.library.define(
    _GRADIENTS,
    "(Tensor a, Tensor h, Tensor? initial, Tensor? reset, Tensor G, bool reverse)"
    " -> (Tensor, Tensor)",
)


def _states(
    a: Tensor, b: Tensor, initial: Tensor | None, reset: Tensor | None, reverse: bool, late: bool
) -> Tensor:
    return torch.ops.vademecum.linear_scan(a, b, initial, reset, reverse, late)


@torch.library.impl(_STATES, "default")
def _run_states(a, b, initial, reset, reverse, late):
    way = scan_on_cuda if _fast_on(b.device) else scan_on_cpu
    return way(a, b, initial, reset, reverse, late)


@torch.library.register_fake(_STATES)
def _fake_states(a, b, initial, reset, reverse, late):
    return torch.empty_like(b, memory_format=torch.contiguous_format)


def _mapped(info, dims, a, b, initial, reset, reverse, late):
    tensors = _in_front(info.batch_size, dims, a, b, initial, reset)
    return torch.ops.vademecum.linear_scan(*tensors, reverse, late), 0


torch.library.register_vmap(_STATES, _mapped)


def _in_front(size: int, dims: tuple[Any, ...], a, b, initial, reset) -> list[Tensor | None]:
    """The mapped axis as the first one: `b` has it, the others may have 1 there."""
    fronts: list[Tensor | None] = []
    for tensor, dim in zip((a, b, initial, reset), dims, strict=False):
        if tensor is not None:
            tensor = tensor.unsqueeze(0) if dim is None else tensor.movedim(dim, 0)
        fronts.append(tensor)
    b = fronts[1]
    assert b is not None
    fronts[1] = b.expand(size, *b.shape[1:])
    return fronts


def _gradients(
    a: Tensor, h: Tensor, initial: Tensor | None, reset: Tensor | None, G: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The derivatives by `b` and by `a` of a scan that is not late."""
    return torch.ops.vademecum.linear_scan_gradients(a, h, initial, reset, G, reverse)


@torch.library.impl(_GRADIENTS, "default")
def _run_gradients(a, h, initial, reset, G, reverse):
    way = gradients_on_cuda if _fast_on(G.device) else gradients_on_cpu
    return way(a, h, initial, reset, G, reverse)


def _fast_on(device: torch.device) -> bool:
    """Whether Triton computes; the CPU has its own way, other devices have that of the CPU."""
    if device.type == "cuda" and has_triton():
        return True
    if device.type != "cpu":
        reason = f"no kernel for {device}"
        if device.type == "cuda":
            reason = "Triton, or a C compiler for it, is not installed"
        warn_of_slow_path("scan takes one step after another", reason)
    return False


@torch.library.register_fake(_GRADIENTS)
def _fake_gradients(a, h, initial, reset, G, reverse):
    form = torch.contiguous_format
    return torch.empty_like(G, memory_format=form), torch.empty_like(a, memory_format=form)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, _, initial, reset, ctx.reverse, ctx.late = inputs
    h = output if ctx.needs_input_grad[0] else None
    ctx.save_for_backward(a, h, initial, reset)


def _pull_back(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
    """The derivatives by `a`, `b` and `initial`, those that are wanted."""
    a, h, initial, reset = ctx.saved_tensors
    wants_a, wants_b, wants_initial = ctx.needs_input_grad[:3]
    by_a = None
    if wants_a and not ctx.late and _is_plain(a, h, initial, G):
        g, by_a = _gradients(a, h, initial, reset, G, ctx.reverse)
    else:
        g = linear_scan(a.conj(), G, None, reset, not ctx.reverse, not ctx.late)
        if wants_a:
            by_a = _by_factors(a, h, initial, reset, g, ctx.reverse, ctx.late)
    by_initial = None
    if wants_initial:
        first = slice(-1, None) if ctx.reverse else slice(0, 1)
        passed = (a if a.shape[-2] == 1 else a[..., first, :]).conj() * g[..., first, :]
        if reset is not None:
            passed = passed.masked_fill(reset[..., first, :], 0)
        by_initial = passed.sum_to_size(initial.shape)
    return by_a, g if wants_b else None, by_initial, None, None, None


def _is_plain(*tensors: Tensor | None) -> bool:
    """Whether nobody differentiates the derivatives, in either direction."""
    if torch.compiler.is_compiling():
        return True
    duals = (forward_ad.unpack_dual(x).tangent for x in tensors if x is not None)
    return not torch.is_grad_enabled() and all(tangent is None for tangent in duals)


def _by_factors(a, h, initial, reset, g, reverse: bool, late: bool) -> Tensor:
    if late:
        product = _before(g, None, None, not reverse) * h.conj()
        product = product if reset is None else product.masked_fill(reset, 0)
    else:
        product = _before(h, initial, reset, reverse).conj() * g
    return product.sum_to_size(a.shape)


torch.library.register_autograd(_STATES, _pull_back, setup_context=_remember)


def _before(h: Tensor, initial: Tensor | None, reset: Tensor | None, reverse: bool) -> Tensor:
    """The state that each step starts from; 0 where a sequence starts anew."""
    start = h.new_zeros(()) if initial is None else initial
    start = start.expand(*h.shape[:-2], 1, h.shape[-1])
    shifted = (h[..., 1:, :], start) if reverse else (start, h[..., :-1, :])
    before = torch.cat(shifted, -2)
    return before if reset is None else before.masked_fill(reset, 0)


def _primal(x: Any) -> Any:
    """A tensor without its direction."""
    return None if x is None else forward_ad.unpack_dual(x).primal


class _Scan(torch.autograd.Function):
    """The operator outside of compiled code, where it can also be differentiated forward."""

    @staticmethod
    def forward(a, b, initial, reset, reverse, late):
        return _states(a, b, initial, reset, reverse, late)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _remember(ctx, inputs, output)
        a, _, initial, reset, *_ = inputs
        ctx.save_for_forward(a, output, initial, reset)

    @staticmethod
    def backward(ctx, *grad_outputs):
        return _pull_back(ctx, *grad_outputs)

    @staticmethod
    def vmap(info, in_dims, *args):
        a, b, initial, reset, reverse, late = args
        tensors = _in_front(info.batch_size, in_dims, a, b, initial, reset)
        return _Scan.apply(*tensors, reverse, late), 0

    @staticmethod
    def jvp(ctx, *grad_inputs):
        # torch calls this with forward mode off, so that directions of directions would be lost;
        # that we leave inference mode, where nobody is, switches it on again.
        da, db, dinitial, *_ = grad_inputs
        recorded = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.set_grad_enabled(recorded):
            *saved, reset = ctx.saved_tensors
            a, h, initial = map(_primal, saved)
            push = torch.zeros_like(h) if db is None else db
            if da is not None:
                if ctx.late:
                    moved = da * h if reset is None else (da * h).masked_fill(reset, 0)
                    push = push + _before(moved, None, None, ctx.reverse)
                else:
                    push = push + da * _before(h, initial, reset, ctx.reverse)
            return _Scan.apply(a, push, dinitial, reset, ctx.reverse, ctx.late)


# torch binds the arguments of each call to the signature; to find it out takes longer than that.
_Scan.forward.__signature__ = inspect.signature(_Scan.forward)
