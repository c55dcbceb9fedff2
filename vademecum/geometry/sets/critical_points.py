r"""Critical points: those of a cloud that a network which takes maxima over points depends on.

A maximum over points, $u_j = \max_m \varphi_j(x_m)$, is attained at one point for each feature $j$.
The points that attain any are the *critical set*; whatever else is taken away or put in between
them, the features and all that is made of them stay. There are at most as many critical points as
features that maxima are taken of, those of T-Nets included.

Maxima are seen as the network's code calls them, of any module: calls of torch whose axis grows
when a point is added. Of equal values the first counts. That the critical points alone give the
same output is measured: where a network also takes sums over points, they do not. The claim is
`pointnet`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vademecum.arguments import floats, whole
from vademecum.models import chosen_output, evaluation, unwrapped
from vademecum.results import one_line

__all__ = ["CriticalSet", "critical_set"]

_MAXIMA = {"max", "amax", "adaptive_max_pool1d"}


class CriticalSet(NamedTuple):
    """The points that attain a maximum.

    Example:
        >>> class Extremes(nn.Module):
        ...     def forward(self, x):
        ...         return torch.cat([x, -x], 2).amax(1)
        >>> critical_set(Extremes(), torch.tensor([[[3.0], [1.0], [2.0]]])).mask
        tensor([[ True,  True, False]])
    """

    mask: Bool[Tensor, " n M"]
    """Whether a point is critical."""
    wins: Int[Tensor, " n M"]
    """How many maxima it attains, of all features of all maxima."""
    features: int
    """How many features maxima are taken of: the most critical points that there can be."""
    gap: Float[Tensor, " n"]
    """By how much the output changes if critical points alone are left, relative to it."""

    __repr__ = one_line


def critical_set(
    model: nn.Module,
    x: Float[Tensor, " n ..."],
    *,
    mask: Bool[Tensor, " n M"] | None = None,
    dim: int = 1,
) -> CriticalSet:
    """Which points of each cloud a network depends on that takes maxima over them.

    Args:
        model: Any module that maps clouds of any size to a tensor, taken in evaluation mode.
        x: Clouds, (n, M, d), or with the points along another axis.
        mask: True where there is a point; everywhere by default. Clouds are given to the model
            one by one, without their padding.
        dim: The axis of the points, 1 or 2.

    Raises:
        ValueError: If the model takes no maximum over points, or has an output for each point.

    Example:
        >>> from vademecum.geometry import PointNet
        >>> net = PointNet(3, 2, width=16, transforms=(False, False))
        >>> found = critical_set(net, torch.randn(4, 100, 3))
        >>> bool(found.mask.sum(1).max() <= 16), bool(found.gap.max() < 1e-5)
        (True, True)
    """
    model = unwrapped(model)
    floats("x", x, ndim=3)
    clouds = x.detach().movedim(whole("dim", dim, low=1, high=2), 1)
    if mask is None:
        mask = torch.ones(clouds.shape[:2], dtype=torch.bool, device=x.device)
    elif mask.dtype != torch.bool or mask.shape != clouds.shape[:2]:
        form = tuple(clouds.shape[:2])
        raise ValueError(f"mask must be boolean of shape {form}, got {mask.dtype} {mask.shape}")
    if not bool(mask.any(1).all()):
        first = int((~mask.any(1)).nonzero()[0])
        raise ValueError(f"mask must leave points in every cloud, got none in cloud {first}")
    wins, gaps, features = torch.zeros(mask.shape, dtype=torch.long, device=x.device), [], 0
    with torch.no_grad(), evaluation(model):
        for i, (cloud, real) in enumerate(zip(clouds, mask, strict=True)):
            places = real.nonzero()[:, 0]
            call = _Cloud(model, dim)
            winners, output = call.maxima(cloud[places])
            features = len(winners)
            wins[i] = torch.bincount(places[winners], minlength=mask.shape[1])
            left = call(cloud[wins[i] > 0])
            gaps.append((left - output).abs().max() / output.abs().max().clamp(min=1e-30))
    return CriticalSet(wins > 0, wins, features, torch.stack(gaps))


class _Cloud:
    """A network on one cloud, (M, d)."""

    def __init__(self, model: nn.Module, dim: int):
        self.model, self.dim = model, dim

    def __call__(self, cloud: Tensor) -> Tensor:
        output = chosen_output(self.model(cloud[None].movedim(1, self.dim)))
        if not isinstance(output, Tensor):
            raise ValueError(f"model must give a tensor, got {type(output).__name__}")
        return output

    def maxima(self, cloud: Tensor) -> tuple[Tensor, Tensor]:
        """The winners of all features of all maxima over points, and the output."""
        with _Maxima() as seen:
            output = self(cloud)
        with _Maxima() as more:
            longer = self(torch.cat([cloud, cloud[-1:]]))
        if longer.shape != output.shape:
            raise ValueError(
                "model must give one output for a cloud, got outputs of shape"
                f" {tuple(output.shape)} and, with a point more, {tuple(longer.shape)}"
            )
        pairs = zip(seen.found, more.found, strict=True)
        over = [one for one, other in pairs if other[0] == one[0] + 1 == len(cloud) + 1]
        if not over:
            raise ValueError("model must take a maximum over points, and none was seen")
        return torch.cat([winners.flatten() for _, winners in over]), output


class _Maxima(TorchFunctionMode):
    """While it is entered, notes maxima: the length of their axis and who attains them."""

    def __init__(self):
        super().__init__()
        self.found: list[tuple[int, Tensor]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _MAXIMA and args and isinstance(args[0], Tensor) and args[0].ndim > 1:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if name == "adaptive_max_pool1d":
                dim = -1 if dim in (1, (1,), [1]) else None  # to one window, that is
            dim = dim[0] if isinstance(dim, tuple | list) and len(dim) == 1 else dim
            if isinstance(dim, int):
                self.found.append((args[0].shape[dim], args[0].argmax(dim)))
        return func(*args, **kwargs)
