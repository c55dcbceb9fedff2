"""Sensitivity: Jacobians and their operator norms."""

import itertools
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.claims import at_most, claim, complex_step, equals, slope
from vademecum.models import mlp
from vademecum.robustness import jacobian_spectral_norm, operator_norm, spectral_regularizer


def tanh_network(*sizes: int) -> tuple[nn.Module, list[np.ndarray]]:
    """A network with large weights, and these by themselves."""
    model = mlp(list(sizes), nn.Tanh)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_()
            p *= 1 / p.shape[-1] ** 0.5 if p.ndim == 2 else 1.0
    return model, [p.detach().numpy() for p in model.parameters()]


def by_hand(x: np.ndarray, W: np.ndarray, b: np.ndarray, V: np.ndarray, c: np.ndarray):
    """A network with one hidden layer, for complex inputs as well."""
    return V @ np.tanh(W @ x + b) + c


def matrices(x: Tensor, weights: list[np.ndarray]) -> Tensor:
    """The Jacobians at some inputs, by complex steps."""
    return torch.stack([complex_step(lambda z: by_hand(z, *weights), p) for p in x.numpy()])


@claim(
    by="fit",
    sources=("B-466", "B-467"),
    short=r"\|f(x + \Delta) - f(x)\|_2 \le \sigma(J_f(x)) \|\Delta\|_2 + O(\|\Delta\|^2)",
)
def jacobian_sensitivity(
    norm: Literal["singular", "eigenvalue", "frobenius"] = "singular", rate: float = 2.0
):
    r"""Jacobian operator norm as sensitivity.

    $f(x + \Delta) = f(x) + J_f(x) \Delta + O(\|\Delta\|^2)$ (exactly within a linear region of a
    ReLU net), so to first order $\frac{\|f(x + \Delta) - f(x)\|_2}{\|\Delta\|_2} \le \sigma(J_f(x))
    = \max_{\|v\|_2 \le 1} \|J_f(x) v\|_2$, attained at the top right singular vector.

    Checked for tanh networks whose Jacobians come from complex steps, with few outputs and with 70
    (where `jacobian_spectral_norm` takes products alone): values against singular values, 1,000
    directions, the vectors it returns; a nilpotent map, whose eigenvalues vanish; remainders at 20
    points for steps over two decades; and norms and remainders of ReLU networks within a cell.

    Knobs:
        norm: What is said to be the largest factor: the largest singular value, the largest modulus
            of an eigenvalue, or the Frobenius norm.
        rate: The order of the remainder.
    """
    for d, m, k in ((5, 9, 5), (4, 8, 3), (6, 90, 70)):
        model, weights = tanh_network(d, m, k)
        x = torch.randn(3, d)
        J, found = matrices(x, weights), jacobian_spectral_norm(model, x)
        yield equals("spectral norm", found.value, torch.linalg.svdvals(J)[:, 0], tol=1e-7, k=k)
        yield equals("converged", found.converged, torch.ones(3), k=k)
        v = torch.randn(1000, d)
        factors = (J @ (v / v.norm(dim=1, keepdim=True)).T).norm(dim=1)
        yield at_most("factors of random directions", factors, measured(norm, J)[:, None], k=k)
        attained = torch.einsum("nkd,nd->nk", J, found.v)
        yield equals("factor of the top direction", attained.norm(dim=1), measured(norm, J), k=k)
        top = torch.einsum("nk,nkd,nd->n", found.u, J, found.v)
        yield equals("factor between both vectors", top, found.value, tol=1e-7, k=k)
    shift = nn.Linear(2, 2, bias=False)
    shift.weight.data = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    found = jacobian_spectral_norm(shift, torch.randn(1, 2)).value
    yield equals("norm of a nilpotent map", found, measured(norm, shift.weight.detach()[None]))
    yield remainders(rate)
    yield from within_a_cell()


def measured(norm: str, J: Tensor) -> Tensor:
    """What a reader might take for the largest factor."""
    if norm == "frobenius":
        return torch.linalg.matrix_norm(J)
    if norm == "eigenvalue" and J.shape[-1] == J.shape[-2]:
        return torch.linalg.eigvals(J).abs().amax(-1)
    return torch.linalg.svdvals(J)[:, 0]


def remainders(rate: float):
    """The root mean square of the remainders at 20 points, by the length of the step."""
    model, weights = tanh_network(4, 7, 3)
    x, step = torch.randn(20, 4), torch.randn(20, 4)
    step = step / step.norm(dim=1, keepdim=True)
    linear = torch.einsum("nkd,nd->nk", matrices(x, weights), step)
    sizes = np.logspace(-4, -2, 9)
    with torch.no_grad():
        rest = [(model(x + t * step) - model(x) - t * linear).norm() for t in sizes]
    # The cubic term is of the relative size of the step, 1 % at most: 0.01 of the exponent.
    return slope("remainder against the step", sizes, torch.stack(rest), rate, tol=0.02)


