"""Gradients that vanish or explode: bounds by slopes and singular values."""

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals
from vademecum.recurrence import ElmanRNN, bptt, jacobian_profile
from vademecum.recurrence.claims._plain_network import network, sequence

LIMITS = {"tanh": 1.0, "relu": 1.0, "sigmoid": 0.25}


def unit(name: str, a: Any) -> Any:
    """A unit in NumPy, analytic where it is."""
    if name == "relu":
        return np.where(np.real(a) > 0, a, 0 * a)  # so that the complex step sees its slope
    return np.tanh(a) if name == "tanh" else 1 / (1 + np.exp(-a))


def linear(U: Tensor, d: int = 1) -> ElmanRNN:
    """A linear network with these recurrent weights."""
    net = ElmanRNN(d, len(U), activation="identity", bias=False)
    net.U.data = U
    return net


def largest(M: np.ndarray) -> float:
    """The largest singular value."""
    return float(np.linalg.norm(M, 2))


@claim(
    by="sampling",
    sources=("A-229",),
    short=r"\sup |\dot\phi| = \alpha: \quad \alpha = 1 \text{ for ReLU and } \tanh, \quad"
    r" \alpha = \tfrac14 \text{ for } \sigma",
)
def slope_bounds(tanh: float = 1.0, relu: float = 1.0, sigmoid: float = 0.25):
    r"""How steep activations are.

    $\sup |\dot\phi| = \alpha$ with $\alpha = 1$ for ReLU and tanh and $\alpha = \tfrac14$ for the
    logistic sigmoid, so $\|\dot\Phi^t\|_2 \le \alpha$ for the diagonal slope matrices; the supremum
    is attained at 0 for tanh and the sigmoid.

    *Proof.* $\tanh' = 1 - \tanh^2 \le 1$, and $\sigma' = \sigma (1 - \sigma) = \tfrac14 - (\sigma -
    \tfrac12)^2 \le \tfrac14$, with equality where $\tanh = 0$ and $\sigma = \tfrac12$. Checked on
    10001 points of $[-10, 10]$ by the complex step, at 0, and for the Jacobians of networks, whose
    norms and bounds are those of `jacobian_profile`.

    Knobs:
        tanh: The $\alpha$ of tanh.
        relu: The $\alpha$ of ReLU.
        sigmoid: The $\alpha$ of the logistic sigmoid.
    """
    grid = np.linspace(-10, 10, 10001)
    for name, alpha in {"tanh": tanh, "relu": relu, "sigmoid": sigmoid}.items():
        points = grid[grid != 0] if name == "relu" else grid
        found = complex_step(lambda a, name=name: unit(name, a), points, 1)
        yield at_most("slope", found.abs(), alpha, units=name)
        yield equals("largest slope", found.max(), alpha, units=name)
        if name != "relu":
            at_zero = complex_step(lambda a, name=name: unit(name, a), np.zeros(1), 1)
            yield equals("slope at 0", at_zero, alpha, units=name)
        net, m = network(3, 4, units=name), 4
        x, xs = sequence(6, 3)
        U, V, b = (p.detach().numpy() for p in (net.U, net.V, net.b) if p is not None)
        z = np.zeros(m)
        for x_t in xs:
            a = U @ z + V @ x_t + b
            diagonal = np.diag(complex_step(lambda a, name=name: unit(name, a), a, 1).numpy())
            yield at_most("norm of a slope matrix", largest(diagonal), alpha, units=name)
            z = unit(name, a)
        bounds = jacobian_profile(net, x).log_bounds
        assert bounds is not None
        stated = math.log(alpha * largest(U)) * np.arange(5, -1, -1)
        yield equals("logarithm of the bound of Jacobians", bounds[0], stated, units=name)


slope_bounds.foil(r"$\tfrac14$ for tanh, too", tanh=0.25)
slope_bounds.foil("1 as the largest slope of the sigmoid", sigmoid=1.0)
slope_bounds.foil(r"$\tfrac12$ for ReLU", relu=0.5)


def with_norm(net: ElmanRNN, norm: float) -> ElmanRNN:
    """The network with recurrent weights of this largest singular value."""
    net.U.data *= norm / largest(net.U.detach().numpy())
    return net


