r"""Whether products with a Hessian are those of a symmetric matrix.

A function that is twice differentiable has $H = H^T$, so

$$\langle u, H v \rangle = \langle v, H u \rangle \quad \text{for all } u, v,$$

and an operation whose backward pass is not differentiated rightly breaks it. At the first product
$H v$ with each model, and until one has been seen that moves most parameters and is not zero, one
more is made, with a fixed $u$. Errors of relative size $\delta$ and of either sign in the entries
move the two sides by about $\delta \|u \odot H v\|$ and $\delta \|v \odot H u\|$; so much is
allowed with $\delta = \sqrt{\varepsilon}$.

Where a loss is so flat that its gradient $g$ is all rounding, $g$ is the gradient of nothing, and
its derivative is not symmetric, rightly so. Hence what is found is held against differences of
gradients, $H v \approx (g(\theta + h v) - g(\theta - h v)) / 2h$: only if these are less than half
as asymmetric the second derivative is to blame.
"""

from collections.abc import Callable
from weakref import WeakSet

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.gradients.network_function import Functional

__all__ = ["insist_on_symmetry"]

_SYMMETRIC: WeakSet[nn.Module] = WeakSet()  # the models that have been asked

Product = Callable[[Tensor], Tensor]


def insist_on_symmetry(
    f: Functional,
    gradient: Callable[[Tensor], Tensor],
    product: Product,
    V: Float[Tensor, " P columns"],
    HV: Float[Tensor, " P columns"],
) -> None:
    """Refuse a model whose Hessian is not symmetric, at the first block that it is multiplied with.

    Args:
        f: The network.
        gradient: The loss's gradient as a function of the parameters.
        product: What multiplies a block with the Hessian.
        V: The block.
        HV: Its product.

    Raises:
        ValueError: If it is not symmetric beyond rounding, with the name of the layer.
    """
    if f.model in _SYMMETRIC:
        return
    u, c = _wave(1.0, f.size, V), _wave(2.0, V.shape[1], V)
    v, Hv = V @ c, HV @ c
    gap, allowed = _gap(u, v, _times(product, u), Hv)
    if gap > allowed:
        by_differences = _gap(u, v, *(_difference(f.theta, gradient, w) for w in (u, v)))[0]
        if by_differences < gap / 2:
            raise ValueError(
                "model must have symmetric second derivatives, but <u, Hv> and <v, Hu> differ by"
                f" {gap:.3g}, beyond rounding ({allowed:.3g}), through {_culprit(f, product, u, v)}"
            )
    if allowed and 2 * int(v.count_nonzero()) > len(v):  # or else the product tells little
        _SYMMETRIC.add(f.model)


def _difference(theta: Tensor, gradient: Callable[[Tensor], Tensor], v: Tensor) -> Tensor:
    """The product with the Hessian by central differences."""
    h = torch.finfo(v.dtype).eps ** (1 / 3) * (float(theta.norm()) or 1.0) / float(v.norm())
    return (gradient(theta + h * v).double() - gradient(theta - h * v).double()) / (2 * h)


def _wave(step: float, n: int, like: Tensor) -> Tensor:
    """Numbers of either sign, all different."""
    at = step * (1 + torch.arange(n, device=like.device, dtype=torch.float64))
    return at.cos().to(like.dtype)


def _times(product: Product, v: Tensor) -> Tensor:
    return product(v[:, None])[:, 0]


def _gap(u: Tensor, v: Tensor, Hu: Tensor, Hv: Tensor) -> tuple[float, float]:
    """What the two sides differ by, and what they may differ by."""
    one, other = u.double() * Hv, v.double() * Hu
    allowed = torch.finfo(u.dtype).eps ** 0.5 * (one.norm() + other.norm())
    return float((one - other).sum().abs()), float(allowed)


def _culprit(f: Functional, product: Product, u: Tensor, v: Tensor) -> str:
    """The module within whose own parameters the Hessian is least symmetric."""
    gaps: dict[str, float] = {}
    for path in {name.rpartition(".")[0] for name in f.shapes}:
        own = f.ravel(
            {
                name: torch.full(shape, float(name.rpartition(".")[0] == path), **f._like())
                for name, shape in f.shapes.items()
            }
        )
        Hu, Hv = _times(product, own * u), _times(product, own * v)
        gaps[path] = _gap(own * u, own * v, Hu, Hv)[0]
    path = max(gaps, key=gaps.__getitem__)
    return (
        f"{path!r} ({type(f.model.get_submodule(path)).__name__})" if path else "the model itself"
    )
