"""Shifts of inputs, and statistics of batches: what normalisation takes for all data."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, claim, equals, integers
from vademecum.regularization.claims.batches import TINY


def one_class(x: Tensor, v: Tensor) -> int:
    """How many points lie on the side of a hyperplane where most of them do."""
    up = int((x @ v > 0).sum())
    return max(up, len(x) - up)


@claim(
    by="identity", sources=("E-188", "E-189"), budget=0.3,
    short=r"\mathrm{BN}(x + c) = \mathrm{BN}(x),\quad \mathrm{Cov}(x + c) = \mathrm{Cov}(x)",
)  # fmt: skip
def internal_covariate_shift(
    statistics: Literal["of the batch", "frozen"] = "of the batch",
    changes: Literal["mean", "covariance"] = "mean",
) -> Iterator[Evidence]:
    r"""Batch normalisation removes shifts of its input.

    It was introduced (Ioffe and Szegedy, 2015) against internal covariate shift: the drift, while
    training, of the law of what each layer receives. With the statistics of the batch
    $\mathrm{BN}(x + c) = \mathrm{BN}(x)$ for every constant vector $c$, so a threshold classifier
    behind it does not notice a shift that would push all points into one class. Such a shift
    changes means, and no covariance.

    Inputs are eighths and shifts integers, so that adding them is exact.

    Knobs:
        statistics: Whether the layer takes those of the batch, or has frozen them before the shift.
        changes: What a constant shift is said to change.
    """
    for n, d, size in ((64, 10, 1000.0), (7, 3, 16.0)):
        x, v = integers(n, d, most=40) / 8, torch.randn(d)
        v = v + 0.5 * v.sign()
        x[0], x[1] = -5.0, 5.0  # no unit is constant
        c, at = size * v.sign(), {"n": n, "d": d, "shift": size}
        layer = nn.BatchNorm1d(d, eps=TINY, momentum=None)
        before = layer(x)
        layer.train(statistics == "of the batch")
        after = layer(x + c)
        yield equals("output after the shift", after, before, tol=1e-10, **at)
        sides = (((after @ v) > 0) == ((before @ v) > 0)).sum()
        yield equals("points that keep their class", sides, n, **at)
        yield equals("points of one class without it", one_class(x + c, v), n, **at)
        moved = {
            "mean": (x + c).mean(0) - x.mean(0),
            "covariance": (x + c).T.cov() - x.T.cov(),
        }
        largest = moved[changes].abs().max() / size
        yield at_least("what a constant shift changes, over its size", largest, 0.99, **at)
        still = moved["covariance"].abs().max() / size
        yield equals("change of the covariance", still, 0.0, tol=1e-10, **at)


internal_covariate_shift.foil("statistics frozen before the shift", statistics="frozen")
internal_covariate_shift.erratum(
    "E-188",
    printed="internal covariance shift",
    right="internal covariate shift",
    why="A covariate shift is a change of the law of the inputs. The sheet's own example, a"
    " constant vector added to all of them, leaves every covariance unchanged.",
    weight="soft",
    refuted_by="what a constant shift changes, over its size",
    changes="covariance",
)


@claim(
    by="identity", sources=("B-306", "B-312"), budget=0.5,
    short=r"\mathrm{mean}_b\, \sigma_b^2 = \sigma^2 - \mathrm{Var}_b(\mu_b),"
    r"\quad \hat\mu_k = (1 - (1 - a)^k) \mu",
)  # fmt: skip
def batch_norm_statistics(
    between: float = 1.0, kept: Literal["1 - a", "a"] = "1 - a", mode: bool = False
) -> Iterator[Evidence]:
    r"""Mini-batches stand in for all data in training, and running averages at test time.

    Over a partition into equal batches the mean of the batches' means is the mean of all data, but
    the mean of their biased variances is the variance of all data *minus* the variance of the
    means. After $k$ equal batches the running mean, begun at 0, is $(1 - (1 - a)^k)\, \mu$; torch's
    running variance, begun at 1, averages the *unbiased* variance. In training the output for an
    example depends on its batch, in evaluation it does not, bit for bit: so batches may not be very
    small, and recurrent networks are a nuisance (quoted).

    Knobs:
        between: How often the variance of the means is taken off.
        kept: The share of the running mean that a step keeps.
        mode: Whether the layer is in training where examples are to be independent.
    """
    x = torch.randn(256) * (1 + torch.rand(())) + 3
    for size in (2, 8, 64):
        parts, at = x[torch.randperm(256)].view(-1, size), {"size": size}
        yield equals("mean of the means", parts.mean(1).mean(), x.mean(), tol=1e-12, **at)
        variances = parts.var(1, correction=0).mean()
        stated = x.var(correction=0) - between * parts.mean(1).var(correction=0)
        yield equals("mean of the variances", variances, stated, tol=1e-12, **at)
    for a, k in ((0.1, 1), (0.1, 7), (0.3, 20)):
        batch, layer = torch.randn(5, 3) + 2, nn.BatchNorm1d(3, momentum=a)
        for _ in range(k):
            layer(batch)
        left = ((1 - a) if kept == "1 - a" else a) ** k
        at = {"a": a, "k": k}
        assert layer.running_mean is not None
        assert layer.running_var is not None
        mean = (1 - left) * batch.mean(0)
        yield equals("running mean", layer.running_mean, mean, tol=1e-12, **at)
        var = left + (1 - left) * batch.var(0)
        yield equals("running variance", layer.running_var, var, tol=1e-12, **at)
    layer, one, others = nn.BatchNorm1d(3), torch.randn(1, 3), torch.randn(20, 7, 3)
    layer(others[0])
    both = [torch.cat([one, rest]) for rest in others]
    outputs = torch.stack([layer(batch)[0] for batch in both])
    spread = outputs.amax(0) - outputs.amin(0)
    yield at_least("spread of an example's output in training", spread.max(), 0.1)
    layer.train(mode)
    still = torch.stack([layer(batch)[0] for batch in both])
    yield equals("spread in evaluation", still.amax(0) - still.amin(0), 0.0, tol=0.0)


batch_norm_statistics.foil("the mean of the variances as that of all data", between=0.0)
batch_norm_statistics.foil("the share of the new batch kept instead", kept="a")
batch_norm_statistics.foil("independence in training", mode=True)
