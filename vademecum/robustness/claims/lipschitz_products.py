"""Products of norms: they bound how steep a network is."""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.claims import at_most, claim, equals
from vademecum.models import mlp
from vademecum.robustness import lipschitz

Combined = Literal["product", "largest", "sum"]


def bound(model: nn.Module, x: Tensor, combined: Combined, kernel: str) -> float:
    """The bound from the norms of the layers, by the room's part, or put together otherwise."""
    found = lipschitz(model, x, norm="l2")
    norms = [constant for _, constant in found.layers]
    if kernel == "reshaped":  # of a convolution, as though it had one window
        first = next(model.modules() if isinstance(model, nn.Conv2d) else model.children())
        if isinstance(first, nn.Conv2d):
            norms[0] = float(torch.linalg.matrix_norm(first.weight.detach().flatten(1), 2))
            return math.prod(norms)
    return {"product": float(found.upper), "largest": max(norms), "sum": sum(norms)}[combined]


def jacobians(model: nn.Module, x: Tensor) -> Tensor:
    """The derivatives at inputs, by autograd."""
    one = torch.func.jacrev(lambda z: model(z[None])[0].flatten())
    return torch.func.vmap(one)(x).flatten(2).detach()


def scaled(*matrices: Tensor) -> nn.Sequential:
    """Dense layers with given matrices and rectifiers between them."""
    model = mlp([matrices[0].shape[1], *(len(W) for W in matrices)], bias=False)
    for p, W in zip(model.parameters(), matrices, strict=True):
        p.data = W
    return model


@claim(
    by="sampling",
    sources=("B-468",),
    budget=1.0,
    short=r"\sigma(J_f(x)) \le \prod_l \sigma(W^l) \quad (1\text{-Lipschitz units})",
)
def lipschitz_product(
    combined: Combined = "product",
    relation: Literal["at most", "equal"] = "at most",
    kernel: Literal["torus", "reshaped"] = "torus",
):
    r"""The product bound on the Lipschitz constant.

    For layers with 1-Lipschitz activations $\sigma(J_f(x)) \le \prod_l \sigma(W^l)$ for every $x$,
    so the bound also holds on test data; it may be arbitrarily loose.

    *Checked* for the part `lipschitz` on random networks with rectifiers and with tanh: the bound
    is the product of NumPy's singular values; no Jacobian at 200 inputs and none of 200 secants is
    steeper. For $W^1 = e_1 e_1^\top$, $W^2 = e_2 e_2^\top$ the Jacobian is 0 and the product 1;
    for $W^l = 2 I$, three layers and positive inputs the bound is attained. A convolution's norm is
    that of its matrix: for a kernel of ones it approaches the sum of the kernel, 9, where the
    reshaped kernel has the norm 3.

    Knobs:
        combined: How the norms of the layers are put together.
        relation: Whether the norm of the Jacobian is at most the bound, or equal to it.
        kernel: Whether a convolution has the norm of its torus, or of its kernel as a row.
    """
    compare = at_most if relation == "at most" else equals
    for unit, sizes in ((nn.ReLU, [4, 9, 7, 3]), (nn.Tanh, [3, 8, 2])):
        model, at = mlp(sizes, unit), {"unit": unit.__name__}
        x = torch.randn(200, sizes[0])
        top = bound(model, x[:8], combined, kernel)
        norms = [np.linalg.svd(p.detach().numpy())[1][0] for p in model.parameters() if p.ndim == 2]
        yield equals("bound over the product of norms", top / np.prod(norms), 1.0, tol=1e-9, **at)
        steep = torch.linalg.matrix_norm(jacobians(model, x), 2)
        yield compare("norm of the Jacobian", steep, torch.full_like(steep, top), tol=1e-10, **at)
        other = x + torch.randn(200, 1).exp() * torch.randn_like(x)
        slope = (model(x) - model(other)).norm(dim=1) / (x - other).norm(dim=1)
        yield at_most("slope of a secant", slope.detach(), top, tol=1e-10, **at)
    x = torch.rand(5, 3)
    doubling = scaled(*(2 * torch.eye(3) for _ in range(3)))
    steep = torch.linalg.matrix_norm(jacobians(doubling, x), 2)
    yield equals("norm where all layers double", steep, torch.full_like(steep, 8.0), tol=1e-12)
    yield at_most("norm where all layers double", steep, bound(doubling, x, combined, kernel))
    e = torch.eye(3)
    apart = scaled(torch.outer(e[0], e[0]), torch.outer(e[1], e[1]))
    steep = torch.linalg.matrix_norm(jacobians(apart, x), 2)
    top = bound(apart, x, combined, kernel)
    yield equals("norm where layers act apart", steep, torch.zeros(5), tol=0.0)
    yield compare("norm where layers act apart", steep, torch.full_like(steep, top))
    blur = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    blur.weight.data = torch.ones(1, 1, 3, 3)
    image = torch.rand(1, 1, 12, 12)
    steep = torch.linalg.matrix_norm(jacobians(blur, image), 2)
    top = bound(blur, image, combined, kernel)
    yield at_most("norm of a convolution", steep, top, tol=1e-9)
    yield equals("bound for a convolution", top, 9.0, tol=1e-9)
    yield at_most("distance of that norm from 9", 9 - steep, 1.0)


lipschitz_product.foil("the largest norm of a layer", combined="largest")
lipschitz_product.foil("the sum of the norms", combined="sum")
lipschitz_product.foil("the bound is attained everywhere", relation="equal")
lipschitz_product.foil("the reshaped kernel bounds a convolution", kernel="reshaped")
