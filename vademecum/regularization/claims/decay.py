"""Penalties and weight decay: what they add to the gradient, and what steps make of them."""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, complex_step, equals, integers
from vademecum.linear import RidgeRegression


def log_loss(w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """The mean logistic loss, for complex weights as well."""
    return (1 + torch.exp(-y * (X.to(w) @ w))).log().mean()


def gradient(f, w: Tensor) -> Tensor:
    """By autograd."""
    return torch.as_tensor(torch.autograd.functional.jacobian(f, w))


@claim(
    by="identity",
    sources=("A-139", "A-140", "A-141", "A-143", "B-319", "B-320"),
    budget=0.4,
    short=r"\bar E(\theta) = E(\theta) + \mu\, \Omega(\theta),\quad"
    r" \nabla \bar E = \nabla E + \mu \nabla \Omega,\quad \mu \ge 0",
)
def regularized_objective(
    training: Literal["rises", "falls"] = "rises", share: float = 1.0, slope: float = -2.0
):
    r"""Regularised objective and the purpose of regularisation.

    Regularisation is whatever changes learning so that the generalisation error falls, not the
    training error: knowledge of the problem, a preference for simple hypotheses, averages over
    models. The penalised objective is $\bar E(\theta) = E(\theta) + \mu\, \Omega(\theta)$ with
    $\mu \ge 0$, and its gradient $\nabla E + \mu \nabla \Omega$. The training error of its minimum
    never falls with $\mu$. For ridge regression, $\frac12 \|X w - y\|^2 + \frac\mu2 \|w\|^2$ with
    noise of variance $\sigma^2$ and a design of full rank, the expected error $\mathbb E \|w_\mu -
    w\|^2 = \sum_i (\theta_i^2 \mu^2 + \sigma^2 \lambda_i) / (\lambda_i + \mu)^2$ falls at first,
    with the slope $-2 \sigma^2 \sum_i \lambda_i^{-2}$ at $\mu = 0$.

    *Proof.* If $\mu < \mu'$ have the minima $\theta, \theta'$, adding $\bar E_\mu(\theta) \le
    \bar E_\mu(\theta')$ and $\bar E_{\mu'}(\theta') \le \bar E_{\mu'}(\theta)$ gives
    $\Omega(\theta') \le \Omega(\theta)$, and then the first $E(\theta) \le E(\theta')$. Checked for
    `RidgeRegression` on two designs; the gradient for a logistic loss with $\sum w^2 / 2$ and
    $\sum w^4 / 4$.

    Knobs:
        training: Where the training error is said to go as the penalty grows.
        share: The power of $\mu$ before the gradient of the penalty.
        slope: The factor of $\sigma^2 \sum_i \lambda_i^{-2}$ in the slope of the expected error.
    """
    sigma = 0.7
    for n, d in ((12, 4), (20, 7)):
        X, w = torch.randn(n, d), torch.randn(d)
        y = X @ w + sigma * torch.randn(n)
        errors = [(X @ torch.linalg.lstsq(X, y[:, None]).solution[:, 0] - y).square().sum()]
        for mu in torch.logspace(-3, 2, 8).tolist():
            fit = RidgeRegression(alphas=mu, fit_intercept=False).fit(X, y)
            errors.append((X @ fit.coef_ - y).square().sum())
        rise = torch.stack(errors).diff() * (1 if training == "rises" else -1)
        yield at_least("rise of the training error with the penalty", rise, 0.0, tol=1e-12, d=d)

        def risk(mu: Tensor, X=X, w=w, d=d) -> Tensor:
            X = X.to(mu)
            M = torch.linalg.solve(X.T @ X + mu * torch.eye(d).to(mu), X.T)
            bias = M @ (X @ w.to(mu)) - w
            return (bias * bias).sum() + sigma**2 * (M * M).sum()

        lam, Q = torch.linalg.eigh(X.T @ X)
        for mu in (0.0, 0.4, 3.0):
            formula = ((Q.T @ w * mu) ** 2 + sigma**2 * lam) / (lam + mu) ** 2
            yield equals("expected error", risk(torch.tensor(mu)), formula.sum(), d=d, mu=mu)
        found = complex_step(risk, torch.tensor(0.0), 1.0) / (sigma**2 * (lam**-2).sum())
        yield equals("slope of the expected error at 0, in its unit", found, slope, tol=1e-8, d=d)
        better = risk(sigma**2 / (Q.T @ w).square().max()) / risk(torch.tensor(0.0))
        yield at_most("expected error with a penalty over that without", better, 1.0, tol=0.0, d=d)
    X, w, y = torch.randn(9, 3), 0.5 + torch.rand(3), torch.randn(9).sign()
    for power, mu in ((2, 0.3), (4, 0.05)):
        whole = complex_step(lambda v, p=power, mu=mu: log_loss(v, X, y) + mu * (v**p).sum() / p, w)
        own = gradient(lambda v: log_loss(v, X, y), w)
        penalty = gradient(lambda v, p=power: (v**p).sum() / p, w)
        yield equals("gradient of the sum", whole, own + mu**share * penalty, mu=mu, power=power)


regularized_objective.foil("the penalty lowers the training error, too", training="falls")
regularized_objective.foil(r"the gradient without the factor $\mu$", share=0.0)
regularized_objective.foil("the expected error rises from the start", slope=2.0)


def half_squares(layers: list[tuple[Tensor, Tensor]], *, biases: bool) -> Tensor:
    """Half the squares of all weights, or of all parameters."""
    parts = [(t * t).sum() for W, b in layers for t in ((W, b) if biases else (W,))]
    return torch.stack(parts).sum() / 2


@claim(
    by="identity",
    sources=("A-144", "A-145", "B-321", "B-322", "C-212"),
    budget=0.3,
    short=r"\Omega = \tfrac12 \sum_l \|W^l\|_F^2,\quad"
    r" \nabla_{W^l} (\mu\, \Omega) = \mu W^l,\quad \nabla_{b^l} (\mu\, \Omega) = 0",
)
def l2_penalty(biases: bool = False, power: float = 1.0):
    r"""L2 penalty on the weights and its gradient.

    $\Omega(\theta) = \frac12 \sum_l \|W^l\|_F^2$, or with a strength $\mu^l \ge 0$ for each layer,
    penalises the weights; biases are usually left out, so that it is half the squared norm of the
    weights and not of the whole vector of parameters. On what is penalised $\nabla \Omega =
    \theta$, hence $\nabla (\mu\, \Omega) = \mu\, \theta$.

    Checked on whole numbers, against a sum over all entries in integers and by the complex step;
    and for `torch.optim.SGD`, whose groups of parameters each have a `weight_decay`: without other
    gradient a step of size $\eta$ takes $\eta\, \mu^l W^l$ from the weights, and leaves biases.

    Knobs:
        biases: Whether biases count.
        power: The power of $\mu$ in the gradient of $\mu\, \Omega$.
    """
    empty = [(torch.zeros(1, 1), torch.ones(1))]
    found = half_squares(empty, biases=biases)
    yield equals("penalty of the weight 0 and the bias 1", found, 0.0, tol=0.0)
    one = complex_step(
        lambda W: 0.1 * half_squares([(W, torch.zeros(1))], biases=biases), torch.ones(1, 1)
    )
    yield equals("gradient of the penalty at the weight 1", one, 0.1**power, mu=0.1)
    sizes = (3, 4, 2)
    layers = [(integers(k, d), 1 + integers(k).abs()) for d, k in pairwise(sizes)]
    total = sum(int(v) ** 2 for W, _ in layers for row in W.tolist() for v in row)
    value = half_squares(layers, biases=biases)
    yield equals("penalty of two layers", value, total / 2, tol=0.0)
    moved = half_squares([(W, b + 1) for W, b in layers], biases=biases)
    yield equals("penalty after the biases have moved", moved, total / 2, tol=0.0)
    strengths, eta = (0.1, 0.7), 0.5
    params = [[nn.Parameter(t.clone()) for t in layer] for layer in layers]
    groups = [
        {"params": [W], "weight_decay": mu} for (W, _), mu in zip(params, strengths, strict=True)
    ]
    rest = {"params": [b for _, b in params], "weight_decay": strengths[0] if biases else 0.0}
    optimizer = torch.optim.SGD([*groups, rest], lr=eta)
    for p in (p for pair in params for p in pair):
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for l, ((W, b), mu) in enumerate(zip(layers, strengths, strict=True)):
        m, theta = W.numel(), torch.cat([W.flatten(), b])

        def strength(v: Tensor, mu=mu, m=m) -> Tensor:
            return mu * half_squares([(v[:m], v[m:])], biases=biases)

        slope, of_biases = complex_step(strength, theta).split([m, len(b)])
        wanted = mu**power * W.flatten()
        yield equals("gradient of the penalty in the weights", slope, wanted, l=l, mu=mu)
        yield equals("gradient of the penalty in the biases", of_biases, 0.0, tol=0.0, l=l)
        step = W - params[l][0].detach()
        yield equals("step of SGD without other gradient", step, eta * mu**power * W, l=l, mu=mu)
        yield equals("biases after that step", params[l][1].detach(), b, tol=0.0, l=l)


l2_penalty.foil(
    "half the squared norm of all parameters",
    refuted_by="penalty after the biases have moved",
    biases=True,
)
l2_penalty.erratum(
    "A-144",
    printed=r"$\Omega(\theta) = \frac12 \sum_l \|W^l\|_F^2 = \frac12 \sum_i \theta_i^2$ (no bias"
    r" reg.) for $\theta = vec(W^1, \dots, W^L, b^1, \dots, b^L)$",
    right=r"$\frac12 \sum_i \theta_i^2$ over the weights among the $\theta_i$ only",
    why=r"The vector as defined contains the biases, so the two expressions differ: $W = 0$, $b ="
    r" 1$ gives 0 and $\frac12$.",
    weight="soft",
    refuted_by="penalty of the weight 0 and the bias 1",
    biases=True,
)
l2_penalty.erratum(
    "A-145",
    printed=r"$\nabla_\theta \Omega(\theta) = \mu \theta$ (the scan has the letter u)",
    right=r"$\nabla_\theta \Omega(\theta) = \theta$, so that $\nabla (\mu\, \Omega) = \mu \theta$",
    why=r"$\mu$ stands outside $\Omega$ in the objective, so the printed gradient in $\mu \nabla"
    r" \Omega$ gives a decay of $\mu^2$: 0.01 instead of 0.1 at $\mu = 0.1$, $\theta = 1$.",
    weight="hard",
    refuted_by="gradient of the penalty at the weight 1",
    power=2.0,
)
