r"""Descent along signs, $\theta_{t + 1} = \theta_t - \eta \operatorname{sign}(g_t)$.

Every coordinate moves by $\eta$, or not at all where its gradient is 0, so that the size of the
gradient does not matter and one bit a coordinate tells another machine what to do. Up to the
rounding of the sum exact. The claim is `signsgd`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from vademecum.optimization._stepping import Batch, Descent, downhill, together

__all__ = ["SignSGD"]


class SignSGD(Descent):
    r"""Sign descent, $\theta \leftarrow \theta - \eta \operatorname{sign}(g)$.

    Of a complex gradient the signs of the real and of the imaginary part count.

    Args:
        params: Parameters, or groups of them with options of their own.
        lr: The step size $\eta \ge 0$, a number or a tensor with one entry.
        maximize: Whether to climb instead.
        foreach: Whether to treat all tensors in one call; by default off the CPU.

    References:
        Bernstein, Wang, Azizzadenesheli and Anandkumar, signSGD: compressed optimisation for
        non-convex problems, ICML, 2018.

    Example:
        >>> x = torch.tensor([3.0, -0.25, 0.0], requires_grad=True)
        >>> optimizer = SignSGD([x], lr=0.5)
        >>> x.square().sum().backward()
        >>> optimizer.step()
        >>> x.tolist()
        [2.5, 0.25, 0.0]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(params, {"lr": lr, "maximize": maximize, "foreach": foreach})

    def _update(self, group: dict[str, Any], batch: Batch) -> None:
        eta = group["lr"]
        if batch.keep is not None:
            eta = eta * batch.keep
        elif isinstance(eta, Tensor):
            eta = eta.item()
        pairs = list(zip(batch.params, downhill(group, batch), strict=True))
        params, grads = (list(map(_real, xs)) for xs in zip(*pairs, strict=True))
        if together(group, batch.params):
            signs = torch._foreach_sign(grads)
            if isinstance(eta, Tensor):
                torch._foreach_mul_(signs, eta)
            torch._foreach_add_(params, signs, alpha=-1 if isinstance(eta, Tensor) else -eta)
        else:
            for p, g in zip(params, grads, strict=True):
                if isinstance(eta, Tensor):
                    p.sub_(g.sign().mul_(eta))
                else:
                    p.add_(g.sign(), alpha=-eta)


def _real(x: Tensor) -> Tensor:
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
