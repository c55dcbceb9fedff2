r"""What rounding may do: to a network that runs, and to the computation of its bounds.

Let $u$ be the unit roundoff of a dtype (half its `eps`) and $\gamma_n = n u / (1 - n u)$. A sum of
$n$ products, $z = \sum_i w_i a_i + b$, computed in any order, in any blocks, with or without fused
multiply-adds, is

$$\hat z = \sum_i w_i a_i + b + \delta, \qquad
|\delta| \le D = \gamma_{n+1} (|w|^T |a| + |b|) + n \tau,$$

because no term meets more than $n + 1$ roundings (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, section 3.1); $\tau$ is what a product or a number that underflows, or is flushed
to zero, loses. Kernels that round the factors first (TF32, bfloat16) add $2 v + v^2$ to $\gamma$,
with $v$ the precision of what is left of a factor. Kernels that are not sums of products of inputs
with weights, Winograd's and those of fast Fourier transforms, obey no such bound.

So **the network that runs is the network of real numbers with a bias that is off by $\delta$**,
$|\delta| \le D$, at every layer; bounds that hold for all such biases hold for the run. With
$D = 0$ they hold for the network of real numbers.

The bounds are themselves computed in floats. A step that should give $c = w^T a$ and gives $\hat c$
is treated alike: $|c - \hat c| \le \gamma_n |w|^T |a|$ is added on the safe side. Every coefficient
below counts both, the network's roundings and our own, and a few more for the addition of the slack
itself. Exact: nothing; sound: everything, as long as $n u < 0.1$, which is insisted on.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Arithmetic", "down", "full_precision", "gamma", "lengths", "read_arithmetic", "up"]

_MOST = 0.1  # of n times u
_KEPT = {"tf32": 2.0**-10, "bf16": 2.0**-7}  # of a factor, were it cut off and not rounded


class Arithmetic(NamedTuple):
    """How the network runs, and in which dtype bounds are computed."""

    kind: str
    """Either "real" or "float"."""
    run: torch.dtype
    """The dtype of the network."""
    own: torch.dtype
    """The dtype of the bounds."""
    factors: dict[str, float]
    """How far factors are rounded at most before they are multiplied, by "conv" and "matmul"."""

    def of_run(self, terms: int, product: str | None = None) -> float:
        r"""The coefficient of $|w|^T |a| + |b|$ for a step of the network with so many terms."""
        if self.kind == "real" or terms == 0:
            return 0.0
        v = self.factors.get(product or "", 0.0)
        return gamma(terms, self.run) * (1 + v) ** 2 + 2 * v + v * v

    def underflow(self, terms: int) -> float:
        """What numbers that underflow may cost altogether, for factors of modulus up to one."""
        run = torch.finfo(self.run).tiny if self.kind == "float" and terms else 0.0
        return 4 * (terms + 8) * (run + torch.finfo(self.own).tiny)


def gamma(n: int, dtype: torch.dtype) -> float:
    r"""The coefficient $\gamma_n = n u / (1 - n u)$.

    Raises:
        ValueError: If so many roundings have no such bound.
    """
    product = n * torch.finfo(dtype).eps / 2
    if product >= _MOST:
        raise ValueError(
            f"model must have sums of fewer terms, to bound its rounding in {dtype}, got {n}"
        )
    return product / (1 - product)


def read_arithmetic(kind: str, x: Tensor) -> Arithmetic:
    """How a network in the dtype and on the device of `x` runs, by torch's settings as they are."""
    if x.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"x must be float32 or float64, got {x.dtype}")
    own = torch.float64 if kind == "real" else x.dtype
    return Arithmetic(kind, x.dtype, own, _factors(x) if kind == "float" else {})


def _factors(x: Tensor) -> dict[str, float]:
    if x.dtype != torch.float32:
        return {}
    matmul = {"highest": "", "high": "tf32", "medium": "bf16"}[torch.get_float32_matmul_precision()]
    conv = torch.backends.mkldnn.conv.fp32_precision  # type: ignore[attr-defined]
    if x.is_cuda:
        conv = "tf32" if torch.backends.cudnn.allow_tf32 else ""
    return {"matmul": _KEPT.get(matmul, 0.0), "conv": _KEPT.get(conv, 0.0)}


@contextmanager
def full_precision() -> Iterator[None]:
    """Products of factors that are not rounded, for a while: what `gamma` is about."""
    matmul, cpu = torch.get_float32_matmul_precision(), torch.backends.mkldnn.conv  # type: ignore[attr-defined]
    conv = cpu.fp32_precision
    others = ("benchmark", "benchmark_limit", "deterministic", "fp32_precision")
    keep: dict[str, Any] = dict.fromkeys(others)
    torch.set_float32_matmul_precision("highest")
    cpu.fp32_precision = "ieee"
    try:
        enabled = torch.backends.cudnn.enabled
        with torch.backends.cudnn.flags(enabled=enabled, allow_tf32=False, **keep):
            yield
    finally:
        cpu.fp32_precision = conv
        torch.set_float32_matmul_precision(matmul)


def lengths(a: Tensor, q: float, dim: int) -> Tensor:
    """Norms along an axis, of which no squares underflow."""
    if q != 2:
        return torch.linalg.vector_norm(a, q, dim=dim)
    top = a.detach().abs().amax(dim, keepdim=True)
    top = torch.where(top > 0, top, 1)
    return torch.linalg.vector_norm(a / top, q, dim=dim) * top.squeeze(dim)


def down(x: Tensor) -> Tensor:
    """The next numbers below."""
    return torch.nextafter(x, torch.full_like(x, -math.inf))


def up(x: Tensor) -> Tensor:
    """The next numbers above."""
    return torch.nextafter(x, torch.full_like(x, math.inf))
