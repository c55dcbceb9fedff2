r"""InfoNCE: to recognise one's own key among all keys of the batch.

$$\ell = \frac1N \sum_i \Bigl(\log \sum_j e^{s_{ij}} - s_{ii}\Bigr) , \qquad
s_{ij} = \frac{q_i^\top k_j}{\tau} ,$$

the cross-entropy of a classifier with $N$ classes, so $\log N$ if nothing is recognised. For keys
drawn independently, $\log N - \ell$ is in expectation at most the mutual information of queries and
keys. With $P$ the softmax of rows,

$$\nabla_q \ell = \frac{P k - k}{N \tau} , \qquad \nabla_k \ell = \frac{P^\top q - q}{N \tau} .$$

A tile holds the scores of a few queries with all keys. Its rows are complete, so what it gives to
the loss and to both gradients is found at once, with the three products that the dense formula
takes, and the $N \times N$ matrix never exists; the backward pass only scales. Second derivatives
(`create_graph=True`) take that matrix, whatever `memory` says. Exact up to rounding, which in half
precision is also that of scores. Checked by the claim `regularization.infonce`.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.arrays import portions

__all__ = ["info_nce_loss"]

_TILE = {"cpu": 2**25, "cuda": 2**29}  # bytes of scores at a time: beyond it nothing is gained


def info_nce_loss(
    query: Float[Tensor, " N d"],
    key: Float[Tensor, " N d"],
    *,
    temperature: float,
    memory: int | None = None,
) -> Float[Tensor, ""]:
    r"""The mean over queries of the cross-entropy of finding one's own key among all.

    Rows are taken as they are: normalise them for cosines. Loss and gradient never hold the N x N
    matrix of scores; a gradient of the gradient (`create_graph=True`) does.

    Args:
        query: The queries, a row each.
        key: The keys; the i-th belongs to the i-th query, and all others are its negatives.
        temperature: By what scores are divided.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. Beside
            gradients, which are as large as the inputs, and a row of scores at least.

    Raises:
        ValueError: If the shapes, dtypes or devices differ, or the temperature is not positive.

    References:
        van den Oord, Li and Vinyals, Representation learning with contrastive predictive coding,
        arXiv, 2018.

    Example:
        >>> q = torch.eye(2)
        >>> info_nce_loss(q, q, temperature=1.0)  # log(1 + 1/e)
        tensor(0.3133)
    """
    number("temperature", temperature, above=0)
    if memory is not None:
        whole("memory", memory, low=1)
    _insist_on_rows(query, key)
    return _Tiles.apply(query, key, float(temperature), memory)  # pyright: ignore[reportReturnType]


def _insist_on_rows(query: Tensor, key: Tensor) -> None:
    for name, x in (("query", query), ("key", key)):
        if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point() or not x.numel():
            given = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{name} must be a floating-point tensor (N, d), got {given}")
    if query.shape != key.shape or (query.dtype, query.device) != (key.dtype, key.device):
        raise ValueError(
            f"key must be {query.dtype} {tuple(query.shape)} on {query.device} as query is,"
            f" got {key.dtype} {tuple(key.shape)} on {key.device}"
        )


class _Tiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, temperature: float, memory: int | None) -> Tensor:
        wanted = ctx.needs_input_grad[:2]
        loss, *gradients = _pass(q, k, temperature, memory, wanted)
        ctx.save_for_backward(q, k, *gradients)
        ctx.temperature = temperature
        return loss

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, upstream: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        q, k, *gradients = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate again
            scale = 1 / (len(q) * ctx.temperature)
            P = (q @ k.T / ctx.temperature).softmax(1)
            gradients = [scale * (P @ k - k), scale * (P.T @ q - q)]
        dq, dk = (
            g * upstream if g is not None and needed else None
            for g, needed in zip(gradients, ctx.needs_input_grad[:2], strict=True)
        )
        return dq, dk, None, None


def _pass(
    q: Tensor, k: Tensor, temperature: float, memory: int | None, wanted: tuple[bool, bool]
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The loss, and the gradients that are wanted, tile by tile."""
    N, wide = len(q), torch.promote_types(q.dtype, torch.float32)
    dq = torch.empty_like(q, memory_format=torch.contiguous_format) if wanted[0] else None
    dk = torch.zeros(k.shape, dtype=wide, device=k.device) if wanted[1] else None
    scale, each = 1 / (N * temperature), N * wide.itemsize
    each *= 1 if q.dtype == wide else 2  # scores in half precision have a wide copy
    limit = memory or max(_TILE.get(q.device.type, 2**25), each)
    tile = q.new_empty(min(N, max(1, limit // each)), N)
    loss = torch.zeros((), dtype=torch.float64, device=q.device)
    for part in portions(N, each=each, memory=limit):
        rows = q[part]
        s = torch.mm(rows, k.T, out=tile[: len(rows)]).to(wide).div_(temperature)
        own = s.sub_(s.amax(1, keepdim=True)).diagonal(part.start).double().sum()
        total = s.exp_().sum(1, keepdim=True)
        loss += total.log().double().sum() - own
        weights = s.to(q.dtype)
        if dq is not None:
            mean = torch.mm(weights, k, out=dq[part])
            mean.div_(total).sub_(k[part]).mul_(scale)
        if dk is not None:
            _add_product(dk, weights.T, rows / total)
    if dk is not None:
        dk = dk.sub_(q).mul_(scale).to(k.dtype)
    return (loss / N).to(q.dtype), dq, dk


def _add_product(to: Tensor, A: Tensor, B: Tensor) -> None:
    """Add A B: in the precision of A, half or not, to a sum in single precision at least."""
    if A.dtype == to.dtype:
        to.addmm_(A, B)
    else:
        to += A @ B.to(A.dtype)
