"""Perturbations that end just behind the boundary: how long they are, and how to tell."""

import math
from functools import partial
from typing import Literal

import torch
from scipy.integrate import quad
from scipy.special import ndtr
from torch import Tensor, nn

from vademecum import robustness
from vademecum.claims import at_most, claim, equals, in_mean
from vademecum.robustness import deepfool, fgsm, margin_detector


def binary(w: Tensor, b: Tensor) -> nn.Linear:
    """The linear classifier whose two logits differ by w x + b, beside what both have."""
    d = len(w)
    model, common = nn.Linear(d, 2), torch.randn(d)
    model.weight.data = torch.stack([common + w, common])
    model.bias.data = torch.stack([b, torch.zeros(())])
    return model


@claim(
    by="identity",
    sources=("B-445",),
    budget=0.5,
    short=r"\hat\rho = \tfrac1n \sum_i \frac{\|r(x_i)\|}{\|x_i\|}"
    r" = \tfrac1n \sum_i \frac{|w^\top x_i + b|}{\|w\| \|x_i\|}",
)
def average_robustness(
    average: Literal["of ratios", "of lengths"] = "of ratios", power: float = 1.0
):
    r"""Average relative robustness: the mean length of perturbations, relative to the inputs.

    $\hat\rho_{\mathrm{adv}} = \frac1n \sum_i \frac{\|r(x_i)\|_2}{\|x_i\|_2}$ with $r(x_i)$ the
    minimal perturbation found; for binary linear classifiers it equals $\frac1n \sum_i
    \frac{|w^\top x_i + b|}{\|w\| \|x_i\|}$.

    *Checked* for random classifiers in two to nine dimensions: `average_robustness`, whose
    perturbations are those of `deepfool`, is $1 + o$ times this with an overshoot of $o$; inputs
    have lengths from about 0.3 to 10. With labels that the model gets wrong these count as 0.

    Knobs:
        average: What the mean is of: of ratios, or of perturbations and of inputs by themselves.
        power: The power of $\|w\|$.
    """
    for n, d, o in ((7, 2, 0.02), (12, 5, 1e-6), (30, 9, 0.5)):
        w, b = torch.randn(d), torch.randn(())
        model = binary(w, b)
        x = torch.randn(n, d) * torch.logspace(-0.5, 1, n)[:, None]
        score = x @ w + b
        attack = partial(deepfool, overshoot=o)
        found = robustness.average_robustness(model, x, attack=attack, box=None)
        wanted = (score.abs() / (w.norm() ** power * x.norm(dim=1))).mean()
        mean = found.mean
        if average == "of lengths":
            mean = float((found.ratio * x.norm(dim=1)).sum() / x.norm(dim=1).sum())
        at = {"n": n, "d": d, "overshoot": o}
        yield equals("mean of ratios", mean / (1 + o), float(wanted), tol=1e-8, **at)
        y = torch.zeros(n).long()
        given = robustness.average_robustness(model, x, y, attack=attack, box=None).ratio
        kept = torch.where(score > 0, found.ratio, 0)
        yield equals("ratios where half of the labels are wrong", given, kept, **at)


average_robustness.foil("a ratio of means", average="of lengths")
average_robustness.foil("the norm of the weights squared", power=2.0)


def scored(n: int, w: Tensor) -> Tensor:
    """Inputs whose scores w x have the law N(1.5, 1)."""
    x = torch.randn(n, len(w))
    return x + ((torch.randn(n) + 1.5 - x @ w) / w.square().sum())[:, None] * w


def mass(t: float) -> float:
    """The probability that such a score is less than t in modulus."""
    return float(ndtr(t - 1.5) - ndtr(-t - 1.5))


def area(overshoot: float) -> float:
    """The chance that an attacked example has a smaller margin than another clean one.

    For scores f of law N(1.5, 1): P(o |f| < |g|) for independent f, g, by quadrature.
    """

    def density(t: float) -> float:
        both = math.exp(-((t - 1.5) ** 2) / 2) + math.exp(-((t + 1.5) ** 2) / 2)
        return both / math.sqrt(2 * math.pi)

    def above(t: float) -> float:
        return float(ndtr(1.5 - t) + ndtr(-1.5 - t))

    return quad(lambda t: density(t) * above(overshoot * t), 0, 12, epsabs=1e-12)[0]


