r"""The terms of the Kullback-Leibler divergence, exact at zero and accurate for equal arguments.

$$\phi(p, q) = p \ln \frac pq - p + q \ge 0, \qquad \phi(0, q) = q, \quad
\phi(p, 0) = \infty \text{ for } p > 0,$$

with equality only for $p = q$. For laws, $\sum_x \phi(p_x, q_x) = \mathrm{KL}(p \| q)$, because
$\sum_x (q_x - p_x) = 0$; and no term cancels another. Each is computed as $d - p \ln(1 + d / p)$
from the difference $d = q - p$: so $\phi(p, p) = 0$, and for nearly equal $p$ and $q$ the error
is what changing $q$ by a few units in the last place would do. (With $\ln p - \ln q$ it would be
of the order of machine precision, which can be far more than the divergence.)

The derivatives are $\partial_p \phi = \ln p - \ln q$ and $\partial_q \phi = 1 - p / q$. At $p = 0$
the first is infinite; there $\ln p$ counts as 0, so that a gradient through `softmax`, where a zero
has the weight zero, is right. Compared with $p \ln (p / q)$ the derivatives lack 1 and have 1 more,
which no direction inside the simplex can tell.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["relative_entropy"]


def relative_entropy(
    p: Float[Tensor, " *#shape"], q: Float[Tensor, " *#shape"]
) -> Float[Tensor, " ..."]:
    r"""The terms $\phi(p, q) = p \ln(p / q) - p + q$, entry by entry.

    SciPy's `kl_div`, with derivatives. Arguments are not checked: they must be at least 0.

    Example:
        >>> relative_entropy(torch.tensor([1.0, 0.0, 0.5]), torch.tensor([1.0, 0.25, 0.0]))
        tensor([0.0000, 0.2500,    inf])
    """
    return _RelativeEntropy.apply(*torch.broadcast_tensors(p, q))


class _RelativeEntropy(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(p: Tensor, q: Tensor) -> Tensor:
        d = q - p
        # For a subnormal p the quotient may overflow; then p times any logarithm is nothing.
        log = (d / p).clamp(max=torch.finfo(p.dtype).max).log1p_()
        log = torch.where(2 * q < p, (q / p).log_(), log)
        return torch.where(p > 0, d.sub_(log.mul_(p)), q)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        by_p, by_q = _derivatives(*ctx.saved_tensors)
        return grads[0] * by_p, grads[0] * by_q

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        by_p, by_q = _derivatives(*ctx.saved_tensors)
        return tangents[0] * by_p + tangents[1] * by_q


def _derivatives(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    q = torch.where(p + q > 0, q, 1)
    return torch.where(p > 0, p, 1).log() - q.log(), 1 - p / q
