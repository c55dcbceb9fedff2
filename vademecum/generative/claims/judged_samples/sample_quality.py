"""Scores of samples that never look at data: what they reward, and what they miss."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import scipy.stats
import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.generative import frechet_distance as frechet
from vademecum.generative import inception_score as score_of


def tables() -> Iterator[tuple[str, np.ndarray]]:
    """Random laws of classes given samples, of several sizes, some of them sure."""
    for n, k in ((7, 3), (4, 10), (40, 5)):
        p = (2 * torch.randn(n, k)).softmax(1)
        p[0] = torch.eye(k)[0]
        yield f"{n} x {k}", p.numpy()


@claim(
    by="identity",
    sources=("A-403",),
    budget=0.3,
    short=r"\mathrm{IS} = \exp E_x \mathrm{KL}(p(y|x) \,\|\, p(y)) = e^{H(Y) - H(Y|X)},\quad"
    r" 1 \le \mathrm{IS} \le K",
)
def inception_score(
    mean: Literal["of divergences", "of exponentials"] = "of divergences", reverse: bool = False
):
    r"""Inception score.

    $\mathrm{IS} = \exp \big(\mathbb E_{x \sim p_\theta} \mathrm{KL}(p(y \mid x) \,\|\, p(y))\big)$
    with classifier posteriors $p(y \mid x)$ (InceptionV3) and $p(y) = \mathbb E_{x \sim p_\theta}
    p(y \mid x)$; it is the exponential of the mutual information between sample and label and lies
    between 1 and the number $K$ of classes.

    *Checked* for `inception_score` with tables of probabilities and of logits, and with a module:
    against SciPy's divergences row by row and entropies, and both ends of the range are attained,
    by equal rows and by as many sure rows for each class.

    Knobs:
        mean: What is averaged, the divergences or their exponentials.
        reverse: Whether the divergence is that of $p(y)$ from $p(y \mid x)$.
    """
    for size, p in tables():
        q, k = p.mean(0), p.shape[1]
        gaps = [scipy.stats.entropy(*((q, row + 1e-12) if reverse else (row, q))) for row in p]
        formula = np.exp(np.mean(gaps)) if mean == "of divergences" else np.mean(np.exp(gaps))
        found = score_of(torch.from_numpy(p), given="probabilities", splits=1).value
        yield equals("score", found, formula, tol=1e-12, table=size)
        information = scipy.stats.entropy(q) - np.mean(scipy.stats.entropy(p, axis=1))
        yield equals("its logarithm, and H(Y) - H(Y|X)", np.log(found), information, table=size)
        yield at_least("score", found, 1.0, tol=0.0, table=size)
        yield at_most("score", found, float(k), tol=0.0, table=size)
        shift = torch.randn(len(p), 1)  # logits are known up to a constant for each sample
        logits = torch.from_numpy(p).log().clamp(min=-800) + shift
        net = nn.Sequential(nn.Dropout(), nn.Identity())
        by_net = score_of(logits, features=net, splits=2).value
        yield equals("score by a module's logits", by_net, formula, tol=1e-12, table=size)
    for n, k in ((6, 3), (8, 4)):
        same = torch.rand(1, k).softmax(1).expand(n, k)
        sure = torch.eye(k).repeat(n // k, 1)[torch.randperm(n)]
        for name, rows, value in (("equal rows", same, 1.0), ("sure rows", sure, float(k))):
            found = score_of(rows, given="probabilities", splits=1).value
            yield equals(f"score of {name}", found, value, tol=1e-12, k=k)


inception_score.foil("the mean of the exponentials", refuted_by="score", mean="of exponentials")
inception_score.foil("the divergence turned round", refuted_by="score", reverse=True)


def blurred(k: int, n: int, share: float) -> Tensor:
    """As many sure rows for each of k classes, n in all, mixed with the uniform law."""
    return (1 - share) * torch.eye(k).repeat(n // k, 1) + share / k


def counted(counts: list[int]) -> Tensor:
    """Sure rows, so many for each class."""
    return torch.eye(len(counts)).repeat_interleave(torch.tensor(counts), 0)


@claim(
    by="identity",
    sources=("A-404",),
    budget=0.3,
    short=r"\text{one sure image a class: } \mathrm{IS} = K;\quad"
    r" \text{collapse inside classes is invisible}",
)
def inception_score_blind_spots(seen_by: Literal["frechet", "score"] = "frechet", n: int = 300):
    r"""What the inception score rewards and misses.

    The score rewards confident conditionals (no unrecognisable samples) and a spread label marginal
    (no collapse over classes), but it never looks at the data: one repeated confident image per
    class already attains the maximum $K$, so collapse inside a class is invisible.

    *Checked* for `inception_score` and a nearest-mean classifier of features: a generator that
    repeats one image per class and one that is diverse both score $K$, for $K = 3$ and $4$;
    posteriors that are mixed with the uniform law, $\lambda$ of it, score $\exp(\log K -
    H_\lambda)$, and classes in the shares $w$ score $e^{H(w)}$, both less step by step. The Frechet
    distance to data tells the two generators apart: two features vary within classes alone, with
    variance 1, which the collapsed one lacks, so that by projection on these it is farther by about
    2 (the variances of 300 examples are at least 0.6 but with probability $10^{-8}$, and the
    diverse one's distance is below 0.2, observed).

    Knobs:
        seen_by: The measure that is said to see the collapse inside classes.
        n: How many examples the data and each generator have, a multiple of 12.
    """
    for k in (3, 4):
        means = torch.cat([10 * torch.eye(k), torch.zeros(k, 2)], 1)
        centres = means.repeat(n // k, 1)
        data, diverse = (centres + torch.randn(n, k + 2) for _ in range(2))
        scores, distances = [], []
        for name, made in (("collapsed", centres), ("diverse", diverse)):
            nearest = torch.cdist(made, means).argmin(1)
            scores.append(score_of(torch.eye(k)[nearest], given="probabilities").value)
            distances.append(frechet(made, data).value)
            yield equals("score of a generator", scores[-1], float(k), tol=1e-12, k=k, kind=name)
        gap = distances[0] - distances[1] if seen_by == "frechet" else scores[1] - scores[0]
        yield at_least("collapsed and diverse generator told apart by", gap, 1.0, k=k)
        shares, found = torch.linspace(0, 1, 9), []
        for share in shares.tolist():
            rows = blurred(k, 12, share)
            found.append(score_of(rows, given="probabilities", splits=1).value)
            exact = k * np.exp(-scipy.stats.entropy(rows[0].numpy()))
            yield equals("score after blurring", found[-1], exact, tol=1e-12, k=k, share=share)
        yield at_most("change of the score as blur grows", np.diff(found), -1e-3, k=k)
    levels, found = [[4, 4, 4], [5, 4, 3], [6, 4, 2], [8, 3, 1], [10, 1, 1], [12, 0, 0]], []
    for counts in levels:
        found.append(score_of(counted(counts), given="probabilities", splits=1).value)
        exact = np.exp(scipy.stats.entropy(counts))
        yield equals("score of unequal classes", found[-1], exact, tol=1e-12, counts=str(counts))
    yield at_most("change of the score as classes concentrate", np.diff(found), -1e-3)


inception_score_blind_spots.foil(
    "the score sees collapse inside a class",
    refuted_by="collapsed and diverse generator told apart by",
    seen_by="score",
)
