r"""Gradient masking: signs that an attack failed because gradients mislead it.

A network whose gradients vanish, are shattered or random defeats attacks that follow them, and is
not robust for it. Each test counts how often $k$ of $m$ examples show a symptom, and is a flag if
the lower end of Clopper and Pearson's interval for the probability exceeds a limit that honest
networks do not reach:

| test | the share of | limit |
|---|---|--:|
| zero gradients | examples at which the gradient of the cross-entropy is zero in every entry | 0.05 |
| changing outputs | examples whose logits differ between two passes by more than rounding | 0 |
| single step wins | examples that only one of `fgsm` and `pgd` fools: those that `fgsm` does | 1/2 |
| unbounded attack fails | examples that survive `pgd` with a radius that reaches all of the box | 0.1 |
| square wins | examples that only one of `square` and `pgd` fools: those that `square` does | 1/2 |
| smaller logits help | examples that `pgd` fools only with the logits as they are or only with their $10^{-4}$: the latter | 1/2 |
| loss falls | examples with a gradient: those where the margin falls along it, in a step of random length up to half the radius from a random point of the ball | 0.05 |

Beside `fgsm` and `square`, `pgd` means the better of two: it climbs the cross-entropy and, where that
fails, the margin from three random points, which neither saturates nor mixes the classes. Without a
limit it climbs the margin from the example itself; with smaller logits, the cross-entropy. A network
that was trained until its softmax is 1 in floating point has zero gradients indeed: it is told so.

The network is *masked* if any test is a flag. With confidence $c$ a test whose probability is at
most its limit is a flag with a probability of at most $(1 - c) / 2$. No flag proves nothing; a flag
says that attacks by gradients show nothing. The claim is `gradient_masking`.

References:
    Athalye, Carlini and Wagner, Obfuscated gradients give a false sense of security, ICML, 2018.
    Carlini et al., On evaluating adversarial robustness, arXiv:1902.06705, 2019.
"""  # noqa: E501

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import number
from vademecum.foundations import ConfidenceInterval, clopper_pearson
from vademecum.randomness import given_back
from vademecum.results import one_line
from vademecum.robustness._threat import as_threat
from vademecum.robustness.masking._plain_network import PlainNetwork
from vademecum.robustness.masking._symptoms import LIMITS, Symptom, counted

__all__ = ["Masking", "MaskingTest", "gradient_masking"]


class MaskingTest(NamedTuple):
    """What one test found.

    Example:
        >>> MaskingTest("zero gradients", 1.0, ConfidenceInterval(0.9, 1.0), 0.05, True)
        MaskingTest(name='zero gradients', number=1.0, interval=ConfidenceInterval(low=0.9,
        high=1.0), limit=0.05, flag=True)
    """

    name: str
    """What it looks at."""
    number: float
    """The share of examples that show the symptom; NaN where none could."""
    interval: ConfidenceInterval
    """Clopper and Pearson's interval for the probability behind that share."""
    limit: float
    """What the lower end may be at most without a flag."""
    flag: bool
    """Whether it is more."""

    __repr__ = one_line


class Masking(NamedTuple):
    """What all tests found.

    Example:
        >>> Masking((), False)
        Masking(tests=(), masked=False)
    """

    tests: tuple[MaskingTest, ...]
    """The tests, by name and in order; those that attack are left out where outputs change, since
    then no prediction can be repeated."""
    masked: bool
    """Whether any of them is a flag."""

    __repr__ = one_line


def gradient_masking(
    model: nn.Module,
    x: Float[Tensor, " n *shape"],
    y: Int[Tensor, " n"],
    *,
    norm: Literal["linf", "l2"] = "linf",
    radius: float | Float[Tensor, " n"],
    box: tuple[float, float] | None = (0.0, 1.0),
    confidence: float = 0.99,
    preprocess: Callable[[Tensor], Tensor] | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> Masking:
    """Whether gradients are hidden from attacks: seven tests, each with a number and an interval.

    The model is taken in evaluation mode and never changed. It may be one that attacks refuse:
    not differentiable, or with outputs that change.

    Args:
        model: Any module that gives logits.
        x: The examples; fifty or more, or the intervals are wide.
        y: Their classes.
        norm: The norm of the ball.
        radius: The radius that robustness is claimed for, above 0; a number or one for each
            example.
        box: The lowest and the highest value of an input, or None for no such limits.
        confidence: What the intervals promise, in (0, 1).
        preprocess: What stands between `x` and the model, such as a normalisation.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If the radius is 0, or something is amiss with examples, classes or logits.

    Example:
        >>> class Rounded(nn.Module):
        ...     def forward(self, x):
        ...         return x.round()
        >>> x, y = torch.rand(50, 2), torch.zeros(50).long()
        >>> found = gradient_masking(Rounded(), x, y, norm="linf", radius=0.1)
        >>> found.masked, found.tests[0].name, found.tests[0].number
        (True, 'zero gradients', 1.0)
    """
    confidence = float(number("confidence", confidence, above=0, below=1))
    threat = as_threat(x, norm, radius, box, norms=("linf", "l2"))
    if not bool((threat.radius > 0).all()):
        raise ValueError(f"radius must be > 0, got {float(threat.radius.min())}")
    plain = PlainNetwork(model, preprocess)
    with given_back(generator):
        found = counted(plain, x, y, threat, memory=memory, generator=generator)
        tests = tuple(_judged(symptom, confidence) for symptom in found)
    return Masking(tests, any(test.flag for test in tests))


def _judged(symptom: Symptom, confidence: float) -> MaskingTest:
    name, seen, among = symptom
    if not among:
        return MaskingTest(name, math.nan, ConfidenceInterval(0.0, 1.0), LIMITS[name], False)
    interval = clopper_pearson(seen, among, confidence=confidence)
    flag = bool(interval.low > LIMITS[name])
    return MaskingTest(name, seen / among, interval, LIMITS[name], flag)
