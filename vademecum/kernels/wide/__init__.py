"""Networks of infinite width: what their architecture alone says of them."""

from vademecum.kernels.wide.limit_kernels import InfiniteWidth, WidthDiagonals, infinite_width

__all__ = ["InfiniteWidth", "WidthDiagonals", "infinite_width"]
