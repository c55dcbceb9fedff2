r"""The tangent kernel of a network: inner products of the gradients of its outputs.

For a network $f(\theta, x) \in \mathbb{R}^k$ with the parameters that it has now,

$$K_{ij, cd} = \langle \nabla_\theta f_c(\theta, x_i), \nabla_\theta f_d(\theta, x'_j) \rangle =
\sum_l \langle \nabla_{W_l} f_c(\theta, x_i), \nabla_{W_l} f_d(\theta, x'_j) \rangle,$$

a sum over the parameters $W_l$. One forward and $k$ backward passes bring to each layer what went
in, $a$, and what comes back, $b$; each parameter then takes the cheapest of several exact ways by
counted multiplications (`vademecum.kernels._layer_products`), and `torch.func` is asked for what no
layer's rule covers alone. No Jacobian of all parameters is ever held.

Exact up to rounding, in single precision at least; that `memory` suffices is an estimate. The
claims are `neural_tangent_kernel`, `tangent_features` and `ntk_coupling`.
"""

from concurrent.futures import Executor
from hashlib import sha256
from os import PathLike
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, whole
from vademecum.kernels._tangent_inputs import insist_on_data
from vademecum.kernels._tangent_tiles import TangentTiles
from vademecum.kernels._tiles import filled
from vademecum.models import Output, named_tensors

__all__ = ["empirical_ntk"]

_OUTPUTS = ("full", "diagonal", "trace", "sum")


def empirical_ntk(
    model: nn.Module,
    x1: Any,
    x2: Any = None,
    *,
    outputs: str = "full",
    memory: int | None = None,
    executor: Executor | None = None,
    out: Tensor | str | PathLike[str] | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> Float[Tensor, " n1 n2 ..."]:
    r"""The tangent kernel of a network with the parameters that it has now.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module whose examples do not influence each other in evaluation mode. What an
            example gives, flattened, are its $k$ outputs.
        x1: Inputs; a tensor, or any structure of tensors (see `functional`), with the examples
            along the first axis.
        x2: Other inputs of the same kind; None for those of `x1` once more, at half of the work.
        outputs: What to give of the $k \times k$ numbers $K_{cd}$ of a pair: all of them ("full"),
            $K_{cc}$ ("diagonal"), $\sum_c K_{cc}$ ("trace"), or the sum-of-logits approximation
            $\sum_{c, d} K_{cd}$ ("sum"): the kernel of $\sum_c f_c$, which takes one backward pass
            in the place of $k$ and is close to the trace where gradients of different outputs are
            almost orthogonal, as in wide networks.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        executor: Where tiles of the matrix are computed, such as a pool of processes or the client
            of a cluster; here by default.
        out: Where to write: a tensor of the shape of the result, or the path of a NumPy file, which
            then is mapped into memory; a build that was killed goes on where it was.
        progress: Whether to show a progress bar on standard error. It counts tiles.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The kernel, of shape (n1, n2, k, k), (n1, n2, k) or (n1, n2), in the dtype of
        `functional(model).theta`, or in single precision for models in half precision.

    Raises:
        ValueError: If there are no examples or parameters, examples influence each other, outputs
            are not finite or not differentiable, or `x2` differs from `x1` in shape, dtype or
            device.

    References:
        Jacot, Gabriel and Hongler, Neural tangent kernel: convergence and generalization in neural
        networks, NeurIPS, 2018. Novak, Sohl-Dickstein and Schoenholz, Fast finite width neural
        tangent kernel, ICML, 2022. Mohamadi, Bae and Sutherland, A fast, well-founded approximation
        to the empirical neural tangent kernel, ICML, 2023.

    Example:
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> empirical_ntk(nn.Linear(2, 5), x, outputs="trace")  # five times x x^T + 1
        tensor([[ 30.,  60.],
                [ 60., 130.]])
        >>> empirical_ntk(nn.Linear(2, 5), x, x[:1]).shape
        torch.Size([2, 1, 5, 5])
    """
    choice("outputs", outputs, _OUTPUTS)
    insist_on_data(x1, x2)
    if memory is not None:
        whole("memory", memory, low=1)
    tiles = TangentTiles(
        model, x1, x2, outputs=outputs, memory=memory, frozen=frozen, output=output
    )
    return filled(
        tiles,
        tiles.shape,
        symmetric=x2 is None,
        tile=tiles.tile,
        dtype=tiles.one.dtype,
        device=tiles.f.device,
        executor=executor,
        out=out,
        key=_key(tiles, x1, x2) if isinstance(out, str | PathLike) else "",
        progress=progress,
    )


def _key(tiles: TangentTiles, x1: Any, x2: Any) -> str:
    """What a kernel depends on: its kind, the model's layers, tensors and inputs, as a hash."""
    model, counted = tiles.f.model, sorted(tiles.f.parameters)
    kind = tiles.output if isinstance(tiles.output, str | int) else type(tiles.output).__name__
    found = sha256(f"{tiles.outputs} {kind} {counted} {sorted(tiles.scales.items())}".encode())
    found.update(repr(model).encode())
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for place, t in named_tensors((state, x1, x2)):
        found.update(f"{place} {t.dtype} {tuple(t.shape)}".encode())
        numbers = t.detach().contiguous().cpu().view(-1)
        found.update(numbers.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