def ranked(attacked: Tensor, clean: Tensor) -> float:
    """The share of pairs in which the attacked one has the smaller margin, ties by halves."""
    clean = clean.sort().values
    low = torch.searchsorted(clean, attacked, right=False)
    high = torch.searchsorted(clean, attacked, right=True)
    return float((len(clean) - (low + high) / 2).mean() / len(clean))


@claim(
    by="sampling",
    sources=("A-322", "B-444"),
    budget=1.0,
    short=r"|f(x + (1 + o) r)| = o |f(x)|, \quad \text{flag } x' \iff |f(x')| < \tau",
)
def margin_detection(attack: Literal["minimal", "fixed"] = "minimal", factor: float = 1.0):
    r"""Minimal perturbations can be detected: by their margin.

    An attack that stops just behind the decision boundary leaves a small gap between logits, so a
    threshold $\tau$ on the gap detects it. For a linear score with overshoot $o$ the gap after
    DeepFool is exactly $o$ times the clean gap, so all examples with $o |f(x)| < \tau$ are flagged
    at the price of the clean inputs with $|f(x)| < \tau$; with $o = 1$ clean and attacked gaps have
    the same law and detection is guessing. An attack of fixed radius that goes on past the boundary
    evades the detector.

    *Checked* for scores of law $\mathcal N(1.5, 1)$ in three dimensions and $o$ of 0.02, 0.1 and 1:
    gaps after `deepfool`; the shares that `margin_detector` flags and the area under the curve,
    against the normal law, within five standard errors; the rate of false alarms, $k / (n + 1)$ in
    the mean over 200 calibrations with $n = 39$ examples; and perturbations of length $4 / \|w\|$
    by `fgsm`, for which the area is below one half.

    Knobs:
        attack: Whether perturbations are minimal or of fixed length.
        factor: The gap that is left, in units of $o |f(x)|$.
    """
    w = torch.randn(3)
    model, n = binary(w, torch.zeros(())), 5000
    clean, other = scored(n, w), scored(n, w)
    y = (clean @ w < 0).long()
    detector = margin_detector(model, scored(999, w), alpha=0.1)

    def wide(p: float) -> float:
        """Five standard errors of a share; of an area, too (van Dantzig's bound)."""
        return 5 * math.sqrt(p * (1 - p) / n)

    share, flagged = mass(detector.threshold), float(detector(other).double().mean())
    yield equals("share of clean examples flagged", flagged, share, tol=wide(share))
    far = fgsm(model, clean, y, norm="l2", radius=4 / float(w.norm()), box=None)
    for o in (0.02, 0.1, 1.0):
        found = deepfool(model, clean, y, norm="l2", radius=100.0, box=None, overshoot=o)
        shown, start = (
            (found.x, clean) if attack == "minimal" else (far.x[far.fooled], clean[far.fooled])
        )
        gaps, left = (shown @ w).abs(), factor * o
        yield equals("gap after the attack", gaps, left * (start @ w).abs(), overshoot=o)
        share, flagged = mass(detector.threshold / left), float(detector(shown).double().mean())
        yield equals(
            "share of attacked examples flagged", flagged, share, tol=wide(share), overshoot=o
        )
        found_area, exact = ranked(gaps, (other @ w).abs()), area(left)
        yield equals("area under the curve", found_area, exact, tol=wide(exact), overshoot=o)
    yield equals("area where the overshoot is 1", area(factor), 0.5, tol=1e-10)
    evaded = ranked((far.x[far.fooled] @ w).abs(), (other @ w).abs())
    yield at_most("area for perturbations of fixed length", evaded, 0.4)
    rates = [mass(margin_detector(model, scored(39, w), alpha=0.08).threshold) for _ in range(200)]
    yield in_mean("rate of false alarms", torch.tensor(rates), 3 / 40, calibration=39)


margin_detection.foil("adversarial examples always have small margins", attack="fixed")
margin_detection.foil("a tenth more is left", factor=1.1)
