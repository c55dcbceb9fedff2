"""Distillation: softmax at a temperature, the loss of a student, and its gradient."""

import math
from functools import partial
from typing import Literal

import numpy as np
import torch
from scipy.special import entr, logsumexp, rel_entr, softmax
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals
from vademecum.regularization import distillation_loss as library_loss


def spread_logits(k: int) -> Tensor:
    """Distinct logits in [-2, 2], in random order, with gaps of 2 / k at least."""
    return (-2 + (torch.randperm(k) + 0.5 * torch.rand(k)) * 4 / k).double()


def heat(T: float, *, inverted: bool) -> float:
    """The temperature, or one over it."""
    return 1 / T if inverted else T


@claim(
    by="identity",
    sources=("B-342",),
    budget=0.4,
    short=r"p_i \propto e^{z_i/T},\quad dH/dT = \mathrm{Var}_p(z) / T^3 \ge 0",
)
def tempered_softmax(inverted: bool = False, power: int = 3):
    r"""A softmax at a temperature grows softer as it rises.

    At temperature $T$ the softmax is $p_i \propto e^{z_i / T}$. Its entropy increases with $T$,
    $\frac{dH}{dT} = \mathrm{Var}_p(z) / T^3 \ge 0$, from 0 (the largest logit alone, if it is
    unique) as $T \to 0$ to $\log k$ as $T \to \infty$. A high temperature reveals the relative
    probabilities of the wrong classes, $p_i / p_j = e^{(z_i - z_j) / T}$.

    With $\beta = 1 / T$, $dH / d\beta = -\beta\, \mathrm{Var}_p(z)$. The entropies are the least
    values of `distillation_loss`, those of a student that is its teacher; derivatives are by the
    complex step.

    Knobs:
        inverted: Whether the logits are multiplied by the temperature.
        power: The power of the temperature in the derivative.
    """
    for k in (2, 3, 7):
        z, at = spread_logits(k), {"classes": k}
        grid = torch.logspace(math.log10(0.2), math.log10(50), 40)
        p = (z / grid[:, None]).softmax(1).numpy()
        heats = [heat(T, inverted=inverted) for T in grid.tolist()]
        found = torch.tensor([float(library_loss(z, z, temperature=T)) for T in heats])
        yield equals("entropy", found, entr(p).sum(1), tol=1e-13, **at)
        yield at_least("rise of the entropy", found.diff(), 1e-9, tol=0.0, **at)
        slope = complex_step(partial(entropies, z, inverted=inverted), grid, 1)
        spread = torch.from_numpy(p @ z.numpy() ** 2 - (p @ z.numpy()) ** 2)
        yield equals("slope of the entropy", slope, spread / grid**power, tol=1e-11, **at)
        ends = [heat(T, inverted=inverted) for T in (1e-3, 1e4)]
        cold, hot = (float(library_loss(z, z, temperature=T)) for T in ends)
        yield equals("entropy at T = 0.001", cold, 0.0, tol=1e-12, **at)
        yield equals("entropy at T = 10000", hot, math.log(k), tol=1e-6, **at)
        p = softmax(z.numpy() / 5.0)
        ratios, gaps = np.log(p[:, None] / p), (z[:, None] - z).numpy() / 5.0
        yield equals("log-ratios of classes at T = 5", ratios, gaps, tol=1e-13, **at)


def entropies(z: Tensor, T: Tensor, *, inverted: bool) -> Tensor:
    """The entropies at many temperatures, which may be complex."""
    e = ((z - z.max()) * (T if inverted else 1 / T)[:, None]).exp()
    p = e / e.sum(1, keepdim=True)
    return -(p * p.log()).sum(1)


tempered_softmax.foil("temperature inverted", inverted=True, refuted_by="rise of the entropy")
tempered_softmax.foil("the square of the temperature", power=2, refuted_by="slope of the entropy")

Form = Literal["cross-entropy", "as printed"]
Count = Literal["examples", "entries"]


def loss_of(G: Tensor, F: Tensor, T: float, form: Form, count: Count = "examples") -> float:
    """The loss of the library; or as it was printed, or divided by the number of logits."""
    if form == "as printed":
        g = (G / T).numpy()
        inner = g - logsumexp(g, axis=-1, keepdims=True)
        return float((softmax((F / T).numpy(), axis=-1) * inner).sum(-1).mean())
    share = 1.0 if count == "examples" else 1 / G.shape[-1]
    return share * float(library_loss(G, F, temperature=T))


