"""Linearised networks: straight in their parameters, and the flow of outputs under a kernel."""

from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import claim, complex_step, equals, slope
from vademecum.kernels import LinearizedNetwork, empirical_ntk, ntk_predict
from vademecum.kernels.claims._tanh_networks import features, layered, set_beta, tanh_network


@claim(
    by="identity",
    sources=("A-290", "A-291", "C-238", "C-239", "D-369"),
    budget=1.0,
    short=r"\dot f = K_\theta\, (y - f);\quad K \text{ constant: } f(t) = y + e^{-K t} (f(0) - y)",
)
def function_space_flow(factor: float = 0.5, parameters: Literal["current", "others"] = "current"):
    r"""Training dynamics in function space.

    Along the gradient flow of $\frac12 \sum_i (f_\theta(x_i) - y_i)^2$ the output at any point
    obeys $\frac d{dt} f(x) = \sum_i (y_i - f(x_i))\, K_\theta(x, x_i)$, with the tangent kernel at
    the current $\theta$; on the training set $\dot{\mathbf f} = K(\theta(t)) (\mathbf y - \mathbf
    f)$. For a constant kernel $\mathbf f(t) = \mathbf y + e^{-K t} (\mathbf f(0) - \mathbf y)$: the
    residual decays along the eigenvectors of $K$ with the rates $\lambda_i$.

    *Proof.* $\dot\theta = J^\top (y - f)$ and the chain rule. Checked at training and new points
    of two tanh networks, one with three outputs, where `empirical_ntk` has all pairs of outputs,
    against derivatives by the complex step; and `ntk_predict` for a fixed kernel against a
    Runge-Kutta method.

    Knobs:
        factor: What the sum of squares is multiplied with.
        parameters: Where the kernel is taken.
    """
    for sizes, n in (((3, 6, 1), 4), ((2, 5, 4, 3), 5)):
        model, theta = tanh_network(*sizes)
        X, y, new = torch.randn(n, sizes[0]), torch.randn(n, sizes[-1]), torch.randn(7, sizes[0])

        def loss(t: Tensor, X=X, y=y, sizes=sizes) -> Tensor:
            return factor * ((layered(t, X, sizes) - y) ** 2).sum()

        velocity, k = -complex_step(loss, theta), sizes[-1]
        source = model if parameters == "current" else tanh_network(*sizes)[0]
        for where, x in (("training", X), ("new", new)):
            moved = complex_step(lambda t, x=x, s=sizes: layered(t, x, s), theta, velocity)
            K = empirical_ntk(source, x, X).permute(0, 2, 1, 3).reshape(len(x) * k, n * k)
            wanted = (K @ (y - layered(theta, X, sizes)).flatten()).view(len(x), k)
            yield equals("speed of the outputs", moved, wanted, outputs=k, points=where)
    yield from constant_kernel(factor)


def constant_kernel(factor: float):
    """The flow of outputs with a fixed kernel, by SciPy, against `ntk_predict`."""
    from scipy.integrate import solve_ivp

    n, d = 4, 6
    A, w, X = torch.randn(d, d), torch.randn(d), torch.randn(n, d)
    both, y = torch.cat([X, torch.randn(3, d)]), torch.randn(n)
    M = A @ A.T / d**2
    G = both @ M @ X.T

    def speed(_: float, f):
        return -2 * factor * (G.numpy() @ (f[:n] - y.numpy()))

    t = torch.tensor([0.3, 2.0])
    f0 = both @ w
    solved = solve_ivp(speed, (0, 2.0), f0.numpy(), "DOP853", t.numpy(), rtol=1e-12, atol=1e-12)
    flow = torch.from_numpy(solved.y.T.copy())
    found = ntk_predict(lambda a, b: a @ M @ b.T, X, y, both, t=t, f0=lambda x: x @ w)
    # The method's steps are each exact to 1e-12, and there are some hundred.
    scale = float(1 + flow.abs().max())
    yield equals("outputs under a constant kernel", flow / scale, found.mean / scale, tol=1e-8)
    rates, Q = torch.linalg.eigh(G[:n])
    left = (flow[:, :n] - y) @ Q
    wanted = torch.exp(-rates * t[:, None]) * ((f0[:n] - y) @ Q)
    yield equals("residual along the eigenvectors", left / scale, wanted / scale, tol=1e-8)


function_space_flow.foil("the loss without the factor 1/2 has twice the rates", factor=1.0)
function_space_flow.foil("the kernel of other parameters", parameters="others")


@claim(
    by="fit",
    sources=("A-292", "C-235", "C-236", "D-361"),
    budget=1.0,
    short=r"h(\beta) = f_{\theta_0} + \beta^\top \nabla_\theta f_{\theta_0} = f_{\theta_0 + \beta}"
    r" + O(\|\beta\|^2)",
)
def linearised_network(offset: float = 1.0, order: float = 2.0):
    r"""Linearised network.

    The first-order Taylor model in the parameters, $h(\beta)(x) = f_{\theta_0}(x) + \beta^\top
    \nabla_\theta f_{\theta_0}(x)$ with $\beta = \theta - \theta_0$, agrees with the network at
    $\beta = 0$, differs from it by $O(\|\beta\|^2)$, and has a constant tangent kernel, the one at
    initialisation.

    Checked for `LinearizedNetwork` of two tanh networks against derivatives by the complex step:
    its values for steps of size 1, its kernel at two $\beta$, and the exponent of its distance from
    the network along a random unit direction, in the norm over 20 inputs. There the third order
    bends the line by a share of about $\epsilon \le 10^{-2}$.

    Knobs:
        offset: The factor of the initial output.
        order: The exponent of the distance.
    """
    for sizes in ((3, 8, 1), (2, 6, 5, 4)):
        model, theta = tanh_network(*sizes)
        x, k, P = torch.randn(20, sizes[0]), sizes[-1], len(theta)
        h, start = LinearizedNetwork(model), layered(theta, x, sizes)

        def taylor(beta: Tensor, h=h, x=x, start=start) -> Tensor:
            set_beta(h, beta)
            return h(x).detach() - (1 - offset) * start

        found = taylor(torch.zeros(P))
        yield equals("outputs for beta = 0", found, start, outputs=k)
        J, v = features(theta, x, sizes), torch.randn(P)
        wanted = start + (J @ v).view_as(start)
        yield equals("outputs for a long step", taylor(v), wanted, tol=1e-11, outputs=k)
        kernel = (J @ J.T).view(20, k, 20, k).permute(0, 2, 1, 3)
        for beta in (v, torch.randn(P)):
            set_beta(h, beta)
            yield equals("tangent kernel of h", empirical_ntk(h, x), kernel, tol=1e-11, outputs=k)
        v, eps = v / v.norm(), torch.logspace(-4, -2, 9)
        gaps = [(layered(theta + e * v, x, sizes) - taylor(e * v)).norm() for e in eps]
        yield slope("distance from the network", eps, torch.stack(gaps), order, outputs=k)


linearised_network.foil("without the initial output", refuted_by="outputs for beta = 0", offset=0.0)
linearised_network.foil(
    "a distance of order 1.7",
    refuted_by="distance from the network",
    close="a rate within 20 % of the true one; the slack of a fit is a tenth of the rate at most",
    order=1.7,
)