def within_a_cell():
    """ReLU networks are affine as far as no unit changes its side."""
    for d, m in ((3, 6), (5, 12)):
        model, x = mlp([d, m, 4], nn.ReLU), torch.randn(d)
        step = torch.randn(d)
        step = step / step.norm() * distance_to_kink(model, x) * 0.9
        found = jacobian_spectral_norm(model, x[None])
        J = local_map(model, x)
        with torch.no_grad():
            change = (model((x + step)[None]) - model(x[None]))[0]
        yield equals("remainder within a cell", change, J @ step, tol=1e-12, d=d)
        yield at_most("change within a cell", change.norm(), found.value * step.norm(), d=d)
        yield equals("norm within a cell", found.value, torch.linalg.svdvals(J)[:1], tol=1e-7, d=d)


def distance_to_kink(model: nn.Module, x: Tensor) -> float:
    """The distance to the nearest kink of the only hidden layer."""
    W, b = (p.detach() for p in list(model.parameters())[:2])
    return float(((W @ x + b).abs() / W.norm(dim=1)).min())


def local_map(model: nn.Module, x: Tensor) -> Tensor:
    """The matrix of a ReLU network with one hidden layer at a point."""
    W, b, V, _ = (p.detach() for p in model.parameters())
    return V @ ((W @ x + b > 0)[:, None] * W)


jacobian_sensitivity.foil("the spectral radius", norm="eigenvalue")
jacobian_sensitivity.foil(
    "the Frobenius norm", norm="frobenius", refuted_by="factor of the top direction"
)
jacobian_sensitivity.foil(
    "a lower order of the remainder", rate=1.7, refuted_by="remainder against the step"
)


@claim(
    by="training",
    sources=("B-469",),
    short=r"\nabla_J \tfrac12 \sigma(J)^2 = \sigma u v^\top",
)
def spectral_regulariser(norm: Literal["spectral", "frobenius"] = "spectral", steps: int = 100):
    r"""Data-dependent spectral regularisation.

    $\min_\theta \mathbb E \big[\ell(y, f(x)) + \frac\lambda2 \sigma(J_f(x))^2\big]$ penalises the
    local operator norm at the data. For a simple top singular value the gradient of $\frac12
    \sigma^2$ with respect to $J$ is $\sigma u v^\top$ with the top singular vectors.

    Checked for tanh networks against singular values of Jacobians by complex steps; for linear maps
    against central differences of NumPy's singular values in every entry, and against $\sigma u
    v^\top$; in the parameters of a network along random directions; and by 100 steps on the penalty
    alone, which lower the mean $\sigma$ to below 90 % of what it was.

    Knobs:
        norm: The norm that is penalised.
        steps: How many gradient steps are made.
    """
    which = 2 if norm == "spectral" else "fro"
    for d, m, k in ((4, 9, 3), (3, 5, 6)):
        model, weights = tanh_network(d, m, k)
        x = torch.randn(5, d)
        half_squares = np.linalg.norm(matrices(x, weights).numpy(), which, (1, 2)) ** 2 / 2
        yield equals("penalty", spectral_regularizer(model, x), half_squares.mean(), tol=1e-7, k=k)
        linear = nn.Linear(d, k, bias=False)
        spectral_regularizer(linear, x).backward()
        J, h = linear.weight.detach().numpy(), 1e-6
        moves = np.eye(d * k).reshape(d * k, k, d) * h
        up, down = (np.linalg.norm(J + sign * moves, which, (1, 2)) ** 2 / 2 for sign in (1, -1))
        slopes = ((up - down) / (2 * h)).reshape(k, d)
        yield equals("gradient in the Jacobian", linear.weight.grad, slopes, tol=1e-6, k=k)
        u, s, v = np.linalg.svd(J)
        outer = s[0] * np.outer(u[:, 0], v[0])
        yield equals("its closed form", linear.weight.grad, outer, tol=1e-9, k=k)
    yield parameters(which)
    model, weights = tanh_network(4, 9, 3)
    x = torch.randn(20, 4)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    before = np.linalg.norm(matrices(x, weights).numpy(), 2, (1, 2)).mean()
    for _ in range(steps):
        optimiser.zero_grad()
        spectral_regularizer(model, x).backward()
        optimiser.step()
    weights = [p.detach().numpy() for p in model.parameters()]
    after = np.linalg.norm(matrices(x, weights).numpy(), 2, (1, 2)).mean()
    yield at_most("mean spectral norm after training over that before", after / before, 0.9)


def parameters(which: Literal["fro", 2]):
    """The gradient in all parameters of a network along a direction, by central differences."""
    model, weights = tanh_network(3, 6, 4)
    x = torch.randn(5, 3)
    spectral_regularizer(model, x).backward()
    along = [np.asarray(torch.randn(w.shape)) for w in weights]
    ends = []
    for h in (1e-5, -1e-5):
        moved = [w + h * a for w, a in zip(weights, along, strict=True)]
        ends.append((np.linalg.norm(matrices(x, moved).numpy(), which, (1, 2)) ** 2 / 2).mean())
    grads = [np.zeros_like(a) if p.grad is None else p.grad.numpy()
             for p, a in zip(model.parameters(), along, strict=True)]  # fmt: skip
    found = sum((g * a).sum() for g, a in zip(grads, along, strict=True))
    return equals("slope in the parameters", found, (ends[0] - ends[1]) / 2e-5, tol=1e-6)


