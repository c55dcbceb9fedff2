"""Training of linearised networks: convex, within the span of tangent features, and its end."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_most, claim, equals
from vademecum.gradients import functional
from vademecum.kernels import LinearizedNetwork, empirical_ntk, ntk_predict
from vademecum.kernels.claims._tanh_networks import (
    beta_of,
    descended,
    features,
    layered,
    set_beta,
    tanh_network,
)


@claim(
    by="sampling",
    sources=("A-293", "D-363"),
    budget=1.0,
    short=r"\tfrac12 \|J \beta - (y - f_{\theta_0})\|^2,\quad \nabla_\beta^2 = J^\top J \succeq 0",
)
def linearised_training_convex(model: Literal["linearised", "network"] = "linearised"):
    r"""Training the linearised network is convex.

    For a loss convex in the output the objective is convex in $\beta$; for the squared loss it is
    the quadratic $\frac12 \|J \beta - (y - f_{\theta_0})\|^2$ with Hessian $J^\top J \succeq 0$, so
    that descent from any start ends at the same value.

    *Proof.* A convex function of an affine one is convex. Checked for the squared and the logistic
    loss on 500 random chords each of a `LinearizedNetwork`; the gap at a chord of the squared loss
    is $\frac{s (1 - s)}2 \|J (a - b)\|^2$ with $J$ by the complex step; and for ten examples and
    five parameters descent from three starts ends at the least value, that of least squares.

    Knobs:
        model: Whose loss is looked at: the linearised network's, or that of the network itself.
    """
    sizes, n = (2, 4, 1), 6
    net, theta = tanh_network(*sizes)
    h = LinearizedNetwork(net)
    X, y, labels = torch.randn(n, 2), torch.randn(n, 1), torch.randn(n, 1).sign()
    at = functional(h) if model == "linearised" else functional(net)
    base = torch.zeros_like(theta) if model == "linearised" else theta
    outputs = torch.func.vmap(lambda beta: at(base + beta, X))
    a, b = 2 * torch.randn(2, 500, len(theta))
    s = torch.rand(500, 1)
    ends = outputs(a), outputs(b), outputs(s * a + (1 - s) * b)
    losses = {
        "squared": lambda z: (z - y).square().sum((1, 2)) / 2,
        "logistic": lambda z: torch.nn.functional.softplus(-labels * z).sum((1, 2)),
    }
    for name, loss in losses.items():
        chord = s[:, 0] * loss(ends[0]) + (1 - s[:, 0]) * loss(ends[1])
        yield at_most("loss on a chord", loss(ends[2]), chord, tol=1e-12, loss=name)
    J, r = features(theta, X, sizes), (y - layered(theta, X, sizes)).flatten()
    chord = s[:, 0] * losses["squared"](ends[0]) + (1 - s[:, 0]) * losses["squared"](ends[1])
    gap = (s * (1 - s))[:, 0] / 2 * ((a - b) @ J.T).square().sum(1)
    yield equals("gap of a chord", chord - losses["squared"](ends[2]), gap, tol=1e-11)
    value = losses["squared"](ends[0])
    yield equals("squared loss", value, (a @ J.T - r).square().sum(1) / 2, tol=1e-11)
    H = torch.func.hessian(lambda beta: losses["squared"](outputs(beta[None]))[0])(a[0])
    yield equals("Hessian of the squared loss", H, J.T @ J)
    yield from least_squares()


def least_squares():
    """Where descent from three starts ends, with more examples than parameters.

    These are fixed, since features that nearly depend on each other are learned too slowly.
    """
    sizes, n = (2, 1, 1), 10
    net, _ = tanh_network(*sizes)
    theta = torch.tensor([1.0, -0.7, 0.3, 1.2, 0.1])
    with torch.no_grad():
        nn.utils.vector_to_parameters(theta, net.parameters())
    X, y = torch.randn(n, 2), torch.randn(n, 1)
    J, r = features(theta, X, sizes), (y - layered(theta, X, sizes)).flatten()
    least = (r - J @ (torch.linalg.pinv(J) @ r)).square().sum() / 2
    for start in range(3):
        h = LinearizedNetwork(net)
        set_beta(h, 2 * torch.randn(len(theta)))
        descended(h, X, y, iterations=60)
        found = (h(X) - y).square().sum() / 2
        yield equals("loss where descent ends", found, least, tol=1e-8, start=start)


linearised_training_convex.foil(
    "the loss of the network itself is not convex", refuted_by="loss on a chord", model="network"
)


@claim(
    by="identity",
    sources=("A-294", "A-295", "C-240"),
    budget=1.0,
    short=r"\beta = \sum_i \alpha_i \nabla_\theta f(x_i),\quad h = f + \sum_i \alpha_i"
    r" K_{\theta_0}(\cdot, x_i)",
)
def span_of_tangent_features(start: float = 0.0):
    r"""Gradient descent stays in the span of the tangent features.

    Started at $\beta = 0$, gradient descent or flow on the linearised model keeps $\beta \in
    \operatorname{span}\{\nabla_\theta f_{\theta_0}(x_i)\}$, so that $\beta = \sum_i \alpha_i
    \nabla_\theta f_{\theta_0}(x_i)$ and $h(x) = f_{\theta_0}(x) + \sum_i \alpha_i K_{\theta_0}(x,
    x_i)$, the dual representation. From another start the part orthogonal to the span stays.

    *Proof.* The gradient is $J^\top$ times the derivatives of the loss. Checked for 150 steps of
    `torch.optim.SGD` on a `LinearizedNetwork`, plain and with momentum, with the squared and the
    logistic loss; the flow, which is their limit, is quoted.

    Knobs:
        start: The standard deviation of the start.
    """
    sizes, n = (3, 7, 1), 4
    net, theta = tanh_network(*sizes)
    X, y, x = torch.randn(n, 3), torch.randn(n, 1), torch.randn(5, 3)
    J = features(theta, X, sizes)
    Q = torch.linalg.qr(J.T).Q
    losses = {
        "squared": lambda z: (z - y).square().sum() / 2,
        "logistic": lambda z: torch.nn.functional.softplus(-y.sign() * z).sum(),
    }
    for (name, loss), momentum in zip(losses.items(), (0.0, 0.9), strict=True):
        h, first = LinearizedNetwork(net), start * torch.randn(len(theta))
        set_beta(h, first)
        eta = 0.1 / torch.linalg.matrix_norm(J, 2) ** 2
        optimizer = torch.optim.SGD(h.parameters(), float(eta), momentum=momentum)
        for _ in range(150):
            optimizer.zero_grad()
            loss(h(X)).backward()
            optimizer.step()
        beta = beta_of(h)
        across = beta - Q @ (Q.T @ beta)
        share = across.norm() / beta.norm()
        yield at_most("share of beta across the span", share, 0.0, tol=1e-12, loss=name)
        kept = first - Q @ (Q.T @ first)
        yield equals("part across the span", across, kept, tol=1e-12, loss=name)
        alpha = torch.linalg.lstsq(J.T, beta[:, None]).solution
        K = empirical_ntk(net, x, X, outputs="trace")
        dual = layered(theta, x, sizes) + K @ alpha
        yield equals("dual representation at new points", h(x), dual, tol=1e-9, loss=name)


span_of_tangent_features.foil(
    "from a random start", refuted_by="share of beta across the span", start=0.1
)


@claim(
    by="identity",
    sources=("A-297", "C-242"),
    budget=1.0,
    short=r"h^*(x) = f_{\theta_0}(x) + k_{\theta_0}(x)^\top K^+ (y - f_{\theta_0})",
)
def ntk_predictor(offset: float = 1.0):
    r"""Prediction of the trained linearised network.

    Gradient flow on the squared loss of the linearised network from $\beta = 0$ ends at $h^*(x) =
    f_{\theta_0}(x) + k_{\theta_0}(x)^\top K^+ (y - f_{\theta_0})$: the initial function plus kernel
    regression on the initial residuals. It interpolates where $K$ is invertible.

    *Proof.* $\beta$ stays in the span of the rows of $J$, and converges there to $J^+ (y -
    f_{\theta_0}) = J^\top K^+ (y - f_{\theta_0})$. Checked for `ntk_predict` with `empirical_ntk`
    on networks with one and two outputs, against least squares with $J$ by the complex step and
    against a `LinearizedNetwork` that was trained; and where an input comes twice with different
    targets, so that $K$ is singular and their mean is learned.

    Knobs:
        offset: The factor of the initial function $f_{\theta_0}(x)$.
    """
    for sizes, n in (((3, 9, 1), 4), ((2, 8, 6, 2), 3)):
        net, theta = tanh_network(*sizes)
        k = sizes[-1]
        X, y, x = torch.randn(n, sizes[0]), torch.randn(n, k), torch.randn(5, sizes[0])
        start, kernel = layered(theta, x, sizes), partial(empirical_ntk, net)

        def predicted(X: Tensor, y: Tensor, x: Tensor, net=net, kernel=kernel) -> Tensor:
            found = ntk_predict(kernel, X, y, x, f0=net).mean
            return found - (1 - offset) * net(x).detach()

        yield equals("prediction at training points", predicted(X, y, X), y, tol=1e-8, outputs=k)
        J, r = features(theta, X, sizes), (y - layered(theta, X, sizes)).flatten()
        beta = torch.linalg.pinv(J) @ r
        moved = (features(theta, x, sizes) @ beta).view_as(start)
        found = predicted(X, y, x)
        yield equals("prediction at new points", found, start + moved, tol=1e-8, outputs=k)
        h = LinearizedNetwork(net)
        descended(h, X, y)
        # Residuals of 1e-8 that descent leaves count by the norm of k K^+, some hundred.
        yield equals("trained linearised network", h(x), found, tol=1e-5, outputs=k)
        twice, other = torch.cat([X, X[:1]]), torch.cat([y, y[:1] + 2])
        mean = predicted(twice, other, X[:1])
        yield equals(
            "prediction at an input with two targets", mean, y[:1] + 1, tol=1e-8, outputs=k
        )


ntk_predictor.foil("half of the initial function", offset=0.5)
ntk_predictor.erratum(
    "C-242",
    printed=r"$h^*(x) = k(x) K^+ (y - f)$",
    right=r"$h^*(x) = f(x) + k(x) K^+ (y - f)$",
    why="The initial output $f(x)$ is missing, although the dual representation on the same line"
    " has it. At training inputs with invertible $K$ the printed formula gives $y - f$ instead of"
    " $y$.",
    weight="hard",
    refuted_by="prediction at training points",
    offset=0.0,
)
