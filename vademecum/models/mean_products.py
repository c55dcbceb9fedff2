r"""Products of a mean of matrices with blocks of columns, for a loader or within a memory limit.

A matrix $M = \sum_B m_B M_B / \sum_B m_B$ over batches $B$, such as a Hessian, multiplies a block
$V$ batch by batch: what multiplies with $M_B$ is made once for all columns of $V$. For data at hand
it is made once and for all, if there is room for it. Exact up to rounding; that `memory` suffices
is an estimate (see `Portions`).
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.utils.data import DataLoader

from vademecum.models.memory_limits import Portions
from vademecum.models.passes import Passes

__all__ = ["Block", "MeanProducts"]

Block = Callable[[Float[Tensor, " P columns"]], Float[Tensor, " P columns"]]
"""What multiplies the columns of a block."""
_VECTORS = 6  # of the size of theta, that products take in passing


class MeanProducts:
    """What multiplies blocks of columns with a mean of matrices over the batches of a loader.

    For inputs at hand the graph is made once and kept, unless `memory` has no room for it.

    Args:
        theta: The parameters as one vector.
        x: Inputs, or a `DataLoader`.
        y: The targets.
        block: What makes that which multiplies, for inputs and targets.
        value: A mean over examples, to see whether portions of them add up.
        passing: How many times what the graph keeps is needed at the peak of a product.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.
        by_examples: Whether batches count by their examples, whatever the loss.
    """

    def __init__(
        self,
        theta: Tensor,
        x: Any,
        y: Any,
        block: Callable[[Any, Any], Block],
        *,
        value: Callable[[Any, Any], Tensor],
        passing: float,
        memory: int | None = None,
        progress: bool = False,
        by_examples: bool = False,
    ):
        self._block, self._by_examples = block, by_examples
        portions = None
        if memory is not None:
            fixed = _VECTORS * theta.numel() * theta.itemsize
            portions = Portions(
                memory, fixed=fixed, passing=passing, graph=block, value=value,
                by_examples=by_examples,
            )  # fmt: skip
        if isinstance(x, DataLoader):
            self._kept = None
        else:
            fits = portions is None or portions(x, y) is None
            self._kept, portions = (block(x, y), None) if fits else (None, portions)
        self._passes = Passes(
            x, y, device=theta.device, progress=progress, shared=True, portions=portions
        )

    def __call__(self, V: Tensor) -> Tensor:
        """The products with the columns of a block."""
        if self._kept is not None:
            return self._kept(V)
        return self.mean(lambda x, y: self._block(x, y)(V), V)

    def mean(self, function: Callable[[Any, Any], Tensor], like: Tensor) -> Tensor:
        """The mean of a function of inputs and targets, shaped like a tensor."""
        return self._passes.mean(function, like, by_examples=self._by_examples)
