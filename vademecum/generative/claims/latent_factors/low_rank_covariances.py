"""Covariances of few factors plus noise: their best fit, and the gradient of their loadings."""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.distributions import MultivariateNormal

from vademecum.claims import Evidence, at_least, claim, complex_step, equals, with_eigenvalues
from vademecum.generative import ProbabilisticPCA
from vademecum.generative.claims._planted_factors import drawn, fitted, likelihood, with_covariance


@claim(
    by="identity",
    sources=("E-245",),
    budget=0.6,
    full={"starts": 20},
    short=r"A = W W^\top + \sigma^2 I:\; \arg\max_A = \text{leading } m \text{ eigenpairs of } S"
    r" \text{, others averaged}",
)
def constrained_covariance_mle(
    answer: Literal["averaged", "empirical", "cut"] = "averaged", starts: int = 3
):
    r"""A covariance of few factors plus noise is fitted by another than the sample's.

    If $A$ is restricted to $W W^\top + \Sigma$ with fewer factors than needed, the most likely $A$
    differs from $S$ in general. With $\Sigma = \sigma^2 I$ it keeps the $m$ leading eigenpairs of
    $S$ and replaces every other eigenvalue by their average; it equals $S$ only if these are equal.
    With a diagonal $\Sigma$ it equals $S$ if $S$ has that form, and for generic $S$ it does not as
    soon as $n m + n - \frac{m (m - 1)}2 < \frac{n (n + 1)}2$.

    *Checked* for `ProbabilisticPCA` against BFGS from several starts on the likelihood of
    $(W, \sigma^2)$: for $S = \mathrm{diag}(5, 2, 1)$ and one factor the maximiser is
    $\mathrm{diag}(5, 1.5, 1.5)$, where $\log \det A + \mathrm{Tr}(S A^{-1})$ is 5.4204; it is
    5.3026 at $S$, out of reach. Then for random $S$ with equal and with different eigenvalues. For
    `FactorAnalysis`: an $S$ of one factor is met, one of three pairs is not by two factors.

    Knobs:
        answer: What is called the most likely covariance of the restricted form.
        starts: From how many starts BFGS looks for it.
    """
    flat = torch.tensor([4.0, 0.7, 0.7, 0.7])
    cases = [(torch.tensor([5.0, 2.0, 1.0]).diag(), 1), (with_eigenvalues(flat), 1)]
    cases += [(with_eigenvalues(0.2 + 0.6 * torch.arange(5) + 0.4 * torch.rand(5)), 2)]
    for S, m in cases:
        d = len(S)
        A = called(answer, S, m)
        best = by_search(S, m, starts)
        at = {"n": d, "m": m}
        yield equals("entries of the most likely covariance", A, best, tol=1e-4, **at)
        value, least = (-2 * float(likelihood(S, C)) - d * math.log(2 * math.pi) for C in (A, best))
        yield equals("log det A + Tr(S A^-1) and the least by search", value, least, **at)
        low = torch.linalg.eigvalsh(A)[: d - m]
        yield equals("eigenvalues that are not kept, and the first", low, low[0], **at)
    yield from by_factors()


def called(answer: str, S: Tensor, m: int) -> Tensor:
    """What is called the most likely covariance with m factors."""
    values, vectors = torch.linalg.eigh(S)
    rest = {"averaged": 0.0, "empirical": values[:-m], "cut": values[-m - 1]}[answer]
    if answer == "averaged":
        return ProbabilisticPCA(m).fit(with_covariance(S)).get_covariance()
    values[:-m] = rest
    return (vectors * values) @ vectors.T


def by_search(S: Tensor, m: int, starts: int) -> Tensor:
    """The best covariance with m factors and equal noise that BFGS finds, with autograd."""
    d = len(S)

    def covariance(theta: Tensor) -> Tensor:
        W = theta[:-1].view(d, m)
        return W @ W.T + theta[-1].exp() * torch.eye(d)

    def minus(v: np.ndarray) -> tuple[float, np.ndarray]:
        theta = torch.from_numpy(v).requires_grad_()
        value = -likelihood(S, covariance(theta))
        (gradient,) = torch.autograd.grad(value, theta)
        return value.item(), gradient.numpy()

    found = [
        minimize(minus, torch.randn(d * m + 1).numpy(), jac=True, options={"gtol": 1e-8})
        for _ in range(starts)
    ]
    best = min(found, key=lambda end: end.fun)
    return covariance(torch.from_numpy(best.x))


def by_factors() -> Iterator[Evidence]:
    """With a noise variance for each feature: equal to S if it has the form, else not."""
    W = 0.5 + torch.rand(4, 1)
    S = W @ W.T + torch.diag(0.5 + torch.rand(4))
    A = fitted(with_covariance(S), 1).get_covariance()
    yield equals("covariance fitted to one of a factor", A, S, tol=1e-4, n=4, m=1)
    S = torch.eye(6) + 0.3 * torch.eye(6).roll(3, 0)  # three pairs, and factors for two
    A = fitted(with_covariance(S), 2).get_covariance()
    yield at_least("distance to S where factors are too few", (A - S).abs().max(), 0.1, n=6, m=2)


