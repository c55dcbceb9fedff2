"""Masked gradients: attacks that fail where there is no robustness."""

import math

import torch
from scipy.stats import binomtest
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vademecum import robustness
from vademecum.claims import claim, consistent, equals


class Plane(nn.Module):
    """Two logits in the plane, 0 and a scale times x_1 - x_2, shattered by a sine or not."""

    def __init__(self, scale: float, wave: float = 0.0, frequency: float = 1.0) -> None:
        super().__init__()
        self.scale, self.wave, self.frequency = scale, wave, frequency

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        score = x[:, 0] - x[:, 1] + self.wave * torch.sin(self.frequency * x[:, 0])
        return self.scale * torch.stack([score, torch.zeros_like(score)], 1)


def slopes(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The gradients of the cross-entropy in the inputs."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(cross_entropy(model(x), y, reduction="sum"), x)[0]


def points(n: int) -> tuple[Tensor, Tensor]:
    """Points of the unit square away from the diagonal, in single precision, and their classes."""
    x = torch.rand(8 * n, 2)
    x = x[(x[:, 0] - x[:, 1]).abs() > 0.03][:n].float()
    return x, (x[:, 0] < x[:, 1]).long()


@claim(
    by="sampling",
    sources=("B-461", "B-462"),
    budget=1.0,
    short=r"\arg\max c f = \arg\max f, \text{ but in float32 for large } c \quad"
    r" \nabla_x \ell(c f(x), y) = 0",
)
def gradient_masking(scale: float = 1e4, frequency: float = 1000.0, transferred: bool = True):
    r"""Gradient masking: attacks by gradients fail where nothing is robust.

    They do when the input gradient vanishes numerically (a saturated softmax) or is noisy
    (shattered). Multiplying the logits by a large constant does not change a single decision, yet
    in single precision the gradient becomes exactly 0; perturbations made for the network without
    the constant still succeed. Adding $0.01 \sin(1000\, x_1)$ to a logit of slope 1 turns the
    derivative's sign at a share $\frac1\pi \arccos \frac1{10}$ of all points; the mean of the
    gradient over a period has the right sign everywhere.

    *Checked* for a linear classifier of the plane, at $(0.6, 0.2)$ and 200 random points, with
    $\epsilon = \frac12$ and the factor $10^4$ (margins from 0.03: $e^{-300}$ is no number of single
    precision), and at 1000 points for the sine, by a binomial test. `gradient_masking` sees both
    and does not accuse the network itself.

    Knobs:
        scale: The constant before the logits.
        frequency: The frequency of the sine.
        transferred: Whether perturbations are made for the network without the constant; else for
            the one with it, which they fail on: a failed attack certifies nothing.
    """
    honest, scaled = Plane(1.0), Plane(scale)
    some, labels = points(200)
    x, y = (
        torch.cat([torch.tensor([[0.6, 0.2]]).float(), some]),
        torch.cat([torch.tensor([0]), labels]),
    )
    changed = (honest(x).argmax(1) != scaled(x).argmax(1)).sum()
    yield equals("decisions that the constant changes", int(changed), 0)
    gap = (x[:, :1] - x[:, 1:]).abs().double()
    size = slopes(honest, x, y).abs().double()
    yield equals("gradient without the constant", size, torch.sigmoid(-gap).expand(-1, 2), tol=1e-6)
    yield equals("gradient with the constant", slopes(scaled, x, y).abs(), 0.0, tol=0.0)
    free = robustness.fgsm(honest, x, y, norm="linf", radius=0.5)
    stuck = robustness.fgsm(scaled, x, y, norm="linf", radius=0.5)
    yield equals("examples fooled without it", int(free.fooled.sum()), len(x))
    yield equals("examples fooled with it", int(stuck.fooled.sum()), 0)
    shown = scaled(free.x if transferred else stuck.x).argmax(1)
    yield equals("errors with it on what was made without", int((shown != y).sum()), len(x))

    broken = Plane(1.0, 0.01, frequency)
    period = 2 * math.pi / 1000
    x = torch.rand(1000, 2) * torch.tensor([159 * period, 1.0])  # whole periods
    y = (x[:, 0] < x[:, 1]).long()
    right = slopes(honest, x, y)[:, 0].sign()
    flipped = int((slopes(broken, x, y)[:, 0].sign() != right).sum())
    share = math.acos(0.1) / math.pi
    p = float(binomtest(flipped, len(x), share).pvalue)
    yield consistent("p-value of the share of flipped signs", p, flipped=flipped)
    window = torch.linspace(-0.5, 0.5, 65)[:-1, None, None] * torch.tensor([period, 0.0])
    means = slopes(broken, (x + window).flatten(0, 1), y.repeat(64)).view(64, -1, 2).mean(0)
    wrong = int((means[:, 0].sign() != right).sum())
    yield equals("wrong signs of means over a period", wrong, 0)

    for name, model in (("itself", honest), ("scaled", scaled), ("shattered", broken)):
        found = robustness.gradient_masking(model, some, labels, norm="linf", radius=0.2)
        yield equals("networks accused", int(found.masked), int(name != "itself"), network=name)


gradient_masking.foil("a constant that is too small", scale=50.0)
gradient_masking.foil("a failed attack certifies robustness", transferred=False)
gradient_masking.foil("a slower sine flips fewer signs", frequency=150.0)
