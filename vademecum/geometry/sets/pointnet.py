r"""PointNet: a maximum over points, which a few of them decide.

$$f(X) = \rho\bigl(\max_m \varphi(x_m)\bigr) ,$$

with one network $\varphi$ for all points, the maximum in each feature, and a read-out. Two small
networks of the same form, T-Nets, predict from the cloud a matrix $A$ that is applied to all
points, and one that is applied to their first features; the latter is held near an orthogonal one
by the penalty $\|I - A A^\top\|_F^2$. For segmentation each point's features and the global ones
go through a further network. The order of the points does not matter, nor do copies of them;
rotations do, whatever the T-Nets learn. Checked by the claims `pointnet` and `t_net`.
"""

from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.geometry.sets._ragged import Ragged, ragged
from vademecum.results import one_line

__all__ = ["PointNet", "PointNetOutput"]


class PointNetOutput(NamedTuple):
    """What a PointNet makes of clouds on the way to its logits.

    Example:
        >>> out = PointNet(3, num_classes=2, width=8).run(torch.zeros(2, 5, 3))
        >>> out.logits.shape, out.feature.shape
        (torch.Size([2, 2]), torch.Size([2, 8]))
        >>> out.penalty.item()  # T-Nets begin with the identity
        0.0
    """

    logits: Tensor
    """The logits, as the network gives them."""
    feature: Float[Tensor, " n width"]
    """The global feature of each cloud: the maximum over its points."""
    input_transform: Float[Tensor, " n d d"] | None
    """The matrix that the points were multiplied by, from the right; None without its T-Net."""
    feature_transform: Float[Tensor, " n m m"] | None
    """The one for the features of points."""

    __repr__ = one_line

    @property
    def penalty(self) -> Tensor:
        r"""The mean over clouds of $\|I - A A^\top\|_F^2$, of the matrix for features."""
        A = self.feature_transform
        if A is None:
            return self.logits.new_zeros(())
        gap = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device) - A @ A.mT
        return gap.square().sum((1, 2)).mean()


class PointNet(nn.Module):
    """A network for clouds of points, which classifies each cloud or each of its points.

    Args:
        d: How many coordinates a point has.
        num_classes: How many logits there are.
        task: Whether each cloud has logits, or each point.
        width: How many global features there are; other widths follow in the published ratios.
        transforms: Whether there is a T-Net for the points, and one for their features.
        norm: Whether batches are normalised after each layer but the last.
        dropout: The rate at which the last hidden features are dropped in training.

    Raises:
        ValueError: If a number is out of range.

    References:
        Qi, Su, Mo and Guibas, PointNet: deep learning on point sets for 3D classification and
        segmentation, CVPR, 2017.

    Example:
        >>> net = PointNet(3, num_classes=4, task="segmentation", width=64).eval()
        >>> net(torch.randn(2, 50, 3)).shape
        torch.Size([2, 50, 4])
    """

    def __init__(
        self,
        d: int,
        num_classes: int = 40,
        *,
        task: Literal["classification", "segmentation"] = "classification",
        width: int = 1024,
        transforms: tuple[bool, bool] = (True, True),
        norm: bool = True,
        dropout: float = 0.3,
    ):
        super().__init__()
        self.d, self.task = whole("d", d, low=1), task
        choice("task", task, ("classification", "segmentation"))
        whole("num_classes", num_classes, low=1)
        number("dropout", dropout, low=0, high=1)
        first, middle = max(2, whole("width", width, low=1) // 16), max(2, width // 8)
        half, quarter = max(2, width // 2), max(2, width // 4)
        drop = nn.Dropout(dropout)
        sizes = (first, middle, width, half, quarter)
        self.input_net = _TNet(d, sizes, norm) if transforms[0] else None
        self.points = _layers((d, first, first), norm)
        self.feature_net = _TNet(first, sizes, norm) if transforms[1] else None
        self.features = _layers((first, first, middle, width), norm)
        if task == "classification":
            self.head = nn.Sequential(*_layers((width, half, quarter), norm), drop)
            self.logits = nn.Linear(quarter, num_classes)
        else:
            head = _layers((first + width, half, quarter, middle), norm)
            self.head, self.logits = nn.Sequential(*head, drop), nn.Linear(middle, num_classes)

    def forward(
        self,
        x: Float[Tensor, " *rows d"],
        *,
        mask: Bool[Tensor, " n M"] | None = None,
        segments: Int[Tensor, " N"] | None = None,
        num_sets: int | None = None,
    ) -> Float[Tensor, " ..."]:
        """The logits of clouds, (n, k), or of their points, where these are; padding gets zeros.

        Args:
            x: Clouds, padded to a common size, (n, M, d), or packed, (N, d).
            mask: True where there is a point; everywhere by default.
            segments: The number of the cloud that each packed point belongs to, in any order.
            num_sets: How many packed clouds there are.
        """
        return self.run(x, mask=mask, segments=segments, num_sets=num_sets).logits

    def run(
        self,
        x: Float[Tensor, " *rows d"],
        *,
        mask: Bool[Tensor, " n M"] | None = None,
        segments: Int[Tensor, " N"] | None = None,
        num_sets: int | None = None,
    ) -> PointNetOutput:
        """Logits, global features and the matrices of both T-Nets, whose penalty a loss may add.

        Args:
            x: Clouds, padded to a common size, (n, M, d), or packed, (N, d).
            mask: True where there is a point; everywhere by default.
            segments: The number of the cloud that each packed point belongs to, in any order.
            num_sets: How many packed clouds there are.
        """
        sets = ragged(x, mask, segments, num_sets, d=self.d, empty=False)
        z, A = _aligned(self.input_net, sets.rows, sets)
        z, B = _aligned(self.feature_net, self.points(z), sets)
        feature = sets.pooled(self.features(z), "max")
        if self.task == "classification":
            return PointNetOutput(self.logits(self.head(feature)), feature, A, B)
        each = self.logits(self.head(torch.cat([z, sets.spread(feature)], 1)))
        return PointNetOutput(sets.unpacked(each), feature, A, B)


def _aligned(net: Any, z: Tensor, sets: Ragged) -> tuple[Tensor, Tensor | None]:
    """Elements times the matrix of their set."""
    if net is None:
        return z, None
    A = net(z, sets)
    return sets.mapped(z, A), A


class _TNet(nn.Module):
    """A matrix for each cloud; the identity at first."""

    def __init__(self, d: int, sizes: tuple[int, int, int, int, int], norm: bool):
        super().__init__()
        self.points = _layers((d, *sizes[:3]), norm)
        self.head = _layers(sizes[2:], norm)
        self.matrix = nn.Linear(sizes[-1], d * d)
        nn.init.zeros_(self.matrix.weight)
        with torch.no_grad():
            self.matrix.bias.copy_(torch.eye(d).flatten())

    def forward(self, x: Tensor, sets: Ragged) -> Tensor:
        A = self.matrix(self.head(sets.pooled(self.points(x), "max")))
        return A.unflatten(1, (x.shape[1], x.shape[1]))


def _layers(sizes: tuple[int, ...], norm: bool) -> nn.Sequential:
    """Dense layers, each with batch normalisation if that is wanted, and ReLU."""
    layers: list[nn.Module] = []
    for n, m in pairwise(sizes):
        layers += [nn.Linear(n, m), *([nn.BatchNorm1d(m)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers)