@claim(
    by="sampling",
    sources=("A-230", "B-365", "C-132", "D-278"),
    short=r"|\dot\phi| \le \alpha \Rightarrow"
    r" \|\partial z^T / \partial z^k\|_2 \le (\alpha\, \sigma_{\max}(U))^{T-k}",
)
def vanishing_gradients(
    size_of_U: Literal["largest singular value", "spectral radius"] = "largest singular value",
    input_norm: bool = True,
):
    r"""Gradients vanish.

    If $|\dot\phi| \le \alpha$ then $\|\partial z^T / \partial z^k\|_2 \le (\alpha\,
    \sigma_{\max}(U))^{T-k}$, which tends to 0 geometrically when $\sigma_{\max}(U) < 1 / \alpha$
    ($U$ the recurrent matrix). For a loss on the last output, $\|\nabla_{z^k} \mathcal R\| \le
    (\alpha\, \sigma_{\max}(U))^{T-k} \|J_H^\top \nabla_y \mathcal R\|$; for the gradient with
    respect to the input $x^k$ a further factor $\alpha \|V\|_2$ appears.

    *Proof.* The norm of a product is at most the product of the norms, and $\|\dot\Phi\|_2 \le
    \alpha$. Checked for 9 random networks of tanh, ReLU and sigmoid units with $\sigma_{\max}(U) =
    0.9 / \alpha$ and $T = 61$, in logarithms; linear networks attain both bounds.

    Knobs:
        size_of_U: What of $U$ stands in the bound.
        input_norm: Whether the factor $\|V\|_2$ stands in the bound for inputs.
    """
    T = 61
    steps = torch.arange(T - 1, -1, -1)
    for name, alpha in LIMITS.items():
        for _ in range(3):
            net = with_norm(network(3, 4, 2, units=name), 0.9 / alpha)
            x, target = torch.randn(1, T, 3), torch.randn(1, 2)
            at: dict[str, Any] = {"units": name}
            U = net.U.detach().numpy()
            rate = math.log(alpha * size(U, size_of_U))
            norms = jacobian_profile(net, x).log_norms[0, 0]
            yield at_most("logarithm of a Jacobian's norm", norms, steps * rate, **at)
            last = lambda y, t: ((y[:, -1] - t) ** 2).sum()  # noqa: E731
            found = bptt(net, x, target, loss=last)
            delta = found.adjoints["state"][:, 0].norm(dim=1)
            assert found.input_gradient is not None
            logs = delta.log() - delta[-1].log()  # the last one is J_H^T times the error
            yield at_most("logarithm of a state's gradient", logs, steps * rate, **at)
            V = largest(net.V.detach().numpy()) if input_norm else 1.0
            inputs = found.input_gradient[0].norm(dim=1).log() - delta[-1].log()
            bound = steps * rate + math.log(alpha * V)
            yield at_most("logarithm of an input's gradient", inputs, bound, **at)
    Q = torch.linalg.qr(torch.randn(4, 4)).Q
    triangle = torch.tensor([[0.5, 10.0], [0.0, 0.5]])
    for U, k, what in ((0.9 * Q, 6, "0.9 times an isometry"), (triangle, 1, "(0.5 10; 0 0.5)")):
        found = jacobian_profile(linear(U), torch.zeros(1, k + 1, 1)).log_norms[0, 0, 0].exp()
        bound = size(U.numpy(), size_of_U) ** k
        yield at_most(f"norm of the Jacobian, U = {what}", found, bound)
        yield equals(f"norm of the Jacobian at its bound, U = {what}", found, bound)
    net = linear(torch.tensor([[0.5]]))
    net.V.data.fill_(10.0)
    found = bptt(net, torch.zeros(1, 2, 1), None, loss=lambda y, _: y[0, 1, 0]).input_gradient
    assert found is not None
    bound = 0.5 * (10.0 if input_norm else 1.0)
    yield at_most("gradient in the input one step before, U = 0.5, V = 10", found[0, 0], bound)
    yield equals("gradient in that input, at its bound", found[0, 0], bound)


def size(U: np.ndarray, what: str) -> float:
    """The largest singular value, or the spectral radius."""
    return float(np.abs(np.linalg.eigvals(U)).max()) if what == "spectral radius" else largest(U)


vanishing_gradients.foil("the spectral radius of $U$", size_of_U="spectral radius")
vanishing_gradients.erratum(
    "B-365",
    printed=r"$\|\nabla_{\mathbf x^t} \mathcal R\| \le \sigma_{\max}(\mathbf W)^{s-t} \cdot"
    r" \|\mathbf J_H \cdot \nabla_{\mathbf y} \mathcal R\|$",
    right=r"$\|\nabla_{\mathbf x^t} \mathcal R\| \le \alpha\, \|\mathbf U\|_2\,"
    r" (\alpha\, \sigma_{\max}(\mathbf W))^{s-t} \cdot"
    r" \|\mathbf J_H^T \cdot \nabla_{\mathbf y} \mathcal R\|$",
    why=r"For the gradient in an input the factor $\|U\|_2$ (input weights there) is missing, and"
    r" $|\sigma'| \le 1$ is not stated. Linear scalar network with recurrent weight 0.5, input"
    r" weight 10 and $s - t = 1$: $|\partial y / \partial x^t| = 5$, printed bound 0.5.",
    weight="hard",
    refuted_by="gradient in the input one step before, U = 0.5, V = 10",
    input_norm=False,
)


