r"""Representations: a matrix $\rho(g)$ for each element, with $\rho(gh) = \rho(g) \rho(h)$.

A *permutation representation* moves the coordinates of a vector, $\rho(g) e_j = e_{g(j)}$, that is
$(\rho(g) x)_i = x_{g^{-1}(i)}$; it is kept as integers, and acts exactly, on numbers of any dtype.
The *character* of an element is the trace of its matrix. Direct sums are blocks below each other,
tensor products act on pairs of coordinates.

`permutation_matrix` is the other usual matrix of a permutation, $P_{i, \pi(i)} = 1$, which is
$\rho(\pi)^\top$: $P X$ is `X[pi]`, and $P_\sigma P_\pi = P_{\pi \circ \sigma}$ in reversed order.
The claims are `representation`, `group_action` and `permutation_matrix`.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Integer, Shaped
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.geometry.groups._generated import MOST, checked_permutation

__all__ = ["Representation", "permutation_matrix"]


class Representation:
    """Matrices or permutations for the elements of a group; called, it acts on vectors.

    Args:
        group: The group.
        images: For each element the integers (d,) to which it takes 0, ..., d - 1, or its matrix
            (d, d); all of them, in order.

    Raises:
        ValueError: If products of images are not the images of products; it names a pair.

    Example:
        >>> from vademecum.geometry import Group
        >>> group = Group.cyclic(3)
        >>> rho = group.natural()
        >>> rho(1, torch.tensor([10, 20, 30]))
        tensor([30, 10, 20])
        >>> rho.characters(), (rho * rho).d, (rho + group.trivial()).characters()
        (tensor([3, 0, 0]), 9, tensor([4, 1, 1]))
    """

    def __init__(self, group: Any, images: Shaped[Tensor, " order d *more"]):
        if not isinstance(images, Tensor) or images.ndim not in (2, 3):
            raise ValueError("images must be integers (order, d) or matrices (order, d, d)")
        if len(images) != group.order or (images.ndim == 3 and len({*images.shape[1:]}) > 1):
            raise ValueError(
                f"images must be {group.order} permutations or square matrices, got shape"
                f" {tuple(images.shape)}"
            )
        if images.ndim == 2:
            images = torch.stack([
                checked_permutation(f"images[{g}]", points) for g, points in enumerate(images)
            ])  # fmt: skip
        else:
            images = floats("images", images)
            if images.is_complex():
                raise ValueError(f"images must be real, got {images.dtype}")
        images = images.cpu()  # as the table is
        self._set(group, images.shape[1], images.__getitem__, exact=images.ndim == 2)
        self._insist_on_products(images)

    def _set(self, group: Any, d: int, image: Callable[[int], Tensor], *, exact: bool) -> None:
        self.group, self.d, self.exact, self._image = group, d, exact, image

    @classmethod
    def by(
        cls, group: Any, d: int, image: Callable[[int], Tensor], *, exact: bool
    ) -> "Representation":
        """A representation by a function of the element, which is not checked.

        Args:
            group: The group, of any size.
            d: The dimension.
            image: The permutation or the matrix of an element.
            exact: Whether they are permutations.
        """
        made = cls.__new__(cls)
        made._set(group, d, image, exact=exact)
        return made

    def _insist_on_products(self, images: Tensor) -> None:
        group = self.group
        for s in (group.identity, *group.generators):
            onto = images[group.table[:, s]]
            made = images[:, images[s]] if self.exact else images @ images[s]
            off = (made - onto).abs().flatten(1).amax(1)
            eps = 0 if self.exact else torch.finfo(images.dtype).eps
            bound = float(made.abs().max()) * self.d * 16 * eps
            if bool((off > bound).any()):
                g = int(off.argmax())
                names = group.name(g), group.name(s)
                raise ValueError(
                    "images must be a homomorphism, and that of {0} times that of {1} is not that"
                    " of {0} {1}".format(*names)
                )
        eye = torch.eye(self.d, device="cpu")
        if not self.exact and bool((images[group.identity] - eye).abs().max() > 1e-6):
            raise ValueError("images must have the identity matrix for the identity")

    def __call__(self, g: int, x: Shaped[Tensor, " *n d"]) -> Shaped[Tensor, " *n d"]:
        """The vectors, moved by an element.

        Args:
            g: The element.
            x: Vectors along the last axis.
        """
        if x.shape[-1:] != (self.d,):
            raise ValueError(f"x must be {self.d} wide, got shape {tuple(x.shape)}")
        if self.exact:
            return x.index_select(-1, self.permutation(g).argsort().to(x.device))
        if not (x.is_floating_point() or x.is_complex()):
            raise ValueError(f"x must be floating point to be moved by matrices, got {x.dtype}")
        return x @ self.matrix(g).to(x.device, x.dtype).mT

    def permutation(self, g: int) -> Integer[Tensor, " d"]:
        """Where an element takes the coordinates, of a permutation representation.

        Args:
            g: The element.
        """
        if not self.exact:
            raise ValueError("this representation is none by permutations")
        return self._image(whole("g", g, low=0, high=self.group.order - 1))

    def matrix(self, g: int) -> Shaped[Tensor, " d d"]:
        """The matrix of an element; of permutations, with integers.

        Args:
            g: The element.
        """
        whole("g", g, low=0, high=self.group.order - 1)
        if self.exact:
            return permutation_matrix(self._image(g).argsort())
        return self._image(g).contiguous()  # as `torch.kron` wants it

    def matrices(self) -> Shaped[Tensor, " order d d"]:
        """The matrices of all elements."""
        return torch.stack([self.matrix(g) for g in self.group])

    def characters(self) -> Shaped[Tensor, " order"]:
        """The traces of all elements; of permutations, how many coordinates stay."""
        if self.group.order > MOST:
            raise ValueError(
                f"group must have at most {MOST} elements to list characters, got {self.group}"
            )
        if self.exact:
            all_ = torch.stack([self._image(g) for g in self.group])
            return (all_ == torch.arange(self.d, device="cpu")).sum(1)
        return torch.stack([self._image(g).trace() for g in self.group])

    def __add__(self, other: "Representation") -> "Representation":
        self._insist_on_same_group(other)
        exact, d = self.exact and other.exact, self.d + other.d

        def image(g: int) -> Tensor:
            if exact:
                return torch.cat([self._image(g), self.d + other._image(g)])
            return torch.block_diag(*(r.matrix(g).double() for r in (self, other)))

        return Representation.by(self.group, d, image, exact=exact)

    def __mul__(self, other: "Representation") -> "Representation":
        self._insist_on_same_group(other)
        exact, d = self.exact and other.exact, self.d * other.d

        def image(g: int) -> Tensor:
            if exact:
                return (self._image(g)[:, None] * other.d + other._image(g)).flatten()
            return torch.kron(self.matrix(g).double(), other.matrix(g).double())

        return Representation.by(self.group, d, image, exact=exact)

    def _insist_on_same_group(self, other: "Representation") -> None:
        if self.group != other.group:
            raise ValueError(
                f"representations must be of one group, got {self.group} and {other.group}"
            )

    def __repr__(self) -> str:
        kind = "permutations" if self.exact else "matrices"
        return f"Representation({self.group}, d={self.d}, by {kind})"


def permutation_matrix(permutation: Integer[Tensor, " M"]) -> Integer[Tensor, " M M"]:
    r"""The matrix $P$ with $P_{i, \pi(i)} = 1$, so that `P @ X` is `X[permutation]`.

    Args:
        permutation: The second line $\pi(0), \pi(1), \dots$ of the two-line notation.

    Returns:
        Integers 0 and 1.

    Raises:
        ValueError: If it is no permutation; it names the first entry that is amiss.

    Example:
        >>> P = permutation_matrix(torch.tensor([2, 0, 1]))
        >>> P @ torch.tensor([10, 20, 30]), P @ P.T
        (tensor([30, 10, 20]), tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1]]))
    """
    points = checked_permutation("permutation", permutation)
    every = torch.arange(len(points), device=points.device)
    return (points[:, None] == every).long()
