"""Noise in inputs and weights: penalties that it amounts to."""

from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_most, claim, equals, in_mean, slope
from vademecum.linear import RidgeRegression
from vademecum.regularization import input_noise as noisy_inputs
from vademecum.regularization import input_noise_penalty, weight_noise_penalty
from vademecum.regularization import weight_noise as noisy_weights
from vademecum.regularization.claims.shrinkage import planted


def signs(d: int) -> Tensor:
    """All vectors of signs, one in each row."""
    return torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * d)


def squares(z: Tensor, y: Tensor) -> Tensor:
    """The sum of squared errors."""
    return (z - y).square().sum()


def linear_map(w: Tensor) -> nn.Linear:
    """A linear layer with these weights and without bias."""
    layer = nn.Linear(len(w), 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(w[None])
    return layer


def expected(w: Tensor, X: Tensor, y: Tensor, xi: Tensor) -> Tensor:
    """The squared loss on average over noise vectors, the rows of xi, for each example alike."""
    return (y[:, None] - (X[:, None] + xi) @ w).square().mean(1).sum()


@claim(
    by="identity",
    sources=("A-175", "B-348"),
    budget=0.4,
    short=r"\mathbb E \sum_n (y_n - w^\top (x_n + \xi_n))^2 = \|X w - y\|^2 + n s^2 \|w\|^2",
)
def input_noise(s_power: float = 2.0, w_power: float = 2.0, n_power: float = 1.0):
    r"""Input noise is ridge regularisation for linear models.

    Training on inputs with noise of mean 0 and covariance $s^2 I$ regularises. For a linear model
    with squared loss it is exact: $\mathbb E\, (y - w^\top (x + \xi))^2 = (y - w^\top x)^2 + s^2
    \|w\|^2$, so that over $n$ examples the expected loss is $\|X w - y\|^2 + n s^2 \|w\|^2$, ridge
    regression with $\mu = n s^2$.

    *Proof.* The cross term has the mean 0. Checked over all $2^d$ noise vectors of $\{-s, s\}^d$,
    against the formula and `input_noise_penalty`; the gradient vanishes at the weights of
    `RidgeRegression`. For the Gaussian noise of `input_noise` in training, variances and
    the loss within five standard errors; in evaluation it does nothing.

    Knobs:
        s_power: The power of $s$ in the penalty.
        w_power: The power of the norm.
        n_power: The power of the number of examples.
    """
    for n, d, s in ((7, 6, 0.3), (12, 4, 1.5)):
        X, y, w = torch.randn(n, d), torch.randn(n), torch.randn(d)
        w = 2 * w / w.norm()  # or the norm could be its own square
        xi, at = s * signs(d), {"n": n, "d": d, "s": s}
        added = expected(w, X, y, xi) - (X @ w - y).square().sum()
        formula = n**n_power * s**s_power * w.norm() ** w_power
        yield equals("loss added, over all noise vectors", added, formula, **at)
        found = input_noise_penalty(linear_map(w), X, y[:, None], loss=squares, std=s)
        yield equals("penalty of input_noise_penalty", found.value, formula, **at)
        best = RidgeRegression(alphas=n * s**2, fit_intercept=False).fit(X, y).coef_
        best = best.requires_grad_()
        (g,) = torch.autograd.grad(expected(best, X, y, xi), best)
        yield equals("gradient of the mean loss at the ridge solution", g, 0.0, tol=1e-10, **at)
        layer = noisy_inputs(s)
        noise = layer(torch.zeros(2000, d))
        for moment in (noise, noise[:, 0] * noise[:, 1], noise[:1000] * noise[1000:]):
            yield in_mean("mean, and products of different entries", moment, 0.0, **at)
        yield in_mean("squared noise", noise.square(), s**2, **at)
        drawn = torch.stack([squares(layer(X) @ w, y) for _ in range(400)])
        target = (X @ w - y).square().sum() + formula
        yield in_mean("loss with input_noise", drawn, float(target), **at)
        yield equals("output in evaluation", layer.eval()(X), X, tol=0.0, **at)


input_noise.foil(r"the penalty $n s \|w\|^2$", s_power=1.0)
input_noise.foil(r"the penalty $n s^2 \|w\|$", w_power=1.0)
input_noise.foil("the penalty without the number of examples", n_power=0.0)


class Exponentials(nn.Module):
    r"""$\sum_i e^{a_i \cdot \theta}$, whose derivatives of even order are all positive."""

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.theta = nn.Parameter(theta)

    def forward(self, x: Tensor) -> Tensor:
        """One number for each row."""
        return (x @ self.theta).exp()


@claim(
    by="identity",
    sources=("A-176", "B-348"),
    budget=0.6,
    short=r"\mathbb E\, E(\theta + s \epsilon) = E(\theta) + \tfrac{s^2}2 \mathrm{tr} H + O(s^3),"
    r" \text{ exact for quadratics}",
)
def weight_noise(factor: float = 0.5, power: float = 2.0, order: float = 4.0):
    r"""Weight noise penalises curvature.

    Weight noise of mean 0 and covariance $s^2 I$ changes the expected loss by $\frac{s^2}2
    \mathrm{tr}\, H + O(s^3)$, exactly $\frac{s^2}2 \mathrm{tr}\, H$ for a quadratic loss with
    Hessian $H$, so that of two minima of one height training with it prefers the flat one. Where
    the noise is symmetric, as here, third moments vanish and the remainder is $O(s^4)$.

    *Proof.* Taylor's formula. Checked over all $2^P$ vectors of $\{-s, s\}^P$ for linear models
    with squared loss, whose Hessian is known, and for $\sum_i e^{a_i \cdot \theta}$, against
    `weight_noise_penalty`; for the Gaussian noise of `weight_noise` in training, variances
    and the loss within five standard errors; in evaluation it does nothing.

    Knobs:
        factor: The factor before $s^2\, \mathrm{tr}\, H$.
        power: The power of $s$.
        order: The power of $s$ in the remainder.
    """
    for n, d, k, s in ((5, 3, 2, 0.2), (4, 2, 4, 1.3)):
        X, y, W = torch.randn(n, d), torch.randn(n, k), torch.randn(k, d)
        model = nn.Linear(d, k, bias=False)
        with torch.no_grad():
            model.weight.copy_(W)
        at, H = {"n": n, "P": k * d, "s": s}, 2 * torch.kron(torch.eye(k), X.T @ X)
        moved = W + s * signs(k * d).view(-1, k, d)
        clean = squares(X @ W.T, y)
        added = (X @ moved.mT - y).square().sum((1, 2)).mean() - clean
        formula = factor * s**power * H.trace()
        yield equals("loss added, over all noise vectors", added, formula, **at)
        found = weight_noise_penalty(model, X, y, loss=squares, std=s)
        yield equals("penalty of weight_noise_penalty", found.value, formula, **at)
        noisy = noisy_weights(model, s)
        eye = torch.eye(d)
        noise = torch.stack([noisy(eye).detach() - W.T for _ in range(300)])
        yield in_mean("noise in the weights", noise, 0.0, **at)
        yield in_mean("products of different weights", noise[:, 0, 0] * noise[:, 1, 1], 0.0, **at)
        yield in_mean("squared noise", noise.square(), s**2, **at)
        drawn = torch.stack([squares(noisy(X), y).detach() for _ in range(200)])
        yield in_mean("loss with weight_noise", drawn, float(clean + formula), **at)
        same = noisy.eval()(X).detach()
        yield equals("output in evaluation", same, X @ W.T, tol=1e-14, **at)
    a, theta = 0.5 + torch.rand(3, 4), torch.randn(4) / 4
    model, steps = Exponentials(theta), torch.logspace(-2.3, -0.3, 9)
    rest = []
    for s in steps:
        moved = theta + s * signs(4)
        added = ((moved @ a.T).exp().sum(1) - (a @ theta).exp().sum()).mean()
        found = weight_noise_penalty(model, a, loss=lambda z, _: z.sum(), std=float(s))
        rest.append(added - found.value)
    # a product of cosh(s a_j): the next term is at most s^2 / 5 of the leading one
    yield slope("remainder of the loss added", steps, torch.stack(rest), order, tol=0.1)


weight_noise.foil("the half lost", factor=1.0)
weight_noise.foil(r"$s$ in the place of $s^2$", power=1.0)
weight_noise.foil("a remainder whose order is lower by a fifth", order=3.2)


@claim(
    by="identity",
    sources=("A-175", "B-348"),
    budget=0.6,
    full={"sets": 50},
    short=r"\mathbb E \|(X + \Xi) w - y\|^2 = \|X w - y\|^2 + n\, w^\top \Sigma w,\quad"
    r" \hat w = (X^\top X + n \Sigma)^{-1} X^\top y",
)
def noise_shape(
    best: Literal["matched", "isotropic"] = "matched",
    n_power: float = 1.0,
    mean: float = 0.0,
    sets: int = 12,
):
    r"""Realistic input noise.

    Input noise of mean 0 and covariance $\Sigma$, independent for each of $n$ examples, adds $n\,
    w^\top \Sigma w$ to the expected squared loss of a linear model, whose minimum becomes $(X^\top
    X + n \Sigma)^{-1} X^\top y$. Noise of the law that will be met later is therefore best: where
    inputs have noise of covariance $\Sigma$ the model trained with isotropic noise of the same
    total variance has a larger expected loss, unless the two solutions coincide.

    *Proof.* The first solution minimises what the second is judged by, which is strictly convex.
    Checked with the noise $L \epsilon$, $L L^\top = \Sigma$, over all signs $\epsilon$, against the
    formula and `input_noise_penalty`; for the layer `input_noise` by second moments in random
    directions; the comparison for planted $\Sigma$ with eigenvalues from 0.05 to 2.

    Knobs:
        best: Which noise is said to be best.
        n_power: The power of the number of examples in the penalty.
        mean: The mean of the noise in each entry.
        sets: How many sets of data are drawn.
    """
    for i in range(sets):
        n, d = ((40, 5), (15, 3), (9, 4))[i % 3]
        Sigma, Q = planted(torch.logspace(-1.3, 0.3, d))
        X, w = torch.randn(n, d), torch.randn(d)
        y, at = X @ w + torch.randn(n) / 2, {"n": n, "d": d}
        xi = signs(d) @ (Q * torch.logspace(-1.3, 0.3, d).sqrt()).T + mean
        added = expected(w, X, y, xi) - (X @ w - y).square().sum()
        formula = n**n_power * w @ Sigma @ w
        yield equals("loss added, over all signs", added, formula, **at)
        found = input_noise_penalty(linear_map(w), X, y[:, None], loss=squares, covariance=Sigma)
        yield equals("penalty of input_noise_penalty", found.value, formula, **at)
        A, b = X.T @ X, X.T @ y
        matched = torch.linalg.solve(A + n * Sigma, b).requires_grad_()
        (g,) = torch.autograd.grad(expected(matched, X, y, xi), matched)
        yield equals("gradient of the mean loss at the solution", g, 0.0, tol=1e-10, **at)
        round_ = torch.linalg.solve(A + n * Sigma.trace() / d * torch.eye(d), b)
        losses = [expected(v.detach(), X, y, xi) for v in (matched, round_)]
        one, other = losses if best == "matched" else losses[::-1]
        yield at_most("loss of the best over that of the other", one / other, 1.0, tol=1e-12, **at)
    Sigma, _ = planted(torch.logspace(-1.3, 0.3, 5))
    layer = noisy_inputs(covariance=Sigma)
    noise = layer(torch.zeros(3000, 5))
    yield in_mean("noise of the layer", noise, 0.0)
    for u in torch.randn(4, 5):
        spread = (noise @ u).square()
        yield in_mean("its square in a direction", spread, float(u @ Sigma @ u))
    yield in_mean("products of the noise of two examples", (noise[::2] * noise[1::2]).sum(1), 0.0)
    X = torch.randn(4, 5)
    yield equals("output in evaluation", layer.eval()(X), X, tol=0.0)


noise_shape.foil("isotropic noise is best for all", best="isotropic")
noise_shape.foil("the penalty without the number of examples", n_power=0.0)
noise_shape.foil("noise whose mean is not 0 adds a cross term", mean=0.5)
