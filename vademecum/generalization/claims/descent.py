"""Bias and variance: with noise they are the error; and least squares beyond interpolation."""

import math
from itertools import product
from typing import Literal

import torch
from sklearn.dummy import DummyRegressor
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, in_mean
from vademecum.generalization import bias_variance as decomposed
from vademecum.generalization import double_descent as descent
from vademecum.generalization import double_descent_risk


def powers(x: Tensor, degree: int) -> Tensor:
    """The columns $1, x, ..., x^{degree}$."""
    return x ** torch.arange(degree + 1)


def polynomial(degree: int):
    """The least-squares fit of a polynomial, as a function of training data."""

    def fit(X: Tensor, y: Tensor):
        w = torch.linalg.lstsq(powers(X, degree), y[:, None]).solution
        return lambda x: (powers(x, degree) @ w)[:, 0]

    return fit


def wave(x: Tensor) -> Tensor:
    r"""The truth, $\sin 3 x$."""
    return torch.sin(3 * x[:, 0])


@claim(
    by="identity",
    sources=("C-279",),
    budget=0.6,
    full={"repeats": 4000},
    short=r"\mathbb E (\hat f(x) - y)^2 = (\mathbb E \hat f(x) - f^*(x))^2"
    r" + \mathrm{Var}\, \hat f(x) + \sigma^2",
)
def bias_variance(
    noise_share: float = 1.0, variance_share: float = 1.0, power: float = 2.0, repeats: int = 300
):
    r"""Bias-variance decomposition.

    At a fixed input, over training sets and independent label noise of mean 0 and variance
    $\sigma^2$: $\mathbb E[(\hat f(x) - y)^2] = (\mathbb E \hat f(x) - f^*(x))^2 + \mathrm{Var}(\hat
    f(x)) + \sigma^2$. For a linear smoother $\hat f(x) = a^\top y$ on a fixed design the parts are
    $(a^\top f^*(X) - f^*(x))^2$ and $\sigma^2 \|a\|^2$.

    *Proof.* Expand the square of $(\hat f - \mathbb E \hat f) + (\mathbb E \hat f - f^*) +
    (f^* - y)$: the mixed terms have mean 0. Checked for polynomials of degree 3 and 1, with noise
    $\pm \sigma$ over all of its signs, against weights from a pseudoinverse; for `bias_variance`
    exactly, and within 6 standard errors from Gaussian training sets; and with inputs drawn anew,
    for the mean of the targets, whose variance is $(1 + \sigma^2) / n$ for $f^*(x) = x$.

    Knobs:
        noise_share: How much of the noise's variance counts.
        variance_share: How much of the variance of the prediction counts.
        power: The power of the bias.
        repeats: How many training sets are drawn.
    """
    x = torch.tensor([[-0.9], [0.2], [0.65]])
    for n, degree, sigma in ((10, 3, 0.4), (7, 1, 0.7)):
        X, at = torch.linspace(-1, 1, n)[:, None] + torch.randn(n, 1) / 20, {"degree": degree}
        a = powers(x, degree) @ torch.linalg.pinv(powers(X, degree))
        bias, spread = a @ wave(X) - wave(x), sigma**2 * a.square().sum(1)
        signs = sigma * torch.tensor([*product((-1.0, 1.0), repeat=n)])
        fits = a @ (wave(X) + signs).T  # every training set
        errors = [(fits - wave(x)[:, None] - y).square().mean(1) for y in (-sigma, sigma)]
        parts = bias.abs() ** power + variance_share * spread + noise_share * sigma**2
        yield equals("error over all signs of the noise", sum(errors) / 2, parts, **at)
        how = {"truth": wave, "noise": sigma}
        exact = decomposed(polynomial(degree), X, x, linear=True, **how)
        yield equals("squared bias, exact", exact.bias_squared, bias.abs() ** power, **at)
        yield equals("variance, exact", exact.variance, variance_share * spread, **at)
        yield equals("error of bias_variance", exact.error, parts, **at)
        found = decomposed(polynomial(degree), X, x, repeats=repeats, **how)
        # the predictions are Gaussian with this bias and variance, which gives these errors
        unit = (4 * bias**2 * spread / repeats + 2 * spread**2 / repeats**2).sqrt()
        off = (found.bias_squared - bias.abs() ** power).abs() / unit
        yield at_most("squared bias from draws, off in standard errors", off, 6.0, tol=0.0, **at)
        off = (found.variance / spread - variance_share).abs() / math.sqrt(2 / (repeats - 1))
        yield at_most("variance from draws, off in standard errors", off, 6.0, tol=0.0, **at)
        whole = found.bias_squared + found.variance + noise_share * sigma**2
        yield equals("error from draws, against its parts", found.error, whole, **at)
    n, sigma, x = 5, 0.6, torch.tensor([[2.0], [0.5]])
    found = decomposed(
        DummyRegressor(), lambda g: torch.randn(n, 1, generator=g), x, truth=lambda x: x[:, 0],
        noise=sigma, repeats=repeats,
    )  # fmt: skip
    spread = (1 + sigma**2) / n
    off = (found.variance / spread - variance_share).abs() / math.sqrt(2 / (repeats - 1))
    yield at_most("variance over inputs drawn anew, off", off, 6.0, tol=0.0, n=n)
    unit = (4 * x[:, 0] ** 2 * spread / repeats + 2 * spread**2 / repeats**2).sqrt()
    off = (found.bias_squared - x[:, 0].abs() ** power).abs() / unit
    yield at_most("squared bias over inputs drawn anew, off", off, 6.0, tol=0.0, n=n)


