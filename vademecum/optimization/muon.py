r"""Muon: momentum for matrices, with every direction of it moved equally far.

For a weight matrix $W \in \mathbb{R}^{d_{out} \times d_{in}}$ with gradient $G_t$,

$$M_t = \mu M_{t - 1} + G_t, \qquad P_t = \operatorname{orthogonalize}(M_t), \qquad
W_{t + 1} = (1 - \eta \lambda)\, W_t - \eta s P_t ,$$

with $G_t + \mu M_t$ in place of $M_t$ for `nesterov`. All singular values of $P_t$ are one, exactly
or nearly so (see `orthogonalize`), and the factor $s$ says what of the step is the same for
matrices of all shapes:

- `"spectral"`, $s = \sqrt{d_{out} / d_{in}}$: the norm from root mean square to root mean square,
  $\sqrt{d_{in} / d_{out}}\, \|\Delta W\|_2 = \eta$;
- `"original"`, $s = \sqrt{\max(1, d_{out} / d_{in})}$: the same for matrices with more rows than
  columns, and $\|\Delta W\|_2 = \eta$ for the others;
- `"rms"`, $s = 0.2 \sqrt{\max(d_{out}, d_{in})}$: the root mean square of the entries, $0.2\, \eta$
  for a gradient of full rank, which is about that of Adam.

*torch's Muon* keeps $(1 - \mu) M_t$, and computes $P_t$ in bfloat16, one matrix after the other.
$P_t$ does not depend on the scale of $M_t$, so it takes the same step, up to the rounding of
bfloat16, as `Muon(..., nesterov=True, scale="original", weight_decay=0.1)`.

Here the matrices of one shape are orthogonalised in one product, in the dtype of the parameters. A
kernel of a convolution is a matrix with a row for each output; a sharded matrix is gathered, one
at a time. The claim is `optimization.muon`.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import choice, number
from vademecum.optimization._polar_polynomials import Quintic
from vademecum.optimization._stepping import Batch, Descent, downhill, is_sharded, rate
from vademecum.optimization.orthogonal_factor import factors, polynomials, product_dtype

__all__ = ["Muon"]

SCALES = ("spectral", "original", "rms")
_COMPANY = 2**25  # entries of a stack: larger ones cost memory and no longer save time


class Muon(Descent):
    r"""Momentum whose singular values are all replaced by one, for matrices.

    Everything else (biases, gains, embeddings, the last layer) is left to another optimiser:
    `matrix_parameters` tells them apart.

    Args:
        params: Parameters with at least two axes, or groups of them. Each group may have its own
            options.
        lr: The step size $\eta$: a number, or a tensor with one.
        momentum: The share $\mu$ of the momentum that is kept in a step.
        nesterov: Whether to look ahead, $G_t + \mu M_t$ for $M_t$.
        method: How to orthogonalise: "newton_schulz", "polar_express" or "svd".
        steps: How many times an iteration applies its polynomial; 5 by default.
        scale: What of a step is the same for all shapes: "spectral", "original" or "rms".
        weight_decay: The rate $\lambda$ by which parameters decay, times the step size.
        stacked: Whether parameters with more than two axes are stacks of matrices, as those of
            experts or heads are. By default they are kernels of convolutions, `(out, in, *size)`,
            which are matrices of `out` rows.
        transposed: Whether the first axis is that of inputs, as in transposed convolutions: then
            $d_{out}$ is the second. For stacks the same of their last two.
        maximize: Whether to climb.
        foreach: As in torch's optimisers; matrices of a shape are treated together unless False.
        dtype: Of the products; by default that of the parameter, or float32 for half precision on
            a CPU, which multiplies that faster.

    References:
        Jordan and others, Muon: an optimizer for hidden layers in neural networks, 2024. Bernstein
        and Newhouse, Old optimizer, new norm: an anthology, 2024. Liu and others, Muon is scalable
        for LLM training, 2025.

    Example:
        >>> W = nn.Parameter(torch.zeros(2, 2))
        >>> optimizer = Muon([W], lr=0.5, method="svd")
        >>> (W * torch.tensor([[3.0, 0.0], [0.0, -0.1]])).sum().backward()
        >>> optimizer.step()
        >>> W.detach()
        tensor([[-0.5000,  0.0000],
                [ 0.0000,  0.5000]])
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        momentum: float = 0.95,
        *,
        nesterov: bool = False,
        method: str = "newton_schulz",
        steps: int | None = None,
        scale: str = "spectral",
        weight_decay: float = 0.0,
        stacked: bool = False,
        transposed: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        dtype: torch.dtype | None = None,
    ):
        options = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "method": method}
        options |= {"steps": steps, "scale": scale, "weight_decay": weight_decay}
        options |= {"stacked": stacked, "transposed": transposed, "dtype": dtype}
        super().__init__(params, options | {"maximize": maximize, "foreach": foreach})

    def _checked(self, group: dict[str, Any]) -> None:
        super()._checked(group)
        number("momentum", group["momentum"], low=0, below=1)
        rate("weight_decay", group["weight_decay"])
        choice("scale", group["scale"], SCALES)
        polynomials(group["method"], group["steps"], None)

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        if p.ndim < 2:
            raise ValueError(f"params must have at least 2 axes, got shape {tuple(p.shape)}")
        if p.is_complex():
            raise ValueError(f"params must be real, got {p.dtype}")
        product_dtype(p, group["dtype"])
        return {"momentum_buffer": torch.zeros_like(p, memory_format=torch.preserve_format)}

    def _update(self, group: dict[str, Any], batch: Batch) -> None:
        mu, eta = group["momentum"], group["lr"]
        kept, grads = mu, downhill(group, batch)
        if batch.keep is not None:
            kept, eta = torch.where(batch.keep > 0, mu, 1.0), batch.keep * eta
        momenta = [state["momentum_buffer"] for state in batch.states]
        for M, g in zip(momenta, grads, strict=True):
            M.mul_(kept).add_(g)
        if group["nesterov"]:
            momenta = [g.add(M, alpha=mu) for M, g in zip(momenta, grads, strict=True)]
        if group["weight_decay"]:
            for p in batch.params:
                p.mul_(1 - eta * group["weight_decay"])
        for p, P, (rows, columns) in _steps(group, batch.params, momenta):
            length = eta * _factor(group["scale"], rows, columns)
            if isinstance(length, Tensor):
                p.sub_(P * length)  # a length in half precision would be off by itself
            else:
                p.sub_(P, alpha=length)


