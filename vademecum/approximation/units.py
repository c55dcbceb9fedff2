r"""The piecewise-linear units that torch lacks: the absolute value and maxout.

The absolute value unit is $z \mapsto |z|$, entry by entry. A layer of $m$ maxout units with $k$
pieces each takes $x \in \mathbb{R}^n$ to

$$g_i(x) = \max_{j \le k} \left(\langle \theta_{ij}, x \rangle + b_{ij}\right), \qquad i \le m.$$

With $k = 2$ and one piece zero a maxout unit is a ReLU, with opposite pieces $|\cdot|$. Both are
evaluated as they stand. Where pieces tie, the derivative of maxout is that of the first of them;
that of $|z|$ at 0 is 0. The claims are `abs_unit` and `maxout`.
"""

from jaxtyping import Float, Num
from torch import Tensor, nn

from vademecum.arguments import whole

__all__ = ["AbsUnit", "Maxout"]


class AbsUnit(nn.Module):
    r"""The absolute value, entry by entry: active on both sides of its hyperplane.

    References:
        Jarrett, Kavukcuoglu, Ranzato and LeCun, What is the best multi-stage architecture for
        object recognition?, ICCV, 2009.

    Example:
        >>> AbsUnit()(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([2., 0., 3.])
    """

    def forward(self, x: Num[Tensor, " *shape"]) -> Num[Tensor, " *shape"]:
        """Apply the unit to every entry."""
        return x.abs()


class Maxout(nn.Module):
    r"""A layer of maxout units: each the largest of `pieces` affine functions of its input.

    Args:
        in_features: The dimension $n$ of the input.
        out_features: The number $m$ of units.
        pieces: The number $k$ of affine functions of each unit.
        bias: Whether these have a constant term.

    Attributes:
        linear: All affine functions as one layer: $k$ outputs for the first unit, and so on.

    References:
        Goodfellow, Warde-Farley, Mirza, Courville and Bengio, Maxout networks, ICML, 2013.

    Example:
        >>> unit = Maxout(1, 1, pieces=2, bias=False)
        >>> unit.linear.weight.data = torch.tensor([[-1.0], [1.0]])  # the pieces -x and x
        >>> unit(torch.tensor([[-2.0], [3.0]])).tolist()
        [[2.0], [3.0]]
    """

    def __init__(self, in_features: int, out_features: int, pieces: int = 2, *, bias: bool = True):
        super().__init__()
        self.in_features = whole("in_features", in_features, low=1)
        self.out_features = whole("out_features", out_features, low=1)
        self.pieces = whole("pieces", pieces, low=1)
        self.linear = nn.Linear(in_features, out_features * pieces, bias=bias)

    def forward(self, x: Float[Tensor, " *batch n"]) -> Float[Tensor, " *batch m"]:
        """The largest piece of every unit."""
        return self.affine_pieces(x).max(-1).values

    def affine_pieces(self, x: Float[Tensor, " *batch n"]) -> Float[Tensor, " *batch m k"]:
        """The values of all pieces of every unit."""
        if x.ndim == 0 or x.shape[-1] != self.in_features:
            raise ValueError(f"x must be {self.in_features} wide, got shape {tuple(x.shape)}")
        return self.linear(x).unflatten(-1, (self.out_features, self.pieces))

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        return f"{self.in_features}, {self.out_features}, pieces={self.pieces}"
