r"""The Chinese restaurant process: the law of how draws of a Dirichlet process coincide.

With concentration $\alpha$, a partition of $n$ customers into tables of $n_1, \dots, n_K$ has

$$P(\pi) = \frac{\alpha^K \prod_{k=1}^K (n_k - 1)!}{\alpha (\alpha + 1) \cdots (\alpha + n - 1)}.$$

A customer who finds $i$ others sits down alone with probability $\alpha / (\alpha + i)$, and else
at the table of one of them, each as likely as another: so at a table of $n_k$ with probability
$n_k / (\alpha + i)$. The choices of all customers are drawn at once, and each follows the customers
chosen to the first of a table, in as many rounds as the logarithm of the longest such path.

Exact, in double precision. Checked by the claim `generative.chinese_restaurant_process`.

References:
    Aldous, Exchangeability and related topics, École d'été de probabilités de Saint-Flour, 1985.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.randomness import source

__all__ = ["crp_log_prob", "sample_crp"]


def crp_log_prob(
    labels: Int[Tensor, " *batch n"], alpha: float | Tensor
) -> Float[Tensor, " *batch"]:
    """The log-probability of partitions under the Chinese restaurant process, in float64.

    Args:
        labels: For each customer any integer that is that of those at the same table, and of no
            other. Several partitions along the first axes.
        alpha: The concentration, above 0; a tensor, with one for each partition or for all, may
            require gradients.

    Example:
        >>> labels = torch.tensor([[0, 0, 0], [0, 0, 1], [7, 3, 7], [1, 0, 0], [0, 1, 2]])
        >>> crp_log_prob(labels, 1.0).exp()  # of six permutations: by their cycles
        tensor([0.3333, 0.1667, 0.1667, 0.1667, 0.1667], dtype=torch.float64)
    """
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        given = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"labels must be a tensor of integers, got {given}")
    if labels.ndim == 0 or labels.shape[-1] == 0:
        raise ValueError(f"labels must have a customer, got shape {tuple(labels.shape)}")
    a = _concentration(alpha, labels)
    ordered = labels.sort(-1).values
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    table = first.cumsum(-1) - 1
    sizes = torch.zeros_like(table).scatter_add_(-1, table, torch.ones_like(table))
    inside = torch.where(sizes > 0, sizes, 1).double().lgamma().sum(-1)
    # Not lgamma(a + n) - lgamma(a), which for large a is a difference of much larger numbers.
    rising = (a[..., None] + torch.arange(labels.shape[-1], device=a.device)).log().sum(-1)
    return first.sum(-1) * a.log() + inside - rising


def sample_crp(
    n: int, alpha: float, *, draws: int | None = None, generator: torch.Generator | None = None
) -> Int[Tensor, " *draws n"]:
    """Draw partitions of n customers: the table of each, tables numbered as they are taken.

    Args:
        n: How many customers.
        alpha: The concentration, above 0.
        draws: How many partitions, along a first axis; without it one, and no such axis.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> sample_crp(4, 1e-9), sample_crp(4, 1e9)  # all together, all alone
        (tensor([0, 0, 0, 0]), tensor([0, 1, 2, 3]))
    """
    n, count = whole("n", n, low=1), whole("draws", 1 if draws is None else draws, low=1)
    alpha = number("alpha", alpha, above=0)
    where = source(generator, None)
    others = torch.arange(n, device=where["device"])
    # One uniform on [0, alpha + i): below i its integer part is somebody, above it nobody.
    u = torch.rand(count, n, dtype=torch.float64, **where) * (others + alpha)
    follows = torch.where(u < others, u.long(), others)
    while True:
        further = follows.gather(1, follows)
        if further.equal(follows):
            break
        follows = further
    taken = (follows == others).cumsum(1) - 1
    tables = taken.gather(1, follows)
    return tables[0] if draws is None else tables


def _concentration(alpha: Any, labels: Tensor) -> Tensor:
    if not isinstance(alpha, Tensor):
        number("alpha", alpha, above=0)
    a = torch.as_tensor(alpha, dtype=torch.float64, device=labels.device)
    if not (a > 0).all() or not a.isfinite().all():
        raise ValueError(f"alpha must be finite and > 0, got {a.detach().min().item()}")
    if a.numel() > 1 and a.shape != labels.shape[:-1]:
        raise ValueError(
            f"alpha must be one number, or one for each of {tuple(labels.shape[:-1])} partitions,"
            f" got shape {tuple(a.shape)}"
        )
    return a if a.numel() > 1 else a.reshape(())
