"""Tangents: features and kernel of a network, by their definitions."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, complex_step, equals
from vademecum.gradients import functional, jacobian
from vademecum.kernels import empirical_ntk, ntk_operator, ntk_spectrum

Sizes = tuple[tuple[int, int, int, int], ...]


class Pooled(nn.Module):
    """A network over T times, V tanh(U mean_t tanh(W x_t + c) + b) + e."""

    def __init__(self, d: int, m: int, k: int):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(d, m), nn.Linear(m, 4), nn.Linear(4, k)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs (n, k) for inputs (n, T, d)."""
        return self.last(self.second(self.first(x).tanh().mean(1)).tanh())


class Features(nn.Module):
    """A model that is linear in its parameters, theta^T Phi(x)."""

    def __init__(self, d: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2 * d + 1))

    def forward(self, x: Tensor) -> Tensor:
        """One output for each example."""
        return (features_of(x) * self.weight).sum(-1, keepdim=True)


class Readout(nn.Module):
    """The output layer of the NTK parametrisation, m^{-1/2} a^T h."""

    def __init__(self, m: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, m))

    def forward(self, h: Tensor) -> Tensor:
        """One output for each example."""
        return nn.functional.linear(h, self.weight) / h.shape[-1] ** 0.5


def features_of(x: Tensor) -> Tensor:
    """The features Phi(x), which are not linear in x."""
    return torch.cat([x.sin(), x**2, torch.ones_like(x[:, :1])], 1)


def pooled(theta: np.ndarray, x: np.ndarray, m: int, k: int) -> np.ndarray:
    """The outputs of `Pooled` with its parameters in their order, for complex ones as well."""
    d = x.shape[-1]
    W, c, U, b, V, e = np.split(theta, np.cumsum([m * d, m, 4 * m, 4, 4 * k]))
    h = np.tanh(x @ W.reshape(m, d).T + c).mean(1)
    return np.tanh(h @ U.reshape(4, m).T + b) @ V.reshape(k, 4).T + e


def gradients(theta: np.ndarray, x: Tensor, m: int, k: int) -> Tensor:
    """The gradients (n, k, P) of all outputs, by complex steps."""
    found = complex_step(lambda t: pooled(t, x.numpy(), m, k).ravel(), theta)
    return found.view(len(x), k, -1)


def moved(model: nn.Module) -> np.ndarray:
    """Give a model other parameters, of the size of one, and return them as one vector."""
    with torch.no_grad():
        for p in model.parameters():
            p.normal_()
    return functional(model).theta.numpy()


@claim(
    by="identity",
    sources=("A-286", "D-362"),
    budget=0.6,
    short=r"\phi(x) = \nabla_\theta f_\theta(x), \quad"
    r" f_\theta(x) = \theta^\top \Phi(x) \Rightarrow \phi = \Phi",
)
def tangent_features(
    model: Literal["linear", "tanh"] = "linear",
    layers: Literal["all", "last"] = "all",
    width: int = 4096,
):
    r"""Tangent features.

    The gradient in the parameters $\phi(x) = \nabla_\theta f_\theta(x)$ acts as a feature map, in
    analogy with $f_\theta(x) = \theta^\top \Phi(x)$, whose tangent features are $\Phi(x)$ for every
    $\theta$. At initialisation it is a random feature map, given by the architecture and the law of
    the parameters: for $f(x) = m^{-1/2} \sum_j a_j \tanh(w_j^\top x)$ with independent standard
    normal $a_j$, $w_j$ two draws have other features, and inner products $\langle \phi(x), \phi(x')
    \rangle$ that differ by $O(m^{-1/2})$.

    Checked by complex steps for two networks over time; for the kernel of these features; for a
    model that is linear in its parameters at two $\theta$; and for two draws of a wide network.
    An entry of its Gram matrix for points of length 1 is a mean of $m$ terms $\tanh^2 + a^2
    \tanh'^2$ with the mean 0.86 and a variance of at most 1.4: two draws differ with a standard
    deviation of at most $2 m^{-1/2}$ of the diagonal, 3 %, and 20 % is more than six of it.

    Knobs:
        model: Which model has tangent features that do not depend on its parameters.
        layers: The layers whose gradients are the features.
        width: The width $m$ of the two draws.
    """
    for n, t, d, m in ((4, 2, 9, 20), (3, 5, 2, 6)):
        net, x = Pooled(d, m, 1), torch.randn(n, t, d)
        phi = gradients(moved(net), x, m, 1)[:, 0]
        yield equals("tangent features", jacobian(net, x).blocks()[:, 0], phi, n=n, T=t)
        counted = phi if layers == "all" else phi[:, -5:]
        found = empirical_ntk(net, x, outputs="trace")
        yield equals("their inner products", found, counted @ counted.T, n=n, T=t)
    d, x = 3, torch.randn(5, 3)
    one = Features(d) if model == "linear" else nn.Sequential(nn.Linear(d, 4), nn.Tanh())
    each = []
    for _ in range(2):
        moved(one)
        each.append(jacobian(one, x).blocks())
    name = "change of the tangent features with the parameters"
    yield equals(name, (each[0] - each[1]).abs().max(), 0.0, tol=1e-12, d=d)
    if model == "linear":
        yield equals("features of a linear model", each[0][:, 0], features_of(x), tol=1e-12, d=d)
    x = nn.functional.normalize(torch.randn(4, d))
    draws = [nn.Sequential(nn.Linear(d, width, bias=False), nn.Tanh(), Readout(width))] * 2
    seen = []
    for net in draws:
        moved(net)
        seen.append((jacobian(net, x).blocks()[:, 0], empirical_ntk(net, x, outputs="trace")))
    (u, K), (v, L) = seen
    far, near = ((a - b).norm() / a.norm() for a, b in ((u, v), (K, L)))
    yield at_least("relative distance of the features of two draws", far, 1.0, m=width)
    yield at_most("relative distance of their Gram matrices", near, 0.2, m=width)


