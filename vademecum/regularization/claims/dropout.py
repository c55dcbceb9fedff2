"""Dropout: masks of units, the networks that they leave, and their average."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Literal

import torch
from scipy.stats import binomtest, chi2_contingency
from torch import Tensor, nn

from vademecum.claims import at_most, claim, consistent, equals
from vademecum.regularization import dropout_ensemble as ensemble
from vademecum.regularization import mc_dropout

ALPHA = 1e-8  # of each of a dozen tests


def mask_law(keep: list[float]) -> Iterator[tuple[tuple[int, ...], float]]:
    """All masks of units that are kept with these probabilities, and the masks' probabilities."""
    for b in product((0, 1), repeat=len(keep)):
        yield b, math.prod(q if bit else 1 - q for bit, q in zip(b, keep, strict=True))


def independence(one: Tensor, other: Tensor) -> float:
    """The p-value of a chi-square test of two rows of bits."""
    table = [[int(((one == a) & (other == b)).sum()) for b in (0, 1)] for a in (0, 1)]
    return float(chi2_contingency(table, correction=False)[1])  # pyright: ignore


@claim(
    by="sampling",
    sources=("A-169", "A-170", "B-343", "C-219", "D-239"),
    budget=0.5,
    short=r"p(b) = \prod_i \pi_i^{b_i} (1-\pi_i)^{1-b_i},\quad h \mapsto b \odot h",
)
def dropout(rate: Literal["1 - keep", "keep"] = "1 - keep", shared: bool = False):
    r"""Dropout sets units to zero at random.

    During training unit $i$ is kept with probability $\pi_i$ and set to 0 otherwise, independently
    for each unit and each example: $p(b) = \prod_i \pi_i^{b_i} (1 - \pi_i)^{1 - b_i}$. All thinned
    networks share weights, dropped units get no gradient, and evaluation is deterministic. Usual
    retention is 0.8 for inputs and 0.5 for hidden units; AlexNet used it in its dense layers
    (both quoted).

    The masks are those of `torch.nn.Dropout`, whose argument is the rate of *dropping*, $1 - \pi$,
    and which divides by $\pi$ what it keeps, and those of `mc_dropout`. Counts are tested against
    the binomial law, and independence by chi-square. Over all masks the law sums to 1, and unit
    $i$ is kept with probability $\pi_i$.

    Knobs:
        rate: What the argument of the layer is.
        shared: Whether all examples of a batch have one mask.
    """
    for keep in ([0.8, 0.5, 0.9], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.95]):
        law = list(mask_law(keep))
        yield equals("masks together", math.fsum(p for _, p in law), 1.0, tol=1e-14)
        for i, q in enumerate(keep):
            yield equals("chance of a unit", math.fsum(p for b, p in law if b[i]), q, tol=1e-14)
    n, m = 800, 64
    for keep in (0.8, 0.5):
        layer, at = nn.Dropout(1 - keep if rate == "1 - keep" else keep), {"keep": keep}
        own = mc_dropout(layer, torch.ones(n // 2, m), samples=2).draws
        for who, out in (("torch", layer(torch.ones(n, m))), ("mc_dropout", own.reshape(n, m))):
            out = out[:1].expand(n, m) if shared else out
            kept = out != 0
            p = float(binomtest(int(kept.sum()), n * m, keep).pvalue)
            yield consistent("kept units", p, alpha=ALPHA, who=who, **at)
            yield equals("what is left of 1", out[kept], 1 / keep, tol=1e-14, who=who, **at)
            p = independence(kept[:, ::2], kept[:, 1::2])
            yield consistent("independence of units", p, alpha=ALPHA, who=who, **at)
            p = independence(kept[::2], kept[1::2])
            yield consistent("independence of examples", p, alpha=ALPHA, who=who, **at)
        w = torch.randn(n, m).abs() + 0.1
        w.requires_grad_()
        out = layer(w)
        (slopes,) = torch.autograd.grad(out.sum(), w)
        yield equals("gradient through dropped units", slopes[out == 0], 0.0, tol=0.0, **at)
        yield equals("gradient through kept units", slopes[out != 0], 1 / keep, tol=1e-14, **at)
        layer.eval()
        yield equals("evaluation", layer(w), w, tol=0.0, **at)


dropout.foil("the rate of keeping given for that of dropping", rate="keep",
             refuted_by="kept units")  # fmt: skip
dropout.foil("one mask for the whole batch", shared=True,
             refuted_by="independence of examples")  # fmt: skip


def two_layers(rates: tuple[float, float], sizes: tuple[int, int, int]) -> nn.Sequential:
    """Dropout on the inputs and on the hidden units of a network with weights of size 2."""
    d, m, k = sizes
    model = nn.Sequential(
        nn.Dropout(rates[0]), nn.Linear(d, m), nn.Tanh(), nn.Dropout(rates[1]), nn.Linear(m, k)
    )
    for p in model.parameters():
        p.data = 2 * torch.randn(p.shape)
    return model


def thinned(model: nn.Sequential, x: Tensor, b: tuple[int, ...], keep: list[float]) -> Tensor:
    """The probabilities of the network that a mask leaves, with what is kept divided by its rate.

    The weights are those of all thinned networks: they are shared.
    """
    scaled = torch.tensor([bit / q for bit, q in zip(b, keep, strict=True)])
    first, last = model[1], model[4]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    d = x.shape[1]
    hidden = torch.tanh((x * scaled[:d]) @ first.weight.T + first.bias)
    return ((hidden * scaled[d:]) @ last.weight.T + last.bias).softmax(1).detach()


@claim(
    by="identity",
    sources=("A-171", "B-344", "C-218"),
    budget=0.8,
    short=r"p(y|x) = \sum_{b \in \{0,1\}^R} p(b)\, p(y|x;b)",
)
def dropout_ensemble(weights: Literal["law", "uniform"] = "law", samples: int = 4000):
    r"""Dropout is an ensemble of exponentially many networks.

    With $R$ units that can be dropped, the dropout predictor averages over $2^R$ subnetworks that
    share their weights, weighted by the law of the masks,
    $p(y \mid x) = \sum_{b \in \{0, 1\}^R} p(b)\, p(y \mid x; b)$.

    `dropout_ensemble` is compared with a sum over all masks written out, for dropout on the inputs
    and on hidden units at different rates, and with the binomial sum
    $\sum_j \binom8j 0.9^j 0.1^{8 - j} \sigma(j - 3.5)$ where 8 equal units are kept at 0.9. The
    mean of `mc_dropout` lies within Hoeffding's bound $\sqrt{\log(2 / \alpha) / 2 S}$ of it,
    $\alpha = 10^{-8}$ for each number.

    Knobs:
        weights: How masks are weighted: by their law, or equally.
        samples: How many masks are sampled.
    """
    for rates, sizes in (((0.1, 0.4), (5, 3, 4)), ((0.3, 0.8), (2, 4, 2))):
        model, x = two_layers(rates, sizes), torch.randn(3, sizes[0])
        keep = [1 - rates[0]] * sizes[0] + [1 - rates[1]] * sizes[1]
        R, at = len(keep), {"units": sizes[0] + sizes[1]}
        total, square = torch.zeros(3, sizes[2]), torch.zeros(3, sizes[2])
        for b, chance in mask_law(keep):
            share = chance if weights == "law" else 2.0**-R
            p = thinned(model, x, b, keep)
            total, square = total + share * p, square + share * p * p
        found = ensemble(model, x)
        yield equals("units", found.units, R)
        yield equals("average of all subnetworks", found.arithmetic, total, tol=1e-12, **at)
        spread = square - total * total
        yield equals("their variance", found.variance, spread, tol=1e-12, **at)
        mean = mc_dropout(model, x, samples=samples).probabilities
        assert mean is not None
        close = math.sqrt(math.log(2 / ALPHA) / (2 * samples))
        yield at_most("distance of the sampled mean", (mean - total).abs(), close, tol=0.0, **at)
    layer = nn.Linear(8, 1)
    layer.weight.data.fill_(0.9)
    layer.bias.data.fill_(-3.5)
    q = 0.9 if weights == "law" else 0.5
    terms = (math.comb(8, j) * q**j * (1 - q) ** (8 - j) / (1 + math.exp(3.5 - j))
             for j in range(9))  # fmt: skip
    found = ensemble(nn.Sequential(nn.Dropout(0.1), layer), torch.ones(1, 8), link="sigmoid")
    yield equals(
        "average of the 256 networks of 8 equal inputs",
        found.arithmetic,
        math.fsum(terms),
        tol=1e-12,
    )


dropout_ensemble.foil("all masks weighted equally", weights="uniform",
                      refuted_by="average of the 256 networks of 8 equal inputs")  # fmt: skip
