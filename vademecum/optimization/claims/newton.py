"""Steps that look for their length, and steps that know it: line search and Newton's method."""

import decimal
import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals, with_eigenvalues
from vademecum.optimization import NewtonCG
from vademecum.optimization import line_search as search


def smooth_functions():
    """Functions of a vector with their constants of smoothness."""
    for d in (2, 5):
        spectrum = 10 ** (2 * torch.rand(d) - 1)
        H = with_eigenvalues(spectrum)
        yield "quadratic", lambda x, H=H: x @ H @ x / 2, float(spectrum.max()), d
        z = torch.randn(12, d) * 3
        L = float(torch.linalg.eigvalsh(z.T @ z)[-1]) / 48
        yield "logistic loss", lambda x, z=z: nn.functional.softplus(z @ x).mean(), L, d


@claim(
    by="sampling",
    sources=("B-212",),
    budget=1.0,
    full={"n": 500},
    short=r"f(\theta - \eta g) \le f(\theta) - c\, \eta \|g\|^2 \text{ at }"
    r" \eta \ge \min(\eta_0, 2 \rho (1 - c) / L)",
)
def line_search(shrunk: float = 1.0, extra: int = 1, n: int = 12):
    r"""Backtracking line search and its price.

    Starting from $\eta_0$, multiply $\eta$ by $\rho < 1$ until $f(\theta - \eta g) \le f(\theta) -
    c\, \eta \|g\|^2$ (Armijo). For $L$-smooth $f$ the accepted step is at least $\min(\eta_0, 2
    \rho (1 - c) / L)$, at the price of up to $1 + \lceil \log_{1 / \rho} (\eta_0 L / (2 - 2 c))
    \rceil_+$ further evaluations of the objective per step; for networks, where an evaluation is a
    pass over the data, a constant rate or a schedule is used instead.

    *Proof.* $f(\theta - \eta g) \le f(\theta) - \eta (1 - \frac{L \eta}2) \|g\|^2$, so every
    $\eta \le 2 (1 - c) / L$ is accepted. Checked for `line_search` on quadratics and logistic
    losses with known $L$, evaluations counted from outside ($f(\theta)$ itself not among them); at
    the edge, on a quadratic along its steepest direction, $\eta_0$ just below $2 (1 - c) / L$ is
    accepted at once, and just above it is halved.

    Knobs:
        shrunk: The power of $\rho$ in the least accepted step.
        extra: What is added to the logarithm in the number of evaluations.
        n: How many starts are drawn for each function.
    """
    c, rho = 0.3, 0.5
    for name, f, L, d in smooth_functions():
        for _ in range(n):
            x, eta0 = torch.randn(d), float(10 ** (5 * torch.rand(()) - 3))
            here = x.clone().requires_grad_()
            (g,) = torch.autograd.grad(f(here), here)
            seen = []

            def counted(x: Tensor, f=f, seen=seen) -> Tensor:
                seen.append(f(x))
                return seen[-1]

            slope = -float(g @ g)
            found = search(counted, x, -g, slope=slope, step=eta0, shrink=rho, c=c)
            at = {"objective": name, "d": d}
            bound = min(eta0, 2 * rho**shrunk * (1 - c) / L)
            yield at_least("accepted step over its bound", found.step / bound, 1.0, **at)
            value = f(x - found.step * g)
            yield equals("value at the accepted step", found.value, value, tol=1e-12, **at)
            promised = f(x) + c * found.step * slope
            yield at_most("value at the accepted step", value, promised, tol=1e-14, **at)
            price = extra + max(0, math.ceil(math.log2(eta0 * L / (2 - 2 * c))))
            yield at_most("evaluations of the objective", len(seen) - 1, price, **at)
            yield equals("evaluations that are reported", found.evaluations, len(seen) - 1, **at)
    L = 5.0
    for share, step, count in ((0.999, 0.999, 1), (1.001, 0.5005, 2)):
        edge = 2 * (1 - c) / L
        found = search(lambda x: L * x @ x / 2, torch.ones(1), -L * torch.ones(1), c=c,
                       step=share * edge, shrink=rho)  # fmt: skip
        yield equals("accepted step at the edge", found.step / edge, step, share=share)
        yield equals("evaluations at the edge", found.evaluations, count, share=share)
        bound = min(share, rho**shrunk)
        yield at_least("accepted step at the edge, over the edge", found.step / edge, bound)


