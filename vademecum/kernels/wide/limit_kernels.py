r"""The limit of a network at infinite width: covariances before training, and the tangent kernel.

Every width $n \to \infty$, with weights $W = \sigma_w\, \omega / \sqrt n$ and biases
$b = \sigma_b\, \beta$, $\omega$ and $\beta$ standard normal, trained in $\omega$ and $\beta$
(for a convolution $n$ is channels times taps; for the first layer, the features of an input).
Outputs are then independent Gaussian processes with covariance $k(x, x')$ (NNGP), and

$$\sum_\theta \partial_\theta f_i(x)\, \partial_\theta f_j(x') \to \delta_{ij}\, \theta(x, x')$$

(NTK). Both follow from the architecture, layer by layer: `_steps` has the maps. Exact up to
rounding for activations with a closed form, else to `tol`, in the precision of the inputs; only
diagonals, and products of nearly parallel inputs, are found in double precision. In single
precision the angle of a rounded correlation is off by the root of the rounding: tangent kernels of
inputs $10^{-3}$ apart are good to $10^{-3}$ (observed with three hidden layers of ReLU). Claims
`nngp_recursion` and `ntk_limit` check fully connected networks by quadrature and drawn ones; tests
compare the rest with loops over pixels and finite networks.
"""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.kernels._kernel import Kernel, pair
from vademecum.kernels.wide._architecture import Network
from vademecum.kernels.wide._width_kernel import WidthKernel
from vademecum.models import Output, unwrapped
from vademecum.results import one_line

__all__ = ["InfiniteWidth", "WidthDiagonals", "infinite_width"]


class WidthDiagonals(NamedTuple):
    """Both kernels of each input with itself.

    Example:
        >>> limit = infinite_width(nn.Linear(2, 1))
        >>> limit.diagonal(torch.tensor([[3.0, 4.0]])).nngp  # 2 * 25 / 2
        tensor([25.])
    """

    nngp: Float[Tensor, " n"]
    """The variance of an output before training."""
    ntk: Float[Tensor, " n"]
    """The squared norm of its gradient."""

    __repr__ = one_line


class InfiniteWidth(NamedTuple):
    """The kernels of a network of infinite width; see `infinite_width`.

    Example:
        >>> limit = infinite_width(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)))
        >>> x = torch.eye(2)  # orthogonal: 2 * 1 / (2 pi), and nothing that trains is shared
        >>> limit.nngp(x)
        tensor([[1.0000, 0.3183],
                [0.3183, 1.0000]])
    """

    nngp: Kernel
    """The covariance of outputs before training."""
    ntk: Kernel
    """The tangent kernel, which training leaves as it is."""

    __repr__ = one_line

    def diagonal(self, x: Tensor) -> WidthDiagonals:
        """Both kernels of each input with itself, from one pass.

        Args:
            x: The inputs.
        """
        assert isinstance(self.ntk, WidthKernel)
        return WidthDiagonals(*self.ntk.diagonals(pair(x, None)[0]))


def infinite_width(
    model: nn.Module,
    *,
    weight_variance: float = 2.0,
    bias_variance: float = 0.0,
    tol: float = 1e-9,
    memory: int | None = None,
    output: Output = None,
) -> InfiniteWidth:
    r"""The limit of a network's architecture as all its widths grow.

    Widths and weights of the model are ignored; its code is traced when a kernel is first called
    with inputs of a shape. There may be linear layers and convolutions with any stride, dilation
    and padding, flattening, average pooling, any pointwise function of what comes from a layer with
    weights (ReLU, leaky ReLU, absolute value, error function, GELU, sine and cosine by closed
    forms, however they are written; others to a tolerance), LayerNorm and RMSNorm, and sums such as
    $x + f(x)$.

    - A layer without biases has none here; parameters that do not require gradients pass signals on
      but add nothing to the NTK.
    - Dropout is the identity, as in evaluation. Scale and shift of LayerNorm are 1 and 0; where
      they train, an activation may not follow directly.
    - What is computed before the first layer is computed from the inputs as it is.
    - A network that ends with an activation has second moments, but its tangent kernel stays random
      at any width and is refused; so is one whose code cuts off gradients.
    - The numbers are those of `stax` in neural-tangents with `parameterization="ntk"`,
      `W_std**2 = weight_variance` and `b_std**2 = bias_variance` for layers with biases.

    Args:
        model: The network; its output has one axis beside that of examples.
        weight_variance: $\sigma_w^2$, the variance of a weight times the number of inputs.
        bias_variance: $\sigma_b^2$, the variance of a bias.
        tol: The error of integrals without closed form, in units of the geometric mean of both
            second moments.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The limit, whose fields `nngp` and `ntk` are kernels; their hyperparameters are both
        variances, as far as they are positive. They have no derivative in inputs.

    Raises:
        ValueError: When a kernel is called, if a layer has no limit or none that is known (batch
            normalisation, max pooling, attention, shared weights, grouped convolutions); it names
            the layer and the reason.

    References:
        Lee, Bahri, Novak, Schoenholz, Pennington and Sohl-Dickstein, Deep neural networks as
        Gaussian processes, ICLR, 2018. Jacot, Gabriel and Hongler, Neural tangent kernel, NeurIPS,
        2018. Arora, Du, Hu, Li, Salakhutdinov and Wang, On exact computation with an infinitely
        wide neural net, NeurIPS, 2019. Han, Zandieh, Lee, Novak, Xiao and Karbasi, Fast neural
        kernel embeddings for general activations, NeurIPS, 2022.

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 50), nn.ReLU(), nn.Linear(50, 10))
        >>> limit = infinite_width(net)
        >>> x = torch.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
        >>> limit.ntk(x).round(decimals=4)  # 2 x . x' / 3 for each of two layers
        tensor([[ 4.,  8.],
                [ 8., 16.]])
    """
    model = unwrapped(model)
    number("weight_variance", weight_variance, above=0)
    number("bias_variance", bias_variance, low=0)
    number("tol", tol, above=0, below=1)
    if memory is not None:
        whole("memory", memory, low=1)
    network = Network(model, tol, memory, output)
    kernels = (WidthKernel(network, t, weight_variance, bias_variance) for t in (False, True))
    return InfiniteWidth(*kernels)
