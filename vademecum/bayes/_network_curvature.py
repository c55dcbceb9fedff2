r"""The Gauss-Newton matrix of a log-likelihood over all examples: dense, diagonal, by layers.

$G = \sum_i J_i^\top \Lambda_i J_i$ with the Jacobian $J_i$ of an example's outputs and the
likelihood's curvature $\Lambda_i = L_i L_i^\top$ in them. The columns of $L_i$, carried back to a
layer $z = W a + b$, are vectors $g_{i c t}$ at its positions t. With $\bar a = (a, 1)$ its block is
taken as

$$G \approx \frac1{n T} \Big( \sum_{i, c, t} g_{i c t} g_{i c t}^\top \Big) \otimes \Big(
\sum_{i, t} \bar a_{i t} \bar a_{i t}^\top \Big),$$

which is exact for one example and one position, or where one of the factors is the same for all.

References:
    Martens and Grosse, Optimizing neural networks with Kronecker-factored approximate curvature,
    ICML, 2015.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum.bayes._curvature_blocks import (
    Curvature,
    DenseCurvature,
    DiagonalCurvature,
    LayerBlock,
    LayerCurvatures,
)
from vademecum.bayes._linear_calls import calls_of, places_of, rows_of
from vademecum.bayes._output_curvature import OutputCurvature
from vademecum.gradients import functional, per_example_gradients
from vademecum.models import Output
from vademecum.optimization import gauss_newton

__all__ = ["NetworkSums", "along"]


class NetworkSums:
    """What the curvature in all parameters is made of, summed over examples that come in parts.

    Args:
        model: The network.
        law: The curvature of the likelihood in the outputs.
        structure: "full", "kron" or "diagonal".
        memory: Bytes to use at most.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives.
    """

    def __init__(
        self, model: nn.Module, law: OutputCurvature, *, structure: str, memory: int | None,
        frozen: bool, output: Output,
    ):  # fmt: skip
        self._model, self._law, self._structure = model, law, structure
        self._knobs: Any = {"memory": memory, "frozen": frozen, "output": output}
        self._sum: Tensor | None = None
        self._blocks: list[LayerBlock] = []
        self._rows: list[int] = []  # of what each layer saw

    def add(self, x: Any, y: Tensor, z: Tensor) -> None:
        """Take in examples with outputs z (n, k)."""
        if self._structure == "kron":
            self._add_layers(x, self._law.root(z))
            return
        if self._structure == "full":
            new = gauss_newton(self._model, x, y, loss=self._law.loss, **self._knobs).dense()
        else:
            roots = self._law.root(z).unbind(2)
            new = sum(along(self._model, x, u, **self._knobs).square().sum(0) for u in roots)
        assert isinstance(new, Tensor)
        self._sum = new if self._sum is None else self._sum + new

    def curvature(self) -> Curvature:
        """The curvature of all examples."""
        if self._structure == "kron":
            pairs = zip(self._blocks, self._rows, strict=True)
            return LayerCurvatures([block._replace(scale=1 / rows) for block, rows in pairs])
        assert self._sum is not None
        full = self._structure == "full"
        return DenseCurvature(self._sum) if full else DiagonalCurvature(self._sum)

    def _add_layers(self, x: Any, roots: Tensor) -> None:
        frozen, output = self._knobs["frozen"], self._knobs["output"]
        new, rows = _by_layer(self._model, x, roots, frozen, output)
        if not self._blocks:
            self._blocks, self._rows = new, rows
            return
        if [b.places.tolist() for b in new] != [b.places.tolist() for b in self._blocks]:
            raise ValueError("layers must be called in the same order for all batches of x")
        pairs = zip(self._blocks, new, strict=True)
        self._blocks = [a._replace(B=a.B + b.B, A=a.A + b.A) for a, b in pairs]
        self._rows = [a + b for a, b in zip(self._rows, rows, strict=True)]


def along(model: nn.Module, x: Any, u: Tensor, **knobs: Any) -> Tensor:
    r"""The products $J_i^\top u_i$, (n, P), for one vector u (n, k) beside each output."""

    def product(z: Tensor, u: Tensor) -> Tensor:
        return (z * u.view(z.shape)).sum()

    return per_example_gradients(model, x, u, loss=product, **knobs)


def _by_layer(
    model: nn.Module, x: Any, roots: Tensor, frozen: bool, output: Output
) -> tuple[list[LayerBlock], list[int]]:
    """The factors of each layer, and the numbers of rows they are sums over."""
    f = functional(model, frozen=frozen, output=output)
    with torch.enable_grad():
        z, calls = calls_of(f, f.theta.detach().requires_grad_(), x)
    seen = [id(call.module) for call in calls]
    if len(set(seen)) < len(seen):
        name = next(c.name for c in calls if seen.count(id(c.module)) > 1)
        raise ValueError(f"layers must be called once for structure 'kron', and {name!r} is not")
    places = [places_of(f, call) for call in calls]
    if sum(p.numel() for p in places) != f.size:
        raise ValueError(
            "structure must be 'full' or 'diagonal' where parameters belong to other layers than"
            " linear ones and convolutions"
        )
    B = [f.theta.new_zeros(len(p), len(p)) for p in places]
    outputs = [call.z for call in calls]
    for c in range(roots.shape[2]):
        u = roots[..., c].view(z.shape)
        back = torch.autograd.grad(z, outputs, u, retain_graph=True, materialize_grads=True)
        for total, g, call in zip(B, back, calls, strict=True):
            if isinstance(call.module, nn.Conv2d):
                g = g.flatten(2).mT
            g = g.reshape(-1, len(total))
            total += g.T @ g
    blocks, counts = [], []
    for total, call, where in zip(B, calls, places, strict=True):
        rows = rows_of(call._replace(a=call.a.detach())).flatten(0, 1)
        blocks.append(LayerBlock(total, rows.T @ rows, where))
        counts.append(len(rows))
    return blocks, counts
