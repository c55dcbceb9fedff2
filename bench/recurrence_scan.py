"""Rows of the scan: against the loop, the loop over chunks, Blelloch's tree, torch's own scan, FFT.

The loop is timed on the CPU only: on CUDA devices its 4096 small kernels take a hundred times as
long as any other. Of torch's `associative_scan` the generic form runs on the CPU and the compiled
one on CUDA devices, there on real and imaginary parts, since its compiler knows no complex numbers.
On CUDA devices a row is ten calls one after the other, so that starting them is hidden behind the
work, as it is in training; the limits are those of ten calls.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan

from bench.harness import Row, Skipped, in_turn
from vademecum.recurrence import scan

__all__ = ["rows"]

BLOCK = 16  # steps of the compiled block
CHUNK = 64  # steps of a chunk
CALLS = 10  # in a row on CUDA devices


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_whole(device), _long(device))


def _whole(device: torch.device) -> Iterator[Row]:
    cuda = device.type == "cuda"
    shape = (8, 4096, 1024 if cuda else 256)
    name = " x ".join(map(str, shape))
    calls = CALLS if cuda else 1
    for constant in (True, False):
        kind = torch.complex64 if constant or cuda else torch.float32
        a, b, G = _drawn(shape, kind, device, constant)
        what = f"scan, {'constant' if constant else 'per-step'} a, {name} {str(kind)[6:]}"
        what += f", {calls} calls" * (calls > 1)
        peers = _peers(a, device)
        limits = ("1.3 ms", "3.3 ms") if constant else ("1.9 ms", "5.1 ms")
        forward = {key: partial(_forward, f, a, b, calls) for key, f in peers.items()}
        both = {key: partial(_both, f, a, b, G, calls) for key, f in peers.items()}
        yield Row(f"{what}, forward", partial(_forward, scan, a, b, calls), forward, _close,
                  limits[0] if cuda else "5 ms")  # fmt: skip
        yield Row(f"{what}, forward and backward", partial(_both, scan, a, b, G, calls), both,
                  _close, limits[1] if cuda else "12 ms")  # fmt: skip


def _long(device: torch.device) -> Iterator[Row]:
    """One sequence of a million steps: time must be split."""
    shape = (1, 2**20, 64)
    cuda = device.type == "cuda"
    calls = CALLS if cuda else 1
    a, b, _ = _drawn(shape, torch.complex64, device, True)
    peers = {key: f for key, f in _peers(a, device).items() if key in ("chunks", "tree")}
    yield Row(
        f"scan, constant a, 1 x 1,048,576 x 64 complex64, {calls} calls, forward",
        partial(_forward, scan, a, b, calls),
        {key: partial(_forward, f, a, b, calls) for key, f in peers.items()},
        _close, "2.6 ms" if cuda else "40 ms", rounds=3,
    )  # fmt: skip


def _drawn(
    shape: tuple[int, ...], kind: torch.dtype, device: torch.device, constant: bool
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    sizes = shape[-1:] if constant else shape
    modulus = 0.9 + 0.099 * torch.rand(sizes, device=device)
    a = torch.polar(modulus, 6 * torch.rand(sizes, device=device)) if kind.is_complex else modulus
    b, G = (torch.randn(shape, dtype=kind, device=device) for _ in range(2))
    return a.requires_grad_(), b.requires_grad_(), G


def _forward(f: Callable, a: Tensor, b: Tensor, calls: int) -> tuple[Tensor, ...]:
    with torch.no_grad():
        for _ in range(calls - 1):
            f(a, b)
        return (f(a, b),)


def _both(f: Callable, a: Tensor, b: Tensor, G: Tensor, calls: int) -> tuple[Tensor, ...]:
    for _ in range(calls - 1):
        torch.autograd.grad(f(a, b), (a, b), G)
    return torch.autograd.grad(f(a, b), (a, b), G)


def _close(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        gap = float((mine - other).abs().max() / mine.abs().max())
        assert gap < 1e-3, f"results differ by {gap:.2g}"


def _peers(a: Tensor, device: torch.device) -> dict[str, Callable]:
    constant = a.ndim == 1
    peers: dict[str, Callable] = {"chunks": _chunks, "tree": _tree}
    if constant:
        peers["FFT"] = _fourier
    if device.type == "cuda":
        peers["associative_scan, compiled"] = _compiled_scan()
    else:
        peers["loop"] = _loop
        peers["associative_scan"] = _generic_scan
        if shutil.which("c++") or shutil.which("g++"):
            peers["compiled block"] = partial(_blocks, torch.compile(_block))
    return peers


def _steps(a: Tensor, T: int) -> tuple[Tensor, ...]:
    return (a,) * T if a.ndim == 1 else a.unbind(1)


def _loop(a: Tensor, b: Tensor) -> Tensor:
    h, states = torch.zeros_like(b[:, 0]), []
    for factor, term in zip(_steps(a, b.shape[1]), b.unbind(1), strict=True):
        h = factor * h + term
        states.append(h)
    return torch.stack(states, 1)


def _chunks(a: Tensor, b: Tensor) -> Tensor:
    """The steps of all chunks at once, then what enters each chunk."""
    B, T, D = b.shape
    terms = b.view(B, T // CHUNK, CHUNK, D).unbind(2)
    folded = a.view(B, T // CHUNK, CHUNK, D).unbind(2) if a.ndim > 1 else (a,) * CHUNK
    h, p = torch.zeros_like(terms[0]), torch.ones_like(folded[0])
    states, products = [], []
    for factor, term in zip(folded, terms, strict=True):
        h, p = factor * h + term, factor * p
        states.append(h)
        products.append(p)
    last, through = states[-1].unbind(1), products[-1]
    between = (through,) * (T // CHUNK) if a.ndim == 1 else through.unbind(1)
    carry, carries = torch.zeros_like(last[0]), []
    for factor, end in zip(between, last, strict=True):
        carries.append(carry)
        carry = factor * carry + end
    weights = torch.stack(products, 2) if a.ndim > 1 else torch.stack(products)
    return torch.addcmul(torch.stack(states, 2), weights, torch.stack(carries, 1)[:, :, None]).view(
        B, T, D
    )


def _tree(a: Tensor, b: Tensor) -> Tensor:
    """Blelloch's scan: pairs are joined, the half as long sequence is scanned, and so on."""
    T = b.shape[1]
    if T == 1:
        return b
    odd, even = b[:, 1::2], b[:, : T - T % 2 : 2]
    first = a if a.ndim == 1 else a[:, 1::2]
    joined = first * first if a.ndim == 1 else first * a[:, : T - T % 2 : 2]
    halves = _tree(joined, torch.addcmul(odd, first, even))
    later = a if a.ndim == 1 else a[:, 2::2]
    rest = torch.addcmul(b[:, 2::2], later, halves[:, : (T - 1) // 2])
    states = torch.empty_like(b)
    states[:, 1::2] = halves
    states[:, 2::2] = rest
    states[:, :1] = b[:, :1]
    return states


def _fourier(a: Tensor, b: Tensor) -> Tensor:
    T = b.shape[1]
    powers = a ** torch.arange(T, device=b.device)[:, None]
    spectrum = torch.fft.fft(powers, 2 * T, dim=0) * torch.fft.fft(b, 2 * T, dim=1)
    return torch.fft.ifft(spectrum, dim=1)[:, :T]


def _generic_scan(a: Tensor, b: Tensor) -> Tensor:
    def joined(x: tuple[Tensor, ...], y: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return x[0] * y[0], y[0] * x[1] + y[1]

    return associative_scan(joined, (a.expand_as(b), b), 1, combine_mode="generic")[1]


def _compiled_scan() -> Callable:
    def joined(x: Any, y: Any) -> tuple[Tensor, ...]:
        a, c, b, d = x
        e, g, f, h = y
        return a * e - c * g, a * g + c * e, e * b - g * d + f, e * d + g * b + h

    @torch.compile
    def parts(a: Tensor, c: Tensor, b: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        scanned = associative_scan(joined, (a, c, b, d), 1, combine_mode="pointwise")
        return scanned[2], scanned[3]

    def whole(a: Tensor, b: Tensor) -> Tensor:
        a = a.expand_as(b)
        split = [x.contiguous() for x in (a.real, a.imag, b.real, b.imag)]
        return torch.complex(*parts(*split))

    return whole


def _block(p: Tensor, q: Tensor, x: Tensor, y: Tensor, f: Tensor, g: Tensor) -> Any:
    """Some steps, in real numbers."""
    states = []
    for u, v, r, s in zip(*(z.unbind(1) for z in (p, q, x, y)), strict=True):
        f, g = u * f - v * g + r, u * g + v * f + s
        states.append(torch.stack((f, g), -1))
    return torch.stack(states, 1), f, g


def _blocks(block: Callable, a: Tensor, b: Tensor) -> Tensor:
    B, T, D = b.shape
    a = a.expand(B, T, D) if a.ndim == 1 else a
    parts = torch.view_as_real(a + 0j), torch.view_as_real(b + 0j)
    p, q, x, y = (z[..., i].split(BLOCK, 1) for z in parts for i in (0, 1))
    f = g = torch.zeros(B, D, device=b.device)
    states = []
    for i in range(len(p)):
        h, f, g = block(p[i], q[i], x[i], y[i], f, g)
        states.append(h)
    h = torch.view_as_complex(torch.cat(states, 1))
    return h if b.is_complex() else h.real
