r"""Double descent: the test error of least squares as features are added, beyond interpolation too.

Let $x \in \mathbb{R}^D$ be standard normal, $y = \langle \beta, x \rangle + \sigma \epsilon$, and
let the shortest least-squares solution on the first $p$ features (the set $T$) be found from $n$
examples. With $s = \|\beta_{T^c}\|^2 + \sigma^2$, which is noise to who sees the features in $T$
alone, the expected squared error on a new example is

$$R(p) = \begin{cases} s\, \bigl(1 + \frac{p}{n - p - 1}\bigr) & p \le n - 2, \\
\infty & |p - n| \le 1, \\
\|\beta_T\|^2 \bigl(1 - \frac np\bigr) + s\, \bigl(1 + \frac{n}{p - n - 1}\bigr) & p \ge n + 2.
\end{cases}$$

At the edges: $R(0) = s$ whatever $n$ is; and where $s = 0$ there is nothing to explode, so that
$R(p) = 0$ for $p \le n$ and $\|\beta_T\|^2 (1 - \frac np)$ beyond.

The formula is exact. In the simulation the error of each fit is exact as well, since that of
coefficients $b$ is $\|b - \beta\|^2 + \sigma^2$: only training sets are drawn. Its variance is
finite for $|p - n| \ge 4$; nearer to the threshold a mean of many fits says little. All fits at one
$p$ are made together, by orthogonal factors: of the design for $p \le n$, which serve all these $p$
at once, else of its transpose. The claim is `double_descent`.

References:
    Belkin, Hsu and Xu, Two models of double descent for weak features, SIAM Journal on Mathematics
    of Data Science, 2020.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.progress import ticking
from vademecum.randomness import source
from vademecum.results import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DoubleDescent", "double_descent", "double_descent_risk", "draw_double_descent"]

_PORTION = (
    2**25
)  # bytes of designs at once unless memory says otherwise: larger ones were no faster
_HELD = 3  # designs of a portion, the factors of one and work beside it, in designs


class DoubleDescent(NamedTuple):
    """Test errors by the number of features, as theory has them and as measured.

    Example:
        >>> double_descent([2], torch.zeros(3), n=5, noise=2.0, repeats=3).theory  # 4 (1 + 2 / 2)
        tensor([8.], dtype=torch.float64)
    """

    p: Int[Tensor, " sizes"]
    """The numbers of features."""
    theory: Float[Tensor, " sizes"]
    """The expected test error of the shortest solution, by the formula."""
    simulated: Float[Tensor, " sizes"]
    """The mean test error of the fits."""
    standard_error: Float[Tensor, " sizes"]
    """Its standard error; of little worth where p and n differ by less than 4."""
    training: Float[Tensor, " sizes"]
    """The mean squared training error of the fits."""
    draws: Float[Tensor, " repeats sizes"]
    """The test error of each fit, the same training sets in each column."""
    n: int
    """The number of examples in each training set."""

    __repr__ = one_line


def double_descent_risk(
    p: Sequence[int] | Int[Tensor, " sizes"], beta: Float[Tensor, " D"], *, n: int, noise: float
) -> Float[Tensor, " sizes"]:
    r"""The expected test error of the shortest least-squares fit on p of D Gaussian features.

    Args:
        p: Numbers of features, from 0 to D; those that come first are taken.
        beta: The true coefficients $\beta$.
        n: The number of training examples.
        noise: The standard deviation $\sigma$ of the noise in the targets.

    Returns:
        The errors, in double precision; infinite where p and n differ by at most one.

    Example:
        >>> beta = torch.full((400,), 0.05)
        >>> double_descent_risk([0, 20, 40, 80, 400], beta, n=40, noise=0.2)
        tensor([1.0400, 2.0321,    inf, 1.8015, 0.9445], dtype=torch.float64)
    """
    p, beta = _checked(p, beta)
    whole("n", n, low=1)
    sigma2 = number("noise", noise, low=0) ** 2
    energy = torch.cat([beta.new_zeros(1), beta.square().cumsum(0)])
    seen = energy[p]
    rest = beta.flip(0).square().cumsum(0).flip(0)  # sums of its own: differences would cancel
    s = torch.cat([rest, rest.new_zeros(1)])[p] + sigma2
    size = p.double()
    below = 1 + size / (n - size - 1)
    above = 1 + n / (size - n - 1)
    factor = torch.where(p <= n, below, above)
    factor = torch.where(((p - n).abs() <= 1) & (p > 0), math.inf, factor)
    factor = torch.where(p == 0, 1.0, factor)
    grown = torch.where(s > 0, s * factor, 0.0)
    return grown + torch.where(p > n, seen * (1 - n / size.clamp(min=1)), 0.0)


def double_descent(
    p: Sequence[int] | Int[Tensor, " sizes"],
    beta: Float[Tensor, " D"],
    *,
    n: int,
    noise: float,
    fit: Callable[[Tensor, Tensor], Tensor] | None = None,
    repeats: int = 200,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> DoubleDescent:
    r"""Test errors of least squares by the number of features: the formula over measured ones.

    Args:
        p: Numbers of features, from 0 to D; those that come first are taken.
        beta: The true coefficients $\beta$; the results are on its device, in double precision.
        n: The number of training examples.
        noise: The standard deviation $\sigma$ of the noise in the targets.
        fit: A function of a design (n, p) and targets (n,) that gives p coefficients, to be
            measured in the place of the shortest solution, of which the theory is.
        repeats: How many training sets are drawn; each serves all numbers of features.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error. It counts fits.

    Example:
        >>> beta = torch.full((60,), 60**-0.5)
        >>> found = double_descent([4, 10, 60], beta, n=10, noise=0.1)
        >>> found.theory.round(decimals=3), found.training[1:] < 1e-9
        (tensor([1.6980,    inf, 0.8450], dtype=torch.float64), tensor([True, True]))
    """
    theory = double_descent_risk(p, beta, n=n, noise=noise)
    p, beta = _checked(p, beta)
    whole("repeats", repeats, low=2)
    D = len(beta)
    least = _HELD * n * (D + 1) * 8
    room = _PORTION if memory is None else whole("memory", memory, low=least)
    at_once = max(1, room // least)
    tests, trainings = [], []
    with ticking("fits", repeats * len(p), progress=progress) as tick:
        for start in range(0, repeats, at_once):
            drawn = _sets(min(at_once, repeats - start), n, D + 1, generator, beta.device)
            X, y = drawn[..., :D], drawn[..., :D] @ beta + noise * drawn[..., D]
            solve = _shortest(X, y) if fit is None else _each(fit, X, y)
            test, training = _errors(X, y, beta, p.tolist(), solve, tick)
            tests.append(test + noise**2)
            trainings.append(training)
    draws = torch.cat(tests)
    mean, error = draws.mean(0), draws.std(0) / math.sqrt(repeats)
    return DoubleDescent(p, theory, mean, error, torch.cat(trainings).mean(0), draws, n)


def _sets(
    count: int, n: int, width: int, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Standard normal numbers, drawn set by set: they are the same in any portions."""
    where = source(generator, device)
    sets = torch.empty(count, n, width, dtype=torch.float64, device=where["device"])
    for one in sets:
        one.normal_(generator=generator)
    return sets.to(device)


