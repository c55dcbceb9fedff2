r"""Projected gradient descent, $\theta_{t + 1} = P(\theta_t - \eta g_t)$.

$P$ moves a point to the nearest one of a closed convex set: a region of `foundations`, or any
function of a vector that does so. The vector is that of all parameters of a group, joined in order,
so that the parameters of a group are constrained together and groups one by one. Frozen parameters
are not among them, and stay.

Exact up to the rounding of $P$.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from vademecum.foundations import Region
from vademecum.optimization._stepping import Batch, Descent, downhill, gathered, is_sharded

__all__ = ["ProjectedSGD"]


class ProjectedSGD(Descent):
    r"""Gradient descent within a convex set: a step, then the nearest point of the set.

    Args:
        params: Parameters, or groups of them with options of their own, `project` among them.
        lr: The step size $\eta \ge 0$, a number or a tensor with one entry.
        project: A region, or a function from a vector to the nearest point of a convex set; the
            vector is that of all parameters of a group.
        maximize: Whether to climb instead.
        foreach: Accepted for the sake of its siblings: the parameters are one vector anyway.

    Example:
        >>> from vademecum.foundations import Ball
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> optimizer = ProjectedSGD([x], lr=1.0, project=Ball(torch.zeros(2), 1.0))
        >>> (-0.75 * x[0]).backward()
        >>> optimizer.step()
        >>> x  # (0.75, 1) has the norm 1.25
        tensor([0.6000, 0.8000], requires_grad=True)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        project: Region | Callable[[Tensor], Tensor],
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        options = {"project": project, "maximize": maximize, "foreach": foreach}
        super().__init__(params, {"lr": lr, **options})

    _own = ("project",)

    def _checked(self, group: dict[str, Any]) -> None:
        super()._checked(group)
        if not (isinstance(group["project"], Region) or callable(group["project"])):
            kind = type(group["project"]).__name__
            raise ValueError(f"project must be a region or a function of a vector, got {kind}")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, whose parameters are constrained together."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        params, region = _constrained(group), group["project"]
        odd = next((p for p in params if _kind(p) != _kind(params[0]) or p.is_complex()), None)
        if odd is not None:
            raise ValueError(
                "params of a group must be real, of one dtype and on one device, got"
                f" {odd.dtype} on {odd.device}"
            )
        size = sum(p.numel() for p in params)
        if isinstance(region, Region):
            width = region.sample(1, generator=torch.Generator()).shape[-1]
            if width != size:
                raise ValueError(
                    f"project must be a region of {size} dimensions, one for each entry of the"
                    f" parameters, got {width}"
                )

    def _update(self, group: dict[str, Any], batch: Batch) -> None:
        eta, steps = group["lr"], dict(zip(batch.params, downhill(group, batch), strict=True))
        if not (params := _constrained(group)):
            return
        moved = [p - eta * steps[p] if p in steps else p for p in params]
        theta = torch.cat([gathered(x).reshape(-1) for x in moved])
        nearest = _nearest(group["project"], theta)
        for p, part in zip(params, nearest.split([p.numel() for p in params]), strict=True):
            new = _shared_out(part.view(p.shape), p)
            p.copy_(new if batch.keep is None else torch.where(batch.keep > 0, new, p))


def _constrained(group: dict[str, Any]) -> list[Tensor]:
    return [p for p in group["params"] if p.requires_grad]


def _kind(p: Tensor) -> tuple[torch.dtype, torch.device]:
    return p.dtype, p.device


def _nearest(project: Any, theta: Tensor) -> Tensor:
    nearest = project.project(theta[None])[0] if isinstance(project, Region) else project(theta)
    if nearest.shape != theta.shape:
        raise ValueError(
            f"project must give a vector of {len(theta)} entries, got shape {tuple(nearest.shape)}"
        )
    return nearest


def _shared_out(x: Tensor, like: Any) -> Tensor:
    """A tensor that all processes have, sharded like another."""
    if not is_sharded(like):
        return x
    from torch.distributed.tensor import distribute_tensor  # has been imported already

    return distribute_tensor(x, like.device_mesh, like.placements, src_data_rank=None)
