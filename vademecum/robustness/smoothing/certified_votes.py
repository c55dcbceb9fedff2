r"""Certificates by smoothing: what a classifier says of an input under noise, by majority.

For a classifier $f$ on $\mathbb{R}^d$, noise $\sigma Z$ with $Z \sim \mathcal N(0, I)$, and the
class $c$ with the probability $p = P(f(x + \sigma Z) = c) > \frac12$, the majority vote

$$g(x') = \arg\max_c P(f(x' + \sigma Z) = c) \quad\text{is}\quad c \quad\text{for all}\quad
\|x' - x\|_2 < \sigma\, \Phi^{-1}(p)$$

(Cohen, Rosenfeld and Kolter). A lower confidence limit $\underline p \le p$ gives a radius that
holds with that confidence.

**What breaks it on a machine.** The sum $x + \sigma Z$ in floating point is no Gaussian around $x$:
its last digits tell where it came from, and a network can read them. So $f(x + \sigma Z)$ and
$f(x' + \sigma Z)$ may be told apart much better than the theorem allows for (Voráček and Hein
certify a radius of 1.26 where a point at 0.8 gets another class).

**What mends it.** Let $R$ round to the nearest multiples of a quantum $q$. The theorem holds for
any measurable classifier, so for $f \circ R$. If $x = q k$ lies on the grid itself,

$$R(x + \sigma Z) = q\, (k + K), \qquad K_i = \operatorname{round}(\sigma Z_i / q)
\text{ independent},$$

so the vote of $f \circ R$ under Gaussian noise *is* the vote of $f$ under integer noise, which a
machine can add without rounding. All it takes of $f$ is that its answer depends on the integers
$k + K$ alone. (Kernels that round otherwise at another place of a batch break that where two logits
are equal up to rounding, and there only.) The radius is the same, and it holds for all $x' = q k'$
on the grid, such as images of 8 bits; distances count as those of $q k$ and $q k'$. Off the grid
the vote is that of a network which rounds after the noise is added, in real arithmetic.

**How the confidence adds up.** The class is chosen from `n0` draws, $\underline p$ is Clopper and
Pearson's limit from $n$ others, at the level $\alpha - n d \tau$, where $\tau$ bounds the total
variation between the law of a coordinate's noise and the rounded normal one (`_rounded_normal`):
$n d \tau$ bounds that of all the noise. So a wrong certificate has at most the probability
$\alpha$, if the generator's bits are fair. The noise is the same for all examples: what is found of
one does not depend on the others, and $\alpha$ is for each of them.

Votes are counted, and the limits rounded down by more than SciPy may err. Checked by the claim
`robustness.randomized_smoothing`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri
from torch import Tensor, nn

from vademecum.arguments import floats, number, whole
from vademecum.foundations import clopper_pearson
from vademecum.progress import ticking
from vademecum.results import one_line
from vademecum.robustness._logits import as_classifier
from vademecum.robustness.smoothing._ballots import Votes
from vademecum.robustness.smoothing._noisy import FloatingNoise, GridNoise

__all__ = ["Smoothed", "randomized_smoothing"]

_ROUNDING = 4e-10  # of a limit by SciPy, relative: four times what `clopper_pearson` promises


class Smoothed(NamedTuple):
    """What a smoothed classifier says, and how far around it that holds.

    Example:
        >>> Smoothed(torch.tensor([3]), torch.tensor([0.5]), torch.tensor([False]),
        ...          torch.tensor([0.9]), True)
        Smoothed(prediction=tensor([3]), radius=tensor([0.5000]), ..., sound=True)
    """

    prediction: Int[Tensor, " n"]
    """The class of the majority; -1 where the vote was too close to tell."""
    radius: Float[Tensor, " n"]
    r"""The $\ell_2$ radius within which the prediction is constant; 0 where there is none."""
    abstained: Bool[Tensor, " n"]
    """Whether the majority is uncertain at this level."""
    p_lower: Float[Tensor, " n"]
    """A lower confidence limit for the probability of the class that `n0` draws chose."""
    sound: bool
    """Whether the certificate holds for the arithmetic that was used; not for floating noise."""

    __repr__ = one_line


def randomized_smoothing(
    model: nn.Module,
    x: Float[Tensor, " n *shape"],
    *,
    sigma: float,
    n: int = 100_000,
    n0: int = 100,
    alpha: float = 0.001,
    quantum: float | None = 1 / 255,
    memory: int | None = None,
    progress: bool = False,
    generator: torch.Generator | None = None,
) -> Smoothed:
    r"""The majority vote of a classifier under Gaussian noise, with a certified $\ell_2$ radius.

    The model is taken in evaluation mode and never changed. What it sees lies outside of the range
    of the inputs, too: a model that needs its inputs in [0, 1] has to cut them off itself. Its
    answer to an input must not depend on the others of a batch, nor on chance.

    Args:
        model: Any module that gives logits for at least two classes.
        x: The inputs, on the grid of `quantum`.
        sigma: The standard deviation of the noise, in the units of the inputs.
        n: How many noisy copies of each input estimate the probability.
        n0: How many others choose the class.
        alpha: The probability with which a certificate may be wrong.
        quantum: The grid's spacing, 1/255 for images of 8 bits. None adds Gaussian noise in
            floating point, whose certificates can be false, and says so in the result.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If an input is off the grid, the dtype cannot resolve the grid, logits are NaN
            or change from one pass to the next, or `alpha` is below what the sampler guarantees.

    References:
        Cohen, Rosenfeld and Kolter, Certified adversarial robustness via randomized smoothing, ICML
        2019. Voráček and Hein, Sound randomized smoothing in floating-point arithmetic, ICLR 2023.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)  # the first class where x_1 > 0
        >>> model.weight = nn.Parameter(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> x = torch.tensor([[0.2, 0.0], [-0.8, 1.0]])
        >>> found = randomized_smoothing(model, x, sigma=0.2, n=10_000)
        >>> found.prediction, found.radius < torch.tensor([0.2, 0.8]), found.sound
        (tensor([0, 1]), tensor([True, True]), True)
    """
    x = floats("x", x).detach()
    if x.ndim < 2 or x.is_complex():
        given = f"shape {tuple(x.shape)} of {x.dtype}"
        raise ValueError(f"x must hold real examples along its first axis, got {given}")
    number("sigma", sigma, above=0)
    whole("n", n, low=1)
    whole("n0", n0, low=1)
    number("alpha", alpha, above=0, below=1)
    noisy = FloatingNoise(x, sigma) if quantum is None else GridNoise(x, sigma, quantum)
    spent = n * x[0].numel() * noisy.total_variation
    if spent >= alpha:
        raise ValueError(
            f"alpha must be above {spent:.3g}, the total variation of the noise for n = {n} draws"
            f" of {x[0].numel()} numbers, got {alpha}"
        )
    bar = ticking("draws", n0 + n, progress=progress)
    with as_classifier(model, x, whole=True) as logits, bar as tick:
        votes = Votes(logits, noisy, memory, generator)
        top = votes.count(n0, tick)
        agreed = votes.agreed(n, top, tick)
    return _certificate(top, agreed, n, sigma, alpha - spent, sound=quantum is not None)


def _certificate(
    top: Tensor, agreed: Tensor, n: int, sigma: float, level: float, *, sound: bool
) -> Smoothed:
    p = clopper_pearson(agreed, n, confidence=1 - level, side="lower").low * (1 - _ROUNDING)
    radius = sigma * torch.as_tensor(ndtri(p.cpu().numpy()), device=p.device) * (1 - _ROUNDING)
    abstained = p <= 0.5
    top = top.masked_fill(abstained, -1)
    return Smoothed(top, radius.clamp(min=0), abstained, p, sound)