@claim(
    by="identity",
    sources=("A-320", "B-340", "B-341", "C-232"),
    budget=0.5,
    short=r"\ell = -\sum_y \mathrm{softmax}(F/T)_y [G_y/T - \log\sum_\nu e^{G_\nu/T}] \ge H",
)
def distillation_loss(form: Form = "cross-entropy", count: Count = "examples"):
    r"""A student learns the softened answers of a teacher by their cross-entropy.

    A small student with logits $G$ learns from a trained large model or ensemble with logits $F$ by
    $\ell = -\sum_y \mathrm{softmax}(F / T)_y \big[\frac{G_y}{T} - \log \sum_\nu e^{G_\nu / T}\big]$
    with $T > 1$: soft targets carry more information than hard labels, and the student is cheap to
    deploy (quoted). The loss is at least the entropy of the softened teacher, with equality if and
    only if $G - F$ is constant. Over a batch it is the mean over the examples.

    It is that entropy plus the relative entropy of teacher and student, which is what SciPy is
    asked for; 200 perturbations of the student do not go below it.

    Knobs:
        form: The formula: a cross-entropy, or the sum that was printed.
        count: What the mean over a batch counts: examples, or their logits.
    """
    for shape, T in (((3, 5), 1.0), ((2, 3, 4), 2.0), ((1, 2), 5.0)):
        F, G = (4 * torch.rand(shape) - 2 for _ in range(2))
        at = {"T": T, "classes": shape[-1]}
        p, q = (softmax((z / T).numpy(), axis=-1) for z in (F, G))
        entropy = entr(p).sum(-1).mean()
        wanted = rel_entr(p, q).sum(-1).mean() + entropy
        yield equals("loss", loss_of(G, F, T, form, count), wanted, tol=1e-12, **at)
        same = loss_of(F + torch.randn(shape[:-1])[..., None], F, T, form, count)
        yield equals("loss of a student up to a constant", same, entropy, tol=1e-12, **at)
        others = [loss_of(F + torch.randn(shape), F, T, form, count) for _ in range(200)]
        yield at_least("loss of other students", torch.tensor(others), entropy, tol=1e-13, **at)
        off = F.clone()
        off[..., 0] += T  # no probability is below e^-4 / 5, so its square counts
        one = loss_of(off, F, T, form, count)
        yield at_least("loss of a student with one logit off", one, entropy + 1e-4, tol=0.0, **at)
        scaled = float(library_loss(G, F, temperature=T, scaled=True))
        yield equals("loss times T^2", scaled, T * T * wanted, tol=1e-12, **at)
    zero = torch.zeros(1, 2)
    yield equals("loss of two equal classes", loss_of(zero, zero, 1.0, form, count), math.log(2),
                 tol=1e-14)  # fmt: skip


distillation_loss.erratum(
    "C-232",
    printed=r"$\ell(x) = \sum_y \frac{q \exp[F_y/T]}{\sum_\nu \exp[F_\nu/T]}"
    r" [ \frac{1}{T} G_y - \ln \sum_\nu \exp[G_\nu/T] ]$",
    right=r"$\ell = -\sum_y \mathrm{softmax}(F/T)_y [ G_y/T - \ln \sum_\nu e^{G_\nu/T} ]$",
    why="The minus sign of a cross-entropy, which the sheet writes in its other losses, is missing:"
    " the printed sum is an expected log-probability, never positive (two classes,"
    r" $F = G = (0, 0)$, $T = 1$: $-\ln 2 = -0.693$ and not $+\ln 2$), and minimising it drives the"
    " student away from the teacher. The stray $q$ is undefined (probably scan noise).",
    weight="hard",
    refuted_by="loss of two equal classes",
    form="as printed",
)
distillation_loss.foil("divided by examples times classes", count="entries")

Side = Literal["student - teacher", "teacher - student"]


def formula(G: Tensor, F: Tensor, T: float, side: Side, divided: bool) -> np.ndarray:
    """The gradient of the loss of each example."""
    teacher, student = (softmax((z / T).numpy(), axis=-1) for z in (F, G))
    gap = student - teacher if side == "student - teacher" else teacher - student
    return gap / T if divided else gap