@claim(
    by="sampling",
    sources=("A-231", "B-367", "C-133", "D-277"),
    short=r"|\dot\phi| \le \alpha: \sigma_{\max}(U) > 1/\alpha \text{ is"
    r" needed to explode; linear: } \|U^k\|^{1/k} \to \rho(U)",
)
def exploding_gradients(
    growth: Literal["spectral radius", "largest singular value"] = "spectral radius",
):
    r"""Gradients explode.

    $\sigma_{\max}(U) > 1 / \alpha$ is necessary but not sufficient for the gradient norm to grow
    without bound. What matters is the product of Jacobians: for a linear network $\|U^k\|^{1/k} \to
    \rho(U)$, so gradients explode exponentially if and only if the spectral radius exceeds 1, and
    saturating units can keep the product bounded for any $U$.

    *Proof.* Necessary by the bound $(\alpha\, \sigma_{\max}(U))^k \le 1$; the limit is Gelfand's
    formula, with $\rho^k \le \|U^k\| \le \kappa(S)\, \rho^k$ for $U = S \Lambda S^{-1}$.

    Checked for multiples of isometries, whose norms are $\rho^k$; nilpotent matrices, whose powers
    are 0; random matrices at $k = 400$ between the two sides; networks with $\sigma_{\max}(U) = 1 /
    \alpha$, which never grow; and a tanh unit with weight 100 that saturates.

    Knobs:
        growth: What of $U$ is said to be the growth per step of a linear network.
    """
    for rho, m in ((1.1, 4), (0.8, 3)):
        U = rho * torch.linalg.qr(torch.randn(m, m)).Q
        found = jacobian_profile(linear(U), torch.zeros(1, 61, 1))
        rate = math.log(size(U.numpy(), growth))
        steps = torch.arange(60, -1, -1)
        yield equals("logarithm of the norm", found.log_norms[0, 0], steps * rate, U=f"{rho} Q")
        yield equals("Lyapunov exponent", found.lyapunov, rate, U=f"{rho} Q")
    for entry in (100.0, 2.0):
        U, at = torch.tensor([[0.0, entry], [0.0, 0.0]]), f"U = (0 {entry:g}; 0 0)"
        found = jacobian_profile(linear(U), torch.zeros(1, 4, 1)).log_norms[0, 0].exp()
        yield equals(f"norms after 1, 2, 3 steps, {at}", found[:3].flip(0), [entry, 0.0, 0.0])
        rate = size(U.numpy(), growth)
        yield equals(f"growth per step over two steps, {at}", found[1].sqrt(), rate)
    k = 400
    for m in (5, 3):
        U = torch.randn(m, m)
        U *= 1.1 / size(U.numpy(), "spectral radius")
        found = jacobian_profile(linear(U), torch.zeros(1, k + 1, 1)).lyapunov[0, 0]
        rate, S = math.log(size(U.numpy(), growth)), np.linalg.eig(U.numpy())[1]
        yield at_least("logarithm of $\\|U^k\\|^{1/k}$", found, rate, k=k)
        slack = math.log(np.linalg.cond(S)) / k
        yield at_most("logarithm of $\\|U^k\\|^{1/k}$", found, rate + slack, k=k)
    for name, alpha in LIMITS.items():
        net = with_norm(network(3, 4, units=name), 1 / alpha)
        found = jacobian_profile(net, 3 * torch.randn(2, 41, 3)).log_norms
        yield at_most("logarithm of the norm at the edge", found, 0.0, units=name)
    net = ElmanRNN(1, 1, bias=False)
    net.U.data.fill_(100.0)
    net.V.data.fill_(1.0)
    found = jacobian_profile(net, torch.ones(1, 6, 1)).log_norms[0, 0, 0] / math.log(10)
    # slopes 1 - tanh(a)^2 are at most 4 exp(-2 a), and a >= 100 tanh(1) > 76 from the second step
    bound = 5 * (math.log10(400) - 152 / math.log(10))
    yield at_most(
        "decimal logarithm of the product, a saturated unit with weight 100", found, bound
    )


exploding_gradients.foil("$\\|U^k\\|^{1/k}$ tends to the largest singular value",
                         growth="largest singular value")  # fmt: skip
exploding_gradients.erratum(
    "C-133",
    printed=r"a large $\sigma_1(U)$ given as sufficient for explosion",
    right=r"$\sigma_1(U) > 1 / \alpha$ is necessary; a linear network explodes if and only if"
    r" $\rho(U) > 1$",
    why=r"A large singular value does not suffice: $U = (0\ 100;\ 0\ 0)$ has $\sigma_1 = 100$ and"
    r" $U^2 = 0$, so the gradient of the linear network is exactly 0 after two steps; with tanh a"
    r" large $U$ saturates the units.",
    weight="hard",
    refuted_by="growth per step over two steps, U = (0 100; 0 0)",
    growth="largest singular value",
)
exploding_gradients.erratum(
    "D-277",
    printed=r"$\sigma_{\max}(U) > 1$ given as the condition for exploding gradients",
    right=r"$\sigma_{\max}(U) > 1 / \alpha$ is necessary; a linear network explodes if and only if"
    r" $\rho(U) > 1$",
    why=r"Necessary, not sufficient: $U = (0\ 2;\ 0\ 0)$ has $\sigma_{\max} = 2$ but $U^2 = 0$.",
    weight="hard",
    refuted_by="growth per step over two steps, U = (0 2; 0 0)",
    growth="largest singular value",
)
