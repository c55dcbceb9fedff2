r"""Max-affine functions: the finite-valued polyhedral functions, called k-hinges.

A $k$-hinge is the maximum of $k$ affine functions of $x \in \mathbb{R}^d$,

$$g(x) = \max_{j \le k} \left(\langle A_j, x \rangle + b_j\right),$$

so it is convex and piecewise linear, and its epigraph
$\{(x, t) : \langle A_j, x \rangle + b_j \le t \text{ for all } j\}$ is the intersection of $k$
half-spaces. Evaluation is exact up to the rounding of the inner products; where pieces tie the
derivative is that of the first. The claims are `maxout` and `polyhedral`.
"""

from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import floats

__all__ = ["MaxAffine"]


class MaxAffine(nn.Module):
    r"""The convex function $g(x) = \max_j (\langle A_j, x \rangle + b_j)$.

    Args:
        A: The slopes, a row for each piece; copied, and trainable.
        b: The values of the pieces at 0.

    References:
        Rockafellar, Convex Analysis, Princeton University Press, 1970, section 19.

    Example:
        >>> g = MaxAffine(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.0, 1.0]))
        >>> g(torch.tensor([[3.0, 1.0], [3.0, 5.0]]))  # max(x, y + 1)
        tensor([3., 6.], grad_fn=<MaxBackward0>)
    """

    def __init__(self, A: Float[Tensor, " k d"], b: Float[Tensor, " k"]):
        super().__init__()
        A, b = floats("A", A, ndim=2), floats("b", b, ndim=1, width=len(A))
        if (A.dtype, A.device) != (b.dtype, b.device):
            raise ValueError(
                f"b must be {A.dtype} on {A.device} as A is, got {b.dtype} on {b.device}"
            )
        self.A, self.b = nn.Parameter(A.detach().clone()), nn.Parameter(b.detach().clone())

    def forward(self, x: Float[Tensor, " *batch d"]) -> Float[Tensor, " *batch"]:
        """The largest piece at each point."""
        return self.affine_pieces(x).max(-1).values

    def affine_pieces(self, x: Float[Tensor, " *batch d"]) -> Float[Tensor, " *batch k"]:
        """The values of all pieces at each point."""
        if x.ndim == 0 or x.shape[-1] != self.A.shape[1]:
            raise ValueError(f"x must be {self.A.shape[1]} wide, got shape {tuple(x.shape)}")
        return nn.functional.linear(x, self.A, self.b)

    def extra_repr(self) -> str:
        """The numbers of pieces and coordinates."""
        return f"pieces={len(self.A)}, d={self.A.shape[1]}"
