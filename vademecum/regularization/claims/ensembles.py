"""Averages of predictors: the ambiguity decomposition, and bagging."""

import math
from fractions import Fraction
from itertools import permutations, product
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals, in_mean
from vademecum.regularization import Bagging, ensemble_average

Rows = list[list[float]]


def from_pairs(f: Rows, w: list[float], factor: float) -> float:
    """Half the weighted squared distances of all pairs of members."""
    K = range(len(f))
    return factor * math.fsum(w[a] * w[b] * math.dist(f[a], f[b]) ** 2 for a in K for b in K)


@claim(
    by="identity",
    sources=("A-142", "B-339"),
    budget=0.4,
    short=r"(\bar f - y)^2 = \sum_k w_k (f_k - y)^2 - \sum_k w_k (f_k - \bar f)^2",
)
def ensemble_averaging(than: Literal["mean", "best"] = "mean", pairs: float = 0.5):
    r"""Averaging predictors never hurts on average.

    For predictors $f_k$ with weights $w_k \ge 0$, $\sum_k w_k = 1$, the squared error of the mean
    $\bar f$ is the mean of the members' errors minus their variance (ambiguity),
    $\|\bar f - y\|^2 = \sum_k w_k \|f_k - y\|^2 - \sum_k w_k \|f_k - \bar f\|^2$, and the log-loss
    of averaged probabilities is at most the mean log-loss. So the ensemble is at least as good as
    its average member, at $K$ times the cost (quoted); it need not beat its best member.

    Expand the square around $\bar f$, and take Jensen's inequality for $-\log$. The ambiguity is
    computed anew as $\frac12 \sum_{kl} w_k w_l \|f_k - f_l\|^2$; errors are sums of their terms.

    Knobs:
        than: Which member the ensemble is compared with.
        pairs: The factor before the sum over pairs of members.
    """
    best = than == "best"
    for K, n, d in ((2, 5, 1), (3, 4, 3), (10, 2, 2)):
        members, y = torch.randn(K, n, d), torch.randn(n, d)
        weights = torch.rand(K) + 0.1
        w, at = (weights / weights.sum()).tolist(), {"members": K, "width": d}
        found = ensemble_average(members, y, weights=torch.tensor(w))
        assert found.error is not None
        assert found.mean_error is not None
        assert found.ambiguity is not None
        for i in range(n):
            f, goal = members[:, i].tolist(), y[i].tolist()
            mean = [math.fsum(a * g[j] for a, g in zip(w, f, strict=True)) for j in range(d)]
            own = math.fsum(a * math.dist(g, goal) ** 2 for a, g in zip(w, f, strict=True))
            apart = from_pairs(f, w, pairs)
            error = math.dist(mean, goal) ** 2
            yield equals("average", found.mean[i], mean, tol=1e-13, **at)
            yield equals("error of the average", found.error[i], error, tol=1e-12, **at)
            yield equals("mean error less ambiguity", own - apart, error, tol=1e-12, **at)
            yield equals("ambiguity", found.ambiguity[i], apart, tol=1e-12, **at)
            yield equals("mean error", found.mean_error[i], own, tol=1e-12, **at)
        yield at_most("error against the mean member", found.error, found.mean_error, **at)
        yield from of_probabilities(torch.randn(K, n, d + 1).softmax(2), w)
    two = torch.tensor([[0.0], [1.0]])
    error = ensemble_average(two, torch.tensor([0.0])).error
    yield equals("error of the average of 0 and 1 at 0", error, 0.25, tol=1e-15)
    member = two.square().amin() if best else two.square().mean()
    yield at_most("average of 0 and 1 against a member", error, member)
    alike = ensemble_average(two[1:].expand(4, 1), torch.tensor([3.0]))
    yield equals("error of equal members", alike.error, alike.mean_error, tol=1e-15)


def of_probabilities(p: Tensor, w: list[float]):
    """The log-loss of averaged probabilities against the mean log-loss."""
    K, n, k = p.shape
    y = torch.randint(k, (n,))
    found = ensemble_average(p, y, weights=torch.tensor(w))
    right = [p[:, i, y[i]].tolist() for i in range(n)]
    loss = [-math.log(math.fsum(a * q for a, q in zip(w, row, strict=True))) for row in right]
    own = [-math.fsum(a * math.log(q) for a, q in zip(w, row, strict=True)) for row in right]
    means = torch.tensor(own)
    yield equals("log-loss of the average", found.error, loss, tol=1e-12, members=K)
    yield equals("mean log-loss", found.mean_error, means, tol=1e-12, members=K)
    yield at_most("log-loss against the mean log-loss", found.error, means, members=K)
    gain = means - torch.tensor(loss)
    yield equals("gain in log-loss", found.ambiguity, gain, tol=1e-12, members=K)
    yield at_least("gain in log-loss", found.ambiguity, 0.0, tol=1e-15, members=K)
    yield equals("averaged probabilities together", found.mean.sum(1), 1.0, tol=1e-14, members=K)


