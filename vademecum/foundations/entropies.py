r"""Entropy and cross-entropy of laws on a finite set.

$$H(p) = -\sum_x p_x \log p_x, \qquad H(p, q) = -\sum_x p_x \log q_x,$$

with $0 \log 0 = 0$, and $H(p, q) = \infty$ where some $q_x = 0 < p_x$. $0 \le H(p) \le \log n$, and
$H(p) \le H(p, q)$ with equality only for $q = p$. A code in which $x$ has the length $-\log_2 q_x$
spends $H(p, q)$ bits a symbol of $p$.

Sums are exact up to rounding. The derivatives are $-\log p_x - 1$ by $p_x$ for the entropy, which
is given as 0 where $p_x = 0$ (there it is infinite), and $-\log q_x$ and $-p_x / q_x$ for the
cross-entropy, with $0 / 0 = 0$.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import probabilities
from vademecum.foundations._finite_laws import laws, nats

__all__ = ["cross_entropy", "entropy"]


def entropy(
    p: Float[Tensor, " ..."], *, base: float = math.e, dim: int = -1
) -> Float[Tensor, " ..."]:
    r"""Shannon's entropy $H(p) = -\sum_x p_x \log p_x$.

    Args:
        p: Laws, with their outcomes along `dim`.
        base: The base of the logarithm: $e$ for nats, 2 for bits.
        dim: The axis to sum over.

    Returns:
        The entropies, in the shape of `p` without `dim`.

    Raises:
        ValueError: If `p` is not finite, not non-negative or does not sum to one along `dim`.

    References:
        Shannon, A mathematical theory of communication, Bell System Technical Journal, 1948.

    Example:
        >>> entropy(torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]), base=2)
        tensor([1.5000, 0.0000])
    """
    p = probabilities("p", p, dim=dim)
    surprisal = -torch.where(p > 0, p, 1).log()
    return (p * surprisal).sum(dim) / nats(base)


def cross_entropy(
    p: Float[Tensor, " ..."],
    q: Float[Tensor, " ..."],
    *,
    base: float = math.e,
    dim: int = -1,
) -> Float[Tensor, " ..."]:
    r"""The cross-entropy $H(p, q) = -\sum_x p_x \log q_x$ of a model $q$ under the truth $p$.

    For a model given by logits use `torch.nn.functional.cross_entropy`, which never leaves them.

    Args:
        p: The laws that average, with their outcomes along `dim`.
        q: The laws whose logarithm is averaged; the other axes broadcast.
        base: The base of the logarithm.
        dim: The axis to sum over.

    Returns:
        The cross-entropies: infinity where an outcome is possible under `p` and not under `q`.

    Raises:
        ValueError: If `p` or `q` are no laws, or differ in outcomes, dtype or device.

    Example:
        >>> p, q = torch.tensor([0.75, 0.25, 0.0]), torch.tensor([0.5, 0.25, 0.25])
        >>> cross_entropy(p, q, base=2), cross_entropy(q, p, base=2)
        (tensor(1.2500), tensor(inf))
    """
    p, q = laws(dim, p=p, q=q)
    q = torch.where(p + q > 0, q, 1)
    return torch.special.xlogy(p, q).sum(dim) / -nats(base)