@claim(
    by="identity",
    sources=("C-233", "A-320"),
    budget=0.4,
    short=r"\partial\ell/\partial G_y ="
    r" \tfrac1T [\mathrm{softmax}(G/T)_y - \mathrm{softmax}(F/T)_y]",
)
def distillation_gradient(side: Side = "student - teacher", divided: bool = True):
    r"""The gradient of the distillation loss is softened student minus softened teacher.

    $\frac{\partial \ell}{\partial G_y}
    = \frac1T [\mathrm{softmax}(G / T)_y - \mathrm{softmax}(F / T)_y]$, which sums to 0 over $y$ and
    vanishes at $G = F$. For large $T$ and logits centred to mean 0,
    $T^2\, \partial \ell / \partial G_y \to \frac1k (G_y - F_y)$: distillation becomes logit
    matching.

    The derivative of $\log \sum_\nu e^{G_\nu / T}$ is $\frac1T \mathrm{softmax}(G / T)$. The
    gradient of `distillation_loss` by autograd is compared with the formula and with central
    differences; for $n$ examples it has the factor $1/n$. At $T = 10^4$ the second term of the
    expansion is at most $8 / T$ of the largest component, for logits up to 4.

    Knobs:
        side: Which of the two is subtracted.
        divided: Whether the gradient has the factor $1 / T$.
    """
    for shape, T in (((3, 5), 1.0), ((2, 4), 3.0), ((1, 2), 0.5)):
        F, G = (4 * torch.rand(shape) - 2 for _ in range(2))
        n, at = shape[0], {"T": T, "classes": shape[1]}
        slope = slope_of(G, F, T)
        wanted = formula(G, F, T, side, divided)
        yield equals("gradient", n * slope, wanted, tol=1e-13, **at)
        yield equals("sum over classes", slope.sum(1), 0.0, tol=1e-14, **at)
        yield equals("gradient at the teacher", slope_of(F, F, T), 0.0, tol=1e-15, **at)
        step, unit = 1e-5, torch.zeros(shape)
        unit[0, 1] = step
        two = [float(library_loss(G + s * unit, F, temperature=T)) for s in (1, -1)]
        yield equals("central difference", n * (two[0] - two[1]) / (2 * step), wanted[0, 1],
                     tol=1e-8, **at)  # fmt: skip
        lower = G - 0.1 * T * T * torch.tensor(wanted)
        after, before = (float(library_loss(z, F, temperature=T)) for z in (lower, G))
        yield at_most("loss after a step", after, before, tol=1e-14, **at)
        F, G = (z - z.mean(1, keepdim=True) for z in (F, G))
        hot = 1e4 * 1e4 * n * slope_of(G, F, 1e4)
        largest = float((G - F).abs().max())
        off = (hot - (G - F) / shape[1]).abs().max() / largest * shape[1]
        yield at_most("distance from logit matching", off, 8e-4, tol=0.0, classes=shape[1])
    F, G = torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])
    found = formula(G, F, 1.0, side, divided)[0, 0]
    yield equals("gradient at F = (0, 0), G = (1, 0)", found, 1 / (1 + math.exp(-1)) - 0.5,
                 tol=1e-14)  # fmt: skip


def slope_of(G: Tensor, F: Tensor, T: float) -> Tensor:
    """The gradient of the library's loss, by autograd."""
    G = G.clone().requires_grad_()
    return torch.autograd.grad(library_loss(G, F, temperature=T), G)[0]


distillation_gradient.erratum(
    "C-233",
    printed=r"$\frac{\partial \ell}{\partial G_y} = \frac{1}{T} [ \frac{e^{qF_y/T}}{\sum_\nu"
    r" e^{F_\nu/T}} - \frac{q e^{G_y/T}}{\sum_\nu e^{G_\nu/T}} ]$",
    right=r"$\frac{\partial \ell}{\partial G_y} ="
    r" \frac1T [\mathrm{softmax}(G/T)_y - \mathrm{softmax}(F/T)_y]$",
    why="Teacher minus student is the right derivative of the sign-flipped objective printed above"
    " it, so the slip is inherited; for a cross-entropy the sign is student minus teacher. With"
    " $T = 1$, $F = (0, 0)$, $G = (1, 0)$ the derivative in $G_1$ is $0.731 - 0.5 = 0.231$, printed"
    " $-0.231$. The letters $q$ are probably scan noise.",
    weight="soft",
    refuted_by="gradient at F = (0, 0), G = (1, 0)",
    side="teacher - student",
)
distillation_gradient.foil("without the factor $1/T$", divided=False, refuted_by="gradient")