ensemble_averaging.foil("the ensemble beats its best member", than="best",
                        refuted_by="average of 0 and 1 against a member")  # fmt: skip
ensemble_averaging.foil("every pair of members counted twice", pairs=1.0)


def inclusion(n: int, replace: bool) -> Fraction:
    """The share of all samples of n points that contain the first one."""
    samples = list(product(range(n), repeat=n) if replace else permutations(range(n)))
    return Fraction(sum(0 in sample for sample in samples), len(samples))


def variance_of_mean(K: int, a: float, b: float) -> float:
    """That of the mean of K predictors a z + b e_k, all z and e_k being 1 or -1 at random."""
    means = [a * z + b * sum(e) / K for z, *e in product((-1, 1), repeat=K + 1)]
    return math.fsum(m * m for m in means) / len(means)


@claim(
    by="sampling",
    sources=("B-337",),
    budget=0.8,
    short=r"p(y|x) = \tfrac1K \sum_k p(y|x;\theta^k),\ P(i \in \text{sample}) = 1-(1-\tfrac1n)^n",
)
def bagging(
    replace: bool = True,
    correlated: bool = True,
    averaged: Literal["probabilities", "logits"] = "probabilities",
):
    r"""Bagging averages models that are trained on bootstrap samples.

    $K$ samples of size $n$ are drawn with replacement, one model is trained on each, and the
    predicted probabilities are averaged, $p(y \mid x) = \frac1K \sum_k p(y \mid x; \theta^k)$. A
    sample contains a given point with probability $1 - (1 - \frac1n)^n \to 1 - 1/e$. The average of
    $K$ predictors of variance $s^2$ and equal correlations $\rho$ has the variance
    $\rho s^2 + \frac{1 - \rho}{K} s^2$.

    The inclusion probability is counted over all $n^n$ samples for $n \le 5$ (quoted beyond), and
    the samples of `Bagging` hold as many distinct points on average, within five standard errors.
    The variance is that of $a z + b e_k$ over all signs $z, e_k$, with $s^2 = a^2 + b^2$ and
    $\rho s^2 = a^2$ (so for $\rho \ge 0$). Probabilities, also out of bag, are those that the
    members give one by one.

    Knobs:
        replace: Whether samples are drawn with replacement.
        correlated: Whether the formula knows of the correlation.
        averaged: What is averaged.
    """
    for n in (2, 3, 5):
        chance = 1 - (1 - Fraction(1, n)) ** n
        yield equals("chance that a point is in a sample", float(inclusion(n, replace)),
                     float(chance), tol=1e-15, n=n)  # fmt: skip
    yield equals("chance for large n", -math.expm1(10**6 * math.log1p(-1e-6)), 1 - 1 / math.e,
                 tol=1e-6)  # fmt: skip
    for K, a, b in ((2, 1.0, 0.5), (5, 0.7, 2.0), (3, 0.0, 1.5)):
        s, rho = a * a + b * b, a * a / (a * a + b * b) if correlated else 0.0
        formula = rho * s + (1 - rho) / K * s
        yield equals("variance of the average", variance_of_mean(K, a, b), formula, tol=1e-13, K=K,
                     rho=a * a / s)  # fmt: skip
    n, d = 30, 2
    x, y = torch.randn(n, d), torch.arange(n) % 3
    seed = int(torch.randint(2**31 - 1, ()))
    model = Bagging(nn.Linear, members=60, epochs=1, learning_rate=0.5, random_state=seed)
    model.fit(x, y)
    rows = model.estimators_samples_
    rows = rows if replace else torch.rand(rows.shape).argsort(1)
    distinct = torch.tensor([len(set(row)) for row in rows.tolist()]) / n
    yield in_mean("share of distinct points in a sample", distinct, 1 - (1 - 1 / n) ** n)
    logits = torch.stack([member(x) for member in model.estimators_]).detach()
    by_hand = logits.mean(0).softmax(1) if averaged == "logits" else logits.softmax(2).mean(0)
    yield equals("probabilities", model.predict_proba(x), by_hand, tol=1e-12)
    for i in range(n):
        others = [k for k in range(60) if i not in model.estimators_samples_[k].tolist()]
        mean = logits[others, i].softmax(1).mean(0)
        yield equals("probabilities out of bag", model.oob_prediction_[i], mean, tol=1e-12)


bagging.foil("samples drawn without replacement", replace=False)
bagging.foil("predictors taken for independent", correlated=False,
             refuted_by="variance of the average")  # fmt: skip
bagging.foil("logits averaged", averaged="logits", refuted_by="probabilities")
