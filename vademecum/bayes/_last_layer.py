r"""The last layer of a network, its features, and curvature in its weights alone.

Outputs $z_i = W \phi_i + b$ are linear in the last layer, so that with $\bar\phi = (\phi, 1)$ the
Jacobian is $I \otimes \bar\phi_i^\top$ and the Gauss-Newton matrix $\sum_i \Lambda_i \otimes
\bar\phi_i \bar\phi_i^\top$ is the Hessian itself. Taken as $\frac1n (\sum_i \Lambda_i) \otimes
(\sum_i \bar\phi_i \bar\phi_i^\top) = B \otimes A$ (exact for Gaussian likelihoods), outputs have
covariances

$$Q_B \operatorname{diag}(v)\, Q_B^\top, \qquad v_c = \sum_j \frac{(Q_A^\top \bar\phi)_j^2}{\alpha_j
\beta_c + \sigma^{-2}},$$

for which neither $I \otimes \bar\phi^\top$ nor the Kronecker product is ever written out.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from vademecum.arrays import portions
from vademecum.bayes._curvature_blocks import (
    Curvature,
    DenseCurvature,
    DiagonalCurvature,
    LayerBlock,
    LayerCurvatures,
)
from vademecum.bayes._linear_calls import LinearCall, calls_of, places_of, rows_of
from vademecum.bayes._output_curvature import OutputCurvature
from vademecum.gradients.network_function import Functional
from vademecum.models import count_examples, map_tensors

__all__ = ["LastLayerSums", "features", "last_call"]

_BATCH = 1024  # examples that go through the network at a time, without a graph


def last_call(f: Functional, x: Any) -> tuple[LinearCall, Tensor]:
    """The call of the linear layer whose outputs are the network's, and places of its weights."""
    first = map_tensors(x, itemgetter(slice(1)))
    with torch.no_grad():
        z, calls = calls_of(f, f.theta, first)
    for call in reversed(calls):
        linear = isinstance(call.module, torch.nn.Linear)
        same = linear and isinstance(z, Tensor) and call.z.shape == z.shape and z.ndim == 2
        if same and _is_passed_on(f, call, first):
            if sum(c.module is call.module for c in calls) > 1:
                raise ValueError(f"{call.name} must be called once for subset 'last': use 'all'")
            return call, places_of(f, call)
    raise ValueError(
        "model must end in a linear layer with outputs (n, k) for subset 'last': use subset 'all'"
    )


def _is_passed_on(f: Functional, call: LinearCall, x: Any) -> bool:
    """Whether the network gives whatever this layer gives: numbers of both signs and all sizes."""
    steps = torch.linspace(-8, 8, call.z.numel() + 1, dtype=call.z.dtype, device=call.z.device)
    probe = (steps[:-1].sinh() + 0.5).view_as(call.z)
    for sent in (probe, -probe):
        handle = call.module.register_forward_hook(lambda *_, sent=sent: sent.clone())
        try:
            with torch.no_grad():
                got = f(f.theta, x)
        finally:
            handle.remove()
        if not isinstance(got, Tensor) or not got.equal(sent):
            return False
    return True


def features(f: Functional, name: str, x: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """What goes into the last layer, with a 1 for its bias, and outputs; some rows at a time."""
    for here in portions(count_examples(x), each=1, memory=_BATCH):
        with torch.no_grad():
            z, calls = calls_of(f, f.theta, map_tensors(x, itemgetter(here)))
        (call,) = (c for c in calls if c.name == name)
        yield rows_of(call)[:, 0], z


class LastLayerSums:
    """What the curvature is made of, summed over examples that come in parts.

    Args:
        law: The curvature of the likelihood in the outputs.
        places: Where the rows of (W, b) are, (k, d).
        structure: "full", "kron" or "diagonal".
        memory: Bytes to use at most.
    """

    def __init__(self, law: OutputCurvature, places: Tensor, structure: str, memory: int | None):
        self._law, self._places, self._memory = law, places, memory
        kron = structure == "kron" or (structure == "full" and law.name == "gaussian")
        self._structure = "kron" if kron else structure
        self._n, self._sums = 0, []

    def add(self, phi: Tensor, z: Tensor) -> None:
        """Take in features (n, d) and outputs (n, k)."""
        assert self._places.shape == (z.shape[1], phi.shape[1])
        if self._structure == "diagonal":
            new = [(self._law.diagonal(z).T @ phi.square()).flatten()]
        elif self._structure == "kron":
            new = [self._law.total(z), phi.T @ phi]
        else:
            new = [self._dense(phi, z)]
        self._sums = [a.add_(b) for a, b in zip(self._sums, new, strict=True)] if self._n else new
        self._n += len(z)

    def curvature(self) -> Curvature:
        """The curvature over the rows of (W, b) as a vector."""
        if self._structure == "diagonal":
            return DiagonalCurvature(self._sums[0])
        if self._structure == "full":
            return DenseCurvature(self._sums[0])
        B, A = self._sums
        local = torch.arange(self._places.numel(), device=A.device).view_as(self._places)
        return LayerCurvatures([LayerBlock(B / self._n, A, local)])

    def _dense(self, phi: Tensor, z: Tensor) -> Tensor:
        k, d = z.shape[1], phi.shape[1]
        room = 4 * (k * d) ** 2 * phi.element_size()
        if self._memory is not None and room > self._memory:
            raise ValueError(
                f"memory must be >= {room} bytes for structure 'full', got {self._memory}"
            )
        G = phi.new_zeros(k, d, k, d)
        if self._law.name == "bernoulli":
            weights = self._law.diagonal(z)
        else:
            weights = z.softmax(1)
            rows = (weights[:, :, None] * phi[:, None]).flatten(1)
            G.view(k * d, k * d).addmm_(rows.T, rows, alpha=-1)
        for c in range(k):
            G[c, :, c] += (phi * weights[:, c : c + 1]).T @ phi
        return G.view(k * d, k * d)
