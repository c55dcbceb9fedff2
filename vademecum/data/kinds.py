"""What a data set is, once loaded: labelled images, a labelled graph, or a text."""

from typing import NamedTuple

from jaxtyping import Int64, Num
from torch import Tensor

from vademecum.results import one_line

__all__ = ["Graph", "Images", "Text"]


class Images(NamedTuple):
    r"""Labelled images.

    Attributes:
        x: The pixels, in $[0, 1]$ for a floating dtype, as stored for `torch.uint8`.
        y: The class of each image, an index into `classes`.
        classes: The names of the classes.
    """

    x: Num[Tensor, " n channels height width"]
    y: Int64[Tensor, " n"]
    classes: tuple[str, ...]

    __repr__ = one_line


class Graph(NamedTuple):
    """An undirected graph with labelled nodes.

    Attributes:
        edge_index: Every edge in both directions, as (source, target) columns in ascending order.
        n: The number of nodes.
        y: The class of each node, an index into `classes`.
        classes: The names of the classes.
    """

    edge_index: Int64[Tensor, " 2 edges"]
    n: int
    y: Int64[Tensor, " n"]
    classes: tuple[str, ...]

    __repr__ = one_line


class Text(NamedTuple):
    """A text.

    Attributes:
        text: The characters of the split.
        alphabet: The distinct characters of the whole corpus in ascending order, so that all
            splits number their characters alike.
    """

    text: str
    alphabet: str

    __repr__ = one_line