def _checked(p: Sequence[int] | Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    beta = floats("beta", beta, ndim=1).detach().double()
    sizes = p.tolist() if isinstance(p, Tensor) else list(p)
    if not isinstance(sizes, list) or not sizes:
        raise ValueError(f"p must be a list of numbers of features, got {sizes}")
    checked = [whole("p", size, low=0, high=len(beta)) for size in sizes]
    return torch.tensor(checked, device=beta.device), beta


def _errors(
    X: Tensor, y: Tensor, beta: Tensor, sizes: list[int], solve: Callable[[int], Tensor],
    tick: Callable[[int], None],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Squared distances to the true coefficients, and training errors, of each fit and size."""
    tests, trainings = X.new_empty(len(X), len(sizes)), X.new_empty(len(X), len(sizes))
    for i, size in enumerate(sizes):
        b = solve(size)
        tests[:, i] = (b - beta[:size]).square().sum(1) + beta[size:].square().sum()
        fitted = (X[..., :size] @ b[..., None])[..., 0]
        trainings[:, i] = (fitted - y).square().mean(1)
        tick(len(X))
    return tests, trainings


def _shortest(X: Tensor, y: Tensor) -> Callable[[int], Tensor]:
    """The shortest least-squares solutions on the first features, for all designs at once."""
    _, n, D = X.shape
    tall = torch.geqrf(X[..., : min(n, D)])
    turned = torch.ormqr(*tall, y[..., None], transpose=True)

    def solve(size: int) -> Tensor:
        if size <= n:
            R = tall[0][..., :size, :size]
            return torch.linalg.solve_triangular(R, turned[..., :size, :], upper=True)[..., 0]
        factors, tau = torch.geqrf(X[..., :size].mT)
        R = factors[..., :n, :]
        z = X.new_zeros(len(X), size, 1)
        z[..., :n, :] = torch.linalg.solve_triangular(R.mT, y[..., None], upper=False)
        return torch.ormqr(factors, tau, z)[..., 0]

    return solve


def _each(fit: Callable[[Tensor, Tensor], Tensor], X: Tensor, y: Tensor) -> Callable[[int], Tensor]:
    """The solutions of somebody else's method, one after the other."""

    def solve(size: int) -> Tensor:
        pairs = zip(X[..., :size], y, strict=True)
        return torch.stack([_coefficients(fit(A, b), size).to(X) for A, b in pairs])

    return solve


def _coefficients(b: Tensor, size: int) -> Tensor:
    b = floats("what fit gives", b, ndim=1, empty=True)
    if len(b) != size:
        raise ValueError(f"what fit gives must be {size} coefficients, got {len(b)}")
    return b.detach()


def draw_double_descent(result: DoubleDescent, axes: "Axes | None" = None) -> "Figure":
    """Draw the measured test errors over the theory, by the number of features.

    Args:
        result: What `double_descent` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> found = double_descent([1, 2, 6], torch.ones(9), n=4, noise=1.0, repeats=5)
        >>> [line.get_label() for line in draw_double_descent(found).axes[0].lines][:2]
        ['theory', 'as many features as examples']
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(6, 3.6), layout="constrained").subplots()
    order = result.p.argsort()
    p, theory, mean, error, training = (
        t[order].cpu().numpy() for t in (result.p, result.theory, *result[2:5])
    )
    axes.plot(p, theory, "k-", lw=1, label="theory")
    axes.axvline(result.n, ls=":", lw=1, color="0.5", label="as many features as examples")
    axes.errorbar(p, mean, 2 * error, fmt="o", ms=4, color="C0", label="measured, 2 errors")
    axes.plot(p, training, "s", ms=3, color="C1", label="training error")
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set(xlabel="features p", ylabel="squared error")
    axes.legend(frameon=False, fontsize="small")
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