tangent_features.foil("tangent features of a network are constant, too", model="tanh")
tangent_features.foil(
    "the last layer alone gives the features", layers="last", refuted_by="their inner products"
)


@claim(
    by="identity",
    sources=("A-287", "A-288", "C-234", "D-364"),
    budget=0.6,
    short=r"K_\theta(x, \xi) = \langle \nabla_\theta f_\theta(x), \nabla_\theta f_\theta(\xi)"
    r" \rangle, \quad K = J J^\top \succeq 0",
)
def neural_tangent_kernel(
    wrt: Literal["theta", "x"] = "theta",
    blocks: Literal["cd", "dc"] = "cd",
    at: Literal["current", "initial"] = "current",
    sizes: Sizes = ((4, 2, 9, 20), (3, 6, 4, 5)),
):
    r"""Neural tangent kernel.

    $K_\theta(x, \xi) = \langle \nabla_\theta f_\theta(x), \nabla_\theta f_\theta(\xi) \rangle$; for
    several outputs a matrix, $K_{cd}(x, \xi) = \langle \nabla_\theta f_c(x), \nabla_\theta
    f_d(\xi) \rangle$. On a sample its Gram matrix is $J J^\top$, symmetric and positive
    semidefinite, of a rank of at most the number of parameters. It depends on the current $\theta$;
    for a model $\theta^\top \Phi(x)$ it is $\Phi \Phi^\top$ at any.

    Checked against complex steps in all parameters, for networks over time with 3 outputs: all
    outputs, the diagonal, the trace and the sum, one sample and two, as a matrix, an operator and
    by its spectrum (the squared singular values of $J$), at two $\theta$.

    Knobs:
        wrt: In what the gradients are taken.
        blocks: Which output belongs to which sample.
        at: The parameters at which the kernel is taken after these have moved.
        sizes: Numbers of examples, times, inputs and units.
    """
    k = 3
    for n, t, d, m in sizes:
        net, x, other = Pooled(d, m, k), torch.randn(n, t, d), torch.randn(n + 2, t, d)
        first, size = moved(net), {"n": n, "T": t}
        J, L = (
            gradients(first, z, m, k) if wrt == "theta" else jacobian(net, z, wrt="x").blocks()
            for z in (x, other)
        )
        own, two = (torch.einsum("icp,jdp->ijcd", J, M) for M in (J, L))
        two = two if blocks == "cd" else two.transpose(2, 3)
        yield equals("kernel of a sample", empirical_ntk(net, x), own, **size)
        yield equals("kernel of two samples", empirical_ntk(net, x, other), two, **size)
        diagonal = two.diagonal(dim1=2, dim2=3)
        found = empirical_ntk(net, x, other, outputs="diagonal")
        yield equals("its diagonal", found, diagonal, **size)
        found = empirical_ntk(net, x, other, outputs="trace")
        yield equals("its trace", found, diagonal.sum(-1), **size)
        found = empirical_ntk(net, x, other, outputs="sum")
        yield equals("its sum", found, two.sum((2, 3)), **size)
        v, flat = torch.randn((n + 2) * k), two.transpose(1, 2).reshape(n * k, -1)
        op, u = ntk_operator(net, x, other), v[: n * k]
        yield equals("the operator times a vector", op @ v, flat @ v, **size)
        yield equals("its transpose times a vector", op.T @ u, flat.T @ u, **size)
        wanted = torch.linalg.svdvals(J.flatten(0, 1)).square()
        wanted = torch.cat([wanted, torch.zeros(n * k)])[: n * k]
        found, scale = ntk_spectrum(net, x).eigenvalues, wanted[0]
        yield equals("spectrum in its unit", found / scale, wanted / scale, tol=1e-12, **size)
        later = moved(net)
        J = gradients(later if at == "current" else first, x, m, k)
        wanted = torch.einsum("icp,jdp->ijcd", J, J)
        yield equals("kernel after a move", empirical_ntk(net, x), wanted, **size)
    yield from gram_matrices()


def gram_matrices():
    """What holds for every sample: symmetry, no negative eigenvalue, the rank."""
    for n, d in ((9, 2), (12, 3)):
        x, small, linear = torch.randn(n, d), nn.Sequential(nn.Linear(d, 1), nn.Tanh()), Features(d)
        K = empirical_ntk(small, x, outputs="trace")
        lam = torch.linalg.eigvalsh(K) / K.trace()  # rounding: n entries of one unit each
        yield equals("asymmetry", K - K.T, torch.zeros(n, n), tol=1e-14 * float(K.max()), n=n)
        yield at_least("eigenvalues over the trace", lam, 0.0, tol=1e-14 * n, n=n)
        beyond = lam[: n - d - 1]
        yield at_most(
            "eigenvalues beyond the number of parameters", beyond, 1e-14 * n, n=n, P=d + 1
        )
        found, phi = empirical_ntk(linear, x, outputs="trace"), features_of(x)
        yield equals("kernel of a linear model", found, phi @ phi.T, n=n, d=d)


neural_tangent_kernel.foil("gradients in the inputs", wrt="x", refuted_by="kernel of a sample")
neural_tangent_kernel.foil(
    "outputs of the wrong sample first", blocks="dc", refuted_by="kernel of two samples"
)
neural_tangent_kernel.foil(
    "the kernel of the first parameters for all time",
    at="initial",
    refuted_by="kernel after a move",
)