def _steps(
    group: dict[str, Any], params: list[Tensor], momenta: list[Tensor]
) -> Iterator[tuple[Tensor, Tensor, torch.Size]]:
    """Each parameter, its orthogonal step and the shape of its matrices, one product a shape."""
    rule = polynomials(group["method"], group["steps"], None)
    alike = defaultdict(list)
    for p, M in zip(params, momenta, strict=True):
        if is_sharded(p):
            yield p, *_sharded_step(p, M, group, rule)
        else:
            matrices = _as_matrices(M, group)
            alike[matrices.shape[1:], M.dtype].append((p, matrices))
    for (shape, _), pairs in alike.items():
        for portion in _portions(pairs, alone=group["foreach"] is False):
            stack = torch.cat([M for _, M in portion])
            found = factors(stack, rule, product_dtype(stack, group["dtype"]))
            counts = [len(M) for _, M in portion]
            for (p, _), P in zip(portion, found.split(counts), strict=True):
                yield p, _as_parameter(P, p, group), shape


def _portions(
    pairs: list[tuple[Tensor, Tensor]], *, alone: bool
) -> Iterator[list[tuple[Tensor, Tensor]]]:
    portion, entries = [], 0
    for pair in pairs:
        if portion and (alone or entries + pair[1].numel() > _COMPANY):
            yield portion
            portion, entries = [], 0
        portion.append(pair)
        entries += pair[1].numel()
    yield portion


def _sharded_step(
    p: Any, M: Any, group: dict[str, Any], rule: tuple[Quintic, ...]
) -> tuple[Tensor, torch.Size]:
    """The step of a sharded matrix: gathered, and cut again, where every process keeps its part."""
    from torch.distributed.tensor import DTensor, Replicate  # has been imported already

    whole = _as_matrices(M.full_tensor(), group)
    P = _as_parameter(factors(whole, rule, product_dtype(whole, group["dtype"])), p, group)
    everywhere = DTensor.from_local(P, p.device_mesh, [Replicate()] * p.device_mesh.ndim)
    return everywhere.redistribute(placements=p.placements), whole.shape[1:]


def _as_matrices(x: Tensor, group: dict[str, Any]) -> Tensor:
    """A stack of matrices, each with a row for each output."""
    if group["stacked"]:
        x = x.reshape(-1, *x.shape[-2:])
        return x.mT if group["transposed"] else x
    return (x.transpose(0, 1) if group["transposed"] else x).flatten(1)[None]


def _as_parameter(P: Tensor, p: Tensor, group: dict[str, Any]) -> Tensor:
    """The inverse: steps in the shape of their parameter."""
    if group["stacked"]:
        return (P.mT if group["transposed"] else P).reshape(p.shape)
    if group["transposed"]:
        return P.reshape(p.shape[1], p.shape[0], *p.shape[2:]).transpose(0, 1)
    return P.reshape(p.shape)


def _factor(scale: str, rows: int, columns: int) -> float:
    """The factor $s$ of a shape."""
    if scale == "rms":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(rows / columns if scale == "spectral" else max(1.0, rows / columns))