line_search.foil(r"the bound without the factor $\rho$", shrunk=0.0)
line_search.foil("one evaluation less", extra=0)


def newton_step(f, x: Tensor, sign: int = -1) -> Tensor:
    """Newton's step, by a dense Hessian of autograd."""
    g = torch.autograd.functional.jacobian(f, x)
    H = torch.autograd.functional.hessian(f, x)
    return sign * torch.linalg.solve(torch.as_tensor(H), torch.as_tensor(g))


def saddle(x: Tensor) -> Tensor:
    r"""$\frac12 (x_1^2 - x_2^2)$."""
    return (x[0] ** 2 - x[1] ** 2) / 2


def double_well(x: Tensor) -> Tensor:
    r"""$(x^2 - 1)^2$."""
    return (x**2 - 1).square().sum()


@claim(
    by="identity",
    sources=("A-076", "B-215", "E-050"),
    budget=0.8,
    short=r"\Delta\theta = -[\nabla^2 f(\theta)]^{-1} \nabla f(\theta) \text{ solves a strictly"
    r" convex quadratic in one step}",
)
def newton(sign: int = -1, downhill: Literal["bowl", "saddle"] = "bowl"):
    r"""Newton's method.

    $\Delta\theta = -[\nabla^2 f(\theta)]^{-1} \nabla f(\theta)$ is the stationary point of the
    quadratic model, its minimum exactly when the Hessian is positive definite. It solves a strictly
    convex quadratic in one step, and is attracted by any non-degenerate critical point, saddles and
    maxima included.

    Checked on quadratics against the solution of the linear system, also for `NewtonCG`, which
    solves it by products with the Hessian; on $\frac12 (x^2 - y^2)$, where the step leads to the
    saddle, and uphill where $|y| > |x|$; on $(x^2 - 1)^2$ from 0.1, where it converges to the
    maximum 0. `NewtonCG` follows negative curvature and leaves both; gradient descent does, too.

    Knobs:
        sign: The sign of the step.
        downhill: Where the step is said to lead downhill.
    """
    for d in (2, 6):
        A, b, x = with_eigenvalues(0.5 + 3 * torch.rand(d)), torch.randn(d), torch.randn(d)
        minimum = -torch.linalg.solve(A, b)

        def f(x: Tensor, A: Tensor = A, b: Tensor = b) -> Tensor:
            return x @ A @ x / 2 + b @ x

        end = x + newton_step(f, x, sign)
        yield equals("end of one step on a bowl", end, minimum, tol=1e-10, d=d)
        p = nn.Parameter(x.clone())
        NewtonCG([p], forcing=None).step(lambda p=p, f=f: f(p))
        yield equals("end of one step of NewtonCG on a bowl", p.detach(), minimum, tol=1e-10, d=d)
    x = torch.tensor([0.5, 1.0]) + torch.rand(2) / 4
    x = x if downhill == "saddle" else x.flip(0)
    step, g = newton_step(saddle, x, sign), x * torch.tensor([1.0, -1.0])
    yield equals("end of one step at a saddle", x + step, 0.0, tol=1e-14)
    yield at_most("slope along the step", float(g @ step), 0.0, tol=0.0, y=float(x[1]))
    # The model of a saddle has no minimum: it falls from the stationary point along y.
    model = saddle(torch.tensor([0.0, 1.0])) - saddle(torch.zeros(2))
    yield at_most("model beside its stationary point", model, -0.4)
    y = torch.tensor([0.1])
    for _ in range(6):
        y = y + newton_step(double_well, y, sign)
    yield equals("end of Newton's method in a double well", y, 0.0, tol=1e-12)
    p, q = nn.Parameter(torch.tensor([0.1])), nn.Parameter(torch.tensor([0.1]))
    descent, own = torch.optim.SGD([q], lr=0.1), NewtonCG([p])
    for _ in range(40):
        own.step(lambda: double_well(p))
        descent.zero_grad()
        double_well(q).backward()
        descent.step()
    yield equals("end of NewtonCG in a double well", p.detach().abs(), 1.0, tol=1e-7)
    yield equals("end of gradient descent in a double well", q.detach().abs(), 1.0, tol=1e-6)


newton.foil("the other sign", sign=1)
newton.foil(
    "the Newton step is always a descent step",
    refuted_by="slope along the step",
    downhill="saddle",
)


