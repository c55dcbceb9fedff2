r"""How long a linear recurrence remembers.

$$|\lambda|^t = e^{-t / \tau}, \qquad \tau = -1 / \ln |\lambda| .$$

After $\tau$ steps an input has faded to the share $1/e$. The time scale lies between
$\frac{1}{1 - |\lambda|} - 1$ and $\frac{1}{1 - |\lambda|} - \frac12$; the phase has no part in it.
For an LRU it is $e^{-\nu}$, which loses no digits near 1. The claim is `eigenvalue_time_scale`.
"""

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from vademecum.arguments import floats
from vademecum.recurrence.linear_recurrences import LinearRecurrence
from vademecum.recurrence.linear_units import LRU

__all__ = ["memory_length"]


@torch.no_grad()
def memory_length(
    recurrence: LRU | LinearRecurrence | Inexact[Tensor, " *shape"],
) -> Float[Tensor, " *times"]:
    r"""The number of steps after which what an eigenvalue carries has faded to $1/e$.

    Args:
        recurrence: An LRU, whose time scales come layer by layer; a linear recurrence; or
            eigenvalues.

    Returns:
        A time scale for each eigenvalue: 0 for the eigenvalue 0, infinity for a modulus of 1.

    Raises:
        ValueError: If an eigenvalue has a modulus above 1: it forgets nothing, and grows.

    Example:
        >>> memory_length(torch.tensor([0.5, -0.5, 0.99, 1.0]))
        tensor([ 1.4427,  1.4427, 99.4993,     inf])
    """
    if isinstance(recurrence, LRU):
        return recurrence.time_scales
    whole = isinstance(recurrence, LinearRecurrence)
    modulus = floats("eigenvalues", recurrence.eigenvalues if whole else recurrence).abs()
    rounding = 8 * torch.finfo(modulus.dtype).eps * (modulus.numel() if whole else 1)
    if modulus.amax() > 1 + rounding:
        raise ValueError(
            f"eigenvalues must have moduli of at most 1, got {float(modulus.amax()):.9g}"
        )
    return modulus.clamp(max=1).log().abs().reciprocal()