constrained_covariance_mle.foil("the next eigenvalue in the place of the average", answer="cut")
constrained_covariance_mle.erratum(
    "E-245",
    printed=r"we know that $\mathbf A$ is just the empirical covariance matrix",
    right=r"$A$ keeps $m$ eigenpairs of $S$ and averages the other eigenvalues",
    why=r"The derivation of $A = S$ ignores the constraint $A = W W^\top + \Sigma$. For $S ="
    r" \mathrm{diag}(5, 2, 1)$, one factor and equal noise, the case that the sheet goes on to"
    r" solve, the maximiser is $\mathrm{diag}(5, 1.5, 1.5)$ and not $S$, whose smaller eigenvalues"
    " 2 and 1 differ.",
    weight="hard",
    refuted_by="entries of the most likely covariance",
    answer="empirical",
)


@claim(
    by="identity",
    sources=("E-246", "E-247"),
    budget=0.3,
    short=r"A = W W^\top + \Sigma,\; G = \nabla_A f:\quad \nabla_W f = 2 G W, \;"
    r" \nabla_\Sigma f = G",
)
def loading_gradient(factor: float = 2.0, literal: bool = False):
    r"""The chain rule through loadings and noise.

    For a scalar $f(A)$ with symmetric gradient $G = \nabla_A f$ and $A = W W^\top + \Sigma$,
    $\nabla_W f = 2 G W$ and $\nabla_\Sigma f = G$, its diagonal where $\Sigma$ is diagonal. For the
    Gaussian negative log-likelihood of a sample $G = \frac12 (A^{-1} - A^{-1} S A^{-1})$.

    *Proof.* $df = \langle G, dW\, W^\top + W\, dW^\top \rangle = 2 \langle G W, dW \rangle$.
    *Checked* by the complex step for the likelihood and for $f = \mathrm{Tr}(A^3) / 3$; that in $W$
    also by autograd through torch's log-density. The derivative of $A$ itself has $n^3 m$ entries,
    $\delta_{ik} W_{jl} + \delta_{jk} W_{il}$.

    Knobs:
        factor: The 2 before $G W$.
        literal: Whether the derivative of $A$ in $W$ is read as a matrix like $W$.
    """
    for n, m in ((5, 2), (4, 3)):
        W, noise, _ = drawn(n, m)
        S, Sigma = with_eigenvalues(0.2 + 3 * torch.rand(n)), noise.diag()
        A = W @ W.T + Sigma
        inverse = torch.linalg.inv(A)
        gradients = {"likelihood": (inverse - inverse @ S @ inverse) / 2, "cube": A @ A}
        at = {"n": n, "m": m}
        for name, G in gradients.items():
            f = (lambda A, S=S: -likelihood(S, A)) if name == "likelihood" else _cube
            found = complex_step(lambda V, f=f, Sigma=Sigma: f(V @ V.T + Sigma), W)
            yield equals(f"gradient of the {name} in W", found, factor * G @ W, **at)
            found = complex_step(lambda C, f=f, W=W: f((W @ W.T).to(C.dtype) + C), Sigma)
            yield equals(f"gradient of the {name} in Sigma", found, G, **at)
            found = complex_step(lambda v, f=f, W=W: f((W @ W.T).to(v.dtype) + v.diag()), noise)
            yield equals(f"gradient of the {name} in the noise", found, G.diagonal(), **at)
        x, V = with_covariance(S), W.clone().requires_grad_()
        density = MultivariateNormal(torch.zeros(n), V @ V.T + Sigma).log_prob(x).mean()
        (found,) = torch.autograd.grad(-density, V)
        yield equals("gradient by autograd", found, factor * gradients["likelihood"] @ W, **at)
        tensor = complex_step(lambda V: V @ V.T, W)
        entries = n * m if literal else n**3 * m
        yield equals("entries of the derivative of A in W", tensor.numel(), entries, **at)
        eye = torch.eye(n)
        wanted = torch.einsum("ik,jl->ijkl", eye, W) + torch.einsum("jk,il->ijkl", eye, W)
        yield equals("derivative of A in W", tensor, wanted, **at)


def _cube(A: Tensor) -> Tensor:
    return (A @ A @ A).diagonal().sum() / 3


loading_gradient.foil("W counted once", factor=1.0)
loading_gradient.erratum(
    "E-246",
    printed=r"$\nabla_{\mathbf W}\mathbf A=2\mathbf W$",
    right=r"$\nabla_W f = 2 G W$ for $f$ with the symmetric gradient $G$",
    why=r"Abuse of notation: $\partial A_{ij} / \partial W_{kl} = \delta_{ik} W_{jl} + \delta_{jk}"
    r" W_{il}$ is a tensor of four axes; only its contraction with a symmetric $G$ gives $2 G W$.",
    weight="soft",
    refuted_by="entries of the derivative of A in W",
    literal=True,
)