spectral_regulariser.foil(
    "the Frobenius norm, whose gradient is J",
    norm="frobenius",
    refuted_by="gradient in the Jacobian",
)


@claim(
    by="identity",
    sources=("B-471",),
    short=r"f \text{ affine on } \|r\|_p \le \epsilon: \max \|f(x + r) - f(x)\|_q"
    r" = \epsilon \|J_f(x)\|_{p, q}",
)
def adversarial_operator_norm(reach: float = 0.9, transposed: bool = False):
    r"""Adversarial training as operator-norm regularisation.

    If the network is affine on the ball $\{\|r\|_p \le \epsilon\}$ around $x$, then $\max_{\|r\|_p
    \le \epsilon} \|f(x + r) - f(x)\|_q = \epsilon \|J_f(x)\|_{p, q}$; hence training against an
    adversary that maximises the $\ell_q$ change of the logits amounts to data-dependent $(p, q)$
    operator-norm regularisation for small $\epsilon$ (Roth et al. 2020, quoted). Without local
    linearity the equality fails.

    Checked for ReLU networks, with $\epsilon$ below the distance to the nearest kink: the largest
    change by power iteration for $p = q = 2$, at all corners of the cube for $p = \infty$ and of
    the octahedron for $p = 1$, with $q = 1, 2, 3, \infty$; for $p = 2$, $q = 1, \infty$ with the
    maximiser by Cauchy and Schwarz; and for $f(x) = \max(0, x)$ at $x = -0.1$.

    Knobs:
        reach: The radius $\epsilon$ over the distance to the nearest kink.
        transposed: Whether the two exponents change places.
    """
    relu, at = nn.ReLU(), torch.tensor([[-0.1]])
    change = relu(at + reach * 0.1) - relu(at)
    bound = reach * 0.1 * operator_norm(torch.zeros(1, 1), 2, 2)
    yield equals("change of max(0, x) at -0.1", change.abs().max(), bound, epsilon=reach * 0.1)
    for d, m, k in ((4, 7, 3), (3, 9, 5)):
        model, x = mlp([d, m, k], nn.ReLU), torch.randn(d)
        W, b = (p.detach() for p in list(model.parameters())[:2])
        J = local_map(model, x)
        corners = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=d)))
        balls = {torch.inf: corners, 1.0: torch.cat([torch.eye(d), -torch.eye(d)])}
        for p, q in itertools.product((1.0, 2.0, torch.inf), (1.0, 2.0, 3.0, torch.inf)):
            if (p, q) == (2.0, 3.0):
                continue
            dual = {1.0: torch.inf, 2.0: 2.0, torch.inf: 1.0}[p]
            kink = ((W @ x + b).abs() / torch.linalg.vector_norm(W, dual, dim=1)).min()
            eps = reach * float(kink)
            r = eps * (balls[p] if p != 2 else steepest(J, q))
            with torch.no_grad():
                moved = torch.linalg.vector_norm(model(x + r) - model(x), q, dim=-1)
            pair = (q, p) if transposed and (q, p) != (3.0, 2.0) and p != q else (p, q)
            if pair[0] == 3.0 and pair[1] not in (1.0, torch.inf):
                continue
            bound = eps * operator_norm(J, *pair)
            yield equals("largest change in the ball", moved.max(), bound, tol=1e-9, p=p, q=q, k=k)


def steepest(J: Tensor, q: float) -> Tensor:
    """Unit vectors of which one maximises the q-norm of J v: by power iteration, or by signs."""
    if q == torch.inf:
        return unit(J)
    if q == 1:
        return unit(torch.tensor(list(itertools.product((-1.0, 1.0), repeat=len(J)))) @ J)
    M = J.T @ J
    for _ in range(40):  # squares of squares: no gap is too small
        M = unit(M.flatten()[None]).view_as(M)
        M = M @ M
    return unit(M[:, M.norm(dim=0).argmax()][None])


def unit(v: Tensor) -> Tensor:
    """Rows of length 1, or 0: all units of a network may be off."""
    return v / v.norm(dim=1, keepdim=True).clamp(min=torch.finfo(v.dtype).tiny)


adversarial_operator_norm.foil(
    "the exponents exchanged", transposed=True, refuted_by="largest change in the ball"
)
adversarial_operator_norm.erratum(
    "B-471",
    printed="... is equivalent to data-dependent $(p, q)$ operator norm regularization",
    right="if the network is affine on the ball: $\\max_{\\|r\\|_p \\le \\epsilon} \\|f(x + r)"
    " - f(x)\\|_q = \\epsilon \\|J_f(x)\\|_{p, q}$",
    why="The local linearity condition is missing: for $f(x) = \\max(0, x)$ at $x = -0.1$ with"
    " $\\epsilon = 0.5$ the adversarial change is 0.4 while the operator norm of the Jacobian at"
    " $x$ is 0.",
    weight="soft",
    reach=5.0,
    refuted_by="change of max(0, x) at -0.1",
)