def scalar_errors(*, frozen: bool) -> list[Decimal]:
    r"""Distances of Newton's iterates from the minimum of $x^2 + e^x$, from 0, in 200 digits."""

    def run(steps: int, start: Decimal, fixed: bool) -> list[Decimal]:
        x, path = start, [start]
        bend = 2 + x.exp()
        for _ in range(steps):
            bend = bend if fixed else 2 + x.exp()
            x -= (2 * x + x.exp()) / bend
            path.append(x)
        return path

    with decimal.localcontext() as context:
        context.prec = 220
        end = run(10, Decimal(0), False)[-1]
        return [abs(x - end) for x in run(7, Decimal(0), frozen)]


@claim(
    by="identity",
    sources=("E-050",),
    budget=0.8,
    full={"n": 30},
    short=r"\nabla^2 f \succeq m I, M\text{-Lipschitz}: e_{k+1} \le \tfrac{M}{2m}"
    r" e_k^2;\ d = 1: e_{k+1} / e_k^2 \to |f'''| / 2 f''",
)
def newton_convergence(frozen: bool = False, factor: float = 0.5, n: int = 3):
    r"""Local quadratic convergence of Newton's method.

    Near a minimiser with positive definite, Lipschitz continuous Hessian (constant $M$, smallest
    eigenvalue at least $m$) Newton's method converges quadratically,
    $e_{k+1} \le \frac{M}{2m} e_k^2$; in one dimension, for $f \in C^3$,
    $e_{k+1} / e_k^2 \to \frac{|f'''(x^*)|}{2 f''(x^*)}$.

    *Proof.* $e_{k+1} = H^{-1} \int_0^1 (H(x_k) - H(x^* + t (x_k - x^*)))\, dt\; e_k$. Checked for
    $x^2 + e^x$ in 220 digits, from the fourth step to the seventh; and for `NewtonCG` on
    $\log \sum_i e^{a_i \cdot x + b_i} + \frac\lambda2 \|x\|^2$, whose Hessian has the constant
    $M = \frac{4}{3 \sqrt 3} \max_i \|a_i\|^3$ and $m = \lambda$.

    Knobs:
        frozen: Whether the Hessian stays that of the start.
        factor: The factor before the ratio of derivatives.
        n: How many functions are drawn.
    """
    errors = scalar_errors(frozen=frozen)
    with decimal.localcontext() as context:
        context.prec = 220
        ratios = [float(b / a**2) if a else math.nan for a, b in itertools.pairwise(errors)]
    x = -0.35173371124919584  # where 2 x + e^x = 0
    limit = factor * math.exp(x) / (2 + math.exp(x))
    for k in (4, 5, 6):
        yield equals("error over the square of the one before", ratios[k], limit, tol=1e-6, k=k)
    d, lam = 4, 0.5
    for _ in range(n):
        A, b = torch.randn(6, d), torch.randn(6)

        def f(x: Tensor, A: Tensor = A, b: Tensor = b) -> Tensor:
            return torch.logsumexp(A @ x + b, 0) + lam / 2 * x @ x

        end = minimiser(f, d)
        M = 4 / (3 * 3**0.5) * float(A.norm(dim=1).max()) ** 3
        p = nn.Parameter(end + 0.4 * lam / M * nn.functional.normalize(torch.randn(d), dim=0))
        optimizer = NewtonCG([p], forcing=None)
        error = float((p.detach() - end).norm())
        for _ in range(20):  # until values of f, whose gap is some error**2, say nothing more
            if error < 1e-6:
                break
            optimizer.step(lambda p=p, f=f: f(p))
            after = float((p.detach() - end).norm())
            yield at_most("error of NewtonCG over its bound", after / (M / (2 * lam) * error**2),
                          1.0, tol=1e-15 / error**2)  # fmt: skip
            error = after
        yield at_most("last error of NewtonCG", error, 1e-6)


def minimiser(f: Callable[[Tensor], Tensor], d: int) -> Tensor:
    """By Newton's steps from 0, halved where a whole one climbs."""
    end = torch.zeros(d)
    for _ in range(20):
        step = newton_step(f, end)
        while step.norm() > 1e-9 and f(end + step) > f(end):
            step = step / 2
        end = end + step
    return end


newton_convergence.foil("the Hessian frozen at the start", frozen=True)
newton_convergence.foil("the limit without the factor one half", factor=1.0)
