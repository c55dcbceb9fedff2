r"""The linear autoencoder, and its optimum.

$$z = C x, \qquad \hat x = D z, \qquad C \in \mathbb R^{m \times n},\ D \in \mathbb R^{n \times m},\
m \le n,$$

with the loss $\frac{1}{2s} \sum_{i=1}^s \|x_i - D C x_i\|^2$ over $s$ examples. By Eckart and Young
its least value is $\frac{1}{2s} \sum_{i > m} \sigma_i^2$ with the singular values of the data, and
$C = V_m^\top$, $D = V_m$ attain it, where the columns of $V_m$ are the $m$ leading right singular
vectors of the matrix whose rows are the examples: for centred data, the principal directions. So do
$C = A V_m^\top$, $D = V_m A^{-1}$ for every invertible $A$, and nothing else if
$\sigma_m > \sigma_{m+1}$ and the data have rank $m$ at least.

The optimum is exact up to rounding. The claims are `autoencoder`, `autoencoder_gradients`,
`autoencoder_symmetry` and `autoencoder_pca`.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import floats, whole
from vademecum.linear._principal import principal_directions

__all__ = ["LinearAutoencoder"]


class LinearAutoencoder(nn.Module):
    r"""The map $x \mapsto D C x$ through a code of `m` numbers, without biases.

    Weights start as independent normal numbers of variance $1 / n$.

    Args:
        n: The width of the input.
        m: The width of the code, at most `n`.

    Attributes:
        C: The encoder, of shape (m, n).
        D: The decoder, of shape (n, m).

    References:
        Baldi, Hornik, Neural networks and principal component analysis: learning from examples
        without local minima, Neural Networks, 1989.

    Example:
        >>> x = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> best = LinearAutoencoder(2, 1).set_optimum(x)
        >>> best(x[::2]), best.loss(x).item()  # the second coordinate is lost: 2 / (2 * 4)
        (tensor([[3., 0.], [0., 0.]], grad_fn=<MmBackward0>), 0.25)
    """

    def __init__(self, n: int, m: int):
        super().__init__()
        self.n, self.m = whole("n", n, low=1), whole("m", m, low=1, high=n)
        self.C = nn.Parameter(torch.randn(m, n) / n**0.5)
        self.D = nn.Parameter(torch.randn(n, m) / n**0.5)

    def encode(self, x: Float[Tensor, " *batch n"]) -> Float[Tensor, " *batch m"]:
        """The codes $C x$."""
        return x @ self.C.mT

    def decode(self, z: Float[Tensor, " *batch m"]) -> Float[Tensor, " *batch n"]:
        """The reconstructions $D z$."""
        return z @ self.D.mT

    def forward(self, x: Float[Tensor, " *batch n"]) -> Float[Tensor, " *batch n"]:
        """The reconstructions $D C x$."""
        if x.shape[-1:] != (self.n,):
            raise ValueError(f"x must be {self.n} wide, got shape {tuple(x.shape)}")
        return self.decode(self.encode(x))

    def loss(self, x: Float[Tensor, " s n"]) -> Float[Tensor, ""]:
        """Half the mean squared distance of the examples and their reconstructions."""
        if not len(x):
            raise ValueError(f"x must not be empty, got shape {tuple(x.shape)}")
        return (x - self(x)).square().sum() / (2 * len(x))

    def set_optimum(self, x: Float[Tensor, " s n"]) -> "LinearAutoencoder":
        r"""Set $C = V_m^\top$ and $D = V_m$, the best for the rows of `x` as they are.

        Centre them beforehand for the principal directions. With fewer than `m` examples the
        remaining rows of $C$ and columns of $D$ become zero, which loses nothing.

        Raises:
            ValueError: If the examples are not finite numbers or of another width.
        """
        x = floats("x", x, ndim=2, width=self.n)
        k = min(self.m, len(x))
        found = principal_directions(x.detach(), k).directions
        with torch.no_grad():
            self.C.zero_()
            self.C[:k] = found
            self.D.copy_(self.C.mT)
        return self

    def extra_repr(self) -> str:
        """The two widths."""
        return f"n={self.n}, m={self.m}"