bias_variance.foil(
    "without the noise, which no method avoids",
    refuted_by="error over all signs of the noise",
    noise_share=0.0,
)
bias_variance.foil("without the variance", variance_share=0.0)
bias_variance.foil("the bias and not its square", power=1.0)


def expected_error(p: int, beta: Tensor, n: int, sigma: float, less: int, hidden: float) -> float:
    """The formula of Belkin, Hsu and Xu, with $n - p - less$ below the line."""
    squares = (beta**2).tolist()
    seen, s = sum(squares[:p]), hidden * sum(squares[p:]) + sigma**2
    if p == 0:
        return s
    if abs(n - p) <= 1:
        return math.inf
    if p < n:
        return s * (1 + p / (n - p - less))
    return seen * (1 - n / p) + s * (1 + n / (p - n - less))


@claim(
    by="sampling",
    sources=("A-285", "C-281", "D-382"),
    budget=1.0,
    full={"repeats": 5000, "small": 200_000},
    short=r"R = s (1 + \tfrac{p}{n - p - 1})\ (p < n),\quad"
    r" \|\beta_T\|^2 (1 - \tfrac np) + s (1 + \tfrac{n}{p - n - 1})\ (p > n)",
)
def double_descent(
    beyond: Literal["falls", "rises"] = "falls",
    less: int = 1,
    hidden: float = 1.0,
    repeats: int = 200,
    small: int = 20_000,
):
    r"""Double descent.

    As models grow past the interpolation threshold the test error, which peaks there, can fall
    again and even end below its least value before, although the training error is 0 already. For
    the shortest least-squares solution on $p$ of $D$ independent standard normal features, $n$
    examples, noise of variance $\sigma^2$ and $s = \|\beta_{T^c}\|^2 + \sigma^2$ with $\beta_{T^c}$
    the coefficients of the features left out, the expected test error is $s\, (1 + \frac p{n - p -
    1})$ for $p \le n - 2$, infinite for $|p - n| \le 1$ (and $p, s > 0$), and $\|\beta_T\|^2 (1 -
    \frac np) + s\, (1 + \frac n{p - n - 1})$ for $p \ge n + 2$.

    *Source.* Belkin, Hsu and Xu 2020. Checked with the fits of `double_descent`, whose mean is
    within 6 standard errors, for $n = 40$, $D = 400$ and equal coefficients, and for $n = 9$, $D =
    16$; the course of the error for the former, by the formula of `double_descent_risk`. That
    kernels explain the same of networks is quoted.

    Knobs:
        beyond: What the test error does past interpolation.
        less: What is taken from $|n - p|$ below the line.
        hidden: How much of the features left out counts as noise.
        repeats: How many training sets of 40 examples are drawn.
        small: How many training sets of 9 examples are drawn.
    """
    n, beta, sigma = 40, torch.full((400,), 0.05), 0.2
    risk = double_descent_risk(range(401), beta, n=n, noise=sigma)
    compare = at_most if beyond == "falls" else at_least
    yield compare("expected test error at p = 400, beside that at p = 42", risk[400], risk[42], n=n)
    yield compare("change of it from p to p + 1 beyond 42", risk[42:].diff(), 0.0, tol=0.0, n=n)
    yield at_most("expected test error at p = 400, beside all p < n", risk[400], risk[:n].min())
    yield equals("expected test error at p = n - 1, n, n + 1", risk[n - 1 : n + 2], math.inf)
    falling = torch.linspace(2, 0.1, 16)
    cases = ((40, beta, 0.2, (10, 20, 80, 400), repeats), (9, falling, 1.5, (3, 0, 15), small))
    for n, beta, sigma, sizes, count in cases:
        found = descent(sizes, beta, n=n, noise=sigma, repeats=count)
        for i, p in enumerate(sizes):
            formula, at = expected_error(p, beta, n, sigma, less, hidden), {"p": p, "n": n}
            yield in_mean("test error of fits", found.draws[:, i], formula, sigmas=6.0, **at)
            yield equals("expected test error", found.theory[i], formula, **at)
            if p > n:  # the square of what rounding leaves, at a condition below 100
                yield at_most("training error of fits", found.training[i], 1e-20, tol=0.0, **at)
        if n == 40:
            last, first = found.draws[:, 3].mean(), found.draws[:, 2].mean()
            yield compare("test error of fits at p = 400, beside p = 80", last, first, n=n)


double_descent.foil(
    r"$|n - p|$ in the place of $|n - p| - 1$", refuted_by="test error of fits", less=0
)
double_descent.foil("features left out do not disturb", refuted_by="test error of fits", hidden=0.0)
double_descent.erratum(
    "A-285",
    printed="in particular why test accuracy decreases despite training accuracy already being at"
    " 100%",
    right="why the test error decreases (the accuracy improves) although the training accuracy is"
    " already 100%",
    why="The direction is reversed: for shortest least squares with 40 examples the expected error"
    " falls from 38 at $p = 42$ to 0.94 at $p = 400$. A falling accuracy would be ordinary"
    " overfitting.",
    weight="hard",
    refuted_by="expected test error at p = 400, beside that at p = 42",
    beyond="rises",
)
