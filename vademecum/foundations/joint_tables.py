r"""Tables of joint probabilities: marginals, conditionals, posteriors and independence.

The variables are the axes of a table. With $X$, $Y$ and $Z$ disjoint groups of them,

$$P(x) = \sum_y P(x, y), \qquad P(y \mid x) = \frac{P(x, y)}{P(x)}, \qquad
P(y_j \mid x) = \frac{P(x \mid y_j) P(y_j)}{\sum_i P(x \mid y_i) P(y_i)},$$

and $X \perp Y \mid Z$ if $P(x, y \mid z) = P(x \mid z) P(y \mid z)$ for every $z$ with $P(z) > 0$.

Sums and quotients are exact up to rounding. Conditioning on what has probability 0 is refused.
Independence is decided up to a tolerance on the probabilities of events.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vademecum.arguments import broadcasting, floats, number, probabilities, whole

__all__ = ["bayes_posterior", "conditional", "is_independent", "marginal"]

Variables = int | Sequence[int]


def marginal(
    joint: Float[Tensor, " ..."], keep: Variables, *, batch_dims: int = 0
) -> Float[Tensor, " ..."]:
    r"""The law $P(x) = \sum_y P(x, y)$ of some variables: the others are summed out.

    Args:
        joint: Joint probabilities, an axis for each variable.
        keep: Which variables, in the order wanted.
        batch_dims: How many leading axes number tables and are no variables; those are counted
            from 0 behind them.

    Returns:
        A table with the batch axes and an axis for each variable kept.

    Raises:
        ValueError: If a table is no law, or `keep` are no distinct variables of it.

    Example:
        >>> joint = torch.tensor([[0.5, 0.25], [0.0, 0.25]])
        >>> marginal(joint, 0), marginal(joint, (1, 0))
        (tensor([0.7500, 0.2500]), tensor([[0.5000, 0.0000],
                                           [0.2500, 0.2500]]))
    """
    return _table(joint, batch_dims, keep=keep)[0]


def conditional(
    joint: Float[Tensor, " ..."], of: Variables, given: Variables, *, batch_dims: int = 0
) -> Float[Tensor, " ..."]:
    r"""The conditional law $P(y \mid x) = P(x, y) / P(x)$ for each value $x$.

    Args:
        joint: Joint probabilities, an axis for each variable.
        of: The variables $Y$ whose law is wanted; those neither here nor in `given` are summed out.
        given: The variables $X$ that are known.
        batch_dims: How many leading axes number tables and are no variables.

    Returns:
        A table with the batch axes, then those of `of`, which sum to one, then those of `given`.

    Raises:
        ValueError: If some value of `given` has probability 0: condition on the others by dropping
            it from the table, which stays a law.

    Example:
        >>> joint = torch.tensor([[0.5, 0.25], [0.0, 0.25]])
        >>> conditional(joint, 0, given=1)
        tensor([[1.0000, 0.5000],
                [0.0000, 0.5000]])
    """
    table, (size, _) = _table(joint, batch_dims, of=of, given=given)
    own = tuple(range(batch_dims, batch_dims + size))
    total = table.sum(own, keepdim=True)
    if (total == 0).any():
        place = tuple(int(i) for i in (total.squeeze(own) == 0).nonzero()[0])
        raise ValueError(f"values of given must have a probability > 0, got 0 at {place}")
    return table / total


def bayes_posterior(
    prior: Float[Tensor, " *#batch k"], likelihood: Float[Tensor, " *#batch k"]
) -> Float[Tensor, " *batch k"]:
    r"""Bayes' rule: $P(y_j \mid x) = P(x \mid y_j) P(y_j) / \sum_i P(x \mid y_i) P(y_i)$.

    Args:
        prior: The probabilities $P(y_j)$ of k hypotheses that exclude each other and exhaust all.
        likelihood: What the observation's probability, or density, is under each of them; a common
            factor does not matter. Leading axes are batches and broadcast.

    Returns:
        The posterior probabilities, which sum to one along the last axis.

    Raises:
        ValueError: If `prior` is no law, `likelihood` is negative or does not fit, or if no
            possible hypothesis allows the observation.

    Example:
        A test finds 9 of 10 patients and alarms 9 of 100 others; one in 100 is a patient.

        >>> bayes_posterior(torch.tensor([0.01, 0.99]), torch.tensor([0.9, 0.09]))  # 10 / 109
        tensor([0.0917, 0.9083])
    """
    prior = probabilities("prior", prior)
    if floats("likelihood", likelihood, width=prior.shape[-1]).is_complex():
        raise ValueError(f"likelihood must be real, got {likelihood.dtype}")
    if (likelihood.dtype, likelihood.device) != (prior.dtype, prior.device):
        raise ValueError(
            f"likelihood must be {prior.dtype} on {prior.device} like prior, got"
            f" {likelihood.dtype} on {likelihood.device}"
        )
    if (likelihood < 0).any():
        raise ValueError(f"likelihood must be >= 0, got {likelihood.min().item()}")
    broadcasting("batch shapes", {"prior": prior.shape, "likelihood": likelihood.shape})
    prior, likelihood = torch.broadcast_tensors(prior, likelihood)
    top = torch.where(prior > 0, likelihood, 0).amax(-1, keepdim=True)
    if (top == 0).any():
        place = tuple(int(i) for i in (top == 0).nonzero()[0][:-1])
        raise ValueError(f"likelihood must be > 0 where prior is, somewhere, got none at {place}")
    scaled = likelihood / top.detach()  # so that small likelihoods do not underflow,
    weights = prior * scaled.clamp(max=torch.finfo(prior.dtype).max)  # nor 0 meets infinity
    return weights / weights.sum(-1, keepdim=True)


def is_independent(
    joint: Float[Tensor, " ..."],
    first: Variables,
    second: Variables,
    given: Variables = (),
    *,
    batch_dims: int = 0,
    tol: float | None = None,
) -> Bool[Tensor, " ..."]:
    r"""Whether $X \perp Y \mid Z$: two groups of variables are independent, given a third.

    For each $z$ with $P(z) > 0$ no event may have a probability under $P(x, y \mid z)$ and one
    under $P(x \mid z) P(y \mid z)$ that differ by more than `tol`.

    Args:
        joint: Joint probabilities, an axis for each variable.
        first: The variables $X$.
        second: The variables $Y$; those that are in no group are summed out.
        given: The variables $Z$; none for plain independence.
        batch_dims: How many leading axes number tables and are no variables.
        tol: The largest difference allowed; rounding, `(n + 4) * eps` for n cells, if not given.

    Returns:
        An answer for each table of the batch.

    Raises:
        ValueError: If a table is no law, or the groups are no disjoint sets of variables.

    References:
        Dawid, Conditional independence in statistical theory, Journal of the Royal Statistical
        Society B, 1979.

    Example:
        Two fair coins, and whether they differ: independent until the third is known.

        >>> joint = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]) / 4
        >>> is_independent(joint, 0, 1), is_independent(joint, 0, 1, given=2)
        (tensor(True), tensor(False))
    """
    table, (x, y, _) = _table(joint, batch_dims, first=first, second=second, given=given)
    if tol is None:
        tol = (joint.shape[batch_dims:].numel() + 4) * torch.finfo(joint.dtype).eps
    number("tol", tol, low=0.0)
    variables = table.shape[batch_dims:]
    groups = (variables[:x].numel(), variables[x : x + y].numel(), variables[x + y :].numel())
    table = table.reshape(*table.shape[:batch_dims], *groups)
    p_z = table.sum((-3, -2), keepdim=True)
    given_z = table / torch.where(p_z > 0, p_z, 1)
    product = given_z.sum(-2, keepdim=True) * given_z.sum(-3, keepdim=True)
    total_variation = (given_z - product).abs().sum((-3, -2)) / 2
    return (total_variation <= tol).all(-1)


def _table(joint: Tensor, batch_dims: int, **groups: Variables) -> tuple[Tensor, list[int]]:
    """The law of the variables in the groups, in their order, and how many each group has."""
    b = whole("batch_dims", batch_dims, low=0)
    if floats("joint", joint).ndim <= b:
        raise ValueError(f"joint must have more than {b} axes, got shape {tuple(joint.shape)}")
    probabilities("joint", joint.flatten(b))
    n, kept, sizes = joint.ndim - b, [], []
    for name, group in groups.items():
        members = group if isinstance(group, Sequence) else (group,)
        members = [whole(name, v, low=0, high=n - 1) for v in members]
        repeated = len({*kept, *members}) < len(kept) + len(members)
        if repeated or not (members or name == "given"):
            raise ValueError(f"{name} must hold variables, each named only once, got {group}")
        kept += members
        sizes.append(len(members))
    rest = [v for v in range(n) if v not in kept]
    ordered = joint.permute(*range(b), *(b + v for v in (*kept, *rest)))
    return ordered.flatten(b + len(kept)).sum(-1) if rest else ordered, sizes
