r"""How far apart laws on a finite set are.

$$\mathrm{KL}(p \| q) = \sum_x p_x \log \frac{p_x}{q_x}, \qquad
\mathrm{JS}(p_1, \dots, p_k) = \frac1k \sum_{i=1}^k \mathrm{KL}(p_i \| m), \quad
m = \frac1k \sum_{i=1}^k p_i, \qquad \mathrm{TV}(p, q) = \frac12 \sum_x |p_x - q_x|.$$

KL is infinite unless $q_x = 0$ implies $p_x = 0$; outcomes with $p_x = 0$ count nothing. JS is
symmetric, at most $\log k$, and its square root for two laws is a metric. Pinsker:
$\mathrm{KL} \ge 2\, \mathrm{TV}^2$ in nats.

KL and JS are sums of the non-negative terms of `relative_entropy`: exactly zero for two equal laws,
and for nearly equal ones as accurate as rounding of the laws allows. Their derivatives are those
along the simplex; by an entry of $p$ that is zero see there.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.foundations._finite_laws import laws, nats
from vademecum.foundations._relative_entropy import relative_entropy

__all__ = ["js_distance", "js_divergence", "kl_divergence", "total_variation"]


def kl_divergence(
    p: Float[Tensor, " ..."],
    q: Float[Tensor, " ..."],
    *,
    base: float = math.e,
    dim: int = -1,
) -> Float[Tensor, " ..."]:
    r"""The Kullback-Leibler divergence $\mathrm{KL}(p \| q) = \sum_x p_x \log(p_x / q_x)$.

    Args:
        p: The laws that average, with their outcomes along `dim`.
        q: The laws that they are compared with; the other axes broadcast.
        base: The base of the logarithm: $e$ for nats, 2 for bits.
        dim: The axis to sum over.

    Returns:
        The divergences: at least 0, and infinity where `p` is not absolutely continuous.

    Raises:
        ValueError: If `p` or `q` are no laws, or differ in outcomes, dtype or device.

    References:
        Kullback and Leibler, On information and sufficiency, Annals of Mathematical Statistics,
        1951.

    Example:
        >>> p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.5, 0.25])
        >>> kl_divergence(p, q, base=2), kl_divergence(q, p)
        (tensor(0.5000), tensor(inf))
    """
    p, q = laws(dim, p=p, q=q)
    return relative_entropy(p, q).sum(dim) / nats(base)


def js_divergence(
    p: Float[Tensor, " ..."],
    q: Float[Tensor, " ..."],
    *others: Float[Tensor, " ..."],
    base: float = math.e,
    dim: int = -1,
) -> Float[Tensor, " ..."]:
    r"""The Jensen-Shannon divergence of two or more laws: their mean KL to their mixture $m$.

    Args:
        p: Laws, with their outcomes along `dim`.
        q: Laws to compare with; the other axes broadcast.
        *others: More laws, all with equal weight.
        base: The base of the logarithm; 2 makes the largest value of two laws 1.
        dim: The axis to sum over.

    Returns:
        The divergences, between 0 and $\log k$ for $k$ laws.

    Raises:
        ValueError: If an argument is no law, or differs in outcomes, dtype or device.

    References:
        Lin, Divergence measures based on the Shannon entropy, IEEE Transactions on Information
        Theory, 1991.

    Example:
        >>> p, q = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.5, 0.5])
        >>> js_divergence(p, q, base=2)
        tensor(1.)
    """
    named = {f"others[{i}]": law for i, law in enumerate(others)}
    each = torch.stack(laws(dim, p=p, q=q, **named))
    k = len(each)
    # Not divided by k: half of the smallest number would be zero.
    terms = relative_entropy(k * each, each.sum(0)).sum(0)
    return terms.sum(dim) / (k**2 * nats(base))


def js_distance(
    p: Float[Tensor, " ..."],
    q: Float[Tensor, " ..."],
    *,
    base: float = math.e,
    dim: int = -1,
) -> Float[Tensor, " ..."]:
    r"""The Jensen-Shannon distance $\sqrt{\mathrm{JS}(p, q)}$, a metric on laws.

    SciPy's `jensenshannon`, batched and differentiable. Its derivatives at $p = q$, a kink, are
    given as 0.

    Args:
        p: Laws, with their outcomes along `dim`.
        q: Laws to compare with; the other axes broadcast.
        base: The base of the logarithm inside the root.
        dim: The axis to sum over.

    References:
        Endres and Schindelin, A new metric for probability distributions, IEEE Transactions on
        Information Theory, 2003.

    Example:
        >>> js_distance(torch.tensor([1.0, 0.0]), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), base=2)
        tensor([1., 0.])
    """
    squared = js_divergence(p, q, base=base, dim=dim)
    apart = squared > 0
    return torch.where(apart, torch.where(apart, squared, 1).sqrt(), 0)


def total_variation(
    p: Float[Tensor, " ..."], q: Float[Tensor, " ..."], *, dim: int = -1
) -> Float[Tensor, " ..."]:
    r"""The total variation $\frac12 \sum_x |p_x - q_x| = \max_A |p(A) - q(A)|$ of two laws.

    Args:
        p: Laws, with their outcomes along `dim`.
        q: Laws to compare with; the other axes broadcast.
        dim: The axis to sum over.

    Raises:
        ValueError: If `p` or `q` are no laws, or differ in outcomes, dtype or device.

    Example:
        >>> total_variation(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.25, 0.5]))
        tensor(0.5000)
    """
    p, q = laws(dim, p=p, q=q)
    return (p - q).abs().sum(dim) / 2
